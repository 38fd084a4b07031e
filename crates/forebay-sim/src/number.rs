//! Conversions that cannot lose anything here, each with its reason. `as` says nothing of it, and
//! this crate denies it.

/// The number of the next of things that are counted in `u32`: flows, senders and packets in
/// flight. A scenario has at most 5e6 flows and 1e8 packets in flight (`limits.rs`).
///
/// # Panics
/// Past `u32::MAX`.
#[inline]
pub fn count(len: usize) -> u32 {
    u32::try_from(len).expect("a scenario holds its numbers below 2^32")
}

/// As [`count`], of events between two that are a round trip apart.
///
/// # Panics
/// Past `u32::MAX`.
#[inline]
pub fn count_u64(events: u64) -> u32 {
    u32::try_from(events).expect("a round trip holds fewer than 2^32 events")
}

/// The number of a link, a path or a kind of access link, or the size of a packet: a scenario
/// allows none above `u16::MAX`.
///
/// # Panics
/// Past `u16::MAX`.
pub fn small<T: TryInto<u16>>(number: T) -> u16 {
    let number = number.try_into().ok();
    number.expect("a scenario holds its numbers of links and bytes below 2^16")
}

/// An index that a mask has bounded by the length of a list in memory.
#[inline(always)]
#[allow(
    clippy::cast_possible_truncation,
    reason = "the index of something in memory fits into a word"
)]
pub const fn index(masked: u64) -> usize {
    masked as usize
}

/// A share of a number of packets, rounded down; the share is no more than the whole.
///
/// # Panics
/// Where it is.
#[inline]
pub fn share_of(pkts: u32, share: u64, whole: u64) -> u32 {
    let part = u32::try_from(u64::from(pkts) * share / whole);
    part.expect("a share is no more than the whole")
}
