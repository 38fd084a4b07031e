//! CUBIC (RFC 9438) in real numbers, with ns-2's counting in slow start.

use forebay_units::Time;

use super::{CongestionControl, CongestionEvent, Growth, RealWindow};
use crate::tcp::Config;

/// Multiplicative decrease factor (RFC 9438 section 4.6).
const BETA: f64 = 0.7;
/// Coefficient of the cubic, in packets per cubed second (section 5.1).
const C: f64 = 0.4;
/// Growth of the Reno-friendly window, in packets per round trip (section 4.3).
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);

/// The congestion control CUBIC.
#[derive(Clone, Debug)]
pub struct Cubic {
    window: RealWindow,
    curve: Curve,
}

/// The state of the cubic curve.
#[derive(Clone, Debug, Default)]
struct Curve {
    /// The cubic's plateau: the window before the last reduction, or less with fast convergence.
    w_max: f64,
    /// Window before the last reduction, without fast convergence.
    prior: f64,
    /// Start of the present period of congestion avoidance.
    epoch: Option<Time>,
    /// Time from the epoch to the plateau, in s.
    k_s: f64,
    /// The window that Reno would have.
    w_est: f64,
    /// True if the period follows a timeout, so that its plateau is at its start (section 4.8).
    after_timeout: bool,
}

impl Curve {
    /// Begins a period of congestion avoidance.
    fn begin(&mut self, cwnd: f64, now: Time) {
        self.epoch = Some(now);
        self.w_est = cwnd;
        if self.after_timeout || self.w_max <= cwnd {
            self.w_max = cwnd;
            self.k_s = 0.0;
        } else {
            // Figure 2 of section 4.2, with the window at the start of the period.
            self.k_s = ((self.w_max - cwnd) / C).cbrt();
        }
        self.after_timeout = false;
    }

    /// Returns W_cubic, figure 1 of section 4.2.
    fn w_cubic(&self, elapsed_s: f64) -> f64 {
        C * (elapsed_s - self.k_s).powi(3) + self.w_max
    }
}

impl CongestionControl for Cubic {
    window_in!(window: RealWindow);

    fn new(config: &Config) -> Cubic {
        Cubic {
            window: RealWindow::new(config.window_pkts),
            curve: Curve::default(),
        }
    }

    fn grow(&mut self, growth: &Growth) {
        let cwnd = self.window.cwnd;
        if cwnd < self.window.ssthresh {
            self.window.cwnd += 1.0;
            return;
        }
        let (curve, now) = (&mut self.curve, growth.now);
        let acked = f64::from(growth.acked_pkts);
        let rtt_s = growth.srtt.as_secs_f64();
        if curve.epoch.is_none() {
            curve.begin(cwnd, now);
        }
        let elapsed_s = (now - curve.epoch.unwrap_or(now)).as_secs_f64();
        // Section 4.3: the window grows at least as fast as Reno's.
        let alpha = if curve.w_est >= curve.prior {
            1.0
        } else {
            ALPHA
        };
        curve.w_est += alpha * acked / cwnd;
        self.window.cwnd = if curve.w_cubic(elapsed_s) < curve.w_est {
            curve.w_est.max(cwnd)
        } else {
            // Sections 4.4 and 4.5: the target is the value of the cubic one round trip ahead.
            let target = curve.w_cubic(elapsed_s + rtt_s).clamp(cwnd, 1.5 * cwnd);
            cwnd + acked * (target - cwnd) / cwnd
        };
    }

    fn on_congestion_event(&mut self, event: &CongestionEvent) -> f64 {
        let cwnd = self.window.cwnd;
        let curve = &mut self.curve;
        curve.prior = cwnd;
        // Fast convergence, section 4.7: leave headroom for a new flow.
        curve.w_max = if cwnd < curve.w_max {
            cwnd * (1.0 + BETA) / 2.0
        } else {
            cwnd
        };
        curve.epoch = None;
        self.window.lower(event.in_use_pkts * BETA)
    }

    fn on_timeout(&mut self, _now: Time, _next: u32) {
        self.curve.after_timeout = true;
    }
}

#[cfg(test)]
mod tests {
    use super::super::Indication;
    use super::*;
    use crate::tcp::testing::{self, at, grow, MS};
    use forebay_units::Span;

    fn lose(flow: &mut Cubic) {
        flow.window.cwnd = testing::reduced(flow, Indication::Loss);
    }

    /// Returns a window in congestion avoidance after a reduction from `prior`.
    fn reduced(prior: f64) -> Cubic {
        let mut flow = Cubic {
            window: RealWindow {
                cwnd: prior,
                ssthresh: 0.0,
            },
            curve: Curve::default(),
        };
        lose(&mut flow);
        flow.window.ssthresh = 0.0;
        flow
    }

    #[test]
    fn the_window_follows_the_cubic() {
        // A reduction from 1000 packets reaches the plateau again after K = cbrt(300/0.4) = 9.086
        // s, with a window of ACKs per 100 ms. With so long a round trip Reno would be slower.
        let mut w = reduced(1000.0);
        let mut at_plateau_s = f64::NAN;
        let mut now = Time::ZERO;
        while now < at(12_000 * MS) {
            for _ in 0..10 {
                let acked = (w.window.cwnd / 10.0) as u32;
                grow(&mut w, now, acked, 100 * MS);
                now += 10 * MS;
            }
            if at_plateau_s.is_nan() && w.window.cwnd >= 999.0 {
                at_plateau_s = now.as_secs_f64();
            }
        }
        assert!((at_plateau_s - 9.09).abs() < 1.5, "{at_plateau_s}");
        let (cwnd, want) = (w.window.cwnd, C * (12.0f64 - 9.086).powi(3) + 1000.0);
        assert!((cwnd / want - 1.0).abs() < 0.02, "{cwnd} {want}");
    }

    #[test]
    fn a_small_window_grows_as_reno_does() {
        // 10 packets and 20 ms: the cubic takes cbrt(3/0.4) = 1.96 s to come back, Reno
        // 3/ALPHA = 5.7 round trips.
        let mut w = reduced(10.0);
        let mut round_trips = 0;
        while w.window.cwnd < 10.0 {
            for i in 0..w.window.cwnd as u64 {
                let now = at(round_trips * 20 * MS + Span::from_nanos(i));
                grow(&mut w, now, 1, 20 * MS);
            }
            round_trips += 1;
        }
        assert!((5..=8).contains(&round_trips), "{round_trips}");
    }

    #[test]
    fn a_second_loss_below_the_plateau_lowers_it() {
        let mut w = reduced(100.0);
        assert_eq!(w.curve.w_max, 100.0);
        lose(&mut w);
        assert!((w.curve.w_max - 70.0 * 0.85).abs() < 1e-9);
    }
}
