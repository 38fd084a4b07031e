//! Packets that the caller sends from either end of a flow, and what comes of them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use forebay_core::{Drop, Ecn, Time, TrafficClass};

use super::hosts::Hosts;
use super::{Engine, Topology};
use crate::network::Network;
use crate::number::count;
use crate::packet::{traffic_number, BlocksAndHost, Flags, Packet, NO_BLOCKS, NO_TRAFFIC};
use crate::Watch;

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
    Queue(Drop),
    /// At random, behind its last queue.
    Random,
}

/// What has become of a packet that the caller has sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    pub at: Time,
    pub flow: u32,
    pub from: End,
    pub number: u32,
    /// Its ECN field as it reached the other end, or why it did not.
    pub fate: Result<Ecn, Loss>,
}

/// What the caller has not been told yet.
pub struct External {
    /// By the caller's number of a flow.
    flows: Vec<u32>,
    /// Of the flow with the lowest number here; external flows of one traffic are in one piece.
    numbers: Vec<u32>,
    waiting: BinaryHeap<Reverse<Waiting>>,
    pushed: u64,
}

struct Waiting {
    at: u64,
    /// Outcomes of one time keep the order in which they were found.
    pushed: u64,
    packet: Packet,
    fate: Result<Ecn, Loss>,
}

impl Waiting {
    fn key(&self) -> (u64, u64) {
        (self.at, self.pushed)
    }
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Waiting {}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Waiting {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

impl External {
    pub fn of(network: &Network) -> External {
        let classes = network.classes.iter();
        let external = classes.filter(|class| class.external.is_some());
        let flows: Vec<u32> = external
            .flat_map(|class| class.first..class.first + class.count)
            .collect();
        let mut numbers = vec![u32::MAX; network.flows.len() * usize::from(!flows.is_empty())];
        for (number, flow) in flows.iter().enumerate() {
            numbers[*flow as usize] = count(number);
        }
        External {
            flows,
            numbers,
            waiting: BinaryHeap::new(),
            pushed: 0,
        }
    }

    /// The caller is to be told of this.
    pub fn push(&mut self, at: u64, packet: Packet, fate: Result<Ecn, Loss>) {
        let pushed = self.pushed;
        self.pushed += 1;
        self.waiting.push(Reverse(Waiting {
            at,
            pushed,
            packet,
            fate,
        }));
    }

    fn next_time(&self) -> u64 {
        let next = self.waiting.peek();
        next.map_or(u64::MAX, |Reverse(next)| next.at)
    }

    fn pop(&mut self) -> Option<Outcome> {
        let Reverse(next) = self.waiting.pop()?;
        Some(Outcome {
            at: Time::from_nanos(next.at),
            flow: self.numbers[next.packet.flow as usize],
            from: match next.packet.flags.from_sink() {
                true => End::Sink,
                false => End::Source,
            },
            number: next.packet.seq,
            fate: next.fate,
        })
    }
}

impl Hosts {
    /// A packet of the caller goes onto its access link, no earlier than all that has happened.
    fn send_external(&mut self, now: u64, sent: &Outgoing) {
        let flow = self.external.flows[sent.flow as usize];
        let route = self.network.routes[flow as usize];
        let class = &self.network.classes[route.class as usize];
        let pair = &mut self.network.pairs[route.pair as usize];
        let from_sink = sent.from == End::Sink;
        let packet = Packet {
            flow,
            seq: sent.number,
            blocks_and_host: BlocksAndHost::new(NO_BLOCKS, class.host),
            bytes: sent.bytes,
            connection: 0,
            traffic_class: TrafficClass::new(class.dscp, sent.ecn),
            flags: Flags::of_external(from_sink),
            station: match from_sink {
                true => pair.ack_enters,
                false => pair.data_enters,
            },
            traffic: match from_sink {
                true => NO_TRAFFIC,
                false => traffic_number(route.class),
            },
        };
        let late = usize::from(pair.class);
        let prompt = self.late_lines + self.prompt_lines * late;
        let (at, line) = match from_sink {
            // The last prompt line is for what goes back.
            true => {
                let at = pair.wire.pass(&mut pair.ack_up, now, sent.bytes);
                (at, prompt + self.prompt_lines - 1)
            }
            false => {
                let waited = pair.data_up >= now;
                let at = pair.wire.pass(&mut pair.data_up, now, sent.bytes);
                (at, if waited { late } else { prompt })
            }
        };
        self.arrivals.push_on(line, at, packet);
        self.agenda.links_by(at + self.lookahead_ns);
    }
}

impl<T: Topology> Engine<T> {
    /// How many flows the caller has.
    pub fn external_flows(&self) -> u32 {
        count(self.hosts.external.flows.len())
    }

    /// The caller sends a packet, at a time that is not before the last outcome.
    pub fn send_external(&mut self, now: Time, packet: &Outgoing) {
        self.hosts.send_external(now.as_nanos(), packet);
    }

    /// Runs on to the next outcome; `None` where there is none up to `until`, or the end.
    pub fn next_outcome(&mut self, until: u64) -> Option<Outcome> {
        debug_assert!(!T::LOOKS_AHEAD, "links must not be ahead of the caller");
        let until = until.min(self.end);
        loop {
            let told = self.hosts.external.next_time();
            let here = self.hosts.agenda.first_besides_the_end();
            let next = here.min(self.links.next_ack());
            if told <= next.min(until) {
                return self.hosts.external.pop();
            }
            // All of one time, and nothing of a later one.
            let to = next.min(until);
            self.run_until(to, &Watch::default());
            self.collect_lost();
            if next > until {
                return None;
            }
        }
    }

    fn collect_lost(&mut self) {
        for port in self.links.ports_mut() {
            let lost = &mut port.bottleneck.record.sink.external;
            for (at, packet, why) in lost.drain(..) {
                let fate = Err(Loss::Queue(why));
                self.hosts.external.push(at.as_nanos(), packet, fate);
            }
        }
    }
}
