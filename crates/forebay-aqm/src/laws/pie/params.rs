//! PIE's parameters, and the goals of its design rule.

use forebay_theory::linear::OperatingPoint;
use forebay_units::{params, words, Bytes, SetPoint, Span};

use super::arithmetic::{gain_shift, prob_of};

words! {
    /// PIE's estimate of the queuing delay.
    pub enum Estimator {
        /// The sojourn time of the last packet that departed (RFC 8033 section 4.3).
        Timestamp = "timestamp",
        /// The backlog over an average of the departure rate (RFC 8033 section 5.2).
        DepartureRate = "departure-rate",
        /// The same, with the rate as an integer, 256 times the bytes per 64 ns, as in Linux.
        LinuxDepartureRate = "linux-departure-rate",
    }
}

params! {
    /// PIE's parameters. The defaults are those of Linux.
    pub struct PieParams {
        /// Queuing delay to control, or a queue length, which is converted to a delay at the link's
        /// rate.
        target: SetPoint = SetPoint::Delay(Span::from_millis(15)), 0.0 => 1e9;
        /// Time between two changes of the probability (T_UPDATE).
        interval: Span = Span::from_millis(15), 1e-6 => 60.0;
        /// Gain on the distance from the target, per second, for each change.
        alpha: f64 = 0.125, 0.0 => 1000.0;
        /// Gain on the change of the delay, per second.
        beta: f64 = 1.25, 0.0 => 1000.0;
        /// Time before the first change. Linux starts after half a second.
        first_change: Span = Span::from_millis(500), 0.0 => 60.0;
        /// Length of a burst that passes without signals after a period without congestion (RFC 8033
        /// section 4.4).
        max_burst: Span = Span::from_millis(150), 0.0 => 60.0;
        /// Count the time between departures against the burst allowance, as in Linux. Otherwise each
        /// change of the probability counts as an interval (RFC 8033 section 4.4).
        burst_by_departures: bool = true;
        /// Estimator of the queuing delay.
        estimator: Estimator = Estimator::Timestamp;
        /// Backlog below which nothing is signalled. 0B: two of the link's usual packets.
        least_backlog: Bytes = Bytes(0), 0.0 => 1e9;
        /// Probability up to which ECN-capable packets are marked; above it they are dropped
        /// (RFC 8033 section 5.1).
        mark_up_to: f64 = 0.1, 0.0 => 1.0;
        /// Space signals: none before the probabilities of the packets since the last signal add up
        /// to 0.85, and one when they reach 8.5 (RFC 8033 section 5.4).
        derandomise: bool = true;
        /// Restart the sum after a mark at 8.5. Linux does not: it goes on to mark every packet until
        /// one is dropped or the probability is zero.
        restart_at_mark: bool = false;
        /// Scale the probability by the size of the packet relative to the link's usual packet.
        by_bytes: bool = false;
        /// Limit the probability to 1 (RFC 8033 section 4.2). Linux lets it grow to 256: the queue of
        /// an unresponsive flow is drained, and stays at `least_backlog` until the probability has
        /// decreased again.
        bounded: bool = false;
        /// Decay of the probability while there is no delay: each change subtracts this fraction, 1/64
        /// in Linux and 1/50 in RFC 8033 section 4.2, given as its denominator.
        decay: u32 = 64, 1.0 => 1e6;
        /// Delay above which every change adds another 2 % to the probability. 0s: none.
        high_delay: Span = Span::from_millis(250), 0.0 => 60.0;
    }
}

params! {
    /// Goals of the design rule of PIE and PI2.
    pub struct PieGoals {
        /// Crossover frequency times RTT. With 0.4, PI2 gets the beta of RFC 9332, 0.3/R.
        crossover: f64 = 0.4, 1e-3 => 0.85;
    }
}

impl PieGoals {
    /// Returns the gains from the distance to the target and from the change of the delay to the
    /// signal probability, per second. They are those of PI's rule (staqm section III.A) per packet,
    /// times the C packets in a second of delay.
    pub fn gains(&self, point: &OperatingPoint, interval: Span) -> (f64, f64) {
        let beta = point.pi_gain(self.crossover) * point.capacity_pkts_per_s;
        (point.tcp_pole() * beta * interval.as_secs_f64(), beta)
    }

    /// Returns a sentence that describes the rule at this operating point.
    pub fn note(&self, point: &OperatingPoint) -> String {
        format!(
            "The zero of the PI controller cancels TCP's pole at 2N/(R²C) = {:.4} rad/s, and the \
             gain puts the crossover at {:.4} rad/s, not counting the sampler and the measurement \
             delay.",
            point.tcp_pole(),
            self.crossover / point.rtt_s
        )
    }
}

impl PieParams {
    /// Returns the signals per packet when the law's probability is `p`. A sum that starts at zero
    /// passes 0.85 after about 0.85/p + 1/2 packets; from then on each packet is signalled at random.
    pub fn signals(&self, p: f64) -> f64 {
        if !self.derandomise || p >= 0.85 {
            return p;
        }
        p / (1.85 - 0.5 * p)
    }

    /// Returns the inverse of [`signals`](Self::signals), and its slope.
    pub fn probability(&self, signals: f64) -> (f64, f64) {
        if !self.derandomise {
            return (signals, 1.0);
        }
        let p = 1.85 * signals / (1.0 + 0.5 * signals);
        if p >= 0.85 {
            return (signals, 1.0);
        }
        (p, 1.85 / (1.85 - 0.5 * p).powi(2))
    }

    /// Returns the factor on alpha and beta at the probability that gives this many signals per
    /// packet.
    pub fn gain_at(&self, signals: f64) -> f64 {
        let (p, slope) = self.probability(signals);
        slope * 0.5f64.powi(gain_shift(prob_of(p)).cast_signed())
    }
}
