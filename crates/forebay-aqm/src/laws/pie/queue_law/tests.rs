//! Tests of PIE against the judgements of Linux, and against values computed by hand.

use forebay_units::Params;

use super::*;
use crate::laws::recorded::{
    compare_counts, Backlog, Fate, QueueEvent, SignalCounts, Vector, PARTS,
};
use crate::laws::testing::{packet, probed, site, view};

/// The outcome of a law that follows a vector.
struct Replay {
    signals: SignalCounts,
    /// The highest probability, in units of [`MAX_PROB`].
    highest: f64,
}

/// Lets the law decide on the arrivals of a vector. The queue, and the packets that were signalled,
/// are those of the kernel, so that the estimates of the delay and the probability follow from the
/// law alone and must be equal to the kernel's after every update.
fn replay(vector: &Vector, params: &PieParams, seed: u64) -> Replay {
    let mut law = Pie::new(params, &vector.site());
    let times = Vector::times(params.first_change.as_nanos(), params.interval.as_nanos());
    let mut updates = times.zip(&vector.state).peekable();
    let mut rng = Rng::new(seed, "pie");
    let mut backlog = Backlog::new(vector);
    let (mut signals, mut highest) = (SignalCounts::default(), 0);
    for (now, event) in vector.events() {
        while let Some((at, state)) = updates.next_if(|(at, _)| *at < now) {
            assert_eq!(law.poll_timeout(), Some(at));
            law.handle_timeout(at, &backlog.view());
            // Linux reports the lower 56 bits of the probability, and the recorder keeps 53.
            let reported = (law.prob << 8) as f64;
            assert_eq!(reported, state[0] as f64, "at {} ns", at.as_nanos());
            highest = highest.max(law.prob);
        }
        let number = match event {
            QueueEvent::Departure(number) => {
                assert_eq!(backlog.pop(), Some(number));
                let p = vector.packets[number].meta(now);
                law.on_dequeue(now, &backlog.view(), &p, &mut rng);
                continue;
            }
            QueueEvent::Arrival(number) => number,
        };
        let packet = &vector.packets[number];
        let (p, q) = (packet.meta(now), backlog.view());
        let spared = law.spares(&q);
        let sum = law.sum.wrapping_add(law.prob);
        let verdict = law.on_enqueue(now, &q, &p, &mut rng);
        let was_signalled = packet.fate != Fate::Passed;
        let part = &mut signals[PARTS * number / vector.packets.len()];
        part.law += u32::from(verdict != Verdict::Pass);
        part.kernel += u32::from(was_signalled);
        if was_signalled {
            let at = format!("packet {number} at {} ns", now.as_nanos());
            assert!(!spared, "{at}");
            // Signals are spaced.
            assert!(sum >= MAX_PROB / 100 * 85, "{at}");
            let marks = p.signal == Signal::Mark && law.prob <= law.mark_up_to;
            assert_eq!(packet.fate == Fate::Marked, marks, "{at}");
        }
        // The draws of the kernel are not those of the law.
        law.sum = match (was_signalled, verdict) {
            (true, _) => 0,
            (false, Verdict::Pass) => law.sum,
            (false, _) => sum,
        };
        if packet.fate != Fate::Dropped {
            backlog.push(number);
        }
    }
    Replay {
        signals,
        highest: highest as f64 / MAX_PROB as f64,
    }
}

/// Asserts that the law follows a vector, and that the kernel signalled as often as the law
/// expects. Returns the highest probability, and the numbers of marks and drops.
fn assert_like_linux(text: &'static str, params: PieParams) -> (f64, usize, usize) {
    let vector = Vector::read(text);
    let params = PieParams {
        first_change: Span::from_nanos(vector.number("first_update_ns")),
        interval: Span::from_nanos(vector.number("update_period_ns")),
        ..params
    };
    compare_counts(|seed| replay(&vector, &params, seed).signals);
    let highest = replay(&vector, &params, 0).highest;
    (
        highest,
        vector.count(Fate::Marked),
        vector.count(Fate::Dropped),
    )
}

#[test]
fn the_probability_and_the_signals_are_those_of_linux() {
    let text = include_str!("../../../../tests/vectors/pie.csv");
    let (highest, _, dropped) = assert_like_linux(text, PieParams::defaults());
    // Unresponsive arrivals drive the probability above one.
    assert!(highest > 1.0 && dropped > 200, "{highest} {dropped}");
}

#[test]
fn the_departure_rate_gives_the_probability_and_the_signals_of_linux() {
    let text = include_str!("../../../../tests/vectors/pie-departure-rate.csv");
    let params = PieParams {
        estimator: Estimator::LinuxDepartureRate,
        ..PieParams::defaults()
    };
    let (highest, _, dropped) = assert_like_linux(text, params);
    assert!(highest > 1.0 && dropped > 200, "{highest} {dropped}");
}

#[test]
fn packets_are_marked_and_dropped_as_often_as_in_linux() {
    let text = include_str!("../../../../tests/vectors/pie-marks.csv");
    let params = PieParams {
        target: SetPoint::Delay(Span::from_millis(60)),
        alpha: 0.0625,
        beta: 0.0625,
        ..PieParams::defaults()
    };
    let (_, marked, dropped) = assert_like_linux(text, params);
    assert!(marked > 10 && dropped > 20, "{marked} {dropped}");
}

/// Returns a law with this probability and a delay of 20 ms, whose burst allowance is used up.
fn with(params: PieParams, p: f64) -> Pie {
    let mut pie = Pie::new(&params, &site());
    pie.prob = prob_of(p);
    pie.burst = 0;
    pie.delay = ticks(Span::from_millis(20));
    pie
}

/// Returns the fraction of packets that are signalled.
fn rate(params: &PieParams, p: f64) -> f64 {
    let mut pie = with(params.clone(), p);
    let mut rng = Rng::new(7, "pie");
    let n = 1_000_000;
    let mut judge = || pie.on_enqueue(Time::ZERO, &view(100), &packet(1000), &mut rng);
    let signals = (0..n).filter(|_| judge() != Verdict::Pass).count();
    signals as f64 / f64::from(n)
}

#[test]
fn the_rate_of_spaced_signals_is_that_of_the_formula() {
    let params = PieParams::defaults();
    for p in [0.003, 0.01, 0.03, 0.1, 0.25] {
        let expected = params.signals(p);
        assert!((rate(&params, p) / expected - 1.0).abs() < 0.05, "{p}");
        let (back, slope) = params.probability(expected);
        assert!((back - p).abs() < 1e-12);
        let by_hand = (params.signals(p * 1.001) - expected) / (0.001 * p);
        assert!((slope / by_hand - 1.0).abs() < 0.01, "{slope} {by_hand}");
    }
    let coin = PieParams {
        derandomise: false,
        ..params
    };
    assert!((rate(&coin, 0.03) - 0.03).abs() < 0.002);
}

#[test]
fn changes_follow_hand_computed_values() {
    // At p = 5 % the gains are halved. With 20 ms now and 18 ms before: 0.0625·5 ms + 0.625·2 ms.
    let mut pie = with(PieParams::defaults(), 0.05);
    pie.delay_1 = ticks(Span::from_millis(18));
    pie.change(&view(100));
    let expected = 0.05 + 0.0625 * 0.005 + 0.625 * 0.002;
    assert!((pie.probability() - expected).abs() < 1e-6);
    // From 10 % on the gains are applied in full, and one change adds at most 2 %.
    let mut pie = with(PieParams::defaults(), 0.2);
    pie.delay = ticks(Span::from_millis(100));
    pie.change(&view(100));
    assert!((pie.probability() - 0.22).abs() < 1e-6);
    pie.delay = ticks(Span::from_millis(300));
    pie.change(&view(100));
    assert!((pie.probability() - 0.26).abs() < 1e-6);
    // Without any delay the probability also decays.
    let mut pie = with(PieParams::defaults(), 0.5);
    (pie.delay, pie.delay_1) = (0, 0);
    pie.change(&view(0));
    let expected = (0.5 - 0.125 * 0.015) * 63.0 / 64.0;
    assert!((pie.probability() - expected).abs() < 1e-6);
}

#[test]
fn only_an_unbounded_probability_exceeds_one() {
    let after = |bounded, prob| {
        let params = PieParams {
            bounded,
            ..PieParams::defaults()
        };
        let mut pie = with(params, 0.0);
        (pie.prob, pie.delay) = (prob, ticks(Span::from_millis(300)));
        pie.change(&view(100));
        (pie.prob as f64 / MAX_PROB as f64, pie.probability())
    };
    assert_eq!(after(true, MAX_PROB), (1.0, 1.0));
    let (p, drawn) = after(false, MAX_PROB);
    assert!((p - 1.04).abs() < 1e-6 && drawn == 1.0, "{p}");
    assert_eq!(after(false, u64::MAX), (1.0, 1.0));
}

#[test]
fn the_gains_decrease_with_each_power_of_ten_of_p() {
    // RFC 8033 section 4.2: 1/2 below 10 %, 1/8 below 1 %, … 1/2048 below 1e-6.
    let expected = [
        (0.5, 0),
        (0.05, 1),
        (5e-3, 3),
        (5e-4, 5),
        (5e-5, 7),
        (5e-6, 9),
        (5e-7, 11),
    ];
    for (p, shift) in expected {
        assert_eq!(gain_shift(prob_of(p)), shift, "{p}");
    }
}

#[test]
fn above_ten_percent_marks_become_drops() {
    let ect = PacketMeta {
        signal: Signal::Mark,
        ..packet(1000)
    };
    let verdict = |p, packet: &PacketMeta| {
        let mut pie = with(PieParams::defaults(), p);
        pie.sum = MAX_PROB / 2 * 17;
        let actual = pie.on_enqueue(Time::ZERO, &view(100), packet, &mut Rng::new(1, ""));
        (actual, pie.sum == 0)
    };
    // At a sum of 8.5, a mark does not restart the sum in Linux.
    assert_eq!(verdict(0.09, &ect), (Verdict::Signal, false));
    assert_eq!(verdict(0.11, &ect), (Verdict::Drop, true));
    assert_eq!(verdict(0.11, &packet(1000)), (Verdict::Signal, true));
}

#[test]
fn both_departure_rates_give_the_delay_of_the_queue() {
    for estimator in [Estimator::DepartureRate, Estimator::LinuxDepartureRate] {
        let mut pie = Pie::new(
            &PieParams {
                estimator,
                ..PieParams::defaults()
            },
            &site(),
        );
        // 30 Mbit/s: 1000 bytes every 266 667 ns; 100 of them are 26.67 ms.
        for k in 0..200 {
            let now = Time::from_nanos(266_667 * k);
            pie.on_dequeue(now, &view(100), &packet(1000), &mut Rng::new(1, ""));
        }
        pie.change(&view(100));
        let delay_s = probed(&pie, "delay");
        assert!((delay_s / 0.026_667 - 1.0).abs() < 0.05, "{delay_s}");
    }
}

/// At a delay of 240 ms and a target of 15 ms, 0.0155/s add 0.0155·0.225 = 0.35 % in each change, so
/// that an unbounded probability rises from 1 to 256 in about 73 000 changes, and starts again. There
/// are more of these cycles than ranges of the gains.
#[test]
fn skipped_changes_of_an_unbounded_probability_are_those_of_its_cycle() {
    let params = PieParams {
        alpha: 0.0155,
        high_delay: Span::ZERO,
        ..PieParams::defaults()
    };
    for changes in [30_000_u64, 100_000, 1_000_000] {
        let law = || {
            let mut pie = Pie::new(&params, &site());
            pie.prob = 200 * MAX_PROB;
            pie.delay = ticks(Span::from_millis(240));
            pie.delay_1 = pie.delay;
            pie
        };
        let (mut at_once, mut one_by_one) = (law(), law());
        at_once.skip(Time::ZERO, changes, &view(100));
        let mut restarts = 0;
        for _ in 0..changes {
            let before = one_by_one.prob;
            one_by_one.change(&view(100));
            restarts += u32::from(one_by_one.prob < before);
        }
        assert_eq!(restarts > 10, changes == 1_000_000, "{restarts}");
        assert_eq!(at_once.prob, one_by_one.prob, "{changes} changes");
    }
}
