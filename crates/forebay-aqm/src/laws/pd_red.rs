//! PD-RED of Sun, Ko, Chen, Chan and Zukerman: RED whose max_p is moved by a PD controller.

use forebay_linux_tc::fixed_point::{self, FixedPointLaw, Twin};
use forebay_theory::design::{Design, DesignRequest, DesignResult, LinearLaw};
use forebay_theory::linear::{Average, LoopFilter, OperatingPoint};
use forebay_theory::search::{number, packets, Conditions, Search, Space};
use forebay_units::{params, Packets, ParamError, ParamValues, Params, SetPoint, Site, Span, Time};

use crate::clock::{state_of, Errors, State};
use crate::configured_law::{fits_buffer, needs_packet_buffer, ConfiguredLaw};
use crate::difference::{Coefficients, Difference};
use crate::law::{Law, QueueView, Target};
use crate::law_spec::LawSpec;
use crate::laws::pi::PiGoals;
use crate::laws::red::{signals_per_probability, Red, RedParams};
use crate::tuner::{Tuned, Tuner};

/// The registry entry of PD-RED.
pub const LAW: LawSpec = LawSpec::of::<PdRedParams>(
    "pd-red",
    "PD-RED: RED whose max_p follows proportional-derivative control of the average queue",
    "Sun et al. 2003; pd-red eq. (1), (3)",
)
.with_equation("RED;  max_p += k_p·e_k + k_d·(e_k − e_{k−1});  e = (avg − target)/buffer")
.with_goals(PiGoals::SPECS)
.slowed_by("beta")
.with_search(PdRedParams::search);

params! {
    /// PD-RED: the parameters of RED and of the controller, with the values of the paper.
    pub struct PdRedParams {
        /// Average queue length or queuing delay to control.
        target: SetPoint = SetPoint::Packets(400.0), 0.0 => 1e9;
        /// Proportional gain of max_p on the error relative to the buffer, per sample.
        k_p: f64 = 0.001, 0.0 => 1e6;
        /// Derivative gain of max_p on the change of that error from sample to sample.
        k_d: f64 = 0.05, 0.0 => 1e6;
        /// Time between two samples.
        interval: Span = Span::from_millis(10), 1e-6 => 60.0;
        /// Average queue below which nothing is signalled.
        min_th: Packets = Packets(15.0), 0.0 => 1e9;
        /// Average queue at which the probability reaches max_p.
        max_th: Packets = Packets(785.0), 0.0 => 1e9;
        /// Initial probability at max_th.
        max_p: f64 = 0.01, 1e-12 => 1.0;
        /// Weight of an arrival in the average.
        w_q: f64 = 0.002, 1e-12 => 1.0;
        /// Above max_th, let the probability rise linearly to 1 at twice max_th. The slope there is
        /// that of the initial max_p, as in ns-2.35, which can trap the average above max_th.
        gentle: bool = false;
        /// Space signals by at least 1/p packets.
        wait: bool = true;
        /// Average bytes instead of packets.
        queue_in_bytes: bool = false;
        /// Make the probability proportional to the size of the packet.
        by_size: bool = false;
    }
}

impl PdRedParams {
    /// Returns the coefficients of pd-red eq. (3): a = k_p + k_d and b = k_d. Unlike that of a PID
    /// controller, this k_p is an integral gain, because it acts on e and not on its change.
    fn coefficients(&self) -> Coefficients {
        Coefficients {
            a: self.k_p + self.k_d,
            b: self.k_d,
            c: 0.0,
        }
    }

    /// Returns thresholds around the target in the proportions of the paper: 15 and 785 around 400.
    fn thresholds(target_pkts: f64) -> (f64, f64) {
        let min_th = (15.0 / 400.0) * target_pkts;
        (min_th, 2.0 * target_pkts - min_th)
    }

    /// Returns the gain from the controller's output to the signal probability that TCP sees, with
    /// the average midway between RED's thresholds, per packet of error.
    fn path(&self, buffer_pkts: f64) -> f64 {
        signals_per_probability(self.wait) * 0.5 / buffer_pkts
    }

    /// Returns RED's parameters.
    fn red(&self) -> RedParams {
        RedParams {
            min_th: self.min_th,
            max_th: self.max_th,
            max_p: self.max_p,
            w_q: self.w_q,
            gentle: self.gentle,
            wait: self.wait,
            queue_in_bytes: self.queue_in_bytes,
            by_size: self.by_size,
            mark_above: false,
        }
    }
}

impl PdRedParams {
    fn search(conditions: &Conditions) -> Search {
        let law = PdRedParams::defaults();
        let (path, interval_s) = (law.path(conditions.buffer_pkts), law.interval.as_secs_f64());
        let axes = [
            conditions.target(),
            conditions.k_p(),
            conditions.zero(),
            conditions.weight(),
        ];
        // The proportional term acts as an integral, and the derivative term as a proportional one.
        Search::Space(Space::with_target(axes, move |x| {
            let (min_th, max_th) = PdRedParams::thresholds(x["target"]);
            vec![
                ("target", packets(x["target"])),
                ("k_p", number(x["k_p"] * x["zero"] * interval_s / path)),
                ("k_d", number(x["k_p"] / path)),
                ("min_th", packets(min_th)),
                ("max_th", packets(max_th)),
                ("w_q", number(x["w_q"])),
            ]
        }))
    }
}

impl ConfiguredLaw for PdRedParams {
    fn check(&self, site: &Site) -> Result<(), ParamError> {
        needs_packet_buffer("target", self.target, site)?;
        fits_buffer("target", self.target, site)?;
        self.red().check(site)
    }

    fn build(&self, site: &Site, _seed: u64) -> Result<Box<dyn Law>, ParamError> {
        self.check(site)?;
        let tuner = PdTuner {
            target: Target::new(self.target, site),
            buffer_pkts: site.buffer_pkts,
            interval: self.interval,
            gains: self.coefficients(),
            state: Difference::starting_at(self.max_p),
        };
        Ok(Box::new(Tuned::new(Red::new(self.red(), site), tuner)))
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

impl LinearLaw for PdRedParams {
    /// p_b = max_p·(x − min_th)/(max_th − min_th) has two paths: RED's own slope with max_p at its
    /// equilibrium value, and the controller's path through max_p. The controller integrates, so at
    /// equilibrium the average equals the target.
    fn linear(&self, point: &OperatingPoint, site: &Site) -> Option<LoopFilter> {
        let rate = signals_per_probability(self.wait);
        let p_b = point.probability() / rate;
        let target_pkts = site.pkts(self.target);
        let above_min = target_pkts - self.min_th.0;
        let range_pkts = self.max_th.0 - self.min_th.0;
        let share = above_min / range_pkts;
        let average = Some(Average {
            weight: self.w_q,
            interval_s: 1.0 / point.capacity_pkts_per_s,
        });
        if !(0.0 < share && share < 1.0) || p_b >= 1.0 || self.k_p == 0.0 {
            return None;
        }
        // With max_p at 1 the controller is saturated. RED's own slope remains, and the equilibrium
        // is above the target.
        if p_b >= share {
            return Some(LoopFilter {
                queue_pkts: self.min_th.0 + p_b * range_pkts,
                average,
                direct: rate / range_pkts,
                sampled: None,
                one_sided: false,
                age_s: 0.0,
            });
        }
        let interval_s = self.interval.as_secs_f64();
        let path = rate * share / site.buffer_pkts;
        Some(LoopFilter {
            average,
            direct: rate * p_b / above_min,
            ..LoopFilter::sampled(target_pkts, self.coefficients().sampled(interval_s, path))
        })
    }

    /// The paper has no design rule. Here, RED's slope and the controller's path form a PI controller
    /// of the average and get PI's gains. The average is made at least ten times as fast as the loop.
    fn design(&self, request: &DesignRequest, goals: &ParamValues) -> DesignResult {
        let goals = PiGoals::read(goals)?;
        let (k_p, k_i) = goals.gains(&request.point);
        let target_pkts = request.target_pkts();
        let (min_th, max_th) = PdRedParams::thresholds(target_pkts);
        let rate = signals_per_probability(self.wait);
        let above_min = target_pkts - min_th;
        let max_p = 2.0 * request.probability / rate;
        let own_slope = request.probability / above_min;
        let path = self.path(request.site.buffer_pkts);
        let designed = PdRedParams {
            target: request.set_point,
            k_p: k_i * self.interval.as_secs_f64() / path,
            k_d: ((k_p - own_slope) / path).max(0.0),
            min_th: Packets(min_th),
            max_th: Packets(max_th),
            max_p: max_p.min(1.0),
            // The pole of the average is at −C·ln(1 − w_q).
            w_q: self.w_q.max(
                -(-10.0 * goals.omega_g(&request.point) / request.point.capacity_pkts_per_s)
                    .exp_m1(),
            ),
            ..self.clone()
        };
        designed.check(&request.site)?;
        let mut notes = vec![
            goals.note(&request.point),
            format!(
                "RED's own slope contributes {own_slope:.4e} to the proportional gain {k_p:.4e}, and \
                 the controller's derivative term the rest; its proportional term is the integral."
            ),
        ];
        if own_slope > k_p {
            notes.push(
                "RED's own slope, which follows from the target, exceeds the proportional gain: the \
                 loop is faster than designed. A longer target would slow it down."
                    .into(),
            );
        }
        Ok(Some(Design::of(
            vec![
                ("k_p", designed.k_p),
                ("k_d", designed.k_d),
                ("max_p", designed.max_p),
            ],
            &designed,
            &[
                "target", "k_p", "k_d", "min_th", "max_th", "max_p", "w_q", "interval",
            ],
            notes,
        )))
    }
}

impl FixedPointLaw for PdRedParams {
    fn twin(&self, site: &Site) -> Result<Twin, ParamError> {
        let Coefficients { a, b, .. } = self.coefficients();
        let target_pkts = site.pkts(self.target);
        let gain = |key, k| fixed_point::difference_gain(key, k / site.buffer_pkts, site);
        let red = self.red();
        let mut config = red.twin_config(site)?;
        config.extend([
            ("target", fixed_point::length("target", target_pkts, site)?),
            ("a", gain("k_p", a)?),
            ("b", gain("k_d", b)?),
        ]);
        Ok(Twin {
            interval: Some(self.interval),
            config,
            state: Red::new(red, site).twin_state(),
        })
    }
}

/// The PD controller of max_p.
struct PdTuner {
    target: Target,
    buffer_pkts: f64,
    interval: Span,
    gains: Coefficients,
    state: Difference,
}

impl PdTuner {
    /// Returns the distance of the average from the target, over the buffer.
    fn error(&self, q: &QueueView, red: &Red) -> f64 {
        (red.average_pkts() - self.target.pkts(q)) / self.buffer_pkts
    }
}

impl Tuner<Red> for PdTuner {
    fn watches_departures(&self) -> bool {
        false
    }

    fn interval(&self) -> Option<Span> {
        Some(self.interval)
    }

    fn tick(&mut self, q: &QueueView, _now: Time, red: &mut Red) {
        // pd-red eq. (1), relative to the buffer as in (3); max_p stays in [0, 1].
        let error = self.error(q, red);
        red.max_p = self.state.step(self.gains, error);
    }

    fn state(&self, red: &Red) -> Option<State> {
        let [p, e_1, e_2] = self.state.state();
        Some(state_of(&[p, e_1, e_2, red.max_p, red.average_pkts()]))
    }

    /// The average changes only at arrivals, so the error is constant.
    fn skip(&mut self, q: &QueueView, _last: Time, ticks: u64, red: &mut Red) {
        let errors = Errors::constant(self.error(q, red));
        self.state.advance(self.gains, &errors, ticks);
    }

    fn set_point(&mut self, set_point: SetPoint) -> bool {
        self.target.move_to(set_point)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::laws::testing::{packet, probed, site, view};
    use forebay_units::{Params, Rng};

    #[test]
    fn max_p_moves_by_hand_computed_steps() {
        let mut params = PdRedParams::defaults();
        params.w_q = 1.0; // the average is then the queue at the last arrival
        let mut law = params.build(&site(), 0).unwrap();
        let mut rng = Rng::new(1, "test");
        let mut sample = |packets| {
            law.on_enqueue(Time::ZERO, &view(packets), &packet(1000), &mut rng);
            law.handle_timeout(law.poll_timeout().unwrap(), &view(packets));
            probed(&*law, "max_p")
        };
        // B = 800; errors of 200, 200 and −100 packets are 0.25, 0.25 and −0.125.
        let mut want = 0.01 + 0.001 * 0.25 + 0.05 * 0.25;
        assert!((sample(600) - want).abs() < 1e-12);
        want += 0.001 * 0.25;
        assert!((sample(600) - want).abs() < 1e-12);
        want += 0.001 * -0.125 + 0.05 * -0.375;
        assert!((sample(300) - want).abs() < 1e-12);
        // 0.023 − 0.018875 = 0.004125 remains; an empty queue subtracts more than that.
        assert!((want - 0.004125).abs() < 1e-12);
        assert_eq!(sample(0), 0.0);
    }

    #[test]
    fn thresholds_are_checked_like_those_of_red() {
        let mut params = PdRedParams::defaults();
        params.min_th = Packets(785.0);
        assert_eq!(params.check(&site()).unwrap_err().key, "min_th");
    }
}
