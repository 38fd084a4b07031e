//! Tests of every law of the kernel in lockstep with its law in Rust. All headers are tested,
//! without a list of them here.

#![cfg(target_os = "linux")]

#[path = "../../forebay-aqm/tests/common/law_steps.rs"]
mod law_steps;

use std::sync::{Arc, Mutex};

use forebay_aqm::laws::{self, LAWS};
use forebay_aqm::{Aqm, Ecn, FluidLaw, Law, LawSpec, PacketMeta, QueueView, Signal, Verdict};
use forebay_kernel::{ArrivingPacket, HostLaw, Queue};
use forebay_linux_tc::fixed_point;
use forebay_scenario::{parse, Options};
use forebay_sim::{run, Watch};
use forebay_units::{Bytes, ParamError, ParamType, Rate, Rng, Shape, Site, Span, Time, Value};
use law_steps::{steps, Step};
use proptest::prelude::*;

/// The state variables of the laws in Rust, each with the field of the kernel's law and its unit.
const PROBES: [(&str, &str, f64); 8] = [
    ("p", "p", PROBABILITY),
    ("max_p", "max_p", PROBABILITY),
    ("average", "average", LENGTH),
    ("load", "load", PROBABILITY),
    ("virtual_queue_bytes", "backlog", LENGTH),
    ("virtual_capacity_bps", "capacity", RATE / 8e9),
    ("capacity_pkts_per_s", "capacity", RATE / 1e9),
    ("w_q", "w_q", PROBABILITY),
];
const PROBABILITY: f64 = (1u64 << fixed_point::PROBABILITY_BITS) as f64;
const LENGTH: f64 = (1u64 << fixed_point::LENGTH_BITS) as f64;
const RATE: f64 = (1u64 << fixed_point::RATE_BITS) as f64;

/// The result of a run of both laws.
#[derive(Clone, Debug, Default)]
struct Comparison {
    arrivals: u64,
    ticks: u64,
    /// The drops and marks of the law in Rust, and of the kernel's.
    signals: [u64; 2],
    differing: u64,
    /// The largest relative difference of each state variable. The divisor is at least `SMALL`.
    worst: Vec<(&'static str, f64)>,
}

/// A law that runs both laws, and returns the verdicts of the one in Rust.
struct Lockstep {
    rust: Box<dyn Law>,
    kernel: HostLaw,
    in_bytes: bool,
    packet: u64,
    /// The round-trip time of a law that estimates its load: its estimates have floors of one flow
    /// and one packet in a round trip.
    rtt_s: Option<f64>,
    comparison: Arc<Mutex<Comparison>>,
    departed_bytes: u64,
    busy_ns: u64,
    busy_since: Option<Time>,
}

/// The smallest divisor of a relative difference of probabilities. For lengths it is a packet.
const SMALL: f64 = 1e-4;

impl Lockstep {
    fn new(
        spec: &'static LawSpec,
        given: &[(String, Value)],
        site: &Site,
        comparison: Arc<Mutex<Comparison>>,
    ) -> Result<Lockstep, ParamError> {
        let law = spec.read(given)?;
        let twin = law.twin(site)?.expect("a twin");
        let kernel = HostLaw::new(spec.kind, &twin).unwrap_or_else(|error| panic!("{error}"));
        let values = law.values();
        let in_bytes = values.contains(&("queue_in_bytes", Value::Flag(true)));
        Ok(Lockstep {
            rust: law.build(site, 1)?,
            kernel,
            in_bytes,
            packet: site.packet.0,
            rtt_s: (values.iter().find(|(name, _)| *name == "rtt"))
                .and_then(|(_, value)| Span::from_value(value).ok())
                .map(Span::as_secs_f64),
            comparison,
            departed_bytes: 0,
            busy_ns: 0,
            busy_since: None,
        })
    }

    /// Returns the queue as the kernel sees it, in bytes. Where the law in Rust counts packets,
    /// each packet has the usual size.
    fn view(&self, now: Time, q: &QueueView) -> Queue {
        Queue {
            now_ns: now.as_nanos(),
            bytes: if self.in_bytes {
                q.bytes
            } else {
                u64::from(q.packets) * self.packet
            },
            packets: u64::from(q.packets),
            idle_ns: q.idle_since.map_or(0, |since| now.since(since).as_nanos()),
            rate: fixed_point::rate(q.rate.as_bps() as f64 / 8.0) as u64,
            departed_bytes: self.departed_bytes,
            busy_ns: self.busy_ns,
        }
    }

    /// Compares the state variables of both laws.
    fn compare(&self) {
        let mut comparison = self.comparison.lock().unwrap();
        let packet = self.packet as f64;
        let mut capacity = f64::INFINITY;
        self.rust.probe(&mut |name, value| {
            if name == "capacity_pkts_per_s" {
                capacity = value;
            }
        });
        // The values of the law in Rust have floors, which the kernel applies only in its design.
        let floor = |name| match (name, self.rtt_s) {
            ("load", Some(rtt_s)) => 1.0 / (rtt_s * capacity),
            ("capacity_pkts_per_s", Some(rtt_s)) => 1.0 / rtt_s,
            _ => f64::NEG_INFINITY,
        };
        self.rust.probe(&mut |name, value| {
            let Some((_, field, unit)) = PROBES.iter().find(|(probe, ..)| *probe == name) else {
                return;
            };
            let Some(raw) = self.kernel.state(field) else {
                return;
            };
            if value <= floor(name) * (1.0 + 1e-9) {
                return;
            }
            let kernel = raw as f64 / unit;
            let (kernel, small) = match name {
                "average" => (kernel / packet, 1.0),
                "virtual_queue_bytes" => (kernel, packet),
                "capacity_pkts_per_s" => (kernel / packet, 1.0),
                "virtual_capacity_bps" => (kernel, 1e4),
                "load" => (kernel, 1e-4),
                _ => (kernel, SMALL),
            };

            let size = kernel.abs().max(value.abs()).max(small);
            let error = (kernel - value).abs() / size;
            match comparison
                .worst
                .iter_mut()
                .find(|(probe, _)| *probe == name)
            {
                Some((_, worst)) => *worst = worst.max(error),
                None => comparison
                    .worst
                    .push((PROBES.iter().find(|p| p.0 == name).unwrap().0, error)),
            }
        });
    }
}

impl Law for Lockstep {
    fn on_enqueue(&mut self, now: Time, q: &QueueView, p: &PacketMeta, rng: &mut Rng) -> Verdict {
        let drawn = rng.clone().uniform();
        let verdict = self.rust.on_enqueue(now, q, p, rng);
        let packet = ArrivingPacket {
            bytes: u64::from(p.bytes),
            segments: 1,
            random: (drawn * 2f64.powi(32)) as u64,
            marks: u64::from(p.signal == Signal::Mark),
        };
        let kernel = self.kernel.arrival(&self.view(now, q), &packet);
        {
            let mut comparison = self.comparison.lock().unwrap();
            comparison.arrivals += 1;
            comparison.signals[0] += u64::from(verdict != Verdict::Pass);
            comparison.signals[1] += u64::from(kernel != 0);
            comparison.differing += u64::from(verdict as i32 != kernel);
        }
        self.compare();
        verdict
    }

    fn on_dequeue(&mut self, now: Time, q: &QueueView, p: &PacketMeta, rng: &mut Rng) -> Verdict {
        if p.tcp {
            self.departed_bytes += if self.in_bytes {
                u64::from(p.bytes)
            } else {
                self.packet
            };
        }
        self.busy_since.get_or_insert(now);
        self.rust.on_dequeue(now, q, p, rng)
    }

    fn on_overflow(&mut self, now: Time, q: &QueueView) {
        self.rust.on_overflow(now, q);
        self.kernel.overflow(now.as_nanos());
        self.compare();
    }

    fn on_idle(&mut self, now: Time, q: &QueueView) {
        if let Some(since) = self.busy_since.take() {
            self.busy_ns += now.since(since).as_nanos();
        }
        self.rust.on_idle(now, q);
        self.kernel.idle(now.as_nanos());
        self.compare();
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.rust.poll_timeout()
    }

    fn handle_timeout(&mut self, now: Time, q: &QueueView) {
        while let Some(due) = self.rust.poll_timeout().filter(|due| *due <= now) {
            self.rust.handle_timeout(due, q);
            if let Some(since) = self.busy_since {
                self.busy_ns += due.since(since).as_nanos();
                self.busy_since = Some(due.max(since));
            }
            self.kernel.tick(&self.view(due, q));
            if self.busy_ns > 0 {
                (self.busy_ns, self.departed_bytes) = (0, 0);
            }
            self.comparison.lock().unwrap().ticks += 1;
            self.compare();
        }
    }

    fn probe(&self, out: &mut dyn FnMut(&'static str, f64)) {
        self.rust.probe(out);
    }
}

impl FluidLaw for Lockstep {}

/// Checks the relative errors of a law's numbers, as docs/evidence/kernel.md states them. A law that
/// estimates its load designs from 30 bits of a square root, and its probability integrates the
/// remaining error.
fn check(kind: &str, comparison: &Comparison, of_designs: f64) {
    let estimates = comparison.worst.iter().any(|(probe, _)| *probe == "load");
    let bound = if estimates { of_designs } else { 1e-5 };
    let worst = comparison
        .worst
        .iter()
        .map(|(_, worst)| *worst)
        .fold(0.0, f64::max);
    assert!(worst <= bound, "{kind}: {comparison:?}");
    // The verdicts differ where a random number falls between the two probabilities.
    let most = 10.0 * bound * comparison.arrivals as f64;
    assert!(
        comparison.differing as f64 <= most,
        "{kind}: {comparison:?}"
    );
}

/// Returns all laws that have a header.
fn twins() -> Vec<&'static LawSpec> {
    let kinds = forebay_kernel::kinds();
    let comparison: Vec<_> = kinds
        .iter()
        .map(|kind| laws::find(kind).expect("a law of each header"))
        .collect();
    assert!(comparison.len() >= 13, "{kinds:?}");
    comparison
}

fn site(bps: u64) -> Site {
    Site {
        rate: Rate::from_bps(bps),
        buffer_pkts: 500.0,
        packet: Bytes(1000),
    }
}

#[test]
fn every_law_with_a_twin_has_a_header() {
    let roomy = Site {
        buffer_pkts: 5000.0,
        ..site(15_000_000)
    };
    let mut with: Vec<_> = (LAWS.iter())
        .filter(|law| law.read(&[]).unwrap().twin(&roomy).unwrap().is_some())
        .map(|law| law.kind)
        .collect();
    with.sort_unstable();
    assert_eq!(with, forebay_kernel::kinds());
}

fn drive(law: &mut Lockstep, site: &Site, seed: u64, steps: &[(u64, u32, Step)]) {
    let mut rng = Rng::new(seed, "law");
    let mut now = Time::ZERO;
    for (gap, packets, step) in steps {
        now += Span::from_nanos(*gap);
        let q = QueueView {
            idle_since: (*packets == 0).then_some(Time::from_nanos(now.as_nanos() / 2)),
            ..QueueView::busy(*packets, 1000, 500, site.rate)
        };
        let meta = |bytes: u32, ect: bool, tcp: bool| PacketMeta {
            bytes,
            flow: 0,
            ecn: if ect { Ecn::Ect0 } else { Ecn::NotEct },
            signal: if ect { Signal::Mark } else { Signal::Drop },
            tcp,
            sojourn: Span::ZERO,
        };
        match step {
            Step::Enqueue { bytes, ect } => {
                law.handle_timeout(now, &q);
                law.on_enqueue(now, &q, &meta(*bytes, *ect, true), &mut rng);
            }
            Step::Dequeue { bytes, tcp } => {
                law.on_dequeue(now, &q, &meta(*bytes, false, *tcp), &mut rng);
            }
            Step::Overflow => law.on_overflow(now, &q),
            Step::Idle => law.on_idle(now, &q),
            Step::Tick => law.handle_timeout(now, &q),
        }
    }
}

/// Returns parameters with which the steps reach every branch of a law: a set-point within the
/// queues of `steps`, and the flags according to the bits of `flags`.
fn settings(spec: &LawSpec, flags: u32) -> Vec<(String, Value)> {
    let flagged = spec
        .params
        .iter()
        // RED's header drops above its upper threshold, and refuses the other.
        .filter(|param| param.shape == Shape::Flag && param.name != "mark_above")
        .zip(0..);
    let mut given: Vec<_> = flagged
        .map(|(param, i)| (param.name.to_owned(), Value::Flag(flags >> i & 1 == 1)))
        .collect();
    let has = |name: &str| spec.params.iter().any(|param| param.name == name);
    let mut set = |name: &str, text: &str| {
        if has(name) {
            let value = text
                .parse()
                .map_or(Value::Text(text.to_owned()), Value::Integer);
            given.push((name.to_owned(), value));
        }
    };
    set("target", "150p");
    set("min_th", "20p");
    set("max_th", "200p");
    set("flows", "60");
    set("tune_after", "1s");
    set("virtual_buffer", "60p");
    given
}

#[test]
fn red_with_mark_above_has_no_fixed_point_form() {
    let red = laws::find("red").expect("a law of the registry");
    let given = [("mark_above".to_owned(), Value::Flag(true))];
    let law = red.read(&given).expect("read");
    let error = law.twin(&site(10_000_000)).expect_err("refused");
    assert_eq!(error.key, "mark_above");
}

/// An average counts a segment of n packets as n packets.
#[test]
fn a_large_segment_counts_as_its_packets_in_an_average() {
    let twin = (LAWS.iter().find(|spec| spec.kind == "pi-avg"))
        .and_then(|spec| {
            spec.read(&[])
                .expect("read")
                .twin(&site(15_000_000))
                .expect("allowed")
        })
        .expect("a twin");
    let packet = |segments| ArrivingPacket {
        bytes: 1000 * segments,
        segments,
        random: 0,
        marks: 0,
    };
    let [mut whole, mut parts] = [(); 2].map(|()| HostLaw::new("pi-avg", &twin).expect("a header"));
    for (segments, bytes) in [
        (1, 40_000),
        (7, 90_000),
        (44, 10_000),
        (2, 0),
        (30, 300_000),
    ] {
        let queue = Queue {
            now_ns: 0,
            bytes,
            packets: bytes / 1000,
            idle_ns: 0,
            rate: 0,
            departed_bytes: 0,
            busy_ns: 0,
        };
        whole.arrival(&queue, &packet(segments));
        for _ in 0..segments {
            parts.arrival(&queue, &packet(1));
        }
        let [whole, parts] = [&whole, &parts].map(|law| law.state("average").expect("an average"));
        assert!(parts > 0 && (whole - parts).abs() <= parts / 1_000_000_000 + 64);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn both_laws_agree_on_random_and_adversarial_traces(
        steps in steps(9000, 2), seed: u64, flags in 0u32..16, mbps in 1u64..10_000,
    ) {
        for spec in twins() {
            let site = site(mbps * 1_000_000);
            let comparison = Arc::new(Mutex::new(Comparison::default()));
            let given = settings(spec, flags);
            let mut law = Lockstep::new(spec, &given, &site, comparison.clone())
                .unwrap_or_else(|error| panic!("{}: {error}", spec.kind));
            drive(&mut law, &site, seed, &steps);
            check(spec.kind, &comparison.lock().unwrap(), 2e-2);
        }
    }
}

/// TCP under each law in Rust, in lockstep with the kernel's law at every event. The time of a
/// packet is not whole, so that no idle time is a whole number of them, of which rounding may leave
/// one out.
#[test]
fn both_laws_agree_in_simulations() {
    const SCENARIO: &str = r#"
        duration = "30s"
        [bottleneck]
        rate = "15.1Mbit/s"
        buffer = "500p"
        [[traffic]]
        kind = "ftp"
        flows = 10
        rtt = "80ms"
    "#;
    for spec in twins() {
        let comparison = Arc::new(Mutex::new(Comparison::default()));
        let options = Options {
            laws: vec![spec.kind.to_owned()],
            ..Options::default()
        };
        let experiment = parse(SCENARIO.as_bytes(), "twins.toml", &options)
            .unwrap_or_else(|error| panic!("{}: {error}", spec.kind));
        let point = &experiment.points[0];
        let shared = Arc::clone(&comparison);
        let given = settings(spec, 0b1111);
        let aqm = Aqm::in_default_queue(Arc::new(move |site: &Site, _: u64| {
            let law = Lockstep::new(spec, &given, site, Arc::clone(&shared))?;
            Ok(Box::new(law) as Box<dyn Law>)
        }));
        run(&point.scenario, &aqm, 1, &Watch::default())
            .unwrap_or_else(|error| panic!("{}: {error}", spec.kind));
        let comparison = comparison.lock().unwrap();
        println!("{:8} {comparison:?}", spec.kind);
        assert!(
            comparison.arrivals > 20_000,
            "{}: {comparison:?}",
            spec.kind
        );
        check(spec.kind, &comparison, 1e-3);
    }
}
