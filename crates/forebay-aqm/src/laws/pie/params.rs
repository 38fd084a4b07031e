//! PIE's parameters, and the goals of its design rule.

use forebay_theory::linear::OperatingPoint;
use forebay_units::{params, words, Bytes, SetPoint, Span};

use super::arithmetic::{gain_shift, prob_of};

words! {
    /// How PIE learns the queuing delay.
    pub enum Estimator {
        /// As long as the last packet that left has waited (RFC 8033 section 4.3).
        Timestamp = "timestamp",
        /// The backlog over an average of the departure rate (RFC 8033 section 5.2).
        DepartureRate = "departure-rate",
        /// The same, with the rate in whole bytes per 64 ns times 256, as Linux has it.
        LinuxDepartureRate = "linux-departure-rate",
    }
}

params! {
    /// PIE's parameters. Defaults are those of Linux.
    pub struct PieParams {
        /// Queuing delay to hold, or a queue length as the delay it has at the link's rate.
        target: SetPoint = SetPoint::Delay(Span::from_millis(15)), 0.0 => 1e9;
        /// Time between two changes of the probability (T_UPDATE).
        interval: Span = Span::from_millis(15), 1e-6 => 60.0;
        /// Gain on the distance to the target, per second; applied at every change.
        alpha: f64 = 0.125, 0.0 => 1000.0;
        /// Gain on the change of the delay, per second.
        beta: f64 = 1.25, 0.0 => 1000.0;
        /// Time before the first change; Linux takes half a second.
        first_change: Span = Span::from_millis(500), 0.0 => 60.0;
        /// How long a burst is let through after a time without congestion (RFC 8033 section 4.4).
        max_burst: Span = Span::from_millis(150), 0.0 => 60.0;
        /// The time between departures uses up the burst allowance, as in Linux; false: each
        /// change of the probability takes an interval (RFC 8033 section 4.4).
        burst_by_departures: bool = true;
        /// How the delay is estimated.
        estimator: Estimator = Estimator::Timestamp;
        /// Backlog below which nothing is signalled; 0B takes two of the link's usual packets.
        least_backlog: Bytes = Bytes(0), 0.0 => 1e9;
        /// Probability up to which ECN-capable packets are marked; above it they are dropped
        /// (RFC 8033 section 5.1).
        mark_up_to: f64 = 0.1, 0.0 => 1.0;
        /// Spaces signals: none before the probabilities of the packets since the last one add up
        /// to 0.85, and one at 8.5 (RFC 8033 section 5.4).
        derandomise: bool = true;
        /// A mark at the sum of 8.5 begins the sum anew. Linux does not do that: it goes on to
        /// mark every packet until one is dropped or the probability is zero.
        restart_at_mark: bool = false;
        /// Scales the probability by the size of the packet over the link's usual one.
        by_bytes: bool = false;
        /// The probability stays at most 1 (RFC 8033 section 4.2). Linux lets it grow to 256: a
        /// flow that does not answer has its queue drained, and kept at `least_backlog` for as
        /// long as the probability takes to come down.
        bounded: bool = false;
        /// Part of the probability that a change takes off while there is no delay: one in 64 in
        /// Linux, one in 50 in RFC 8033 section 4.2.
        decay: u32 = 64, 1.0 => 1e6;
        /// Delay above which every change adds another 2 % to the probability; 0s for none.
        high_delay: Span = Span::from_millis(250), 0.0 => 60.0;
    }
}

params! {
    /// What PIE is designed for.
    pub struct PieGoals {
        /// Crossover frequency times RTT; 0.4 gives PI2 RFC 9332's beta, 0.3/R.
        crossover: f64 = 0.4, 1e-3 => 0.85;
    }
}

impl PieGoals {
    /// Gains on the distance to the target and on the change of the delay, of a signal
    /// probability, per second: PI's rule (staqm section III.A), per packet, at C packets per
    /// second of delay.
    pub fn gains(&self, point: &OperatingPoint, interval: Span) -> (f64, f64) {
        let beta = point.pi_gain(self.crossover) * point.capacity_pkts_per_s;
        (point.tcp_pole() * beta * interval.as_secs_f64(), beta)
    }

    pub fn note(&self, point: &OperatingPoint) -> String {
        format!(
            "The zero of the PI controller cancels TCP's pole at 2N/(R²C) = {:.4} rad/s, and the \
             gain puts the crossover at {:.4} rad/s, not counting the sampler and the age of the \
             delay that the law sees.",
            point.tcp_pole(),
            self.crossover / point.rtt_s
        )
    }
}

impl PieParams {
    /// Signals per packet where the law's probability is `p`. A sum that starts at zero passes
    /// 0.85 after 0.85/p packets, half a packet more or less, and then draws.
    pub fn signals(&self, p: f64) -> f64 {
        if !self.derandomise || p >= 0.85 {
            return p;
        }
        p / (1.85 - 0.5 * p)
    }

    /// The inverse of [`signals`](Self::signals), and its slope there.
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

    /// How many times smaller the gains are than alpha and beta where the link needs this
    /// probability of signals.
    pub fn gain_at(&self, signals: f64) -> f64 {
        let (p, slope) = self.probability(signals);
        slope * 0.5f64.powi(gain_shift(prob_of(p)).cast_signed())
    }
}
