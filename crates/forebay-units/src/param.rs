//! Parameters, declared once.
//!
//! [`params!`](crate::params) turns one declaration into the struct, its defaults, its table
//! of [`ParamSpec`]s (from which help, docs, JSON Schema and errors derive) and its reader.

use crate::cast::exact_i64;
use crate::{Bytes, Packets, Rate, SetPoint, Span};

/// A parameter's value as it is written in a scenario, before it has a type.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Flag(bool),
    Integer(i64),
    Number(f64),
    Text(String),
    List(Vec<Value>),
    Table(Vec<(String, Value)>),
}

impl std::fmt::Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match self {
            Value::Flag(v) => write!(f, "{v}"),
            Value::Integer(v) => write!(f, "{v}"),
            Value::Number(v) => write!(f, "{v}"),
            Value::Text(v) => write!(f, "{v:?}"),
            Value::List(items) => {
                let items: Vec<_> = items.iter().map(Value::to_string).collect();
                write!(f, "[{}]", items.join(", "))
            }
            Value::Table(fields) => {
                let fields: Vec<_> = fields.iter().map(|(k, v)| format!("{k} = {v}")).collect();
                write!(f, "{{ {} }}", fields.join(", "))
            }
        }
    }
}

/// What is wrong with a parameter: its key, what was found, and what is allowed.
#[derive(Clone, Debug, PartialEq)]
pub struct ParamError {
    pub key: String,
    pub found: String,
    pub allowed: String,
}

impl ParamError {
    pub fn new(
        key: impl Into<String>,
        found: impl ToString,
        allowed: impl Into<String>,
    ) -> ParamError {
        ParamError {
            key: key.into(),
            found: found.to_string(),
            allowed: allowed.into(),
        }
    }
}

impl std::fmt::Display for ParamError {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(
            f,
            "{}: found {}, allowed: {}",
            self.key, self.found, self.allowed
        )
    }
}

impl std::error::Error for ParamError {}

/// Named parameter values, as a scenario gives them.
pub type ParamValues = [(String, Value)];

/// The shape in which a parameter is written, from which JSON Schema and command lines derive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    Flag,
    Integer,
    Number,
    /// A quantity with its unit in the text: `"15ms"`.
    Quantity,
    /// A quantity in any of these base units.
    Quantities(&'static [&'static str]),
    Text,
    /// One value of the shape, or a list of them.
    List,
    /// One of these words.
    Word(&'static [&'static str]),
    /// True, false, or one of these words.
    FlagOrWord(&'static [&'static str]),
    /// Two times, the earlier first: `["50s", "100s"]`.
    TimeRange,
    /// A time, or a table with a time range: `{ uniform = ["0s", "1s"] }`.
    TimeOrUniform,
    /// A law by its kind, or a table of its kind and parameters.
    Law,
    /// A queue discipline by its kind, or a table of its kind and parameters.
    Queue,
    /// Keys and values that something else declares.
    Table,
    /// A text in a notation of its own, under the name that help gives it: `SHARE`.
    Notation(&'static str),
}

/// A type a parameter can have.
pub trait ParamType: Sized {
    const SHAPE: Shape;
    /// The base unit in which the range is given: "s", "bit/s", "B" or "p"; "" for a pure number, a
    /// flag or a text.
    const UNIT: &'static str = "";
    /// What a reader may write, in words.
    const ALLOWED: &'static str;

    /// # Errors
    /// What is allowed, in words, where `value` is not of this type.
    fn from_value(value: &Value) -> Result<Self, String>;
    fn to_value(&self) -> Value;
    /// The smallest and largest value in base units, for the range check; `None` for flags and text.
    fn extent(&self) -> Option<(f64, f64)> {
        None
    }
}

/// Declares a parameter that is one of a few words, as an `enum` with a variant for each.
///
/// ```
/// use forebay_units::{ParamType, Value};
/// forebay_units::words! {
///     /// What a link layer makes of a packet.
///     pub enum Framing {
///         None = "none",
///         Atm = "atm",
///     }
/// }
/// assert_eq!(Framing::from_value(&Value::Text("atm".into())), Ok(Framing::Atm));
/// assert_eq!(Framing::ALLOWED, "none, atm");
/// ```
#[macro_export]
macro_rules! words {
    (
        $(#[$outer:meta])*
        $vis:vis enum $name:ident {
            $(#[$first_meta:meta])* $first:ident = $first_word:literal
            $(, $(#[$meta:meta])* $variant:ident = $word:literal)* $(,)?
        }
    ) => {
        $(#[$outer])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        $vis enum $name {
            $(#[$first_meta])* $first,
            $( $(#[$meta])* $variant, )*
        }

        impl $crate::ParamType for $name {
            const SHAPE: $crate::Shape =
                $crate::Shape::Word(&[$first_word $(, $word)*]);
            const ALLOWED: &'static str = concat!($first_word $(, ", ", $word)*);
            fn from_value(value: &$crate::Value) -> Result<$name, String> {
                match value {
                    $crate::Value::Text(text) if text == $first_word => Ok($name::$first),
                    $($crate::Value::Text(text) if text == $word => Ok($name::$variant),)*
                    _ => Err(<$name as $crate::ParamType>::ALLOWED.to_owned()),
                }
            }
            fn to_value(&self) -> $crate::Value {
                let word = match self {
                    $name::$first => $first_word,
                    $($name::$variant => $word,)*
                };
                $crate::Value::Text(word.to_owned())
            }
        }
    };
}

impl ParamType for bool {
    const SHAPE: Shape = Shape::Flag;
    const ALLOWED: &'static str = "true or false";
    fn from_value(value: &Value) -> Result<bool, String> {
        match value {
            Value::Flag(v) => Ok(*v),
            _ => Err(Self::ALLOWED.into()),
        }
    }
    fn to_value(&self) -> Value {
        Value::Flag(*self)
    }
}

impl ParamType for f64 {
    const SHAPE: Shape = Shape::Number;
    const ALLOWED: &'static str = "a number";
    fn from_value(value: &Value) -> Result<f64, String> {
        match value {
            Value::Number(v) if v.is_finite() => Ok(*v),
            Value::Integer(v) => Ok(*v as f64),
            _ => Err(Self::ALLOWED.into()),
        }
    }
    fn to_value(&self) -> Value {
        Value::Number(*self)
    }
    fn extent(&self) -> Option<(f64, f64)> {
        Some((*self, *self))
    }
}

/// A whole number, also one that is written as `1e6` or `20.0`.
fn whole(value: &Value) -> Option<i64> {
    match value {
        Value::Integer(v) => Some(*v),
        Value::Number(v) => exact_i64(*v),
        _ => None,
    }
}

impl ParamType for i64 {
    const SHAPE: Shape = Shape::Integer;
    const ALLOWED: &'static str = "a whole number";
    fn from_value(value: &Value) -> Result<i64, String> {
        whole(value).ok_or_else(|| Self::ALLOWED.into())
    }
    fn to_value(&self) -> Value {
        Value::Integer(*self)
    }
    fn extent(&self) -> Option<(f64, f64)> {
        Some((*self as f64, *self as f64))
    }
}

impl ParamType for u32 {
    const SHAPE: Shape = Shape::Integer;
    const ALLOWED: &'static str = "a whole number";
    fn from_value(value: &Value) -> Result<u32, String> {
        let whole = whole(value).and_then(|whole| u32::try_from(whole).ok());
        whole.ok_or_else(|| Self::ALLOWED.into())
    }
    fn to_value(&self) -> Value {
        Value::Integer(i64::from(*self))
    }
    fn extent(&self) -> Option<(f64, f64)> {
        Some((f64::from(*self), f64::from(*self)))
    }
}

macro_rules! quantity {
    ($type:ty, $unit:literal, $base:expr) => {
        impl ParamType for $type {
            const SHAPE: Shape = Shape::Quantity;
            const UNIT: &'static str = $unit;
            const ALLOWED: &'static str = <$type>::ALLOWED;
            fn from_value(value: &Value) -> Result<Self, String> {
                match value {
                    Value::Text(text) => <$type>::parse(text),
                    _ => Err(Self::ALLOWED.into()),
                }
            }
            fn to_value(&self) -> Value {
                Value::Text(self.to_string())
            }
            fn extent(&self) -> Option<(f64, f64)> {
                let base: fn(&$type) -> f64 = $base;
                Some((base(self), base(self)))
            }
        }
    };
}
quantity!(Span, "s", |v| v.as_secs_f64());
quantity!(Rate, "bit/s", |v| v.as_bps() as f64);
quantity!(Bytes, "B", |v| v.0 as f64);
quantity!(Packets, "p", |v| v.0);

/// The range is of packets; a delay has the range of its own that [`SetPoint::ALLOWED`] names.
impl ParamType for SetPoint {
    const SHAPE: Shape = Shape::Quantities(&["p", "s"]);
    const UNIT: &'static str = "p";
    const ALLOWED: &'static str = SetPoint::ALLOWED;
    fn from_value(value: &Value) -> Result<SetPoint, String> {
        match value {
            Value::Text(text) => SetPoint::parse(text),
            _ => Err(Self::ALLOWED.into()),
        }
    }
    fn to_value(&self) -> Value {
        Value::Text(self.to_string())
    }
    fn extent(&self) -> Option<(f64, f64)> {
        match self {
            SetPoint::Packets(packets) => Some((*packets, *packets)),
            SetPoint::Delay(_) => None,
        }
    }
}

/// A list may be written as one bare value.
impl<T: ParamType> ParamType for Vec<T> {
    const SHAPE: Shape = Shape::List;
    const UNIT: &'static str = T::UNIT;
    const ALLOWED: &'static str = T::ALLOWED;
    fn from_value(value: &Value) -> Result<Vec<T>, String> {
        let list_of = |_| format!("{}, or a list of such", T::ALLOWED);
        match value {
            Value::List(items) if items.is_empty() => Err(list_of(String::new())),
            Value::List(items) => items
                .iter()
                .map(|item| T::from_value(item).map_err(list_of))
                .collect(),
            one => Ok(vec![T::from_value(one).map_err(list_of)?]),
        }
    }
    fn to_value(&self) -> Value {
        match self.as_slice() {
            [one] => one.to_value(),
            many => Value::List(many.iter().map(T::to_value).collect()),
        }
    }
    fn extent(&self) -> Option<(f64, f64)> {
        self.iter()
            .filter_map(T::extent)
            .reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
    }
}

/// One declared parameter.
#[derive(Clone, Copy)]
pub struct ParamSpec {
    pub name: &'static str,
    /// Base unit of `min` and `max`; "" for a pure number, a flag or a text.
    pub unit: &'static str,
    pub shape: Shape,
    /// What may be written, in words.
    pub allowed: &'static str,
    /// The value when the key is absent; an example where the key is required.
    pub default: &'static (dyn Fn() -> Value + Send + Sync),
    /// The default's size in base units; `None` for flags and text.
    pub default_base: &'static (dyn Fn() -> Option<f64> + Send + Sync),
    pub required: bool,
    pub min: f64,
    pub max: f64,
    pub doc: &'static str,
}

/// A struct of declared parameters; `params!` writes the implementation.
pub trait Params: Sized + Clone {
    const SPECS: &'static [ParamSpec];

    /// Every parameter at its default (required ones at their example).
    fn defaults() -> Self;

    /// # Errors
    /// Where `name` is not declared, or `value` is of another type or out of range.
    fn set(&mut self, name: &str, value: &Value) -> Result<(), ParamError>;

    fn get(&self, name: &str) -> Option<Value>;

    /// The size of a parameter in base units, of a list its least; `None` for flags and text, and
    /// where `name` is not declared.
    fn base(&self, name: &str) -> Option<f64>;

    /// Defaults with `given` on top.
    ///
    /// # Errors
    /// The first key that is unknown, wrong or missing.
    fn read(given: &[(String, Value)]) -> Result<Self, ParamError> {
        let mut params = Self::defaults();
        for (name, value) in given {
            params.set(name, value)?;
        }
        for spec in Self::SPECS {
            if spec.required && !given.iter().any(|(name, _)| name == spec.name) {
                return Err(ParamError::new(spec.name, "nothing", spec.allowed));
            }
        }
        Ok(params)
    }
}

/// Parameters with a value each, whatever their type.
pub trait ParamTable {
    /// Returns every parameter with its value, in the order of their declaration.
    fn values(&self) -> Vec<(&'static str, Value)>;
}

impl<P: Params> ParamTable for P {
    fn values(&self) -> Vec<(&'static str, Value)> {
        let value = |spec: &ParamSpec| Some((spec.name, self.get(spec.name)?));
        P::SPECS.iter().filter_map(value).collect()
    }
}

/// Checks a value against its declared range.
///
/// # Errors
/// Where a part of it lies outside, or is not a number.
pub fn in_range<T: ParamType>(spec: &ParamSpec, value: &T, raw: &Value) -> Result<(), ParamError> {
    match value.extent() {
        Some((low, high)) if !(low >= spec.min && high <= spec.max) => Err(ParamError::new(
            spec.name,
            raw,
            format!("{} to {}", base(spec.min, spec), base(spec.max, spec)),
        )),
        _ => Ok(()),
    }
}

/// A bound of the range, with its unit.
fn base(bound: f64, spec: &ParamSpec) -> String {
    format!("{bound}{}", spec.unit)
}

/// Refuses goals for a design rule that has none.
///
/// # Errors
/// The first goal.
pub fn no_goals(goals: &[(String, Value)]) -> Result<(), ParamError> {
    goals.first().map_or(Ok(()), |(name, _)| {
        Err(unknown_key(name, std::iter::empty()))
    })
}

/// The error for a key that is not declared, with the nearest declared one as a suggestion.
pub fn unknown_key<'a>(key: &str, known: impl Iterator<Item = &'a str>) -> ParamError {
    let known: Vec<&str> = known.collect();
    let allowed = match nearest(key, &known) {
        None if known.is_empty() => "none".to_owned(),
        Some(near) => format!("{} (did you mean {near:?}?)", known.join(", ")),
        None => known.join(", "),
    };
    ParamError::new(key, "a key that is not known here", allowed)
}

/// The closest of `words` to `word`, if close enough to be a slip of the fingers.
pub fn nearest<'a>(word: &str, words: &[&'a str]) -> Option<&'a str> {
    words
        .iter()
        .map(|known| (edits(word, known), *known))
        .filter(|(distance, known)| *distance <= (known.len() / 3).max(1))
        .min()
        .map(|(_, known)| known)
}

/// Edit distance with a swap of neighbours as one edit (Damerau, restricted).
fn edits(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut d: Vec<Vec<usize>> = (0..=a.len())
        .map(|i| (0..=b.len()).map(|j| if i == 0 { j } else { i }).collect())
        .collect();
    for i in 1..=a.len() {
        for j in 1..=b.len() {
            let change = usize::from(a[i - 1] != b[j - 1]);
            let mut best = (d[i - 1][j] + 1)
                .min(d[i][j - 1] + 1)
                .min(d[i - 1][j - 1] + change);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(d[i - 2][j - 2] + 1);
            }
            d[i][j] = best;
        }
    }
    d[a.len()][b.len()]
}

/// Declares a struct of parameters.
///
/// ```
/// use forebay_units::{params, Packets, Params, Span};
/// params! {
///     /// Parameters of a law.
///     pub struct Example {
///         /// Queue length to hold.
///         target: Packets = Packets(50.0), 0.0 => 1e9;
///         /// Time between two samples.
///         interval: Span = Span::from_millis(10), 1e-6 => 10.0;
///         /// Count the queue in bytes.
///         in_bytes: bool = false;
///     }
/// }
/// assert_eq!(Example::defaults().target, Packets(50.0));
/// ```
/// A range, in base units, is for types that have a size; without one every size is allowed.
/// After it, `, required` makes the key compulsory; its default then serves as an example.
#[macro_export]
macro_rules! params {
    (
        $(#[$outer:meta])*
        $vis:vis struct $name:ident {
            $(
                $(#[doc = $doc:literal])+
                $field:ident : $type:ty = $default:expr
                    $(, $min:expr => $max:expr $(, $required:ident)?)? ;
            )*
        }
    ) => {
        $(#[$outer])*
        #[derive(Clone, Debug, PartialEq)]
        $vis struct $name {
            $( $(#[doc = $doc])+ pub $field: $type, )*
        }

        impl $crate::Params for $name {
            const SPECS: &'static [$crate::ParamSpec] = &[
                $( $crate::ParamSpec {
                    name: stringify!($field),
                    unit: <$type as $crate::ParamType>::UNIT,
                    shape: <$type as $crate::ParamType>::SHAPE,
                    allowed: <$type as $crate::ParamType>::ALLOWED,
                    default: &|| <$type as $crate::ParamType>::to_value(&$default),
                    default_base: &|| {
                        <$type as $crate::ParamType>::extent(&$default).map(|(low, _)| low)
                    },
                    required: $crate::params!(@required $($($required)?)?),
                    min: $crate::params!(@bound f64::NEG_INFINITY $(, $min)?),
                    max: $crate::params!(@bound f64::INFINITY $(, $max)?),
                    doc: concat!($($doc),+),
                }, )*
            ];

            fn defaults() -> Self {
                $name { $( $field: $default, )* }
            }

            fn set(
                &mut self,
                name: &str,
                value: &$crate::Value,
            ) -> Result<(), $crate::ParamError> {
                let spec = Self::SPECS
                    .iter()
                    .find(|spec| spec.name == name)
                    .ok_or_else(|| {
                        $crate::unknown_key(name, Self::SPECS.iter().map(|spec| spec.name))
                    })?;
                $(
                    if name == stringify!($field) {
                        let read = <$type as $crate::ParamType>::from_value(value)
                            .map_err(|allowed| {
                                $crate::ParamError::new(name, value, allowed)
                            })?;
                        $crate::in_range(spec, &read, value)?;
                        self.$field = read;
                        return Ok(());
                    }
                )*
                let _ = (spec, value);
                Ok(())
            }

            fn get(&self, name: &str) -> Option<$crate::Value> {
                $(
                    if name == stringify!($field) {
                        return Some(<$type as $crate::ParamType>::to_value(&self.$field));
                    }
                )*
                let _ = name;
                None
            }

            fn base(&self, name: &str) -> Option<f64> {
                $(
                    if name == stringify!($field) {
                        let extent = <$type as $crate::ParamType>::extent(&self.$field);
                        return extent.map(|(low, _)| low);
                    }
                )*
                let _ = name;
                None
            }
        }
    };
    (@bound $unbounded:expr) => { $unbounded };
    (@bound $unbounded:expr, $bound:expr) => { $bound };
    (@required required) => { true };
    (@required) => { false };
}

#[cfg(test)]
mod tests {
    use super::*;

    params! {
        /// Every type a parameter can have.
        struct Sample {
            /// A queue length.
            target: Packets = Packets(50.0), 0.0 => 1000.0;
            /// A time.
            interval: Span = Span::from_millis(10), 1e-6 => 10.0;
            /// A gain.
            gain: f64 = 0.5, 0.0 => 1.0;
            /// A switch.
            gentle: bool = true;
            /// Several times.
            rtt: Vec<Span> = vec![Span::from_millis(100)], 0.0 => 10.0;
            /// A rate that must be given.
            rate: Rate = Rate::from_bps(1_000_000), 1.0 => 1e12, required;
        }
    }

    fn given(key: &str, value: Value) -> Vec<(String, Value)> {
        vec![
            ("rate".into(), Value::Text("1Mbit/s".into())),
            (key.into(), value),
        ]
    }

    #[test]
    fn what_is_given_replaces_the_default() {
        let read = Sample::read(&given("target", Value::Text("75p".into()))).unwrap();
        assert_eq!(read.target, Packets(75.0));
        assert_eq!(read.gain, 0.5);
        assert_eq!(read.get("interval"), Some(Value::Text("10ms".into())));
    }

    #[test]
    fn errors_name_key_found_and_allowed() {
        let error = Sample::read(&given("gain", Value::Number(1.5))).unwrap_err();
        assert_eq!(error.to_string(), "gain: found 1.5, allowed: 0 to 1");
        let error = Sample::read(&given("gian", Value::Number(0.5))).unwrap_err();
        assert!(error.allowed.contains("did you mean \"gain\""), "{error}");
        let error = Sample::read(&given("interval", Value::Integer(5))).unwrap_err();
        assert!(error.allowed.contains("15ms"), "{error}");
        let error = Sample::read(&given("gain", Value::Number(f64::NAN))).unwrap_err();
        assert_eq!(error.allowed, "a number");
        assert_eq!(Sample::read(&[]).unwrap_err().key, "rate");
    }

    #[test]
    fn a_list_may_be_one_value() {
        let rtt = |value| Sample::read(&given("rtt", value)).map(|s| s.rtt.len());
        assert_eq!(rtt(Value::Text("50ms".into())), Ok(1));
        let two = Value::List(vec![Value::Text("50ms".into()), Value::Text("60ms".into())]);
        assert_eq!(rtt(two), Ok(2));
        assert!(rtt(Value::List(vec![])).is_err());
        assert!(rtt(Value::Text("11s".into())).is_err());
    }

    #[test]
    fn only_slips_are_suggested() {
        assert_eq!(nearest("taget", &["target", "rate"]), Some("target"));
        assert_eq!(nearest("colour", &["target", "rate"]), None);
    }

    proptest::proptest! {
        #[test]
        fn edits_are_counted_as_elsewhere(a in "[ab_é]{0,7}", b in "[ab_é]{0,7}") {
            proptest::prop_assert_eq!(edits(&a, &b), strsim::osa_distance(&a, &b));
        }
    }
}
