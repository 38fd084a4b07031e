//! Ranges of a sweep: `"1..100Mbit/s log 7"`.

use forebay_units::cast::whole_i64;
use forebay_units::{number_and_unit, unit, Value};

/// Significant digits of a step between the ends.
pub const OF_STEPS: usize = 4;
/// Significant digits of a sample between the ends.
pub const OF_SAMPLES: usize = 6;
/// Most steps of a range.
const MOST_STEPS: usize = 10_000;
/// Units whose values are whole where both ends are.
const WHOLE: [&str; 3] = ["", "p", "B"];
/// The values that a line of a sweep may have for a key, in words.
pub const SHAPE: &str = "a list, or a range such as \"1..100Mbit/s log 7\" or \"20..300ms lin 4\"";

/// Values between two ends, with even steps or even factors.
#[derive(Clone, Debug, PartialEq)]
pub struct Range {
    /// The low end.
    pub low: f64,
    /// The high end.
    pub high: f64,
    /// The unit as it is written; empty for plain numbers.
    pub unit: String,
    log: bool,
    /// Number of steps; a range without is sampled.
    steps: Option<usize>,
    whole: bool,
}

/// The fault of a text that is not a range, and a description of a correct one.
type Refused = (&'static str, String);

impl Range {
    /// Reads a low end with or without a unit, "..", a high end, "lin" or "log" if wanted, and
    /// the number of steps if it is not sampled.
    ///
    /// # Errors
    /// If the text is not a range. The error states the fault and describes a range.
    pub fn read(text: &str) -> Result<Range, Refused> {
        let invalid = |expected: &str| ("is not valid", expected.to_owned());
        let no_range = || invalid(SHAPE);
        let (low, rest) = text.split_once("..").ok_or_else(no_range)?;
        let (rest, steps) = match rest.trim().rsplit_once(char::is_whitespace) {
            Some((before, last))
                if !last.is_empty() && last.bytes().all(|b| b.is_ascii_digit()) =>
            {
                (before, Some(last))
            }
            _ => (rest, None),
        };
        let (high, log) = match rest.trim().rsplit_once(char::is_whitespace) {
            Some((before, "log")) => (before, true),
            Some((before, "lin")) => (before, false),
            _ => (rest, false),
        };
        let (mut from, unit_of_low) = number_and_unit(low).ok_or_else(no_range)?;
        let (to, unit_of_high) = number_and_unit(high).ok_or_else(no_range)?;
        let is_known = |name: &str| matches!(name, "" | "%") || unit(name).is_some();
        if !is_known(unit_of_low) || !is_known(unit_of_high) {
            return Err(no_range());
        }
        if !unit_of_low.is_empty() && unit_of_low != unit_of_high {
            from = match (unit(unit_of_low), unit(unit_of_high)) {
                (Some((base, size)), Some((same, other))) if base == same => {
                    to_figures(from * size / other, 12)
                }
                _ => return Err(invalid("two ends whose units are of one kind")),
            };
        }
        if from >= to {
            return Err(("is empty", "a range whose lower end is first".to_owned()));
        }
        if log && from <= 0.0 {
            return Err(invalid("a lower end above zero with log"));
        }
        let steps = match steps {
            Some(digits) => match digits.parse() {
                Ok(steps) if (2..=MOST_STEPS).contains(&steps) => Some(steps),
                _ => {
                    return Err(invalid(&format!(
                        "a number of steps from 2 to {MOST_STEPS}"
                    )))
                }
            },
            None => None,
        };
        let fraction = |end: &str, unit: &str| {
            let number = end.trim().strip_suffix(unit).unwrap_or(end);
            number.contains(['.', 'e', 'E'])
        };
        Ok(Range {
            low: from,
            high: to,
            unit: unit_of_high.to_owned(),
            log,
            steps,
            whole: WHOLE.contains(&unit_of_high)
                && !fraction(low, unit_of_low)
                && !fraction(high, unit_of_high),
        })
    }

    /// Returns true if the values are sampled, and false if they are enumerated.
    pub fn is_sampled(&self) -> bool {
        self.steps.is_none()
    }

    /// Returns the values of the range, each once; none if the range is sampled.
    pub fn values(&self) -> Vec<Value> {
        let steps = self.steps.unwrap_or(0);
        let mut values: Vec<Value> = Vec::with_capacity(steps);
        for step in 0..steps {
            let value = self.at(step as f64 / (steps - 1) as f64, OF_STEPS);
            // Whole numbers may be nearer to each other than the steps.
            if values.last() != Some(&value) {
                values.push(value);
            }
        }
        values
    }

    /// Returns the value at a share of the way, from 0 to 1; the ends stay as they were written.
    pub fn at(&self, share: f64, figures: usize) -> Value {
        let inside = share > 0.0 && share < 1.0;
        let value = match (inside, self.log) {
            (false, _) if share <= 0.0 => self.low,
            (false, _) => self.high,
            (true, true) => self.low * (self.high / self.low).powf(share),
            (true, false) => self.low + (self.high - self.low) * share,
        };
        let number = match (self.whole, inside) {
            (true, _) => value.round_ties_even(),
            (false, true) => to_figures(value, figures),
            (false, false) => value,
        };
        match (self.unit.as_str(), self.whole) {
            ("", true) => Value::Integer(whole_i64(number)),
            ("", false) => Value::Number(number),
            (unit, _) => Value::Text(format!("{}{unit}", general(number, 12))),
        }
    }
}

/// Returns the nearest number with so many significant figures.
fn to_figures(value: f64, figures: usize) -> f64 {
    let written = format!("{value:.*e}", figures - 1);
    written.parse().unwrap_or(value)
}

/// Returns a number as C's `%.{figures}g` writes it.
fn general(value: f64, figures: usize) -> String {
    let scientific = format!("{value:.*e}", figures - 1);
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let short = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    let past_point = i32::try_from(figures).unwrap_or(i32::MAX) - 1 - exponent;
    if let (-4.., Ok(decimals)) = (exponent, usize::try_from(past_point)) {
        return short(&format!("{value:.decimals$}"));
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", short(digits), exponent.abs())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    fn values(text: &str) -> Vec<String> {
        let values = Range::read(text).unwrap().values();
        values.iter().map(Value::to_string).collect()
    }

    #[test]
    fn a_range_is_the_list_that_it_stands_for() {
        for (text, wanted) in [
            ("1..1000 log 4", "1, 10, 100, 1000"),
            ("1..3 lin 9", "1, 2, 3"),
            ("1..3 9", "1, 2, 3"),
            ("1.0..2 lin 3", "1, 1.5, 2"),
            ("20..80ms lin 4", "\"20ms\", \"40ms\", \"60ms\", \"80ms\""),
            ("1.. 3 3", "1, 2, 3"),
            (" 20 .. 80 ms  lin  2 ", "\"20ms\", \"80ms\""),
            (
                "500kbit/s..50Mbit/s log 3",
                "\"0.5Mbit/s\", \"5Mbit/s\", \"50Mbit/s\"",
            ),
            ("0.001..0.1 log 3", "0.001, 0.01, 0.1"),
            ("1e-3..1e-1 log 3", "0.001, 0.01, 0.1"),
            ("0..1 lin 3", "0, 1"),
            ("3..30p lin 3", "\"3p\", \"16p\", \"30p\""),
            ("1..2h lin 2", "\"1h\", \"2h\""),
            ("1..2µs lin 2", "\"1µs\", \"2µs\""),
        ] {
            assert_eq!(values(text).join(", "), wanted, "{text}");
        }
    }

    #[test]
    fn a_text_that_is_no_range_is_refused() {
        let (invalid, empty) = ("is not valid", "is empty");
        let kinds = "two ends whose units are of one kind";
        let order = "a range whose lower end is first";
        let steps = "a number of steps from 2 to 10000";
        for (text, reason, expected) in [
            ("fast", invalid, SHAPE),
            ("1..", invalid, SHAPE),
            ("..2ms", invalid, SHAPE),
            ("1..2 exp 3", invalid, SHAPE),
            ("1..2ms log 3 4", invalid, SHAPE),
            ("1ms..9Mbit/s log 3", invalid, kinds),
            ("1x..9y log 3", invalid, SHAPE),
            ("1..9furlongs log 3", invalid, SHAPE),
            ("1..9ms 3 log", invalid, SHAPE),
            ("9..1s log 3", empty, order),
            ("1..1s log 3", empty, order),
            ("0..9s log 3", invalid, "a lower end above zero with log"),
            ("1..9s log 1", invalid, steps),
            ("1..9s log 99999999999999999999", invalid, steps),
        ] {
            let refused = Range::read(text).unwrap_err();
            assert_eq!(refused, (reason, expected.to_owned()), "{text}");
        }
    }

    #[test]
    fn numbers_are_written_as_c_writes_them() {
        // Of `printf "%.4g"`.
        for (value, wanted) in [
            (0.0, "0"),
            (1.0, "1"),
            (0.5, "0.5"),
            (1234.5, "1234"),
            (1235.5, "1236"),
            (12345.0, "1.234e+04"),
            (99999.0, "1e+05"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (0.000123456, "0.0001235"),
            (2.5e-7, "2.5e-07"),
            (100.0, "100"),
        ] {
            assert_eq!(general(value, 4), wanted, "{value}");
        }
    }

    #[test]
    fn a_sampled_range_has_its_ends_and_six_figures() {
        let range = Range::read("1..100Mbit/s log").unwrap();
        assert!(range.is_sampled() && range.values().is_empty());
        let at = |share| range.at(share, OF_SAMPLES).to_string();
        assert_eq!(
            [at(0.0), at(0.5), at(1.0)],
            ["\"1Mbit/s\"", "\"10Mbit/s\"", "\"100Mbit/s\""]
        );
        assert_eq!(at(1.0 / 3.0), "\"4.64159Mbit/s\"");
    }
}
