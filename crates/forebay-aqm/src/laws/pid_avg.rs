//! P, PI, PD and PID on the averaged queue, with the error relative to the buffer (Bigdeli,
//! Haeri and Pakravan). One controller; the four laws differ in which gains they have.
//!
//! The printed gains of P, PI and PID are of the size of designs for an error in packets. On an
//! error relative to the buffer, as the text has it, they hardly signal: times the buffer in
//! packets, PI and PID hold their target.

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

pub const P: LawSpec = entry::<PAvgParams>(
    "p-avg",
    "P on the average queue: proportional control alone",
    "p = k_p·e;  e = (avg − target)/buffer",
)
.with_goals(PGoals::SPECS);

pub const PI: LawSpec = entry::<PiAvgParams>(
    "pi-avg",
    "PI on the average queue: proportional-integral control",
    "p = k_p·e + k_i·∫e dt;  e = (avg − target)/buffer",
)
.with_goals(PiGoals::SPECS);

pub const PD: LawSpec = entry::<PdAvgParams>(
    "pd-avg",
    "PD on the average queue: proportional-derivative control",
    "p = k_p·e + k_d·de/dt;  e = (avg − target)/buffer",
)
.with_goals(PidGoals::SPECS);

pub const PID: LawSpec = entry::<PidAvgParams>(
    "pid-avg",
    "PID on the average queue: proportional-integral-derivative control",
    "p = k_p·e + k_i·∫e dt + k_d·de/dt;  e = (avg − target)/buffer",
)
.with_goals(PidGoals::SPECS);

const fn entry<L: AveragedLaw>(
    kind: &'static str,
    title: &'static str,
    equation: &'static str,
) -> LawSpec {
    LawSpec::of::<L>(kind, title, "Bigdeli et al., bigdeli eq. (3)-(5), Table 1")
        .with_equation(equation)
        .with_search(|conditions| Search::Space(space(conditions, L::GAINS)))
}

/// One of the four laws: the parameters that all of them have, and its own gains.
trait AveragedLaw: Params + LinearLaw + FixedPointLaw + Send + Sync + 'static {
    /// Names of its gains.
    const GAINS: &'static [&'static str];

    fn target(&self) -> SetPoint;

    /// Returns the controller at its start.
    fn averaged(&self, site: &Site) -> Averaged;

    /// Returns the law with another target and with those of these gains that it has.
    fn with_gains(&self, target: SetPoint, gains: &Gains) -> Self;

    /// Applies the design rule: gains per packet, and why these.
    fn rule(goals: &ParamValues, point: &OperatingPoint) -> Ruled;
}

/// Declares the parameters of one of the four: its gains and sampling time are Table 1's.
macro_rules! averaged_params {
    (
        $params:ident every $interval:expr, by $goals:ident::$rule:ident,
        { $( $(#[doc = $doc:literal])+ $gain:ident = $default:literal; )+ }
    ) => {
        params! {
            /// A controller of the averaged queue; gains act on (average − target)/buffer.
            pub struct $params {
                /// Average queue length or queuing delay to hold. The paper does not print it: its
                /// PI and PID settle at 85.0 and 89.4 packets, and integral control settles at
                /// its target.
                target: SetPoint = SetPoint::Packets(87.0), 0.0 => 1e9;
                /// Queue length up to which the law signals nothing (the paper's Q_thresh, not
                /// printed either).
                min_th: Packets = Packets(0.0), 0.0 => 1e9;
                /// Weight of a new queue length in the average.
                w_q: f64 = 0.05, 1e-12 => 1.0;
                /// Average the queue at the samples instead of at every arrival, as RED does.
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

            fn rule(goals: &ParamValues, point: &OperatingPoint) -> Ruled {
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

fn design<L: AveragedLaw>(law: &L, request: &DesignRequest, goals: &ParamValues) -> DesignResult {
    let (per_packet, note) = L::rule(goals, &request.point)?;
    // The law divides its error by the buffer.
    let buffer_pkts = request.site.buffer_pkts;
    let gains = per_packet.times(buffer_pkts);
    let designed = law.with_gains(request.set_point, &gains);
    designed.check(&request.site)?;
    let named = |gains: &Gains| {
        let all = [("k_p", gains.k_p), ("k_i", gains.k_i), ("k_d", gains.k_d)];
        all.into_iter().filter(|(name, _)| L::GAINS.contains(name))
    };
    let words: Vec<String> = named(&per_packet)
        .map(|(name, gain)| format!("{name} = {gain:.4e}"))
        .collect();
    Ok(Some(Design::of(
        named(&gains).collect(),
        &designed,
        &[&["target", "w_q"], L::GAINS, &["interval"]].concat(),
        vec![
            note,
            format!(
                "Per packet that is {}; the law takes it times the buffer, {buffer_pkts} packets.",
                words.join(", "),
            ),
        ],
    )))
}

/// Search space of the law with these gains; they act on an error relative to the buffer.
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

/// Continuous gains; a law without one of them leaves it at zero.
#[derive(Default)]
struct Gains {
    k_p: f64,
    k_i: f64,
    k_d: f64,
}

impl Gains {
    fn times(&self, factor: f64) -> Gains {
        Gains {
            k_p: self.k_p * factor,
            k_i: self.k_i * factor,
            k_d: self.k_d * factor,
        }
    }

    /// bigdeli eq. (5); its b1 has lost the plus sign before 2K_D/T_s.
    fn digital(&self, interval: Span) -> Coefficients {
        Coefficients::pid(self.k_p, self.k_i, self.k_d, interval.as_secs_f64())
    }
}

type Ruled = Result<(Gains, String), ParamError>;

params! {
    /// Goals of P's design.
    pub struct PGoals {
        /// Factor on the designed gain.
        tuning: f64 = 1.0, 1e-6 => 1e6;
    }
}

impl PGoals {
    /// Hollot et al. 2001: the loop gain crosses one at the geometric mean of TCP's and the
    /// queue's pole. bigdeli's K_P in Table 1 is this, for its own network.
    fn rule(&self, point: &OperatingPoint) -> Ruled {
        let (p1, p2) = (point.tcp_pole(), point.queue_pole());
        let omega_g = (p1 * p2).sqrt();
        let k_p = omega_g.hypot(p1) * omega_g.hypot(p2) / point.plant_gain();
        let note = format!(
            "The loop gain crosses one at {omega_g:.4} rad/s, the geometric mean of the poles of \
             TCP and the queue. Without an integral the queue settles where k_p times the average \
             over the buffer is what TCP needs, wherever the target is."
        );
        let gains = Gains {
            k_p: self.tuning * k_p,
            ..Gains::default()
        };
        Ok((gains, note))
    }
}

impl PiGoals {
    fn rule(&self, point: &OperatingPoint) -> Ruled {
        let (k_p, k_i) = self.gains(point);
        Ok((Gains { k_p, k_i, k_d: 0.0 }, self.note(point)))
    }
}

impl PidGoals {
    /// The PD part of the pole placement.
    fn pd_rule(&self, point: &OperatingPoint) -> Ruled {
        let placed = self.placement(point);
        faster_than_plant(&placed)?;
        let gains = Gains {
            k_p: self.tuning * placed.k_p1,
            k_i: 0.0,
            k_d: self.tuning * placed.k_d1,
        };
        Ok((gains, self.note(point)))
    }

    fn rule(&self, point: &OperatingPoint) -> Ruled {
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

    /// The difference equation after the average, at arrivals or at the samples.
    fn linear(&self, point: &OperatingPoint, site: &Site) -> Option<LoopFilter> {
        let target_pkts = site.pkts(self.target.set_point);
        let mut filter = self
            .gains
            .sampled(self.interval.as_secs_f64(), 1.0 / self.buffer_pkts);
        let resting = LoopFilter::controlled(target_pkts, filter.clone(), point.probability())?;
        let average = (!self.at_samples).then_some(Average {
            weight: self.w_q,
            interval_s: 1.0 / point.capacity_pkts_per_s,
        });
        if self.at_samples {
            filter = filter.averaged(self.w_q);
        }
        // A queue that is spared is not signalled at all.
        (resting.queue_pkts > self.min_pkts || self.min_pkts == 0.0).then(|| LoopFilter {
            average,
            ..LoopFilter::sampled(resting.queue_pkts, filter)
        })
    }

    /// bigdeli eq. (4). The paper does not say whether its t counts arrivals or samples.
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
        // bigdeli eq. (3) has the sign of e reversed: with it, a long queue would lower p.
        let error = (self.average_pkts - self.target.pkts(s.q)) / self.buffer_pkts;
        self.state.step(self.gains, error)
    }

    fn state(&self) -> Option<State> {
        let [p, e_1, e_2] = self.state.state();
        Some(state_of(&[p, e_1, e_2, self.average_pkts]))
    }

    /// An average of samples comes nearer to the queue by the same part at each.
    fn skip(&mut self, first: &Sample, samples: u64) {
        let queue_pkts = f64::from(first.q.packets);
        let (moves, ratio) = match self.at_samples {
            true => (self.average_pkts - queue_pkts, 1.0 - self.w_q),
            false => (0.0, 0.0),
        };
        let rest_pkts = self.average_pkts - moves;
        let errors = Errors {
            decaying: moves * ratio / self.buffer_pkts,
            ratio,
            ..Errors::constant((rest_pkts - self.target.pkts(first.q)) / self.buffer_pkts)
        };
        self.state.advance(self.gains, &errors, samples);
        self.average_pkts = rest_pkts + moves * ratio.powf(samples as f64);
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

    /// Section 3 spares packets at Q ≤ Q_thresh; its step 4 says the reverse.
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

    /// Probabilities at successive samples of a law that averages at its samples, with w_q = 1.
    fn run(spec: &LawSpec, queue_pkts: &[u32]) -> Vec<f64> {
        let given = [
            ("target".into(), Value::Text("400p".into())),
            ("w_q".into(), Value::Number(1.0)),
            ("average_at_samples".into(), Value::Flag(true)),
        ];
        let mut law = spec.build(&given, &site(), 1).unwrap();
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

    // B = 800, so queues of 600, 600, 500 are errors of 0.25, 0.25, 0.125.
    const QUEUES: &[u32] = &[600, 600, 500];

    #[test]
    fn p_follows_the_error() {
        // p = K_P·e, as each step adds K_P·(e_k − e_{k−1}).
        let k = 4.0832e-5;
        assert_close(&run(&P, QUEUES), &[k * 0.25, k * 0.25, k * 0.125]);
    }

    #[test]
    fn pi_adds_the_trapezoid() {
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
    fn pd_adds_the_slope() {
        // K_D/T = 8. First step: 2e-4·0.25 + 8·0.25 is held to 1. Then Δp = 8·(−0.25), held
        // to 0. Then Δp = 2e-4·(−0.125) + 8·(−0.125 − 0), still 0.
        assert_close(&run(&PD, QUEUES), &[1.0, 0.0, 0.0]);
    }

    #[test]
    fn pid_adds_both() {
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
        // 0.05·100 = 5, then 0.95·5 + 5 = 9.75; the sample itself adds nothing.
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
    fn a_short_queue_is_spared() {
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
