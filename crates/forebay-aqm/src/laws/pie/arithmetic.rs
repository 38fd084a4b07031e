//! The integer arithmetic of PIE in Linux: probabilities of 56 bits, and ticks of 64 ns.

use forebay_units::cast::whole_u64;
use forebay_units::{Span, Time};

/// The probability 1 as an integer (`MAX_PROB`).
pub const MAX_PROB: u64 = u64::MAX >> 8;
/// The binary logarithm of the nanoseconds in a tick (`PSCHED_SHIFT`).
pub const TICK_SHIFT: u32 = 6;
/// Ticks per second.
pub const TICKS_PER_S: u64 = 1_000_000_000 >> TICK_SHIFT;

/// Returns the number of bits by which the gains are shifted right at this probability (RFC 8033
/// section 4.2).
pub fn gain_shift(prob: u64) -> u32 {
    if prob >= MAX_PROB / 10 {
        return 0;
    }
    let (mut shift, mut power) = (1, 100);
    while power <= 1_000_000 && prob < MAX_PROB / power {
        shift += 2;
        power *= 10;
    }
    shift
}

/// Returns a probability as an integer.
pub fn prob_of(p: f64) -> u64 {
    whole_u64(p * MAX_PROB as f64).min(MAX_PROB)
}

/// Returns a duration in ticks.
pub fn ticks(span: Span) -> u64 {
    span.as_nanos() >> TICK_SHIFT
}

/// Returns a time in ticks.
pub fn clock(time: Time) -> u64 {
    time.as_nanos() >> TICK_SHIFT
}

/// The number of ranges of the probability within which the gains are constant.
pub const GAIN_RANGES: usize = 7;

/// Returns the lowest and the highest probability with the same gains as this one.
pub fn range_of(prob: u64) -> (u64, u64) {
    let shift = gain_shift(prob);
    let mut bounds = (1..=6).rev().map(|digits| MAX_PROB / 10u64.pow(digits));
    let above = bounds.clone().find(|bound| gain_shift(*bound) < shift);
    let below = bounds.rfind(|bound| *bound <= prob);
    (
        below.unwrap_or(0),
        above.map_or(u64::MAX, |bound| bound - 1),
    )
}
