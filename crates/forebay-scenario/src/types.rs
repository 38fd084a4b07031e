//! Types of parameters that only scenarios have.

use forebay_aqm::{disciplines, QueueChoice};
use forebay_units::cast::{whole_u32, whole_u64};
use forebay_units::{
    words, Buffer, Bytes, Packets, ParamError, ParamType, Rate, Shape, Span, Time, Value,
};

/// Largest buffer, in packets.
pub const MOST_BUFFER_PKTS: f64 = 1e9;
/// Largest buffer, in bytes.
pub const MOST_BUFFER_BYTES: f64 = 1e12;
/// Largest buffer, as a time.
pub const MOST_BUFFER_TIME: Span = Span::from_secs(1000);

/// A text of one line.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Text(pub String);

impl ParamType for Text {
    const SHAPE: Shape = Shape::Text;
    const EXPECTED: &'static str = "a text of one line with at most 200 characters";
    fn from_value(value: &Value) -> Result<Text, String> {
        match value {
            Value::Text(text)
                if text.chars().count() <= 200 && !text.chars().any(char::is_control) =>
            {
                Ok(Text(text.clone()))
            }
            _ => Err(Self::EXPECTED.into()),
        }
    }
    fn to_value(&self) -> Value {
        Value::Text(self.0.clone())
    }
}

/// Words of a shell.
#[derive(Clone, Debug, PartialEq)]
pub struct Command(pub String);

impl ParamType for Command {
    const SHAPE: Shape = Shape::Text;
    const EXPECTED: &'static str = "a shell command on one line with at most 1000 characters";
    fn from_value(value: &Value) -> Result<Command, String> {
        match value {
            Value::Text(text)
                if !text.trim().is_empty()
                    && text.chars().count() <= 1000
                    && !text.chars().any(char::is_control) =>
            {
                Ok(Command(text.clone()))
            }
            _ => Err(Self::EXPECTED.into()),
        }
    }
    fn to_value(&self) -> Value {
        Value::Text(self.0.clone())
    }
}

/// A file below the scenario's folder.
#[derive(Clone, Debug, PartialEq)]
pub struct InnerFile(pub String);

impl InnerFile {
    /// Returns true if a path stays in the folder that it starts from.
    pub fn is_inner(path: &str) -> bool {
        let mut parts = std::path::Path::new(path).components();
        !path.is_empty()
            && !path.chars().any(char::is_control)
            && parts.all(|part| matches!(part, std::path::Component::Normal(_)))
    }
}

impl ParamType for InnerFile {
    const SHAPE: Shape = Shape::Text;
    const EXPECTED: &'static str =
        "a file in the folder of the scenario or below it, without \"..\", such as \"page\"";
    fn from_value(value: &Value) -> Result<InnerFile, String> {
        match value {
            Value::Text(text) if InnerFile::is_inner(text) => Ok(InnerFile(text.clone())),
            _ => Err(Self::EXPECTED.into()),
        }
    }
    fn to_value(&self) -> Value {
        Value::Text(self.0.clone())
    }
}

/// A name in reports and in paths such as `traffic.NAME.flows`.
#[derive(Clone, Debug, PartialEq)]
pub struct Label(pub String);

impl ParamType for Label {
    const SHAPE: Shape = Shape::Text;
    const EXPECTED: &'static str =
        "a name of 1 to 60 characters on one line that is not a number and has no \"/\", \"\\\", \",\" or \"=\"";
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
            _ => Err(Self::EXPECTED.into()),
        }
    }
    fn to_value(&self) -> Value {
        Value::Text(self.0.clone())
    }
}

/// A law that a link has of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct FixedLaw {
    /// The kind of the law.
    pub kind: String,
    /// The parameters that were set.
    pub given: Vec<(String, Value)>,
}

impl ParamType for FixedLaw {
    const SHAPE: Shape = Shape::Law;
    const EXPECTED: &'static str =
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
                    _ => Err(Self::EXPECTED.into()),
                }
            }
            _ => Err(Self::EXPECTED.into()),
        }
    }
    fn to_value(&self) -> Value {
        let mut fields = vec![("kind".to_owned(), Value::Text(self.kind.clone()))];
        fields.extend(self.given.iter().cloned());
        Value::Table(fields)
    }
}

/// The queue that holds a law.
#[derive(Clone, Debug, PartialEq)]
pub struct Queue(pub QueueChoice);

impl ParamType for Queue {
    const SHAPE: Shape = Shape::Queue;
    const EXPECTED: &'static str =
        "a queue, such as \"fifo\" or { kind = \"priority\", dscp = 46 }";
    fn from_value(value: &Value) -> Result<Queue, String> {
        let FixedLaw { kind, given } =
            FixedLaw::from_value(value).map_err(|_| Self::EXPECTED.to_owned())?;
        let spec = disciplines::find(&kind)?;
        let queue = QueueChoice::new(spec, given);
        queue
            .map(Queue)
            .map_err(|error| format!("{} with {} as {}", kind, error.expected, error.key))
    }
    fn to_value(&self) -> Value {
        let kind = Value::Text(self.0.spec.kind.into());
        if self.0.given().is_empty() {
            return kind;
        }
        let mut fields = vec![("kind".to_owned(), kind)];
        fields.extend(self.0.given().iter().cloned());
        Value::Table(fields)
    }
}

/// A key that may be absent and then has no value; shown as an empty text.
#[derive(Clone, Debug, PartialEq)]
pub struct Maybe<T>(pub Option<T>);

impl<T: ParamType> ParamType for Maybe<T> {
    const SHAPE: Shape = T::SHAPE;
    const UNIT: &'static str = T::UNIT;
    const EXPECTED: &'static str = T::EXPECTED;
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

/// Room for waiting packets: a number of them, of bytes, or the time in which the link sends them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum BufferSize {
    /// A number of packets or bytes.
    Room(Buffer),
    /// The time in which the link sends the buffer.
    Time(Span),
}

impl BufferSize {
    /// Returns the buffer at a link of this rate; a time is converted to bytes.
    pub fn at(self, rate: Rate) -> Buffer {
        match self {
            BufferSize::Room(buffer) => buffer,
            BufferSize::Time(span) => {
                let bytes = (rate.as_bps() as f64 * span.as_secs_f64() / 8.0).round();
                Buffer::Bytes(whole_u64(bytes).max(1))
            }
        }
    }
}

impl ParamType for BufferSize {
    const SHAPE: Shape = Shape::Quantities(&["p", "B", "s"]);
    const EXPECTED: &'static str =
        "a whole number of packets, such as \"800p\" (1p to 1000000000p), a number of bytes, such as \"64kB\" (1B to 1000GB), or the time in which the link sends them, such as \"100ms\"";
    fn from_value(value: &Value) -> Result<BufferSize, String> {
        let Value::Text(text) = value else {
            return Err(Self::EXPECTED.into());
        };
        if let Ok(Packets(packets)) = Packets::parse(text) {
            if packets.fract() == 0.0 && (1.0..=MOST_BUFFER_PKTS).contains(&packets) {
                return Ok(BufferSize::Room(Buffer::Packets(whole_u32(packets))));
            }
        } else if let Ok(Bytes(bytes)) = Bytes::parse(text) {
            if (1.0..=MOST_BUFFER_BYTES).contains(&(bytes as f64)) {
                return Ok(BufferSize::Room(Buffer::Bytes(bytes)));
            }
        } else if let Ok(span) = Span::parse(text) {
            if span > Span::ZERO && span <= MOST_BUFFER_TIME {
                return Ok(BufferSize::Time(span));
            }
        }
        Err(Self::EXPECTED.into())
    }
    fn to_value(&self) -> Value {
        match *self {
            BufferSize::Room(Buffer::Packets(packets)) => Packets(f64::from(packets)).to_value(),
            BufferSize::Room(Buffer::Bytes(bytes)) => Bytes(bytes).to_value(),
            BufferSize::Time(span) => span.to_value(),
        }
    }
}

/// Refuses a buffer of bytes that not even one packet of the usual size fits into.
///
/// # Errors
/// Under the key "buffer".
pub fn check_buffer(buffer: Buffer, packet: Bytes) -> Result<(), ParamError> {
    match buffer {
        Buffer::Bytes(bytes) if bytes < packet.0 => Err(ParamError::new(
            "buffer",
            BufferSize::Room(buffer).to_value(),
            format!("at least \"{packet}\", the size of the largest packet"),
        )),
        _ => Ok(()),
    }
}

/// A whole number of packets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WholePackets(pub u32);

impl ParamType for WholePackets {
    const SHAPE: Shape = Shape::Quantity;
    const UNIT: &'static str = "p";
    const EXPECTED: &'static str = "a whole number of packets, such as \"200p\"";
    fn from_value(value: &Value) -> Result<WholePackets, String> {
        match Packets::from_value(value) {
            Ok(Packets(n)) if n.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(&n) => {
                Ok(WholePackets(whole_u32(n)))
            }
            _ => Err(Self::EXPECTED.into()),
        }
    }
    fn to_value(&self) -> Value {
        Packets(f64::from(self.0)).to_value()
    }
    fn extent(&self) -> Option<(f64, f64)> {
        Some((f64::from(self.0), f64::from(self.0)))
    }
}

/// Returns two times, the earlier one first.
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
    const SHAPE: Shape = Shape::TimeRange;
    const UNIT: &'static str = "s";
    const EXPECTED: &'static str = "two times with the earlier first, such as [\"50s\", \"100s\"]";
    fn from_value(value: &Value) -> Result<Window, String> {
        match ordered(value) {
            Some((start, end)) if start < end => Ok(Window(start, end)),
            _ => Err(Self::EXPECTED.into()),
        }
    }
    fn to_value(&self) -> Value {
        Value::List(vec![self.0.to_value(), self.1.to_value()])
    }
    fn extent(&self) -> Option<(f64, f64)> {
        Some((self.0.as_secs_f64(), self.1.as_secs_f64()))
    }
}

/// A time per flow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Instant {
    /// The same time for every flow.
    At(Time),
    /// Drawn for each flow.
    Uniform(Time, Time),
}

impl ParamType for Instant {
    const SHAPE: Shape = Shape::TimeOrUniform;
    const UNIT: &'static str = "s";
    const EXPECTED: &'static str =
        "a time with its unit, such as \"15ms\", or a range of times, such as { uniform = [\"0s\", \"1s\"] }";
    fn from_value(value: &Value) -> Result<Instant, String> {
        let time = |span| Time::ZERO + span;
        match value {
            Value::Text(text) => match Span::parse(text) {
                Ok(span) => Ok(Instant::At(time(span))),
                Err(_) => Err(Self::EXPECTED.into()),
            },
            Value::Table(fields) => match fields.as_slice() {
                [(name, bounds)] if name == "uniform" => ordered(bounds)
                    .map(|(low, high)| Instant::Uniform(time(low), time(high)))
                    .ok_or_else(|| Self::EXPECTED.into()),
                _ => Err(Self::EXPECTED.into()),
            },
            _ => Err(Self::EXPECTED.into()),
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

/// ECN of TCP's packets, and how receivers report marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EcnChoice {
    /// Packets cannot be marked.
    Off,
    /// ECT(0); marks are echoed (RFC 3168).
    Classic,
    /// ECT(1); ACKs carry counts of marked packets (RFC 9331, RFC 9768).
    L4s,
}

impl ParamType for EcnChoice {
    const SHAPE: Shape = Shape::FlagOrWord(&["l4s"]);
    const EXPECTED: &'static str = "true, false or \"l4s\"";
    fn from_value(value: &Value) -> Result<EcnChoice, String> {
        match value {
            Value::Flag(false) => Ok(EcnChoice::Off),
            Value::Flag(true) => Ok(EcnChoice::Classic),
            Value::Text(text) if text == "l4s" => Ok(EcnChoice::L4s),
            _ => Err(Self::EXPECTED.into()),
        }
    }
    fn to_value(&self) -> Value {
        match self {
            EcnChoice::Off => Value::Flag(false),
            EcnChoice::Classic => Value::Flag(true),
            EcnChoice::L4s => Value::Text("l4s".into()),
        }
    }
}

/// The devices that split and join segments of several packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Offloads {
    /// Senders make none.
    #[default]
    Off,
    /// The sender's device cuts them, the receiver's joins packets.
    Hosts,
    /// Nothing cuts them on their way.
    All,
}

impl ParamType for Offloads {
    const SHAPE: Shape = Shape::FlagOrWord(&["all"]);
    const EXPECTED: &'static str = "true, false or \"all\"";
    fn from_value(value: &Value) -> Result<Offloads, String> {
        match value {
            Value::Flag(false) => Ok(Offloads::Off),
            Value::Flag(true) => Ok(Offloads::Hosts),
            Value::Text(text) if text == "all" => Ok(Offloads::All),
            _ => Err(Self::EXPECTED.into()),
        }
    }
    fn to_value(&self) -> Value {
        match self {
            Offloads::Off => Value::Flag(false),
            Offloads::Hosts => Value::Flag(true),
            Offloads::All => Value::Text("all".into()),
        }
    }
}

/// The hosts whose habits are the defaults of a traffic's keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stack {
    /// The hosts of ns-2.
    Ns2,
    /// A present host with Linux.
    Linux,
}

impl ParamType for Stack {
    const SHAPE: Shape = Shape::Word(&["ns2", "linux"]);
    const EXPECTED: &'static str = "\"ns2\" or \"linux\"";
    fn from_value(value: &Value) -> Result<Stack, String> {
        match value {
            Value::Text(text) if text == "ns2" => Ok(Stack::Ns2),
            Value::Text(text) if text == "linux" => Ok(Stack::Linux),
            _ => Err(Self::EXPECTED.into()),
        }
    }
    fn to_value(&self) -> Value {
        Value::Text(match self {
            Stack::Ns2 => "ns2".into(),
            Stack::Linux => "linux".into(),
        })
    }
}

/// A qdisc that holds a link to its rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shaper {
    /// The token bucket filter tbf.
    #[default]
    Tbf,
    /// The hierarchical token bucket htb.
    Htb,
}

impl ParamType for Shaper {
    const SHAPE: Shape = Shape::Word(&["tbf", "htb"]);
    const EXPECTED: &'static str = "\"tbf\" or \"htb\"";
    fn from_value(value: &Value) -> Result<Shaper, String> {
        match value {
            Value::Text(text) if text == "tbf" => Ok(Shaper::Tbf),
            Value::Text(text) if text == "htb" => Ok(Shaper::Htb),
            _ => Err(Self::EXPECTED.into()),
        }
    }
    fn to_value(&self) -> Value {
        Value::Text(match self {
            Shaper::Tbf => "tbf".into(),
            Shaper::Htb => "htb".into(),
        })
    }
}

impl Instant {
    /// Returns the earliest and the latest time it can be.
    pub fn bounds(&self) -> (Time, Time) {
        match self {
            Instant::At(time) => (*time, *time),
            Instant::Uniform(low, high) => (*low, *high),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_round_trip() {
        for choice in [EcnChoice::Off, EcnChoice::Classic, EcnChoice::L4s] {
            assert_eq!(EcnChoice::from_value(&choice.to_value()), Ok(choice));
        }
        let second = |s| Time::ZERO + Span::from_secs(s);
        for instant in [
            Instant::At(second(2)),
            Instant::Uniform(second(0), second(3)),
        ] {
            assert_eq!(Instant::from_value(&instant.to_value()), Ok(instant));
        }
        for size in [
            BufferSize::Room(Buffer::Packets(800)),
            BufferSize::Room(Buffer::Bytes(64_000)),
            BufferSize::Time(Span::from_millis(100)),
        ] {
            assert_eq!(BufferSize::from_value(&size.to_value()), Ok(size));
        }
    }

    #[test]
    fn a_time_is_what_the_link_sends_in_it() {
        let size = BufferSize::Time(Span::from_millis(100));
        assert_eq!(size.at(Rate::from_bps(8_000_000)), Buffer::Bytes(100_000));
        let packets = BufferSize::Room(Buffer::Packets(7));
        assert_eq!(packets.at(Rate::from_bps(8_000_000)), Buffer::Packets(7));
    }

    #[test]
    fn a_buffer_is_whole_and_not_empty() {
        for text in [
            "0s", "2h", "0p", "800.5p", "1e10p", "0B", "2000GB", "800", "1e400p",
        ] {
            let value = Value::Text(text.into());
            assert!(BufferSize::from_value(&value).is_err(), "{text}");
        }
    }
}

words! {
    /// The source of those numbers of a law that are not given.
    #[derive(Default)]
    pub enum Gains {
        /// From a design for the link.
        #[default]
        Auto = "auto",
        /// From the law's source: its defaults.
        Paper = "paper",
    }
}

/// A number of flows, or a range of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FlowRange {
    pub least: f64,
    pub most: f64,
}

impl ParamType for FlowRange {
    const SHAPE: Shape = Shape::Notation("FLOWS");
    const EXPECTED: &'static str = "a number of flows of at least 1, or a range such as 4..40";
    fn from_value(value: &Value) -> Result<FlowRange, String> {
        let text = match value {
            Value::Text(text) => text.clone(),
            other => other.to_string(),
        };
        let (least, most) = text.split_once("..").unwrap_or((&text, &text));
        match (least.parse(), most.parse()) {
            (Ok(least), Ok(most)) if 1.0 <= least && least <= most && most <= 1e6 => {
                Ok(FlowRange { least, most })
            }
            _ => Err(Self::EXPECTED.to_owned()),
        }
    }
    fn to_value(&self) -> Value {
        let FlowRange { least, most } = self;
        Value::Text(if least == most {
            least.to_string()
        } else {
            format!("{least}..{most}")
        })
    }
    fn extent(&self) -> Option<(f64, f64)> {
        Some((self.least, self.most))
    }
}
