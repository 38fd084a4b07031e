//! External traffic: the caller sends all packets, so the application does nothing.

use forebay_units::Time;

use super::{Act, Application};

/// An application that never acts.
pub struct ExternalSource;

impl Application for ExternalSource {
    fn first(&mut self, _flow: u32, _start: Time, _stop: Option<Time>) -> Option<Act> {
        None
    }

    fn next(&mut self, _flow: u32, _done: Act, _stop: Option<Time>) -> Option<Act> {
        None
    }
}
