//! Scenario → network → engine → trace: packets in virtual time.

mod blocks;
mod calendar;
mod cc;
mod engine;
mod events;
mod line;
mod network;
mod packet;
mod port;
mod prefetch;
mod receiver;
mod rto;
mod sender;
mod traffic;

use std::sync::atomic::{AtomicBool, AtomicU64};

use forebay_core::Law;
use forebay_scenario::Scenario;
use forebay_trace::Trace;

/// A window into a running simulation, and a way to end it, from another thread.
#[derive(Debug, Default)]
pub struct Watch {
    /// How far virtual time has come, in ns.
    pub now_ns: AtomicU64,
    /// Set to end the run early.
    pub cancel: AtomicBool,
}

/// Runs one simulation: the same scenario, law and seed give the same trace, bit for bit.
/// `None` if it was cancelled.
pub fn run(scenario: &Scenario, law: Box<dyn Law>, seed: u64, watch: &Watch) -> Option<Trace> {
    engine::Engine::new(scenario, law, seed).run(watch)
}
