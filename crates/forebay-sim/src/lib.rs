//! Scenario → network → engine → trace: packets in virtual time.

mod blocks;
pub mod calendar;
mod calls;
mod engine;
pub mod events;
mod line;
mod network;
mod number;
pub mod packet;
pub mod port;
#[allow(unsafe_code, reason = "a hint to the processor")]
mod prefetch;
mod tcp;
mod traffic;

use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::Arc;

use engine::{Dumbbell, Engine, Mesh};
use forebay_core::{Aqm, ParamError, Time};
use forebay_scenario::Scenario;
use forebay_trace::{Samples, Trace};

/// Raised whenever the same scenario, law and seed give other numbers than before; runs that
/// were kept under another version are not results of this one. `golden.tsv`, in the tests of
/// `forebay-batch`, holds it to its word.
pub const RESULTS_VERSION: u32 = 7;

/// A window into a running simulation, and a way to end it, from another thread.
#[derive(Debug, Default)]
pub struct Watch {
    /// How far virtual time has come, in ns.
    pub now_ns: AtomicU64,
    /// Set to end the run early.
    pub cancel: AtomicBool,
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
) -> Result<Option<Trace>, ParamError> {
    let queues = engine::queues(scenario, aqm, seed)?;
    let scenario = Arc::new(scenario.clone());
    Ok(match scenario.links.is_empty() {
        true => Engine::<Dumbbell>::new(scenario, queues, seed).run(watch),
        false => Engine::<Mesh>::new(scenario, queues, seed).run(watch),
    })
}

/// A simulation that goes on only as far as it is told: what is observed on the way may change the
/// law. It comes to the same trace as [`run`].
pub struct Session(Stepped);

enum Stepped {
    Dumbbell(Box<Engine<Dumbbell>>),
    Mesh(Box<Engine<Mesh>>),
}

impl Session {
    /// Before its first packet.
    ///
    /// # Errors
    /// As [`run`].
    pub fn new(scenario: &Arc<Scenario>, aqm: &Aqm, seed: u64) -> Result<Session, ParamError> {
        let queues = engine::queues(scenario, aqm, seed)?;
        let scenario = Arc::clone(scenario);
        Ok(Session(match scenario.links.is_empty() {
            true => Stepped::Dumbbell(Box::new(Engine::new(scenario, queues, seed))),
            false => Stepped::Mesh(Box::new(Engine::new(scenario, queues, seed))),
        }))
    }

    /// Runs on until just after `until`, a sample at that time included; not past the end.
    pub fn run_until(&mut self, until: Time) {
        let watch = Watch::default();
        match &mut self.0 {
            Stepped::Dumbbell(engine) => engine.run_until(until.as_nanos(), &watch),
            Stepped::Mesh(engine) => engine.run_until(until.as_nanos(), &watch),
        };
    }

    /// What has been observed at the bottleneck so far.
    pub fn samples(&self) -> &Samples {
        let first = match &self.0 {
            Stepped::Dumbbell(engine) => engine.bottleneck(),
            Stepped::Mesh(engine) => engine.bottleneck(),
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

    /// The trace; only of a session at its end is it that of a run.
    pub fn finish(self) -> Trace {
        match self.0 {
            Stepped::Dumbbell(engine) => engine.finish(),
            Stepped::Mesh(engine) => engine.finish(),
        }
    }
}
