//! Estimators of what a router can learn about the network from its own queue: the capacity available
//! to TCP, and TCP's load on it (staqm section III.B).

use forebay_units::{Span, Time};

/// A first-order low-pass filter, θ' = (x − θ)/τ, advanced exactly over each step.
#[derive(Clone, Copy, Debug)]
pub struct LowPass {
    /// The filter's output.
    pub value: f64,
    time_constant_s: f64,
}

impl LowPass {
    /// Creates a filter whose output is `start`.
    pub fn new(start: f64, time_constant: Span) -> LowPass {
        LowPass {
            value: start,
            time_constant_s: time_constant.as_secs_f64(),
        }
    }

    /// Advances the filter by `step_s` seconds of constant `input`.
    pub fn advance(&mut self, input: f64, step_s: f64) {
        let weight = -(-step_s / self.time_constant_s).exp_m1();
        self.value += weight * (input - self.value);
    }
}

/// The capacity estimate θ_c: departures per time that the link was busy, smoothed.
///
/// The filter advances by busy time, so that an interval in which the link hardly sent has hardly any
/// weight. If the link is always busy, this is staqm's θ_c' = −K_c θ_c + K_c Ĉ.
#[derive(Debug)]
pub struct CapacityEstimate {
    filter: LowPass,
    departed_pkts: f64,
    busy_s: f64,
    /// The time since which the link has been busy in this interval; `None` while it is idle.
    busy_since: Option<Time>,
}

impl CapacityEstimate {
    /// Creates an estimate that is `start_pkts_per_s` until the first measurement.
    pub fn new(start_pkts_per_s: f64, time_constant: Span) -> CapacityEstimate {
        CapacityEstimate {
            filter: LowPass::new(start_pkts_per_s, time_constant),
            departed_pkts: 0.0,
            busy_s: 0.0,
            busy_since: None,
        }
    }

    /// Counts a packet that starts its transmission as `pkts` packets; zero if it does not belong to
    /// TCP.
    pub fn departure(&mut self, now: Time, pkts: f64) {
        self.departed_pkts += pkts;
        self.busy_since.get_or_insert(now);
    }

    /// Ends the busy time: the link has run out of packets.
    pub fn idle(&mut self, now: Time) {
        if let Some(since) = self.busy_since.take() {
            self.busy_s += now.since(since).as_secs_f64();
        }
    }

    /// Ends a measurement interval and updates the estimate.
    pub fn update(&mut self, now: Time) {
        if let Some(since) = self.busy_since {
            self.busy_s += now.since(since).as_secs_f64();
            self.busy_since = Some(now.max(since));
        }
        if self.busy_s > 0.0 {
            self.filter
                .advance(self.departed_pkts / self.busy_s, self.busy_s);
            self.busy_s = 0.0;
            self.departed_pkts = 0.0;
        }
    }

    /// Returns the estimate in packets per second.
    pub fn pkts_per_s(&self) -> f64 {
        self.filter.value
    }

    /// Returns the time since which the link has been busy in this interval; `None` while it is
    /// idle.
    pub fn busy_since(&self) -> Option<Time> {
        self.busy_since
    }
}

/// The load estimate θ_rc of N/(RC), inferred from the signal probability by TCP's throughput relation
/// √(p/2) = N/(RC), smoothed. It is too low if packets are also lost for other reasons.
#[derive(Debug)]
pub struct LoadEstimate(LowPass);

impl LoadEstimate {
    /// Creates an estimate of N/(RC) that is `start` until the first measurement.
    pub fn new(start: f64, time_constant: Span) -> LoadEstimate {
        LoadEstimate(LowPass::new(start, time_constant))
    }

    /// Advances the estimate by `interval` with the signal probability `p`.
    pub fn update(&mut self, p: f64, interval: Span) {
        self.0.advance((p / 2.0).sqrt(), interval.as_secs_f64());
    }

    /// Returns the estimate of N/(RC).
    pub fn value(&self) -> f64 {
        self.0.value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::ZERO + Span::from_millis(ms)
    }

    #[test]
    fn the_filter_does_not_depend_on_the_step() {
        let mut fine = LowPass::new(0.0, Span::from_secs(5));
        let mut coarse = fine;
        (0..1000).for_each(|_| fine.advance(1.0, 0.005));
        coarse.advance(1.0, 5.0);
        // One time constant: 1 − 1/e.
        assert!((coarse.value - 0.632_120_558_8).abs() < 1e-9);
        assert!((fine.value - coarse.value).abs() < 1e-9);
    }

    #[test]
    fn a_busy_link_shows_its_capacity() {
        let mut capacity = CapacityEstimate::new(1000.0, Span::from_secs(5));
        // Two packets per ms, always busy, an update every 10 ms, for 5 s: twice the old rate.
        for ms in 0..5000 {
            capacity.departure(at(ms), 1.0);
            capacity.departure(at(ms), 1.0);
            if ms % 10 == 9 {
                capacity.update(at(ms + 1));
            }
        }
        // One time constant from 1000 to 2000.
        let want = 2000.0 - 1000.0 / std::f64::consts::E;
        let got = capacity.pkts_per_s();
        assert!((got - want).abs() < 1e-6 * want, "{got} {want}");
    }

    #[test]
    fn idle_time_does_not_lower_the_estimate() {
        // A packet takes 1 ms, and one arrives every 10 ms. The link could carry 1000 packets/s.
        let mut capacity = CapacityEstimate::new(1000.0, Span::from_secs(1));
        for k in 0..3000 {
            capacity.departure(at(10 * k), 1.0);
            capacity.idle(at(10 * k + 1));
            if k % 7 == 6 {
                capacity.update(at(10 * k + 5));
            }
        }
        assert!((capacity.pkts_per_s() - 1000.0).abs() < 1e-6);
        // A long silence does not lower it either.
        capacity.update(at(1_000_000));
        assert!((capacity.pkts_per_s() - 1000.0).abs() < 1e-6);
    }

    #[test]
    fn packets_of_other_protocols_reduce_the_capacity() {
        let mut capacity = CapacityEstimate::new(1000.0, Span::from_millis(100));
        // Every fourth packet is not TCP's: 750 packets/s are left.
        for ms in 0..4000 {
            capacity.departure(at(ms), if ms % 4 == 0 { 0.0 } else { 1.0 });
            if ms % 20 == 19 {
                capacity.update(at(ms + 1));
            }
        }
        assert!((capacity.pkts_per_s() - 750.0).abs() < 1e-6);
    }

    #[test]
    fn the_load_follows_the_throughput_relation() {
        let mut load = LoadEstimate::new(0.0, Span::from_secs(10));
        // N = 60, R = 0.25 s, C = 3750/s: N/(RC) = 0.064, so p = 2·0.064² = 8.192e-3.
        (0..160 * 200).for_each(|_| load.update(8.192e-3, Span::from_micros(6250)));
        assert!((load.value() - 0.064).abs() < 1e-9, "{}", load.value());
    }
}
