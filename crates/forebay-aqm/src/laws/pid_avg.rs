//! P, PI, PD and PID control of the averaged queue, with the error relative to the buffer (Bigdeli,
//! Haeri and Pakravan). The four laws share one controller and differ in the gains that they have.
//!
//! The printed gains of P, PI and PID have the magnitude of designs for an error in packets. With an
//! error relative to the buffer, as in the text of the paper, these laws hardly signal. With the
//! gains multiplied by the buffer in packets, PI and PID keep the queue at their target.

use forebay_linux_tc::fixed_point::{self, FixedPointLaw, Twin};
use forebay_theory::design::{Design, DesignRequest, DesignResult, LinearLaw};
use forebay_theory::linear::{Average, LoopFilter, OperatingPoint};
use forebay_theory::search::{number, packets, Conditions, Search, Space};
use forebay_units::{params, Packets, ParamError, ParamValues, Params, SetPoint, Site, Span};

use crate::clock::{state_of, Errors, State};
use crate::configured_law::{fits_buffer, needs_packet_buffer, ConfiguredLaw};
use crate::difference::{Coefficients, Difference};
use crate::law::{FluidStep, Law, PacketMeta, QueueView, Target};
use crate::law_spec::LawSpec;
use crate::laws::pi::PiGoals;
use crate::laws::pid::{faster_than_plant, PidGoals};
use crate::periodic::{Controller, Periodic, Sample};

/// The registry entry of P on the average queue.
pub const P: LawSpec = entry::<PAvgParams>(
    "p-avg",
    "P on the average queue: proportional control alone",
    "p = k_p·e;  e = (avg − target)/buffer",
)
.with_goals(PGoals::SPECS);

/// The registry entry of PI on the average queue.
pub const PI: LawSpec = entry::<PiAvgParams>(
    "pi-avg",
    "PI on the average queue: proportional-integral control",
    "p = k_p·e + k_i·∫e dt;  e = (avg − target)/buffer",
)
.with_goals(PiGoals::SPECS);

/// The registry entry of PD on the average queue.
pub const PD: LawSpec = entry::<PdAvgParams>(
    "pd-avg",
    "PD on the average queue: proportional-derivative control",
    "p = k_p·e + k_d·de/dt;  e = (avg − target)/buffer",
)
.with_goals(PidGoals::SPECS);

/// The registry entry of PID on the average queue.
pub const PID: LawSpec = entry::<PidAvgParams>(
    "pid-avg",
    "PID on the average queue: proportional-integral-derivative control",
    "p = k_p·e + k_i·∫e dt + k_d·de/dt;  e = (avg − target)/buffer",
)
.with_goals(PidGoals::SPECS);

/// Returns the registry entry of one of the four laws.
const fn entry<L: AveragedLaw>(
    kind: &'static str,
    title: &'static str,
    equation: &'static str,
) -> LawSpec {
    LawSpec::of::<L>(kind, title, "Bigdeli et al., bigdeli eq. (3)-(5), Table 1")
        .with_equation(equation)
        .with_search(|conditions| Search::Space(space(conditions, L::GAINS)))
}

/// The parameters of one of the four laws: those that all of them have, and its own gains.
trait AveragedLaw: Params + LinearLaw + FixedPointLaw + Send + Sync + 'static {
    /// The names of the law's gains.
    const GAINS: &'static [&'static str];

    /// Returns the set-point.
    fn target(&self) -> SetPoint;

    /// Returns the controller in its initial state.
    fn averaged(&self, site: &Site) -> Averaged;

    /// Returns the law with another target and other gains. Gains that the law does not have are
    /// ignored.
    fn with_gains(&self, target: SetPoint, gains: &Gains) -> Self;

    /// Applies the design rule. Returns gains per packet, and a sentence that explains them.
    fn rule(goals: &ParamValues, point: &OperatingPoint) -> RuleResult;
}

/// Declares the parameters of one of the four laws. Its gains and sampling time are those of Table 1.
macro_rules! averaged_params {
    (
        $params:ident every $interval:expr, by $goals:ident::$rule:ident,
        { $( $(#[doc = $doc:literal])+ $gain:ident = $default:literal; )+ }
    ) => {
        params! {
            /// A controller of the averaged queue. The gains act on (average − target)/buffer.
            pub struct $params {
                /// Average queue length or queuing delay to control. The paper does not give it; the
                /// equilibrium of its PI and PID is at 85.0 and 89.4 packets, and integral control
                /// reaches its target.
                target: SetPoint = SetPoint::Packets(87.0), 0.0 => 1e9;
                /// Queue length up to which nothing is signalled (Q_thresh in the paper, which does
                /// not give its value).
                min_th: Packets = Packets(0.0), 0.0 => 1e9;
                /// Weight of a new queue length in the average.
                w_q: f64 = 0.05, 1e-12 => 1.0;
                /// Update the average at the samples instead of at every arrival, as RED does.
                average_at_samples: bool = false;
                $( $(#[doc = $doc])+ $gain: f64 = $default, 0.0 => 1e6; )+
                /// Time between two samples.
                interval: Span = $interval, 1e-6 => 60.0;
            }
        }

        impl AveragedLaw for $params {
            const GAINS: &'static [&'static str] = &[$( stringify!($gain) ),+];

            fn target(&self) -> SetPoint {
                self.target
            }

            fn averaged(&self, site: &Site) -> Averaged {
                let mut gains = Gains::default();
                $( gains.$gain = self.$gain; )+
                Averaged {
                    target: Target::new(self.target, site),
                    min_pkts: self.min_th.0,
                    buffer_pkts: site.buffer_pkts,
                    w_q: self.w_q,
                    at_samples: self.average_at_samples,
                    interval: self.interval,
                    gains: gains.digital(self.interval),
                    average_pkts: 0.0,
                    state: Difference::default(),
                }
            }

            fn with_gains(&self, target: SetPoint, gains: &Gains) -> Self {
                let mut law = self.clone();
                law.target = target;
                $( law.$gain = gains.$gain; )+
                law
            }

            fn rule(goals: &ParamValues, point: &OperatingPoint) -> RuleResult {
                $goals::read(goals)?.$rule(point)
            }
        }

        impl LinearLaw for $params {
            fn linear(&self, point: &OperatingPoint, site: &Site) -> Option<LoopFilter> {
                self.averaged(site).linear(point, site)
            }

            fn design(&self, request: &DesignRequest, goals: &ParamValues) -> DesignResult {
                design(self, request, goals)
            }
        }

        impl FixedPointLaw for $params {
            fn twin(&self, site: &Site) -> Result<Twin, ParamError> {
                self.averaged(site).twin(site)
            }
        }
    };
}

averaged_params! {
    PAvgParams every Span::from_millis(75), by PGoals::rule,
    {
        /// Proportional gain.
        k_p = 4.0832e-5;
    }
}

averaged_params! {
    PiAvgParams every Span::from_micros(6800), by PiGoals::rule,
    {
        /// Proportional gain.
        k_p = 1.741e-4;
        /// Integral gain, per second.
        k_i = 4.874e-5;
    }
}

averaged_params! {
    PdAvgParams every Span::from_millis(10), by PidGoals::pd_rule,
    {
        /// Proportional gain.
        k_p = 2e-4;
        /// Derivative gain, in seconds.
        k_d = 0.08;
    }
}

averaged_params! {
    PidAvgParams every Span::from_millis(20), by PidGoals::rule,
    {
        /// Proportional gain.
        k_p = 1.44924e-3;
        /// Integral gain, per second.
        k_i = 3.974e-4;
        /// Derivative gain, in seconds.
        k_d = 1.07e-4;
    }
}

impl<L: AveragedLaw> ConfiguredLaw for L {
    fn check(&self, site: &Site) -> Result<(), ParamError> {
        needs_packet_buffer("target", self.target(), site)?;
        fits_buffer("target", self.target(), site)
    }

    fn build(&self, site: &Site, _seed: u64) -> Result<Box<dyn Law>, ParamError> {
        self.check(site)?;
        Ok(Box::new(Periodic::new(self.averaged(site))))
    }

    fn set_point(&self) -> Option<SetPoint> {
        Some(self.target())
    }

    fn theory(&self) -> Option<&dyn LinearLaw> {
        Some(self)
    }

    fn kernel(&self) -> Option<&dyn FixedPointLaw> {
        Some(self)
    }
}

/// Designs a law by its rule.
fn design<L: AveragedLaw>(law: &L, request: &DesignRequest, goals: &ParamValues) -> DesignResult {
    let (per_packet, note) = L::rule(goals, &request.point)?;
    // The law divides its error by the buffer.
    let buffer_pkts = request.site.buffer_pkts;
    let gains = per_packet.times(buffer_pkts);
    let designed = law.with_gains(request.set_point, &gains);
    designed.check(&request.site)?;
    let named = |gains: &Gains| {
        let gains = [("k_p", gains.k_p), ("k_i", gains.k_i), ("k_d", gains.k_d)];
        gains
            .into_iter()
            .filter(|(name, _)| L::GAINS.contains(name))
    };
    let values: Vec<String> = named(&per_packet)
        .map(|(name, gain)| format!("{name} = {gain:.4e}"))
        .collect();
    Ok(Some(Design::of(
        named(&gains).collect(),
        &designed,
        &[&["target", "w_q"], L::GAINS, &["interval"]].concat(),
        vec![
            note,
            format!(
                "Per packet of error, {}; the law's gains are these times the buffer of {buffer_pkts} \
                 packets.",
                values.join(", "),
            ),
        ],
    )))
}

/// Returns the search space of the law with these gains, which act on an error relative to the buffer.
fn space(conditions: &Conditions, gains: &[&'static str]) -> Space {
    let mut axes = vec![conditions.target(), conditions.k_p(), conditions.weight()];
    axes.extend(gains.contains(&"k_i").then(|| conditions.zero()));
    axes.extend(gains.contains(&"k_d").then(|| conditions.lead()));
    let buffer_pkts = conditions.buffer_pkts;
    Space::with_target(axes, move |x| {
        let k_p = x["k_p"] * buffer_pkts;
        let mut settings = vec![
            ("target", packets(x["target"])),
            ("w_q", number(x["w_q"])),
            ("k_p", number(k_p)),
        ];
        settings.extend(x.get("zero").map(|zero| ("k_i", number(k_p * zero))));
        settings.extend(x.get("lead").map(|lead_s| ("k_d", number(k_p * lead_s))));
        settings
    })
}

/// The continuous-time gains. A gain that the law does not have is zero.
#[derive(Default)]
struct Gains {
    k_p: f64,
    k_i: f64,
    k_d: f64,
}

impl Gains {
    /// Returns the gains multiplied by `factor`.
    fn times(&self, factor: f64) -> Gains {
        Gains {
            k_p: self.k_p * factor,
            k_i: self.k_i * factor,
            k_d: self.k_d * factor,
        }
    }

    /// Returns the coefficients of bigdeli eq. (5), in which the plus sign before 2K_D/T_s is missing.
    fn digital(&self, interval: Span) -> Coefficients {
        Coefficients::pid(self.k_p, self.k_i, self.k_d, interval.as_secs_f64())
    }
}

/// The result of a design rule: gains per packet, and a sentence that explains them.
type RuleResult = Result<(Gains, String), ParamError>;

params! {
    /// Goals of P's design rule.
    pub struct PGoals {
        /// Factor on the designed gain.
        tuning: f64 = 1.0, 1e-6 => 1e6;
    }
}

impl PGoals {
    /// The rule of Hollot et al. 2001: crossover at the geometric mean of TCP's and the queue's pole.
    /// K_P in bigdeli's Table 1 is the result of this rule for the network of that paper.
    fn rule(&self, point: &OperatingPoint) -> RuleResult {
        let (p1, p2) = (point.tcp_pole(), point.queue_pole());
        let omega_g = (p1 * p2).sqrt();
        let k_p = omega_g.hypot(p1) * omega_g.hypot(p2) / point.plant_gain();
        let note = format!(
            "The loop gain crosses one at {omega_g:.4} rad/s, the geometric mean of the poles of \
             TCP and the queue. Without integral action the equilibrium is where k_p times the \
             error over the buffer is the probability that TCP needs, and not at the target."
        );
        let gains = Gains {
            k_p: self.tuning * k_p,
            ..Gains::default()
        };
        Ok((gains, note))
    }
}

impl PiGoals {
    fn rule(&self, point: &OperatingPoint) -> RuleResult {
        let (k_p, k_i) = self.gains(point);
        Ok((Gains { k_p, k_i, k_d: 0.0 }, self.note(point)))
    }
}

impl PidGoals {
    /// The rule for PD: the PD part of the pole placement.
    fn pd_rule(&self, point: &OperatingPoint) -> RuleResult {
        let placed = self.placement(point);
        faster_than_plant(&placed)?;
        let gains = Gains {
            k_p: self.tuning * placed.k_p1,
            k_i: 0.0,
            k_d: self.tuning * placed.k_d1,
        };
        Ok((gains, self.note(point)))
    }

    fn rule(&self, point: &OperatingPoint) -> RuleResult {
        let placed = self.placement(point);
        faster_than_plant(&placed)?;
        let gains = Gains {
            k_p: self.tuning * placed.k_p,
            k_i: self.tuning * placed.k_i,
            k_d: self.tuning * placed.k_d,
        };
        Ok((gains, self.note(point)))
    }
}

/// The controller at a queue.
struct Averaged {
    target: Target,
    min_pkts: f64,
    buffer_pkts: f64,
    w_q: f64,
    at_samples: bool,
    interval: Span,
    gains: Coefficients,
    average_pkts: f64,
    state: Difference,
}

impl Averaged {
    fn twin(&self, site: &Site) -> Result<Twin, ParamError> {
        let Coefficients { a, b, c } = self.gains;
        let relative = Coefficients {
            a: a / self.buffer_pkts,
            b: b / self.buffer_pkts,
            c: c / self.buffer_pkts,
        };
        let target_pkts = site.pkts(self.target.set_point);
        let mut twin = relative.twin(target_pkts, self.interval, site)?;
        twin.config.extend([
            ("w_q", fixed_point::probability(self.w_q)),
            (
                "min_th",
                fixed_point::length("min_th", self.min_pkts, site)?,
            ),
            ("at_samples", i64::from(self.at_samples)),
        ]);
        Ok(twin)
    }

    /// The average, updated at arrivals or at the samples, followed by the difference equation.
    fn linear(&self, point: &OperatingPoint, site: &Site) -> Option<LoopFilter> {
        let target_pkts = site.pkts(self.target.set_point);
        let mut filter = self
            .gains
            .sampled(self.interval.as_secs_f64(), 1.0 / self.buffer_pkts);
        let equilibrium = LoopFilter::controlled(target_pkts, filter.clone(), point.probability())?;
        let average = (!self.at_samples).then_some(Average {
            weight: self.w_q,
            interval_s: 1.0 / point.capacity_pkts_per_s,
        });
        if self.at_samples {
            filter = filter.averaged(self.w_q);
        }
        // A queue up to min_th is not signalled, so it is no equilibrium.
        (equilibrium.queue_pkts > self.min_pkts || self.min_pkts == 0.0).then(|| LoopFilter {
            average,
            ..LoopFilter::sampled(equilibrium.queue_pkts, filter)
        })
    }

    /// Updates the average (bigdeli eq. 4). The paper does not say whether t counts arrivals or
    /// samples.
    fn average(&mut self, q: &QueueView) {
        self.average_pkts += self.w_q * (f64::from(q.packets) - self.average_pkts);
    }
}

impl Controller for Averaged {
    fn interval(&self) -> Span {
        self.interval
    }

    fn sample(&mut self, s: &Sample) -> f64 {
        if self.at_samples {
            self.average(s.q);
        }
        // bigdeli eq. (3) prints the opposite sign of e, with which a long queue would decrease p.
        let error = (self.average_pkts - self.target.pkts(s.q)) / self.buffer_pkts;
        self.state.step(self.gains, error)
    }

    fn state(&self) -> Option<State> {
        let [p, e_1, e_2] = self.state.state();
        Some(state_of(&[p, e_1, e_2, self.average_pkts]))
    }

    /// At a constant queue, each sample reduces the distance of the average from the queue by the same
    /// factor.
    fn skip(&mut self, first: &Sample, samples: u64) {
        let queue_pkts = f64::from(first.q.packets);
        let (distance_pkts, ratio) = match self.at_samples {
            true => (self.average_pkts - queue_pkts, 1.0 - self.w_q),
            false => (0.0, 0.0),
        };
        let limit_pkts = self.average_pkts - distance_pkts;
        let errors = Errors {
            decaying: distance_pkts * ratio / self.buffer_pkts,
            ratio,
            ..Errors::constant((limit_pkts - self.target.pkts(first.q)) / self.buffer_pkts)
        };
        self.state.advance(self.gains, &errors, samples);
        self.average_pkts = limit_pkts + distance_pkts * ratio.powf(samples as f64);
    }

    fn arrival(&mut self, q: &QueueView, _p: &PacketMeta) {
        if !self.at_samples {
            self.average(q);
        }
    }

    fn take_fluid(&mut self, step: &FluidStep) {
        if !self.at_samples {
            self.average_pkts = step.averaged(self.average_pkts, self.w_q);
        }
    }

    /// Returns true if Q ≤ Q_thresh, as section 3 of bigdeli says; its step 4 says the opposite.
    fn spares(&self, q: &QueueView) -> bool {
        f64::from(q.packets) <= self.min_pkts
    }

    fn set_point(&mut self, set_point: SetPoint) -> bool {
        self.target.move_to(set_point)
    }

    fn probe(&self, out: &mut dyn FnMut(&'static str, f64)) {
        out("average", self.average_pkts);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::laws::testing::{packet, probed, site, view};
    use forebay_units::{Params, Rng, Time, Value};

    /// Returns the probabilities at successive samples of a law that averages at its samples, with
    /// w_q = 1.
    fn run(spec: &LawSpec, queue_pkts: &[u32]) -> Vec<f64> {
        let values = [
            ("target".into(), Value::Text("400p".into())),
            ("w_q".into(), Value::Number(1.0)),
            ("average_at_samples".into(), Value::Flag(true)),
        ];
        let mut law = spec.build(&values, &site(), 1).unwrap();
        let sample = |&q: &u32| {
            law.handle_timeout(law.poll_timeout().unwrap(), &view(q));
            law.intensity(&view(q)).unwrap()
        };
        queue_pkts.iter().map(sample).collect()
    }

    fn assert_close(got: &[f64], want: &[f64]) {
        for (got, want) in got.iter().zip(want) {
            assert!((got - want).abs() < 1e-9, "{got} {want}");
        }
    }

    /// Queue lengths whose errors are 0.25, 0.25 and 0.125, with a buffer of 800 packets.
    const QUEUES: &[u32] = &[600, 600, 500];

    #[test]
    fn p_is_proportional_to_the_error() {
        // p = K_P·e, as each step adds K_P·(e_k − e_{k−1}).
        let k = 4.0832e-5;
        assert_close(&run(&P, QUEUES), &[k * 0.25, k * 0.25, k * 0.125]);
    }

    #[test]
    fn pi_adds_the_integral_by_trapezoids() {
        // T·K_I/2 = 0.0068·4.874e-5/2 = 1.65716e-7; trapezoids 0.25, 0.5, 0.375.
        let (k, i) = (1.741e-4, 1.65716e-7);
        let want = [
            k * 0.25 + i * 0.25,
            k * 0.25 + i * 0.75,
            k * 0.125 + i * 1.125,
        ];
        assert_close(&run(&PI, QUEUES), &want);
    }

    #[test]
    fn pd_adds_the_slope_of_the_error() {
        // K_D/T = 8. First step: 2e-4·0.25 + 8·0.25 is clamped to 1. Then Δp = 8·(−0.25), clamped to
        // 0. Then Δp = 2e-4·(−0.125) + 8·(−0.125 − 0), still 0.
        assert_close(&run(&PD, QUEUES), &[1.0, 0.0, 0.0]);
    }

    #[test]
    fn pid_adds_the_integral_and_the_slope() {
        // K_P = 1.44924e-3, K_D/T = 5.35e-3, T·K_I/2 = 3.974e-6:
        // a = 6.803214e-3, b = 1.2145266e-2, c = 5.35e-3.
        let p1 = 6.803214e-3 * 0.25;
        let p2 = p1 + (6.803214e-3 - 1.2145266e-2) * 0.25;
        let p3 = p2 + 6.803214e-3 * 0.125 - 1.2145266e-2 * 0.25 + 5.35e-3 * 0.25;
        assert_close(&run(&PID, QUEUES), &[p1, p2, p3.max(0.0)]);
    }

    #[test]
    fn the_average_moves_at_arrivals() {
        let mut law = PidAvgParams::defaults().build(&site(), 0).unwrap();
        let mut rng = Rng::new(1, "test");
        for _ in 0..2 {
            law.on_enqueue(Time::ZERO, &view(100), &packet(1000), &mut rng);
        }
        law.handle_timeout(law.poll_timeout().unwrap(), &view(700));
        // 0.05·100 = 5, then 0.95·5 + 5 = 9.75; the sample itself does not change the average.
        let average = probed(&*law, "average");
        assert!((average - 9.75).abs() < 1e-12);
    }

    #[test]
    fn table_1s_proportional_gain_follows_from_the_design() {
        // bigdeli section 5.1: N = 15, C = 1875/s, R = 0.24 s; error in packets.
        let point = OperatingPoint::of_flows(15.0, 0.24, 1875.0);
        let (gains, _) = PGoals::defaults().rule(&point).unwrap();
        let printed = PAvgParams::defaults().k_p;
        assert!((gains.k_p / printed - 1.0).abs() < 0.005, "{}", gains.k_p);
    }

    #[test]
    fn a_queue_up_to_min_th_is_not_signalled() {
        let mut params = PdAvgParams::defaults();
        params.min_th = Packets(20.0);
        params.w_q = 1.0;
        params.average_at_samples = true;
        let mut law = params.build(&site(), 0).unwrap();
        law.handle_timeout(law.poll_timeout().unwrap(), &view(700));
        assert_eq!(law.intensity(&view(21)), Some(1.0));
        assert_eq!(law.intensity(&view(20)), Some(0.0));
    }

    #[test]
    fn a_buffer_in_bytes_is_refused() {
        let mut bytes_only = site();
        bytes_only.buffer_pkts = f64::INFINITY;
        assert!(PidAvgParams::defaults().check(&bytes_only).is_err());
        assert!(PidAvgParams::defaults().check(&site()).is_ok());
    }
}
