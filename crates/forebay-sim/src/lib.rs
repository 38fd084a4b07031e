//! Scenario → network → engine → trace: packets in virtual time.

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
pub mod port;
#[allow(unsafe_code, reason = "a hint to the processor")]
mod prefetch;
pub mod steps;
mod tcp;
pub mod traffic;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;

use engine::{Dumbbell, Mesh, PacketEngine};
pub use external::{End, Loss, Outgoing, PacketOutcome, QueueAction, QueueEvent};
use forebay_aqm::Aqm;
use forebay_scenario::{Scenario, TrafficKind};
use forebay_trace::{RunTrace, Samples};
use forebay_units::{ParamError, Time};

/// Raised whenever the same scenario, law and seed give other numbers than before; runs that
/// were kept under another version are not results of this one. `golden.tsv`, in the tests of
/// `forebay-batch`, holds it to its word.
pub const RESULTS_VERSION: u32 = 13;

/// Name of the random stream of the law at the bottleneck.
pub const LAW_STREAM: &str = "law";

/// A window into a running simulation, and a way to end it, from another thread.
#[derive(Debug, Default)]
pub struct Watch {
    /// How far virtual time has come, in ns.
    now: AtomicU64,
    /// Set to end the run early.
    pub cancel: AtomicBool,
}

impl Watch {
    /// How far virtual time has come.
    pub fn now(&self) -> Time {
        Time::from_nanos(self.now.load(Ordering::Relaxed))
    }

    /// Shows how far virtual time has come.
    pub fn set_now(&self, now: Time) {
        self.now.store(now.as_nanos(), Ordering::Relaxed);
    }
}

/// Runs one simulation with `aqm` at every queue under test: the same scenario, law and seed give
/// the same trace, bit for bit. `None` if it was cancelled.
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

/// Whether a caller must send packets of it.
fn is_external(scenario: &Scenario) -> bool {
    let mut kinds = scenario.traffic.iter().map(|traffic| &traffic.kind);
    kinds.any(|kind| matches!(kind, TrafficKind::External(_)))
}

/// A simulation that goes on only as far as it is told: what is observed on the way may change the
/// law. It comes to the same trace as [`run`].
pub struct Session(Stepped);

enum Stepped {
    Dumbbell(Box<PacketEngine<Dumbbell>>),
    Mesh(Box<PacketEngine<Mesh>>),
}

impl Session {
    /// Before its first packet.
    ///
    /// # Errors
    /// As [`run`].
    pub fn new(scenario: &Arc<Scenario>, aqm: &Aqm, seed: u64) -> Result<Session, ParamError> {
        let queues = engine::queues(scenario, aqm, seed)?;
        let scenario = Arc::clone(scenario);
        // What the caller sends can fall between any two events, so that none may be ahead.
        Ok(Session(
            match scenario.links.len() == 1 && !is_external(&scenario) {
                true => Stepped::Dumbbell(Box::new(PacketEngine::new(scenario, queues, seed))),
                false => Stepped::Mesh(Box::new(PacketEngine::new(scenario, queues, seed))),
            },
        ))
    }

    /// Runs on until just after `until`, a sample at that time included; not past the end.
    pub fn run_until(&mut self, until: Time) {
        let watch = Watch::default();
        match &mut self.0 {
            Stepped::Dumbbell(engine) => engine.run_until(until, &watch),
            Stepped::Mesh(engine) => engine.run_until(until, &watch),
        };
    }

    /// How many flows the scenario has whose packets the caller sends.
    pub fn external_flows(&self) -> u32 {
        match &self.0 {
            Stepped::Dumbbell(_) => 0,
            Stepped::Mesh(engine) => engine.external_flows(),
        }
    }

    /// Sends a packet of the caller, at a time that is not before the last outcome, nor before where
    /// the session has been told to go.
    ///
    /// # Panics
    /// Where the scenario has no such flow.
    pub fn send(&mut self, now: Time, packet: &Outgoing) {
        assert!(packet.flow < self.external_flows(), "no such flow");
        if let Stepped::Mesh(engine) = &mut self.0 {
            engine.send_external(now, packet);
        }
    }

    /// Runs on to the next outcome of a packet of the caller; `None` where there is none up to and at
    /// `until`, or the end.
    pub fn next_outcome(&mut self, until: Time) -> Option<PacketOutcome> {
        match &mut self.0 {
            Stepped::Mesh(engine) => engine.next_outcome(until),
            Stepped::Dumbbell(_) => {
                self.run_until(until);
                None
            }
        }
    }

    /// Keeps a log of what happens to packets of the caller at queues from now on.
    pub fn log_queues(&mut self) {
        if let Stepped::Mesh(engine) = &mut self.0 {
            engine.log_queues();
        }
    }

    /// Takes what has been logged since the last call, in order of time.
    pub fn take_queue_log(&mut self) -> Vec<QueueEvent> {
        match &mut self.0 {
            Stepped::Mesh(engine) => engine.take_queue_log(),
            Stepped::Dumbbell(_) => Vec::new(),
        }
    }

    /// Returns what has been observed so far at the link under test.
    pub fn samples(&self) -> &Samples {
        let first = match &self.0 {
            Stepped::Dumbbell(engine) => engine.tested(),
            Stepped::Mesh(engine) => engine.tested(),
        };
        first.samples()
    }

    /// In-order bytes that all receivers have handed to their applications.
    pub fn delivered_bytes(&self) -> u64 {
        match &self.0 {
            Stepped::Dumbbell(engine) => engine.delivered_bytes(),
            Stepped::Mesh(engine) => engine.delivered_bytes(),
        }
    }

    /// Returns the trace; at the end of the scenario it is that of [`run`].
    pub fn finish(self) -> RunTrace {
        match self.0 {
            Stepped::Dumbbell(engine) => engine.finish(),
            Stepped::Mesh(engine) => engine.finish(),
        }
    }
}
