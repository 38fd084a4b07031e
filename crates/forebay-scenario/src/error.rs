//! Faults of a scenario, in one line each.

use std::fmt;

use forebay_units::ParamError;

/// Longest excerpt of the input that an error repeats, in characters.
const EXCERPT: usize = 160;

/// The place where a key or value was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Somewhere in the file, or missing from it.
    File,
    /// This line of the file, counted from 1.
    Line(usize),
    /// An option of the command line.
    Option(&'static str),
}

/// A fault, before the name of the file is known.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    /// The place of the fault.
    pub origin: Origin,
    /// The key, the value, and what is expected.
    pub error: ParamError,
}

impl Fault {
    /// Returns the fault of a key whose value is not valid.
    pub fn new(
        origin: Origin,
        key: impl Into<String>,
        value: impl ToString,
        expected: impl Into<String>,
    ) -> Fault {
        Fault {
            origin,
            error: ParamError::new(key, value, expected),
        }
    }

    /// Returns the fault of a key that is missing.
    pub fn missing(origin: Origin, key: impl Into<String>, expected: impl Into<String>) -> Fault {
        Fault {
            origin,
            error: ParamError::missing(key, expected),
        }
    }

    /// Returns a fault of a key that concerns no single value.
    pub fn stated(
        origin: Origin,
        key: impl Into<String>,
        reason: impl Into<String>,
        expected: impl Into<String>,
    ) -> Fault {
        Fault {
            origin,
            error: ParamError::stated(key, reason, expected),
        }
    }

    /// Replaces the fault, which is that the value is not valid, by another phrase.
    pub fn because(self, reason: impl Into<String>) -> Fault {
        Fault {
            error: self.error.because(reason),
            ..self
        }
    }

    /// Returns the error of a user: the fault, with the name of the file.
    pub fn in_file(self, file: &str) -> ScenarioError {
        ScenarioError {
            file: file.to_owned(),
            fault: Box::new(self),
        }
    }
}

/// A fault of a scenario. Prints as one line:
/// `FILE:LINE: KEY: VALUE is not valid; expected Y`, with `--set`, `--law` or `--seeds` in place of
/// `FILE:LINE` where the fault came from the command line.
#[derive(Clone, Debug, PartialEq)]
pub struct ScenarioError {
    file: String,
    /// In a box, so that a result with this error is small.
    fault: Box<Fault>,
}

impl ScenarioError {
    /// Returns the name of the scenario's file.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// Returns the key at fault, as a dotted path such as `traffic.0.flows`.
    pub fn key(&self) -> &str {
        &self.fault.error.key
    }

    /// Returns what is expected of the value.
    pub fn expected(&self) -> &str {
        &self.fault.error.expected
    }

    /// Returns the line at fault, counted from 1, where it is known.
    pub fn line(&self) -> Option<usize> {
        match self.fault.origin {
            Origin::Line(line) => Some(line),
            _ => None,
        }
    }
}

impl fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let file = one_line(&self.file, usize::MAX);
        let error = &self.fault.error;
        let key = match error.key.as_str() {
            "" => "\"\"",
            key => key,
        };
        let mut line = ParamError {
            key: one_line(key, EXCERPT),
            value: one_line(&error.value, EXCERPT),
            reason: one_line(&error.reason, usize::MAX),
            expected: one_line(&error.expected, usize::MAX),
        };
        match self.fault.origin {
            Origin::File => write!(f, "{file}: ")?,
            Origin::Line(number) => write!(f, "{file}:{number}: ")?,
            // An option that has the name of its key is not followed by the key.
            Origin::Option(option) if option.strip_prefix("--") == Some(&line.key) => {
                line.key = option.to_owned();
            }
            Origin::Option(option) => write!(f, "{option}: ")?,
        }
        line.fmt(f)
    }
}

impl std::error::Error for ScenarioError {}

/// `text` without line breaks or other control characters, cut after `most` characters.
fn one_line(text: &str, most: usize) -> String {
    let mut line = String::new();
    for (i, c) in text.chars().enumerate() {
        if i == most {
            line.push('…');
            break;
        }
        // U+2028 and U+2029 break lines too.
        if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') {
            line.extend(c.escape_unicode());
        } else {
            line.push(c);
        }
    }
    line
}
