//! Properties of every registered queue discipline under every law. No discipline is named here, so
//! a new one is tested once it is registered.

mod common;

use std::sync::Arc;

use forebay_aqm::disciplines::{find, DISCIPLINES};
use forebay_aqm::laws::LAWS;
use forebay_aqm::{
    Aqm, Capacity, Dequeued, Discipline, DisciplineSpec, DropReason, Ecn, LawSpec, Packet, Queue,
    QueueChoice, Sink,
};
use forebay_units::{Buffer, Bytes, QueueSite, Rate, SetPoint, Span, Time, Value};
use proptest::prelude::*;

fn site(buffer: Buffer) -> QueueSite {
    QueueSite {
        rate: Rate::from_bps(15_000_000),
        buffer,
        packet: Bytes(1000),
        ecn: true,
    }
}

fn aqm(queue: &'static DisciplineSpec, law: &'static LawSpec) -> Aqm {
    // The law is built for a long queue, in which its default set-point fits.
    let roomy = site(Buffer::Packets(500)).law_site();
    Aqm {
        queue: QueueChoice::with_defaults(queue),
        law: Arc::new(move |_, seed| law.build(&[], &roomy, seed)),
    }
}

fn build(
    queue: &'static DisciplineSpec,
    law: &'static LawSpec,
    buffer: Buffer,
    seed: u64,
) -> Queue<Numbered> {
    aqm(queue, law)
        .build(&site(buffer), seed, "law")
        .unwrap_or_else(|e| panic!("{} {}: {e}", queue.kind, law.kind))
}

/// CAKE is the only registered discipline that is a shaper in Linux.
#[test]
fn a_shaper_takes_the_place_of_the_token_bucket() {
    let rate = Rate::from_bps(15_000_000);
    for (discipline, law) in pairs() {
        let queue = build(discipline, law, Buffer::Packets(100), 1);
        let behind = |capacity: Capacity| capacity.behind(&*queue);
        let bucket = behind(Capacity::of(rate, Bytes(3000)));
        let shapes = discipline.kind == "cake";
        assert_eq!(matches!(bucket, Capacity::Shaped(_)), shapes);
        assert_eq!(matches!(bucket, Capacity::Bucket { .. }), !shapes);
        let plain = behind(Capacity::Constant(rate));
        assert!(matches!(plain, Capacity::Constant(_)));
    }
}

/// Returns every pair of a discipline and a law.
fn pairs() -> impl Iterator<Item = (&'static DisciplineSpec, &'static LawSpec)> {
    DISCIPLINES
        .iter()
        .flat_map(|queue| LAWS.iter().map(move |law| (queue, law)))
}

#[derive(Clone, Copy, Debug)]
struct Numbered {
    id: usize,
    bytes: u32,
    flow: u8,
    ecn: Ecn,
    sent_as: Ecn,
    arrived: Time,
}

impl Packet for Numbered {
    fn bytes(&self) -> u32 {
        self.bytes
    }
    fn flow(&self) -> u64 {
        u64::from(self.flow)
    }
    fn ecn(&self) -> Ecn {
        self.ecn
    }
    /// Returns a code point that depends on the flow.
    fn dscp(&self) -> u8 {
        self.flow.wrapping_mul(23) % 64
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

#[derive(Clone, Debug, Default, PartialEq)]
struct Record {
    dropped: Vec<(usize, &'static str)>,
    marked: Vec<usize>,
    /// The classes of all dropped or marked packets.
    classes: Vec<u8>,
}

impl Sink<Numbered> for Record {
    fn dropped(&mut self, _now: Time, packet: Numbered, reason: DropReason, class: u8) {
        let reason = match reason {
            DropReason::Early => "early",
            DropReason::Forced => "forced",
            DropReason::Overflow => "overflow",
        };
        self.dropped.push((packet.id, reason));
        self.classes.push(class);
    }
    fn marked(&mut self, _now: Time, packet: &Numbered, class: u8) {
        assert_eq!(packet.ecn, Ecn::Ce);
        self.marked.push(packet.id);
        self.classes.push(class);
    }
}

#[derive(Clone, Debug)]
enum Step {
    Enqueue { bytes: u32, flow: u8, ecn: Ecn },
    Dequeue,
    Tick,
    Buffer(u32),
    Rate(u64),
    SetPoint(SetPoint),
}

/// Generates packet sizes, including zero and megabytes.
fn size() -> impl Strategy<Value = u32> {
    prop_oneof![20 => 1u32..9000, 2 => Just(0), 1 => 0u32..1 << 24]
}

fn steps() -> impl Strategy<Value = Vec<(u64, Step)>> {
    let ecn = prop_oneof![
        3 => Just(Ecn::NotEct),
        3 => Just(Ecn::Ect0),
        1 => Just(Ecn::Ect1),
        1 => Just(Ecn::Ce),
    ];
    let set_point = prop_oneof![
        (0u32..300).prop_map(|pkts| SetPoint::Packets(f64::from(pkts))),
        (0u64..300).prop_map(|ms| SetPoint::Delay(Span::from_millis(ms))),
    ];
    let step = prop_oneof![
        12 => (size(), 0u8..20, ecn)
            .prop_map(|(bytes, flow, ecn)| Step::Enqueue { bytes, flow, ecn }),
        8 => Just(Step::Dequeue),
        3 => Just(Step::Tick),
        1 => (1u32..300).prop_map(Step::Buffer),
        1 => (1_000u64..10_000_000_000).prop_map(Step::Rate),
        1 => set_point.prop_map(Step::SetPoint),
    ];
    // Nanoseconds since the last step, some of them long.
    let gap = prop_oneof![8 => 0u64..10_000_000, 1 => 0u64..5_000_000_000];
    proptest::collection::vec((gap, step), 1..300)
}

/// Drives a queue and checks it after each step. Returns all departures, and the drops and marks.
fn drive(
    queue: &mut dyn Discipline<Numbered>,
    name: &str,
    buffer: Buffer,
    steps: &[(u64, Step)],
) -> (Vec<(usize, Time, u8)>, Record) {
    let (mut record, mut departures) = (Record::default(), Vec::new());
    let mut limit = buffer;
    let mut offered = 0;
    // A discipline may put packets of a flow into different queues by their ECN field.
    let mut last_ids = std::collections::HashMap::new();
    let mut now = Time::ZERO;
    let mut take =
        |queue: &mut dyn Discipline<Numbered>, now: Time, record: &mut Record| match queue
            .dequeue(now, record)
        {
            Dequeued::Packet(departure) => {
                let packet = departure.packet;
                assert_eq!(departure.sojourn, now.since(packet.arrived), "{name}");
                let last = last_ids.insert((packet.flow, packet.sent_as as u8), packet.id);
                assert!(last.is_none_or(|last| last < packet.id), "{name}: order");
                departures.push((packet.id, now, departure.class));
                None
            }
            Dequeued::Idle => {
                assert_eq!(queue.len_packets(), 0, "{name}: idle with packets");
                Some(now)
            }
            Dequeued::Wait(until) => {
                assert!(until > now, "{name}: waits for {until}, which is past");
                assert_ne!(queue.len_packets(), 0, "{name}: waits for nothing");
                Some(until)
            }
        };
    for (gap, step) in steps {
        now += Span::from_nanos(*gap);
        let before = (queue.len_packets(), queue.len_bytes());
        match *step {
            Step::Enqueue { bytes, flow, ecn } => {
                let packet = Numbered {
                    id: offered,
                    bytes,
                    flow,
                    ecn,
                    sent_as: ecn,
                    arrived: now,
                };
                queue.enqueue(now, packet, &mut record);
                offered += 1;
            }
            Step::Dequeue => {
                take(queue, now, &mut record);
            }
            Step::Tick => queue.handle_timeout(now),
            Step::Buffer(packets) => {
                limit = Buffer::Packets(packets);
                queue.set_buffer(limit);
            }
            Step::Rate(bps) => queue.set_rate(Rate::from_bps(bps)),
            Step::SetPoint(set_point) => {
                queue.set_point(set_point);
            }
        }
        assert!(
            queue.poll_timeout().is_none_or(|due| due > now) || !matches!(step, Step::Tick),
            "{name}: left a tick behind"
        );
        // A smaller buffer drops nothing, but no arrival may join while the queue exceeds it.
        match limit {
            Buffer::Packets(limit) => assert!(queue.len_packets() <= limit.max(before.0), "{name}"),
            Buffer::Bytes(limit) => assert!(queue.len_bytes() <= limit.max(before.1), "{name}"),
        }
        queue.probe(&mut |key, value| assert!(value.is_finite(), "{name}: {key} = {value}"));
    }
    // The link continues until everything has left, however often it has to wait.
    let mut waits = 0;
    while queue.len_packets() > 0 {
        if let Some(until) = take(queue, now, &mut record) {
            now = until;
            waits += 1;
            assert!(waits < 1_000_000, "{name}: it waits for ever");
        }
    }
    assert_eq!(queue.len_bytes(), 0, "{name}");
    let mut ids: Vec<usize> = departures.iter().map(|(id, ..)| *id).collect();
    ids.extend(record.dropped.iter().map(|(id, _)| *id));
    ids.sort_unstable();
    assert_eq!(
        ids,
        (0..offered).collect::<Vec<_>>(),
        "{name}: each packet comes back once"
    );
    assert!(record.marked.iter().all(|id| ids.contains(id)));
    // Every class has a name, and no two classes have the same name.
    let names = queue.classes();
    let is_named = |class: u8| usize::from(class) < names.len().max(1);
    assert!(
        departures.iter().all(|(_, _, class)| is_named(*class)),
        "{name}"
    );
    assert!(
        record.classes.iter().all(|class| is_named(*class)),
        "{name}"
    );
    assert_ne!(names.len(), 1, "{name}: one class needs no name");
    assert!(
        (1..names.len()).all(|i| !names[..i].contains(&names[i])),
        "{name}"
    );
    (departures, record)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn packets_are_conserved_and_flows_keep_their_order(
        steps in steps(), seed: u64, limit in 1u32..300, in_bytes: bool
    ) {
        for (queue, law) in pairs() {
            let buffer = match in_bytes {
                true => Buffer::Bytes(u64::from(limit) * 1000),
                false => Buffer::Packets(limit),
            };
            let name = format!("{} under {}", law.kind, queue.kind);
            let run = || drive(&mut *build(queue, law, buffer, seed), &name, buffer, &steps);
            prop_assert_eq!(run(), run(), "{}: the same seed gives the same", name);
        }
    }

    #[test]
    fn draining_returns_every_queued_packet(sizes in proptest::collection::vec((size(), 0u8..20), 1..100)) {
        for (queue, law) in pairs() {
            let mut queue = build(queue, law, Buffer::Packets(500), 1);
            let mut record = Record::default();
            for (id, (bytes, flow)) in sizes.iter().enumerate() {
                let packet = Numbered {
                    id,
                    bytes: *bytes,
                    flow: *flow,
                    ecn: Ecn::NotEct,
                    sent_as: Ecn::NotEct,
                    arrived: Time::ZERO,
                };
                queue.enqueue(Time::ZERO, packet, &mut record);
            }
            let mut ids: Vec<usize> = record.dropped.iter().map(|(id, _)| *id).collect();
            queue.drain(&mut |packet| ids.push(packet.id));
            ids.sort_unstable();
            prop_assert_eq!(ids, (0..sizes.len()).collect::<Vec<_>>());
            prop_assert_eq!((queue.len_packets(), queue.len_bytes()), (0, 0));
        }
    }
}

#[test]
fn a_full_queue_drops_packets_of_zero_bytes() {
    for (queue, law) in pairs() {
        let mut queue = build(queue, law, Buffer::Packets(10), 1);
        let mut record = Record::default();
        for id in 0..100 {
            let packet = Numbered {
                id,
                bytes: 0,
                flow: (id % 3) as u8,
                ecn: Ecn::NotEct,
                sent_as: Ecn::NotEct,
                arrived: Time::ZERO,
            };
            queue.enqueue(Time::ZERO, packet, &mut record);
        }
        assert!(queue.len_packets() <= 10 && record.dropped.len() >= 90);
    }
}

#[test]
fn laws_of_one_queue_draw_from_streams_of_their_own() {
    let law = Arc::new(|_: &forebay_units::Site, seed: u64| {
        LAWS[0].build(&[], &site(Buffer::Packets(500)).law_site(), seed)
    });
    let mut laws = forebay_aqm::LawFactory::new(law, 7, "law");
    let mut again = laws.clone();
    let site = site(Buffer::Packets(500)).law_site();
    let first = |laws: &mut forebay_aqm::LawFactory| {
        let (_, mut rng) = laws.build(&site).unwrap();
        rng.next_u64()
    };
    let drawn: Vec<u64> = (0..4).map(|_| first(&mut laws)).collect();
    assert_eq!(drawn[0], forebay_units::Rng::new(7, "law").next_u64());
    assert!((1..4).all(|i| !drawn[..i].contains(&drawn[i])), "{drawn:?}");
    assert_eq!(drawn, (0..4).map(|_| first(&mut again)).collect::<Vec<_>>());
}

/// Returns true if the only packet of a flow overtakes a flow of the same class with many packets.
fn overtakes(queue: &QueueChoice) -> bool {
    let (many, single): (u8, u8) = (1, 65);
    let roomy = site(Buffer::Packets(500));
    let mut aqm = aqm(queue.spec, forebay_aqm::laws::baseline());
    aqm.queue = queue.clone();
    let mut queue = aqm.build(&roomy, 1, "law").unwrap();
    let mut record = Record::default();
    for id in 0..20 {
        let packet = Numbered {
            id,
            bytes: 1500,
            flow: if id == 19 { single } else { many },
            ecn: Ecn::NotEct,
            sent_as: Ecn::NotEct,
            arrived: Time::ZERO,
        };
        queue.enqueue(Time::ZERO, packet, &mut record);
    }
    let mut flows = (1..).map_while(|ms| {
        let departure = queue.dequeue(Time::ZERO + Span::from_millis(ms), &mut record);
        departure.packet().map(|departure| departure.packet.flow)
    });
    let position = flows.position(|flow| flow == single);
    position.expect("the packet leaves") < 10
}

#[test]
fn with_a_queue_per_flow_a_short_flow_overtakes_a_long_one() {
    for spec in DISCIPLINES {
        let queue = QueueChoice::with_defaults(spec);
        assert_eq!(
            queue.is_per_flow(),
            overtakes(&queue),
            "{}: `per_flow` must be true exactly if a short flow overtakes a long one",
            spec.kind
        );
    }
    let with = |kind: &str, key: &str, value: Value| {
        QueueChoice::new(find(kind).unwrap(), vec![(key.to_owned(), value)]).unwrap()
    };
    for queue in [
        with("fq", "queues", Value::Integer(1)),
        with("cake", "isolation", Value::Text("flowblind".to_owned())),
    ] {
        assert!(!queue.is_per_flow() && !overtakes(&queue), "{queue}");
    }
}

#[test]
fn parameters_are_described_and_round_trip() {
    for (i, spec) in DISCIPLINES.iter().enumerate() {
        assert!(
            !spec.title.is_empty() && !spec.source.is_empty(),
            "{}: the title or the source is empty",
            spec.kind
        );
        assert!(
            DISCIPLINES[..i].iter().all(|other| other.kind != spec.kind),
            "{}: two disciplines have this name",
            spec.kind
        );
        assert_eq!(find(spec.kind).unwrap().title, spec.title);
        let defaults = QueueChoice::with_defaults(spec).values();
        assert_eq!(defaults.len(), spec.params.len());
        let params: Vec<(String, Value)> = defaults
            .iter()
            .map(|(key, value)| ((*key).to_owned(), value.clone()))
            .collect();
        let again = QueueChoice::new(spec, params).unwrap();
        assert_eq!(again.values(), defaults, "{}", spec.kind);
        common::assert_described(spec.kind, spec.params);
    }
    assert!(find("fif").is_err_and(|kinds| kinds.contains("did you mean")));
}
