//! Packets that the caller sends: nothing happens by itself.

use forebay_units::Time;

use super::{Act, Application};

pub struct ExternalSource;

impl Application for ExternalSource {
    fn first(&mut self, _flow: u32, _start: Time, _stop: Option<Time>) -> Option<Act> {
        None
    }

    fn next(&mut self, _flow: u32, _done: Act, _stop: Option<Time>) -> Option<Act> {
        None
    }
}
