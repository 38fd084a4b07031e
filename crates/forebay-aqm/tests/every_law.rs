//! Properties of every registered law. No law is named here, so a new one is tested once it is
//! registered.

mod common;
#[path = "common/law_steps.rs"]
mod law_steps;

use forebay_aqm::laws::{self, LAWS};
use forebay_aqm::{Ecn, Law, LawSpec, PacketMeta, QueueView, Signal, Verdict};
use forebay_theory::linear::OperatingPoint;
use forebay_theory::search::{Axis, Condition, Conditions, Search, Settings};
use forebay_units::{Bytes, Rate, Rng, Site, Span, Time, Value};
use law_steps::{steps, Step};
use proptest::prelude::*;

fn site() -> Site {
    Site {
        rate: Rate::from_bps(15_000_000),
        buffer_pkts: 500.0,
        packet: Bytes(1000),
    }
}

fn signal(ecn: Ecn) -> Signal {
    match ecn {
        Ecn::NotEct => Signal::Drop,
        _ => Signal::Mark,
    }
}

fn build(spec: &LawSpec) -> Box<dyn Law> {
    spec.build(&[], &site(), 1)
        .unwrap_or_else(|e| panic!("{}: {e}", spec.kind))
}

/// Calls every hook of a law, checks its probability after each step, and returns its verdicts.
fn drive(law: &mut dyn Law, seed: u64, steps: &[(u64, u32, Step)]) -> Vec<Verdict> {
    drive_watching(law, seed, steps, true, true).0
}

/// Calls the hooks of a law, those for packets only if `arrivals` or `departures`. Returns the
/// verdicts, and the values that the law reports after each step.
fn drive_watching(
    law: &mut dyn Law,
    seed: u64,
    steps: &[(u64, u32, Step)],
    arrivals: bool,
    departures: bool,
) -> (Vec<Verdict>, Vec<f64>) {
    let mut rng = Rng::new(seed, "law");
    let mut now = Time::ZERO;
    let mut verdicts = Vec::new();
    let mut reported = Vec::new();
    for (gap, packets, step) in steps {
        now += Span::from_nanos(*gap);
        let q = QueueView {
            idle_since: (*packets == 0).then_some(Time::ZERO),
            head_since: (*packets > 0).then_some(Time::ZERO),
            ..QueueView::busy(*packets, 1000, 500, site().rate)
        };
        let meta = |bytes, ecn, tcp| PacketMeta {
            flow: 0,
            bytes,
            ecn,
            signal: signal(ecn),
            tcp,
            sojourn: Span::from_millis(1),
        };
        match *step {
            Step::Enqueue { .. } if !arrivals => verdicts.push(Verdict::Pass),
            Step::Dequeue { .. } if !departures => verdicts.push(Verdict::Pass),
            Step::Enqueue { bytes, ect } => {
                let ecn = if ect { Ecn::Ect0 } else { Ecn::NotEct };
                verdicts.push(law.on_enqueue(now, &q, &meta(bytes, ecn, bytes % 4 != 0), &mut rng));
            }
            Step::Dequeue { bytes, tcp } => {
                verdicts.push(law.on_dequeue(now, &q, &meta(bytes, Ecn::NotEct, tcp), &mut rng));
            }
            Step::Overflow => law.on_overflow(now, &q),
            Step::Idle => law.on_idle(now, &q),
            Step::Tick => law.handle_timeout(now, &q),
        }
        if let Some(p) = law.intensity(&q) {
            assert!((0.0..=1.0).contains(&p), "intensity {p}");
            reported.push(p);
        }
        law.probe(&mut |name, value| {
            assert!(value.is_finite(), "{name} = {value}");
            if name == "p" {
                assert!((0.0..=1.0).contains(&value), "p = {value}");
            }
            reported.push(value);
        });
    }
    (verdicts, reported)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn probabilities_stay_in_range_on_any_input(steps in steps(65_536, 20), seed: u64) {
        for spec in LAWS {
            drive(&mut *build(spec), seed, &steps);
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_verdicts(steps in steps(65_536, 20), seed: u64) {
        for spec in LAWS {
            let first = drive(&mut *build(spec), seed, &steps);
            let second = drive(&mut *build(spec), seed, &steps);
            prop_assert_eq!(first, second, "{}", spec.kind);
        }
    }

    #[test]
    fn a_law_that_does_not_watch_packets_does_not_need_their_hooks(steps in steps(65_536, 20), seed: u64) {
        for spec in LAWS {
            let (mut law, mut uncalled) = (build(spec), build(spec));
            let (arrivals, departures) = (law.watches_arrivals(), law.watches_departures());
            let with_all_hooks = drive_watching(&mut *law, seed, &steps, true, true);
            let without = drive_watching(&mut *uncalled, seed, &steps, arrivals, departures);
            prop_assert_eq!(with_all_hooks, without, "{}", spec.kind);
        }
    }

    #[test]
    fn late_ticks_are_all_run(gaps in proptest::collection::vec(0u64..400_000_000, 1..40), packets in 0u32..500) {
        let q = QueueView::busy(packets, 1000, 500, site().rate);
        for spec in LAWS {
            let (mut late, mut prompt) = (build(spec), build(spec));
            let mut now = Time::ZERO;
            for gap in &gaps {
                now += Span::from_nanos(*gap);
                late.handle_timeout(now, &q);
                while let Some(due) = prompt.poll_timeout().filter(|due| *due <= now) {
                    prompt.handle_timeout(due, &q);
                }
                prop_assert!(late.poll_timeout().is_none_or(|due| due > now), "{} left a tick behind", spec.kind);
                prop_assert_eq!(late.poll_timeout(), prompt.poll_timeout(), "{}", spec.kind);
                prop_assert_eq!(late.intensity(&q), prompt.intensity(&q), "{}", spec.kind);
            }
        }
    }
}

#[test]
fn parameters_round_trip_through_their_values() {
    for spec in LAWS {
        let defaults = spec.read(&[]).unwrap().values();
        assert_eq!(defaults.len(), spec.params.len());
        let values: Vec<(String, Value)> = defaults
            .iter()
            .map(|(k, v)| (k.to_string(), v.clone()))
            .collect();
        assert_eq!(
            spec.read(&values).unwrap().values(),
            defaults,
            "{}",
            spec.kind
        );
        build(spec);
    }
}

#[test]
fn parameters_are_described() {
    for spec in LAWS {
        assert!(
            !spec.title.is_empty() && !spec.source.is_empty(),
            "{}: the title or the source is empty",
            spec.kind
        );
        // The equation of a law names its parameters.
        let mut names = spec.params.iter().map(|param| param.name);
        let is_named = names.any(|name| spec.equation.contains(name));
        assert!(
            spec.baseline || is_named,
            "{}: the entry needs `.with_equation(…)`, a line that names a parameter",
            spec.kind
        );
        common::assert_described(spec.kind, spec.params);
        for param in spec.params {
            assert!(param.min < param.max, "{}.{}", spec.kind, param.name);
        }
        // The same quantity has the same key in every law.
        for wrong in [
            "q_ref",
            "qref",
            "setpoint",
            "set_point",
            "sampling_time",
            "period",
        ] {
            assert!(
                spec.params.iter().all(|p| p.name != wrong),
                "{}: {wrong} is `target` or `interval`",
                spec.kind
            );
        }
    }
}

#[test]
fn kinds_are_unique() {
    for (i, spec) in LAWS.iter().enumerate() {
        assert!(
            LAWS[..i].iter().all(|other| other.kind != spec.kind),
            "{}: two laws have this name",
            spec.kind
        );
        assert_eq!(
            forebay_aqm::laws::find(spec.kind).map(|law| law.title),
            Some(spec.title)
        );
    }
}

#[test]
fn out_of_range_values_are_refused() {
    for spec in LAWS {
        for param in spec
            .params
            .iter()
            .filter(|p| p.unit.is_empty() && (p.default_base)().is_some())
        {
            let values = [(param.name.to_string(), Value::Number(param.max * 2.0 + 1.0))];
            assert!(spec.read(&values).is_err(), "{}.{}", spec.kind, param.name);
        }
    }
}

#[test]
fn intensity_is_the_rate_of_signals() {
    let packet = PacketMeta {
        flow: 0,
        bytes: 1000,
        ecn: Ecn::Ect0,
        signal: Signal::Mark,
        tcp: true,
        sojourn: Span::ZERO,
    };
    for spec in LAWS {
        for packets in [3, 8, 12, 100, 300, 450] {
            let q = QueueView {
                head_since: Some(Time::ZERO),
                ..QueueView::busy(packets, 1000, 500, site().rate)
            };
            let (mut law, mut rng) = (build(spec), Rng::new(1, "law"));
            // The queue is constant for 10 s: averages converge, integrals grow.
            let mut now = Time::ZERO;
            for _ in 0..20_000 {
                now += Span::from_micros(500);
                law.handle_timeout(now, &q);
                law.on_enqueue(now, &q, &packet, &mut rng);
            }
            // Then time stops, and with it every clock; averages may still move.
            let n = 50_000;
            let (mut reported, mut measured) = (0.0, 0.0);
            for _ in 0..n {
                let Some(p) = law.intensity(&q) else { break };
                reported += p / f64::from(n);
                if law.on_enqueue(now, &q, &packet, &mut rng) != Verdict::Pass {
                    measured += 1.0 / f64::from(n);
                }
            }
            // RED's spacing makes its rate slightly nonlinear in p, with a smaller variance than
            // independent signals.
            let noise = 5.0 * (reported * (1.0 - reported).max(0.0) / f64::from(n)).sqrt() + 1e-9;
            assert!(
                (measured - reported).abs() <= 0.1 * reported + noise,
                "{} at {packets}: reported {reported}, measured {measured}",
                spec.kind
            );
        }
    }
}

/// Returns the conditions over which laws are tuned here: slow and fast links, few and many flows.
fn conditions() -> Conditions {
    let at =
        |mbps: u64, rtt_s, flows| Condition::new(Rate::from_bps(1_000_000 * mbps), rtt_s, flows);
    Conditions {
        all: vec![at(5, 0.02, 10), at(50, 0.2, 400), at(16, 0.0632, 63)],
        middle: at(16, 0.0632, 63),
        packet: site().packet,
        buffer_pkts: 1250.0,
    }
}

#[test]
fn one_law_is_the_baseline_and_every_other_can_be_tuned() {
    let baselines: Vec<_> = LAWS.iter().filter(|law| law.baseline).collect();
    assert_eq!(baselines.len(), 1);
    assert_eq!(laws::baseline().kind, baselines[0].kind);
    let roomy = Site {
        rate: Rate::from_bps(1_000_000_000),
        buffer_pkts: 1e6,
        ..site()
    };
    let point = OperatingPoint::of_flows(100.0, 0.1, 125_000.0);
    for spec in LAWS {
        let model = spec.read(&[]).unwrap().linear(&point, &roomy).unwrap();
        match spec.search(&conditions()) {
            Search::Nothing => assert!(
                spec.baseline,
                "{}: the entry has no search space; add `.with_search(…)` to its LawSpec",
                spec.kind
            ),
            Search::Listed(settings) => {
                assert!(
                    model.is_none(),
                    "{}: a law with a linear model needs Search::Space, not Search::Listed",
                    spec.kind
                );
                assert!(!settings.is_empty(), "{}: no settings to try", spec.kind);
                for candidate in settings {
                    assert_accepts(spec, &candidate, &conditions().middle);
                }
            }
            Search::Space(_) => assert!(
                model.is_some(),
                "{}: a law without a linear model needs Search::Listed, not Search::Space",
                spec.kind
            ),
        }
    }
}

/// Asserts that the law can be built with these settings.
fn assert_accepts(spec: &LawSpec, settings: &Settings, at: &Condition) {
    let values: Vec<_> = settings
        .iter()
        .map(|(name, value)| ((*name).to_owned(), value.clone()))
        .collect();
    let site = Site {
        rate: at.rate,
        buffer_pkts: conditions().buffer_pkts,
        packet: conditions().packet,
    };
    if let Err(error) = spec.build(&values, &site, 1) {
        panic!("{} with {values:?}: {error}", spec.kind);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_law_accepts_every_point_of_its_search_space(shares in proptest::array::uniform8(0.0..1.0f64)) {
        for spec in LAWS {
            let Search::Space(space) = spec.search(&conditions()) else {
                continue;
            };
            let along = |(axis, share): (&Axis, f64)| {
                assert!(0.0 < axis.low && axis.low < axis.high, "{} {}", spec.kind, axis.name);
                axis.low * (axis.high / axis.low).powf(share)
            };
            let point: Vec<f64> = space.axes.iter().zip(shares).map(along).collect();
            let queue_pkts = space.queue_pkts(&point);
            prop_assert!(queue_pkts > 0.0 && queue_pkts.is_finite(), "{} {queue_pkts}", spec.kind);
            for at in &conditions().all {
                let mut settings = space.settings(&point);
                settings.extend(space.adapted(&point, at, f64::from(at.flows)));
                assert_accepts(spec, &settings, at);
            }
        }
    }
}

#[test]
fn declared_facts_refer_to_existing_parameters() {
    for spec in LAWS {
        let exists = |name: &str| {
            let mut keys = spec.params.iter().chain(spec.goals);
            keys.any(|key| key.name == name)
        };
        if let Some(name) = spec.slowed_by {
            assert!(exists(name), "{}: {name}", spec.kind);
        }
        // A set-point is a queue length or a queuing delay.
        if let Some(key) = spec.set_point() {
            assert!(key.unit.contains(['p', 's']), "{}: {}", spec.kind, key.unit);
        }
        assert!(
            spec.title.contains(": "),
            "{}: the title {:?} must be a name, a colon and a description",
            spec.kind,
            spec.title
        );
        if let Some((_, text)) = spec.reality {
            assert!(text.ends_with('.') && !text.contains("  "), "{text}");
        }
    }
}
