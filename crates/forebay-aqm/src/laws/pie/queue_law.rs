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

/// The bytes that must be queued at the start of a sample of the departure rate, and that leave
/// during it (`QUEUE_THRESHOLD`).
pub const RATE_THRESHOLD: u64 = 16384;
/// The weight of a sample of the departure rate (RFC 8033 appendix B): 2^14/2^16.
pub const RATE_WEIGHT: f64 = 0.25;

#[cfg(test)]
mod tests;

/// PIE at a queue.
pub struct Pie {
    params: PieParams,
    target: Target,
    // Times from here on are in ticks.
    /// The gain on the distance from the target: the change of the probability, in which
    /// [`MAX_PROB`] is 1, for each tick of delay. A tick is the unit of Linux's clock.
    alpha: u64,
    /// The gain on the change of the delay, in the same unit.
    beta: u64,
    high_delay: u64,
    max_burst: u64,
    interval: u64,
    least_backlog: u64,
    usual_packet: u64,
    mark_up_to: u64,
    next: Time,
    /// The probability, which may exceed [`MAX_PROB`].
    prob: u64,
    /// The sum of the probabilities of the packets since the last signal (`accu_prob`).
    sum: u64,
    /// The estimated delay (`qdelay`).
    delay: u64,
    /// The delay at the last change (`qdelay_old`).
    delay_1: u64,
    /// The remaining burst allowance (`burst_time`).
    burst: u64,
    /// The time of the last departure, or of the start of the departure-rate sample (`dq_tstamp`).
    since: Option<u64>,
    /// The bytes that have departed since then; `None` if no sample is in progress (`dq_count`).
    departed: Option<u64>,
    /// The departure rate in bytes per tick, times 256 for Linux; 0 before the first sample
    /// (`avg_dq_rate`).
    rate: f64,
}

impl Pie {
    /// Returns the law in its initial state.
    pub fn new(params: &PieParams, site: &Site) -> Pie {
        // Linux receives gains in sixteenths from user space.
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
            departed: None,
            rate: 0.0,
            params: params.clone(),
        }
    }

    /// Returns the probability of a signal: 1 if `prob` has grown above it.
    fn probability(&self) -> f64 {
        self.prob.min(MAX_PROB) as f64 / MAX_PROB as f64
    }

    /// Returns true if an arrival passes whatever the probability (RFC 8033 sections 4.1 and 4.4).
    #[inline]
    fn spares(&self, q: &QueueView) -> bool {
        self.burst > 0
            || (self.delay < ticks(self.target.delay(q)) / 2 && self.prob < MAX_PROB / 5)
            || q.bytes < self.least_backlog
    }

    /// Returns true if an arrival is signalled (RFC 8033 sections 4.1 and 5.4, `pie_drop_early`).
    #[inline]
    fn signals_arrival(&mut self, q: &QueueView, bytes: u32, rng: &mut Rng) -> bool {
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
        let signals = (rng.next_u64() >> 8) < prob;
        if signals {
            self.sum = 0;
        }
        signals
    }

    /// Subtracts a time from the burst allowance.
    fn use_burst(&mut self, ticks: u64) {
        self.burst = self.burst.saturating_sub(ticks);
    }

    /// Counts a departure for the sample of the departure rate, which starts when the queue holds
    /// 16 KiB and ends when as many bytes have departed (RFC 8033 section 5.2). Returns the
    /// duration of a sample that ends here.
    fn sample_rate(&mut self, t: u64, backlog: u64, bytes: u32) -> Option<u64> {
        if backlog >= RATE_THRESHOLD && self.departed.is_none() {
            self.since = Some(t);
            self.departed = Some(0);
        }
        let departed = self.departed? + u64::from(bytes);
        self.departed = Some(departed);
        let elapsed = t - self.since?;
        if departed < RATE_THRESHOLD || elapsed == 0 {
            return None;
        }
        if self.params.estimator == Estimator::LinuxDepartureRate {
            let (rate, sample) = (whole_u64(self.rate), (departed << 8) / elapsed);
            self.rate = match rate {
                0 => sample,
                rate => rate - (rate >> 3) + (sample >> 3),
            } as f64;
        } else {
            let sample = departed as f64 / elapsed as f64;
            self.rate = match self.rate {
                0.0 => sample,
                rate => rate + RATE_WEIGHT * (sample - rate),
            };
        }
        self.departed = (backlog >= RATE_THRESHOLD).then_some(0);
        self.since = Some(t);
        Some(elapsed)
    }

    /// Returns the estimated queuing delay at a change of the probability.
    fn estimate(&self, q: &QueueView) -> u64 {
        match self.params.estimator {
            Estimator::Timestamp => self.delay,
            _ if self.rate == 0.0 => 0,
            Estimator::DepartureRate => whole_u64(q.bytes as f64 / self.rate),
            Estimator::LinuxDepartureRate => (q.bytes << 8) / whole_u64(self.rate),
        }
    }

    /// Changes the probability (RFC 8033 section 4.2, `pie_calculate_probability`).
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
        // At most 2 % in one step once it is 10 % (RFC 8033 section 5.5).
        let step = (MAX_PROB / 50).cast_signed();
        if delta > step && self.prob >= MAX_PROB / 10 {
            delta = (MAX_PROB / 100 * 2).cast_signed();
        }
        // Linux adds another 2 % while the delay is above 250 ms.
        if delay > self.high_delay {
            delta = delta.saturating_add(step);
        }
        self.prob = match self.prob.checked_add_signed(delta) {
            Some(prob) if self.params.bounded => prob.min(MAX_PROB),
            Some(prob) => prob,
            // When the probability overflows, at 256, Linux sets it to 1.
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
        // Without congestion the burst allowance is renewed (RFC 8033 section 4.4).
        let has_estimate = self.params.estimator == Estimator::Timestamp || self.rate > 0.0;
        if delay < target / 2 && delay_1 < target / 2 && self.prob == 0 && has_estimate {
            self.burst = self.max_burst;
            self.since = None;
            self.departed = None;
            self.sum = 0;
            self.rate = 0.0;
        }
        if self.params.estimator == Estimator::Timestamp {
            self.delay_1 = delay;
        }
    }
}

impl Law for Pie {
    fn drops_arrival_when_full(&self) -> bool {
        true
    }

    #[inline]
    fn on_enqueue(&mut self, _: Time, q: &QueueView, p: &PacketMeta, rng: &mut Rng) -> Verdict {
        if !self.signals_arrival(q, p.bytes, rng) {
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
        let elapsed = if self.params.estimator == Estimator::Timestamp {
            let arrived = Time::from_nanos(now.as_nanos().saturating_sub(p.sojourn.as_nanos()));
            self.delay = match q.bytes {
                0 => 0,
                _ => t - clock(arrived),
            };
            let since = self.since.replace(t);
            since.map(|since| t - since)
        } else {
            self.sample_rate(t, q.bytes, p.bytes)
        };
        if self.burst > 0 && self.params.burst_by_departures {
            self.use_burst(elapsed.unwrap_or(0));
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
        let (since, departed) = (self.since, self.departed);
        Some([
            self.prob,
            self.sum,
            self.delay,
            self.delay_1,
            self.burst,
            self.rate.to_bits(),
            since.is_some().into(),
            since.unwrap_or(0),
            departed.is_some().into(),
            departed.unwrap_or(0),
            0,
            0,
        ])
    }

    /// At a constant queue, the probability moves by the same amount at each change while the gains
    /// are constant. Without a delay it also decays.
    fn skip(&mut self, _: Time, changes: u64, q: &QueueView) {
        if !self.params.burst_by_departures {
            self.use_burst(self.interval.saturating_mul(changes));
        }
        let (mut remaining, mut rise) = (changes, 0);
        // Of two iterations, one reaches the end of a range of the probability and one leaves it; one
        // more may complete a cycle.
        for _ in 0..4 * GAIN_RANGES {
            if remaining == 0 {
                return;
            }
            let before = self.prob;
            self.change(q);
            remaining -= 1;
            let steps = match self.prob.cmp(&before) {
                Ordering::Equal => return,
                // The gains have changed, and the next change shows by how much.
                _ if range_of(self.prob) != range_of(before) => 0,
                Ordering::Greater => {
                    rise = self.prob - before;
                    let max_prob = match self.params.bounded {
                        true => MAX_PROB,
                        false => u64::MAX,
                    };
                    let last = range_of(self.prob).1.min(max_prob);
                    let steps = ((last - self.prob) / rise).min(remaining);
                    self.prob += steps * rise;
                    steps
                }
                // The probability has overflowed and restarted at 1; from here on it cycles.
                Ordering::Less if rise > 0 => {
                    remaining %= (u64::MAX - self.prob) / rise + 1;
                    0
                }
                Ordering::Less if q.bytes == 0 && self.delay == 0 => {
                    return self.skip_decay(remaining, q)
                }
                Ordering::Less => {
                    let fall = before - self.prob;
                    let steps = ((self.prob - range_of(self.prob).0) / fall).min(remaining);
                    self.prob -= steps * fall;
                    steps
                }
            };
            remaining -= steps;
        }
    }
}

impl Pie {
    /// Applies this many changes without a delay, p ← (p − c)·(1 − 1/d), in 16 parts. The gains
    /// within a part are those at its start.
    fn skip_decay(&mut self, changes: u64, q: &QueueView) {
        let factor = 1.0 - 1.0 / f64::from(self.params.decay);
        let target = ticks(self.target.delay(q)) as f64;
        let mut remaining = changes;
        while remaining > 0 && self.prob > 0 {
            let part = remaining.min(changes.div_ceil(16));
            let cut = (self.alpha >> gain_shift(self.prob)) as f64 * target;
            let decayed = factor.powf(part as f64);
            let cuts = match factor {
                0.0 => 0.0,
                1.0 => cut * part as f64,
                _ => cut * factor * (1.0 - decayed) / (1.0 - factor),
            };
            self.prob = whole_u64(self.prob as f64 * decayed - cuts);
            remaining -= part;
        }
    }
}

impl FluidLaw for Pie {
    /// The timestamp estimator needs only the last departure. The departure-rate estimators need
    /// every departure, one by one.
    fn take_fluid(&mut self, step: &FluidStep) -> bool {
        if self.params.estimator != Estimator::Timestamp {
            return false;
        }
        if step.departures > 0 {
            // `on_dequeue` draws no random numbers.
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
