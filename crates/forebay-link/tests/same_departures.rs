//! Comparison of the simulator's port with the link's direction: for the same sequence of packets
//! they have the same departures, marks and drops, to the nanosecond, under every law and
//! discipline.

use std::collections::HashMap;
use std::sync::Arc;

use forebay_aqm::disciplines::DISCIPLINES;
use forebay_aqm::laws::LAWS;
use forebay_aqm::{Aqm, Capacity, Ecn, QueueChoice, RateTrace, TrafficClass};
use forebay_link::direction::Direction;
use forebay_link::pool::{Pool, PREFIX_BYTES};
use forebay_link::{DelayRange, Path};
use forebay_scenario::LawChoice;
use forebay_sim::ids::FlowId;
use forebay_sim::packet::{Flags, Packet};
use forebay_sim::port::{PacketOnLink, Port};
use forebay_sim::steps::LinkSteps;
use forebay_trace::Settings;
use forebay_units::{Buffer, Bytes, QueueSite, Rate, Rng, Span, Time};
use proptest::prelude::*;

/// The arrival of a packet.
#[derive(Clone, Copy, Debug)]
struct Arrival {
    at: Time,
    bytes: u16,
    class: TrafficClass,
}

/// The fates of the packets.
#[derive(Debug, Default, PartialEq)]
struct Outcome {
    /// The number of each packet that was sent, the end of its transmission, and whether it was
    /// marked.
    out: Vec<(usize, Time, bool)>,
    early: u64,
    forced: u64,
    overflow: u64,
}

const RECORD: Settings = Settings {
    interval: Span::from_millis(10),
    window: (Time::ZERO, Time::MAX),
};

/// Runs the packets through the simulator's port.
fn simulated(aqm: &Aqm, site: &QueueSite, capacity: &Capacity, arrivals: &[Arrival]) -> Outcome {
    let queue = aqm.build(site, 1, "law").unwrap();
    let mut port = Port::new(
        queue,
        RECORD,
        capacity.clone(),
        Span::ZERO,
        &LinkSteps::default(),
    );
    let mut outcome = Outcome::default();
    let mut keep = |sent: Option<PacketOnLink>| {
        if let Some(PacketOnLink { packet, arrives_at }) = sent {
            let packet = packet.unpack();
            let number = packet.seq as usize;
            let marked = packet.traffic_class.ecn() != arrivals[number].class.ecn();
            outcome.out.push((number, arrives_at, marked));
        }
    };
    // The order is that of the engine: timers of the law, then the link, then arrivals.
    let mut advance = |port: &mut Port, end: Time| loop {
        let tick = port.bottleneck.discipline.poll_timeout();
        let tick = tick.unwrap_or(Time::NEVER);
        let next = tick.min(port.due());
        if next > end {
            return;
        }
        if next == tick {
            port.bottleneck.discipline.handle_timeout(next);
        } else {
            keep(port.send_next(next));
        }
    };
    let mut at_once = Vec::new();
    for (number, arrival) in arrivals.iter().enumerate() {
        let now = arrival.at;
        advance(&mut port, now);
        let packet = Packet {
            flow: FlowId::default(),
            seq: number as u32,
            host: 0,
            bytes: arrival.bytes,
            connection: 0,
            traffic_class: arrival.class,
            flags: Flags::of_udp(),
            traffic: 0,
        };
        if port.arrive(now, packet.pack()) {
            at_once.push(port.send_next(now));
        }
    }
    let last = arrivals.last().map_or(Time::ZERO, |arrival| arrival.at);
    let end = last + Span::from_secs(100);
    advance(&mut port, end);
    at_once.into_iter().for_each(keep);
    port.sample(end, None);
    let samples = port.bottleneck.record.recorder.finish("link").samples;
    let sum = |column: &[u32]| column.iter().map(|n| u64::from(*n)).sum();
    outcome.early = sum(&samples.early_drops);
    outcome.forced = sum(&samples.forced_drops);
    outcome.overflow = sum(&samples.overflow_drops);
    outcome.out.sort_unstable();
    outcome
}

/// Runs the packets through the link's direction.
fn emulated(aqm: &Aqm, site: &QueueSite, capacity: &Capacity, arrivals: &[Arrival]) -> Outcome {
    let queue = aqm.build(site, 1, "law").unwrap();
    let path = Path {
        delays: DelayRange::of(Span::ZERO),
        loss: 0.0,
    };
    let law = LawChoice::of(&LAWS[0], Vec::new()).unwrap();
    let mut link = Direction::new(
        queue,
        law,
        capacity.clone(),
        path,
        RECORD,
        Rng::new(1, "loss"),
    );
    let mut pool = Pool::new(arrivals.len() as u32, 1500);
    let mut numbers = HashMap::new();
    let mut outcome = Outcome::default();
    let release = |link: &mut Direction, pool: &mut Pool, until| {
        let mut out = Vec::new();
        while let Some(due) = link.release(until) {
            out.push((due.slot, due.at, due.marked));
            pool.left(due.slot, due.segments);
        }
        out
    };
    for (number, arrival) in arrivals.iter().enumerate() {
        link.advance(arrival.at, &mut pool);
        let slot = pool.take().expect("a slot for every packet");
        // The packet is UDP over IPv4.
        let packet = &mut pool.memory(slot)[PREFIX_BYTES..];
        packet[..28].fill(0);
        (packet[0], packet[1], packet[9]) = (0x45, arrival.class.0, 17);
        packet[2..4].copy_from_slice(&arrival.bytes.to_be_bytes());
        pool.fill(slot, u32::from(arrival.bytes), None);
        numbers.insert(slot, number);
        let segment = pool.segment(slot, 0);
        link.arrive(arrival.at, segment, &mut pool);
    }
    let last = arrivals.last().map_or(Time::ZERO, |arrival| arrival.at);
    let end = last + Span::from_secs(100);
    link.advance(end, &mut pool);
    for (slot, at, marked) in release(&mut link, &mut pool, Time::MAX) {
        outcome.out.push((numbers[&slot], at, marked));
    }
    outcome.early = link.counts().early_drops;
    outcome.forced = link.counts().forced_drops;
    outcome.overflow = link.counts().overflow_drops;
    outcome.out.sort_unstable();
    outcome
}

fn arrivals() -> impl Strategy<Value = Vec<Arrival>> {
    let ecn = prop_oneof![Just(Ecn::NotEct), Just(Ecn::Ect0), Just(Ecn::Ect1)];
    // There are bursts, and gaps in which the link becomes idle; some arrivals are at whole
    // milliseconds.
    let gap = prop_oneof![
        6 => 0u64..300_000,
        2 => Just(0u64),
        2 => (0u64..5).prop_map(|ms| ms * 1_000_000),
        1 => 0u64..200_000_000,
    ];
    let arrival = (gap, 40u16..1500, 0u8..64, ecn);
    proptest::collection::vec(arrival, 1..250).prop_map(|arrivals| {
        let mut at = Time::ZERO;
        arrivals
            .into_iter()
            .map(|(gap, bytes, dscp, ecn)| {
                at += Span::from_nanos(gap);
                let class = TrafficClass::new(dscp, ecn);
                Arrival { at, bytes, class }
            })
            .collect()
    })
}

fn capacity() -> impl Strategy<Value = Capacity> {
    let trace = proptest::collection::vec(0u32..6, 1..40).prop_map(|gaps| {
        let mut time = 1;
        let times_ms = gaps.into_iter().map(|gap| {
            time += gap;
            time
        });
        Capacity::Recorded(Arc::new(RateTrace {
            times_ms: times_ms.collect(),
        }))
    });
    let constant = (200_000u64..50_000_000).prop_map(|bps| Capacity::Constant(Rate::from_bps(bps)));
    prop_oneof![constant, trace]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn the_simulator_and_the_link_send_mark_and_drop_the_same_packets(
        arrivals in arrivals(), capacity in capacity(), buffer in 5u32..120
    ) {
        let site = QueueSite {
            rate: capacity.mean_rate(),
            buffer: Buffer::Packets(buffer),
            packet: Bytes(1500),
            ecn: true,
        };
        // The law is built for a large queue, so that its defaults fit.
        let mut roomy = site.law_site();
        roomy.buffer_pkts = 500.0;
        for (queue, law) in DISCIPLINES.iter().flat_map(|queue| LAWS.iter().map(move |law| (queue, law))) {
            let aqm = Aqm {
                queue: QueueChoice::with_defaults(queue),
                law: Arc::new(move |_, seed| law.build(&[], &roomy, seed)),
            };
            let simulated = simulated(&aqm, &site, &capacity, &arrivals);
                    let emulated = emulated(&aqm, &site, &capacity, &arrivals);
                    let total = simulated.out.len() as u64 + simulated.early + simulated.forced + simulated.overflow;
                    prop_assert_eq!(total, arrivals.len() as u64);
                    prop_assert_eq!(simulated, emulated, "{} in {}", law.kind, queue.kind);
        }
    }
}
