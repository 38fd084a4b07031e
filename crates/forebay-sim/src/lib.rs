//! Scenario → network → engine → trace: packets in virtual time.

mod blocks;
pub mod calendar;
mod cc;
mod engine;
pub mod events;
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

use engine::Engine;
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
///
/// # Panics
/// Where the law under test acts on several queues: [`run_network`] takes one for each.
pub fn run(scenario: &Scenario, law: Box<dyn Law>, seed: u64, watch: &Watch) -> Option<Trace> {
    run_network(scenario, vec![law], seed, watch)
}

/// Like [`run`], with one law for each of [`Scenario::tested`].
///
/// # Panics
/// Where there are more or fewer laws than that.
pub fn run_network(
    scenario: &Scenario,
    laws: Vec<Box<dyn Law>>,
    seed: u64,
    watch: &Watch,
) -> Option<Trace> {
    let tested = scenario.tested().len();
    assert_eq!(laws.len(), tested, "one law for each queue under test");
    match scenario.links.is_empty() {
        true => Engine::<true>::new(scenario, laws, seed).run(watch),
        false => Engine::<false>::new(scenario, laws, seed).run(watch),
    }
}
