//! CAKE against what its shaper, tins and fairness must give.

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

/// What leaves a link of any speed in a second, where each of these is sent again as it
/// leaves, four times in the queue.
fn second(queue: &mut dyn Discipline<Sent>, kinds: &[Sent]) -> Vec<Sent> {
    let (mut now, mut sink) = (Time::ZERO, Count(0));
    for packet in [kinds; 4].concat() {
        queue.enqueue(now, packet, &mut sink);
    }
    let mut left = Vec::new();
    loop {
        match queue.dequeue(now, &mut sink) {
            Dequeued::Packet(departure) => {
                left.push(departure.packet);
                queue.enqueue(now, departure.packet, &mut sink);
            }
            Dequeued::Wait(until) => now = until,
            Dequeued::Idle => panic!("idle with packets"),
        }
        if now >= Time::ZERO + Span::from_secs(1) {
            assert_eq!(sink.0, 0);
            return left;
        }
    }
}

fn at(bandwidth: Rate) -> CakeParams {
    CakeParams {
        bandwidth,
        ..CakeParams::defaults()
    }
}

fn share_of(left: &[Sent], is: impl Fn(&Sent) -> bool) -> f64 {
    left.iter().filter(|packet| is(packet)).count() as f64 / left.len() as f64
}

#[test]
fn it_shapes_to_its_rate_with_the_framing_counted() {
    let plain = at(Rate::from_bps(8_000_000));
    // 1000 bytes and 44 of overhead are 22 cells of 53 bytes, or 17 more bytes.
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
        let left = second(&mut *queue, &[packet]).len() as f64;
        assert!((left - 1e6 / wire_bytes).abs() <= 1.0, "{params:?}: {left}");
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
        let left = second(&mut *queue(&params, 100), &kinds);
        share_of(&left, |packet| packet.source == 1)
    };
    for (isolation, share) in [
        (Isolation::DualSource, 0.5),
        (Isolation::SourceHost, 0.5),
        (Isolation::Flows, 0.1),
        // They all go to one host.
        (Isolation::DualDestination, 0.1),
    ] {
        let got = of_first(isolation);
        assert!((got - share).abs() < 0.02, "{isolation:?}: {got}");
    }
}

#[test]
fn a_tin_keeps_its_share_against_those_before_it() {
    let share = |tins, dscp| {
        let params = CakeParams {
            tins,
            ..at(Rate::from_bps(80_000_000))
        };
        let left = second(
            &mut *queue(&params, 100),
            &[sent(0, 0, 0), sent(1, 1, dscp)],
        );
        share_of(&left, |packet| packet.dscp == dscp)
    };
    // Background, video and voice beside best effort; EF has no tin of its own in the last.
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
    // 256 of 1024 and 256.
    assert!((380..=420).contains(&voice), "{voice}");
}

#[test]
fn a_turn_without_a_shaper_is_that_of_one_with_the_rate_of_the_link() {
    let order = |rate_bps: u64| -> Vec<u64> {
        let (mut queue, mut sink) = (queue(&CakeParams::defaults(), 100), Count(0));
        queue.set_rate(Rate::from_bps(rate_bps));
        for flow in [0, 0, 1, 1] {
            queue.enqueue(Time::ZERO, sent(flow, flow, 0), &mut sink);
        }
        let left = (0..4).filter_map(|_| queue.dequeue(Time::ZERO, &mut sink).packet());
        left.map(|departure| departure.packet.flow).collect()
    };
    // 457 bytes at 15 Mbit/s, and 1514 from 50 Mbit/s on, which is two packets.
    assert_eq!(order(15_000_000), [0, 1, 0, 1]);
    assert_eq!(order(100_000_000), [0, 0, 1, 1]);
    let (mut built, mut sink) = (queue(&CakeParams::defaults(), 100), Count(0));
    for flow in [0, 0, 1] {
        built.enqueue(Time::ZERO, sent(flow, flow, 0), &mut sink);
    }
    let left = (0..2).filter_map(|_| built.dequeue(Time::ZERO, &mut sink).packet());
    assert!(left.map(|departure| departure.packet.flow).eq([0, 1]));
}

#[test]
fn no_flow_shares_a_queue_while_its_set_has_room() {
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
fn a_full_buffer_costs_the_longest_queue_its_head() {
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

/// The ACKs that leave of these: flow, number, sacks, ECN's flags.
fn left_of(filter: AckFilter, acks: &[(u64, u32, bool, u8)]) -> Vec<(u64, u32)> {
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
    let left = queue.len_packets();
    assert_eq!(left + sink.0, acks.len() as u32);
    assert_eq!(queue.len_bytes(), 40 * u64::from(left));
    let leave = (0..left).map(|_| queue.dequeue(Time::ZERO, &mut sink).packet().unwrap());
    let leave = leave.map(|it| (it.packet.flow, it.packet.ack.unwrap().number));
    leave.collect()
}

#[test]
fn acks_that_later_ones_cover_are_dropped() {
    let run = |filter, numbers: &[u32]| {
        let acks: Vec<_> = numbers
            .iter()
            .map(|number| (1, *number, false, 0))
            .collect();
        let left = left_of(filter, &acks);
        left.into_iter()
            .map(|(_, number)| number)
            .collect::<Vec<_>>()
    };
    assert_eq!(run(AckFilter::Off, &[1, 2, 3, 4]), [1, 2, 3, 4]);
    // Two stay before the newest one comes to an end; the aggressive filter leaves it alone.
    assert_eq!(run(AckFilter::Filter, &[1, 2, 3, 4, 5]), [4, 5]);
    assert_eq!(run(AckFilter::Aggressive, &[1, 2, 3, 4, 5]), [5]);
    // Duplicates tell of loss, an older one says nothing of a newer; numbers wrap.
    assert_eq!(run(AckFilter::Aggressive, &[7, 7, 7]), [7, 7, 7]);
    assert_eq!(run(AckFilter::Aggressive, &[7, 5]), [7, 5]);
    assert_eq!(run(AckFilter::Aggressive, &[u32::MAX, 2]), [2]);
}

#[test]
fn acks_with_news_stay() {
    let aggressive = |acks: &[(u64, u32, bool, u8)]| left_of(AckFilter::Aggressive, acks);
    // Of other flows, with SACK blocks, and before a change of ECN's flags.
    assert_eq!(aggressive(&[(1, 1, false, 0), (2, 9, false, 0)]).len(), 2);
    assert_eq!(aggressive(&[(1, 1, true, 0), (1, 2, false, 0)]).len(), 2);
    assert_eq!(aggressive(&[(1, 1, false, 1), (1, 2, false, 0)]).len(), 2);
    // Blocks say more than the same number without.
    assert_eq!(aggressive(&[(1, 1, false, 0), (1, 1, true, 0)]), [(1, 1)]);
    // The filter of the first kind leaves the last but one of each flow.
    let acks = [
        (1, 1, false, 0),
        (2, 1, false, 0),
        (1, 2, false, 0),
        (1, 3, false, 0),
    ];
    assert_eq!(left_of(AckFilter::Filter, &acks), [(2, 1), (1, 2), (1, 3)]);
}

#[test]
fn a_washed_packet_has_chosen_its_tin() {
    let params = CakeParams {
        wash: true,
        ..CakeParams::defaults()
    };
    let (mut queue, mut sink) = (queue(&params, 10), Count(0));
    queue.enqueue(Time::ZERO, sent(1, 1, 46), &mut sink);
    let departure = queue.dequeue(Time::ZERO, &mut sink).packet().unwrap();
    assert_eq!((departure.class, departure.packet.dscp), (2, 0));
}
