//! Packets that the caller sends from either end of a flow, and their outcomes.

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
    /// The source, where the path begins.
    Source,
    /// The sink, where the path ends.
    Sink,
}

impl End {
    /// Returns the opposite end, which packets from this end reach.
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
    /// Number of the flow among all external flows of the scenario, in its order, from 0.
    pub flow: u32,
    /// The end that sends the packet.
    pub from: End,
    /// Size of the packet on the wire.
    pub bytes: u16,
    /// The ECN field of the packet.
    pub ecn: Ecn,
    /// The caller's number of the packet, which its outcome repeats.
    pub number: u32,
}

/// The reason why a packet did not reach the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// A queue dropped the packet.
    Queue(DropReason),
    /// The packet was lost at random behind its last queue.
    Random,
}

/// The outcome of a packet that the caller has sent: delivered or lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketOutcome {
    /// The time of the delivery or the loss.
    pub at: Time,
    /// The caller's number of the flow: [`Outgoing::flow`].
    pub flow: u32,
    /// The end that sent the packet.
    pub from: End,
    /// The caller's number of the packet: [`Outgoing::number`].
    pub number: u32,
    /// The ECN field with which the packet reached the opposite end, or the reason of its loss.
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
    /// The time of the action.
    pub at: Time,
    /// Number of the link whose queue it is; that of the bottleneck is 0.
    pub link: usize,
    /// The caller's number of the flow.
    pub flow: u32,
    /// The end that has sent the packet.
    pub from: End,
    /// The caller's number of the packet: [`Outgoing::number`].
    pub number: u32,
    /// Size of the packet on the wire.
    pub bytes: u16,
    /// DSCP and ECN field, after the event.
    pub class: TrafficClass,
    /// The action of the queue.
    pub action: QueueAction,
}

/// The outcomes that the caller has not fetched yet, and the caller's numbers of flows.
pub struct PendingOutcomes {
    /// The network's number of each flow of the caller.
    pub flows: Vec<FlowId>,
    /// The caller's number of each flow of the network; empty if the caller has no flows.
    numbers: Vec<u32>,
    /// The outcomes, the earliest on top.
    waiting: BinaryHeap<Reverse<PendingOutcome>>,
    pushed: u64,
}

/// An entry of a queue's log; the packet is as the action left it.
pub type Logged = (Time, Packet, QueueAction);

/// Returns the end from which the caller sent the packet.
fn end_of(packet: &Packet) -> End {
    match packet.flags.from_sink() {
        true => End::Sink,
        false => End::Source,
    }
}

struct PendingOutcome {
    at: Time,
    /// Number of outcomes pushed before; outcomes of one time keep their order.
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
    /// Creates an empty list for the caller's `flows`, in order; the network has `all` flows.
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

    /// Adds the outcome of a packet.
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

    /// Returns an entry of the log of link `link` with the caller's numbers.
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

    /// Returns the time of the earliest outcome; [`Time::NEVER`] if there is none.
    pub fn next_time(&self) -> Time {
        let next = self.waiting.peek();
        next.map_or(Time::NEVER, |Reverse(next)| next.at)
    }

    /// Removes and returns the earliest outcome.
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
