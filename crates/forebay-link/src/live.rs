//! What watchers may see and change while a run goes on.

use std::sync::{Arc, Mutex};

use forebay_scenario::LawChoice;
use forebay_units::{Rate, Time};
use nix::sys::signal::Signal;

use crate::classes::ClassNow;
use crate::direction::DirectionCounts;
use forebay_packets::ip::Flow;

/// One direction, as it is now.
#[derive(Clone, Debug, Default)]
pub struct Now {
    pub law: String,
    /// Its parameters that are not the default, such as "target=20p".
    pub set: String,
    /// Whether a watcher has changed the law or the rate.
    pub changed: bool,
    pub rate_bps: f64,
    pub target_pkts: Option<f64>,
    pub queue_pkts: u32,
    pub queue_bytes: u64,
    /// The law's inner values.
    pub probes: Vec<(&'static str, f64)>,
    pub counts: DirectionCounts,
    /// Of the queuing delay since the last picture, in s: 50th, 95th and 99th percentile.
    pub delay_s: [f64; 3],
    /// Empty where the discipline tells none apart.
    pub classes: Vec<ClassNow>,
    /// The largest flows since the last picture, and their share of the bytes.
    pub flows: Vec<(Flow, f64)>,
}

/// A picture of a run.
#[derive(Clone, Debug, Default)]
pub struct Picture {
    pub time: Time,
    /// Up, then down.
    pub ways: [Now; 2],
    pub lateness_p99_s: f64,
    pub ended: bool,
}

/// A change to one direction: 0 is up, 1 is down.
#[derive(Clone)]
pub enum LiveChange {
    Rate(usize, Rate),
    Law(usize, LawChoice),
    /// End the run: the command gets this signal and a moment to end; on a second request it is killed.
    Stop(Signal),
}

/// Shared with the watchers. The driver never waits for it: a watcher that holds it at the
/// wrong moment misses one picture.
pub type Shared = Arc<Mutex<Picture>>;
