//! A port: a discipline, the link it feeds, and the record of both.

use forebay_core::{Discipline, Drop, Rate, Sink, Time};
use forebay_trace::Recorder;

use crate::packet::{Packet, NO_BLOCKS};

pub struct Port {
    pub discipline: Box<dyn Discipline<Packet>>,
    pub record: Record,
    rate: Rate,
    pub delay_ns: u64,
    /// When the packet being sent is out; `u64::MAX` while the link is idle.
    pub done_at: u64,
    /// What rounding to ns left over, so that the long-run rate is exact.
    remainder: u64,
    /// When the last packet reaches the far end: a shorter delay does not let one overtake.
    last_arrival: u64,
}

/// A packet on its way over the link.
pub struct Sent {
    pub packet: Packet,
    /// When its last bit reaches the far end.
    pub arrives_at: u64,
}

impl Port {
    pub fn new(
        discipline: Box<dyn Discipline<Packet>>,
        recorder: Recorder,
        rate: Rate,
        delay_ns: u64,
    ) -> Port {
        Port {
            discipline,
            record: Record {
                recorder,
                lost_blocks: Vec::new(),
            },
            rate,
            delay_ns,
            done_at: u64::MAX,
            remainder: 0,
            last_arrival: 0,
        }
    }

    /// A packet arrives; the answer is what leaves at once if the link was idle.
    #[inline]
    pub fn arrive(&mut self, now: u64, packet: Packet) -> Option<Sent> {
        self.record.recorder.arrived();
        self.discipline
            .enqueue(Time::from_nanos(now), packet, &mut self.record);
        if self.done_at == u64::MAX {
            self.send_next(now)
        } else {
            None
        }
    }

    /// Takes the next packet from the queue onto the link, which is free at `now`.
    #[inline]
    pub fn send_next(&mut self, now: u64) -> Option<Sent> {
        let time = Time::from_nanos(now);
        let departure = self.discipline.dequeue(time, &mut self.record);
        let Some(departure) = departure else {
            self.done_at = u64::MAX;
            self.remainder = 0;
            return None;
        };
        let bytes = u32::from(departure.packet.bytes);
        let (span, remainder) = self.rate.transmission(bytes, self.remainder);
        self.remainder = remainder;
        self.done_at = now + span.as_nanos();
        self.record
            .recorder
            .departed(time, bytes, departure.sojourn);
        self.last_arrival = self.last_arrival.max(self.done_at + self.delay_ns);
        Some(Sent {
            packet: departure.packet,
            arrives_at: self.last_arrival,
        })
    }

    /// The packet being sent is finished at the old rate.
    pub fn set_rate(&mut self, now: u64, rate: Rate) {
        self.rate = rate;
        self.remainder = 0;
        self.discipline.set_rate(rate);
        self.record
            .recorder
            .rate_changed(Time::from_nanos(now), rate);
    }

    pub fn sample(&mut self, now: u64) {
        let discipline = &self.discipline;
        self.record.recorder.sample(
            Time::from_nanos(now),
            discipline.len_packets(),
            discipline.len_bytes(),
            |out| discipline.probe(out),
        );
    }
}

/// What was observed at a port.
pub struct Record {
    pub recorder: Recorder,
    /// SACK blocks of ACKs that were dropped since the last sample, to be taken back.
    pub lost_blocks: Vec<u32>,
}

impl Sink<Packet> for Record {
    fn dropped(&mut self, _now: Time, packet: Packet, why: Drop) {
        self.recorder.dropped(why);
        if packet.blocks != NO_BLOCKS {
            self.lost_blocks.push(packet.blocks);
        }
    }
    fn marked(&mut self, _now: Time, _packet: &Packet) {
        self.recorder.marked();
    }
}
