//! Packets that the caller sends: nothing happens by itself.

use forebay_core::Time;

use super::{Act, Application};

pub struct External;

impl Application for External {
    fn first(&mut self, _flow: u32, _start: Time, _stop: Option<Time>) -> Option<Act> {
        None
    }

    fn next(&mut self, _flow: u32, _done: Act, _stop: Option<Time>) -> Option<Act> {
        None
    }
}
