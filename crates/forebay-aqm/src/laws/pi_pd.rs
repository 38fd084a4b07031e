//! The PI-PD controller of Ryu, Ryu, Jeong and Park: integral control while the queue stays on one
//! side of its set-point, and predictive control when it crosses the set-point.

use std::f64::consts::FRAC_PI_2;

use forebay_linux_tc::fixed_point::{self, FixedPointLaw, Twin};
use forebay_theory::design::{Design, DesignRequest, DesignResult, LinearLaw};
use forebay_theory::linear::{LoopFilter, OperatingPoint};
use forebay_theory::search::{number, packets, time, Conditions, Search, Space};
use forebay_units::{params, ParamError, ParamValues, Params, SetPoint, Site, Span};

use crate::clock::{state_of, Errors, State};
use crate::configured_law::{needs_packet_buffer, ConfiguredLaw};
use crate::difference::{Coefficients, Difference};
use crate::law::{Law, Target};
use crate::law_spec::LawSpec;
use crate::periodic::{Controller, Periodic, Sample};

/// The registry entry of PI-PD.
pub const LAW: LawSpec = LawSpec::of::<PiPdParams>(
    "pi-pd",
    "PI-PD: PI while the queue stays on one side of the target, predictive PD when it crosses",
    "Ryu et al., pi-pd eq. (11)-(15), Table 1",
)
.with_equation(
    "p += alpha·(e_k + e_{k−1})/(2·target), or, as q crosses the target, alpha·(predicted e_{k+1})/(buffer − target)",
)
.with_goals(PiPdGoals::SPECS)
.with_search(PiPdParams::search);

params! {
    /// PI-PD: one gain and one sampling time.
    pub struct PiPdParams {
        /// Queue length or queuing delay to control; less than the buffer.
        target: SetPoint = SetPoint::Packets(200.0), 1e-3 => 1e9;
        /// Control gain. The paper uses 1e-6 per packet of buffer.
        alpha: f64 = 8.0e-4, 0.0 => 1.0;
        /// Time between two samples, at most target over rate, so that the queue cannot empty
        /// between two samples (section 4.1).
        interval: Span = Span::from_millis(50), 1e-6 => 60.0;
    }
}

params! {
    /// Goals of PI-PD's design rule.
    pub struct PiPdGoals {
        /// Factor by which alpha is below the gain at which the loop oscillates.
        gain_margin: f64 = 4.0, 1.0 => 1e6;
    }
}

/// Returns the longest sampling time, target/C, for which the queue cannot empty between two
/// samples. The paper uses 50 ms where this is 53.3 ms (section 4.1).
pub fn interval_bound_s(target_pkts: f64, capacity_pkts_per_s: f64) -> f64 {
    target_pkts / capacity_pkts_per_s
}

/// Returns the sampling time for a set-point: the bound in the proportion of the paper's 50 to
/// 53.3 ms, and at most a quarter of the round-trip time.
fn interval_s(target_pkts: f64, capacity_pkts_per_s: f64, rtt_s: f64) -> f64 {
    (50.0 / 53.333 * interval_bound_s(target_pkts, capacity_pkts_per_s)).min(rtt_s / 4.0)
}

/// Returns the gain at which the loop starts to oscillate on one side of the set-point. The paper
/// finds its alpha by simulation and gives no bound; this one was derived for Forebay.
///
/// Eq. (11) is an integrator by Tustin's rule. With x = ωT/2, its gain is α/(2·Q_ref)·cot x and its
/// phase −90°; the zero-order hold multiplies the gain by sin x/x and the phase by −x. The loop's
/// phase reaches −180° where atan(ω/p1) + atan(ω/p2) + ωR + x = 90°. α is the inverse of the rest
/// of the gain there.
pub fn alpha_bound(target_pkts: f64, interval_s: f64, point: &OperatingPoint) -> f64 {
    let (p1, p2) = (point.tcp_pole(), point.queue_pole());
    let delay_s = point.rtt_s + 0.5 * interval_s;
    let lag = |w: f64| (w / p1).atan() + (w / p2).atan() + w * delay_s;
    let (mut low, mut high) = (0.0, FRAC_PI_2 / delay_s);
    for _ in 0..100 {
        let middle = 0.5 * (low + high);
        if lag(middle) < FRAC_PI_2 {
            low = middle;
        } else {
            high = middle;
        }
    }
    let (omega, x) = (low, 0.5 * low * interval_s);
    let plant = point.plant_gain() / (omega.hypot(p1) * omega.hypot(p2));
    2.0 * target_pkts / (plant * x.cos() / x)
}

impl PiPdParams {
    fn search(conditions: &Conditions) -> Search {
        let (_, fastest) = conditions.capacities_pkts_per_s();
        let (shortest_s, _) = conditions.rtts_s();
        let longest_s = PiPdParams::defaults().interval.as_secs_f64();
        let axes = [conditions.target(), conditions.k_p()];
        Search::Space(Space::with_target(axes, move |x| {
            let interval_s = interval_s(x["target"], fastest, shortest_s).min(longest_s);
            vec![
                ("target", packets(x["target"])),
                ("alpha", number((x["k_p"] * x["target"]).min(1.0))),
                ("interval", time(interval_s.max(1e-3), 4)),
            ]
        }))
    }
}

impl ConfiguredLaw for PiPdParams {
    fn check(&self, site: &Site) -> Result<(), ParamError> {
        needs_packet_buffer("target", self.target, site)?;
        let target_pkts = site.pkts(self.target);
        if 0.0 < target_pkts && target_pkts < site.buffer_pkts {
            return Ok(());
        }
        // Eq. (11) divides by the set-point, and (15) by the buffer above it.
        let expected = match target_pkts > 0.0 {
            true => format!("less than {}", site.buffer_as(self.target)),
            false => "more than zero".to_owned(),
        };
        let target = format!("\"{}\"", self.target);
        Err(ParamError::new("target", target, expected))
    }

    fn build(&self, site: &Site, _seed: u64) -> Result<Box<dyn Law>, ParamError> {
        self.check(site)?;
        Ok(Box::new(Periodic::new(self.controller(site))))
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

impl LinearLaw for PiPdParams {
    /// The linear model of PI, eq. (11), which applies on one side of the set-point. In a slow
    /// oscillation only two samples per period use PD, eq. (15), which has no linear model, because
    /// its γ̂ is a ratio of samples.
    fn linear(&self, _point: &OperatingPoint, site: &Site) -> Option<LoopFilter> {
        let target_pkts = site.pkts(self.target);
        let filter = pi_gains(self.alpha, target_pkts).sampled(self.interval.as_secs_f64(), 1.0);
        (self.alpha > 0.0).then(|| LoopFilter {
            one_sided: true,
            ..LoopFilter::sampled(target_pkts, filter)
        })
    }

    fn design(&self, request: &DesignRequest, goals: &ParamValues) -> DesignResult {
        let goals = PiPdGoals::read(goals)?;
        let capacity = request.point.capacity_pkts_per_s;
        let longest_s = interval_bound_s(request.target_pkts(), capacity);
        let interval_s = interval_s(request.target_pkts(), capacity, request.point.rtt_s);
        let bound = alpha_bound(request.target_pkts(), interval_s, &request.point);
        // An integrator K/s with TCP's pole p1 has a damping ratio of ½·√(p1/K). With large windows
        // this is low although the gain margin is large. K = 2·p1 gives 0.35.
        let integral_gain = request.point.gain_at_rest() / (request.target_pkts() * interval_s);
        let damped = 2.0 * request.point.tcp_pole() / integral_gain;
        let designed = PiPdParams {
            target: request.set_point,
            alpha: (bound / goals.gain_margin).min(damped).min(1.0),
            interval: Span::from_secs_f64(interval_s),
        };
        designed.check(&request.site)?;
        Ok(Some(Design::of(
            vec![
                ("alpha", designed.alpha),
                ("interval_s", interval_s),
                ("alpha_bound", bound),
                ("alpha_damped", damped),
                ("interval_bound_s", longest_s),
            ],
            &designed,
            &["target", "alpha", "interval"],
            vec![
                format!(
                    "With samples more than target/C = {:.4} s apart the queue could empty between \
                     two of them, and with alpha above {bound:.4e} the loop oscillates.",
                    longest_s
                ),
                format!(
                    "With alpha above {damped:.4e} the loop of the integral and TCP's pole is lightly \
                     damped."
                ),
                format!(
                    "The paper's rule of thumb, 1e-6 per packet of buffer, gives {:.4e}.",
                    1e-6 * request.site.buffer_pkts
                ),
            ],
        )))
    }
}

impl FixedPointLaw for PiPdParams {
    fn twin(&self, site: &Site) -> Result<Twin, ParamError> {
        let target_pkts = site.pkts(self.target);
        let gain = |per_packet| fixed_point::gain("alpha", per_packet, site);
        let length = |key, pkts| fixed_point::length(key, pkts, site);
        Ok(Twin {
            interval: Some(self.interval),
            config: vec![
                ("target", length("target", target_pkts)?),
                (
                    "a",
                    fixed_point::difference_gain(
                        "alpha",
                        pi_gains(self.alpha, target_pkts).a,
                        site,
                    )?,
                ),
                (
                    "crossing",
                    gain(self.alpha / (site.buffer_pkts - target_pkts))?,
                ),
                ("buffer", length("buffer", site.buffer_pkts)?),
            ],
            state: Vec::new(),
        })
    }
}

/// Returns the coefficients of eq. (11), Δp = α·((e_k + e_{k−1})/2)/Q_ref.
fn pi_gains(alpha: f64, target_pkts: f64) -> Coefficients {
    let half = alpha / (2.0 * target_pkts);
    Coefficients {
        a: half,
        b: -half,
        c: 0.0,
    }
}

impl PiPdParams {
    /// Returns the controller for one queue.
    fn controller(&self, site: &Site) -> PiPd {
        PiPd {
            alpha: self.alpha,
            interval: self.interval,
            target: Target::new(self.target, site),
            target_pkts: site.pkts(self.target),
            buffer_pkts: site.buffer_pkts,
            state: Difference::default(),
        }
    }
}

/// The PI-PD controller at a queue.
struct PiPd {
    alpha: f64,
    interval: Span,
    target: Target,
    /// The target in packets at the latest sample.
    target_pkts: f64,
    buffer_pkts: f64,
    state: Difference,
}

impl PiPd {
    /// Returns γ̂_{k+1}, the predicted change of the queue in the next interval (eq. 13 and 14).
    fn predicted_change(&self, queue_pkts: f64, change: f64, change_1: f64) -> f64 {
        let same_direction = (change >= 0.0) == (change_1 >= 0.0);
        // With γ_{k−1} = 0 there is no ratio; the last change is extrapolated linearly.
        let predicted = if same_direction && change_1 != 0.0 {
            change * (change / change_1)
        } else {
            change
        };
        // Whatever the ratio, the queue cannot leave [0, B].
        predicted.clamp(-queue_pkts, self.buffer_pkts - queue_pkts)
    }

    /// Updates the target in packets for this sample, and returns the error.
    fn update_target(&mut self, s: &Sample) -> f64 {
        // After a change of the rate, a target delay may exceed the buffer.
        let max_pkts = self.buffer_pkts * (1.0 - 1e-9);
        self.target_pkts = self.target.pkts(s.q).clamp(1e-3, max_pkts.max(1e-3));
        f64::from(s.q.packets) - self.target_pkts
    }

    /// Returns the coefficients of this step: those of PI, eq. (11), or of PD, eq. (15).
    fn gains(&self, error: f64) -> Coefficients {
        let (error_1, error_2) = (self.state.error_1(), self.state.error_2());
        if (error >= 0.0) == (error_1 >= 0.0) {
            return pi_gains(self.alpha, self.target_pkts);
        }
        // Eq. (15): α·(e_k + γ̂)/(B − Q_ref), with γ̂ = ratio·(e_k − e_{k−1}). At a crossing
        // e_k ≠ e_{k−1}, so the division is safe.
        let change = error - error_1;
        let queue_pkts = error + self.target_pkts;
        let ratio = self.predicted_change(queue_pkts, change, error_1 - error_2) / change;
        let gain = self.alpha / (self.buffer_pkts - self.target_pkts);
        Coefficients {
            a: gain * (1.0 + ratio),
            b: gain * ratio,
            c: 0.0,
        }
    }
}

impl Controller for PiPd {
    fn interval(&self) -> Span {
        self.interval
    }

    fn sample(&mut self, s: &Sample) -> f64 {
        let error = self.update_target(s);
        let gains = self.gains(error);
        self.state.step(gains, error)
    }

    fn state(&self) -> Option<State> {
        let [p, e_1, e_2] = self.state.state();
        Some(state_of(&[p, e_1, e_2, self.target_pkts]))
    }

    fn skip(&mut self, first: &Sample, samples: u64) {
        let error = self.update_target(first);
        let gains = self.gains(error);
        self.state.advance(gains, &Errors::constant(error), samples);
    }

    fn set_point(&mut self, set_point: SetPoint) -> bool {
        self.target.move_to(set_point)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::laws::testing::{sampled, site, view};
    use forebay_units::Params;

    /// Returns the controller with its default parameters at pi-pd's bottleneck.
    fn law() -> PiPd {
        PiPdParams::defaults().controller(&site())
    }

    /// Returns the probability after samples of these queue lengths.
    fn run(queue_pkts: &[u32]) -> f64 {
        let mut law = law();
        queue_pkts
            .iter()
            .fold(0.0, |_, &q| sampled(&mut law, &view(q)))
    }

    #[test]
    fn on_one_side_of_the_target_the_law_is_pi() {
        // At the first sample e_{k−1} = 0 counts as "not below": α·(100/2)/200 = 2e-4. The second
        // adds α·((200 + 100)/2)/200 = 6e-4.
        assert!((run(&[300]) - 2e-4).abs() < 1e-12);
        assert!((run(&[300, 400]) - 8e-4).abs() < 1e-12);
    }

    #[test]
    fn at_a_crossing_the_law_predicts() {
        // 300, 400: p = 8e-4 as above. Then 190: the direction has changed, so the change of −210
        // is extrapolated but limited to [0, B]: Q̂ = 0, error −200, over B − Q_ref = 600.
        let expected = 8e-4 - 8e-4 * 200.0 / 600.0;
        assert!((run(&[300, 400, 190]) - expected).abs() < 1e-12);
        // 300, 250, 190 is monotone with a ratio of 60/50: γ̂ = −72, Q̂ = 118, error −82.
        let before = run(&[300, 250]);
        let expected = before - 8e-4 * 82.0 / 600.0;
        assert!((run(&[300, 250, 190]) - expected).abs() < 1e-12);
    }

    #[test]
    fn a_constant_queue_before_a_crossing_does_not_divide_by_zero() {
        // 300, 300, 150: γ_{k−1} = 0 counts as "not draining", so the change is extrapolated: Q̂ =
        // 0.
        let expected = run(&[300, 300]) - 8e-4 * 200.0 / 600.0;
        assert!((run(&[300, 300, 150]) - expected).abs() < 1e-12);
        // 100, 100, 300: both changes count as "building", but γ_{k−1} = 0: Q̂ = 500.
        assert!((run(&[100, 100, 300]) - 8e-4 * 300.0 / 600.0).abs() < 1e-12);
    }

    #[test]
    fn a_target_equal_to_the_buffer_is_refused() {
        let mut params = PiPdParams::defaults();
        params.target = SetPoint::Packets(800.0);
        assert_eq!(params.check(&site()).unwrap_err().key, "target");
    }
}
