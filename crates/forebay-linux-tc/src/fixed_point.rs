//! A law in 64-bit integers, as the kernel runs it: its numbers in the units of
//! `python/forebay/linux/bpf/fixed.h`.

use forebay_units::cast::whole_i64;
use forebay_units::{ParamError, Rate, Site, Span};

/// A named number of a law in the kernel.
pub type Field = (&'static str, i64);

/// What a law's header in the kernel is started with. The fields stand in the header's order; what
/// `state` leaves out is zero.
#[derive(Clone, Debug, PartialEq)]
pub struct Twin {
    /// Of its clock, where it keeps one.
    pub interval: Option<Span>,
    pub config: Vec<Field>,
    pub state: Vec<Field>,
}

/// A law that the kernel can run in fixed point: its header is `laws/<kind>.h` in
/// `python/forebay/linux/bpf`.
pub trait FixedPointLaw {
    /// Returns what the header is started with. The law can be built at `site`.
    ///
    /// # Errors
    /// A parameter that would saturate, or that the header does not have.
    fn twin(&self, site: &Site) -> Result<Twin, ParamError>;
}

/// Bits behind the point of a length, in bytes.
pub const LENGTH_BITS: i32 = 24;
/// … of a probability.
pub const PROBABILITY_BITS: i32 = 60;
/// … of a rate, in bytes per nanosecond.
pub const RATE_BITS: i32 = 56;
/// … of a factor's mantissa.
const MANTISSA_BITS: i32 = 48;

/// The largest length, in bytes.
const LONGEST_BYTES: f64 = (1u64 << 32) as f64;
/// The rates at which a length and a rate keep six digits and do not saturate.
const RATES: (Rate, Rate) = (Rate::from_bps(100_000), Rate::from_bps(100_000_000_000));

fn two_to(bits: i32) -> f64 {
    2f64.powi(bits)
}

/// Bits of a signal probability, or of another number in [0, 1].
pub fn probability(p: f64) -> i64 {
    whole_i64((p * two_to(PROBABILITY_BITS)).round())
}

/// Refuses a link on which fixed point would not do.
///
/// # Errors
/// Where the rate is outside.
pub fn fits(site: &Site) -> Result<(), ParamError> {
    let (low, high) = RATES;
    if low <= site.rate && site.rate <= high {
        return Ok(());
    }
    let allowed = format!("{low} to {high}, in fixed point");
    Err(ParamError::new("rate", site.rate, allowed))
}

/// A rate in bytes per nanosecond.
pub fn rate(bytes_per_s: f64) -> i64 {
    whole_i64((bytes_per_s * 1e-9 * two_to(RATE_BITS)).round())
}

/// A length given in usual packets.
///
/// # Errors
/// Where it is too long; `key` is blamed.
pub fn length(key: &str, pkts: f64, site: &Site) -> Result<i64, ParamError> {
    let packet_bytes = site.packet.0 as f64;
    if pkts * packet_bytes < LONGEST_BYTES {
        return Ok(whole_i64(
            (pkts * packet_bytes * two_to(LENGTH_BITS)).round(),
        ));
    }
    let most = LONGEST_BYTES / packet_bytes;
    let allowed = format!("less than {most:.0} packets, in fixed point");
    Err(ParamError::new(key, format!("{pkts} packets"), allowed))
}

/// A number with 48 bits of precision and a shift of its own: `fb_times` multiplies with it.
///
/// # Errors
/// Where it is 2^48 and more, or no number; `key` is blamed, whose value is `given`.
pub fn factor(key: &str, given: f64, x: f64) -> Result<i64, ParamError> {
    if x == 0.0 {
        return Ok(0);
    }
    // `two_to(exponent)` is above |x|.
    let exponent = if x.is_finite() {
        i32::try_from(whole_i64(x.abs().log2().floor())).expect("at most 1,023") + 1
    } else {
        i32::MAX
    };
    if exponent > MANTISSA_BITS {
        let allowed = format!("{:.4e} times less, in fixed point", x.abs() / two_to(48));
        return Err(ParamError::new(key, given, allowed));
    }
    let shift = (MANTISSA_BITS - exponent).min(127);
    let mantissa = whole_i64((x.abs() * two_to(shift)).round().min(two_to(48) - 1.0));
    let packed = mantissa | i64::from(shift) << MANTISSA_BITS;
    Ok(if x < 0.0 { packed | i64::MIN } else { packed })
}

/// The factor from a length to a probability for a gain per packet.
///
/// # Errors
/// As [`factor`].
pub fn gain(key: &str, per_packet: f64, site: &Site) -> Result<i64, ParamError> {
    let unit = two_to(PROBABILITY_BITS - LENGTH_BITS) / site.packet.0 as f64;
    factor(key, per_packet, per_packet * unit)
}

/// Bits behind the point of a gain times an error.
const PRODUCT_BITS: i32 = 52;

/// A gain of a difference equation, per packet.
///
/// # Errors
/// Where its product with the longest queue saturates; `key` is blamed.
pub fn difference_gain(key: &str, per_packet: f64, site: &Site) -> Result<i64, ParamError> {
    // FB_MAX.
    let most = two_to(62 - PRODUCT_BITS);
    let product = per_packet.abs() * site.buffer_pkts;
    if site.buffer_pkts.is_finite() && product >= most {
        let allowed = format!("{:.4e} times less, in fixed point", product / most);
        return Err(ParamError::new(key, per_packet, allowed));
    }
    let unit = two_to(PRODUCT_BITS - LENGTH_BITS) / site.packet.0 as f64;
    factor(key, per_packet, per_packet * unit)
}

/// Nanoseconds.
pub fn nanos(span: Span) -> i64 {
    i64::try_from(span.as_nanos()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn value(packed: i64) -> f64 {
        let mantissa = (packed & ((1 << 48) - 1)) as f64;
        let size = mantissa * two_to(-((packed >> 48 & 127) as i32));
        if packed < 0 {
            -size
        } else {
            size
        }
    }

    proptest! {
        #[test]
        fn a_factor_keeps_fourteen_digits(size in -17.0..14.4f64, negative: bool) {
            let x = if negative { -1.0 } else { 1.0 } * 10f64.powf(size);
            let packed = factor("k", x, x).unwrap();
            prop_assert!((value(packed) / x - 1.0).abs() < 1e-14, "{x} {packed}");
        }
    }

    #[test]
    fn what_saturates_is_refused() {
        assert_eq!(factor("k", 0.0, 0.0), Ok(0));
        for x in [2f64.powi(48), -1e15, f64::INFINITY, f64::NAN] {
            assert_eq!(factor("k", x, x).unwrap_err().key, "k");
        }
        let site = |bps| Site {
            rate: Rate::from_bps(bps),
            buffer_pkts: 100.0,
            packet: forebay_units::Bytes(1500),
        };
        assert_eq!(length("target", 1e9, &site(1)).unwrap_err().key, "target");
        assert!(fits(&site(100_000)).is_ok());
        assert!(fits(&site(99_999)).is_err() && fits(&site(200_000_000_000)).is_err());
    }
}
