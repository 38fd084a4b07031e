//! STPI, the self-tuning PI of Zhang, Hollot, Towsley and Misra: PI whose gains are redesigned on-line
//! for the estimated capacity and load.

use forebay_linux_tc::fixed_point::{self, FixedPointLaw, Twin};
use forebay_theory::design::{Design as Designed, DesignRequest, DesignResult, LinearLaw};
use forebay_theory::linear::{LoopFilter, OperatingPoint};
use forebay_theory::search::{number, packets, time, Axis, Conditions, Search, Space};
use forebay_theory::self_tuning::critical_load_time_s;
use forebay_units::cast::whole_i64;
use forebay_units::{no_goals, params, ParamError, ParamValues, SetPoint, Site, Span};

use crate::clock::{state_of, State};
use crate::configured_law::{fits_buffer, ConfiguredLaw};
use crate::difference::{Coefficients, QueueControl};
use crate::law::{Law, Scale, Target};
use crate::law_spec::LawSpec;
use crate::laws::pi::{gains, PiGoals};
use crate::periodic::{Controller, Periodic};
use crate::self_tuning::{first_design, Design, Estimation, SelfTuning};
use crate::tuner::Tuned;

/// The registry entry of STPI.
pub const LAW: LawSpec = LawSpec::of::<StpiParams>(
    "stpi",
    "STPI: PI whose gains follow on-line estimates of capacity and load",
    "Zhang et al., staqm eq. (3)-(5), section IV.A",
)
.with_equation("p = K_p·e + K_i·∫e dt, with K_p and K_i of the estimated C and N;  e = q − target")
.slowed_by("beta")
.with_search(StpiParams::search);

params! {
    /// STPI. The defaults are those of staqm section II, and the time constants of its simulation 1.
    pub struct StpiParams {
        /// Queue length or queuing delay to control.
        target: SetPoint = SetPoint::Packets(175.0), 0.0 => 1e9;
        /// Crossover frequency times RTT of the design (responsiveness).
        beta: f64 = 0.5, 1e-6 => 0.85;
        /// Round-trip time that the design assumes, including the queuing delay.
        rtt: Span = Span::from_micros(246_667), 1e-6 => 60.0;
        /// Number of flows of the first design; later designs use the estimate.
        flows: f64 = 60.0, 1.0 => 1e9;
        /// Time constant of the capacity estimate.
        capacity_time: Span = Span::from_secs(5), 1e-3 => 3600.0;
        /// Time constant of the load estimate. A time constant that is too short makes tuning
        /// unstable.
        load_time: Span = Span::from_secs(10), 1e-3 => 3600.0;
        /// Time until which the first design is kept.
        tune_after: Span = Span::from_secs(20), 0.0 => 1e6;
        /// Time between two samples, of the queue and of the estimates; the default is 160 Hz.
        interval: Span = Span::from_micros(6250), 1e-6 => 60.0;
        /// Count the queue and departures in bytes, in units of the link's usual packet.
        queue_in_bytes: bool = false;
    }
}

/// The design rule of PI.
struct PiDesign {
    beta: f64,
    interval_s: f64,
}

impl PiDesign {
    /// Returns PI's coefficients for an operating point.
    fn coefficients(&self, point: &OperatingPoint) -> Coefficients {
        let (k_p, k_i) = gains(self.beta, point);
        Coefficients::pid(k_p, k_i, 0.0, self.interval_s)
    }
}

impl Design<Periodic<QueueControl>> for PiDesign {
    fn probability(&self, pi: &Periodic<QueueControl>) -> f64 {
        pi.probability()
    }

    /// Sets the gains of p = K_i·x + K_p·(q − q_ref), staqm eq. (3); in eq. (5) q_ref is missing. In
    /// PI's difference form new gains act on later steps only, while eq. (5) taken literally would
    /// also rescale the integral x.
    fn apply(&self, point: &OperatingPoint, pi: &mut Periodic<QueueControl>) {
        pi.controller.gains = self.coefficients(point);
    }

    fn state(&self, pi: &Periodic<QueueControl>) -> Option<State> {
        let [p, e_1, e_2] = pi.controller.state()?[..3].try_into().ok()?;
        let Coefficients { a, b, c } = pi.controller.gains;
        let mut state = state_of(&[0.0, 0.0, 0.0, a, b, c, pi.probability()]);
        state[..3].copy_from_slice(&[p, e_1, e_2]);
        Some(state)
    }
}

impl StpiParams {
    /// Returns the operating point of the first design.
    fn start(&self, site: &Site) -> OperatingPoint {
        let capacity = site.rate.packets_per_sec(site.packet);
        OperatingPoint::of_flows(self.flows, self.rtt.as_secs_f64(), capacity)
    }

    /// Returns the design rule with these parameters.
    fn pi_design(&self) -> PiDesign {
        PiDesign {
            beta: self.beta,
            interval_s: self.interval.as_secs_f64(),
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
}

impl StpiParams {
    fn search(conditions: &Conditions) -> Search {
        let first = first_design(conditions);
        let axes = [
            conditions.target(),
            Axis::new("beta", 0.02, 0.84),
            conditions.own_rtt(),
        ];
        Search::Space(Space::with_target(axes, move |x| {
            let mut settings = vec![
                ("target", packets(x["target"])),
                ("beta", number(x["beta"])),
                ("rtt", time(x["rtt"], 5)),
            ];
            settings.extend(first.clone());
            settings
        }))
    }
}

impl ConfiguredLaw for StpiParams {
    fn check(&self, site: &Site) -> Result<(), ParamError> {
        fits_buffer("target", self.target, site)
    }

    fn build(&self, site: &Site, _seed: u64) -> Result<Box<dyn Law>, ParamError> {
        self.check(site)?;
        let start = self.start(site);
        let design = self.pi_design();
        let scale = Scale::new(site, self.queue_in_bytes);
        let pi = QueueControl::new(
            design.coefficients(&start),
            Target::new(self.target, site),
            self.interval,
            scale,
        );
        let tuner = SelfTuning::new(design, self.estimation(), &start, scale);
        Ok(Box::new(Tuned::new(Periodic::new(pi), tuner)))
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

impl LinearLaw for StpiParams {
    /// PI with the design for the equilibrium values of the estimates. Small changes of the estimates
    /// have no first-order effect, because they multiply a small error.
    fn linear(&self, point: &OperatingPoint, site: &Site) -> Option<LoopFilter> {
        let interval_s = self.interval.as_secs_f64();
        let design = PiDesign {
            beta: self.beta,
            interval_s,
        };
        // The law measures the load and the capacity, and uses its parameter `rtt` for R.
        let estimate = OperatingPoint {
            rtt_s: self.rtt.as_secs_f64(),
            ..*point
        };
        let filter = design.coefficients(&estimate).sampled(interval_s, 1.0);
        Some(LoopFilter::sampled(site.pkts(self.target), filter))
    }

    fn design(&self, request: &DesignRequest, goals: &ParamValues) -> DesignResult {
        no_goals(goals)?;
        let (k_p, k_i) = gains(self.beta, &request.point);
        let k = Coefficients::pid(k_p, k_i, 0.0, self.interval.as_secs_f64());
        let critical_s = critical_load_time_s(self.beta, request.point.rtt_s);
        let designed = StpiParams {
            target: request.set_point,
            rtt: Span::from_secs_f64(request.point.rtt_s),
            flows: request.point.flows().max(1.0),
            load_time: self
                .load_time
                .max(Span::from_secs_f64(3.0 * critical_s.min(1e3))),
            ..self.clone()
        };
        designed.check(&request.site)?;
        Ok(Some(Designed::of(
            vec![
                ("a", k.a),
                ("b", k.b),
                ("k_p", k_p),
                ("k_i", k_i),
                ("critical_load_time_s", critical_s),
            ],
            &designed,
            &["target", "beta", "rtt", "flows", "load_time", "interval"],
            vec![
                PiGoals { beta: self.beta }.note(&request.point),
                format!(
                    "a and b are those of the first design; the law recomputes them from its \
                     estimates. The time constant of the load estimate must be above \
                     {critical_s:.3} s."
                ),
            ],
        )))
    }
}

impl FixedPointLaw for StpiParams {
    fn twin(&self, site: &Site) -> Result<Twin, ParamError> {
        let start = self.start(site);
        let estimation = self.estimation();
        let (rtt_ns, beta) = (self.rtt.as_secs_f64() * 1e9, self.beta);
        let proportional = 2.0 * beta * beta.hypot(1.0) / rtt_ns * 2f64.powi(36);
        let half_interval = self.interval.as_secs_f64() / self.rtt.as_secs_f64();
        let first = self.pi_design().coefficients(&start);
        // Per byte, with 64 fractional bits.
        let per_byte = |k: f64| whole_i64(k / site.packet.0 as f64 * 2f64.powi(64));
        let mut config = estimation.twin_config(self.rtt, site)?;
        config.extend([
            (
                "target",
                fixed_point::length("target", site.pkts(self.target), site)?,
            ),
            (
                "proportional",
                fixed_point::factor("beta", beta, proportional)?,
            ),
            (
                "half_interval",
                fixed_point::probability(half_interval.min(4.0)),
            ),
        ]);
        let mut state = estimation.twin_state(&start, site)?;
        state.extend([("a", per_byte(first.a)), ("b", per_byte(first.b))]);
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
    use crate::laws::testing::{packet, probed, sampled, view};
    use forebay_units::{Bytes, Params, Rate, Rng, Time};

    /// Returns the link of staqm section II: 15 Mbit/s, a buffer of 800 packets of 500 bytes.
    fn site() -> Site {
        Site {
            rate: Rate::from_bps(15_000_000),
            buffer_pkts: 800.0,
            packet: Bytes(500),
        }
    }

    fn coefficients(flows: f64) -> Coefficients {
        let design = PiDesign {
            beta: 0.5,
            interval_s: 1.0 / 160.0,
        };
        let rtt_s = 0.2 + 175.0 / 3750.0;
        design.coefficients(&OperatingPoint::of_flows(flows, rtt_s, 3750.0))
    }

    #[test]
    fn the_design_gives_the_numbers_of_the_paper() {
        let close = |got: f64, want: f64| assert!((got / want - 1.0).abs() < 1e-4, "{got} {want}");
        let k = coefficients(60.0);
        close(k.a, 0.000078530);
        close(k.b, 0.000078272);
        let k = coefficients(240.0);
        close(k.a, 0.00031567);
        close(k.b, 0.00031154);
    }

    #[test]
    fn gains_are_those_computed_by_hand() {
        // N = 60, C = 3750/s, R = 0.2 s: θ_rc = 60/750 = 0.08. √1.25 = 1.118034.
        // K_p = 1.118034·0.08/750 = 1.192570e-4; K_i = 0.8·K_p.
        let point = OperatingPoint::of_flows(60.0, 0.2, 3750.0);
        let (k_p, k_i) = gains(0.5, &point);
        assert!((point.load - 0.08).abs() < 1e-15 && (point.flows() - 60.0).abs() < 1e-12);
        assert!((k_p - 1.192_570e-4).abs() < 1e-10, "{k_p}");
        assert!((k_i - 0.8 * k_p).abs() < 1e-18);
    }

    /// Runs `law` for `seconds` from `start_s` on, with a departure every 1/`rate` seconds. If not
    /// `tcp`, every other packet is UDP.
    fn run(law: &mut dyn Law, start_s: u64, seconds: u64, rate: u64, queue: u32, tcp: bool) {
        let mut rng = Rng::new(1, "test");
        let mut p = packet(500);
        for k in 0..seconds * rate {
            let now = Time::from_nanos(start_s * 1_000_000_000 + k * 1_000_000_000 / rate);
            p.tcp = tcp || k % 2 == 0;
            law.handle_timeout(now, &view(queue));
            law.on_dequeue(now, &view(queue), &p, &mut rng);
        }
    }

    #[test]
    fn before_tune_after_the_first_design_applies() {
        let mut stpi = StpiParams::defaults().build(&site(), 0).unwrap();
        let mut pi = QueueControl::new(
            coefficients(60.0),
            Target::new(SetPoint::Packets(175.0), &site()),
            Span::from_micros(6250),
            Scale::new(&site(), false),
        );
        let mut want = 0.0;
        for _ in 0..100 {
            want = sampled(&mut pi, &view(300));
        }
        stpi.handle_timeout(Time::ZERO + Span::from_micros(625_000), &view(300));
        let got = stpi.intensity(&view(300)).unwrap();
        assert!((got / want - 1.0).abs() < 1e-5, "{got} {want}");
    }

    #[test]
    fn the_capacity_estimate_follows_a_step_and_excludes_udp() {
        let mut law = StpiParams::defaults().build(&site(), 0).unwrap();
        // The link carries 7500 packets/s instead of 3750, for ten time constants.
        run(&mut *law, 0, 50, 7500, 175, true);
        assert!((probed(&*law, "capacity_pkts_per_s") / 7500.0 - 1.0).abs() < 1e-3);
        // Every other packet is UDP: half of the capacity is available to TCP.
        run(&mut *law, 50, 50, 7500, 175, false);
        assert!((probed(&*law, "capacity_pkts_per_s") / 3750.0 - 1.0).abs() < 1e-3);
    }

    #[test]
    fn after_a_time_without_load_the_gains_are_not_zero() {
        let mut law = StpiParams::defaults().build(&site(), 0).unwrap();
        // p = 0 for 300 s: without its floor, the load estimate would decay to e^{-30}.
        law.handle_timeout(Time::ZERO + Span::from_secs(300), &view(0));
        assert!((probed(&*law, "flows") - 1.0).abs() < 1e-9);
        law.handle_timeout(Time::ZERO + Span::from_secs(360), &view(800));
        assert!(law.intensity(&view(800)).unwrap() > 1e-3);
    }
}
