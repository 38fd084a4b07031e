//! STRED, the self-tuning RED of Zhang, Hollot, Towsley and Misra: RED whose w_q and max_p are
//! redesigned on-line for the estimated capacity and load.

use forebay_linux_tc::fixed_point::{self, FixedPointLaw, Twin};
use forebay_theory::averaging::{design, thresholds};
use forebay_theory::design::{Design as Designed, DesignRequest, DesignResult, LinearLaw};
use forebay_theory::linear::{Average, LoopFilter, OperatingPoint, Sampled};
use forebay_theory::search::{number, packets, time, Axis, Conditions, Point, Search, Space};
use forebay_units::cast::whole_i64;
use forebay_units::{no_goals, params, Packets, ParamError, ParamValues, Site, Span};

use crate::clock::{state_of, State};
use crate::configured_law::ConfiguredLaw;
use crate::law::{Law, Scale};
use crate::law_spec::LawSpec;
use crate::laws::red::{note, Red, RedParams};
use crate::self_tuning::{first_design, Design, Estimation, SelfTuning};
use crate::tuner::Tuned;

/// The registry entry of STRED.
pub const LAW: LawSpec = LawSpec::of::<StredParams>(
    "stred",
    "STRED: RED whose w_q and max_p follow on-line estimates of capacity and load",
    "Zhang et al., staqm eq. (2), (6), appendix D",
)
.with_equation("RED from min_th to max_th, with w_q and max_p of the estimated C and N")
.with_search(StredParams::search);

params! {
    /// STRED. The defaults are those of staqm's simulation 1 and of the example in its appendix D.
    pub struct StredParams {
        /// Average queue below which nothing is signalled.
        min_th: Packets = Packets(0.0), 0.0 => 1e9;
        /// Average queue at which the probability reaches max_p.
        max_th: Packets = Packets(2300.0), 0.0 => 1e9;
        /// Phase margin of the design, in degrees.
        phase_margin: f64 = 85.0, 10.0 => 89.99;
        /// Crossover frequency, as a fraction of the slower of TCP's two poles.
        crossover: f64 = 0.1, 1e-3 => 0.5;
        /// Round-trip time that the design assumes, including the queuing delay.
        rtt: Span = Span::from_millis(150), 1e-6 => 60.0;
        /// Number of flows of the first design; later designs use the estimate.
        flows: f64 = 1000.0, 1.0 => 1e9;
        /// Time constant of the capacity estimate.
        capacity_time: Span = Span::from_secs(5), 1e-3 => 3600.0;
        /// Time constant of the load estimate. A time constant that is too short makes tuning
        /// unstable.
        load_time: Span = Span::from_secs(10), 1e-3 => 3600.0;
        /// Time until which the first design is kept.
        tune_after: Span = Span::from_secs(20), 0.0 => 1e6;
        /// Time between two designs.
        interval: Span = Span::from_micros(6250), 1e-6 => 60.0;
        /// Above max_th, let the probability rise linearly to 1 at twice max_th. The slope there is
        /// that of the first design's max_p.
        gentle: bool = true;
        /// Space signals by at least 1/p packets.
        wait: bool = true;
        /// Average the queue and estimate the capacity in bytes instead of packets.
        queue_in_bytes: bool = false;
        /// Make the probability proportional to the size of the packet.
        by_size: bool = false;
    }
}

/// The design rule of RED.
struct RedRule {
    phase_margin: f64,
    crossover: f64,
    range_pkts: f64,
}

impl RedRule {
    /// Returns w_q and max_p for an operating point.
    fn settings(&self, point: &OperatingPoint) -> (f64, f64) {
        let red = design(self.phase_margin, self.crossover, point);
        (red.w_q, (red.l_red * self.range_pkts).min(1.0))
    }
}

impl Design<Red> for RedRule {
    /// Returns p_b, the probability of staqm eq. (2), before the spacing of signals.
    fn probability(&self, red: &Red) -> f64 {
        red.base_probability()
    }

    fn apply(&self, point: &OperatingPoint, red: &mut Red) {
        (red.w_q, red.max_p) = self.settings(point);
    }

    fn state(&self, red: &Red) -> Option<State> {
        Some(state_of(&[red.w_q, red.max_p, red.average_pkts()]))
    }
}

impl StredParams {
    /// Returns the design rule with these parameters.
    fn rule(&self) -> RedRule {
        RedRule {
            phase_margin: self.phase_margin,
            crossover: self.crossover,
            range_pkts: self.max_th.0 - self.min_th.0,
        }
    }

    /// Returns the parameters of the estimators.
    fn estimation(&self) -> Estimation {
        Estimation {
            interval: self.interval,
            capacity_time: self.capacity_time,
            load_time: self.load_time,
            tune_after: self.tune_after,
        }
    }

    /// Returns the signals per packet that TCP sees, divided by p_b.
    fn signal_rate(&self) -> f64 {
        crate::laws::red::signals_per_probability(self.wait)
    }

    /// Returns the operating point of the first design.
    fn start(&self, site: &Site) -> OperatingPoint {
        let capacity = site.rate.packets_per_sec(site.packet);
        OperatingPoint::of_flows(self.flows, self.rtt.as_secs_f64(), capacity)
    }

    /// Returns RED's parameters with the first design.
    fn red(&self, site: &Site) -> RedParams {
        let (w_q, max_p) = self.rule().settings(&self.start(site));
        RedParams {
            min_th: self.min_th,
            max_th: self.max_th,
            max_p,
            w_q,
            gentle: self.gentle,
            wait: self.wait,
            queue_in_bytes: self.queue_in_bytes,
            by_size: self.by_size,
            mark_above: false,
        }
    }
}

impl StredParams {
    fn search(conditions: &Conditions) -> Search {
        let first = first_design(conditions);
        let axes = [
            Axis::new("max_th", 10.0, conditions.buffer_pkts),
            Axis::new("phase", 30.0, 89.0),
            Axis::new("crossover", 0.01, 0.5),
            conditions.own_rtt(),
        ];
        let midway = |x: &Point| 0.5 * x["max_th"];
        Search::Space(Space::new(axes, midway, move |x| {
            let mut settings = vec![
                ("max_th", packets(x["max_th"])),
                ("phase_margin", number(x["phase"])),
                ("crossover", number(x["crossover"])),
                ("rtt", time(x["rtt"], 5)),
            ];
            settings.extend(first.clone());
            settings
        }))
    }
}

impl ConfiguredLaw for StredParams {
    fn check(&self, site: &Site) -> Result<(), ParamError> {
        self.red(site).check(site)
    }

    fn build(&self, site: &Site, _seed: u64) -> Result<Box<dyn Law>, ParamError> {
        self.check(site)?;
        let estimation = self.estimation();
        let scale = Scale::new(site, self.queue_in_bytes);
        let tuner = SelfTuning::new(self.rule(), estimation, &self.start(site), scale);
        Ok(Box::new(Tuned::new(Red::new(self.red(site), site), tuner)))
    }

    fn theory(&self) -> Option<&dyn LinearLaw> {
        Some(self)
    }

    fn kernel(&self) -> Option<&dyn FixedPointLaw> {
        Some(self)
    }
}

impl LinearLaw for StredParams {
    /// RED with the design for the equilibrium values of the estimates, and the inner loop through
    /// the load estimate: by staqm eq. (6) p follows θ_rc, which follows p.
    ///
    /// The estimate uses p_b, which with `wait` is 1.5 times the probability that TCP sees. θ_rc is
    /// therefore too high by √1.5 and L_red by 1.5, so that the slope that TCP sees is the designed
    /// one.
    fn linear(&self, point: &OperatingPoint, _site: &Site) -> Option<LoopFilter> {
        let rule = self.rule();
        let (rate, interval_s) = (self.signal_rate(), self.interval.as_secs_f64());
        let p_b = point.probability() / rate;
        let at = |load: f64| {
            // The law measures the load and the capacity, and uses its parameter `rtt` for R.
            let estimate = OperatingPoint {
                load,
                rtt_s: self.rtt.as_secs_f64(),
                ..*point
            };
            let (w_q, max_p) = rule.settings(&estimate);
            (w_q, max_p / rule.range_pkts)
        };
        let load = (p_b / 2.0).sqrt();
        let (w_q, slope) = at(load);
        let above_min = p_b / slope;
        if above_min > rule.range_pkts {
            return None; // max_p is limited to 1, or gentle mode keeps the slope of the first design
        }
        // δp_b = L·δx + g·δθ with g = (dL/dθ)·x. Each sample moves θ by w·(h·δp_b − δθ), where
        // h = d√(p/2)/dp. The new θ acts from the sample on.
        let step = 1e-5 * load;
        let g = above_min * (at(load + step).1 - at(load - step).1) / (2.0 * step);
        let h = 1.0 / (4.0 * load);
        let w = -(-interval_s / self.load_time.as_secs_f64()).exp_m1();
        Some(LoopFilter {
            queue_pkts: self.min_th.0 + above_min,
            average: Some(Average {
                weight: w_q,
                interval_s: 1.0 / point.capacity_pkts_per_s,
            }),
            direct: rate * slope,
            sampled: Some(Sampled {
                interval_s,
                numerator: vec![rate * g * w * h * slope],
                denominator: vec![1.0, -(1.0 - w + w * h * g)],
            }),
            one_sided: false,
            age_s: 0.0,
        })
    }

    fn design(&self, request: &DesignRequest, goals: &ParamValues) -> DesignResult {
        no_goals(goals)?;
        let red = design(self.phase_margin, self.crossover, &request.point);
        let (min_th, max_th) = thresholds(red.q_d_pkts, request.target_pkts());
        let designed = StredParams {
            min_th: Packets(min_th),
            max_th: Packets(max_th),
            rtt: Span::from_secs_f64(request.point.rtt_s),
            flows: request.point.flows().max(1.0),
            // Theorem 1 asks for about a tenth of RED's own response time (figures 12 and 29).
            load_time: self
                .load_time
                .max(Span::from_secs_f64((1.0 / red.omega_g).min(3600.0))),
            ..self.clone()
        };
        Ok(Some(Designed::of(
            red.gains(max_th - min_th),
            &designed,
            &[
                "min_th",
                "max_th",
                "phase_margin",
                "crossover",
                "rtt",
                "flows",
                "load_time",
            ],
            vec![
                note(&red, request.target_pkts()),
                format!(
                    "w_q and max_p are those of the first design; the law recomputes them from its \
                     estimates. The time constant of the load estimate is {}, at least RED's own \
                     response time.",
                    designed.load_time
                ),
            ],
        )))
    }
}

impl FixedPointLaw for StredParams {
    fn twin(&self, site: &Site) -> Result<Twin, ParamError> {
        let (estimation, red) = (self.estimation(), self.red(site));
        let rtt_ns = self.rtt.as_secs_f64() * 1e9;
        let margin = self.phase_margin.to_radians();
        if margin - self.crossover < 0.01 {
            let expected = format!(
                "at least {:.3} degrees",
                (self.crossover + 0.01).to_degrees()
            );
            return Err(ParamError::new("phase_margin", self.phase_margin, expected));
        }
        let range_bytes = (self.max_th.0 - self.min_th.0) * site.packet.0 as f64;
        let slope = 4.0 * range_bytes * 2f64.powi(32) / rtt_ns;
        let weight = site.packet.0 as f64 * 2f64.powi(36) / rtt_ns;
        let part = |x: f64| whole_i64((x * 2f64.powi(30)).round());
        let mut config = red.twin_config(site)?;
        config.extend(estimation.twin_config(self.rtt, site)?);
        config.extend([
            ("cos_margin", part(margin.cos())),
            ("sin_margin", part(margin.sin())),
            ("crossover", part(self.crossover)),
            (
                "slope",
                fixed_point::factor("max_th", self.max_th.0, slope)?,
            ),
            ("weight", fixed_point::factor("rtt", rtt_ns, weight)?),
        ]);
        let mut state = Red::new(red, site).twin_state();
        state.extend(estimation.twin_state(&self.start(site), site)?);
        Ok(Twin {
            interval: Some(self.interval),
            config,
            state,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::laws::testing::{packet, probed, view};
    use forebay_units::{Bytes, Params, Rate, Rng, Time};

    /// Returns the link of staqm's simulations: 622 Mbit/s, a buffer of 3600 packets of 500 bytes.
    fn site() -> Site {
        Site {
            rate: Rate::from_bps(622_000_000),
            buffer_pkts: 3600.0,
            packet: Bytes(500),
        }
    }

    fn close(actual: f64, expected: f64, tolerance: f64) {
        assert!(
            (actual / expected - 1.0).abs() < tolerance,
            "{actual} {expected}"
        );
    }

    #[test]
    fn the_design_gives_the_numbers_of_appendix_d() {
        let point = OperatingPoint::of_flows(1000.0, 0.15, 155_500.0);
        let red = design(85.0, 0.1, &point);
        close(red.omega_g, 0.1 * 2000.0 / (0.0225 * 155_500.0), 1e-12);
        close(red.k_red, 5.495e-3, 1e-3);
        close(red.w_q, 3.53e-8, 2e-3);
        close(red.l_red, 3.294e-6, 1e-3);
        close(red.q_d_pkts, 1116.0, 1e-3);
        // 5 ms are 777 packets, fewer than q_d: the range is 0 to 2·1116 (2300 in the paper).
        let (min_th, max_th) = thresholds(red.q_d_pkts, 777.5);
        assert_eq!(min_th, 0.0);
        close(max_th, 2232.0, 1e-3);
        close(red.l_red * max_th, 7.35e-3, 2e-3);
        // A target above q_d is in the middle of the range.
        assert_eq!(thresholds(100.0, 800.0), (700.0, 900.0));
    }

    #[test]
    fn both_forms_of_l_red_agree() {
        // Section III.A: |jω_g + K_red|·(2N)²/(K_red·(RC)³).
        let (n, r, c) = (1000.0_f64, 0.15_f64, 155_500.0_f64);
        let red = design(85.0, 0.1, &OperatingPoint::of_flows(n, r, c));
        let expected =
            red.omega_g.hypot(red.k_red) * (2.0 * n).powi(2) / (red.k_red * (r * c).powi(3));
        close(red.l_red, expected, 1e-12);
    }

    #[test]
    fn the_response_time_is_that_of_figure_12() {
        // N/C = 0.0064 at R = 0.15 s: 2N/(R²C) = 0.5689/s, and a tenth of it is 1/17.578 s.
        let point = OperatingPoint::of_flows(0.0064 * 155_500.0, 0.15, 155_500.0);
        close(1.0 / design(85.0, 0.1, &point).omega_g, 17.578, 1e-3);
    }

    #[test]
    fn at_equilibrium_red_gives_the_probability_that_tcp_needs() {
        // p_0 = 2N²/(RC)² = L_red·q_d (appendix D).
        let point = OperatingPoint::of_flows(300.0, 0.1, 20_000.0);
        let red = design(85.0, 0.1, &point);
        close(red.l_red * red.q_d_pkts, 2.0 * point.load.powi(2), 1e-12);
    }

    #[test]
    fn red_follows_the_estimated_capacity() {
        let mut params = StredParams::defaults();
        params.min_th = Packets(0.0);
        params.max_th = Packets(2300.0);
        params.load_time = Span::from_secs(3600); // the load stays nearly as designed
        let mut law = params.build(&site(), 0).unwrap();
        let first = probed(&*law, "max_p");
        close(first, 3.294e-6 * 2300.0, 1e-3);
        let mut rng = Rng::new(1, "test");
        // The departures are a hundredth of the capacity. From 20 s on max_p varies as θ_rc²/θ_c.
        for k in 0..60 * 1555_u64 {
            let now = Time::from_nanos(k * 1_000_000_000 / 1555);
            law.handle_timeout(now, &view(100));
            law.on_dequeue(now, &view(100), &packet(500), &mut rng);
            if now < Time::ZERO + Span::from_secs(20) {
                assert_eq!(probed(&*law, "max_p"), first);
            }
        }
        let (capacity, load) = (probed(&*law, "capacity_pkts_per_s"), probed(&*law, "load"));
        close(capacity, 1555.0, 1e-2);
        let point = OperatingPoint {
            load,
            capacity_pkts_per_s: capacity,
            rtt_s: 0.15,
        };
        let expected = design(85.0, 0.1, &point).l_red * 2300.0;
        close(probed(&*law, "max_p"), expected.min(1.0), 1e-9);
    }

    #[test]
    fn thresholds_are_checked_like_those_of_red() {
        let mut params = StredParams::defaults();
        params.min_th = Packets(3000.0);
        assert_eq!(params.check(&site()).unwrap_err().key, "min_th");
    }
}
