//! Types of the options of a link.

use forebay_units::{one_of, words, ParamType, Shape, Span, Time, Value};

use crate::law_choice::{law_kinds, law_named};

/// Delay after the queue: the same for all flows, or spread over them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DelayRange {
    /// The shortest delay.
    pub least: Span,
    /// The longest delay.
    pub most: Span,
}

impl DelayRange {
    /// Returns the range that has only `delay`.
    pub const fn of(delay: Span) -> DelayRange {
        DelayRange {
            least: delay,
            most: delay,
        }
    }
}

impl ParamType for DelayRange {
    const SHAPE: Shape = Shape::Notation("TIME");
    const UNIT: &'static str = "s";
    const EXPECTED: &'static str =
        "a time with its unit, such as \"15ms\", or a range such as \"20..200ms\"";
    fn from_value(value: &Value) -> Result<DelayRange, String> {
        let refused = || Self::EXPECTED.to_owned();
        let Value::Text(text) = value else {
            return Err(refused());
        };
        let read = |text: &str| Span::parse(text).map_err(|_| refused());
        let Some((least, most)) = text.split_once("..") else {
            return read(text).map(DelayRange::of);
        };
        // One unit may serve both: 20..200ms.
        let unit = most.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
        let least = read(least).or_else(|_| read(&format!("{least}{unit}")))?;
        let most = read(most)?;
        if least > most {
            return Err(refused());
        }
        Ok(DelayRange { least, most })
    }
    fn to_value(&self) -> Value {
        Value::Text(if self.least == self.most {
            self.most.to_string()
        } else {
            format!("{}..{}", self.least, self.most)
        })
    }
    fn extent(&self) -> Option<(f64, f64)> {
        Some((self.least.as_secs_f64(), self.most.as_secs_f64()))
    }
}

/// A share of a whole.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share(pub f64);

impl ParamType for Share {
    const SHAPE: Shape = Shape::Notation("SHARE");
    const EXPECTED: &'static str = "a share from 0 to 1, such as \"1%\" or \"0.01\"";
    fn from_value(value: &Value) -> Result<Share, String> {
        let share = match value {
            Value::Integer(share) => Some(*share as f64),
            Value::Number(share) => Some(*share),
            Value::Text(text) => match text.strip_suffix('%') {
                Some(percent) => percent.trim().parse().ok().map(|it: f64| it * 0.01),
                None => text.trim().parse().ok(),
            },
            _ => None,
        };
        share
            .filter(|share| (0.0..=1.0).contains(share))
            .map(Share)
            .ok_or_else(|| Self::EXPECTED.to_owned())
    }
    fn to_value(&self) -> Value {
        // Rounded, as 0.07 × 100 is 7.000000000000001.
        Value::Text(format!("{}%", (self.0 * 1e8).round() / 1e6))
    }
    fn extent(&self) -> Option<(f64, f64)> {
        Some((self.0, self.0))
    }
}

/// The part of a run over which metrics are taken: (start, end], or until the run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeasureWindow(pub Time, pub Option<Time>);

impl ParamType for MeasureWindow {
    const SHAPE: Shape = Shape::Notation("TIMES");
    const UNIT: &'static str = "s";
    const EXPECTED: &'static str = "a range of time, such as \"5s..\" or \"5s..25s\"";
    fn from_value(value: &Value) -> Result<MeasureWindow, String> {
        let read = |text: &str| Some(Time::ZERO + Span::parse(text).ok()?);
        let window = match value {
            Value::Text(text) => text.split_once("..").and_then(|(start, end)| {
                let start = read(start)?;
                let end = match end {
                    "" => None,
                    end => Some(read(end).filter(|end| *end > start)?),
                };
                Some(MeasureWindow(start, end))
            }),
            _ => None,
        };
        window.ok_or_else(|| Self::EXPECTED.to_owned())
    }
    fn to_value(&self) -> Value {
        let text = |time: Time| time.since(Time::ZERO).to_string();
        Value::Text(format!(
            "{}..{}",
            text(self.0),
            self.1.map(text).unwrap_or_default()
        ))
    }
    fn extent(&self) -> Option<(f64, f64)> {
        let seconds = |time: Time| time.since(Time::ZERO).as_secs_f64();
        Some((seconds(self.0), seconds(self.1.unwrap_or(self.0))))
    }
}

words! {
    /// The device that joins the emulator to a namespace.
    #[derive(Default)]
    pub enum DeviceKind {
        /// TUN where it can be opened, packet sockets otherwise.
        #[default]
        Any = "any",
        /// TUN.
        Tun = "tun",
        /// Packet sockets.
        Packets = "packets",
    }
}

/// A seed of 64 bits; one above 2^63 is written as a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seed(pub u64);

impl ParamType for Seed {
    const SHAPE: Shape = Shape::Integer;
    const EXPECTED: &'static str = "a whole number from 0 to 18446744073709551615";
    fn from_value(value: &Value) -> Result<Seed, String> {
        let seed = match value {
            Value::Integer(seed) => u64::try_from(*seed).ok(),
            Value::Text(text) => text.parse().ok(),
            _ => None,
        };
        seed.map(Seed).ok_or_else(|| Self::EXPECTED.to_owned())
    }
    fn to_value(&self) -> Value {
        match i64::try_from(self.0) {
            Ok(seed) => Value::Integer(seed),
            Err(_) => Value::Text(self.0.to_string()),
        }
    }
}

/// A kind of the registry of laws.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LawKind(pub String);

impl ParamType for LawKind {
    const SHAPE: Shape = Shape::Notation("LAW");
    const EXPECTED: &'static str = "a law of the registry";
    fn from_value(value: &Value) -> Result<LawKind, String> {
        match value {
            Value::Text(kind) => match law_named(kind) {
                Ok(_) => Ok(LawKind(kind.clone())),
                Err(expected) => Err(expected),
            },
            _ => Err(one_of(&law_kinds(), "")),
        }
    }
    fn to_value(&self) -> Value {
        Value::Text(self.0.clone())
    }
}

/// A path; its reader opens the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileName(pub String);

impl ParamType for FileName {
    const SHAPE: Shape = Shape::Notation("FILE");
    const EXPECTED: &'static str = "a file with one time in ms per line";
    fn from_value(value: &Value) -> Result<FileName, String> {
        match value {
            Value::Text(path) if !path.is_empty() => Ok(FileName(path.clone())),
            _ => Err(Self::EXPECTED.to_owned()),
        }
    }
    fn to_value(&self) -> Value {
        Value::Text(self.0.clone())
    }
}
