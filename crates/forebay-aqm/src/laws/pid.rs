//! The PID controller of Ryu and Rump, which is designed in the time domain.

use forebay_linux_tc::fixed_point::{FixedPointLaw, Twin};
use forebay_theory::design::{Design, DesignRequest, DesignResult, LinearLaw};
use forebay_theory::linear::{LoopFilter, OperatingPoint};
use forebay_theory::search::{number, packets, Conditions, Search, Space};
use forebay_units::{params, ParamError, ParamValues, Params, SetPoint, Site, Span};

use crate::configured_law::{fits_buffer, ConfiguredLaw};
use crate::difference::{Coefficients, QueueControl};
use crate::law::{Law, Scale, Target};
use crate::law_spec::LawSpec;
use crate::periodic::Periodic;

/// The registry entry of PID.
pub const LAW: LawSpec = LawSpec::of::<PidParams>(
    "pid",
    "PID: proportional-integral-derivative control of the queue length",
    "Ryu and Rump 2004; pi-pd eq. (6), (16), Table 1",
)
.with_equation("p = k_p·e + k_i·∫e dt + k_d·de/dt;  e = q − target")
.with_goals(PidGoals::SPECS)
.slowed_by("tuning")
.with_search(PidParams::search);

params! {
    /// PID on the error q − target, digitised with Tustin's rule and the backward difference.
    pub struct PidParams {
        /// Queue length or queuing delay to control.
        target: SetPoint = SetPoint::Packets(200.0), 0.0 => 1e9;
        /// Proportional gain, per packet.
        k_p: f64 = 6.2e-5, 0.0 => 10.0;
        /// Integral gain, per packet and second.
        k_i: f64 = 3.12e-5, 0.0 => 10.0;
        /// Derivative gain, in seconds per packet. Table 1 of pi-pd prints 5.1e-5; the default is a
        /// tenth of it, which follows from eq. (16) with the paper's tuning constant 0.05.
        k_d: f64 = 5.1e-6, 0.0 => 10.0;
        /// Time between two samples; the default is 29.5 Hz.
        interval: Span = Span::from_nanos(33_898_305), 1e-6 => 60.0;
    }
}

params! {
    /// Goals of PID's design rule.
    pub struct PidGoals {
        /// Overshoot of the step response, as a fraction of the step.
        overshoot: f64 = 0.05, 1e-6 => 0.999;
        /// Settling time of the step response (to within 2 %), without the integral. Zero: 2R.
        settling: Span = Span::ZERO, 0.0 => 3600.0;
        /// Factor on the designed gains. The pole placement neglects the loop's delay; the paper
        /// multiplies its result by 0.05.
        tuning: f64 = 0.05, 1e-6 => 1.0;
    }
}

impl PidGoals {
    /// Returns τ, a quarter of the settling time.
    fn time_constant_s(&self, point: &OperatingPoint) -> f64 {
        match self.settling {
            Span::ZERO => 0.5 * point.rtt_s,
            settling => 0.25 * settling.as_secs_f64(),
        }
    }

    /// Returns the pole placement for these goals.
    pub fn placement(&self, point: &OperatingPoint) -> Placement {
        place(self.overshoot, self.time_constant_s(point), point)
    }

    /// Returns sentences that describe the rule at this operating point.
    pub fn note(&self, point: &OperatingPoint) -> String {
        let placed = self.placement(point);
        format!(
            "The PD part places the poles of the plant without its delay at a natural frequency of \
             {:.4} rad/s and a damping ratio of {:.4}, for an overshoot of {:.3} %. Only the factor \
             `tuning`, here {}, allows for the delay: check the margins, which include it.",
            placed.omega_n,
            placed.xi,
            100.0 * self.overshoot,
            self.tuning,
        )
    }
}

/// The result of Ryu and Rump's pole placement.
#[derive(Clone, Copy, Debug)]
pub struct Placement {
    /// The damping ratio.
    pub xi: f64,
    /// The natural frequency, in rad/s.
    pub omega_n: f64,
    /// The proportional gain of the PD part, per packet.
    pub k_p1: f64,
    /// The derivative gain of the PD part, in seconds per packet.
    pub k_d1: f64,
    /// The proportional gain of PD and PI in series, per packet, before the tuning constant.
    pub k_p: f64,
    /// The integral gain of PD and PI in series, per packet and second.
    pub k_i: f64,
    /// The derivative gain of PD and PI in series, in seconds per packet.
    pub k_d: f64,
}

/// Places the poles by the rule of Ryu and Rump (pi-pd section 4.1). `overshoot` is a fraction of
/// the step, in (0, 1); the paper's time constant is R/2.
///
/// A PD part places the poles for the overshoot and the time constant. A PI part in series removes
/// the steady-state error.
pub fn place(overshoot: f64, time_constant_s: f64, point: &OperatingPoint) -> Placement {
    let (p1, p2, k) = (point.tcp_pole(), point.queue_pole(), point.plant_gain());
    let xi = -overshoot.ln() / std::f64::consts::PI.hypot(overshoot.ln());
    let omega_n = 1.0 / (time_constant_s * xi);
    let k_p1 = (omega_n.powi(2) - p1 * p2) / k;
    let k_d1 = (2.0 * xi * omega_n - p1 - p2) / k;
    let k_p2 = omega_n.powi(2) / (k * k_p1);
    // The paper does not print K_I2; with the zero of the PI part at TCP's pole, eq. (16) follows.
    let k_i2 = k_p2 * p1;
    Placement {
        xi,
        omega_n,
        k_p1,
        k_d1,
        // Eq. (5).
        k_p: k_p1 * k_p2 + k_d1 * k_i2,
        k_i: k_p1 * k_i2,
        k_d: k_d1 * k_p2,
    }
}

/// Refuses gains below zero, which mean that the plant alone is faster than the goals.
///
/// # Errors
/// If a gain is negative.
pub fn faster_than_plant(placed: &Placement) -> Result<(), ParamError> {
    if placed.k_p1 > 0.0 && placed.k_d1 >= 0.0 {
        return Ok(());
    }
    Err(ParamError::stated(
        "settling",
        "the settling time exceeds that of the plant alone",
        "a shorter time or more overshoot, so that no gain is negative",
    ))
}

impl PidParams {
    fn search(conditions: &Conditions) -> Search {
        let axes = [
            conditions.target(),
            conditions.k_p(),
            conditions.zero(),
            conditions.lead(),
        ];
        Search::Space(Space::with_target(axes, |x| {
            vec![
                ("target", packets(x["target"])),
                ("k_p", number(x["k_p"])),
                ("k_i", number(x["k_p"] * x["zero"])),
                ("k_d", number(x["k_p"] * x["lead"])),
            ]
        }))
    }
}

impl ConfiguredLaw for PidParams {
    fn check(&self, site: &Site) -> Result<(), ParamError> {
        fits_buffer("target", self.target, site)
    }

    fn build(&self, site: &Site, _seed: u64) -> Result<Box<dyn Law>, ParamError> {
        self.check(site)?;
        // pi-pd eq. (6) writes the integral term as T_s/(2·T_I), with K_I = 1/T_I.
        let gains = Coefficients::pid(self.k_p, self.k_i, self.k_d, self.interval.as_secs_f64());
        Ok(Box::new(Periodic::new(QueueControl::new(
            gains,
            Target::new(self.target, site),
            self.interval,
            Scale::new(site, false),
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

impl LinearLaw for PidParams {
    fn linear(&self, point: &OperatingPoint, site: &Site) -> Option<LoopFilter> {
        let interval_s = self.interval.as_secs_f64();
        let gains = Coefficients::pid(self.k_p, self.k_i, self.k_d, interval_s);
        let filter = gains.sampled(interval_s, 1.0);
        LoopFilter::controlled(site.pkts(self.target), filter, point.probability())
    }

    fn design(&self, request: &DesignRequest, goals: &ParamValues) -> DesignResult {
        let goals = PidGoals::read(goals)?;
        let placed = goals.placement(&request.point);
        faster_than_plant(&placed)?;
        let designed = PidParams {
            target: request.set_point,
            k_p: goals.tuning * placed.k_p,
            k_i: goals.tuning * placed.k_i,
            k_d: goals.tuning * placed.k_d,
            ..self.clone()
        };
        let k = Coefficients::pid(
            designed.k_p,
            designed.k_i,
            designed.k_d,
            self.interval.as_secs_f64(),
        );
        Ok(Some(Design::of(
            vec![
                ("k_p", designed.k_p),
                ("k_i", designed.k_i),
                ("k_d", designed.k_d),
                ("a", k.a),
                ("b", k.b),
                ("c", k.c),
                ("k_p_placed", placed.k_p),
                ("k_i_placed", placed.k_i),
                ("k_d_placed", placed.k_d),
            ],
            &designed,
            &["target", "k_p", "k_i", "k_d", "interval"],
            vec![goals.note(&request.point)],
        )))
    }
}

impl FixedPointLaw for PidParams {
    fn twin(&self, site: &Site) -> Result<Twin, ParamError> {
        let gains = Coefficients::pid(self.k_p, self.k_i, self.k_d, self.interval.as_secs_f64());
        gains.twin(site.pkts(self.target), self.interval, site)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::laws::testing::{site, view};
    use forebay_units::{Params, Time};

    #[test]
    fn the_design_rule_gives_equation_16() {
        // N = 60, C = 3750/s, overshoot 5 %, R = 0.246 s.
        let point = OperatingPoint::of_flows(60.0, 0.246, 3750.0);
        let Placement { k_p, k_i, k_d, .. } = place(0.05, 0.5 * point.rtt_s, &point);
        for (actual, expected) in [(k_p, 1.24e-3), (k_i, 6.23e-4), (k_d, 1.02e-4)] {
            assert!(
                (actual / expected - 1.0).abs() < 0.01,
                "{actual} {expected}"
            );
        }
    }

    #[test]
    fn the_default_gains_follow_from_the_design() {
        // pi-pd eq. (16) times the tuning constant 0.05 (section 4.1).
        let params = PidParams::defaults();
        for (actual, designed) in [
            (params.k_p, 1.24e-3),
            (params.k_d, 1.02e-4),
            (params.k_i, 6.23e-4),
        ] {
            assert!((actual / (0.05 * designed) - 1.0).abs() < 0.005, "{actual}");
        }
    }

    #[test]
    fn a_constant_error_gives_hand_computed_probabilities() {
        let mut law = PidParams::defaults().build(&site(), 0).unwrap();
        let mut p = Vec::new();
        for _ in 0..3 {
            law.handle_timeout(law.poll_timeout().unwrap(), &view(300));
            p.push(law.intensity(&view(300)).unwrap());
        }
        // T = 1/29.5: K_D/T = 1.5045e-4, K_I·T/2 = 5.288e-7; error 100.
        // a = 2.12979e-4, b = 3.62371e-4, c = 1.5045e-4.
        let expected = [2.12979e-2, 6.3586e-3, 6.4644e-3];
        for (actual, expected) in p.iter().zip(expected) {
            assert!(
                (actual / expected - 1.0).abs() < 1e-4,
                "{actual} {expected}"
            );
        }
        assert_eq!(law.poll_timeout(), Some(Time::from_nanos(4 * 33_898_305)));
    }
}
