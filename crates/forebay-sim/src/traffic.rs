//! What the applications do: when a flow's connection opens and closes, and when a constant
//! source sends. One kind a file.

mod cbr;
mod ftp;
mod mice;

pub use cbr::Cbr;

use forebay_core::Rng;
use forebay_scenario::{Instant, Traffic, TrafficKind};

/// What an application does to its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Offer endless data on the connection as it is.
    Open,
    /// Begin a new connection with endless data.
    Fresh,
    /// Offer nothing new.
    Close,
    /// Send one packet (a source without congestion control).
    Send,
}

/// An application's next act.
#[derive(Clone, Copy, Debug)]
pub struct Act {
    pub at: u64,
    pub action: Action,
}

/// The applications of one traffic's flows.
pub trait Application: Send {
    /// The first act of each flow that starts at `start` and stops at `stop` (ns).
    fn first(&mut self, start: u64, stop: Option<u64>) -> Option<Act>;

    /// What follows an act, if anything.
    fn next(&mut self, done: Act, stop: Option<u64>) -> Option<Act>;
}

/// The application of a traffic, with a random stream of its own.
pub fn application(traffic: &Traffic, rng: Rng) -> Box<dyn Application> {
    match &traffic.kind {
        TrafficKind::Ftp(_) => Box::new(ftp::Ftp),
        TrafficKind::Mice { on, off, .. } => Box::new(mice::Mice::new(*on, *off, rng)),
        TrafficKind::Cbr { rate, .. } => Box::new(Cbr::new(*rate, traffic.packet)),
    }
}

/// Draws a flow's time in ns.
pub fn draw(instant: Instant, rng: &mut Rng) -> u64 {
    match instant {
        Instant::At(time) => time.as_nanos(),
        Instant::Uniform(low, high) => {
            rng.uniform_in(low.as_nanos() as f64, high.as_nanos() as f64) as u64
        }
    }
}
