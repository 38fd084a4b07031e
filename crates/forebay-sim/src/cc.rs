//! Congestion control: how a sender answers ACKs and recovers from loss. One scheme a file.

mod newreno;
mod reno;
mod sack;

pub use newreno::NewReno;
pub use reno::Reno;
pub use sack::{Sack, Scoreboard};

use forebay_scenario::Recovery;

use crate::sender::{Ack, Sender, Step};

/// A scheme: it has no state of its own, a [`Sender`] holds it.
pub trait CongestionControl: Send + Sync {
    /// Takes an ACK (its ECN echo is dealt with already) and sends what it allows.
    fn on_ack(&self, sender: &mut Sender, ack: &Ack, step: &mut Step);

    /// Drops what the scheme knows of losses; the sender does the rest.
    fn on_timeout(&self, _sender: &mut Sender) {}

    /// Sends what the window allows.
    fn send(&self, sender: &mut Sender, step: &mut Step) {
        sender.send_window(step, u32::MAX);
    }

    /// State that this scheme needs of its own in each sender.
    fn scoreboard(&self) -> Option<Box<Scoreboard>> {
        None
    }
}

/// The scheme a scenario names.
pub fn control(recovery: Recovery) -> &'static dyn CongestionControl {
    match recovery {
        Recovery::Reno => &Reno,
        Recovery::NewReno => &NewReno,
        Recovery::Sack => &Sack,
    }
}
