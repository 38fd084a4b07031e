//! State of a run that watchers can see, and changes that they can make.

use std::sync::{Arc, Mutex};

use forebay_scenario::LawChoice;
use forebay_units::{Rate, Time};
use nix::sys::signal::Signal;

use crate::classes::ClassNow;
use crate::direction::DirectionCounts;
use forebay_packets::ip::Flow;

/// The present state of one direction.
#[derive(Clone, Debug, Default)]
pub struct DirectionNow {
    /// The kind of the law, such as "pi".
    pub law: String,
    /// The law's parameters that do not have their default, such as "target=20p".
    pub set: String,
    /// True if a watcher has changed the law or the rate.
    pub changed: bool,
    /// The rate of the link, in bit/s.
    pub rate_bps: f64,
    /// The law's set-point in packets; `None` where the law has none.
    pub target_pkts: Option<f64>,
    /// Packets in the queue.
    pub queue_pkts: u32,
    /// Bytes in the queue.
    pub queue_bytes: u64,
    /// The law's state variables, by name.
    pub probes: Vec<(&'static str, f64)>,
    /// The totals since the start of the run.
    pub counts: DirectionCounts,
    /// The 50th, 95th and 99th percentile of the queuing delay since the last picture, in s.
    pub delay_s: [f64; 3],
    /// The classes of the discipline; empty where it has none.
    pub classes: Vec<ClassNow>,
    /// The largest flows since the last picture, and their shares of the bytes.
    pub flows: Vec<(Flow, f64)>,
}

/// The state of a run at one time.
#[derive(Clone, Debug, Default)]
pub struct Picture {
    /// The time since the start of the run.
    pub time: Time,
    /// The directions, up first.
    pub ways: [DirectionNow; 2],
    /// The 99th percentile of the lateness of releases, in s.
    pub lateness_p99_s: f64,
    /// True if the run has ended.
    pub ended: bool,
}

/// A change that a watcher makes. Directions have the numbers 0 (up) and 1 (down).
#[derive(Clone)]
pub enum LiveChange {
    /// Changes the rate of a direction.
    Rate(usize, Rate),
    /// Changes the law of a direction.
    Law(usize, LawChoice),
    /// Ends the run. The command gets this signal and some time to end; a second request kills it.
    Stop(Signal),
}

/// A picture that the driver shares with the watchers. The driver never waits for the lock: a
/// watcher that holds it while the driver publishes misses one picture.
pub type Shared = Arc<Mutex<Picture>>;
