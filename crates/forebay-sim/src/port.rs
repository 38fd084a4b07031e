//! A port: a discipline, the transmitter that it feeds, and the record of both.

use forebay_core::transmitter::Transmitter;
use forebay_core::{Capacity, Drop, Queue, Rate, Sink, Time};
use forebay_trace::{Recorder, Settings};

use crate::packet::{Packet, NO_BLOCKS};

pub struct Port {
    pub discipline: Queue<Packet>,
    pub record: Record,
    pub transmitter: Transmitter,
    pub delay_ns: u64,
    capacity: Capacity,
    /// When the last packet reaches the far end: a shorter delay does not let one overtake.
    last_arrival: u64,
    /// Bits that a trace could carry up to the last sample.
    carried_bits: u64,
}

/// A packet on its way over the link.
pub struct Sent {
    pub packet: Packet,
    /// When its last bit reaches the far end.
    pub arrives_at: u64,
}

impl Port {
    pub fn new(
        discipline: Queue<Packet>,
        record: Settings,
        capacity: Capacity,
        delay_ns: u64,
    ) -> Port {
        let mut recorder = Recorder::new(record, capacity.steady_rate());
        recorder.tell_apart(discipline.classes());
        Port {
            discipline,
            record: Record {
                recorder,
                lost_blocks: Vec::new(),
            },
            transmitter: Transmitter::new(&capacity),
            delay_ns,
            capacity,
            last_arrival: 0,
            carried_bits: 0,
        }
    }

    /// When the link must be looked at next.
    #[inline]
    pub fn due(&self) -> u64 {
        self.transmitter.due().as_nanos()
    }

    /// A packet arrives: whether to [send](Port::send_next) at once, since the link is free.
    #[inline(always)]
    pub fn arrive(&mut self, now: u64, packet: Packet) -> bool {
        let now = Time::from_nanos(now);
        self.record.recorder.arrived();
        self.discipline.enqueue(now, packet, &mut self.record);
        self.transmitter.arrived(now)
    }

    /// Takes the next packet from the queue onto the link, at [`due`](Port::due) or
    /// at an arrival.
    #[inline(always)]
    pub fn send_next(&mut self, now: u64) -> Option<Sent> {
        let now = Time::from_nanos(now);
        let sent = self
            .transmitter
            .ask(now, &mut self.discipline, &mut self.record)?;
        let departure = sent.departure;
        let bytes = u32::from(departure.packet.bytes);
        let (sojourn, class) = (departure.sojourn, departure.class);
        self.record.recorder.departed(now, bytes, sojourn, class);
        if let Some(of) = self.record.recorder.traffic(now, departure.packet.traffic) {
            of.left_packets += 1;
            of.waited_ns += sojourn.as_nanos();
        }
        let arrives_at = sent.out.as_nanos() + self.delay_ns;
        self.last_arrival = self.last_arrival.max(arrives_at);
        Some(Sent {
            packet: departure.packet,
            arrives_at: self.last_arrival,
        })
    }

    /// The packet being sent is finished at the old rate. A recorded link only tells its law.
    pub fn set_rate(&mut self, now: u64, rate: Rate) {
        self.discipline.set_rate(rate);
        if !matches!(self.capacity, Capacity::Recorded(_)) {
            self.capacity.set_rate(rate);
            self.transmitter.set_rate(rate);
            let now = Time::from_nanos(now);
            self.record.recorder.rate_changed(now, rate);
        }
    }

    /// `in_flight_pkts` is of a mean flow, where it is recorded.
    pub fn sample(&mut self, now: u64, in_flight_pkts: Option<f64>) {
        let now = Time::from_nanos(now);
        let recorder = &mut self.record.recorder;
        let bits = self.capacity.recorded_bits(now);
        recorder.could_carry((bits - self.carried_bits) as f64);
        self.carried_bits = bits;
        let discipline = &self.discipline;
        recorder.sample(
            now,
            discipline.len_packets(),
            discipline.len_bytes(),
            |out| {
                discipline.probe(out);
                if let Some(pkts) = in_flight_pkts {
                    out("in_flight_pkts", pkts);
                }
            },
        );
    }
}

/// The record of a port.
pub struct Record {
    pub recorder: Recorder,
    /// SACK blocks of ACKs that were dropped since the last sample, to be taken back.
    pub lost_blocks: Vec<u32>,
}

impl Sink<Packet> for Record {
    fn dropped(&mut self, now: Time, packet: Packet, why: Drop, class: u8) {
        self.recorder.dropped(now, why, class);
        if let Some(of) = self.recorder.traffic(now, packet.traffic) {
            of.dropped_packets += 1;
        }
        if packet.blocks != NO_BLOCKS {
            self.lost_blocks.push(packet.blocks);
        }
    }
    fn marked(&mut self, now: Time, packet: &Packet, class: u8) {
        self.recorder.marked(now, class);
        if let Some(of) = self.recorder.traffic(now, packet.traffic) {
            of.marked_packets += 1;
        }
    }
}
