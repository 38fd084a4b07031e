//! Linux's whole numbers of PIE: probabilities of 56 bits, and ticks of 64 ns.

use forebay_units::cast::whole_u64;
use forebay_units::{Span, Time};

/// Probabilities are whole numbers up to this, as in Linux.
pub const MAX_PROB: u64 = u64::MAX >> 8;
/// Times are of this many nanoseconds as powers of two, as in Linux.
pub const TICK_SHIFT: u32 = 6;
pub const TICKS_PER_S: u64 = 1_000_000_000 >> TICK_SHIFT;
/// By what power of two the gains fall at this probability (RFC 8033 section 4.2).
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

pub fn prob_of(p: f64) -> u64 {
    whole_u64(p * MAX_PROB as f64).min(MAX_PROB)
}

pub fn ticks(span: Span) -> u64 {
    span.as_nanos() >> TICK_SHIFT
}

pub fn clock(time: Time) -> u64 {
    time.as_nanos() >> TICK_SHIFT
}

/// Ranges of the probability in which the gains are the same.
pub const GAIN_RANGES: usize = 7;

/// The least and the greatest probability with the same gains as this one.
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
