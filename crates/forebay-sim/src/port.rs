//! A port: a discipline, the link it feeds, and the record of both.

use std::sync::Arc;

use forebay_core::{Discipline, Drop, Rate, Sink, Time};
use forebay_scenario::RateTrace;
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
    /// Where recorded times drive the link instead of its rate.
    trace: Option<Box<Opportunities>>,
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
            trace: None,
            last_arrival: 0,
        }
    }

    /// Lets recorded times drive the link.
    pub fn follow_trace(&mut self, trace: Arc<RateTrace>) {
        let opportunities = Opportunities {
            trace,
            next: 0,
            round_ns: 0,
            left_bytes: 0,
            sending: None,
        };
        self.done_at = opportunities.at();
        self.trace = Some(Box::new(opportunities));
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
        if self.trace.is_some() {
            return self.send_at_opportunity(now);
        }
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

    /// What a time of the trace lets out: a packet leaves when all its bytes have been let out,
    /// and what no packet uses is lost. Called again at the same time while some is left.
    #[inline(never)]
    fn send_at_opportunity(&mut self, now: u64) -> Option<Sent> {
        let opportunities = self.trace.as_mut()?;
        if opportunities.left_bytes == 0 {
            opportunities.left_bytes = RateTrace::BYTES;
            let bits = 8.0 * f64::from(RateTrace::BYTES);
            self.record.recorder.could_carry(bits);
        }
        let (packet, bytes) = match opportunities.sending.take() {
            Some(sending) => sending,
            None => {
                let time = Time::from_nanos(now);
                let Some(departure) = self.discipline.dequeue(time, &mut self.record) else {
                    self.done_at = opportunities.advance();
                    return None;
                };
                let bytes = u32::from(departure.packet.bytes);
                let recorder = &mut self.record.recorder;
                recorder.departed(time, bytes, departure.sojourn);
                (departure.packet, bytes)
            }
        };
        let out = bytes.min(opportunities.left_bytes);
        opportunities.left_bytes -= out;
        self.done_at = match opportunities.left_bytes {
            0 => opportunities.advance(),
            _ => now,
        };
        if out < bytes {
            opportunities.sending = Some((packet, bytes - out));
            return None;
        }
        self.last_arrival = self.last_arrival.max(now + self.delay_ns);
        Some(Sent {
            packet,
            arrives_at: self.last_arrival,
        })
    }

    /// The packet being sent is finished at the old rate.
    pub fn set_rate(&mut self, now: u64, rate: Rate) {
        self.rate = rate;
        self.remainder = 0;
        self.discipline.set_rate(rate);
        if self.trace.is_none() {
            let now = Time::from_nanos(now);
            self.record.recorder.rate_changed(now, rate);
        }
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

/// Where a trace stands.
struct Opportunities {
    trace: Arc<RateTrace>,
    next: usize,
    /// When this round began.
    round_ns: u64,
    /// What the time at hand still lets out.
    left_bytes: u32,
    /// A packet partly out, and its bytes that are not.
    sending: Option<(Packet, u32)>,
}

impl Opportunities {
    fn at(&self) -> u64 {
        self.round_ns + 1_000_000 * u64::from(self.trace.times_ms[self.next])
    }

    /// Goes on to the next time, and returns it.
    fn advance(&mut self) -> u64 {
        self.left_bytes = 0;
        if self.next + 1 == self.trace.times_ms.len() {
            self.round_ns = self.at();
            self.next = 0;
        } else {
            self.next += 1;
        }
        self.at()
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
