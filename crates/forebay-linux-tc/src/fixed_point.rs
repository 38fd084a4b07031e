//! Laws in 64-bit integer arithmetic, as they run in the kernel. The number formats are those of
//! `python/forebay/linux/bpf/fixed.h`.

use forebay_units::cast::whole_i64;
use forebay_units::{ParamError, Rate, Site, Span};

/// A field of a law's C struct: its name and its value.
pub type Field = (&'static str, i64);

/// The values with which a law's C header is initialised.
#[derive(Clone, Debug, PartialEq)]
pub struct Twin {
    /// The interval of the law's clock; `None` if it keeps no clock.
    pub interval: Option<Span>,
    /// The configuration, in the order of the header's struct.
    pub config: Vec<Field>,
    /// The initial state, in the order of the header's struct. Fields that are left out are zero.
    pub state: Vec<Field>,
}

/// A law that can run in the kernel in fixed point. Its header is `laws/<kind>.h` in
/// `python/forebay/linux/bpf`.
pub trait FixedPointLaw {
    /// Returns the initial values of the header for a law at `site`, where the law can be built.
    ///
    /// # Errors
    /// If a parameter saturates, or the header does not support it.
    fn twin(&self, site: &Site) -> Result<Twin, ParamError>;
}

/// The fractional bits of a length in bytes.
pub const LENGTH_BITS: i32 = 24;
/// The fractional bits of a probability.
pub const PROBABILITY_BITS: i32 = 60;
/// The fractional bits of a rate in bytes per nanosecond.
pub const RATE_BITS: i32 = 56;
/// The bits of a factor's mantissa.
const MANTISSA_BITS: i32 = 48;

/// The upper bound of a length, in bytes.
const MAX_LENGTH_BYTES: f64 = (1u64 << 32) as f64;
/// The range of rates for which lengths and rates keep six digits and do not saturate.
const RATES: (Rate, Rate) = (Rate::from_bps(100_000), Rate::from_bps(100_000_000_000));

/// Returns 2^`bits`.
fn two_to(bits: i32) -> f64 {
    2f64.powi(bits)
}

/// Converts a signal probability, or another number in [0, 1].
pub fn probability(p: f64) -> i64 {
    whole_i64((p * two_to(PROBABILITY_BITS)).round())
}

/// Refuses a link whose rate is out of the range of the fixed-point arithmetic.
///
/// # Errors
/// If the rate is not between 100 kbit/s and 100 Gbit/s.
pub fn fits(site: &Site) -> Result<(), ParamError> {
    let (low, high) = RATES;
    if low <= site.rate && site.rate <= high {
        return Ok(());
    }
    let expected = format!("a rate from {low} to {high} in fixed point");
    Err(ParamError::new("rate", site.rate, expected))
}

/// Converts a rate in bytes per second to fixed point in bytes per nanosecond.
pub fn rate(bytes_per_s: f64) -> i64 {
    whole_i64((bytes_per_s * 1e-9 * two_to(RATE_BITS)).round())
}

/// Converts a length in usual packets to fixed point in bytes.
///
/// # Errors
/// If it is 2^32 bytes or more; the error names `key`.
pub fn length(key: &str, pkts: f64, site: &Site) -> Result<i64, ParamError> {
    let packet_bytes = site.packet.0 as f64;
    if pkts * packet_bytes < MAX_LENGTH_BYTES {
        return Ok(whole_i64(
            (pkts * packet_bytes * two_to(LENGTH_BITS)).round(),
        ));
    }
    let max_pkts = MAX_LENGTH_BYTES / packet_bytes;
    let expected = format!("less than {max_pkts:.0} packets in fixed point");
    Err(ParamError::new(key, format!("{pkts} packets"), expected))
}

/// Converts a factor, with which `fb_times` multiplies, to a mantissa of 48 bits and a shift.
///
/// # Errors
/// If it is 2^48 or more, or not finite; the error names the parameter `key` and its `value`.
pub fn factor(key: &str, value: f64, x: f64) -> Result<i64, ParamError> {
    if x == 0.0 {
        return Ok(0);
    }
    // 2^exponent is the smallest power of two above |x|.
    let exponent = if x.is_finite() {
        i32::try_from(whole_i64(x.abs().log2().floor())).expect("at most 1,023") + 1
    } else {
        i32::MAX
    };
    if exponent > MANTISSA_BITS {
        let ratio = x.abs() / two_to(48);
        let expected = format!("a value that is at least {ratio:.4e} times smaller");
        let error = ParamError::new(key, value, expected);
        return Err(error.because("is too large for fixed point"));
    }
    let shift = (MANTISSA_BITS - exponent).min(127);
    let mantissa = whole_i64((x.abs() * two_to(shift)).round().min(two_to(48) - 1.0));
    let packed = mantissa | i64::from(shift) << MANTISSA_BITS;
    Ok(if x < 0.0 { packed | i64::MIN } else { packed })
}

/// Converts a gain per packet to a factor from a length to a probability.
///
/// # Errors
/// If the factor is out of range; the error names `key`.
pub fn gain(key: &str, per_packet: f64, site: &Site) -> Result<i64, ParamError> {
    let unit = two_to(PROBABILITY_BITS - LENGTH_BITS) / site.packet.0 as f64;
    factor(key, per_packet, per_packet * unit)
}

/// The fractional bits of the product of a gain and an error.
const PRODUCT_BITS: i32 = 52;

/// Converts a gain per packet of a difference equation to a factor.
///
/// # Errors
/// If its product with the longest queue saturates; the error names `key`.
pub fn difference_gain(key: &str, per_packet: f64, site: &Site) -> Result<i64, ParamError> {
    // The products are limited to FB_MAX, 2^62.
    let max_product = two_to(62 - PRODUCT_BITS);
    let product = per_packet.abs() * site.buffer_pkts;
    if site.buffer_pkts.is_finite() && product >= max_product {
        let ratio = product / max_product;
        let expected = format!("a value that is at least {ratio:.4e} times smaller");
        let error = ParamError::new(key, per_packet, expected);
        return Err(error.because("is too large for fixed point"));
    }
    let unit = two_to(PRODUCT_BITS - LENGTH_BITS) / site.packet.0 as f64;
    factor(key, per_packet, per_packet * unit)
}

/// Returns a duration in nanoseconds, at most `i64::MAX`.
pub fn nanos(span: Span) -> i64 {
    i64::try_from(span.as_nanos()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns the number that a packed factor represents.
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
    fn values_that_saturate_are_refused() {
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
