//! Packet-level simulation in virtual time: a scenario, a law and a seed give a trace.
//!
//! The simulator builds the network that a [`Scenario`] describes, puts a queue with the law under
//! test at its bottleneck, and moves packets through it event by event. TCP senders and receivers
//! follow ns-2 or the Linux kernel, as the scenario chooses. The same scenario, law and seed give
//! the same trace, bit for bit.
//!
//! # Central types
//!
//! - [`run`] simulates a scenario from start to end and returns its [`RunTrace`].
//! - A [`Session`] runs a scenario step by step. The caller may read samples between the steps, and
//!   may send packets of its own ([`Outgoing`]) and learn their [`PacketOutcome`]s.
//! - A [`Watch`] shows the progress of a run to another thread, which can cancel the run.
//!
//! # Example
//!
//! ```no_run
//! use forebay_scenario::{parse, Options};
//! use forebay_sim::{run, Watch};
//!
//! let text = std::fs::read("link.toml")?;
//! let experiment = parse(&text, "link.toml", &Options::default())?;
//! let point = &experiment.points[0];
//! let law = point.laws.first().ok_or("the scenario has no law")?;
//! let trace = run(&point.scenario, &law.aqm(), 1, &Watch::default())?;
//! let trace = trace.ok_or("the run was cancelled")?;
//! let bottleneck = trace.link(point.scenario.tested);
//! println!("{} packets forwarded", bottleneck.forwarded_packets);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Where to start reading
//!
//! `engine.rs` has the main loop and explains which events there are. `network.rs` lays out the
//! hosts, access links and routes of a scenario, `port.rs` is a queue with its link, and
//! `events.rs` and `calendar.rs` keep events in order of time. `tcp.rs` leads to the senders and
//! receivers, `traffic.rs` to the applications. The example `simulate` runs one scenario from the
//! command line.

#![warn(missing_docs)]

mod blocks;
pub mod calendar;
pub mod calls;
mod engine;
pub mod events;
mod external;
pub mod ids;
mod line;
mod network;
mod number;
pub mod packet;
mod pair;
pub mod port;
#[allow(unsafe_code, reason = "a hint to the processor")]
mod prefetch;
pub mod steps;
mod tcp;
pub mod traffic;
mod uplink;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;

use engine::{Dumbbell, Mesh, PacketEngine};
pub use external::{End, Loss, Outgoing, PacketOutcome, QueueAction, QueueEvent};
use forebay_aqm::Aqm;
use forebay_scenario::{Scenario, TrafficKind};
use forebay_trace::{RunTrace, Samples};
use forebay_units::{ParamError, Time};

/// The version of the simulator's results.
///
/// It is raised whenever the same scenario, law and seed give different numbers than before. Stored
/// runs of another version are not results of this one. The golden results in `golden.tsv`, in the
/// tests of `forebay-batch`, detect a change without a new version.
pub const RESULTS_VERSION: u32 = 13;

/// The name of the random stream from which the law at the bottleneck draws.
pub const LAW_STREAM: &str = "law";

/// The progress of a running simulation, and a switch that cancels it from another thread.
#[derive(Debug, Default)]
pub struct Watch {
    /// Virtual time that the run has reached, in ns.
    now: AtomicU64,
    /// True once the run is to end early.
    pub cancel: AtomicBool,
}

impl Watch {
    /// Returns the virtual time that the run has reached.
    pub fn now(&self) -> Time {
        Time::from_nanos(self.now.load(Ordering::Relaxed))
    }

    /// Sets the virtual time that the run has reached.
    pub fn set_now(&self, now: Time) {
        self.now.store(now.as_nanos(), Ordering::Relaxed);
    }
}

/// Runs one simulation with `aqm` at every queue under test; `None` if it was cancelled.
///
/// The same scenario, law and seed give the same trace, bit for bit.
///
/// # Errors
/// The law does not fit a queue.
pub fn run(
    scenario: &Scenario,
    aqm: &Aqm,
    seed: u64,
    watch: &Watch,
) -> Result<Option<RunTrace>, ParamError> {
    let queues = engine::queues(scenario, aqm, seed)?;
    let scenario = Arc::new(scenario.clone());
    Ok(match scenario.links.len() == 1 {
        true => PacketEngine::<Dumbbell>::new(scenario, queues, seed).run(watch),
        false => PacketEngine::<Mesh>::new(scenario, queues, seed).run(watch),
    })
}

/// Returns true if the scenario has traffic whose packets the caller sends.
fn is_external(scenario: &Scenario) -> bool {
    let mut kinds = scenario.traffic.iter().map(|traffic| &traffic.kind);
    kinds.any(|kind| matches!(kind, TrafficKind::External(_)))
}

/// A simulation that advances only when its caller says so, and whose state can be observed between
/// the steps.
///
/// At the end of the scenario its trace equals that of [`run`].
pub struct Session(Stepped);

/// The engine of a session, compiled for its kind of network.
enum Stepped {
    Dumbbell(Box<PacketEngine<Dumbbell>>),
    Mesh(Box<PacketEngine<Mesh>>),
}

impl Session {
    /// Creates a session at time zero, before its first packet.
    ///
    /// # Errors
    /// The law does not fit a queue, as in [`run`].
    pub fn new(scenario: &Arc<Scenario>, aqm: &Aqm, seed: u64) -> Result<Session, ParamError> {
        let queues = engine::queues(scenario, aqm, seed)?;
        let scenario = Arc::clone(scenario);
        // The caller may send a packet between any two events, so no part of the network may run
        // ahead of the clock; a dumbbell's links do.
        Ok(Session(
            match scenario.links.len() == 1 && !is_external(&scenario) {
                true => Stepped::Dumbbell(Box::new(PacketEngine::new(scenario, queues, seed))),
                false => Stepped::Mesh(Box::new(PacketEngine::new(scenario, queues, seed))),
            },
        ))
    }

    /// Runs until just after `until`, including a sample at that time, but not past the end of the
    /// scenario.
    pub fn run_until(&mut self, until: Time) {
        let watch = Watch::default();
        match &mut self.0 {
            Stepped::Dumbbell(engine) => engine.run_until(until, &watch),
            Stepped::Mesh(engine) => engine.run_until(until, &watch),
        };
    }

    /// Returns the number of flows whose packets the caller sends.
    pub fn external_flows(&self) -> u32 {
        match &self.0 {
            Stepped::Dumbbell(_) => 0,
            Stepped::Mesh(engine) => engine.external_flows(),
        }
    }

    /// Sends a packet of the caller at `now`, which is neither before the last outcome nor before
    /// the time that the session has reached.
    ///
    /// # Panics
    /// If the scenario has no such flow.
    pub fn send(&mut self, now: Time, packet: &Outgoing) {
        assert!(packet.flow < self.external_flows(), "no such flow");
        if let Stepped::Mesh(engine) = &mut self.0 {
            engine.send_external(now, packet);
        }
    }

    /// Runs to the next outcome of a packet of the caller and returns it; `None` if there is none
    /// up to and including `until`, or before the end of the scenario.
    pub fn next_outcome(&mut self, until: Time) -> Option<PacketOutcome> {
        match &mut self.0 {
            Stepped::Mesh(engine) => engine.next_outcome(until),
            Stepped::Dumbbell(_) => {
                self.run_until(until);
                None
            }
        }
    }

    /// Starts to log the actions of queues on packets of the caller.
    pub fn log_queues(&mut self) {
        if let Stepped::Mesh(engine) = &mut self.0 {
            engine.log_queues();
        }
    }

    /// Returns the entries logged since the last call, in order of time.
    pub fn take_queue_log(&mut self) -> Vec<QueueEvent> {
        match &mut self.0 {
            Stepped::Mesh(engine) => engine.take_queue_log(),
            Stepped::Dumbbell(_) => Vec::new(),
        }
    }

    /// Returns the samples taken so far at the link under test.
    pub fn samples(&self) -> &Samples {
        let first = match &self.0 {
            Stepped::Dumbbell(engine) => engine.tested(),
            Stepped::Mesh(engine) => engine.tested(),
        };
        first.samples()
    }

    /// Returns the in-order bytes that all receivers have delivered to their applications so far.
    pub fn delivered_bytes(&self) -> u64 {
        match &self.0 {
            Stepped::Dumbbell(engine) => engine.delivered_bytes(),
            Stepped::Mesh(engine) => engine.delivered_bytes(),
        }
    }

    /// Ends the session and returns its trace, which equals that of [`run`] at the end of the
    /// scenario.
    pub fn finish(self) -> RunTrace {
        match self.0 {
            Stepped::Dumbbell(engine) => engine.finish(),
            Stepped::Mesh(engine) => engine.finish(),
        }
    }
}
