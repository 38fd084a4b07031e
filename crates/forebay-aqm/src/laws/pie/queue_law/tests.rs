//! Tests of PIE against the code of Linux, and against values computed by hand.

use std::collections::VecDeque;

use forebay_units::Params;
use proptest::prelude::{proptest, ProptestConfig};

use super::*;
use crate::laws::testing::{load, packet, phases, probed, site, view, Event, Phase};

/// sch_pie.c, transcribed line by line: ticks of 64 ns, probabilities of 56 bits.
struct Kernel {
    target: u64,
    mtu: u64,
    dq_rate_estimator: bool,
    qdelay: u64,
    qdelay_old: u64,
    burst_time: u64,
    dq_tstamp: u64,
    prob: u64,
    accu_prob: u64,
    dq_count: u64,
    avg_dq_rate: u32,
}

const MAX: u64 = u64::MAX >> 8;
const INVALID: u64 = u64::MAX;

impl Kernel {
    fn new(dq_rate_estimator: bool) -> Kernel {
        Kernel {
            target: 15_000_000 >> 6,
            mtu: 1500,
            dq_rate_estimator,
            qdelay: 0,
            qdelay_old: 0,
            burst_time: 150_000_000 >> 6,
            dq_tstamp: INVALID,
            prob: 0,
            accu_prob: 0,
            dq_count: INVALID,
            avg_dq_rate: 0,
        }
    }

    fn drop_early(&mut self, backlog: u64, rng: &mut Rng) -> bool {
        if self.burst_time > 0
            || (self.qdelay < self.target / 2 && self.prob < MAX / 5)
            || backlog < 2 * self.mtu
        {
            return false;
        }
        if self.prob == 0 {
            self.accu_prob = 0;
        } else {
            self.accu_prob = self.accu_prob.wrapping_add(self.prob);
        }
        if self.accu_prob < (MAX / 100) * 85 {
            return false;
        }
        if self.accu_prob >= (MAX / 2) * 17 {
            return true;
        }
        if (rng.next_u64() >> 8) < self.prob {
            self.accu_prob = 0;
            return true;
        }
        false
    }

    /// Returns whether the packet is dropped, and whether it is marked.
    fn enqueue(&mut self, backlog: u64, ect: bool, rng: &mut Rng) -> (bool, bool) {
        if !self.drop_early(backlog, rng) {
            return (false, false);
        }
        if self.prob <= MAX / 10 && ect {
            return (false, true);
        }
        self.accu_prob = 0;
        (true, false)
    }

    fn reduce_burst(&mut self, dtime: u32) {
        self.burst_time = self.burst_time.saturating_sub(u64::from(dtime));
    }

    fn process_dequeue(&mut self, now: u64, arrived: u64, bytes: u32, backlog: u64) {
        if !self.dq_rate_estimator {
            self.qdelay = if backlog != 0 { now - arrived } else { 0 };
            let mut dtime = 0;
            if self.dq_tstamp != INVALID {
                dtime = (now - self.dq_tstamp) as u32;
            }
            self.dq_tstamp = now;
            self.reduce_burst(dtime);
            return;
        }
        if backlog >= 16384 && self.dq_count == INVALID {
            self.dq_tstamp = now;
            self.dq_count = 0;
        }
        if self.dq_count == INVALID {
            return;
        }
        self.dq_count += u64::from(bytes);
        if self.dq_count < 16384 {
            return;
        }
        let dtime = (now - self.dq_tstamp) as u32;
        if dtime == 0 {
            return;
        }
        let count = ((self.dq_count << 8) as u32) / dtime;
        if self.avg_dq_rate == 0 {
            self.avg_dq_rate = count;
        } else {
            self.avg_dq_rate = (self.avg_dq_rate - (self.avg_dq_rate >> 3)) + (count >> 3);
        }
        if backlog < 16384 {
            self.dq_count = INVALID;
        } else {
            self.dq_count = 0;
            self.dq_tstamp = now;
        }
        self.reduce_burst(dtime);
    }

    fn calculate_probability(&mut self, backlog: u64) {
        let (qdelay, qdelay_old);
        if self.dq_rate_estimator {
            qdelay_old = self.qdelay;
            self.qdelay_old = self.qdelay;
            qdelay = match self.avg_dq_rate {
                0 => 0,
                rate => (backlog << 8) / u64::from(rate),
            };
        } else {
            qdelay = self.qdelay;
            qdelay_old = self.qdelay_old;
        }
        let mut update_prob = !(qdelay == 0 && backlog != 0);
        let mut alpha = (2 * (MAX / 15_625_000)) >> 4;
        let mut beta = (20 * (MAX / 15_625_000)) >> 4;
        if self.prob < MAX / 10 {
            alpha >>= 1;
            beta >>= 1;
            let mut power = 100;
            while self.prob < MAX / power && power <= 1_000_000 {
                alpha >>= 2;
                beta >>= 2;
                power *= 10;
            }
        }
        let mut delta = 0i64;
        delta = delta.wrapping_add(alpha.wrapping_mul(qdelay.wrapping_sub(self.target)) as i64);
        delta = delta.wrapping_add(beta.wrapping_mul(qdelay.wrapping_sub(qdelay_old)) as i64);
        let oldprob = self.prob;
        if delta > (MAX / (100 / 2)) as i64 && self.prob >= MAX / 10 {
            delta = ((MAX / 100) * 2) as i64;
        }
        if qdelay > 250_000_000 >> 6 {
            delta += (MAX / (100 / 2)) as i64;
        }
        self.prob = self.prob.wrapping_add(delta as u64);
        if delta > 0 {
            if self.prob < oldprob {
                self.prob = MAX;
                update_prob = false;
            }
        } else if self.prob > oldprob {
            self.prob = 0;
        }
        if qdelay == 0 && qdelay_old == 0 && update_prob {
            self.prob -= self.prob / 64;
        }
        self.qdelay = qdelay;
        if self.qdelay < self.target / 2
            && self.qdelay_old < self.target / 2
            && self.prob == 0
            && (!self.dq_rate_estimator || self.avg_dq_rate > 0)
        {
            *self = Kernel {
                qdelay: self.qdelay,
                qdelay_old: self.qdelay_old,
                prob: self.prob,
                ..Kernel::new(self.dq_rate_estimator)
            };
        }
        if !self.dq_rate_estimator {
            self.qdelay_old = qdelay;
        }
    }
}

/// Runs the rng_copy packets through the law and the kernel's code, with the rng_copy random numbers. Returns
/// the number of signals, and the highest probability.
fn side_by_side(seed: u64, phases: &[Phase], dq_rate_estimator: bool) -> (usize, f64) {
    let params = PieParams {
        estimator: match dq_rate_estimator {
            true => Estimator::LinuxDepartureRate,
            false => Estimator::Timestamp,
        },
        least_backlog: Bytes(3000),
        ..PieParams::defaults()
    };
    let mut law = Pie::new(&params, &site());
    let mut kernel = Kernel::new(dq_rate_estimator);
    let mut rng = Rng::new(seed, "draws");
    let mut queue: VecDeque<(u64, u32)> = VecDeque::new();
    let mut backlog = 0u64;
    let (mut signals, mut highest) = (0, 0);
    let mut change_ns = 500_000_000;
    for (now_ns, event) in load(seed, phases) {
        let now = Time::from_nanos(now_ns);
        let q = |packets: usize, bytes: u64| QueueView {
            packets: packets as u32,
            bytes,
            ..view(0)
        };
        while change_ns <= now_ns {
            kernel.calculate_probability(backlog);
            change_ns += 15_000_000;
        }
        highest = highest.max(kernel.prob);
        law.handle_timeout(now, &q(queue.len(), backlog));
        assert_eq!(law.prob, kernel.prob, "at {now_ns} ns");
        assert_eq!(law.burst, kernel.burst_time, "at {now_ns} ns");
        match event {
            Event::Arrival { .. } if queue.len() >= 1000 => {
                kernel.accu_prob = 0;
                law.on_overflow(now, &q(queue.len(), backlog));
            }
            Event::Arrival { bytes, ect } => {
                let p = PacketMeta {
                    signal: if ect { Signal::Mark } else { Signal::Drop },
                    ..packet(bytes)
                };
                let mut rng_copy = rng.clone();
                let got = law.on_enqueue(now, &q(queue.len(), backlog), &p, &mut rng);
                let (dropped, marked) = kernel.enqueue(backlog, ect, &mut rng_copy);
                let drops = got == Verdict::Drop || (got == Verdict::Signal && !ect);
                assert_eq!(
                    (drops, got == Verdict::Signal && ect),
                    (dropped, marked),
                    "{now_ns}"
                );
                assert_eq!(law.sum, kernel.accu_prob, "at {now_ns} ns");
                signals += usize::from(got != Verdict::Pass);
                if !dropped {
                    queue.push_back((now_ns, bytes));
                    backlog += u64::from(bytes);
                }
            }
            Event::Service => {
                let Some((arrived, bytes)) = queue.pop_front() else {
                    continue;
                };
                backlog -= u64::from(bytes);
                let p = PacketMeta {
                    sojourn: Span::from_nanos(now_ns - arrived),
                    ..packet(bytes)
                };
                law.on_dequeue(now, &q(queue.len(), backlog), &p, &mut rng);
                kernel.process_dequeue(now_ns >> 6, arrived >> 6, bytes, backlog);
                assert_eq!(law.delay, kernel.qdelay, "at {now_ns} ns");
            }
        }
    }
    (signals, highest as f64 / MAX as f64)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn the_same_arrivals_get_the_verdicts_of_linux(seed: u64, phases in phases()) {
        side_by_side(seed, &phases, false);
        side_by_side(seed, &phases, true);
    }
}

#[test]
fn these_arrivals_are_signalled_and_drive_the_probability_above_one() {
    let phases = |loads: [f64; 3]| {
        loads.map(|load| Phase {
            load,
            ms: 8000,
            ect: 0.0,
        })
    };
    for dq_rate_estimator in [false, true] {
        let (signals, _) = side_by_side(1, &phases([1.2, 0.5, 1.1]), dq_rate_estimator);
        assert!(signals > 500, "{signals}");
        // Unresponsive arrivals drive the probability above one.
        let (_, highest) = side_by_side(1, &phases([5.5, 0.5, 5.5]), dq_rate_estimator);
        assert!(highest > 1.0, "{highest}");
    }
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
    let n = 400_000;
    let mut judge = || pie.on_enqueue(Time::ZERO, &view(100), &packet(1000), &mut rng);
    let signals = (0..n).filter(|_| judge() != Verdict::Pass).count();
    signals as f64 / f64::from(n)
}

#[test]
fn the_rate_of_spaced_signals_is_that_of_the_formula() {
    let params = PieParams::defaults();
    for p in [0.003, 0.01, 0.03, 0.1, 0.25] {
        let want = params.signals(p);
        assert!((rate(&params, p) / want - 1.0).abs() < 0.05, "{p}");
        let (back, slope) = params.probability(want);
        assert!((back - p).abs() < 1e-12);
        let by_hand = (params.signals(p * 1.001) - want) / (0.001 * p);
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
    let want = 0.05 + 0.0625 * 0.005 + 0.625 * 0.002;
    assert!((pie.probability() - want).abs() < 1e-6);
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
    let want = (0.5 - 0.125 * 0.015) * 63.0 / 64.0;
    assert!((pie.probability() - want).abs() < 1e-6);
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
    let want = [
        (0.5, 0),
        (0.05, 1),
        (5e-3, 3),
        (5e-4, 5),
        (5e-5, 7),
        (5e-6, 9),
        (5e-7, 11),
    ];
    for (p, shift) in want {
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
        let got = pie.on_enqueue(Time::ZERO, &view(100), packet, &mut Rng::new(1, ""));
        (got, pie.sum == 0)
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
