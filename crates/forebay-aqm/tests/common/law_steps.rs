//! Random sequences of calls of a law's hooks.

use proptest::prelude::*;

/// A call of one of a law's hooks.
#[derive(Clone, Debug)]
pub enum Step {
    Enqueue { bytes: u32, ect: bool },
    Dequeue { bytes: u32, tcp: bool },
    Overflow,
    Idle,
    Tick,
}

/// Generates steps, each with the nanoseconds since the last step and a queue length. Some gaps are
/// long, up to `end_s` seconds. Packets have fewer than `end_bytes` bytes.
pub fn steps(end_bytes: u32, end_s: u64) -> impl Strategy<Value = Vec<(u64, u32, Step)>> {
    let packet = move || (1..end_bytes, any::<bool>());
    let step = prop_oneof![
        6 => packet().prop_map(|(bytes, ect)| Step::Enqueue { bytes, ect }),
        3 => packet().prop_map(|(bytes, tcp)| Step::Dequeue { bytes, tcp }),
        1 => Just(Step::Overflow),
        1 => Just(Step::Idle),
        2 => Just(Step::Tick),
    ];
    let gap = prop_oneof![8 => 0u64..10_000_000, 1 => 0u64..end_s * 1_000_000_000];
    proptest::collection::vec((gap, 0u32..500, step), 1..300)
}
