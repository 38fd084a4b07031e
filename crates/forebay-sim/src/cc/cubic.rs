//! CUBIC (RFC 9438) over SACK recovery: the window of Linux's default sender.

use super::{CongestionControl, Extra, Sack};
use crate::sender::{Ack, Sender, Step};

/// Multiplicative decrease (RFC 9438 section 4.6).
const BETA: f64 = 0.7;
/// How fast the cubic grows, in packets per cubed second (section 5.1).
const C: f64 = 0.4;
/// Growth of the window that Reno would have, per round trip (section 4.3).
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);

pub struct Cubic;

/// A sender's place on the cubic.
#[derive(Clone, Debug, Default)]
pub struct CubicState {
    /// Window before the last reduction; the cubic's plateau.
    w_max: f64,
    /// Window before the last reduction, without fast convergence.
    prior: f64,
    /// When this stretch of congestion avoidance began.
    epoch: Option<u64>,
    /// From the epoch to the plateau, in s.
    k_s: f64,
    /// The window that Reno would have.
    w_est: f64,
    /// The stretch follows a timeout: it starts on its own plateau (section 4.8).
    after_timeout: bool,
}

fn state(sender: &mut Sender) -> &mut CubicState {
    &mut sender.extra.as_mut().expect("CUBIC senders have one").cubic
}

impl CubicState {
    fn begin(&mut self, cwnd: f64, now: u64) {
        self.epoch = Some(now);
        self.w_est = cwnd;
        if self.after_timeout || self.w_max <= cwnd {
            self.w_max = cwnd;
            self.k_s = 0.0;
        } else {
            // Figure 2 of section 4.2, with the window at the start of the stretch.
            self.k_s = ((self.w_max - cwnd) / C).cbrt();
        }
        self.after_timeout = false;
    }

    /// W_cubic, figure 1 of section 4.2.
    fn at(&self, elapsed_s: f64) -> f64 {
        C * (elapsed_s - self.k_s).powi(3) + self.w_max
    }
}

impl CongestionControl for Cubic {
    fn on_ack(&self, sender: &mut Sender, ack: &Ack, step: &mut Step) {
        Sack.on_ack(sender, ack, step);
    }

    fn on_timeout(&self, sender: &mut Sender) {
        Sack.on_timeout(sender);
        state(sender).after_timeout = true;
    }

    fn send(&self, sender: &mut Sender, step: &mut Step) {
        Sack.send(sender, step);
    }

    fn extra(&self) -> Option<Box<Extra>> {
        Sack.extra()
    }

    fn grow(&self, sender: &mut Sender, acked: u32, now: u64) {
        let cwnd = sender.cwnd;
        let rtt_s = sender.rto.srtt_ns() as f64 / 1e9;
        let cubic = state(sender);
        if cubic.epoch.is_none() {
            cubic.begin(cwnd, now);
        }
        let elapsed_s = (now - cubic.epoch.unwrap_or(now)) as f64 / 1e9;
        // Section 4.3: as fast as Reno at least.
        let alpha = if cubic.w_est >= cubic.prior {
            1.0
        } else {
            ALPHA
        };
        cubic.w_est += alpha * f64::from(acked) / cwnd;
        sender.cwnd = if cubic.at(elapsed_s) < cubic.w_est {
            cubic.w_est.max(cwnd)
        } else {
            // Sections 4.4 and 4.5: towards where the cubic will be in a round trip.
            let target = cubic.at(elapsed_s + rtt_s).clamp(cwnd, 1.5 * cwnd);
            cwnd + f64::from(acked) * (target - cwnd) / cwnd
        };
    }

    fn decrease(&self, sender: &mut Sender) -> f64 {
        let cwnd = sender.cwnd;
        let cubic = state(sender);
        cubic.prior = cwnd;
        // Fast convergence, section 4.7: leave room for a newcomer.
        cubic.w_max = if cwnd < cubic.w_max {
            cwnd * (1.0 + BETA) / 2.0
        } else {
            cwnd
        };
        cubic.epoch = None;
        BETA
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sender in congestion avoidance with this window after a reduction from `prior`.
    fn sender(prior: f64) -> Sender {
        let mut sender = Sender::counter(0.0);
        sender.extra = Cubic.extra();
        sender.cwnd = prior;
        sender.cwnd = prior * Cubic.decrease(&mut sender);
        sender
    }

    #[test]
    fn the_window_follows_the_cubic() {
        // From 1000 packets: back at the plateau after K = cbrt(300/0.4) = 9.086 s, by a window's
        // worth of ACKs each 100 ms. With so long a round trip Reno would be slower.
        let mut s = sender(1000.0);
        s.rto.measured(0, 100_000_000);
        let mut at_plateau_s = f64::NAN;
        let mut now = 0;
        while now < 12_000_000_000 {
            for _ in 0..10 {
                let acked = (s.cwnd / 10.0) as u32;
                Cubic.grow(&mut s, acked, now);
                now += 10_000_000;
            }
            if at_plateau_s.is_nan() && s.cwnd >= 999.0 {
                at_plateau_s = now as f64 / 1e9;
            }
        }
        assert!((at_plateau_s - 9.09).abs() < 1.5, "{at_plateau_s}");
        let want = C * (12.0f64 - 9.086).powi(3) + 1000.0;
        assert!((s.cwnd / want - 1.0).abs() < 0.02, "{} {want}", s.cwnd);
    }

    #[test]
    fn a_small_window_grows_as_reno_does() {
        // 10 packets and 20 ms: the cubic takes cbrt(3/0.4) = 1.96 s to come back, Reno
        // 3/ALPHA = 5.7 round trips.
        let mut s = sender(10.0);
        s.rto.measured(0, 20_000_000);
        let mut round_trips = 0;
        while s.cwnd < 10.0 {
            for i in 0..s.cwnd as u64 {
                Cubic.grow(&mut s, 1, round_trips * 20_000_000 + i);
            }
            round_trips += 1;
        }
        assert!((5..=8).contains(&round_trips), "{round_trips}");
    }

    #[test]
    fn a_second_loss_below_the_plateau_lowers_it() {
        let mut s = sender(100.0);
        assert_eq!(state(&mut s).w_max, 100.0);
        Cubic.decrease(&mut s);
        assert!((state(&mut s).w_max - 70.0 * 0.85).abs() < 1e-9);
    }
}
