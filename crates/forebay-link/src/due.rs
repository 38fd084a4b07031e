//! Packets that are due for release at the end of the link.

use forebay_units::Time;

/// A release: segments of one slot that leave the emulator together.
#[derive(Clone, Copy, Debug)]
pub struct Due {
    /// The time at which the segments are due.
    pub at: Time,
    /// The slot of the pool that holds the packet.
    pub slot: u32,
    /// The index of the first segment.
    pub first: u16,
    /// The number of segments.
    pub segments: u16,
    /// True if the queue marked the segments with CE.
    pub marked: bool,
    /// Bits that the link sent between the end of the previous release and the end of this one.
    pub link_bits: u64,
    /// True if the link was idle before, so the time since the release before says nothing
    /// about its rate.
    pub after_idle: bool,
}
