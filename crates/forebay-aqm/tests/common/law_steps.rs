//! What can happen to a law, in any order.

use proptest::prelude::*;

/// One thing that can happen to a law.
#[derive(Clone, Debug)]
pub enum Step {
    Enqueue { bytes: u32, ect: bool },
    Dequeue { bytes: u32, tcp: bool },
    Overflow,
    Idle,
    Tick,
}

/// Nanoseconds since the last step, a queue length, and a step, with long silences among them.
/// Packets have fewer than `end_bytes`, silences are shorter than `end_s` seconds.
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
