//! A release: packets, and the time at which they are due.

use forebay_units::Time;

/// Segments of one slot that leave the emulator together.
#[derive(Clone, Copy, Debug)]
pub struct Due {
    pub at: Time,
    pub slot: u32,
    pub first: u16,
    pub segments: u16,
    pub marked: bool,
    /// Bits that the link sent from the release before this one until this one.
    pub link_bits: u64,
    /// The link was idle before: the time since the release before says nothing about its rate.
    pub after_idle: bool,
}
