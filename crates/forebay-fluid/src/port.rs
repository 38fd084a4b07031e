//! A law at a queue of fluid: it gets the calls that a FIFO would make.
//!
//! Packet n of the fluid arrives when n packets' worth has flowed in since the start, and
//! leaves when as much has flowed out. None is left out, so laws that average per packet, count
//! or estimate see what they would see, spread as evenly as a fluid is. Queue lengths are
//! rounded to whole packets (and bytes), since that is what laws are told.

use forebay_core::{Ecn, Law, PacketMeta, QueueView, Rate, Rng, Span, Time, Verdict};

use crate::model::Bottleneck;

pub struct Port {
    law: Box<dyn Law>,
    rng: Rng,
    packet_bytes: f64,
    buffer_pkts: f64,
    rate: Rate,
    ns_per_pkt: f64,
    /// Packets since the start that arrived, overflowed and left, and how many of each the law
    /// has been told of.
    arrived: Count,
    overflowed: Count,
    left: Count,
    last_arrival: Time,
    /// Probability now.
    pub probability: f64,
}

#[derive(Default)]
struct Count {
    fluid: f64,
    told: u64,
}

impl Count {
    /// Lets `more` flow; the answer is how many packets that completes.
    fn flow(&mut self, more: f64) -> u32 {
        self.fluid += more;
        let whole = (self.fluid as u64).saturating_sub(self.told);
        self.told += whole;
        whole as u32
    }
}

/// What happened at the queue in one integration step.
pub struct Passed {
    pub start: Time,
    pub end: Time,
    /// At both ends.
    pub queue_pkts: [f64; 2],
    /// Packets that arrived, that found no room, and that left.
    pub arrived: f64,
    pub overflowed: f64,
    pub left: f64,
}

impl Port {
    pub fn new(bottleneck: &Bottleneck, law: Box<dyn Law>, rng: Rng) -> Port {
        let mut port = Port {
            law,
            rng,
            packet_bytes: bottleneck.packet.0 as f64,
            buffer_pkts: bottleneck.buffer_pkts,
            rate: bottleneck.rate,
            ns_per_pkt: 1e9 / bottleneck.pkts_per_s(),
            arrived: Count::default(),
            overflowed: Count::default(),
            left: Count::default(),
            last_arrival: Time::ZERO,
            probability: 0.0,
        };
        let view = port.view(Time::ZERO, 0.0);
        port.probability = port.law.intensity(&view).unwrap_or(0.0);
        port
    }

    pub fn set_rate(&mut self, rate: Rate) {
        self.rate = rate;
        self.ns_per_pkt = 8e9 * self.packet_bytes / rate.as_bps() as f64;
    }

    pub fn set_buffer(&mut self, buffer_pkts: f64) {
        self.buffer_pkts = buffer_pkts;
    }

    pub fn next_tick(&self) -> Option<Time> {
        self.law.poll_timeout()
    }

    /// The law's clock strikes; true if that moved the probability.
    pub fn tick(&mut self, now: Time, queue_pkts: f64) -> bool {
        let view = self.view(now, queue_pkts);
        self.law.handle_timeout(now, &view);
        let before = self.probability;
        if let Some(p) = self.law.intensity(&view) {
            self.probability = p;
        }
        self.probability != before
    }

    /// Tells the law of a step; the answer is the probability at its start and at its end.
    pub fn pass(&mut self, step: &Passed) -> [f64; 2] {
        let arrivals = self.arrived.flow(step.arrived);
        let departures = self.left.flow(step.left);
        let mut overflows = self.overflowed.flow(step.overflowed);
        let [first, last] = step.queue_pkts;
        let idle = last <= 0.0;
        let length = step.end.since(step.start).as_nanos() as f64;
        let at = |part: f64| {
            let time = step.start + Span::from_nanos((part * length) as u64);
            (time, first + part * (last - first))
        };
        let (arrival, departure) = (1.0 / f64::from(arrivals), 1.0 / f64::from(departures));
        let mut signals = 0.0;
        let mut left = 0;
        for k in 0..arrivals {
            let (now, queue_pkts) = at(f64::from(k + 1) * arrival);
            let view = self.view(now, queue_pkts);
            let packet = self.packet(Span::ZERO);
            if self.law.on_enqueue(now, &view, &packet, &mut self.rng) != Verdict::Pass {
                signals += 1.0;
            }
            if overflows > 0 {
                self.law.on_overflow(now, &view);
                overflows -= 1;
            }
            self.last_arrival = now;
            // Departures keep pace with arrivals within the step.
            while left * arrivals < (k + 1) * departures {
                signals += self.depart(now, queue_pkts);
                left += 1;
            }
            // At an empty queue the link runs dry after each packet.
            if idle {
                let view = self.view(now, 0.0);
                self.law.on_idle(now, &view);
            }
        }
        for k in left..departures {
            let (now, queue_pkts) = at(f64::from(k + 1) * departure);
            signals += self.depart(now, queue_pkts);
        }
        let before = self.probability;
        let view = self.view(step.end, last);
        if let Some(p) = self.law.intensity(&view) {
            self.probability = p;
            return [before, p];
        }
        // Signals over arrivals, so that as many signals flow on as the law gave.
        self.probability = if step.arrived > 0.0 {
            signals / step.arrived
        } else {
            0.0
        };
        [self.probability; 2]
    }

    /// A packet leaves; one if the law signals it.
    fn depart(&mut self, now: Time, queue_pkts: f64) -> f64 {
        let wait_ns = queue_pkts * self.ns_per_pkt;
        let view = self.view(now, queue_pkts);
        let packet = self.packet(Span::from_nanos(wait_ns as u64));
        let verdict = self.law.on_dequeue(now, &view, &packet, &mut self.rng);
        f64::from(u8::from(verdict != Verdict::Pass))
    }

    fn packet(&self, sojourn: Span) -> PacketMeta {
        PacketMeta {
            bytes: self.packet_bytes as u32,
            ecn: Ecn::NotEct,
            tcp: true,
            sojourn,
        }
    }

    fn view(&self, now: Time, queue_pkts: f64) -> QueueView {
        QueueView {
            packets: (queue_pkts + 0.5) as u32,
            bytes: (queue_pkts * self.packet_bytes + 0.5) as u64,
            limit_packets: self.buffer_pkts as u32,
            rate: self.rate,
            idle_since: if queue_pkts > 0.0 {
                None
            } else {
                self.idle_since(now)
            },
        }
    }

    /// An empty link is idle from when it has sent the last packet.
    fn idle_since(&self, now: Time) -> Option<Time> {
        let sent = self.last_arrival + self.rate.transmission(self.packet_bytes as u32, 0).0;
        (sent < now).then_some(sent)
    }
}
