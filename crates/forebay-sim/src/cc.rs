//! Congestion control: how a sender answers ACKs and recovers from loss. One scheme a file.

mod cubic;
mod linux;
mod newreno;
mod reno;
mod sack;

pub use cubic::{Cubic, CubicState};
pub use linux::{Linux, LinuxState};
pub use newreno::NewReno;
pub use reno::Reno;
pub use sack::{Sack, Scoreboard};

use forebay_scenario::Recovery;

use crate::sender::{Ack, Sender, Step};

/// A scheme: it has no state of its own, a [`Sender`] holds it.
pub trait CongestionControl: Send + Sync {
    /// Takes an ACK (its ECN echo is dealt with already) and sends what it allows.
    fn on_ack(&self, sender: &mut Sender, ack: &Ack, step: &mut Step);

    /// An ACK echoes an ECN mark; [`Self::on_ack`] follows.
    fn on_ecn_echo(&self, sender: &mut Sender, ack: &Ack, step: &mut Step) {
        sender.reduce_for_mark(ack.next, step);
    }

    /// The sender's timer is due.
    fn on_timer(&self, sender: &mut Sender, step: &mut Step) {
        sender.on_timeout(step);
    }

    /// Drops what the scheme knows of losses; the sender does the rest.
    fn on_timeout(&self, _sender: &mut Sender) {}

    /// Sends what the window allows.
    fn send(&self, sender: &mut Sender, step: &mut Step) {
        sender.send_window(step, u32::MAX);
    }

    /// Lets the window grow in congestion avoidance, on an ACK of so many new packets:
    /// 1/cwnd per ACK (RFC 5681 section 3.1, as ns-2 counts).
    fn grow(&self, sender: &mut Sender, _acked: u32, _now: u64) {
        sender.cwnd += 1.0 / sender.cwnd;
    }

    /// The share of the window that is kept on a loss or a mark; called once for each.
    fn decrease(&self, _sender: &mut Sender) -> f64 {
        0.5
    }

    /// State that this scheme needs of its own in each sender.
    fn extra(&self) -> Option<Box<Extra>> {
        None
    }
}

/// State of the schemes that need more than a [`Sender`] holds.
#[derive(Clone, Debug, Default)]
pub struct Extra {
    pub board: Scoreboard,
    pub cubic: CubicState,
    pub linux: Option<Box<LinuxState>>,
}

/// The scheme a scenario names.
pub fn control(recovery: Recovery) -> &'static dyn CongestionControl {
    match recovery {
        Recovery::Reno => &Reno,
        Recovery::NewReno => &NewReno,
        Recovery::Sack => &Sack,
        Recovery::Cubic => &Cubic,
        Recovery::LinuxReno => &Linux::Reno,
        Recovery::LinuxCubic => &Linux::Cubic,
    }
}
