//! Parameters that are declared once.
//!
//! [`params!`](crate::params) expands a declaration to a struct, its defaults, its reader, and a
//! table of [`ParamSpec`]s, from which help texts, reference pages, JSON Schema and error messages
//! derive.

use crate::cast::exact_i64;
use crate::{Bytes, Packets, Rate, SetPoint, Span};

/// The value of a parameter as written in a scenario, before it is converted to the parameter's
/// type.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// True or false.
    Flag(bool),
    /// An integer.
    Integer(i64),
    /// A floating-point number.
    Number(f64),
    /// A text; quantities such as `"15ms"` are texts.
    Text(String),
    /// A list of values.
    List(Vec<Value>),
    /// Keys and values in order.
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

/// An error in a parameter, with its facts.
///
/// Every message about a parameter has one form, which [`Display`](std::fmt::Display) gives it:
///
/// ```
/// use forebay_units::ParamError;
///
/// let rate = ParamError::new("rate", "\"40furlongs\"", "a rate, such as \"40Mbit/s\"");
/// let text = "rate: \"40furlongs\" is not valid; expected a rate, such as \"40Mbit/s\"";
/// assert_eq!(rate.to_string(), text);
/// let missing = ParamError::missing("rate", "a rate, such as \"40Mbit/s\"");
/// assert_eq!(missing.to_string(), "rate: missing; expected a rate, such as \"40Mbit/s\"");
/// let both = ParamError::new("trace", "\"lte\"", "either a rate or a trace")
///     .because("cannot be combined with a rate");
/// let text = "trace: \"lte\" cannot be combined with a rate; expected either a rate or a trace";
/// assert_eq!(both.to_string(), text);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct ParamError {
    /// The key of the parameter.
    pub key: String,
    /// The wrong value, as text; empty if the error is not about one value.
    pub value: String,
    /// The fault, as a phrase that follows the value, such as "is not valid", or a whole clause if
    /// there is no value.
    pub reason: String,
    /// A description of a correct value, as a noun phrase.
    pub expected: String,
}

impl ParamError {
    /// Creates an error about the parameter `key`, whose value is not valid; `expected` describes
    /// the valid values.
    pub fn new(
        key: impl Into<String>,
        value: impl ToString,
        expected: impl Into<String>,
    ) -> ParamError {
        ParamError {
            key: key.into(),
            value: value.to_string(),
            reason: "is not valid".to_owned(),
            expected: expected.into(),
        }
    }

    /// Creates an error about the parameter `key`, which is required and missing.
    pub fn missing(key: impl Into<String>, expected: impl Into<String>) -> ParamError {
        ParamError::stated(key, "missing", expected)
    }

    /// Creates an error about the parameter `key` that concerns no single value; `reason` states
    /// the fault.
    pub fn stated(
        key: impl Into<String>,
        reason: impl Into<String>,
        expected: impl Into<String>,
    ) -> ParamError {
        ParamError::new(key, "", expected).because(reason)
    }

    /// Replaces the fault, which is that the value is not valid, by another phrase.
    #[must_use]
    pub fn because(mut self, reason: impl Into<String>) -> ParamError {
        self.reason = reason.into();
        self
    }
}

impl std::fmt::Display for ParamError {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        let ParamError {
            key,
            value,
            reason,
            expected,
        } = self;
        let space = if value.is_empty() { "" } else { " " };
        write!(f, "{key}: {value}{space}{reason}; expected {expected}")
    }
}

impl std::error::Error for ParamError {}

/// Parameter values by name, as a scenario contains them.
pub type ParamValues = [(String, Value)];

/// The notation of a parameter, from which JSON Schema and command lines derive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// True or false.
    Flag,
    /// An integer.
    Integer,
    /// A number.
    Number,
    /// A quantity as text with its unit: `"15ms"`.
    Quantity,
    /// A quantity in one of these base units.
    Quantities(&'static [&'static str]),
    /// Any text.
    Text,
    /// One value, or a list of values.
    List,
    /// One of these names.
    Word(&'static [&'static str]),
    /// True, false, or one of these names.
    FlagOrWord(&'static [&'static str]),
    /// Two times, the earlier first: `["50s", "100s"]`.
    TimeRange,
    /// A time, or a table with a time range: `{ uniform = ["0s", "1s"] }`.
    TimeOrUniform,
    /// The kind of a law, or a table with its kind and parameters.
    Law,
    /// The kind of a queue discipline, or a table with its kind and parameters.
    Queue,
    /// A table whose keys are declared elsewhere.
    Table,
    /// A text in a special notation; the name is its placeholder in help texts, such as `SHARE`.
    Notation(&'static str),
}

/// A type that a parameter can have.
pub trait ParamType: Sized {
    /// The notation of a value.
    const SHAPE: Shape;
    /// The base unit of the range: "s", "bit/s", "B" or "p"; "" for a dimensionless number, a flag
    /// or a text.
    const UNIT: &'static str = "";
    /// A description of the valid values as a noun phrase, for error messages.
    const EXPECTED: &'static str;

    /// Converts a value to this type.
    ///
    /// # Errors
    /// If `value` is not of this type. The text describes the valid values.
    fn from_value(value: &Value) -> Result<Self, String>;
    /// Returns the value in the notation of a scenario.
    fn to_value(&self) -> Value;
    /// Returns the smallest and the largest contained number in base units, for the range check;
    /// `None` for flags and texts.
    fn extent(&self) -> Option<(f64, f64)> {
        None
    }
}

/// Declares a parameter that is one of a few names, as an `enum` with a variant for each.
///
/// ```
/// use forebay_units::{ParamType, Value};
/// forebay_units::words! {
///     /// The framing of a link layer.
///     pub enum Framing {
///         None = "none",
///         Atm = "atm",
///     }
/// }
/// assert_eq!(Framing::from_value(&Value::Text("atm".into())), Ok(Framing::Atm));
/// assert_eq!(Framing::EXPECTED, "one of none, atm");
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
            const EXPECTED: &'static str = concat!("one of ", $first_word $(, ", ", $word)*);
            fn from_value(value: &$crate::Value) -> Result<$name, String> {
                match value {
                    $crate::Value::Text(text) if text == $first_word => Ok($name::$first),
                    $($crate::Value::Text(text) if text == $word => Ok($name::$variant),)*
                    _ => Err(<$name as $crate::ParamType>::EXPECTED.to_owned()),
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
    const EXPECTED: &'static str = "true or false";
    fn from_value(value: &Value) -> Result<bool, String> {
        match value {
            Value::Flag(v) => Ok(*v),
            _ => Err(Self::EXPECTED.into()),
        }
    }
    fn to_value(&self) -> Value {
        Value::Flag(*self)
    }
}

impl ParamType for f64 {
    const SHAPE: Shape = Shape::Number;
    const EXPECTED: &'static str = "a number";
    fn from_value(value: &Value) -> Result<f64, String> {
        match value {
            Value::Number(v) if v.is_finite() => Ok(*v),
            Value::Integer(v) => Ok(*v as f64),
            _ => Err(Self::EXPECTED.into()),
        }
    }
    fn to_value(&self) -> Value {
        Value::Number(*self)
    }
    fn extent(&self) -> Option<(f64, f64)> {
        Some((*self, *self))
    }
}

/// Returns an integer, which may be written as `1e6` or `20.0`.
fn whole(value: &Value) -> Option<i64> {
    match value {
        Value::Integer(v) => Some(*v),
        Value::Number(v) => exact_i64(*v),
        _ => None,
    }
}

impl ParamType for i64 {
    const SHAPE: Shape = Shape::Integer;
    const EXPECTED: &'static str = "a whole number";
    fn from_value(value: &Value) -> Result<i64, String> {
        whole(value).ok_or_else(|| Self::EXPECTED.into())
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
    const EXPECTED: &'static str = "a non-negative whole number";
    fn from_value(value: &Value) -> Result<u32, String> {
        match whole(value) {
            Some(whole) if whole > i64::from(u32::MAX) => {
                Err(format!("a whole number of at most {}", u32::MAX))
            }
            Some(whole) => u32::try_from(whole).map_err(|_| Self::EXPECTED.into()),
            None => Err(Self::EXPECTED.into()),
        }
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
            const EXPECTED: &'static str = <$type>::EXPECTED;
            fn from_value(value: &Value) -> Result<Self, String> {
                match value {
                    Value::Text(text) => <$type>::parse(text),
                    _ => Err(Self::EXPECTED.into()),
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

/// A declared range applies to a length in packets. A delay has the range in [`SetPoint::EXPECTED`].
impl ParamType for SetPoint {
    const SHAPE: Shape = Shape::Quantities(&["p", "s"]);
    const UNIT: &'static str = "p";
    const EXPECTED: &'static str = SetPoint::EXPECTED;
    fn from_value(value: &Value) -> Result<SetPoint, String> {
        match value {
            Value::Text(text) => SetPoint::parse(text),
            _ => Err(Self::EXPECTED.into()),
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

/// A list with one element may be written as a bare value.
impl<T: ParamType> ParamType for Vec<T> {
    const SHAPE: Shape = Shape::List;
    const UNIT: &'static str = T::UNIT;
    const EXPECTED: &'static str = T::EXPECTED;
    fn from_value(value: &Value) -> Result<Vec<T>, String> {
        let list_of = |_| format!("{}, or a list of them", T::EXPECTED);
        match value {
            Value::List(items) if items.is_empty() => Err(list_of(String::new())),
            Value::List(items) => items
                .iter()
                .map(|item| T::from_value(item).map_err(list_of))
                .collect(),
            value => Ok(vec![T::from_value(value).map_err(list_of)?]),
        }
    }
    fn to_value(&self) -> Value {
        match self.as_slice() {
            [item] => item.to_value(),
            items => Value::List(items.iter().map(T::to_value).collect()),
        }
    }
    fn extent(&self) -> Option<(f64, f64)> {
        self.iter()
            .filter_map(T::extent)
            .reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
    }
}

/// The declaration of one parameter.
#[derive(Clone, Copy)]
pub struct ParamSpec {
    /// The key in scenarios.
    pub name: &'static str,
    /// The base unit of `min` and `max`; "" for a dimensionless number, a flag or a text.
    pub unit: &'static str,
    /// The notation of the value.
    pub shape: Shape,
    /// A description of the valid values, without the range.
    pub expected: &'static str,
    /// Returns the value used when the key is absent; an example if the key is required.
    pub default: &'static (dyn Fn() -> Value + Send + Sync),
    /// Returns the default in base units; `None` for flags and texts.
    pub default_base: &'static (dyn Fn() -> Option<f64> + Send + Sync),
    /// True if the key must be present.
    pub required: bool,
    /// The smallest valid value, in base units.
    pub min: f64,
    /// The largest valid value, in base units.
    pub max: f64,
    /// The sentences that describe the parameter.
    pub doc: &'static str,
}

/// A struct of declared parameters. [`params!`](crate::params) implements it.
pub trait Params: Sized + Clone {
    /// The declarations, in order.
    const SPECS: &'static [ParamSpec];

    /// Returns the struct with every parameter at its default (required ones at their example).
    fn defaults() -> Self;

    /// Sets the parameter `name`.
    ///
    /// # Errors
    /// If `name` is not declared, or `value` has the wrong type or is out of range.
    fn set(&mut self, name: &str, value: &Value) -> Result<(), ParamError>;

    /// Returns the value of the parameter `name`; `None` if it is not declared.
    fn get(&self, name: &str) -> Option<Value>;

    /// Returns a parameter in base units, or the smallest element of a list; `None` for flags and
    /// texts, and if `name` is not declared.
    fn base(&self, name: &str) -> Option<f64>;

    /// Reads parameters: those in `values`, and defaults for the rest.
    ///
    /// # Errors
    /// If a key is unknown, has a wrong value, or is required and missing. The error is about the
    /// first such key.
    fn read(values: &[(String, Value)]) -> Result<Self, ParamError> {
        let mut params = Self::defaults();
        for (name, value) in values {
            params.set(name, value)?;
        }
        for spec in Self::SPECS {
            if spec.required && !values.iter().any(|(name, _)| name == spec.name) {
                return Err(ParamError::missing(spec.name, spec.expected));
            }
        }
        Ok(params)
    }
}

/// Access to the values of parameters without knowledge of their struct.
pub trait ParamTable {
    /// Returns every parameter with its value, in the order of declaration.
    fn values(&self) -> Vec<(&'static str, Value)>;
}

impl<P: Params> ParamTable for P {
    fn values(&self) -> Vec<(&'static str, Value)> {
        let value = |spec: &ParamSpec| Some((spec.name, self.get(spec.name)?));
        P::SPECS.iter().filter_map(value).collect()
    }
}

/// Checks that a value is in its declared range. `raw` is its notation, for the error.
///
/// # Errors
/// If any part of the value is out of range or NaN.
pub fn in_range<T: ParamType>(spec: &ParamSpec, value: &T, raw: &Value) -> Result<(), ParamError> {
    match value.extent() {
        Some((low, high)) if !(low >= spec.min && high <= spec.max) => Err(ParamError::new(
            spec.name,
            raw,
            format!(
                "a value from {} to {}",
                base(spec.min, spec),
                base(spec.max, spec)
            ),
        )),
        _ => Ok(()),
    }
}

/// Returns a bound of the range with its unit.
fn base(bound: f64, spec: &ParamSpec) -> String {
    format!("{bound}{}", spec.unit)
}

/// Refuses goals for a design rule that has none.
///
/// # Errors
/// If there is a goal. The error is about the first one.
pub fn no_goals(goals: &[(String, Value)]) -> Result<(), ParamError> {
    goals.first().map_or(Ok(()), |(name, _)| {
        Err(unknown_key(name, std::iter::empty()))
    })
}

/// Returns the error for a key that is not among the `declared` ones, with the most similar one as
/// a suggestion.
pub fn unknown_key<'a>(key: &str, declared: impl Iterator<Item = &'a str>) -> ParamError {
    let declared: Vec<&str> = declared.collect();
    let expected = match declared.as_slice() {
        [] => "no parameters".to_owned(),
        names => one_of(names, key),
    };
    ParamError::stated(key, "unknown key", expected)
}

/// Returns a description of a value that is one of `names`, for error messages. The name most
/// similar to `word`, which is none of them, is a suggestion.
///
/// ```
/// use forebay_units::one_of;
///
/// assert_eq!(one_of(&["pi", "red"], "rde"), "one of pi, red (did you mean \"red\"?)");
/// assert_eq!(one_of(&["pi"], "po"), "pi");
/// ```
pub fn one_of(names: &[&str], word: &str) -> String {
    if let [name] = names {
        return (*name).to_owned();
    }
    let list = format!("one of {}", names.join(", "));
    match nearest(word, names) {
        Some(near) if near != word => format!("{list} (did you mean {near:?}?)"),
        _ => list,
    }
}

/// Returns the element of `words` most similar to `word`; `None` if none is similar enough for a
/// typing error.
pub fn nearest<'a>(word: &str, words: &[&'a str]) -> Option<&'a str> {
    words
        .iter()
        .map(|candidate| (edit_distance(word, candidate), *candidate))
        .filter(|(distance, candidate)| *distance <= (candidate.len() / 3).max(1))
        .min()
        .map(|(_, candidate)| candidate)
}

/// Returns the edit distance in which swapping neighbours is one edit (the restricted
/// Damerau-Levenshtein distance).
fn edit_distance(a: &str, b: &str) -> usize {
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
///         /// Queue length to control.
///         target: Packets = Packets(50.0), 0.0 => 1e9;
///         /// Time between two samples.
///         interval: Span = Span::from_millis(10), 1e-6 => 10.0;
///         /// Count the queue in bytes.
///         in_bytes: bool = false;
///     }
/// }
/// assert_eq!(Example::defaults().target, Packets(50.0));
/// ```
/// The range is in base units and applies to types that have a size; without a range every size is
/// valid. `, required` after the range makes the key compulsory; its default is then an example.
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
                    expected: <$type as $crate::ParamType>::EXPECTED,
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
                        let parsed = <$type as $crate::ParamType>::from_value(value)
                            .map_err(|expected| {
                                $crate::ParamError::new(name, value, expected)
                            })?;
                        $crate::in_range(spec, &parsed, value)?;
                        self.$field = parsed;
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
        /// Parameters of several types.
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
            /// A rate that is required.
            rate: Rate = Rate::from_bps(1_000_000), 1.0 => 1e12, required;
        }
    }

    /// Returns the required key and another one.
    fn values(key: &str, value: Value) -> Vec<(String, Value)> {
        vec![
            ("rate".into(), Value::Text("1Mbit/s".into())),
            (key.into(), value),
        ]
    }

    #[test]
    fn values_replace_defaults() {
        let sample = Sample::read(&values("target", Value::Text("75p".into()))).unwrap();
        assert_eq!(sample.target, Packets(75.0));
        assert_eq!(sample.gain, 0.5);
        assert_eq!(sample.get("interval"), Some(Value::Text("10ms".into())));
    }

    #[test]
    fn errors_state_the_key_the_value_and_what_is_expected() {
        let error = Sample::read(&values("gain", Value::Number(1.5))).unwrap_err();
        assert_eq!(
            error.to_string(),
            "gain: 1.5 is not valid; expected a value from 0 to 1"
        );
        let error = Sample::read(&values("gian", Value::Number(0.5))).unwrap_err();
        assert_eq!(
            error.to_string(),
            "gian: unknown key; expected one of target, interval, gain, gentle, rtt, rate \
             (did you mean \"gain\"?)"
        );
        let error = Sample::read(&values("interval", Value::Integer(5))).unwrap_err();
        assert_eq!(
            error.to_string(),
            "interval: 5 is not valid; expected a time with its unit, such as \"15ms\" \
             (ns, us, ms, s, min, h)"
        );
        let error = Sample::read(&values("gain", Value::Number(f64::NAN))).unwrap_err();
        assert_eq!(error.expected, "a number");
        let error = Sample::read(&[]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "rate: missing; expected a rate with its unit, such as \"45Mbit/s\" \
             (bit/s, kbit/s, Mbit/s, Gbit/s, Tbit/s)"
        );
    }

    #[test]
    fn a_list_may_be_written_as_a_bare_value() {
        let rtt = |value| Sample::read(&values("rtt", value)).map(|s| s.rtt.len());
        assert_eq!(rtt(Value::Text("50ms".into())), Ok(1));
        let two = Value::List(vec![Value::Text("50ms".into()), Value::Text("60ms".into())]);
        assert_eq!(rtt(two), Ok(2));
        assert!(rtt(Value::List(vec![])).is_err());
        assert!(rtt(Value::Text("11s".into())).is_err());
    }

    #[test]
    fn only_similar_names_are_suggested() {
        assert_eq!(nearest("taget", &["target", "rate"]), Some("target"));
        assert_eq!(nearest("colour", &["target", "rate"]), None);
    }

    proptest::proptest! {
        #[test]
        fn the_edit_distance_is_that_of_strsim(a in "[ab_é]{0,7}", b in "[ab_é]{0,7}") {
            proptest::prop_assert_eq!(edit_distance(&a, &b), strsim::osa_distance(&a, &b));
        }
    }
}
