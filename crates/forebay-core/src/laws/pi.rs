//! The PI controller of Hollot, Misra, Towsley and Gong.

use crate::difference::{Coefficients, Difference};
use crate::law::{fits_buffer, Law, LawSpec, QueueView, Recipe, Scale, Site};
use crate::linear::OperatingPoint;
use crate::param::ParamError;
use crate::params;
use crate::periodic::{Controller, Periodic};
use crate::units::{Packets, Span};

pub const LAW: LawSpec = LawSpec::of::<PiParams>(
    "pi",
    "PI: proportional-integral control of the queue length",
    "Hollot et al. 2002; pi-pd eq. (3), Table 1; staqm eq. (3)",
);

params! {
    /// PI in the form p(k) = p(k−1) + a·(q_k − target) − b·(q_{k−1} − target).
    pub struct PiParams {
        /// Queue length to hold.
        target: Packets = Packets(200.0), 0.0 => 1e9;
        /// Gain on this sample's error, per packet.
        a: f64 = 1.822e-5, 0.0 => 1.0;
        /// Gain on the last sample's error, per packet; b < a, or there is no integral.
        b: f64 = 1.816e-5, 0.0 => 1.0;
        /// Time between two samples; the default is 160 Hz.
        interval: Span = Span::from_micros(6250), 1e-6 => 60.0;
        /// Count the queue in bytes, in units of the link's usual packet.
        queue_in_bytes: bool = false, 0.0 => 1.0;
    }
}

/// Gains by the rule of Hollot et al. (pi-pd eq. 4), for the fewest flows and the longest RTT to
/// be stable at: K_p per packet, K_i per packet and second. The zero cancels TCP's pole, where
/// the loop gain also crosses one.
pub fn design(point: &OperatingPoint) -> (f64, f64) {
    let omega_g = point.tcp_pole();
    // (RC)³/(2N)², the plant's gain at rest.
    let at_rest = point.plant_gain() / (point.tcp_pole() * point.queue_pole());
    let k_pi = omega_g * (omega_g / point.queue_pole()).hypot(1.0) / at_rest;
    (k_pi / omega_g, k_pi)
}

impl Recipe for PiParams {
    fn check(&self, site: &Site) -> Result<(), ParamError> {
        if self.b > self.a {
            // b > a turns the integral's sign: a long queue would lower p.
            return Err(ParamError::new("b", self.b, format!("at most a, {}", self.a)));
        }
        fits_buffer("target", self.target.0, site)
    }

    fn build(&self, site: &Site) -> Box<dyn Law> {
        let gains = Coefficients {
            a: self.a,
            b: self.b,
            c: 0.0,
        };
        let scale = Scale::new(site, self.queue_in_bytes);
        Box::new(Periodic::new(Pi::new(
            gains,
            self.target.0,
            self.interval,
            scale,
        )))
    }
}

/// PI's state; a tuner over it sets `gains`.
pub struct Pi {
    pub gains: Coefficients,
    target_pkts: f64,
    interval: Span,
    scale: Scale,
    state: Difference,
}

impl Pi {
    pub fn new(gains: Coefficients, target_pkts: f64, interval: Span, scale: Scale) -> Pi {
        Pi {
            gains,
            target_pkts,
            interval,
            scale,
            state: Difference::default(),
        }
    }
}

impl Controller for Pi {
    fn interval(&self) -> Span {
        self.interval
    }

    fn sample(&mut self, q: &QueueView) -> f64 {
        // pi-pd eq. (3)
        self.state
            .step(self.gains, self.scale.queue_pkts(q) - self.target_pkts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::laws::testing::{site, view};
    use crate::param::Params;

    #[test]
    fn follows_the_difference_equation() {
        let mut pi = PiParams::defaults().build(&site());
        let mut sample = |packets| {
            pi.handle_timeout(pi.poll_timeout().unwrap(), &view(packets));
            pi.intensity(&view(packets)).unwrap()
        };
        // By hand, q = 300, 300, 250: errors 100, 100, 50.
        let mut want = 1.822e-5 * 100.0;
        assert!((sample(300) - want).abs() < 1e-15);
        want += 1.822e-5 * 100.0 - 1.816e-5 * 100.0;
        assert!((sample(300) - want).abs() < 1e-15);
        want += 1.822e-5 * 50.0 - 1.816e-5 * 100.0;
        assert!((sample(250) - want).abs() < 1e-15);
    }

    #[test]
    fn the_default_gains_follow_from_the_design() {
        // Hollot's case: N = 60, R = 0.2467 s, C = 3750/s, ω_g = 0.53. The printed gains come out
        // as 0.53/54 985 over 0.53, without the factor |jω_g·R + 1| = 1.0084 of (4).
        let point = OperatingPoint::of_flows(60.0, 0.2467, 3750.0);
        let (k_p, k_i) = design(&point);
        let k = Coefficients::pid(k_p, k_i, 0.0, 1.0 / 160.0);
        let params = PiParams::defaults();
        let factor = (point.tcp_pole() * 0.2467).hypot(1.0);
        assert!((factor - 1.0084).abs() < 1e-4);
        assert!((k.a / (factor * params.a) - 1.0).abs() < 2e-3, "{}", k.a);
        assert!((k.b / (factor * params.b) - 1.0).abs() < 2e-3, "{}", k.b);
    }

    #[test]
    fn a_target_above_the_buffer_is_refused() {
        let mut params = PiParams::defaults();
        params.target = Packets(801.0);
        assert_eq!(params.check(&site()).unwrap_err().key, "target");
    }
}
