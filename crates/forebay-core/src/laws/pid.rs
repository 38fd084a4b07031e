//! The PID controller of Ryu and Rump, designed in the time domain.

use crate::difference::{Coefficients, Difference};
use crate::law::{fits_buffer, Law, LawSpec, QueueView, Recipe, Site};
use crate::linear::OperatingPoint;
use crate::param::ParamError;
use crate::params;
use crate::periodic::{Controller, Periodic};
use crate::units::{Packets, Span};

pub const LAW: LawSpec = LawSpec::of::<PidParams>(
    "pid",
    "PID: proportional-integral-derivative control of the queue length",
    "Ryu and Rump 2004; pi-pd eq. (6), (16), Table 1",
);

params! {
    /// PID on the error q − target, digitised with Tustin's rule and the backward difference.
    pub struct PidParams {
        /// Queue length to hold.
        target: Packets = Packets(200.0), 0.0 => 1e9;
        /// Proportional gain, per packet.
        k_p: f64 = 6.2e-5, 0.0 => 10.0;
        /// Integral gain, per packet and second.
        k_i: f64 = 3.12e-5, 0.0 => 10.0;
        /// Derivative gain, seconds per packet. Table 1 prints 5.1e-5; ten times less follows
        /// from (16) with the paper's tuning constant 0.05, and is the default.
        k_d: f64 = 5.1e-6, 0.0 => 10.0;
        /// Time between two samples; the default is 29.5 Hz.
        interval: Span = Span::from_nanos(33_898_305), 1e-6 => 60.0;
    }
}

/// Gains K_P, K_I, K_D by Ryu and Rump's pole placement (pi-pd section 4.1), before the paper's
/// tuning constant. `overshoot` is a share of the step, in (0, 1).
///
/// A PD part puts the poles where the overshoot and a time constant of R/2 ask for; a PI part in
/// series removes the error at rest.
pub fn design(overshoot: f64, point: &OperatingPoint) -> (f64, f64, f64) {
    let (p1, p2, k) = (point.tcp_pole(), point.queue_pole(), point.plant_gain());
    let xi = -overshoot.ln() / std::f64::consts::PI.hypot(overshoot.ln());
    let omega_n = 2.0 / (point.rtt_s * xi);
    let k_p1 = (omega_n.powi(2) - p1 * p2) / k;
    let k_d1 = (2.0 * xi * omega_n - p1 - p2) / k;
    let k_p2 = omega_n.powi(2) / (k * k_p1);
    // The paper does not print K_I2; with the PI part's zero on TCP's pole, (16) follows.
    let k_i2 = k_p2 * p1;
    // (5)
    (k_p1 * k_p2 + k_d1 * k_i2, k_p1 * k_i2, k_d1 * k_p2)
}

impl Recipe for PidParams {
    fn check(&self, site: &Site) -> Result<(), ParamError> {
        fits_buffer("target", self.target.0, site)
    }

    fn build(&self, _site: &Site) -> Box<dyn Law> {
        Box::new(Periodic::new(Pid {
            target_pkts: self.target.0,
            interval: self.interval,
            // pi-pd eq. (6) writes the integral term as T_s/(2·T_I), with K_I = 1/T_I.
            gains: Coefficients::pid(self.k_p, self.k_i, self.k_d, self.interval.as_secs_f64()),
            state: Difference::default(),
        }))
    }
}

struct Pid {
    target_pkts: f64,
    interval: Span,
    gains: Coefficients,
    state: Difference,
}

impl Controller for Pid {
    fn interval(&self) -> Span {
        self.interval
    }

    fn sample(&mut self, q: &QueueView) -> f64 {
        self.state
            .step(self.gains, f64::from(q.packets) - self.target_pkts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::laws::testing::{site, view};
    use crate::param::Params;
    use crate::units::Time;

    #[test]
    fn the_design_gives_equation_16() {
        // N = 60, C = 3750/s, overshoot 5 %, R = 0.246 s.
        let point = OperatingPoint::of_flows(60.0, 0.246, 3750.0);
        let (k_p, k_i, k_d) = design(0.05, &point);
        for (got, want) in [(k_p, 1.24e-3), (k_i, 6.23e-4), (k_d, 1.02e-4)] {
            assert!((got / want - 1.0).abs() < 0.01, "{got} {want}");
        }
    }

    #[test]
    fn the_default_gains_follow_from_the_design() {
        // pi-pd (16) times the tuning constant 0.05 (section 4.1).
        let params = PidParams::defaults();
        for (got, designed) in [
            (params.k_p, 1.24e-3),
            (params.k_d, 1.02e-4),
            (params.k_i, 6.23e-4),
        ] {
            assert!((got / (0.05 * designed) - 1.0).abs() < 0.005, "{got}");
        }
    }

    #[test]
    fn a_held_error_is_answered_by_hand_computed_steps() {
        let mut law = PidParams::defaults().build(&site());
        let mut p = Vec::new();
        for _ in 0..3 {
            law.handle_timeout(law.poll_timeout().unwrap(), &view(300));
            p.push(law.intensity(&view(300)).unwrap());
        }
        // T = 1/29.5: K_D/T = 1.5045e-4, K_I·T/2 = 5.288e-7; error 100.
        // a = 2.12979e-4, b = 3.62371e-4, c = 1.5045e-4.
        let want = [2.12979e-2, 6.3586e-3, 6.4644e-3];
        for (got, want) in p.iter().zip(want) {
            assert!((got / want - 1.0).abs() < 1e-4, "{got} {want}");
        }
        assert_eq!(law.poll_timeout(), Some(Time::from_nanos(4 * 33_898_305)));
    }
}
