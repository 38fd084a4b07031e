//! Errors before traffic flows.

use std::fmt;

use forebay_units::ParamError;
use nix::errno::Errno;

#[derive(Debug)]
pub enum Error {
    /// An option is wrong: key, found, allowed.
    Input(ParamError),
    /// This machine does not allow it: one line, with what to do.
    Machine(String),
}

impl Error {
    /// `what` could not be done.
    pub fn machine(what: impl fmt::Display, why: impl fmt::Display) -> Error {
        Error::Machine(format!("{what}: {why}"))
    }

    pub fn input(key: &str, found: impl ToString, allowed: impl Into<String>) -> Error {
        Error::Input(ParamError::new(key, found, allowed))
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

/// An error of the step `what`, for `map_err`.
pub fn doing(what: &str) -> impl Fn(Errno) -> Error + '_ {
    move |errno| Error::machine(what, errno.desc())
}
