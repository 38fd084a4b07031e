//! Tests of CAKE's shaper, tins, fairness and ACK filter.

use forebay_units::{Params, Span};

use super::*;
use crate::discipline::testing::buffer_of;
use crate::discipline::Ack;
use crate::law::Ecn;

#[derive(Clone, Copy)]
struct Sent {
    flow: u64,
    source: u64,
    bytes: u32,
    dscp: u8,
    ack: Option<Ack>,
}

impl Packet for Sent {
    fn bytes(&self) -> u32 {
        self.bytes
    }
    fn flow(&self) -> u64 {
        self.flow
    }
    fn hosts(&self) -> (u64, u64) {
        (self.source, 0)
    }
    fn ecn(&self) -> Ecn {
        Ecn::NotEct
    }
    fn dscp(&self) -> u8 {
        self.dscp
    }
    fn ack(&self) -> Option<Ack> {
        self.ack
    }
    fn clear_dscp(&mut self) {
        self.dscp = 0;
    }
    fn set_ce(&mut self) {
        unreachable!("not ECN-capable")
    }
}

struct Count(u32);

impl Sink<Sent> for Count {
    fn dropped(&mut self, _: Time, _: Sent, _: DropReason, _: u8) {
        self.0 += 1;
    }
    fn marked(&mut self, _: Time, _: &Sent, _: u8) {}
}

fn queue(params: &CakeParams, packets: u32) -> Box<dyn Discipline<Sent>> {
    let (site, laws) = buffer_of(packets);
    params.build(&site, laws).unwrap()
}

fn sent(flow: u64, source: u64, dscp: u8) -> Sent {
    Sent {
        flow,
        source,
        bytes: 1000,
        dscp,
        ack: None,
    }
}

/// Returns the packets that leave in a second on a link of unlimited speed. The queue holds four copies
/// of each of `kinds`, and every packet that leaves is enqueued again.
fn second(queue: &mut dyn Discipline<Sent>, kinds: &[Sent]) -> Vec<Sent> {
    let (mut now, mut sink) = (Time::ZERO, Count(0));
    for packet in [kinds; 4].concat() {
        queue.enqueue(now, packet, &mut sink);
    }
    let mut departures = Vec::new();
    loop {
        match queue.dequeue(now, &mut sink) {
            Dequeued::Packet(departure) => {
                departures.push(departure.packet);
                queue.enqueue(now, departure.packet, &mut sink);
            }
            Dequeued::Wait(until) => now = until,
            Dequeued::Idle => panic!("idle with packets"),
        }
        if now >= Time::ZERO + Span::from_secs(1) {
            assert_eq!(sink.0, 0);
            return departures;
        }
    }
}

/// Returns the defaults with a shaper.
fn at(bandwidth: Rate) -> CakeParams {
    CakeParams {
        bandwidth,
        ..CakeParams::defaults()
    }
}

/// Returns the fraction of packets for which `predicate` holds.
fn share_of(packets: &[Sent], predicate: impl Fn(&Sent) -> bool) -> f64 {
    let count = packets.iter().filter(|packet| predicate(packet)).count();
    count as f64 / packets.len() as f64
}

#[test]
fn the_shaper_counts_overhead_and_framing() {
    let plain = at(Rate::from_bps(8_000_000));
    // 1000 bytes and 44 of overhead are 22 ATM cells of 53 bytes; PTM adds 17 bytes.
    let framed = |framing| CakeParams {
        overhead: Bytes(44),
        framing,
        ..plain.clone()
    };
    let small = Sent {
        bytes: 20,
        ..sent(1, 1, 0)
    };
    let least = CakeParams {
        mpu: Bytes(64),
        ..plain.clone()
    };
    for (params, packet, wire_bytes) in [
        (plain.clone(), sent(1, 1, 0), 1000.0),
        (framed(Framing::None), sent(1, 1, 0), 1044.0),
        (framed(Framing::Atm), sent(1, 1, 0), 22.0 * 53.0),
        (framed(Framing::Ptm), sent(1, 1, 0), 1061.0),
        (least, small, 64.0),
    ] {
        let mut queue = queue(&params, 100);
        let packets = second(&mut *queue, &[packet]).len() as f64;
        assert!(
            (packets - 1e6 / wire_bytes).abs() <= 1.0,
            "{params:?}: {packets}"
        );
    }
}

#[test]
fn hosts_share_before_their_flows() {
    // One flow of host 1, nine of host 2.
    let kinds: Vec<Sent> = (0..10)
        .map(|i| sent(i, if i == 0 { 1 } else { 2 }, 0))
        .collect();
    let of_first = |isolation| {
        let params = CakeParams {
            isolation,
            ..at(Rate::from_bps(80_000_000))
        };
        let packets = second(&mut *queue(&params, 100), &kinds);
        share_of(&packets, |packet| packet.source == 1)
    };
    for (isolation, share) in [
        (Isolation::DualSource, 0.5),
        (Isolation::SourceHost, 0.5),
        (Isolation::Flows, 0.1),
        // All packets have the same destination.
        (Isolation::DualDestination, 0.1),
    ] {
        let got = of_first(isolation);
        assert!((got - share).abs() < 0.02, "{isolation:?}: {got}");
    }
}

#[test]
fn a_tin_gets_its_share_of_the_rate() {
    let share = |tins, dscp| {
        let params = CakeParams {
            tins,
            ..at(Rate::from_bps(80_000_000))
        };
        let packets = second(
            &mut *queue(&params, 100),
            &[sent(0, 0, 0), sent(1, 1, dscp)],
        );
        share_of(&packets, |packet| packet.dscp == dscp)
    };
    // Background, video and voice compete with best effort; in the last case EF has no tin of its own.
    for (tins, dscp, want) in [
        (Tins::Diffserv3, 8, 1.0 / 16.0),
        (Tins::Diffserv3, 46, 0.25),
        (Tins::Diffserv4, 34, 0.5),
        (Tins::Diffserv4, 46, 0.25),
        (Tins::Precedence, 8, 7.0 / 8.0),
        (Tins::BestEffort, 46, 0.5),
    ] {
        let got = share(tins, dscp);
        assert!((got - want).abs() < 0.02, "{tins:?} {dscp}: {got}");
    }
}

#[test]
fn without_a_shaper_tins_take_turns() {
    let (mut queue, mut sink) = (queue(&CakeParams::defaults(), 4000), Count(0));
    for _ in 0..2000 {
        queue.enqueue(Time::ZERO, sent(0, 0, 0), &mut sink);
        queue.enqueue(Time::ZERO, sent(1, 1, 46), &mut sink);
    }
    let voice = (0..2000)
        .filter_map(|_| queue.dequeue(Time::ZERO, &mut sink).packet())
        .filter(|departure| departure.class == 2)
        .count();
    // The turns of the two tins have 256 and 1024 bytes.
    assert!((380..=420).contains(&voice), "{voice}");
}

#[test]
fn without_a_shaper_the_quantum_follows_from_the_rate_of_the_link() {
    let order = |rate_bps: u64| -> Vec<u64> {
        let (mut queue, mut sink) = (queue(&CakeParams::defaults(), 100), Count(0));
        queue.set_rate(Rate::from_bps(rate_bps));
        for flow in [0, 0, 1, 1] {
            queue.enqueue(Time::ZERO, sent(flow, flow, 0), &mut sink);
        }
        let departures = (0..4).filter_map(|_| queue.dequeue(Time::ZERO, &mut sink).packet());
        departures.map(|departure| departure.packet.flow).collect()
    };
    // The quantum is 457 bytes at 15 Mbit/s, and 1514, for two packets, from 50 Mbit/s on.
    assert_eq!(order(15_000_000), [0, 1, 0, 1]);
    assert_eq!(order(100_000_000), [0, 0, 1, 1]);
    let (mut queue, mut sink) = (queue(&CakeParams::defaults(), 100), Count(0));
    for flow in [0, 0, 1] {
        queue.enqueue(Time::ZERO, sent(flow, flow, 0), &mut sink);
    }
    let departures = (0..2).filter_map(|_| queue.dequeue(Time::ZERO, &mut sink).packet());
    assert!(departures.map(|departure| departure.packet.flow).eq([0, 1]));
}

#[test]
fn no_flow_shares_a_queue_while_its_set_has_a_free_one() {
    let params = CakeParams {
        isolation: Isolation::Flows,
        ..at(Rate::from_bps(80_000_000))
    };
    let (mut queue, mut sink) = (queue(&params, 10_000), Count(0));
    for flow in 0..300 {
        queue.enqueue(Time::ZERO, sent(flow, 0, 0), &mut sink);
    }
    let mut queues = 0.0;
    queue.probe(&mut |name, value| {
        if name == "sparse_queues" {
            queues = value;
        }
    });
    assert_eq!(queues, 300.0);
}

#[test]
fn a_full_buffer_drops_from_the_head_of_the_longest_queue() {
    let (mut queue, mut sink) = (queue(&CakeParams::defaults(), 10), Count(0));
    for _ in 0..10 {
        queue.enqueue(Time::ZERO, sent(1, 1, 0), &mut sink);
    }
    queue.enqueue(Time::ZERO, sent(2, 2, 0), &mut sink);
    assert_eq!((sink.0, queue.len_packets()), (1, 10));
    let of_second = (0..10)
        .filter_map(|_| queue.dequeue(Time::ZERO, &mut sink).packet())
        .filter(|departure| departure.packet.flow == 2)
        .count();
    assert_eq!(of_second, 1);
}

/// Returns the flow and number of the ACKs that pass the filter. Each ACK has a flow, a number, whether
/// it has SACK blocks, and ECN flags.
fn filtered(filter: AckFilter, acks: &[(u64, u32, bool, u8)]) -> Vec<(u64, u32)> {
    let params = CakeParams {
        ack_filter: filter,
        isolation: Isolation::Blind,
        ..CakeParams::defaults()
    };
    let (mut queue, mut sink) = (queue(&params, 1000), Count(0));
    for &(flow, number, sacks, ecn) in acks {
        let ack = Ack {
            number,
            bare: !sacks,
            sacks,
            ecn,
        };
        let packet = Sent {
            ack: Some(ack),
            bytes: 40,
            ..sent(flow, 1, 0)
        };
        queue.enqueue(Time::ZERO, packet, &mut sink);
    }
    let count = queue.len_packets();
    assert_eq!(count + sink.0, acks.len() as u32);
    assert_eq!(queue.len_bytes(), 40 * u64::from(count));
    let packets = (0..count).map(|_| {
        queue
            .dequeue(Time::ZERO, &mut sink)
            .packet()
            .unwrap()
            .packet
    });
    packets
        .map(|packet| (packet.flow, packet.ack.unwrap().number))
        .collect()
}

#[test]
fn acks_that_later_ones_cover_are_dropped() {
    let run = |filter, numbers: &[u32]| {
        let acks: Vec<_> = numbers
            .iter()
            .map(|number| (1, *number, false, 0))
            .collect();
        let passed = filtered(filter, &acks);
        passed
            .into_iter()
            .map(|(_, number)| number)
            .collect::<Vec<_>>()
    };
    assert_eq!(run(AckFilter::Off, &[1, 2, 3, 4]), [1, 2, 3, 4]);
    // The filter keeps one redundant ACK and the newest; the aggressive filter only the newest.
    assert_eq!(run(AckFilter::Filter, &[1, 2, 3, 4, 5]), [4, 5]);
    assert_eq!(run(AckFilter::Aggressive, &[1, 2, 3, 4, 5]), [5]);
    // Duplicate ACKs report loss and stay; an older ACK covers no newer one; numbers wrap.
    assert_eq!(run(AckFilter::Aggressive, &[7, 7, 7]), [7, 7, 7]);
    assert_eq!(run(AckFilter::Aggressive, &[7, 5]), [7, 5]);
    assert_eq!(run(AckFilter::Aggressive, &[u32::MAX, 2]), [2]);
}

#[test]
fn acks_with_further_information_stay() {
    let aggressive = |acks: &[(u64, u32, bool, u8)]| filtered(AckFilter::Aggressive, acks);
    // ACKs of other flows, with SACK blocks, and before a change of the ECN flags.
    assert_eq!(aggressive(&[(1, 1, false, 0), (2, 9, false, 0)]).len(), 2);
    assert_eq!(aggressive(&[(1, 1, true, 0), (1, 2, false, 0)]).len(), 2);
    assert_eq!(aggressive(&[(1, 1, false, 1), (1, 2, false, 0)]).len(), 2);
    // An ACK with SACK blocks covers one with the same number and none.
    assert_eq!(aggressive(&[(1, 1, false, 0), (1, 1, true, 0)]), [(1, 1)]);
    // The normal filter keeps the last but one ACK of each flow.
    let acks = [
        (1, 1, false, 0),
        (2, 1, false, 0),
        (1, 2, false, 0),
        (1, 3, false, 0),
    ];
    assert_eq!(filtered(AckFilter::Filter, &acks), [(2, 1), (1, 2), (1, 3)]);
}

#[test]
fn a_packet_is_washed_after_its_tin_is_chosen() {
    let params = CakeParams {
        wash: true,
        ..CakeParams::defaults()
    };
    let (mut queue, mut sink) = (queue(&params, 10), Count(0));
    queue.enqueue(Time::ZERO, sent(1, 1, 46), &mut sink);
    let departure = queue.dequeue(Time::ZERO, &mut sink).packet().unwrap();
    assert_eq!((departure.class, departure.packet.dscp), (2, 0));
}
