//! Packets that the caller sends: nothing happens by itself.

use super::{Act, Application};

pub struct External;

impl Application for External {
    fn first(&mut self, _flow: u32, _start: u64, _stop: Option<u64>) -> Option<Act> {
        None
    }

    fn next(&mut self, _flow: u32, _done: Act, _stop: Option<u64>) -> Option<Act> {
        None
    }
}
