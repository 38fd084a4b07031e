//! Scenario → network → engine → trace: packets in virtual time.

// Unit tests cast small numbers that they choose.
#![cfg_attr(
    not(test),
    deny(
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss
    )
)]

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

use engine::Engine;
use forebay_core::{Aqm, ParamError};
use forebay_scenario::Scenario;
use forebay_trace::Trace;

/// Raised whenever the same scenario, law and seed give other numbers than before; runs that
/// were kept under another version are not results of this one. `golden.tsv`, in the tests of
/// `forebay-batch`, holds it to its word.
pub const RESULTS_VERSION: u32 = 3;

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
    Ok(match scenario.links.is_empty() {
        true => Engine::<true>::new(scenario, queues, seed).run(watch),
        false => Engine::<false>::new(scenario, queues, seed).run(watch),
    })
}
