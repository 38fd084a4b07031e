//! The PI controller of Hollot, Misra, Towsley and Gong.

use forebay_linux_tc::fixed_point::{FixedPointLaw, Twin};
use forebay_theory::design::{Design, DesignRequest, DesignResult, LinearLaw};
use forebay_theory::linear::{LoopFilter, OperatingPoint};
use forebay_theory::search::{self, packets, Conditions, Search, Space};
use forebay_units::{params, ParamError, ParamValues, Params, SetPoint, Site, Span};

use crate::configured_law::{fits_buffer, ConfiguredLaw};
use crate::difference::{Coefficients, QueueControl};
use crate::law::{Law, Scale, Target};
use crate::law_spec::LawSpec;
use crate::periodic::Periodic;

/// The registry entry of PI.
pub const LAW: LawSpec = LawSpec::of::<PiParams>(
    "pi",
    "PI: proportional-integral control of the queue length",
    "Hollot et al. 2002; pi-pd eq. (3), Table 1; staqm eq. (3)",
)
.with_equation("p_k = p_{k−1} + a·e_k − b·e_{k−1};  e = q − target")
.with_goals(PiGoals::SPECS)
.slowed_by("beta")
.with_search(PiParams::search);

params! {
    /// PI in the form p(k) = p(k−1) + a·(q_k − target) − b·(q_{k−1} − target).
    pub struct PiParams {
        /// Queue length or queuing delay to control.
        target: SetPoint = SetPoint::Packets(200.0), 0.0 => 1e9;
        /// Gain on this sample's error, per packet.
        a: f64 = 1.822e-5, 0.0 => 1.0;
        /// Gain on the last sample's error, per packet. With b = a there is no integral action.
        b: f64 = 1.816e-5, 0.0 => 1.0;
        /// Time between two samples; the default is 160 Hz.
        interval: Span = Span::from_micros(6250), 1e-6 => 60.0;
        /// Count the queue in bytes, in units of the link's usual packet.
        queue_in_bytes: bool = false;
    }
}

params! {
    /// Goals of PI's design rule.
    pub struct PiGoals {
        /// Crossover frequency times RTT (the responsiveness of staqm). Zero: crossover at TCP's
        /// pole, the slower rule of Hollot et al.
        beta: f64 = 0.5, 0.0 => 0.85;
    }
}

impl PiGoals {
    /// Returns K_p per packet, and K_i per packet and second, by the rule for these goals.
    pub fn gains(&self, point: &OperatingPoint) -> (f64, f64) {
        if self.beta > 0.0 {
            gains(self.beta, point)
        } else {
            design(point)
        }
    }

    /// Returns K_p and K_i, and the coefficients of their difference equation at this interval.
    pub fn controller(&self, point: &OperatingPoint, interval: Span) -> (f64, f64, Coefficients) {
        let (k_p, k_i) = self.gains(point);
        let k = Coefficients::pid(k_p, k_i, 0.0, interval.as_secs_f64());
        (k_p, k_i, k)
    }

    /// Returns the crossover frequency, at which the loop gain is one, in rad/s.
    pub fn omega_g(&self, point: &OperatingPoint) -> f64 {
        if self.beta > 0.0 {
            self.beta / point.rtt_s
        } else {
            point.tcp_pole()
        }
    }

    /// Returns a sentence that describes the rule at this operating point.
    pub fn note(&self, point: &OperatingPoint) -> String {
        format!(
            "The zero of the PI controller cancels TCP's pole at 2N/(R²C) = {:.4} rad/s, and the \
             gain puts the crossover at {:.4} rad/s, not counting the sampler and any averaging.",
            point.tcp_pole(),
            self.omega_g(point)
        )
    }
}

/// Returns PI's gains for a network (staqm section III.A): K_p per packet, K_i per packet and
/// second.
///
/// With θ_rc = N/(RC): K_p = 2β√(β²+1)·θ_rc/(RC) and K_i = (2θ_rc/R)·K_p. The zero cancels TCP's
/// pole, and the loop gain crosses one at β/R.
pub fn gains(beta: f64, point: &OperatingPoint) -> (f64, f64) {
    let k_p = point.pi_gain(beta);
    (k_p, point.tcp_pole() * k_p)
}

/// Returns the gains by the rule of Hollot et al. (pi-pd eq. 4), for the smallest number of flows
/// and the longest RTT at which the loop has to be stable: crossover is at the zero, which is TCP's
/// pole.
pub fn design(point: &OperatingPoint) -> (f64, f64) {
    gains(point.tcp_pole() * point.rtt_s, point)
}

impl PiParams {
    fn search(conditions: &Conditions) -> Search {
        let interval_s = PiParams::defaults().interval.as_secs_f64();
        let axes = [conditions.target(), conditions.k_p(), conditions.zero()];
        Search::Space(Space::with_target(axes, move |x| {
            let k = Coefficients::pid(x["k_p"], x["k_p"] * x["zero"], 0.0, interval_s);
            let (a, b) = search::gains(k.a.min(1.0), k.b.clamp(0.0, 1.0));
            vec![("target", packets(x["target"])), ("a", a), ("b", b)]
        }))
    }
}

impl ConfiguredLaw for PiParams {
    fn check(&self, site: &Site) -> Result<(), ParamError> {
        if self.b > self.a {
            // b > a reverses the sign of the integral: a long queue would decrease p.
            return Err(ParamError::new(
                "b",
                self.b,
                format!("at most {}, the value of a", self.a),
            ));
        }
        fits_buffer("target", self.target, site)
    }

    fn build(&self, site: &Site, _seed: u64) -> Result<Box<dyn Law>, ParamError> {
        self.check(site)?;
        let gains = Coefficients {
            a: self.a,
            b: self.b,
            c: 0.0,
        };
        let scale = Scale::new(site, self.queue_in_bytes);
        Ok(Box::new(Periodic::new(QueueControl::new(
            gains,
            Target::new(self.target, site),
            self.interval,
            scale,
        ))))
    }

    fn set_point(&self) -> Option<SetPoint> {
        Some(self.target)
    }

    fn theory(&self) -> Option<&dyn LinearLaw> {
        Some(self)
    }

    fn kernel(&self) -> Option<&dyn FixedPointLaw> {
        Some(self)
    }
}

impl LinearLaw for PiParams {
    fn linear(&self, point: &OperatingPoint, site: &Site) -> Option<LoopFilter> {
        let gains = Coefficients {
            a: self.a,
            b: self.b,
            c: 0.0,
        };
        let filter = gains.sampled(self.interval.as_secs_f64(), 1.0);
        LoopFilter::controlled(site.pkts(self.target), filter, point.probability())
    }

    fn design(&self, request: &DesignRequest, goals: &ParamValues) -> DesignResult {
        let goals = PiGoals::read(goals)?;
        let (k_p, k_i, k) = goals.controller(&request.point, self.interval);
        let designed = PiParams {
            target: request.set_point,
            a: k.a,
            b: k.b,
            ..self.clone()
        };
        Ok(Some(Design::of(
            vec![("a", k.a), ("b", k.b), ("k_p", k_p), ("k_i", k_i)],
            &designed,
            &["target", "a", "b", "interval"],
            vec![goals.note(&request.point)],
        )))
    }
}

impl FixedPointLaw for PiParams {
    fn twin(&self, site: &Site) -> Result<Twin, ParamError> {
        let gains = Coefficients {
            a: self.a,
            b: self.b,
            c: 0.0,
        };
        gains.twin(site.pkts(self.target), self.interval, site)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::laws::testing::{site, view};
    use forebay_units::Params;

    #[test]
    fn the_probability_follows_the_difference_equation() {
        let mut pi = PiParams::defaults().build(&site(), 0).unwrap();
        let mut sample = |packets| {
            pi.handle_timeout(pi.poll_timeout().unwrap(), &view(packets));
            pi.intensity(&view(packets)).unwrap()
        };
        // By hand for q = 300, 300, 250: errors of 100, 100 and 50.
        let mut expected = 1.822e-5 * 100.0;
        assert!((sample(300) - expected).abs() < 1e-15);
        expected += 1.822e-5 * 100.0 - 1.816e-5 * 100.0;
        assert!((sample(300) - expected).abs() < 1e-15);
        expected += 1.822e-5 * 50.0 - 1.816e-5 * 100.0;
        assert!((sample(250) - expected).abs() < 1e-15);
    }

    #[test]
    fn the_default_gains_follow_from_the_design() {
        // Hollot's example: N = 60, R = 0.2467 s, C = 3750/s, ω_g = 0.53. The printed gains follow
        // from eq. (4) without its factor |jω_g·R + 1| = 1.0084.
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
        params.target = SetPoint::Packets(801.0);
        assert_eq!(params.check(&site()).unwrap_err().key, "target");
    }
}
