//! First in, first out, under one law.

use std::collections::VecDeque;

use super::{Departure, Discipline, Drop, Packet, Sink};
use crate::law::{Ecn, Law, PacketMeta, QueueView, Verdict};
use crate::rng::Rng;
use crate::units::{Rate, Span, Time};

/// How much a queue can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Buffer {
    Packets(u32),
    Bytes(u64),
}

/// A FIFO queue under one law.
pub struct Fifo<P> {
    queue: VecDeque<(P, Time)>,
    bytes: u64,
    buffer: Buffer,
    rate: Rate,
    idle_since: Option<Time>,
    /// Whether a signal may be a CE mark.
    ecn: bool,
    law: Box<dyn Law>,
    rng: Rng,
}

impl<P: Packet> Fifo<P> {
    /// An empty queue of `buffer` before a link of `rate`, idle since the start.
    /// `ecn` false turns every mark into a drop.
    pub fn new(law: Box<dyn Law>, buffer: Buffer, rate: Rate, ecn: bool, rng: Rng) -> Self {
        Fifo {
            queue: VecDeque::new(),
            bytes: 0,
            buffer,
            rate,
            idle_since: Some(Time::ZERO),
            ecn,
            law,
            rng,
        }
    }

    fn view(&self) -> QueueView {
        QueueView {
            packets: self.queue.len() as u32,
            bytes: self.bytes,
            limit_packets: match self.buffer {
                Buffer::Packets(limit) => limit,
                Buffer::Bytes(_) => u32::MAX,
            },
            rate: self.rate,
            idle_since: self.idle_since,
        }
    }

    fn has_room(&self, bytes: u32) -> bool {
        match self.buffer {
            Buffer::Packets(limit) => self.queue.len() < limit as usize,
            Buffer::Bytes(limit) => self.bytes + u64::from(bytes) <= limit,
        }
    }

    /// Acts on a verdict: the packet if it goes on, marked if need be.
    fn act(&self, verdict: Verdict, now: Time, mut packet: P, sink: &mut dyn Sink<P>) -> Option<P> {
        match verdict {
            Verdict::Pass => return Some(packet),
            // An ECN-capable packet is marked instead of dropped (RFC 3168 section 5).
            Verdict::Mark if self.ecn && packet.ecn() != Ecn::NotEct => {
                packet.set_ce();
                sink.marked(now, &packet);
                return Some(packet);
            }
            Verdict::Mark => sink.dropped(now, packet, Drop::Early),
            Verdict::Drop => sink.dropped(now, packet, Drop::Forced),
        }
        None
    }
}

impl<P: Packet + Send> Discipline<P> for Fifo<P> {
    fn enqueue(&mut self, now: Time, packet: P, sink: &mut dyn Sink<P>) {
        let view = self.view();
        let meta = PacketMeta {
            bytes: packet.bytes(),
            ecn: packet.ecn(),
            tcp: packet.tcp(),
            sojourn: Span::ZERO,
        };
        // The law sees every arrival, also one that finds no room: RED's average counts it.
        let verdict = self.law.on_enqueue(now, &view, &meta, &mut self.rng);
        let kept = if self.has_room(meta.bytes) {
            self.act(verdict, now, packet, sink)
        } else {
            self.law.on_overflow(now, &view);
            sink.dropped(now, packet, Drop::Overflow);
            None
        };
        match kept {
            Some(packet) => {
                self.idle_since = None;
                self.bytes += u64::from(meta.bytes);
                self.queue.push_back((packet, now));
            }
            // An idle link stays idle; what came before `now` the law has accounted for.
            None => self.idle_since = self.idle_since.map(|_| now),
        }
    }

    fn dequeue(&mut self, now: Time, sink: &mut dyn Sink<P>) -> Option<Departure<P>> {
        while let Some((packet, since)) = self.queue.pop_front() {
            self.bytes -= u64::from(packet.bytes());
            let sojourn = now.since(since);
            let meta = PacketMeta {
                bytes: packet.bytes(),
                ecn: packet.ecn(),
                tcp: packet.tcp(),
                sojourn,
            };
            let view = self.view();
            let verdict = self.law.on_dequeue(now, &view, &meta, &mut self.rng);
            if let Some(packet) = self.act(verdict, now, packet, sink) {
                return Some(Departure { packet, sojourn });
            }
        }
        self.idle_since = Some(now);
        let view = self.view();
        self.law.on_idle(now, &view);
        None
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.law.poll_timeout()
    }

    fn handle_timeout(&mut self, now: Time) {
        let view = self.view();
        self.law.handle_timeout(now, &view);
    }

    fn len_packets(&self) -> u32 {
        self.queue.len() as u32
    }

    fn len_bytes(&self) -> u64 {
        self.bytes
    }

    fn set_rate(&mut self, rate: Rate) {
        self.rate = rate;
    }

    fn set_buffer(&mut self, buffer: Buffer) {
        self.buffer = buffer;
    }

    fn set_target(&mut self, target_pkts: f64) -> bool {
        self.law.set_target(target_pkts)
    }

    fn probe(&self, out: &mut dyn FnMut(&'static str, f64)) {
        self.law.probe(out);
    }
}
