//! A port: a queue under its law and the link behind it.

use forebay_aqm::{Capacity, DropReason, Queue, Sink};
use forebay_trace::{Bottleneck, Settings};
use forebay_units::{Rate, Span, Time};

use crate::external::{Logged, QueueAction};
use crate::packet::{PackedPacket, Packet};
use crate::steps::{Delay, LinkSteps};

/// A queue with its link, and the propagation delay of the link.
pub struct Port {
    /// The queue, its transmitter and its recorder.
    pub bottleneck: Bottleneck<PackedPacket, PortDrops>,
    /// The propagation delay at the time that the engine has reached.
    pub delay: Span,
    /// The propagation delay at the time at which a packet's last bit enters the link, which can be
    /// after a change that the engine has not reached.
    delays: Delay,
    /// The time at which the last packet reaches the far end. After a reduction of the delay,
    /// packets still arrive in order.
    last_arrival: Time,
}

/// A packet under way on the link.
pub struct PacketOnLink {
    /// The packet.
    pub packet: PackedPacket,
    /// The time at which its last bit reaches the far end.
    pub arrives_at: Time,
}

impl Port {
    /// Creates a port with an empty queue. `steps` are all changes of the link during the run.
    pub fn new(
        discipline: Queue<PackedPacket>,
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

    /// Returns the time at which the link can take its next packet.
    #[inline]
    pub fn due(&self) -> Time {
        self.bottleneck.due()
    }

    /// Takes an arriving packet; true if the link is free and [`send_next`](Port::send_next) is to
    /// be called at once.
    #[inline(always)]
    pub fn arrive(&mut self, now: Time, packet: PackedPacket) -> bool {
        self.bottleneck.arrive(now, packet)
    }

    /// Moves the next packet from the queue onto the link, at [`due`](Port::due) or at an arrival;
    /// `None` if the queue releases none.
    #[inline(always)]
    pub fn send_next(&mut self, now: Time) -> Option<PacketOnLink> {
        let sent = self.bottleneck.send_next(now)?;
        Some(self.on_the_way(sent.departure.packet, sent.end))
    }

    /// Returns the packet, whose last bit enters the link at `out`, with the time of its arrival.
    #[inline(always)]
    fn on_the_way(&mut self, packet: PackedPacket, out: Time) -> PacketOnLink {
        let arrives_at = self.delays.after(out);
        self.last_arrival = self.last_arrival.max(arrives_at);
        PacketOnLink {
            packet,
            arrives_at: self.last_arrival,
        }
    }

    /// Takes an arriving packet like [`arrive`](Port::arrive), and logs a packet of the caller if
    /// there is a log.
    #[inline]
    pub fn arrive_logged(&mut self, now: Time, packet: PackedPacket) -> bool {
        let log = &self.bottleneck.record.sink.log;
        let Some(before) = log.as_ref().map(Vec::len) else {
            return self.arrive(now, packet);
        };
        let is_free = self.arrive(now, packet);
        let packet = packet.unpack();
        if packet.flags.external() {
            self.log_arrival(before, now, packet);
        }
        is_free
    }

    /// Logs that the packet joined the queue, unless the log shows since entry `before` that it was
    /// dropped. The entry goes before those that the arrival caused.
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

    /// Sends like [`send_next`](Port::send_next), and logs a packet of the caller if there is a
    /// log.
    #[inline]
    pub fn send_next_logged(&mut self, now: Time) -> Option<PacketOnLink> {
        if self.bottleneck.record.sink.log.is_none() {
            return self.send_next(now);
        }
        let sent = self.bottleneck.send_next(now)?;
        let (packet, sojourn) = (sent.departure.packet, sent.departure.sojourn);
        if let Some(log) = &mut self.bottleneck.record.sink.log {
            let packet = packet.unpack();
            if packet.flags.external() {
                log.push((now, packet, QueueAction::Dequeue(sojourn)));
            }
        }
        Some(self.on_the_way(packet, sent.end))
    }

    /// Makes an announced change of the rate. A link whose capacity was recorded only reports it to
    /// its law.
    pub fn set_rate(&mut self, now: Time, rate: Rate) {
        match self.bottleneck.capacity() {
            Capacity::Recorded(_) => self.bottleneck.discipline.set_rate(rate),
            _ => {
                let moved = self.bottleneck.set_rate(now, rate);
                debug_assert!(moved.is_none(), "a change that was not announced");
            }
        }
    }

    /// Records a sample of the queue at `now`, with the mean number of packets in flight per flow
    /// where that is recorded.
    pub fn sample(&mut self, now: Time, in_flight_pkts: Option<f64>) {
        self.bottleneck.sample(now, |out| {
            if let Some(pkts) = in_flight_pkts {
                out("in_flight_pkts", pkts);
            }
        });
    }
}

/// Facts about dropped packets that the engine collects later, and the log of the caller's packets.
#[derive(Default)]
pub struct PortDrops {
    /// Indices of the options of ACKs that were dropped since the last sample; the engine frees
    /// them.
    pub blocks: Vec<u32>,
    /// Dropped packets of the caller, not yet reported.
    pub external: Vec<(Time, Packet, DropReason)>,
    /// Actions of this queue on packets of the caller, if the caller has asked for a log.
    pub log: Option<Vec<Logged>>,
}

impl Sink<PackedPacket> for PortDrops {
    fn dropped(&mut self, now: Time, packet: PackedPacket, why: DropReason, _class: u8) {
        let options = packet.options();
        let packet = packet.unpack();
        if let Some(index) = options {
            self.blocks.push(index);
        } else if packet.flags.external() {
            self.external.push((now, packet, why));
            if let Some(log) = &mut self.log {
                log.push((now, packet, QueueAction::Drop(why)));
            }
        }
    }

    fn marked(&mut self, now: Time, packet: &PackedPacket, _class: u8) {
        let packet = packet.unpack();
        if let Some(log) = self.log.as_mut().filter(|_| packet.flags.external()) {
            log.push((now, packet, QueueAction::Mark));
        }
    }
}
