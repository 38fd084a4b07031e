//! A pair of hosts with its access links.

use forebay_units::Time;

use crate::ids::StationId;
use crate::line::Wire;

/// A source and a sink with their four access links, which all have the rate and delay of `wire`.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub struct Pair {
    /// Rate and delay of each access link.
    pub wire: Wire,
    /// Time at which the link from the source to the first router becomes free.
    pub data_up: Time,
    /// Time at which the link from the last router to the sink becomes free.
    pub data_down: Time,
    /// Time at which the link from the sink to the last router becomes free.
    pub ack_up: Time,
    /// Time at which the link from the first router to the source becomes free.
    pub ack_down: Time,
    /// Number of the kind of access link; pairs with equal wires have the same number. It is also
    /// the number of the delay line for packets that waited for the link from the source.
    pub class: u16,
    /// Number of the delay line for packets that did not wait for that link.
    pub prompt_line: u16,
    /// Number of the path between the source and the sink.
    pub path: u16,
    /// The first station of data.
    pub data_enters: StationId,
    /// The first station of ACKs.
    pub ack_enters: StationId,
}
