//! Packets that the caller sends from either end of a flow, and what becomes of them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use forebay_aqm::{DropReason, Ecn, TrafficClass};
use forebay_units::{Span, Time};

use crate::ids::FlowId;
use crate::number::count;
use crate::packet::Packet;

/// An end of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum End {
    /// Where its path begins.
    Source,
    /// Where its path ends.
    Sink,
}

impl End {
    /// The end that packets of this one reach.
    #[must_use]
    pub fn other(self) -> End {
        match self {
            End::Source => End::Sink,
            End::Sink => End::Source,
        }
    }
}

/// A packet that the caller sends.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing {
    /// Among the flows of all external traffic of the scenario, in its order, from 0.
    pub flow: u32,
    pub from: End,
    /// On the wire.
    pub bytes: u16,
    pub ecn: Ecn,
    /// The caller's; comes back with what became of the packet.
    pub number: u32,
}

/// Why a packet did not reach the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// A queue dropped it.
    Queue(DropReason),
    /// At random, behind its last queue.
    Random,
}

/// What has become of a packet that the caller has sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketOutcome {
    pub at: Time,
    pub flow: u32,
    pub from: End,
    pub number: u32,
    /// Its ECN field as it reached the other end, or why it did not.
    pub fate: Result<Ecn, Loss>,
}

/// The action of a queue on a packet of the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueAction {
    /// The packet has joined the queue.
    Enqueue,
    /// The packet leaves the queue for the link, after this time in the queue.
    Dequeue(Span),
    /// The queue has set CE on the packet.
    Mark,
    /// The queue has dropped the packet.
    Drop(DropReason),
}

/// An entry of the log of the queues that packets of the caller meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueEvent {
    pub at: Time,
    /// Number of the link whose queue it is; that of the bottleneck is 0.
    pub link: usize,
    /// The caller's number of the flow.
    pub flow: u32,
    /// The end that has sent the packet.
    pub from: End,
    /// The caller's number of the packet: [`Outgoing::number`].
    pub number: u32,
    /// On the wire.
    pub bytes: u16,
    /// DSCP and ECN field, after the event.
    pub class: TrafficClass,
    pub action: QueueAction,
}

/// What the caller has not been told yet.
pub struct PendingOutcomes {
    /// By the caller's number of a flow.
    pub flows: Vec<FlowId>,
    /// The caller's numbers, by flow; empty where the caller has none.
    numbers: Vec<u32>,
    waiting: BinaryHeap<Reverse<PendingOutcome>>,
    pushed: u64,
}

/// An entry of a queue's log, with the packet after it.
pub type Logged = (Time, Packet, QueueAction);

/// The end that has sent a packet of the caller.
fn end_of(packet: &Packet) -> End {
    match packet.flags.from_sink() {
        true => End::Sink,
        false => End::Source,
    }
}

struct PendingOutcome {
    at: Time,
    /// Outcomes of one time keep the order in which they were found.
    pushed: u64,
    packet: Packet,
    fate: Result<Ecn, Loss>,
}

impl PendingOutcome {
    fn key(&self) -> (Time, u64) {
        (self.at, self.pushed)
    }
}

impl PartialEq for PendingOutcome {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for PendingOutcome {}

impl PartialOrd for PendingOutcome {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for PendingOutcome {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

impl PendingOutcomes {
    /// `flows` are those of the caller, in order, of so many in all.
    pub fn new(flows: Vec<FlowId>, all: usize) -> PendingOutcomes {
        let mut numbers = vec![u32::MAX; if flows.is_empty() { 0 } else { all }];
        for (number, flow) in flows.iter().enumerate() {
            numbers[flow.index()] = count(number);
        }
        PendingOutcomes {
            flows,
            numbers,
            waiting: BinaryHeap::new(),
            pushed: 0,
        }
    }

    /// The caller is to be told of this.
    pub fn push(&mut self, at: Time, packet: Packet, fate: Result<Ecn, Loss>) {
        let pushed = self.pushed;
        self.pushed += 1;
        self.waiting.push(Reverse(PendingOutcome {
            at,
            pushed,
            packet,
            fate,
        }));
    }

    /// An entry of a queue's log in the caller's numbers.
    pub fn event(&self, link: usize, logged: &Logged) -> QueueEvent {
        let (at, packet, action) = *logged;
        QueueEvent {
            at,
            link,
            flow: self.numbers[packet.flow.index()],
            from: end_of(&packet),
            number: packet.seq,
            bytes: packet.bytes,
            class: packet.traffic_class,
            action,
        }
    }

    /// When the first of it happens, or has happened.
    pub fn next_time(&self) -> Time {
        let next = self.waiting.peek();
        next.map_or(Time::NEVER, |Reverse(next)| next.at)
    }

    /// The first of it.
    pub fn pop(&mut self) -> Option<PacketOutcome> {
        let Reverse(next) = self.waiting.pop()?;
        Some(PacketOutcome {
            at: next.at,
            flow: self.numbers[next.packet.flow.index()],
            from: end_of(&next.packet),
            number: next.packet.seq,
            fate: next.fate,
        })
    }
}
