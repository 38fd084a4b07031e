//! A port: a bottleneck, and the link behind it.

use forebay_aqm::{Capacity, DropReason, Queue, Sink};
use forebay_trace::{Bottleneck, Settings};
use forebay_units::{Rate, Span, Time};

use crate::external::{Logged, QueueAction};
use crate::packet::{Packet, NO_BLOCKS};
use crate::steps::{Delay, LinkSteps};

pub struct Port {
    pub bottleneck: Bottleneck<Packet, PortDrops>,
    /// Propagation delay at the time that the engine has reached.
    pub delay: Span,
    /// The same at the time at which a packet's last bit leaves.
    delays: Delay,
    /// When the last packet reaches the far end: a shorter delay does not let one overtake.
    last_arrival: Time,
}

/// A packet on its way over the link.
pub struct PacketOnLink {
    pub packet: Packet,
    /// When its last bit reaches the far end.
    pub arrives_at: Time,
}

impl Port {
    /// `steps` are all changes of the link, which are known beforehand.
    pub fn new(
        discipline: Queue<Packet>,
        record: Settings,
        capacity: Capacity,
        delay: Span,
        steps: &LinkSteps,
    ) -> Port {
        let mut bottleneck = Bottleneck::new(discipline, record, capacity, PortDrops::default());
        bottleneck.transmitter.announce(steps.rates.clone());
        Port {
            bottleneck,
            delay,
            delays: Delay::new(delay, &steps.delays),
            last_arrival: Time::ZERO,
        }
    }

    /// When the link must be looked at next.
    #[inline]
    pub fn due(&self) -> Time {
        self.bottleneck.due()
    }

    /// A packet arrives: whether to [send](Port::send_next) at once, since the link is free.
    #[inline(always)]
    pub fn arrive(&mut self, now: Time, packet: Packet) -> bool {
        self.bottleneck.arrive(now, packet)
    }

    /// Takes the next packet from the queue onto the link, at [`due`](Port::due) or
    /// at an arrival.
    #[inline(always)]
    pub fn send_next(&mut self, now: Time) -> Option<PacketOnLink> {
        let sent = self.bottleneck.send_next(now)?;
        Some(self.on_the_way(sent.departure.packet, sent.end))
    }

    #[inline(always)]
    fn on_the_way(&mut self, packet: Packet, out: Time) -> PacketOnLink {
        let arrives_at = self.delays.after(out);
        self.last_arrival = self.last_arrival.max(arrives_at);
        PacketOnLink {
            packet,
            arrives_at: self.last_arrival,
        }
    }

    /// Takes an arriving packet like [`arrive`](Port::arrive), and logs one of the caller where there is a
    /// log.
    #[inline]
    pub fn arrive_logged(&mut self, now: Time, packet: Packet) -> bool {
        let log = &self.bottleneck.record.sink.log;
        let Some(before) = log.as_ref().map(Vec::len) else {
            return self.arrive(now, packet);
        };
        let is_free = self.arrive(now, packet);
        if packet.flags.external() {
            self.log_arrival(before, now, packet);
        }
        is_free
    }

    /// The packet has joined the queue, unless it was dropped since the log had `before` entries; what
    /// else was logged came after it.
    fn log_arrival(&mut self, before: usize, now: Time, packet: Packet) {
        let Some(log) = &mut self.bottleneck.record.sink.log else {
            return;
        };
        let dropped = log[before..].iter().any(|(_, other, action)| {
            let same = other.flow == packet.flow && other.flags == packet.flags;
            matches!(action, QueueAction::Drop(_)) && same && other.seq == packet.seq
        });
        if !dropped {
            log.insert(before, (now, packet, QueueAction::Enqueue));
        }
    }

    /// Sends like [`send_next`](Port::send_next), and logs a packet of the caller where there is a log.
    #[inline]
    pub fn send_next_logged(&mut self, now: Time) -> Option<PacketOnLink> {
        if self.bottleneck.record.sink.log.is_none() {
            return self.send_next(now);
        }
        let sent = self.bottleneck.send_next(now)?;
        let (packet, sojourn) = (sent.departure.packet, sent.departure.sojourn);
        if let Some(log) = &mut self.bottleneck.record.sink.log {
            if packet.flags.external() {
                log.push((now, packet, QueueAction::Dequeue(sojourn)));
            }
        }
        Some(self.on_the_way(packet, sent.end))
    }

    /// Makes an announced change of the rate. A recorded link only reports it to its law.
    pub fn set_rate(&mut self, now: Time, rate: Rate) {
        match self.bottleneck.capacity() {
            Capacity::Recorded(_) => self.bottleneck.discipline.set_rate(rate),
            _ => {
                let moved = self.bottleneck.set_rate(now, rate);
                debug_assert!(moved.is_none(), "a change that was not announced");
            }
        }
    }

    /// `in_flight_pkts` is of a mean flow, where it is recorded.
    pub fn sample(&mut self, now: Time, in_flight_pkts: Option<f64>) {
        self.bottleneck.sample(now, |out| {
            if let Some(pkts) = in_flight_pkts {
                out("in_flight_pkts", pkts);
            }
        });
    }
}

/// What of dropped packets is fetched by others.
#[derive(Default)]
pub struct PortDrops {
    /// SACK blocks of ACKs that were dropped since the last sample, to be taken back.
    pub blocks: Vec<u32>,
    /// Packets of the caller, who is to be told.
    pub external: Vec<(Time, Packet, DropReason)>,
    /// What has happened to packets of the caller here, where the caller wants to know.
    pub log: Option<Vec<Logged>>,
}

impl Sink<Packet> for PortDrops {
    fn dropped(&mut self, now: Time, packet: Packet, why: DropReason, _class: u8) {
        let blocks = packet.blocks_and_host.blocks();
        if blocks != NO_BLOCKS {
            self.blocks.push(blocks);
        } else if packet.flags.external() {
            self.external.push((now, packet, why));
            if let Some(log) = &mut self.log {
                log.push((now, packet, QueueAction::Drop(why)));
            }
        }
    }

    fn marked(&mut self, now: Time, packet: &Packet, _class: u8) {
        if let Some(log) = self.log.as_mut().filter(|_| packet.flags.external()) {
            log.push((now, *packet, QueueAction::Mark));
        }
    }
}
