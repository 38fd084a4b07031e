//! A law at a queue of fluid, which calls it as a FIFO would.
//!
//! Packet n of the fluid arrives when n packets' worth has flowed in since the start, and leaves
//! when as much has flowed out. No packet is left out, so laws that average per packet, count or
//! estimate see every packet, evenly spread. Queue lengths are rounded to whole packets (and
//! bytes), as laws see them.

use forebay_aqm::{
    Ecn, FluidStep, Law, LawDriver, OtherQueues, PacketMeta, QueueView, Signal, Verdict,
};
use forebay_units::cast::{whole_u32, whole_u64};
use forebay_units::{Rate, Rng, Span, Time};

use crate::model::Bottleneck;

/// Relative change of a probability in a step above which the change counts as a jump.
const SMOOTH: f64 = 0.2;

/// A queue of fluid and its law.
pub struct Port {
    law: LawDriver,
    packet_bytes: u32,
    buffer_pkts: f64,
    rate: Rate,
    ns_per_pkt: f64,
    /// Packets since the start that arrived, overflowed and left, and how many of each the law
    /// has been told of.
    arrived: Count,
    overflowed: Count,
    left: Count,
    /// The packets that the link could have sent in addition.
    missed: Count,
    last_arrival: Time,
    /// Signals of a law without an intensity that the flows have yet to get.
    owed: f64,
    /// Probability now.
    pub probability: f64,
    /// The slope of the probability per second while it changes evenly, and the time from which it
    /// holds.
    trend: f64,
    since_s: f64,
}

#[derive(Default)]
struct Count {
    fluid: f64,
    told: u64,
}

impl Count {
    /// Lets `more` flow. Returns the number of packets that this completes.
    fn flow(&mut self, more: f64) -> u64 {
        self.fluid += more;
        let whole = whole_u64(self.fluid).saturating_sub(self.told);
        self.told += whole;
        whole
    }
}

/// One integration step of the queue.
pub struct Passed {
    pub start: Time,
    pub end: Time,
    /// True if the queue is empty throughout the step; false if it is never empty.
    pub idle: bool,
    /// The queue at the start and at the end of the step.
    pub queue_pkts: [f64; 2],
    /// Per second, at both ends.
    pub queue_slopes: [f64; 2],
    /// Packets that arrived, that found no room, and that left.
    pub arrived: f64,
    pub overflowed: f64,
    pub left: f64,
}

impl Passed {
    /// Ends of the line that has the mean and the first moment of the queue: a law that averages
    /// gets the same result from this line as from the cubic through values and slopes.
    fn mean_line(&self) -> [f64; 2] {
        let [first, last] = self.queue_pkts;
        let length_s = self.end.since(self.start).as_secs_f64();
        let [a, b] = self.queue_slopes.map(|slope| length_s * slope);
        let mean = 0.5 * (first + last) + (a - b) / 12.0;
        let half = 0.6 * (last - first) - 0.05 * (a + b);
        [mean - half, mean + half].map(|pkts| pkts.max(0.0))
    }
}

impl Port {
    /// Returns an empty queue under `law`.
    pub fn new(bottleneck: &Bottleneck, law: Box<dyn Law>, rng: Rng) -> Port {
        let mut port = Port {
            law: LawDriver::new(law, rng),
            packet_bytes: u32::try_from(bottleneck.packet.0).unwrap_or(u32::MAX),
            buffer_pkts: bottleneck.buffer_pkts,
            rate: bottleneck.rate,
            ns_per_pkt: 1e9 / bottleneck.pkts_per_s(),
            arrived: Count::default(),
            overflowed: Count::default(),
            left: Count::default(),
            missed: Count::default(),
            last_arrival: Time::ZERO,
            owed: 0.0,
            probability: 0.0,
            trend: 0.0,
            since_s: 0.0,
        };
        let view = port.view(Time::ZERO, 0.0);
        port.probability = port.law.intensity(&view).unwrap_or(0.0);
        port
    }

    /// Sets the rate of the link.
    pub fn set_rate(&mut self, rate: Rate) {
        self.rate = rate;
        self.ns_per_pkt = 8e9 * f64::from(self.packet_bytes) / rate.as_bps() as f64;
    }

    /// Sets the size of the buffer.
    pub fn set_buffer(&mut self, buffer_pkts: f64) {
        self.buffer_pkts = buffer_pkts;
    }

    /// Returns the probability with which an ECT(1) packet is marked if classic packets are signalled
    /// with `probability`.
    pub fn marks_l4s(&self, probability: f64) -> f64 {
        self.law.marks_l4s(probability)
    }

    /// Returns the signal probability at a time in the next step.
    pub fn probability_at(&self, time_s: f64) -> f64 {
        (self.probability + self.trend * (time_s - self.since_s)).clamp(0.0, 1.0)
    }

    /// Returns the next tick of the law's clock, if it has one.
    pub fn next_tick(&self) -> Option<Time> {
        self.law.poll_timeout()
    }

    /// Lets the law's clock tick.
    pub fn tick(&mut self, now: Time, queue_pkts: f64) {
        let view = self.view(now, queue_pkts);
        self.law.handle_timeout(now, &view);
        if let Some(p) = self.law.intensity(&view) {
            self.probability = p;
        }
    }

    /// Shows the law the packets of a step. Returns the probability at its start and at its end.
    pub fn pass(&mut self, step: &Passed) -> [f64; 2] {
        let [first, last] = self.told(step);
        let length_s = step.end.since(step.start).as_secs_f64();
        self.since_s = step.end.as_secs_f64();
        // A law that starts or stops at once has no slope.
        let even = (last - first).abs() < SMOOTH * first.min(last);
        self.trend = if even { (last - first) / length_s } else { 0.0 };
        [first, last]
    }

    fn told(&mut self, step: &Passed) -> [f64; 2] {
        let arrivals = self.arrived.flow(step.arrived);
        let departures = self.left.flow(step.left);
        let mut overflows = self.overflowed.flow(step.overflowed);
        let [first, last] = step.queue_pkts;
        let idle = step.idle;
        let length = step.end.since(step.start).as_nanos() as f64;
        let at = |part: f64| {
            let time = step.start + Span::from_nanos(whole_u64(part * length));
            (time, first + part * (last - first))
        };
        let (arrival, departure) = (1.0 / arrivals as f64, 1.0 / departures as f64);
        let before = self.probability;
        if let Some(p) = self.take_at_once(step, arrivals, departures) {
            let view = self.view(step.end, last);
            for _ in 0..overflows {
                self.law.on_overflow(step.end, &view);
            }
            self.probability = p;
            return [before, p];
        }
        let mut signals = 0.0;
        let mut left = 0;
        for k in 0..arrivals {
            let (now, queue_pkts) = at((k + 1) as f64 * arrival);
            let view = self.view(now, queue_pkts);
            let packet = self.packet(Span::ZERO);
            let has_room = overflows == 0;
            if self.law.arrive(now, &view, &packet, has_room) != Verdict::Pass {
                signals += 1.0;
            }
            overflows -= u64::from(!has_room);
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
            let (now, queue_pkts) = at((k + 1) as f64 * departure);
            signals += self.depart(now, queue_pkts);
        }
        let view = self.view(step.end, last);
        if let Some(p) = self.law.intensity(&view) {
            self.probability = p;
            return [before, p];
        }
        // The probability is signals over arrivals: the flows get as many signals as the law gave.
        // A signal for a packet of which only a part has arrived in this step waits for the rest.
        self.owed += signals;
        self.probability = if step.arrived > 0.0 {
            (self.owed / step.arrived).min(1.0)
        } else {
            0.0
        };
        self.owed -= self.probability * step.arrived;
        [self.probability; 2]
    }

    /// Shows the law all packets of a step at once, and returns the probability after it; `None` if
    /// the law does not take them so.
    fn take_at_once(&mut self, step: &Passed, arrivals: u64, departures: u64) -> Option<f64> {
        let missed = if !step.idle {
            0
        } else {
            let length_ns = step.end.since(step.start).as_nanos() as f64;
            let more = (length_ns / self.ns_per_pkt - step.left).max(0.0);
            self.missed.flow(more)
        };
        let view = self.view(step.end, step.queue_pkts[1]);
        let count = |packets: u64| u32::try_from(packets).unwrap_or(u32::MAX);
        let waited = Span::from_nanos(whole_u64(step.queue_pkts[1] * self.ns_per_pkt));
        let packets = FluidStep {
            end: step.end,
            queue_pkts: step.mean_line(),
            arrivals: count(arrivals),
            departures: count(departures),
            missed: count(missed),
            packet: self.packet(waited),
            view,
        };
        if !self.law.take_fluid(&packets) {
            return None;
        }
        self.last_arrival = step.end;
        self.law.intensity(&view)
    }

    /// Shows the law a departure; returns 1 if the law signals it, and 0 otherwise.
    fn depart(&mut self, now: Time, queue_pkts: f64) -> f64 {
        let wait_ns = queue_pkts * self.ns_per_pkt;
        let view = self.view(now, queue_pkts);
        let packet = self.packet(Span::from_nanos(whole_u64(wait_ns)));
        let verdict = self.law.depart(now, &view, &packet);
        f64::from(u8::from(verdict != Verdict::Pass))
    }

    fn packet(&self, sojourn: Span) -> PacketMeta {
        PacketMeta {
            flow: 0,
            bytes: self.packet_bytes,
            ecn: Ecn::NotEct,
            signal: Signal::Drop,
            tcp: true,
            sojourn,
        }
    }

    fn view(&self, now: Time, queue_pkts: f64) -> QueueView {
        QueueView {
            packets: whole_u32(queue_pkts + 0.5),
            bytes: whole_u64(queue_pkts * f64::from(self.packet_bytes) + 0.5),
            limit_packets: whole_u32(self.buffer_pkts),
            rate: self.rate,
            idle_since: if queue_pkts > 0.0 {
                None
            } else {
                self.idle_since(now)
            },
            head_since: self.head_since(now, queue_pkts),
            other_queues: OtherQueues::default(),
        }
    }

    /// The fluid at the head arrived when the fluid before it began to drain.
    fn head_since(&self, now: Time, queue_pkts: f64) -> Option<Time> {
        let waited_ns = whole_u64(queue_pkts * self.ns_per_pkt);
        let since = now.as_nanos().saturating_sub(waited_ns);
        (queue_pkts > 0.0).then_some(Time::from_nanos(since))
    }

    /// An empty link is idle from when it has sent the last packet.
    fn idle_since(&self, now: Time) -> Option<Time> {
        let sent = self.last_arrival + self.rate.transmission(self.packet_bytes, 0).0;
        (sent < now).then_some(sent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_aqm::laws::LAWS;
    use forebay_aqm::FluidLaw;
    use forebay_scenario::LawChoice;
    use forebay_units::Bytes;
    use std::sync::{Arc, Mutex};

    /// Keeps the largest lag of departures behind arrivals.
    #[derive(Clone, Default)]
    struct Lag {
        counts: Arc<Mutex<(i64, i64)>>,
    }

    impl Law for Lag {
        fn on_enqueue(&mut self, _: Time, _: &QueueView, _: &PacketMeta, _: &mut Rng) -> Verdict {
            let mut counts = self.counts.lock().unwrap();
            counts.0 += 1;
            counts.1 = counts.1.max(counts.0.abs());
            Verdict::Pass
        }

        fn on_dequeue(&mut self, _: Time, _: &QueueView, _: &PacketMeta, _: &mut Rng) -> Verdict {
            let mut counts = self.counts.lock().unwrap();
            counts.0 -= 1;
            counts.1 = counts.1.max(counts.0.abs());
            Verdict::Pass
        }
    }

    impl FluidLaw for Lag {}

    /// 100 Gbit/s of packets of 100 bytes: 125 million a second, 250,000 in 2 ms.
    #[test]
    fn departures_keep_pace_with_arrivals_in_a_step_of_many_packets() {
        let bottleneck = Bottleneck {
            rate: Rate::from_bps(100_000_000_000),
            packet: Bytes(100),
            buffer_pkts: 1e6,
            // The law of the scenario does not matter here, because the port gets its own.
            law: LawChoice::of(&LAWS[0], Vec::new()).unwrap(),
        };
        let law = Lag::default();
        let counts = Arc::clone(&law.counts);
        let mut port = Port::new(&bottleneck, Box::new(law), Rng::new(1, "port"));
        port.pass(&Passed {
            start: Time::ZERO,
            end: Time::ZERO + Span::from_millis(2),
            idle: false,
            queue_pkts: [1000.0, 1000.0],
            queue_slopes: [0.0, 0.0],
            arrived: 250_000.0,
            overflowed: 0.0,
            left: 250_000.0,
        });
        assert_eq!(*counts.lock().unwrap(), (0, 1));
    }
}
