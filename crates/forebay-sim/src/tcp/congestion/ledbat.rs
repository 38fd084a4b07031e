//! LEDBAT++ (draft-irtf-iccrg-ledbat-plus-plus-01) for background transfers: it keeps the queuing
//! delay below 60 ms and yields to other flows.

use std::collections::VecDeque;

use forebay_units::{Span, Time};

use super::{
    AckSample, CongestionControl, CongestionEvent, Growth, RealWindow, Window, LEAST_CWND_PKTS,
};
use crate::tcp::Config;

/// Target of the queuing delay (section 4.1).
const TARGET: Span = Span::from_millis(60);
/// Number of minutes over which the base round-trip time is the least; one value is kept per minute
/// (RFC 6817 section 2.4.2).
const BASE_MINUTES: usize = 10;
const MINUTE: Span = Span::from_secs(60);
/// Number of samples whose least is the current round-trip time (section 4.1).
const CURRENT_SAMPLES: usize = 4;
/// Fraction of the target at which slow start ends (section 4.3).
const START_SHARE: f64 = 0.75;
/// Constant of the multiplicative decrease (section 4.2).
const DECREASE: f64 = 1.0;
/// Number of round trips that a slowdown stays at the smallest window (section 4.4).
const REST_ROUNDS: u64 = 2;
/// Time between two slowdowns, in multiples of the duration of the last one with its slow start
/// (section 4.4).
const BETWEEN_SLOWDOWNS: u64 = 9;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Steady,
    /// The window is the smallest one until this time, so that the path is measured without the
    /// flow's own queue.
    Slowdown {
        until: Time,
        since: Time,
    },
    /// Slow start back to the window from before the slowdown.
    SlowStart {
        since: Time,
    },
}

/// The congestion control LEDBAT++.
#[derive(Clone, Debug)]
pub struct Ledbat {
    window: RealWindow,
    /// Least round-trip time of each of the last minutes, the present one last.
    base_rtts: VecDeque<Span>,
    minute: u64,
    current_rtts: VecDeque<Span>,
    phase: Phase,
    next_slowdown: Time,
    left_slow_start: bool,
}

impl Ledbat {
    /// Returns the least round-trip time of the last minutes, which approximates the path without a
    /// queue.
    fn base_rtt(&self) -> Span {
        self.base_rtts.iter().copied().min().unwrap_or_default()
    }

    /// Returns the current queuing delay.
    fn queuing_delay(&self) -> Span {
        let current = self.current_rtts.iter().copied().min().unwrap_or_default();
        current - self.base_rtt()
    }

    /// Returns the factor that slows growth for short round trips, which would otherwise give the
    /// flow more than its share (section 4.2).
    fn gain(&self) -> f64 {
        let base = self.base_rtt().max(Span::from_nanos(1)).as_nanos_f64();
        1.0 / (2.0 * TARGET.as_nanos_f64() / base).ceil().clamp(1.0, 16.0)
    }

    /// Takes a sample of the round-trip time.
    fn record_rtt(&mut self, now: Time, rtt: Span) {
        let minute = now.since_start() / MINUTE;
        if self.base_rtts.is_empty() || minute > self.minute {
            self.minute = minute;
            self.base_rtts.push_back(rtt);
            if self.base_rtts.len() > BASE_MINUTES {
                self.base_rtts.pop_front();
            }
        }
        if let Some(least) = self.base_rtts.back_mut() {
            *least = rtt.min(*least);
        }
        self.current_rtts.push_back(rtt);
        if self.current_rtts.len() > CURRENT_SAMPLES {
            self.current_rtts.pop_front();
        }
    }

    /// Begins a slowdown, after which slow start leads back to the present window.
    fn begin_slowdown(&mut self, now: Time, srtt: Span) {
        self.window.ssthresh = self.window.cwnd;
        self.window.cwnd = LEAST_CWND_PKTS;
        self.phase = Phase::Slowdown {
            until: now + REST_ROUNDS * srtt,
            since: now,
        };
    }

    /// Grows the window in slow start, scaled by the gain; false if slow start is over.
    fn slow_start(&mut self, acked: f64) -> bool {
        if self.window.cwnd >= self.window.ssthresh {
            return false;
        }
        self.window.cwnd = (self.window.cwnd + self.gain() * acked).min(self.window.ssthresh);
        true
    }

    /// Changes the window in congestion avoidance: it grows by the gain times one packet per round
    /// trip, and falls with delay above the target, by at most half per round trip (section 4.2).
    fn avoid_congestion(&mut self, acked: f64) {
        let over = self.queuing_delay().as_nanos_f64() / TARGET.as_nanos_f64();
        let cwnd = self.window.cwnd;
        let change = match over <= 1.0 {
            true => self.gain(),
            false => (self.gain() - DECREASE * cwnd * (over - 1.0)).max(-cwnd / 2.0),
        };
        self.window.cwnd = (cwnd + change * acked / cwnd).max(LEAST_CWND_PKTS);
    }
}

impl CongestionControl for Ledbat {
    window_in!(window: RealWindow);

    fn new(config: &Config) -> Ledbat {
        Ledbat {
            window: RealWindow::new(config.window_pkts),
            base_rtts: VecDeque::new(),
            minute: 0,
            current_rtts: VecDeque::new(),
            phase: Phase::Steady,
            next_slowdown: Time::NEVER,
            left_slow_start: false,
        }
    }

    fn on_ack(&mut self, sample: &AckSample) {
        if let Some(rtt) = sample.rtt {
            self.record_rtt(sample.now, rtt);
        }
        match self.phase {
            Phase::Slowdown { until, since } if sample.now >= until => {
                self.phase = Phase::SlowStart { since };
            }
            Phase::SlowStart { since } if self.window.cwnd >= self.window.ssthresh => {
                self.next_slowdown = sample.now + BETWEEN_SLOWDOWNS * (sample.now - since);
                self.phase = Phase::Steady;
            }
            Phase::Steady if sample.now >= self.next_slowdown => {
                self.begin_slowdown(sample.now, sample.srtt)
            }
            Phase::Steady | Phase::Slowdown { .. } | Phase::SlowStart { .. } => {}
        }
    }

    fn grow(&mut self, growth: &Growth) {
        let acked = f64::from(growth.acked_pkts);
        if matches!(self.phase, Phase::Slowdown { .. }) {
            return;
        }
        if !self.left_slow_start {
            // Delay ends the first slow start, usually before a loss does. The first slowdown
            // follows two round trips later (section 4.4).
            let late = self.queuing_delay().as_nanos_f64() > START_SHARE * TARGET.as_nanos_f64();
            if late || self.window.cwnd >= self.window.ssthresh {
                self.left_slow_start = true;
                self.window.ssthresh = self.window.cwnd;
                self.next_slowdown = growth.now + REST_ROUNDS * growth.srtt;
            }
        }
        if !self.slow_start(acked) {
            self.avoid_congestion(acked);
        }
    }

    fn on_congestion_event(&mut self, _event: &CongestionEvent) -> f64 {
        self.left_slow_start = true;
        if self.next_slowdown == Time::NEVER {
            self.next_slowdown = Time::ZERO;
        }
        self.window.lower(self.window.cwnd() / 2.0)
    }
}
