//! Types of parameters that only scenarios have.

use forebay_core::discipline::Buffer;
use forebay_core::param::{ParamType, Shape, Value};
use forebay_core::{Bytes, Packets, Span, Time};

use crate::model::{Instant, Recovery};

/// Largest buffer, in packets.
pub const MOST_BUFFER_PKTS: f64 = 1e9;
/// Largest buffer, in bytes.
pub const MOST_BUFFER_BYTES: f64 = 1e12;

/// A text of one line.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Text(pub String);

impl ParamType for Text {
    const SHAPE: Shape = Shape::Text;
    const UNIT: &'static str = "";
    const ALLOWED: &'static str = "a text of one line, at most 200 characters";
    fn from_value(value: &Value) -> Result<Text, String> {
        match value {
            Value::Text(text)
                if text.chars().count() <= 200 && !text.chars().any(char::is_control) =>
            {
                Ok(Text(text.clone()))
            }
            _ => Err(Self::ALLOWED.into()),
        }
    }
    fn to_value(&self) -> Value {
        Value::Text(self.0.clone())
    }
    fn extent(&self) -> Option<(f64, f64)> {
        None
    }
}

/// A name in reports and in paths such as `traffic.NAME.flows`.
#[derive(Clone, Debug, PartialEq)]
pub struct Label(pub String);

impl ParamType for Label {
    const SHAPE: Shape = Shape::Text;
    const UNIT: &'static str = "";
    const ALLOWED: &'static str =
        "a name of 1 to 60 characters on one line, without \"/\", \"\\\", \",\" or \"=\", and not a number";
    fn from_value(value: &Value) -> Result<Label, String> {
        match value {
            Value::Text(text)
                if (1..=60).contains(&text.chars().count())
                    && text.trim() == text
                    && !text.contains(['/', '\\', ',', '='])
                    && !text.chars().any(char::is_control)
                    && text.parse::<f64>().is_err() =>
            {
                Ok(Label(text.clone()))
            }
            _ => Err(Self::ALLOWED.into()),
        }
    }
    fn to_value(&self) -> Value {
        Value::Text(self.0.clone())
    }
    fn extent(&self) -> Option<(f64, f64)> {
        None
    }
}

/// A law that a link has of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct FixedLaw {
    pub kind: String,
    pub given: Vec<(String, Value)>,
}

impl ParamType for FixedLaw {
    const SHAPE: Shape = Shape::Other;
    const UNIT: &'static str = "";
    const ALLOWED: &'static str =
        "a law, such as \"droptail\" or { kind = \"red\", min_th = \"15p\" }";
    fn from_value(value: &Value) -> Result<FixedLaw, String> {
        match value {
            Value::Text(kind) => Ok(FixedLaw {
                kind: kind.clone(),
                given: Vec::new(),
            }),
            Value::Table(fields) => {
                let mut given = fields.clone();
                let kind = given.iter().position(|(name, _)| name == "kind");
                match kind.map(|i| given.remove(i)) {
                    Some((_, Value::Text(kind))) => Ok(FixedLaw { kind, given }),
                    _ => Err(Self::ALLOWED.into()),
                }
            }
            _ => Err(Self::ALLOWED.into()),
        }
    }
    fn to_value(&self) -> Value {
        let mut fields = vec![("kind".to_owned(), Value::Text(self.kind.clone()))];
        fields.extend(self.given.iter().cloned());
        Value::Table(fields)
    }
    fn extent(&self) -> Option<(f64, f64)> {
        None
    }
}

/// A key that may be absent and then has no value; shown as an empty text.
#[derive(Clone, Debug, PartialEq)]
pub struct Maybe<T>(pub Option<T>);

impl<T: ParamType> ParamType for Maybe<T> {
    const SHAPE: Shape = T::SHAPE;
    const UNIT: &'static str = T::UNIT;
    const ALLOWED: &'static str = T::ALLOWED;
    fn from_value(value: &Value) -> Result<Maybe<T>, String> {
        T::from_value(value).map(|value| Maybe(Some(value)))
    }
    fn to_value(&self) -> Value {
        match &self.0 {
            Some(value) => value.to_value(),
            None => Value::Text(String::new()),
        }
    }
    fn extent(&self) -> Option<(f64, f64)> {
        self.0.as_ref().and_then(T::extent)
    }
}

/// Room for waiting packets, counted in packets or in bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BufferSize(pub Buffer);

impl ParamType for BufferSize {
    const SHAPE: Shape = Shape::Other;
    const UNIT: &'static str = "";
    const ALLOWED: &'static str =
        "whole packets, such as \"800p\" (1p to 1000000000p), or bytes, such as \"64kB\" (1B to 1000GB)";
    fn from_value(value: &Value) -> Result<BufferSize, String> {
        let Value::Text(text) = value else {
            return Err(Self::ALLOWED.into());
        };
        if let Ok(Packets(packets)) = Packets::parse(text) {
            if packets.fract() == 0.0 && (1.0..=MOST_BUFFER_PKTS).contains(&packets) {
                return Ok(BufferSize(Buffer::Packets(packets as u32)));
            }
        } else if let Ok(Bytes(bytes)) = Bytes::parse(text) {
            if (1.0..=MOST_BUFFER_BYTES).contains(&(bytes as f64)) {
                return Ok(BufferSize(Buffer::Bytes(bytes)));
            }
        }
        Err(Self::ALLOWED.into())
    }
    fn to_value(&self) -> Value {
        match self.0 {
            Buffer::Packets(packets) => Packets(f64::from(packets)).to_value(),
            Buffer::Bytes(bytes) => Bytes(bytes).to_value(),
        }
    }
    fn extent(&self) -> Option<(f64, f64)> {
        None
    }
}

/// A whole number of packets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WholePackets(pub u32);

impl ParamType for WholePackets {
    const SHAPE: Shape = Shape::Quantity;
    const UNIT: &'static str = "p";
    const ALLOWED: &'static str = "a whole number of packets, such as \"200p\"";
    fn from_value(value: &Value) -> Result<WholePackets, String> {
        match Packets::from_value(value) {
            Ok(Packets(n)) if n.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(&n) => {
                Ok(WholePackets(n as u32))
            }
            _ => Err(Self::ALLOWED.into()),
        }
    }
    fn to_value(&self) -> Value {
        Packets(f64::from(self.0)).to_value()
    }
    fn extent(&self) -> Option<(f64, f64)> {
        Some((f64::from(self.0), f64::from(self.0)))
    }
}

/// Two times, the earlier one first.
fn ordered(value: &Value) -> Option<(Span, Span)> {
    match value {
        Value::List(items) => match items.as_slice() {
            [first, second] => {
                let (first, second) = (
                    Span::from_value(first).ok()?,
                    Span::from_value(second).ok()?,
                );
                (first <= second).then_some((first, second))
            }
            _ => None,
        },
        _ => None,
    }
}

/// The part of a run over which metrics are taken.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Window(pub Span, pub Span);

impl ParamType for Window {
    const SHAPE: Shape = Shape::Other;
    const UNIT: &'static str = "s";
    const ALLOWED: &'static str = "two times, the earlier first, such as [\"50s\", \"100s\"]";
    fn from_value(value: &Value) -> Result<Window, String> {
        match ordered(value) {
            Some((start, end)) if start < end => Ok(Window(start, end)),
            _ => Err(Self::ALLOWED.into()),
        }
    }
    fn to_value(&self) -> Value {
        Value::List(vec![self.0.to_value(), self.1.to_value()])
    }
    fn extent(&self) -> Option<(f64, f64)> {
        Some((self.0.as_secs_f64(), self.1.as_secs_f64()))
    }
}

impl ParamType for Instant {
    const SHAPE: Shape = Shape::Other;
    const UNIT: &'static str = "s";
    const ALLOWED: &'static str =
        "a time with its unit, such as \"15ms\", or { uniform = [\"0s\", \"1s\"] }, the earlier first";
    fn from_value(value: &Value) -> Result<Instant, String> {
        let time = |span| Time::ZERO + span;
        match value {
            Value::Text(text) => match Span::parse(text) {
                Ok(span) => Ok(Instant::At(time(span))),
                Err(_) => Err(Self::ALLOWED.into()),
            },
            Value::Table(fields) => match fields.as_slice() {
                [(name, bounds)] if name == "uniform" => ordered(bounds)
                    .map(|(low, high)| Instant::Uniform(time(low), time(high)))
                    .ok_or_else(|| Self::ALLOWED.into()),
                _ => Err(Self::ALLOWED.into()),
            },
            _ => Err(Self::ALLOWED.into()),
        }
    }
    fn to_value(&self) -> Value {
        let value = |time: Time| time.since(Time::ZERO).to_value();
        match self {
            Instant::At(time) => value(*time),
            Instant::Uniform(low, high) => {
                let bounds = Value::List(vec![value(*low), value(*high)]);
                Value::Table(vec![("uniform".into(), bounds)])
            }
        }
    }
    fn extent(&self) -> Option<(f64, f64)> {
        let (low, high) = self.bounds();
        Some((low.as_secs_f64(), high.as_secs_f64()))
    }
}

impl Instant {
    /// The earliest and the latest time it can be.
    pub fn bounds(&self) -> (Time, Time) {
        match self {
            Instant::At(time) => (*time, *time),
            Instant::Uniform(low, high) => (*low, *high),
        }
    }
}

impl Recovery {
    /// Spelling of each in a scenario.
    pub const NAMES: &'static [(&'static str, Recovery)] = &[
        ("reno", Recovery::Reno),
        ("newreno", Recovery::NewReno),
        ("sack", Recovery::Sack),
        ("cubic", Recovery::Cubic),
        ("linux-reno", Recovery::LinuxReno),
        ("linux-cubic", Recovery::LinuxCubic),
    ];
}

impl ParamType for Recovery {
    const SHAPE: Shape = Shape::Other;
    const UNIT: &'static str = "";
    const ALLOWED: &'static str =
        "\"reno\", \"newreno\", \"sack\", \"cubic\", \"linux-reno\" or \"linux-cubic\"";
    fn from_value(value: &Value) -> Result<Recovery, String> {
        Self::NAMES
            .iter()
            .find(|(name, _)| *value == Value::Text((*name).into()))
            .map(|(_, recovery)| *recovery)
            .ok_or_else(|| Self::ALLOWED.into())
    }
    fn to_value(&self) -> Value {
        let (name, _) = Self::NAMES[*self as usize];
        Value::Text(name.into())
    }
    fn extent(&self) -> Option<(f64, f64)> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_round_trip() {
        for (_, recovery) in Recovery::NAMES {
            assert_eq!(Recovery::from_value(&recovery.to_value()), Ok(*recovery));
        }
        let second = |s| Time::ZERO + Span::from_secs(s);
        for instant in [
            Instant::At(second(2)),
            Instant::Uniform(second(0), second(3)),
        ] {
            assert_eq!(Instant::from_value(&instant.to_value()), Ok(instant));
        }
        for buffer in [Buffer::Packets(800), Buffer::Bytes(64_000)] {
            let size = BufferSize(buffer);
            assert_eq!(BufferSize::from_value(&size.to_value()), Ok(size));
        }
    }

    #[test]
    fn a_buffer_is_whole_and_not_empty() {
        for text in ["0p", "800.5p", "1e10p", "0B", "2000GB", "800", "1e400p"] {
            let value = Value::Text(text.into());
            assert!(BufferSize::from_value(&value).is_err(), "{text}");
        }
    }
}
