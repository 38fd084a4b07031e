//! Quantities with their unit in the type, and their spelling in text: `"15ms"`, `"40Mbit/s"`.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Div, Mul, Sub, SubAssign};

use crate::cast::whole_u64;

const NANOS_PER_SEC: f64 = 1e9;

/// An instant, in nanoseconds since the start of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

/// A duration, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(u64);

/// A data rate, in bits per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate(u64);

/// An amount of data, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(pub u64);

/// A queue length, in packets. Averages and set-points need not be integers.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Packets(pub f64);

/// The set-point of a law: a queue length, or a queuing delay.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SetPoint {
    /// A queue length in packets, which need not be an integer.
    Packets(f64),
    /// A queuing delay.
    Delay(Span),
}

impl Time {
    /// The start of the run.
    pub const ZERO: Time = Time(0);
    /// The latest instant, after about 584 years.
    pub const MAX: Time = Time(u64::MAX);
    /// A deadline that is never reached. It is later than every other, so the earliest of
    /// several deadlines is their minimum. An `Option` would take twice the space, and its `None`
    /// is the smallest value.
    pub const NEVER: Time = Time::MAX;

    /// Returns the instant `ns` nanoseconds after the start of the run.
    pub const fn from_nanos(ns: u64) -> Time {
        Time(ns)
    }
    /// Returns the nanoseconds since the start of the run.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }
    /// Returns the seconds since the start of the run.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / NANOS_PER_SEC
    }
    /// Returns the microseconds since the start of the run, rounded down.
    #[inline]
    pub const fn as_micros(self) -> u64 {
        self.0 / 1_000
    }
    /// Returns the milliseconds since the start of the run, rounded down.
    #[inline]
    pub const fn as_millis(self) -> u64 {
        self.0 / 1_000_000
    }
    /// Returns the next instant, a nanosecond later.
    #[inline]
    pub const fn just_after(self) -> Time {
        Time(self.0.saturating_add(1))
    }
    /// Returns the time since the start of the run.
    #[inline]
    pub const fn since_start(self) -> Span {
        Span(self.0)
    }
    /// Returns the time since `earlier`; zero if `earlier` is later.
    pub fn since(self, earlier: Time) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Span> for Time {
    type Output = Time;
    fn add(self, rhs: Span) -> Time {
        Time(self.0.saturating_add(rhs.0))
    }
}

impl AddAssign<Span> for Time {
    fn add_assign(&mut self, rhs: Span) {
        *self = *self + rhs;
    }
}

impl Sub<Time> for Time {
    type Output = Span;
    fn sub(self, rhs: Time) -> Span {
        self.since(rhs)
    }
}

impl Sub<Span> for Time {
    type Output = Time;
    #[inline]
    fn sub(self, rhs: Span) -> Time {
        Time(self.0.saturating_sub(rhs.0))
    }
}

impl Span {
    /// A span of zero.
    pub const ZERO: Span = Span(0);
    /// The longest duration, about 584 years.
    pub const MAX: Span = Span(u64::MAX);

    /// Returns a duration of `ns` nanoseconds.
    pub const fn from_nanos(ns: u64) -> Span {
        Span(ns)
    }
    /// Returns a duration of `us` microseconds.
    pub const fn from_micros(us: u64) -> Span {
        Span(us * 1_000)
    }
    /// Returns a duration of `ms` milliseconds.
    pub const fn from_millis(ms: u64) -> Span {
        Span(ms * 1_000_000)
    }
    /// Returns a duration of `s` seconds.
    pub const fn from_secs(s: u64) -> Span {
        Span(s * 1_000_000_000)
    }
    /// Returns a duration of `s` seconds, rounded to a nanosecond; zero if `s` is negative or NaN.
    pub fn from_secs_f64(s: f64) -> Span {
        Span(whole_u64((s * NANOS_PER_SEC).round()))
    }
    /// Returns the duration in nanoseconds.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }
    /// Returns the duration in seconds.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / NANOS_PER_SEC
    }
    /// Returns the duration in microseconds, rounded down.
    #[inline]
    pub const fn as_micros(self) -> u64 {
        self.0 / 1_000
    }
    /// Returns the duration in milliseconds, rounded down.
    #[inline]
    pub const fn as_millis(self) -> u64 {
        self.0 / 1_000_000
    }
    /// Returns the duration in nanoseconds as a floating-point number.
    #[inline]
    pub const fn as_nanos_f64(self) -> f64 {
        self.0 as f64
    }
    /// Returns the absolute difference of two durations.
    #[inline]
    pub const fn abs_diff(self, other: Span) -> Span {
        Span(self.0.abs_diff(other.0))
    }
    /// Returns true if the duration is zero.
    #[inline]
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }
}

impl Add for Span {
    type Output = Span;
    fn add(self, rhs: Span) -> Span {
        Span(self.0.saturating_add(rhs.0))
    }
}

impl AddAssign for Span {
    #[inline]
    fn add_assign(&mut self, rhs: Span) {
        *self = *self + rhs;
    }
}

/// Subtracts durations. The result is zero if the second one is longer.
impl Sub for Span {
    type Output = Span;
    #[inline]
    fn sub(self, rhs: Span) -> Span {
        Span(self.0.saturating_sub(rhs.0))
    }
}

impl SubAssign for Span {
    #[inline]
    fn sub_assign(&mut self, rhs: Span) {
        *self = *self - rhs;
    }
}

impl Mul<u64> for Span {
    type Output = Span;
    fn mul(self, rhs: u64) -> Span {
        Span(self.0.saturating_mul(rhs))
    }
}

impl Mul<Span> for u64 {
    type Output = Span;
    #[inline]
    fn mul(self, rhs: Span) -> Span {
        rhs * self
    }
}

/// Divides a duration, rounding down to a nanosecond.
impl Div<u64> for Span {
    type Output = Span;
    #[inline]
    fn div(self, rhs: u64) -> Span {
        Span(self.0 / rhs)
    }
}

/// Returns how many times the second duration fits into the first.
impl Div for Span {
    type Output = u64;
    #[inline]
    fn div(self, rhs: Span) -> u64 {
        self.0 / rhs.0
    }
}

impl Sum for Span {
    fn sum<I: Iterator<Item = Span>>(spans: I) -> Span {
        spans.fold(Span::ZERO, Add::add)
    }
}

impl Rate {
    /// Returns a rate of `bps` bits per second.
    pub const fn from_bps(bps: u64) -> Rate {
        Rate(bps)
    }
    /// Returns the rate in bits per second.
    pub const fn as_bps(self) -> u64 {
        self.0
    }
    /// Returns the rate in packets of `packet` bytes per second.
    pub fn packets_per_sec(self, packet: Bytes) -> f64 {
        self.0 as f64 / (8.0 * packet.0 as f64)
    }
    /// Returns the time to send `bytes`, rounded down to a nanosecond, and the remainder of
    /// rounding in units of 1/rate ns. Passing the remainder to the next call keeps the long-run
    /// rate exact.
    ///
    /// # Panics
    /// If the rate is zero.
    #[inline]
    pub fn transmission(self, bytes: u32, remainder: u64) -> (Span, u64) {
        let work = (u64::from(bytes) * 8).checked_mul(1_000_000_000);
        match work.and_then(|work| work.checked_add(remainder)) {
            Some(work) => (Span(work / self.0), work % self.0),
            None => self.long_transmission(bytes, remainder),
        }
    }

    /// Computes a transmission of gigabytes, which needs 128-bit arithmetic.
    #[cold]
    fn long_transmission(self, bytes: u32, remainder: u64) -> (Span, u64) {
        let work = u128::from(bytes) * 8_000_000_000 + u128::from(remainder);
        let rate = u128::from(self.0);
        let saturated = |x: u128| u64::try_from(x).unwrap_or(u64::MAX);
        (Span(saturated(work / rate)), saturated(work % rate))
    }
}

/// The error of a text that is not a quantity of the expected kind: a description of those that
/// are.
pub type Expected = String;

/// Names of units, each with its size.
type UnitNames = &'static [(&'static str, f64)];

/// Units of time, in nanoseconds.
const TIMES: UnitNames = &[
    ("ns", 1.0),
    ("us", 1e3),
    ("µs", 1e3),
    ("ms", 1e6),
    ("s", 1e9),
    ("min", 6e10),
    ("h", 3.6e12),
];
/// Units of rates, in bit/s.
const RATES: UnitNames = &[
    ("bit/s", 1.0),
    ("kbit/s", 1e3),
    ("Mbit/s", 1e6),
    ("Gbit/s", 1e9),
    ("Tbit/s", 1e12),
    ("bps", 1.0),
    ("kbps", 1e3),
    ("Mbps", 1e6),
    ("Gbps", 1e9),
];
/// Units of sizes, in bytes.
const SIZES: UnitNames = &[
    ("B", 1.0),
    ("kB", 1e3),
    ("MB", 1e6),
    ("GB", 1e9),
    ("KiB", 1024.0),
    ("MiB", 1024.0 * 1024.0),
    ("GiB", 1024.0 * 1024.0 * 1024.0),
];
/// Units of queue lengths, in packets.
const QUEUES: UnitNames = &[("p", 1.0), ("pkt", 1.0), ("pkts", 1.0)];

/// All units: the base unit, the factor from the sizes of the names to the base unit, and the
/// names.
const UNITS: &[(&str, f64, UnitNames)] = &[
    ("s", 1e-9, TIMES),
    ("bit/s", 1.0, RATES),
    ("B", 1.0, SIZES),
    ("p", 1.0, QUEUES),
];

/// Returns the base unit ("s", "bit/s", "B" or "p") of the unit with this name, and the size of the
/// unit in it; `None` if there is no such unit.
pub fn unit(name: &str) -> Option<(&'static str, f64)> {
    UNITS.iter().find_map(|(base, scale, names)| {
        let (_, size) = names.iter().find(|(other, _)| *other == name)?;
        Some((*base, size * scale))
    })
}

/// Returns the names of all units with this base unit.
pub fn unit_names(base: &str) -> Vec<&'static str> {
    let of_base = UNITS.iter().filter(|(other, _, _)| *other == base);
    of_base
        .flat_map(|(_, _, names)| names.iter().map(|(name, _)| *name))
        .collect()
}

/// Splits `"40Mbit/s"` into 40.0 and `"Mbit/s"`; `None` if the text does not start with a number.
/// The unit need not exist, and is empty for a plain number.
pub fn number_and_unit(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    // 'e' may be an exponent ("1e3p") or the start of a unit: the number is the longest prefix that
    // parses.
    let end = text
        .char_indices()
        .map(|(i, c)| i + c.len_utf8())
        .rfind(|&end| {
            let head = &text[..end];
            head.ends_with(|c: char| c.is_ascii_digit() || c == '.') && head.parse::<f64>().is_ok()
        })?;
    let number: f64 = text[..end].parse().ok()?;
    number
        .is_finite()
        .then_some((number, text[end..].trim_start()))
}

/// Returns the number in `text` times the size of its unit.
fn scaled(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let (number, unit) = number_and_unit(text)?;
    let (_, scale) = units.iter().find(|(name, _)| *name == unit)?;
    Some(number * scale)
}

/// Rounds to an integer of at most 2^63, so that the sum of two does not overflow; `None` out of
/// range.
fn whole(x: f64) -> Option<u64> {
    (0.0..=9.2e18).contains(&x).then(|| whole_u64(x.round()))
}

impl Span {
    /// A description of the texts that are times.
    pub const EXPECTED: &'static str =
        r#"a time with its unit, such as "15ms" (ns, us, ms, s, min, h)"#;

    /// Parses a time such as `"15ms"`.
    ///
    /// # Errors
    /// If the text is not a time with its unit, or is out of range. The error describes the texts or
    /// the range that are valid.
    pub fn parse(text: &str) -> Result<Span, Expected> {
        let value = scaled(text, TIMES).ok_or(Self::EXPECTED)?;
        whole(value)
            .map(Span)
            .ok_or_else(|| "a time from 0s to 2500000h".into())
    }
}

impl Rate {
    /// A description of the texts that are rates.
    pub const EXPECTED: &'static str =
        r#"a rate with its unit, such as "45Mbit/s" (bit/s, kbit/s, Mbit/s, Gbit/s, Tbit/s)"#;

    /// Parses a rate such as `"40Mbit/s"` or `"40Mbps"`.
    ///
    /// # Errors
    /// If the text is not a rate with its unit, or is out of range. The error describes the texts or
    /// the range that are valid.
    pub fn parse(text: &str) -> Result<Rate, Expected> {
        let value = scaled(text, RATES).ok_or(Self::EXPECTED)?;
        whole(value)
            .map(Rate)
            .ok_or_else(|| "a rate from 0bit/s to 9000000Tbit/s".into())
    }
}

impl Bytes {
    /// A description of the texts that are sizes.
    pub const EXPECTED: &'static str =
        r#"a size with its unit, such as "500B" (B, kB, MB, GB, KiB, MiB, GiB)"#;

    /// Parses a size such as `"500B"`, `"64kB"` or `"1MiB"`.
    ///
    /// # Errors
    /// If the text is not a size with its unit, or is out of range. The error describes the texts or
    /// the range that are valid.
    pub fn parse(text: &str) -> Result<Bytes, Expected> {
        let value = scaled(text, SIZES).ok_or(Self::EXPECTED)?;
        whole(value)
            .map(Bytes)
            .ok_or_else(|| "a size from 0B to 8000000000GiB".into())
    }
}

impl Packets {
    /// A description of the texts that are queue lengths.
    pub const EXPECTED: &'static str = r#"a number of packets, such as "200p""#;

    /// Parses a queue length such as `"200p"`.
    ///
    /// # Errors
    /// If the text is not a number of packets. The error describes those that are.
    pub fn parse(text: &str) -> Result<Packets, Expected> {
        scaled(text, QUEUES)
            .map(Packets)
            .ok_or_else(|| Self::EXPECTED.into())
    }
}

impl SetPoint {
    /// A description of the texts that are set-points.
    pub const EXPECTED: &'static str =
        r#"a queue length such as "200p", or a queuing delay such as "15ms" (at most 1000s)"#;
    const LONGEST: Span = Span::from_secs(1000);

    /// Parses a queue length such as `"200p"` or a delay such as `"15ms"`.
    ///
    /// # Errors
    /// If the text is neither, or the delay is above 1000 s. The error describes those that are.
    pub fn parse(text: &str) -> Result<SetPoint, Expected> {
        if let Ok(Packets(packets)) = Packets::parse(text) {
            return Ok(SetPoint::Packets(packets));
        }
        match Span::parse(text) {
            Ok(delay) if delay <= Self::LONGEST => Ok(SetPoint::Delay(delay)),
            _ => Err(Self::EXPECTED.into()),
        }
    }

    /// Returns the set-point in packets at a link that sends `pkts_per_s`. A delay d is a queue of
    /// d·C packets, which the link sends while a packet waits.
    pub fn pkts_at(self, pkts_per_s: f64) -> f64 {
        match self {
            SetPoint::Packets(packets) => packets,
            SetPoint::Delay(delay) => delay.as_secs_f64() * pkts_per_s,
        }
    }

    /// Returns the set-point in packets at a link with this rate and packet size.
    pub fn pkts(self, rate: Rate, packet: Bytes) -> f64 {
        match self {
            SetPoint::Packets(packets) => packets,
            SetPoint::Delay(_) => self.pkts_at(rate.packets_per_sec(packet)),
        }
    }

    /// Returns the set-point multiplied by `factor`; a delay is at most 1000 s.
    pub fn scaled(self, factor: f64) -> SetPoint {
        match self {
            SetPoint::Packets(packets) => SetPoint::Packets(factor * packets),
            SetPoint::Delay(delay) => {
                let scaled = Span::from_secs_f64(factor * delay.as_secs_f64());
                SetPoint::Delay(scaled.min(Self::LONGEST))
            }
        }
    }
}

/// Writes `value` in the largest unit in which it is at least 1.
fn with_unit(f: &mut fmt::Formatter, value: f64, units: &[(f64, &str)]) -> fmt::Result {
    let (scale, unit) = units
        .iter()
        .find(|(scale, _)| value >= *scale)
        .unwrap_or(&units[units.len() - 1]);
    write!(f, "{}{unit}", value / scale)
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        if self.0 == 0 {
            return f.write_str("0s");
        }
        with_unit(
            f,
            self.0 as f64,
            &[(1e9, "s"), (1e6, "ms"), (1e3, "us"), (1.0, "ns")],
        )
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}s", self.as_secs_f64())
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        with_unit(
            f,
            self.0 as f64,
            &[
                (1e12, "Tbit/s"),
                (1e9, "Gbit/s"),
                (1e6, "Mbit/s"),
                (1e3, "kbit/s"),
                (1.0, "bit/s"),
            ],
        )
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}B", self.0)
    }
}

impl fmt::Display for Packets {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}p", self.0)
    }
}

impl fmt::Display for SetPoint {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            SetPoint::Packets(packets) => Packets(*packets).fmt(f),
            SetPoint::Delay(delay) => delay.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_point_is_a_queue_length_or_a_delay() {
        for (text, pkts) in [("200p", 200.0), ("15ms", 56.25), ("0s", 0.0)] {
            let set_point = SetPoint::parse(text).unwrap();
            // 30 Mbit/s are 3750 packets of 1000 bytes per second.
            assert_eq!(
                set_point.pkts(Rate::from_bps(30_000_000), Bytes(1000)),
                pkts
            );
            assert_eq!(SetPoint::parse(&set_point.to_string()), Ok(set_point));
        }
        assert_eq!(
            SetPoint::parse("10ms").unwrap().scaled(1.5),
            SetPoint::Delay(Span::from_millis(15))
        );
        for text in ["200", "15 packets", "1001s", "-1ms", "64kB"] {
            assert!(SetPoint::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn quantities_are_parsed_with_their_unit() {
        assert_eq!(Span::parse("15ms"), Ok(Span::from_millis(15)));
        assert_eq!(Span::parse(" 1.5 s "), Ok(Span::from_millis(1500)));
        assert_eq!(Span::parse("2e-3s"), Ok(Span::from_millis(2)));
        assert_eq!(Rate::parse("45Mbit/s"), Ok(Rate::from_bps(45_000_000)));
        assert_eq!(Bytes::parse("1KiB"), Ok(Bytes(1024)));
        assert_eq!(Packets::parse("800p"), Ok(Packets(800.0)));
    }

    #[test]
    fn a_unit_belongs_to_one_kind_of_quantity() {
        let parses = |base: &str, text: &str| match base {
            "s" => Span::parse(text).is_ok(),
            "bit/s" => Rate::parse(text).is_ok(),
            "B" => Bytes::parse(text).is_ok(),
            _ => Packets::parse(text).is_ok(),
        };
        let bases = || UNITS.iter().map(|(base, _, _)| *base);
        for base in bases() {
            for name in bases().flat_map(unit_names) {
                let belongs = unit(name).is_some_and(|(unit_base, _)| unit_base == base);
                assert_eq!(
                    parses(base, &format!("1{name}")),
                    belongs,
                    "{name} of {base}"
                );
            }
        }
        assert_eq!(unit("ms"), Some(("s", 1e-3)));
        assert_eq!(unit("Gbit/s"), Some(("bit/s", 1e9)));
        assert_eq!(unit("furlong"), None);
        assert_eq!(
            number_and_unit(" 1.5e3 furlongs"),
            Some((1500.0, "furlongs"))
        );
        assert_eq!(number_and_unit("7"), Some((7.0, "")));
    }

    #[test]
    fn a_wrong_or_missing_unit_is_refused() {
        for text in [
            "15",
            "ms",
            "",
            "-1ms",
            "15 furlongs",
            "NaNms",
            "1e40s",
            "infs",
        ] {
            assert!(Span::parse(text).is_err(), "{text}");
        }
        assert!(Rate::parse("45MB").is_err());
    }

    #[test]
    fn quantities_round_trip_through_text() {
        for text in ["15ms", "2s", "333us", "1ns"] {
            let span = Span::parse(text).unwrap();
            assert_eq!(Span::parse(&span.to_string()), Ok(span));
        }
        let rate = Rate::from_bps(622_080_000);
        assert_eq!(Rate::parse(&rate.to_string()), Ok(rate));
    }

    #[test]
    fn transmission_times_add_up_to_the_rate() {
        let rate = Rate::from_bps(45_000_000);
        let (mut total, mut rem) = (0, 0);
        for _ in 0..9 {
            let (t, r) = rate.transmission(500, rem);
            total += t.as_nanos();
            rem = r;
        }
        // Nine packets of 4000 bits at 45 Mbit/s take exactly 800 us.
        assert_eq!((total, rem), (800_000, 0));
        // At 8 bit/s, 4 GiB − 1 bytes take as many seconds; the remainder is below the rate.
        let (duration, rem) = Rate::from_bps(8).transmission(u32::MAX, 7);
        assert_eq!((duration, rem), (Span::from_secs(u32::MAX.into()), 7));
    }
}
