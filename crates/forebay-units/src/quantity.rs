//! Quantities with their unit in the type, and their spelling in text: `"15ms"`, `"40Mbit/s"`.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Div, Mul, Sub, SubAssign};

use crate::cast::whole_u64;

const NANOS_PER_SEC: f64 = 1e9;

/// An instant, in nanoseconds since the start of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

/// A length of time, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(u64);

/// A data rate, in bits per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate(u64);

/// An amount of data, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(pub u64);

/// A queue length, in packets. Averages and set-points need not be whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Packets(pub f64);

/// What a law holds its queue at: a length, or the time that a packet waits in it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SetPoint {
    /// Queue length in packets; it need not be whole.
    Packets(f64),
    /// Queuing delay.
    Delay(Span),
}

impl Time {
    pub const ZERO: Time = Time(0);
    pub const MAX: Time = Time(u64::MAX);
    /// A deadline that does not come. It is later than every other, so that the earliest of several
    /// deadlines is their minimum; `None` would be the smallest and take twice the space.
    pub const NEVER: Time = Time::MAX;

    pub const fn from_nanos(ns: u64) -> Time {
        Time(ns)
    }
    pub const fn as_nanos(self) -> u64 {
        self.0
    }
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / NANOS_PER_SEC
    }
    /// Whole microseconds.
    #[inline]
    pub const fn as_micros(self) -> u64 {
        self.0 / 1_000
    }
    /// Whole milliseconds.
    #[inline]
    pub const fn as_millis(self) -> u64 {
        self.0 / 1_000_000
    }
    /// The next instant, a nanosecond later.
    #[inline]
    pub const fn just_after(self) -> Time {
        Time(self.0.saturating_add(1))
    }
    /// Time since the start of the run.
    #[inline]
    pub const fn since_start(self) -> Span {
        Span(self.0)
    }
    /// Time since `earlier`; zero if `earlier` is later.
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
    pub const ZERO: Span = Span(0);
    pub const MAX: Span = Span(u64::MAX);

    pub const fn from_nanos(ns: u64) -> Span {
        Span(ns)
    }
    pub const fn from_micros(us: u64) -> Span {
        Span(us * 1_000)
    }
    pub const fn from_millis(ms: u64) -> Span {
        Span(ms * 1_000_000)
    }
    pub const fn from_secs(s: u64) -> Span {
        Span(s * 1_000_000_000)
    }
    /// Nearest nanosecond; negative and NaN become zero.
    pub fn from_secs_f64(s: f64) -> Span {
        Span(whole_u64((s * NANOS_PER_SEC).round()))
    }
    pub const fn as_nanos(self) -> u64 {
        self.0
    }
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / NANOS_PER_SEC
    }
    /// Whole microseconds.
    #[inline]
    pub const fn as_micros(self) -> u64 {
        self.0 / 1_000
    }
    /// Whole milliseconds.
    #[inline]
    pub const fn as_millis(self) -> u64 {
        self.0 / 1_000_000
    }
    /// Nanoseconds as a real number.
    #[inline]
    pub const fn as_nanos_f64(self) -> f64 {
        self.0 as f64
    }
    /// Difference of two lengths, whichever is longer.
    #[inline]
    pub const fn abs_diff(self, other: Span) -> Span {
        Span(self.0.abs_diff(other.0))
    }
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

/// Zero where the second is longer.
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

/// Rounds down to a nanosecond.
impl Div<u64> for Span {
    type Output = Span;
    #[inline]
    fn div(self, rhs: u64) -> Span {
        Span(self.0 / rhs)
    }
}

/// How often the second fits whole into the first.
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
    pub const fn from_bps(bps: u64) -> Rate {
        Rate(bps)
    }
    pub const fn as_bps(self) -> u64 {
        self.0
    }
    /// Packets of `packet` bytes per second.
    pub fn packets_per_sec(self, packet: Bytes) -> f64 {
        self.0 as f64 / (8.0 * packet.0 as f64)
    }
    /// Time to send `bytes`, rounded down, and what rounding left in units of 1/rate ns.
    /// Feeding the remainder into the next call keeps the long-run rate exact.
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

    /// A transmission of gigabytes in one piece, whose work is more than 64 bits hold.
    #[cold]
    fn long_transmission(self, bytes: u32, remainder: u64) -> (Span, u64) {
        let work = u128::from(bytes) * 8_000_000_000 + u128::from(remainder);
        let rate = u128::from(self.0);
        let whole = |x: u128| u64::try_from(x).unwrap_or(u64::MAX);
        (Span(whole(work / rate)), whole(work % rate))
    }
}

/// Why a text is not a quantity of the wanted kind: what would be.
pub type Allowed = String;

/// Names of units, each with its size.
type Names = &'static [(&'static str, f64)];

/// In nanoseconds.
const TIMES: Names = &[
    ("ns", 1.0),
    ("us", 1e3),
    ("µs", 1e3),
    ("ms", 1e6),
    ("s", 1e9),
    ("min", 6e10),
    ("h", 3.6e12),
];
/// In bit/s.
const RATES: Names = &[
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
/// In bytes.
const SIZES: Names = &[
    ("B", 1.0),
    ("kB", 1e3),
    ("MB", 1e6),
    ("GB", 1e9),
    ("KiB", 1024.0),
    ("MiB", 1024.0 * 1024.0),
    ("GiB", 1024.0 * 1024.0 * 1024.0),
];
/// In packets.
const QUEUES: Names = &[("p", 1.0), ("pkt", 1.0), ("pkts", 1.0)];

/// Every unit: the base unit, its size in what the names are counted in, and the names.
const UNITS: &[(&str, f64, Names)] = &[
    ("s", 1e-9, TIMES),
    ("bit/s", 1.0, RATES),
    ("B", 1.0, SIZES),
    ("p", 1.0, QUEUES),
];

/// The base unit ("s", "bit/s", "B" or "p") of the unit of this name, and the unit's size in it.
pub fn unit(name: &str) -> Option<(&'static str, f64)> {
    UNITS.iter().find_map(|(base, scale, names)| {
        let (_, size) = names.iter().find(|(other, _)| *other == name)?;
        Some((*base, size * scale))
    })
}

/// Names of all units with this base unit.
pub fn unit_names(base: &str) -> Vec<&'static str> {
    let of_base = UNITS.iter().filter(|(other, _, _)| *other == base);
    of_base
        .flat_map(|(_, _, names)| names.iter().map(|(name, _)| *name))
        .collect()
}

/// Splits `"40Mbit/s"` into 40.0 and `"Mbit/s"`, whether or not there is such a unit; a plain number
/// has an empty one.
pub fn number_and_unit(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    // 'e' may be an exponent ("1e3p") or the start of a unit: take the longest prefix that parses.
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

fn scaled(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let (number, unit) = number_and_unit(text)?;
    let (_, scale) = units.iter().find(|(name, _)| *name == unit)?;
    Some(number * scale)
}

/// A whole number of at most 2^63, so that sums of two never wrap.
fn whole(x: f64) -> Option<u64> {
    (0.0..=9.2e18).contains(&x).then(|| whole_u64(x.round()))
}

impl Span {
    pub const ALLOWED: &'static str =
        r#"a time with its unit, such as "15ms" (ns, us, ms, s, min, h)"#;

    /// Parses `"15ms"`.
    pub fn parse(text: &str) -> Result<Span, Allowed> {
        scaled(text, TIMES)
            .and_then(whole)
            .map(Span)
            .ok_or_else(|| Self::ALLOWED.into())
    }
}

impl Rate {
    pub const ALLOWED: &'static str =
        r#"a rate with its unit, such as "45Mbit/s" (bit/s, kbit/s, Mbit/s, Gbit/s, Tbit/s)"#;

    /// Parses `"40Mbit/s"`; `"Mbps"` is understood too.
    pub fn parse(text: &str) -> Result<Rate, Allowed> {
        scaled(text, RATES)
            .and_then(whole)
            .map(Rate)
            .ok_or_else(|| Self::ALLOWED.into())
    }
}

impl Bytes {
    pub const ALLOWED: &'static str =
        r#"a size with its unit, such as "500B" (B, kB, MB, GB, KiB, MiB, GiB)"#;

    /// Parses `"500B"`, `"64kB"`, `"1MiB"`.
    pub fn parse(text: &str) -> Result<Bytes, Allowed> {
        scaled(text, SIZES)
            .and_then(whole)
            .map(Bytes)
            .ok_or_else(|| Self::ALLOWED.into())
    }
}

impl Packets {
    pub const ALLOWED: &'static str = r#"a number of packets, such as "200p""#;

    /// Parses `"200p"`.
    pub fn parse(text: &str) -> Result<Packets, Allowed> {
        scaled(text, QUEUES)
            .map(Packets)
            .ok_or_else(|| Self::ALLOWED.into())
    }
}

impl SetPoint {
    pub const ALLOWED: &'static str =
        r#"a queue length such as "200p", or a queuing delay such as "15ms" (at most 1000s)"#;
    const LONGEST: Span = Span::from_secs(1000);

    /// Parses `"200p"` or `"15ms"`.
    pub fn parse(text: &str) -> Result<SetPoint, Allowed> {
        if let Ok(Packets(packets)) = Packets::parse(text) {
            return Ok(SetPoint::Packets(packets));
        }
        match Span::parse(text) {
            Ok(delay) if delay <= Self::LONGEST => Ok(SetPoint::Delay(delay)),
            _ => Err(Self::ALLOWED.into()),
        }
    }

    /// The queue in packets at a link that sends `pkts_per_s`. A delay d is the queue d·C: what
    /// the link sends while a packet waits.
    pub fn pkts_at(self, pkts_per_s: f64) -> f64 {
        match self {
            SetPoint::Packets(packets) => packets,
            SetPoint::Delay(delay) => delay.as_secs_f64() * pkts_per_s,
        }
    }

    /// [`pkts_at`](SetPoint::pkts_at) a link of `rate` that carries packets of this size.
    pub fn pkts(self, rate: Rate, packet: Bytes) -> f64 {
        match self {
            SetPoint::Packets(packets) => packets,
            SetPoint::Delay(_) => self.pkts_at(rate.packets_per_sec(packet)),
        }
    }

    /// The same kind of set-point, `factor` times as high.
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

/// Writes `value` in the largest unit that leaves it at least 1.
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
    fn a_set_point_is_a_length_or_a_delay() {
        for (text, pkts) in [("200p", 200.0), ("15ms", 56.25), ("0s", 0.0)] {
            let set_point = SetPoint::parse(text).unwrap();
            // 30 Mbit/s in packets of 1000 bytes: 3750 packets/s.
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
    fn quantities_are_read_with_their_unit() {
        assert_eq!(Span::parse("15ms"), Ok(Span::from_millis(15)));
        assert_eq!(Span::parse(" 1.5 s "), Ok(Span::from_millis(1500)));
        assert_eq!(Span::parse("2e-3s"), Ok(Span::from_millis(2)));
        assert_eq!(Rate::parse("45Mbit/s"), Ok(Rate::from_bps(45_000_000)));
        assert_eq!(Bytes::parse("1KiB"), Ok(Bytes(1024)));
        assert_eq!(Packets::parse("800p"), Ok(Packets(800.0)));
    }

    #[test]
    fn a_unit_is_of_one_kind_of_quantity() {
        let reads = |base: &str, text: &str| match base {
            "s" => Span::parse(text).is_ok(),
            "bit/s" => Rate::parse(text).is_ok(),
            "B" => Bytes::parse(text).is_ok(),
            _ => Packets::parse(text).is_ok(),
        };
        let bases = || UNITS.iter().map(|(base, _, _)| *base);
        for base in bases() {
            for name in bases().flat_map(unit_names) {
                let is = unit(name).is_some_and(|(of, _)| of == base);
                assert_eq!(reads(base, &format!("1{name}")), is, "{name} of {base}");
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
    fn text_round_trips() {
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
        // 4 GiB less a byte at 8 bit/s take as many seconds, and a remainder of up to the rate counts.
        let (takes, rem) = Rate::from_bps(8).transmission(u32::MAX, 7);
        assert_eq!((takes, rem), (Span::from_secs(u32::MAX.into()), 7));
    }
}
