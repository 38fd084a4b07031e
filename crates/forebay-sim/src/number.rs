//! Conversions of integers that lose nothing for the numbers of a scenario, each with its reason.
//! This crate denies `as`, which would lose bits silently.

/// Converts a number of flows, senders or packets in flight to `u32`.
///
/// A scenario has at most 5e6 flows and 1e8 packets in flight (`limits.rs`).
///
/// # Panics
/// Past `u32::MAX`.
#[inline]
pub fn count(len: usize) -> u32 {
    u32::try_from(len).expect("a scenario holds its numbers below 2^32")
}

/// Converts a number of events within one round trip to `u32`.
///
/// # Panics
/// Past `u32::MAX`.
#[inline]
pub fn count_u64(events: u64) -> u32 {
    u32::try_from(events).expect("a round trip holds fewer than 2^32 events")
}

/// Converts the number of a link, a path or a kind of access link, or the size of a packet, to
/// `u16`. A scenario allows no such number above `u16::MAX`.
///
/// # Panics
/// Past `u16::MAX`.
pub fn small<T: TryInto<u16>>(number: T) -> u16 {
    let number = number.try_into().ok();
    number.expect("a scenario holds its numbers of links and bytes below 2^16")
}

#[inline(always)]
#[allow(
    clippy::cast_possible_truncation,
    reason = "the index of something in memory fits into a word"
)]
/// Converts an index to `usize`; a mask has bounded it by the length of a list in memory.
pub const fn index(masked: u64) -> usize {
    masked as usize
}

/// Returns `pkts`·`share`/`whole`, rounded down.
///
/// # Panics
/// If `share` is so far above `whole` that the result exceeds `u32::MAX`.
#[inline]
pub fn share_of(pkts: u32, share: u64, whole: u64) -> u32 {
    let part = u32::try_from(u64::from(pkts) * share / whole);
    part.expect("a share is no more than the whole")
}
