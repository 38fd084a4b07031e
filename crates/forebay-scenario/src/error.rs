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
    /// Returns a fault of `key`: the value `found`, and what is `allowed`.
    pub fn new(
        origin: Origin,
        key: impl Into<String>,
        found: impl ToString,
        allowed: impl Into<String>,
    ) -> Fault {
        Fault {
            origin,
            error: ParamError::new(key, found, allowed),
        }
    }

    /// Returns the error of a user: the fault, with the name of the file.
    pub fn in_file(self, file: &str) -> ScenarioError {
        ScenarioError {
            file: file.to_owned(),
            fault: self,
        }
    }
}

/// A fault of a scenario. Prints as one line:
/// `FILE:LINE: KEY: found X, allowed: Y`, with `--set`, `--law` or `--seeds` in place of
/// `FILE:LINE` where the fault came from the command line.
#[derive(Clone, Debug, PartialEq)]
pub struct ScenarioError {
    file: String,
    fault: Fault,
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
    pub fn allowed(&self) -> &str {
        &self.fault.error.allowed
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
        let ParamError {
            key,
            found,
            allowed,
        } = &self.fault.error;
        let key = if key.is_empty() { "\"\"" } else { key };
        let (key, found) = (one_line(key, EXCERPT), one_line(found, EXCERPT));
        let allowed = one_line(allowed, usize::MAX);
        match self.fault.origin {
            Origin::File => write!(f, "{file}: {key}")?,
            Origin::Line(line) => write!(f, "{file}:{line}: {key}")?,
            // An option that is named after its key names it well enough.
            Origin::Option(option) if option.strip_prefix("--") == Some(&key) => {
                write!(f, "{option}")?;
            }
            Origin::Option(option) => write!(f, "{option}: {key}")?,
        }
        write!(f, ": found {found}, allowed: {allowed}")
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
