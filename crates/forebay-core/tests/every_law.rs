//! Properties of every law in the registry. No law is named here: a new one is tested by
//! being registered.

use forebay_core::discipline::{Buffer, Discipline, Drop, Fifo, Packet, Sink};
use forebay_core::laws::LAWS;
use forebay_core::{
    Bytes, Ecn, Law, LawSpec, PacketMeta, QueueView, Rate, Rng, Site, Span, Time, Value, Verdict,
};
use proptest::prelude::*;

fn site() -> Site {
    Site {
        rate: Rate::from_bps(15_000_000),
        buffer_pkts: 500.0,
        packet: Bytes(1000),
    }
}

fn build(spec: &LawSpec) -> Box<dyn Law> {
    spec.build(&[], &site())
        .unwrap_or_else(|e| panic!("{}: {e}", spec.kind))
}

/// One thing that can happen to a law.
#[derive(Clone, Debug)]
enum Step {
    Enqueue { bytes: u32, ect: bool },
    Dequeue { bytes: u32 },
    Overflow,
    Idle,
    Tick,
}

fn steps() -> impl Strategy<Value = Vec<(u64, u32, Step)>> {
    let step = prop_oneof![
        6 => (1u32..65_536, any::<bool>()).prop_map(|(bytes, ect)| Step::Enqueue { bytes, ect }),
        3 => (1u32..65_536).prop_map(|bytes| Step::Dequeue { bytes }),
        1 => Just(Step::Overflow),
        1 => Just(Step::Idle),
        2 => Just(Step::Tick),
    ];
    // (nanoseconds since the last step, queue length, step), with long silences among them.
    let gap = prop_oneof![8 => 0u64..10_000_000, 1 => 0u64..20_000_000_000];
    proptest::collection::vec((gap, 0u32..500, step), 1..300)
}

/// Drives a law, checks its probability after each step, and returns its verdicts.
fn drive(law: &mut dyn Law, seed: u64, steps: &[(u64, u32, Step)]) -> Vec<Verdict> {
    let mut rng = Rng::new(seed, "law");
    let mut now = Time::ZERO;
    let mut verdicts = Vec::new();
    for (gap, packets, step) in steps {
        now += Span::from_nanos(*gap);
        let q = QueueView {
            packets: *packets,
            bytes: u64::from(*packets) * 1000,
            limit_packets: 500,
            rate: site().rate,
            idle_since: (*packets == 0).then_some(Time::ZERO),
        };
        let meta = |bytes, ecn| PacketMeta {
            bytes,
            ecn,
            tcp: bytes % 4 != 0,
            sojourn: Span::from_millis(1),
        };
        match *step {
            Step::Enqueue { bytes, ect } => {
                let ecn = if ect { Ecn::Ect0 } else { Ecn::NotEct };
                verdicts.push(law.on_enqueue(now, &q, &meta(bytes, ecn), &mut rng));
            }
            Step::Dequeue { bytes } => {
                verdicts.push(law.on_dequeue(now, &q, &meta(bytes, Ecn::NotEct), &mut rng));
            }
            Step::Overflow => law.on_overflow(now, &q),
            Step::Idle => law.on_idle(now, &q),
            Step::Tick => law.handle_timeout(now, &q),
        }
        if let Some(p) = law.intensity(&q) {
            assert!((0.0..=1.0).contains(&p), "intensity {p}");
        }
        law.probe(&mut |name, value| {
            assert!(value.is_finite(), "{name} = {value}");
            if name == "p" {
                assert!((0.0..=1.0).contains(&value), "p = {value}");
            }
        });
    }
    verdicts
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn probabilities_stay_in_range_on_any_input(steps in steps(), seed: u64) {
        for spec in LAWS {
            drive(&mut *build(spec), seed, &steps);
        }
    }

    #[test]
    fn same_seed_same_verdicts(steps in steps(), seed: u64) {
        for spec in LAWS {
            let first = drive(&mut *build(spec), seed, &steps);
            let second = drive(&mut *build(spec), seed, &steps);
            prop_assert_eq!(first, second, "{}", spec.kind);
        }
    }

    #[test]
    fn packets_are_conserved(steps in steps(), seed: u64, limit in 1u32..300, in_bytes: bool) {
        for spec in LAWS {
            let buffer = if in_bytes { Buffer::Bytes(u64::from(limit) * 1000) } else { Buffer::Packets(limit) };
            conserve(spec, buffer, seed, &steps);
        }
    }

    #[test]
    fn late_ticks_are_all_run(gaps in proptest::collection::vec(0u64..400_000_000, 1..40), packets in 0u32..500) {
        let q = QueueView { packets, bytes: u64::from(packets) * 1000, limit_packets: 500, rate: site().rate, idle_since: None };
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

#[derive(Clone, Debug)]
struct TestPacket {
    id: usize,
    bytes: u32,
    ecn: Ecn,
}

impl Packet for TestPacket {
    fn bytes(&self) -> u32 {
        self.bytes
    }
    fn ecn(&self) -> Ecn {
        self.ecn
    }
    fn set_ce(&mut self) {
        assert_ne!(
            self.ecn,
            Ecn::NotEct,
            "CE on a packet that is not ECN-capable"
        );
        self.ecn = Ecn::Ce;
    }
}

#[derive(Default)]
struct Record {
    dropped: Vec<usize>,
    marked: Vec<usize>,
}

impl Sink<TestPacket> for Record {
    fn dropped(&mut self, _now: Time, packet: TestPacket, _why: Drop) {
        self.dropped.push(packet.id);
    }
    fn marked(&mut self, _now: Time, packet: &TestPacket) {
        self.marked.push(packet.id);
    }
}

fn conserve(spec: &LawSpec, buffer: Buffer, seed: u64, steps: &[(u64, u32, Step)]) {
    let mut fifo = Fifo::new(
        build(spec),
        buffer,
        site().rate,
        true,
        Rng::new(seed, "law"),
    );
    let mut record = Record::default();
    let (mut offered, mut left) = (0, Vec::new());
    let mut now = Time::ZERO;
    for (gap, _, step) in steps {
        now += Span::from_nanos(*gap);
        match *step {
            Step::Enqueue { bytes, ect } => {
                let ecn = if ect { Ecn::Ect0 } else { Ecn::NotEct };
                fifo.enqueue(
                    now,
                    TestPacket {
                        id: offered,
                        bytes,
                        ecn,
                    },
                    &mut record,
                );
                offered += 1;
            }
            Step::Dequeue { .. } => {
                left.extend(fifo.dequeue(now, &mut record).map(|d| d.packet.id))
            }
            _ => fifo.handle_timeout(now),
        }
        match buffer {
            Buffer::Packets(limit) => assert!(fifo.len_packets() <= limit),
            Buffer::Bytes(limit) => assert!(fifo.len_bytes() <= limit),
        }
    }
    while let Some(departure) = fifo.dequeue(now, &mut record) {
        left.push(departure.packet.id);
    }
    assert!(left.is_sorted(), "{}: a FIFO keeps the order", spec.kind);
    assert_eq!(fifo.len_bytes(), 0);
    left.extend(&record.dropped);
    left.sort_unstable();
    assert_eq!(
        left,
        (0..offered).collect::<Vec<_>>(),
        "{}: each packet comes back once",
        spec.kind
    );
    assert!(record.marked.iter().all(|id| left.contains(id)));
}

#[test]
fn parameters_round_trip_through_their_values() {
    for spec in LAWS {
        let defaults = spec.resolve(&[]).unwrap();
        assert_eq!(defaults.len(), spec.params.len());
        let given: Vec<(String, Value)> = defaults
            .iter()
            .map(|(k, v)| (k.to_string(), v.clone()))
            .collect();
        assert_eq!(spec.resolve(&given).unwrap(), defaults, "{}", spec.kind);
        build(spec);
    }
}

#[test]
fn parameters_are_described() {
    for spec in LAWS {
        assert!(!spec.title.is_empty() && !spec.source.is_empty());
        for param in spec.params {
            assert!(
                param.doc.trim().ends_with('.'),
                "{}.{}: a sentence",
                spec.kind,
                param.name
            );
            assert!(param.min < param.max, "{}.{}", spec.kind, param.name);
            if let Some(default) = (param.default_base)() {
                assert!(
                    (param.min..=param.max).contains(&default),
                    "{}.{}",
                    spec.kind,
                    param.name
                );
            }
        }
        // The same idea has the same key in every law.
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
            "{}",
            spec.kind
        );
        assert_eq!(
            forebay_core::laws::find(spec.kind).map(|found| found.title),
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
            let given = [(param.name.to_string(), Value::Number(param.max * 2.0 + 1.0))];
            assert!(
                spec.resolve(&given).is_err(),
                "{}.{}",
                spec.kind,
                param.name
            );
        }
    }
}

#[test]
fn intensity_is_the_rate_of_signals() {
    let packet = PacketMeta {
        bytes: 1000,
        ecn: Ecn::Ect0,
        tcp: true,
        sojourn: Span::ZERO,
    };
    for spec in LAWS {
        for packets in [3, 8, 12, 100, 300, 450] {
            let q = QueueView {
                packets,
                bytes: u64::from(packets) * 1000,
                limit_packets: 500,
                rate: site().rate,
                idle_since: None,
            };
            let (mut law, mut rng) = (build(spec), Rng::new(1, "law"));
            // The queue stays as it is for 10 s: averages settle, integrals grow.
            let mut now = Time::ZERO;
            for _ in 0..20_000 {
                now += Span::from_micros(500);
                law.handle_timeout(now, &q);
                law.on_enqueue(now, &q, &packet, &mut rng);
            }
            // Then time stands still, and with it every clock; averages may go on moving.
            let n = 50_000;
            let (mut told, mut seen) = (0.0, 0.0);
            for _ in 0..n {
                let Some(p) = law.intensity(&q) else { break };
                told += p / f64::from(n);
                if law.on_enqueue(now, &q, &packet, &mut rng) != Verdict::Pass {
                    seen += 1.0 / f64::from(n);
                }
            }
            // RED's spacing makes its rate a little uneven in p, and less random than a coin.
            let noise = 5.0 * (told * (1.0 - told).max(0.0) / f64::from(n)).sqrt() + 1e-9;
            assert!(
                (seen - told).abs() <= 0.1 * told + noise,
                "{} at {packets}: told {told}, seen {seen}",
                spec.kind
            );
        }
    }
}
