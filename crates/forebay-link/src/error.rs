//! Errors of a link.

use std::fmt;

use forebay_units::ParamError;
use nix::errno::Errno;

/// A reason for which a link cannot be made or cannot go on.
#[derive(Debug)]
pub enum Error {
    /// An option has a value that is not valid.
    Input(ParamError),
    /// A system call failed, or this machine does not allow a link. The text is one line; it says
    /// what to do where the user can do something.
    Machine(String),
}

impl Error {
    /// Returns the error of a step that failed, such as "writing a packet", for the reason
    /// `reason`.
    pub fn machine(step: impl fmt::Display, reason: impl fmt::Display) -> Error {
        Error::Machine(format!("{step}: {reason}"))
    }

    /// Returns the error of an option `key` whose value is not valid; `expected` describes the
    /// valid values.
    pub fn input(key: &str, value: impl ToString, expected: impl Into<String>) -> Error {
        Error::Input(ParamError::new(key, value, expected))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Error::Input(error) => write!(f, "{error}"),
            Error::Machine(line) => write!(f, "{line}"),
        }
    }
}

impl std::error::Error for Error {}

impl From<ParamError> for Error {
    fn from(error: ParamError) -> Error {
        Error::Input(error)
    }
}

/// Returns a function for `map_err` that makes the error of the step `step` from an errno.
pub fn doing(step: &str) -> impl Fn(Errno) -> Error + '_ {
    move |errno| Error::machine(step, errno.desc())
}
