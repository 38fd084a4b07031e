//! PIE at a queue: its estimate of the delay, its probability, and its signals.

use std::cmp::Ordering;

use forebay_units::cast::whole_u64;
use forebay_units::{Bytes, Rng, SetPoint, Site, Span, Time};

use super::arithmetic::{
    clock, gain_shift, prob_of, range_of, ticks, GAIN_RANGES, MAX_PROB, TICKS_PER_S, TICK_SHIFT,
};
use super::params::{Estimator, PieParams};
use crate::clock::{self as law_clock, State, Ticking};
use crate::law::{FluidLaw, FluidStep, Law, PacketMeta, QueueView, Signal, Target, Verdict};

/// Bytes that must be waiting, and leave, for a sample of the departure rate.
pub const RATE_THRESHOLD: u64 = 16384;
/// Weight of a sample of the departure rate (RFC 8033 appendix B): 2^14/2^16.
pub const RATE_WEIGHT: f64 = 0.25;

#[cfg(test)]
mod tests;

/// PIE at a queue.
pub struct Pie {
    params: PieParams,
    target: Target,
    // Times from here on are in ticks.
    /// Gains of a probability of [`MAX_PROB`], per tick.
    alpha: u64,
    beta: u64,
    high_delay: u64,
    max_burst: u64,
    interval: u64,
    least_backlog: u64,
    usual_packet: u64,
    mark_up_to: u64,
    next: Time,
    prob: u64,
    /// What the probabilities of packets since the last signal add up to.
    sum: u64,
    delay: u64,
    delay_1: u64,
    burst: u64,
    /// The last departure, or the start of the sample of the departure rate.
    since: Option<u64>,
    /// Bytes that have left since then.
    left: Option<u64>,
    /// Departure rate in bytes per tick, times 256 for Linux; 0 before the first sample.
    rate: f64,
}

impl Pie {
    /// Returns the law at its start.
    pub fn new(params: &PieParams, site: &Site) -> Pie {
        // Linux takes sixteenths from user space.
        let gain = |per_s: f64| whole_u64(per_s * 16.0 * (MAX_PROB / TICKS_PER_S) as f64) >> 4;
        let usual = site.packet.0;
        Pie {
            target: Target::new(params.target, site),
            alpha: gain(params.alpha),
            beta: gain(params.beta),
            high_delay: match params.high_delay {
                Span::ZERO => u64::MAX,
                high => ticks(high),
            },
            max_burst: ticks(params.max_burst),
            interval: ticks(params.interval),
            least_backlog: match params.least_backlog {
                Bytes(0) => 2 * usual,
                Bytes(bytes) => bytes,
            },
            usual_packet: usual.max(1),
            mark_up_to: prob_of(params.mark_up_to),
            next: Time::ZERO + params.first_change.max(params.interval),
            prob: 0,
            sum: 0,
            delay: 0,
            delay_1: 0,
            burst: ticks(params.max_burst),
            since: None,
            left: None,
            rate: 0.0,
            params: params.clone(),
        }
    }

    /// What is tossed for: any draw is below a probability that has grown above 1.
    fn probability(&self) -> f64 {
        self.prob.min(MAX_PROB) as f64 / MAX_PROB as f64
    }

    /// Whether an arrival is let in whatever the probability (RFC 8033 sections 4.1 and 4.4).
    #[inline]
    fn spares(&self, q: &QueueView) -> bool {
        self.burst > 0
            || (self.delay < ticks(self.target.delay(q)) / 2 && self.prob < MAX_PROB / 5)
            || q.bytes < self.least_backlog
    }

    /// Whether an arrival is signalled (RFC 8033 sections 4.1 and 5.4).
    #[inline]
    fn strikes(&mut self, q: &QueueView, bytes: u32, rng: &mut Rng) -> bool {
        if self.spares(q) {
            return false;
        }
        let bytes = u64::from(bytes);
        let prob = if self.params.by_bytes && bytes <= self.usual_packet {
            bytes * (self.prob / self.usual_packet)
        } else {
            self.prob
        };
        if self.params.derandomise {
            self.sum = match prob {
                0 => 0,
                _ => self.sum.wrapping_add(prob),
            };
            if self.sum < MAX_PROB / 100 * 85 {
                return false;
            }
            if self.sum >= MAX_PROB / 2 * 17 {
                return true;
            }
        }
        let strikes = (rng.next_u64() >> 8) < prob;
        if strikes {
            self.sum = 0;
        }
        strikes
    }

    fn use_burst(&mut self, ticks: u64) {
        self.burst = self.burst.saturating_sub(ticks);
    }

    /// A sample of the departure rate is complete after 16 KiB of a queue that was as long at its
    /// start (RFC 8033 section 5.2); how long it took.
    fn sample_rate(&mut self, t: u64, backlog: u64, bytes: u32) -> Option<u64> {
        if backlog >= RATE_THRESHOLD && self.left.is_none() {
            self.since = Some(t);
            self.left = Some(0);
        }
        let left = self.left? + u64::from(bytes);
        self.left = Some(left);
        let took = t - self.since?;
        if left < RATE_THRESHOLD || took == 0 {
            return None;
        }
        if self.params.estimator == Estimator::LinuxDepartureRate {
            let (rate, sample) = (whole_u64(self.rate), (left << 8) / took);
            self.rate = match rate {
                0 => sample,
                rate => rate - (rate >> 3) + (sample >> 3),
            } as f64;
        } else {
            let sample = left as f64 / took as f64;
            self.rate = match self.rate {
                0.0 => sample,
                rate => rate + RATE_WEIGHT * (sample - rate),
            };
        }
        self.left = (backlog >= RATE_THRESHOLD).then_some(0);
        self.since = Some(t);
        Some(took)
    }

    /// The queuing delay at a change of the probability.
    fn estimate(&self, q: &QueueView) -> u64 {
        match self.params.estimator {
            Estimator::Timestamp => self.delay,
            _ if self.rate == 0.0 => 0,
            Estimator::DepartureRate => whole_u64(q.bytes as f64 / self.rate),
            Estimator::LinuxDepartureRate => (q.bytes << 8) / whole_u64(self.rate),
        }
    }

    /// A change of the probability (RFC 8033 section 4.2).
    fn change(&mut self, q: &QueueView) {
        let target = ticks(self.target.delay(q));
        if self.params.estimator != Estimator::Timestamp {
            self.delay_1 = self.delay;
        }
        let (delay, delay_1) = (self.estimate(q), self.delay_1);
        let shift = gain_shift(self.prob);
        let term = |gain: u64, later: u64, earlier: u64| {
            let difference = later.cast_signed() - earlier.cast_signed();
            (gain >> shift).cast_signed().saturating_mul(difference)
        };
        let mut delta =
            term(self.alpha, delay, target).saturating_add(term(self.beta, delay, delay_1));
        // At most 2 % in one step where it is 10 % already (RFC 8033 section 5.5).
        let step = (MAX_PROB / 50).cast_signed();
        if delta > step && self.prob >= MAX_PROB / 10 {
            delta = (MAX_PROB / 100 * 2).cast_signed();
        }
        // Linux: more of it where the delay is out of bounds.
        if delay > self.high_delay {
            delta = delta.saturating_add(step);
        }
        self.prob = match self.prob.checked_add_signed(delta) {
            Some(prob) if self.params.bounded => prob.min(MAX_PROB),
            Some(prob) => prob,
            // Beyond 256 Linux begins again at 1.
            None if delta > 0 => MAX_PROB,
            None => 0,
        };
        if delay == 0 && delay_1 == 0 && q.bytes == 0 {
            self.prob -= self.prob / u64::from(self.params.decay);
        }
        if !self.params.burst_by_departures {
            self.use_burst(self.interval);
        }
        self.delay = delay;
        // Without congestion the next burst is let in (RFC 8033 section 4.4).
        let known = self.params.estimator == Estimator::Timestamp || self.rate > 0.0;
        if delay < target / 2 && delay_1 < target / 2 && self.prob == 0 && known {
            self.burst = self.max_burst;
            self.since = None;
            self.left = None;
            self.sum = 0;
            self.rate = 0.0;
        }
        if self.params.estimator == Estimator::Timestamp {
            self.delay_1 = delay;
        }
    }
}

impl Law for Pie {
    fn costs_arrivals(&self) -> bool {
        true
    }

    #[inline]
    fn on_enqueue(&mut self, _: Time, q: &QueueView, p: &PacketMeta, rng: &mut Rng) -> Verdict {
        if !self.strikes(q, p.bytes, rng) {
            return Verdict::Pass;
        }
        let may_mark = self.prob <= self.mark_up_to;
        if p.signal == Signal::Drop || !may_mark || self.params.restart_at_mark {
            self.sum = 0;
        }
        match p.signal {
            Signal::Mark if !may_mark => Verdict::Drop,
            _ => Verdict::Signal,
        }
    }

    #[inline]
    fn on_dequeue(&mut self, now: Time, q: &QueueView, p: &PacketMeta, _: &mut Rng) -> Verdict {
        let t = clock(now);
        let took = if self.params.estimator == Estimator::Timestamp {
            let came = Time::from_nanos(now.as_nanos().saturating_sub(p.sojourn.as_nanos()));
            self.delay = match q.bytes {
                0 => 0,
                _ => t - clock(came),
            };
            let since = self.since.replace(t);
            since.map(|since| t - since)
        } else {
            self.sample_rate(t, q.bytes, p.bytes)
        };
        if self.burst > 0 && self.params.burst_by_departures {
            self.use_burst(took.unwrap_or(0));
        }
        Verdict::Pass
    }

    fn on_overflow(&mut self, _now: Time, _q: &QueueView) {
        self.sum = 0;
    }

    fn poll_timeout(&self) -> Option<Time> {
        Some(self.next)
    }

    fn handle_timeout(&mut self, now: Time, q: &QueueView) {
        self.next = law_clock::run(self, self.next, now, q);
    }

    fn set_point(&mut self, set_point: SetPoint) -> bool {
        self.target.set_point = set_point;
        true
    }

    fn probe(&self, out: &mut dyn FnMut(&'static str, f64)) {
        out("p", self.probability());
        out(
            "delay",
            Span::from_nanos(self.delay << TICK_SHIFT).as_secs_f64(),
        );
    }
}

impl Ticking for Pie {
    fn interval(&self) -> Span {
        self.params.interval
    }

    fn tick(&mut self, _: Time, q: &QueueView) {
        self.change(q);
    }

    fn state(&self) -> Option<State> {
        let (since, left) = (self.since, self.left);
        Some([
            self.prob,
            self.sum,
            self.delay,
            self.delay_1,
            self.burst,
            self.rate.to_bits(),
            since.is_some().into(),
            since.unwrap_or(0),
            left.is_some().into(),
            left.unwrap_or(0),
            0,
            0,
        ])
    }

    /// At a queue that does not change, the probability moves by the same amount at each change, as
    /// long as the gains stay as they are; without a delay it also loses its part.
    fn skip(&mut self, _: Time, changes: u64, q: &QueueView) {
        if !self.params.burst_by_departures {
            self.use_burst(self.interval.saturating_mul(changes));
        }
        let (mut left, mut rise) = (changes, 0);
        // Each round ends a range of the probability, and a circle is closed once.
        for _ in 0..2 * GAIN_RANGES {
            if left == 0 {
                return;
            }
            let before = self.prob;
            self.change(q);
            left -= 1;
            let steps = match self.prob.cmp(&before) {
                Ordering::Equal => return,
                Ordering::Greater => {
                    rise = self.prob - before;
                    let most = match self.params.bounded {
                        true => MAX_PROB,
                        false => u64::MAX,
                    };
                    let last = range_of(self.prob).1.min(most);
                    let steps = ((last - self.prob) / rise).min(left);
                    self.prob += steps * rise;
                    steps
                }
                // Beyond 256 Linux has begun again at 1, and goes in circles from here on.
                Ordering::Less if rise > 0 => {
                    left %= (u64::MAX - self.prob) / rise + 1;
                    0
                }
                Ordering::Less if q.bytes == 0 && self.delay == 0 => return self.fade(left, q),
                Ordering::Less => {
                    let fall = before - self.prob;
                    let steps = ((self.prob - range_of(self.prob).0) / fall).min(left);
                    self.prob -= steps * fall;
                    steps
                }
            };
            left -= steps;
        }
    }
}

impl Pie {
    /// Comes to where so many changes lead while there is no delay: p ← (p − c)·(1 − 1/d), in 16 parts
    /// in each of which the gains are those of its start.
    fn fade(&mut self, changes: u64, q: &QueueView) {
        let kept = 1.0 - 1.0 / f64::from(self.params.decay);
        let target = ticks(self.target.delay(q)) as f64;
        let mut left = changes;
        while left > 0 && self.prob > 0 {
            let part = left.min(changes.div_ceil(16));
            let cut = (self.alpha >> gain_shift(self.prob)) as f64 * target;
            let decayed = kept.powf(part as f64);
            let cuts = match kept {
                0.0 => 0.0,
                1.0 => cut * part as f64,
                _ => cut * kept * (1.0 - decayed) / (1.0 - kept),
            };
            self.prob = whole_u64(self.prob as f64 * decayed - cuts);
            left -= part;
        }
    }
}

impl FluidLaw for Pie {
    /// With time stamps the last departure says all; where the departure rate is measured, each
    /// counts.
    fn take_fluid(&mut self, step: &FluidStep) -> bool {
        if self.params.estimator != Estimator::Timestamp {
            return false;
        }
        if step.departures > 0 {
            // A law that never draws needs no randomness to see a departure.
            let mut unused = Rng::new(0, "pie");
            self.on_dequeue(step.end, &step.view, &step.packet, &mut unused);
        }
        true
    }

    fn intensity(&self, q: &QueueView) -> Option<f64> {
        Some(match self.spares(q) {
            true => 0.0,
            false => self.params.signals(self.probability()),
        })
    }
}
