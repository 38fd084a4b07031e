//! Numbers of flows, pairs of hosts, and stations, each with its own type.

use crate::number::count;

/// The number of a flow in the network, or of an additional connection of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowId(u32);

/// The number of a pair of a source and a sink with their access links.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PairId(u32);

/// The number of a station, which is a link or a line back that several flows share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StationId(u8);

impl FlowId {
    /// Returns the number of the flow at this index of the network's list.
    ///
    /// # Panics
    /// Past `u32::MAX`.
    #[inline]
    pub fn at(index: usize) -> FlowId {
        FlowId(count(index))
    }

    /// Returns its place in the network's list.
    #[inline(always)]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// Returns the number as queues see it.
    #[inline(always)]
    pub const fn number(self) -> u32 {
        self.0
    }

    /// Returns the flow with this number.
    #[inline(always)]
    pub const fn of_number(number: u32) -> FlowId {
        FlowId(number)
    }

    /// Returns the number `flows` after this one.
    #[inline(always)]
    pub const fn nth(self, flows: u32) -> FlowId {
        FlowId(self.0 + flows)
    }

    /// Returns how many flows there are from `first` to this one, which is not before it.
    #[inline(always)]
    pub const fn offset_from(self, first: FlowId) -> u32 {
        self.0 - first.0
    }
}

impl PairId {
    /// Returns the number of the pair at this index of the network's list.
    ///
    /// # Panics
    /// Past `u32::MAX`.
    pub fn at(index: usize) -> PairId {
        PairId(count(index))
    }

    /// Returns its place in the network's list.
    #[inline(always)]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// Returns the number `pairs` after this one.
    pub const fn nth(self, pairs: u32) -> PairId {
        PairId(self.0 + pairs)
    }
}

impl StationId {
    /// Returns the number of the station at this index.
    ///
    /// # Panics
    /// Past 255; the limit on the links of a scenario prevents that.
    pub fn at(index: usize) -> StationId {
        StationId(u8::try_from(index).expect("a scenario has few enough links"))
    }

    /// Returns the index of the station.
    #[inline(always)]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}
