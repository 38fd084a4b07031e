//! Every registered linear model, compared with the law itself driven by a small sine of the queue
//! length: with default parameters, and with those that select another branch of a model.

use forebay_aqm::laws::{find, LAWS};
use forebay_aqm::{Ecn, Law, LawSpec, PacketMeta, QueueView, Signal};
use forebay_theory::linear::{LoopFilter, OperatingPoint};
use forebay_units::{Bytes, Rate, Rng, Site, Span, Time, Value};
use std::f64::consts::TAU;

/// Returns a link of 10 000 packets/s. The buffer is huge, so that queue lengths relative to it are
/// nearly continuous.
fn site() -> Site {
    Site {
        rate: Rate::from_bps(80_000_000),
        buffer_pkts: 1e9,
        packet: Bytes(1000),
    }
}

const CAPACITY: f64 = 10_000.0;
const RTT_S: f64 = 0.25;
/// The frequencies of the sines, in rad/s.
const FREQUENCIES: [f64; 3] = [0.5, 2.0, 8.0];

fn point(probability: f64) -> OperatingPoint {
    OperatingPoint {
        load: (probability / 2.0).sqrt(),
        capacity_pkts_per_s: CAPACITY,
        rtt_s: RTT_S,
    }
}

/// A law, settings that differ from its defaults, and the probabilities at which it is driven. The
/// first at which it has an equilibrium counts.
struct Case<'a> {
    spec: &'a LawSpec,
    settings: &'a [(&'a str, &'a str)],
    probabilities: &'a [f64],
}

impl<'a> Case<'a> {
    /// Most laws reach the first probability with their defaults; the second is for laws that
    /// hardly signal.
    fn with_defaults(spec: &'a LawSpec) -> Case<'a> {
        Case {
            spec,
            settings: &[],
            probabilities: &[1.0 / 30.0, 2e-5],
        }
    }
}

/// Returns the parameters of the law that describe the network, and the settings of the case; the
/// others have their defaults.
fn network_params(case: &Case, point: &OperatingPoint) -> Vec<(String, Value)> {
    let spec = case.spec;
    let value = |text: &str| match (text, text.parse()) {
        ("true" | "false", _) => Value::Flag(text == "true"),
        (_, Ok(number)) => Value::Number(number),
        (_, Err(_)) => Value::Text(text.to_owned()),
    };
    let settings = case.settings.iter();
    let network = [
        ("flows", Value::Number(point.flows())),
        ("rtt", Value::Text(format!("{}s", point.rtt_s))),
    ];
    let has_param = |name: &str| spec.params.iter().any(|param| param.name == name);
    network
        .into_iter()
        .filter(|(name, _)| has_param(name))
        .map(|(name, value)| (name.to_string(), value))
        .chain(settings.map(|(name, text)| ((*name).to_owned(), value(text))))
        .collect()
}

/// A law at a queue whose length is a given function of time: packets arrive and leave so that it
/// has this length.
struct Bench {
    law: Box<dyn Law>,
    rng: Rng,
    step: u64,
    arrived: f64,
}

const PACKET: PacketMeta = PacketMeta {
    flow: 0,
    bytes: 1000,
    ecn: Ecn::NotEct,
    signal: Signal::Drop,
    tcp: true,
    sojourn: Span::ZERO,
};

impl Bench {
    fn now_s(&self) -> f64 {
        self.step as f64 / CAPACITY
    }

    /// Returns the view of a queue. A fractional length is rounded up or down at random, with the
    /// right mean. `waited_s` is the time that the head packet has waited.
    fn view(&mut self, queue_pkts: f64, waited_s: f64) -> QueueView {
        let arrived_s = (self.now_s() - waited_s).max(0.0);
        let packets = (queue_pkts + self.rng.uniform()).floor().max(0.0) as u32;
        QueueView {
            head_since: (packets > 0).then_some(Time::from_nanos((1e9 * arrived_s) as u64)),
            ..QueueView::busy(packets, 1000, u32::MAX, site().rate)
        }
    }

    /// Runs for `seconds`, and calls `observe` with the time and the probability after each step.
    fn run(
        &mut self,
        seconds: f64,
        queue_pkts: impl Fn(f64) -> f64,
        mut observe: impl FnMut(f64, f64),
    ) {
        for _ in 0..(seconds * CAPACITY) as u64 {
            let before = queue_pkts(self.now_s());
            self.step += 1;
            let now = Time::from_nanos(self.step * (1e9 / CAPACITY) as u64);
            let length = queue_pkts(self.now_s());
            // A packet waits for the transmission of the queue that it found, by fixed-point
            // iteration.
            let mut waited_s = length / CAPACITY;
            for _ in 0..5 {
                waited_s = queue_pkts(self.now_s() - waited_s) / CAPACITY;
            }
            while let Some(due) = self.law.poll_timeout().filter(|due| *due <= now) {
                let q = self.view(queue_pkts(due.as_secs_f64()), waited_s);
                self.law.handle_timeout(due, &q);
            }
            // One packet leaves in each step; arrivals make up the rest of the change.
            let q = self.view(length, waited_s);
            let leaving = PacketMeta {
                sojourn: Span::from_secs_f64(waited_s),
                ..PACKET
            };
            self.law.on_dequeue(now, &q, &leaving, &mut self.rng);
            self.arrived += 1.0 + length - before;
            while self.arrived >= 1.0 {
                self.arrived -= 1.0;
                let q = self.view(length, waited_s);
                self.law.on_enqueue(now, &q, &PACKET, &mut self.rng);
            }
            let q = self.view(length, waited_s);
            observe(self.now_s(), self.probability(&q));
        }
    }

    /// Returns the probability after half a second at a constant length.
    fn resting(&mut self, queue_pkts: f64) -> f64 {
        let mut p = 0.0;
        self.run(0.5, |_| queue_pkts, |_, now| p = now);
        p
    }

    fn probability(&self, q: &QueueView) -> f64 {
        self.law
            .intensity(q)
            .expect("a law with a linear model has an intensity")
    }

    /// Returns the state variable `name` of the law; `None` if it has none.
    fn probed(&self, name: &str) -> Option<f64> {
        let mut probe = None;
        self.law.probe(&mut |key, value| {
            if key == name {
                probe = Some(value);
            }
        });
        probe
    }
}

/// Returns a law at the equilibrium of `model`, with a probability away from 0 and 1.
fn settled(case: &Case, point: &OperatingPoint, model: &LoopFilter) -> Bench {
    let probability = point.probability();
    let mut bench = Bench {
        law: case
            .spec
            .build(&network_params(case, point), &site(), 1)
            .unwrap(),
        rng: Rng::new(1, "bench"),
        step: 0,
        arrived: 0.0,
    };
    // A slow average is raised by a queue that is long for a short time.
    while bench
        .probed("average")
        .is_some_and(|x| x < model.queue_pkts)
    {
        let missing = model.queue_pkts - bench.probed("average").unwrap();
        let weight = model.average.map_or(1.0, |average| average.weight);
        let length = model.queue_pkts + (0.05 * missing / weight).min(1e9); // ten arrivals
        bench.run(1e-3, |_| length, |_, _| ());
        if missing < 1e-3 * model.queue_pkts {
            break;
        }
    }
    // An integral is raised by an error that is small enough for the rest of the controller.
    let fast_gain = model.sampled.as_ref().map_or(0.0, |sampled| {
        let (re, im) = model.response(TAU / (5.0 * sampled.interval_s));
        re.hypot(im)
    });
    for _ in 0..20 {
        let mut p = bench.resting(model.queue_pkts);
        if p > 0.1 * probability {
            break;
        }
        let length = model.queue_pkts + 0.3 * probability / fast_gain;
        let mut seconds = 0.0;
        while p < probability && seconds < 200.0 {
            bench.run(0.1, |_| length, |_, now| p = now);
            seconds += 0.1;
        }
    }
    bench
}

/// Returns the complex gain from queue length to probability at `omega`, and the mean probability.
/// They are fitted by least squares of a sine on a parabola, because integrators drift.
fn measured(bench: &mut Bench, centre: f64, amplitude: f64, omega: f64) -> ((f64, f64), f64) {
    let start = bench.now_s();
    let queue = |t: f64| centre + amplitude * (omega * (t - start)).sin();
    let period = TAU / omega;
    // The first periods are left out, until the initial transient has decayed.
    bench.run((20.0 / omega).max(10.0), queue, |_, _| ());
    let seconds = period * (40.0 / period).ceil();
    let from = bench.now_s();
    let mut normal = [[0.0; 6]; 5];
    bench.run(seconds, queue, |t, p| {
        let phase = omega * (t - start);
        let x = (t - from) / seconds - 0.5;
        let basis = [phase.sin(), phase.cos(), 1.0, x, x * x];
        for (row, b) in normal.iter_mut().zip(basis) {
            for (cell, c) in row.iter_mut().zip(basis.into_iter().chain([p])) {
                *cell += b * c;
            }
        }
    });
    let x = solve(normal);
    ((x[0] / amplitude, x[1] / amplitude), x[2] + x[4] / 12.0)
}

/// Solves the normal equations by Gauss-Jordan elimination.
fn solve(mut m: [[f64; 6]; 5]) -> [f64; 5] {
    for i in 0..5 {
        for j in 0..5 {
            if j != i {
                let factor = m[j][i] / m[i][i];
                let pivot = m[i];
                for (cell, p) in m[j].iter_mut().zip(pivot) {
                    *cell -= factor * p;
                }
            }
        }
    }
    std::array::from_fn(|i| m[i][5] / m[i][i])
}

/// Returns, for each change of the model, the largest relative error of the changed model over the
/// frequencies; `None` for a law without a linear model.
fn errors<const N: usize>(case: &Case, changes: [fn(&mut LoopFilter); N]) -> Option<[f64; N]> {
    let spec = case.spec;
    let (start, model) = case.probabilities.iter().find_map(|p| {
        let start = point(*p);
        let params = network_params(case, &start);
        let model = spec
            .read(&params)
            .unwrap()
            .linear(&start, &site())
            .unwrap()?;
        (model.queue_pkts < 0.9 * site().buffer_pkts).then_some((start, model))
    })?;
    // The design of the law at its start determines its equilibrium.
    let at = |p| {
        let law = spec.read(&network_params(case, &start)).unwrap();
        law.linear(&point(p), &site()).unwrap()
    };
    let mut bench = settled(case, &start, &model);
    let p = bench.resting(model.queue_pkts);
    let equilibrium = at(p)?.queue_pkts;
    if (equilibrium / model.queue_pkts - 1.0).abs() > 1e-3 {
        bench = settled(case, &start, &at(p)?);
    }
    // The queue must not shrink faster than packets can leave.
    let amplitude = (1e-4 * equilibrium).clamp(
        (0.1 * equilibrium).min(20.0),
        0.5 * CAPACITY / FREQUENCIES[2],
    );
    let centre = equilibrium
        + if model.one_sided {
            1.5 * amplitude
        } else {
            0.0
        };
    let mut worst = [0.0; N];
    for omega in FREQUENCIES {
        let ((re, im), p) = measured(&mut bench, centre, amplitude, omega);
        assert!(p > 1e-6 && p < 0.9, "{}: equilibrium at p = {p}", spec.kind);
        // The model at the equilibrium that the law has reached.
        let model = at(p)?;
        for (worst, change) in worst.iter_mut().zip(changes) {
            let mut model = model.clone();
            change(&mut model);
            let (expected_re, expected_im) = model.response(omega);
            let error = (re - expected_re).hypot(im - expected_im) / expected_re.hypot(expected_im);
            *worst = f64::max(*worst, error);
        }
        if std::env::var("SHOW").is_ok() {
            let (expected_re, expected_im) = model.response(omega);
            eprintln!(
                "{} {omega}: {re:.5e} {im:+.5e} j, model {expected_re:.5e} {expected_im:+.5e} j, p {p:.4e}",
                spec.kind
            );
        }
    }
    Some(worst)
}

/// Makes every gain of the model 5 % too high.
fn wrong_gain(model: &mut LoopFilter) {
    model.direct *= 1.05;
    if let Some(sampled) = &mut model.sampled {
        sampled.numerator.iter_mut().for_each(|n| *n *= 1.05);
    }
}

/// Delays the model by one sample, or makes its average 5 % too slow.
fn wrong_phase(model: &mut LoopFilter) {
    if let Some(sampled) = &mut model.sampled {
        sampled.numerator.insert(0, 0.0);
    }
    if let Some(average) = &mut model.average {
        average.weight *= 0.95;
    }
}

#[test]
fn linear_models_match_the_laws_driven_by_a_small_sine() {
    let mut modelled = 0;
    for spec in LAWS {
        modelled += usize::from(assert_matches(&Case::with_defaults(spec)));
    }
    assert!(
        modelled > LAWS.len() / 2,
        "only {modelled} laws have a model"
    );
}

/// Asserts that the model is that of the driven law, and that a wrong model is not. Returns false if
/// the law has no model.
fn assert_matches(case: &Case) -> bool {
    let Some([right, gain, phase]) = errors(case, [|_| (), wrong_gain, wrong_phase]) else {
        return false;
    };
    let law = format!("{} {:?}", case.spec.kind, case.settings);
    assert!(right < 0.01, "{law}: {right}");
    assert!(gain > 0.04, "{law}: a wrong gain passes: {gain}");
    assert!(phase > 0.01, "{law}: a wrong phase passes: {phase}");
    true
}

/// Signals without spacing, RED above max_th, PD-RED with max_p at 1, and other estimators.
#[test]
fn linear_models_match_the_laws_with_other_parameters() {
    // A law, its settings, and the probability at which it is driven.
    type Driven<'a> = (&'a str, &'a [(&'a str, &'a str)], f64);
    let cases: [Driven; 7] = [
        ("red", &[("wait", "false")], 1.0 / 30.0),
        ("red", &[("max_p", "0.01")], 0.2),
        ("pd-red", &[("k_p", "1e6"), ("k_d", "0")], 0.45),
        ("stred", &[("wait", "false")], 1.0 / 30.0),
        ("pid-avg", &[("average_at_samples", "true")], 1.0 / 30.0),
        ("pie", &[("derandomise", "false")], 0.07),
        ("pi2", &[("target", "40ms")], 0.2),
    ];
    for (law, settings, probability) in cases {
        let case = Case {
            spec: find(law).unwrap(),
            settings,
            probabilities: &[probability],
        };
        assert!(assert_matches(&case), "{law} has no model");
    }
}

/// The facts that tables and commands use agree with the functions behind them.
#[test]
fn facts_about_theory_agree_with_the_models_and_rules() {
    let names = |fact: fn(&LawSpec) -> bool| -> Vec<&str> {
        LAWS.iter()
            .filter(|law| fact(law))
            .map(|law| law.kind)
            .collect()
    };
    let ruled = names(LawSpec::has_rule);
    let modelled = names(LawSpec::is_modelled);
    // Design rules use the linear model, except that of AVQ, which controls the arrival rate.
    let by_queue: Vec<&str> = ruled.iter().copied().filter(|law| *law != "avq").collect();
    assert_eq!(by_queue, modelled);
    for law in ["avq", "pi", "pie", "pi2", "dualpi2", "red"] {
        assert!(ruled.contains(&law), "{law}");
    }
    for law in ["droptail", "codel", "fq-pie", "cake"] {
        assert!(!ruled.contains(&law), "{law}");
    }
    let coupled = names(|law| {
        let law = law.read(&[]).unwrap();
        law.theory()
            .is_some_and(|theory| theory.coupling().is_some())
    });
    assert_eq!(coupled, ["pi2", "dualpi2"]);
}
