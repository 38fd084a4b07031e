//! LEDBAT++ (draft-irtf-iccrg-ledbat-plus-plus-01): background transfers, which keep the queue
//! below 60 ms and give way to all others.

use std::collections::VecDeque;

use forebay_units::{Span, Time};

use super::{
    AckSample, CongestionControl, CongestionEvent, Growth, RealWindow, Window, LEAST_CWND_PKTS,
};
use crate::tcp::Config;

/// Queuing delay to keep below (section 4.1).
const TARGET: Span = Span::from_millis(60);
/// The least round trip is that of ten minutes, noted by the minute (RFC 6817 section 2.4.2).
const BASE_MINUTES: usize = 10;
const MINUTE: Span = Span::from_secs(60);
/// The current round trip is the least of the last few (section 4.1).
const CURRENT_SAMPLES: usize = 4;
/// Slow start ends at this share of the target (section 4.3).
const START_SHARE: f64 = 0.75;
/// Constant of the multiplicative decrease (section 4.2).
const DECREASE: f64 = 1.0;
/// A slowdown rests for two round trips, and the next one comes after nine times the time that it
/// took in all (section 4.4).
const REST_ROUNDS: u64 = 2;
const BETWEEN_SLOWDOWNS: u64 = 9;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Steady,
    /// At the least window until this time, to see the path without its own queue.
    Slowdown {
        until: Time,
        since: Time,
    },
    /// Back to the window from before.
    SlowStart {
        since: Time,
    },
}

#[derive(Clone, Debug)]
pub struct Ledbat {
    window: RealWindow,
    /// Least round trip of each of the last minutes, the present one last.
    base_rtts: VecDeque<Span>,
    minute: u64,
    current_rtts: VecDeque<Span>,
    phase: Phase,
    next_slowdown: Time,
    left_slow_start: bool,
}

impl Ledbat {
    fn base_rtt(&self) -> Span {
        self.base_rtts.iter().copied().min().unwrap_or_default()
    }

    fn queuing_delay(&self) -> Span {
        let current = self.current_rtts.iter().copied().min().unwrap_or_default();
        current - self.base_rtt()
    }

    /// Slower growth where the round trip is short, for such a flow would else take more than
    /// others (section 4.2).
    fn gain(&self) -> f64 {
        let base = self.base_rtt().max(Span::from_nanos(1)).as_nanos_f64();
        1.0 / (2.0 * TARGET.as_nanos_f64() / base).ceil().clamp(1.0, 16.0)
    }

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

    fn begin_slowdown(&mut self, now: Time, srtt: Span) {
        self.window.ssthresh = self.window.cwnd;
        self.window.cwnd = LEAST_CWND_PKTS;
        self.phase = Phase::Slowdown {
            until: now + REST_ROUNDS * srtt,
            since: now,
        };
    }

    /// Slow start, with the gain; true while it goes on.
    fn slow_start(&mut self, acked: f64) -> bool {
        if self.window.cwnd >= self.window.ssthresh {
            return false;
        }
        self.window.cwnd = (self.window.cwnd + self.gain() * acked).min(self.window.ssthresh);
        true
    }

    /// A packet times the gain in a round trip, less what delay above the target takes; at most
    /// half of the window in a round trip (section 4.2).
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
            // Delay ends the first slow start before loss does; the first slowdown follows two
            // round trips later (section 4.4).
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
