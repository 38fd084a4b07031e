//! FTP: a file without end. The connection opens at the start of the flow and closes at its stop.

use forebay_units::Time;

use super::{Act, Action, Application};

/// Applications with endless data from start to stop.
pub struct Ftp;

impl Application for Ftp {
    fn first(&mut self, _flow: u32, start: Time, _stop: Option<Time>) -> Option<Act> {
        Some(Act {
            at: start,
            action: Action::Open,
        })
    }

    fn next(&mut self, _flow: u32, done: Act, stop: Option<Time>) -> Option<Act> {
        match done.action {
            Action::Open | Action::Fresh => stop.map(|at| Act {
                at: at.max(done.at),
                action: Action::Close,
            }),
            _ => None,
        }
    }
}
