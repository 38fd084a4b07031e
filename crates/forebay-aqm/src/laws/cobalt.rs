//! COBALT, the law of CAKE: CoDel whose count decreases step by step instead of being reset, and
//! BLUE against unresponsive flows.

use forebay_linux_tc::{LinuxQdisc, Tc, TcSite};
use forebay_theory::search::{time, Conditions, Search};
use forebay_units::cast::{whole_u32, whole_u64};
use forebay_units::{params, Bytes, ParamError, Rate, Rng, SetPoint, Site, Span, Time, Value};

use crate::configured_law::ConfiguredLaw;
use crate::law::{FluidLaw, Law, PacketMeta, QueueView, Signal, Target, Verdict};
use crate::law_spec::LawSpec;
use crate::laws::codel::settings;

/// The registry entry of COBALT.
pub const LAW: LawSpec = LawSpec::of::<CobaltParams>(
    "cobalt",
    "COBALT: CoDel that counts down, with BLUE's drops for flows that do not answer",
    "Palmei et al. 2019; arithmetic and defaults of CAKE in Linux (sch_cake.c)",
)
.with_equation(
    "CoDel whose count falls step by step below the target;  BLUE's p where the queue overflows",
)
.with_search(CobaltParams::search);

/// The registry entry of CAKE: COBALT in the discipline `cake`.
pub const CAKE: LawSpec = LAW
    .in_queue(
        "cake",
        "cake",
        "CAKE: COBALT on a queue for each flow, hosts and flows in turn",
        "Høiland-Jørgensen et al. 2018; Linux tc-cake(8)",
    )
    .with_several_loops(|conditions| Search::Listed(settings(conditions)));

params! {
    /// COBALT's parameters.
    pub struct CobaltParams {
        /// Acceptable standing queuing delay, or a queue length, which is converted to a delay at
        /// the link's rate. The delay is raised to at least 1.5 transmission times of a usual
        /// packet.
        target: SetPoint = SetPoint::Delay(Span::from_millis(5)), 0.0 => 1e9;
        /// Time for which the delay may stay above the target before the first signal: about the
        /// longest usual round-trip time.
        interval: Span = Span::from_millis(100), 1e-6 => 60.0;
        /// Increase of BLUE's drop probability at an overflow, at most once per target time.
        increment: f64 = 0.003_906_25, 0.0 => 1.0;
        /// Decrease of BLUE's drop probability when the queue is empty, at most once per target
        /// time.
        decrement: f64 = 0.000_244_140_625, 0.0 => 1.0;
    }
}

impl CobaltParams {
    /// COBALT is tuned by simulation, because it has no linear model, like CoDel.
    fn search(conditions: &Conditions) -> Search {
        Search::Listed(settings(conditions))
    }
}

impl ConfiguredLaw for CobaltParams {
    fn build(&self, site: &Site, _seed: u64) -> Result<Box<dyn Law>, ParamError> {
        let fixed = |p: f64| whole_u32(p * 2.0f64.powi(32));
        let mut law = Cobalt {
            target: Target::new(self.target, site),
            interval: self.interval.as_nanos(),
            increment: fixed(self.increment),
            decrement: fixed(self.decrement),
            packet: site.packet,
            times: Times::default(),
            count: 0,
            inverse_root: 0,
            signalling: false,
            next: 0,
            blue: 0,
            blue_since: 0,
        };
        law.times = law.times_at(site.rate, law.target.set_point.pkts(site.rate, site.packet));
        Ok(Box::new(law))
    }

    fn set_point(&self) -> Option<SetPoint> {
        Some(self.target)
    }

    /// The interval is `rtt` of tc-cake(8). COBALT itself adapts its target to the link's rate.
    fn fitted(&self, rtt: Span, _site: &Site) -> Vec<(&'static str, Value)> {
        if rtt <= self.interval {
            return Vec::new();
        }
        vec![("interval", time(rtt.as_secs_f64(), 3))]
    }

    fn linux(&self) -> Option<&dyn LinuxQdisc> {
        Some(self)
    }
}

impl LinuxQdisc for CobaltParams {
    /// tc-cake(8) has one keyword for both times: the interval is `rtt`, and the target a twentieth
    /// of it.
    fn tc(&self, queue: &str, site: &TcSite) -> Result<Option<Tc>, ParamError> {
        if queue != "cake" {
            return Ok(None);
        }
        let mut tc = Tc::new("cake");
        tc.always_marks(site)?;
        tc.defaults(self, &["increment", "decrement"])?;
        let micros = (self.interval.as_nanos() + 500) / 1000;
        let target = SetPoint::Delay(Span::from_micros((micros / 20).max(1)));
        if self.target != target {
            let expected =
                format!("\"{target}\", which is a twentieth of the interval, as in Linux's cake");
            return Err(ParamError::new(
                "target",
                format!("\"{}\"", self.target),
                expected,
            ));
        }
        tc.time("rtt", "interval", self.interval);
        Ok(Some(tc))
    }
}

/// The times that follow from the parameters at the link's rate, in ns (`cake_set_rate`).
#[derive(Clone, Copy, Default)]
struct Times {
    rate: Rate,
    target: u64,
    interval: u64,
    /// The transmission time of a usual packet (`mtu_time`).
    packet: u64,
}

/// COBALT at a queue (`struct cobalt_vars`).
struct Cobalt {
    target: Target,
    interval: u64,
    increment: u32,
    decrement: u32,
    packet: Bytes,
    times: Times,
    /// The number of signals since signalling began, minus those that fell due while the delay was
    /// below the target.
    count: u32,
    /// 1/√count in units of 2^−32 (`rec_inv_sqrt`).
    inverse_root: u32,
    /// True while the delay is above the target (`dropping`).
    signalling: bool,
    /// The time at which the next signal is due (`drop_next`); while `count` is zero, the end of
    /// the interval in which the law still decays.
    next: u64,
    /// BLUE's drop probability in units of 2^−32 (`p_drop`).
    blue: u32,
    /// The time at which that probability last changed (`blue_timer`).
    blue_since: u64,
}

impl Cobalt {
    /// Returns the times at this rate, with a target of `target_pkts` if it is a queue length.
    fn times_at(&self, rate: Rate, target_pkts: f64) -> Times {
        let per_s = rate.packets_per_sec(self.packet);
        let packet = whole_u64(1e9 / per_s);
        let requested = match self.target.set_point {
            SetPoint::Delay(delay) => delay.as_nanos(),
            SetPoint::Packets(_) => whole_u64(1e9 * target_pkts / per_s),
        };
        let target = requested.max(packet.saturating_mul(3) / 2);
        Times {
            rate,
            target,
            interval: (self.interval + (target - requested)).max(target.saturating_mul(2)),
            packet,
        }
    }

    /// Returns the times at the link's current rate.
    #[inline]
    fn times(&mut self, q: &QueueView) -> Times {
        if q.rate != self.times.rate {
            self.times = self.times_at(q.rate, self.target.pkts(q));
        }
        self.times
    }

    /// Returns `t` + interval/√count (`cobalt_control`).
    fn control(&self, t: u64, interval: u64) -> u64 {
        let step = (u128::from(interval) * u128::from(self.inverse_root)) >> 32;
        t.saturating_add(u64::try_from(step).expect("less than the interval"))
    }

    /// Sets 1/√count, from a table for counts up to 15, and by one step of Newton's method above
    /// (`cobalt_invsqrt`).
    fn update_root(&mut self, count: u32) {
        if let Some(root) = INVERSE_ROOTS.get(count as usize) {
            self.inverse_root = *root;
            return;
        }
        let x = u64::from(self.inverse_root);
        let square = (x * x) >> 32;
        let rest = (3u64 << 32).wrapping_sub(u64::from(count).wrapping_mul(square));
        self.inverse_root = ((rest >> 2).wrapping_mul(x) >> 31) as u32;
    }

    /// Schedules the next signal for a new count.
    fn step(&mut self, count: u32, interval: u64) {
        self.update_root(count);
        self.next = self.control(self.next, interval);
    }

    /// Judges a departure by CoDel, then by BLUE (`cobalt_should_drop`).
    #[inline]
    fn judge(&mut self, t: u64, times: Times, p: &PacketMeta, rng: &mut Rng) -> Verdict {
        let sojourn = p.sojourn.as_nanos();
        let mut count = self.count;
        let mut due = count > 0 && t >= self.next;
        let mut overdue = t > self.next;
        if sojourn > times.target && sojourn > times.packet.saturating_mul(4) {
            if !self.signalling {
                self.signalling = true;
                self.next = self.control(t, times.interval);
            }
            count = count.max(1);
        } else {
            self.signalling = false;
        }
        let mut verdict = Verdict::Pass;
        if due && self.signalling {
            verdict = Verdict::Signal;
            count = count.saturating_add(1);
            self.step(count, times.interval);
            overdue = t > self.next;
        } else {
            // Where CoDel resets its state, the count decreases at the times of due signals.
            while due {
                count -= 1;
                self.step(count, times.interval);
                overdue = t > self.next;
                due = count > 0 && t >= self.next;
            }
        }
        let stays = |verdict| verdict == Verdict::Pass || p.signal == Signal::Mark;
        // BLUE drops even packets that could be marked, because it acts on unresponsive flows.
        if self.blue > 0 && stays(verdict) && whole_draw(rng) < self.blue {
            verdict = Verdict::Drop;
        }
        self.count = count;
        if count == 0 {
            self.next = t.saturating_add(times.interval);
        } else if overdue && verdict != Verdict::Drop && stays(verdict) {
            self.next = t;
        }
        verdict
    }

    /// Returns true if BLUE's probability changed less than a target time ago.
    fn blue_is_frozen(&self, t: u64, times: Times) -> bool {
        t.saturating_sub(self.blue_since) <= times.target
    }
}

/// 2^32/√count for counts up to 15; counts of 0 and 1 give a whole interval.
const INVERSE_ROOTS: [u32; 16] = [
    u32::MAX,
    u32::MAX,
    3_037_000_500,
    2_479_700_525,
    2_147_483_647,
    1_920_767_767,
    1_753_413_056,
    1_623_345_051,
    1_518_500_250,
    1_431_655_765,
    1_358_187_914,
    1_294_981_364,
    1_239_850_263,
    1_191_209_601,
    1_147_878_294,
    1_108_955_788,
];

/// Returns 32 random bits.
fn whole_draw(rng: &mut Rng) -> u32 {
    (rng.next_u64() >> 32) as u32
}

impl Law for Cobalt {
    fn watches_arrivals(&self) -> bool {
        false
    }

    #[inline]
    fn on_dequeue(&mut self, now: Time, q: &QueueView, p: &PacketMeta, rng: &mut Rng) -> Verdict {
        let times = self.times(q);
        let verdict = self.judge(now.as_nanos(), times, p, rng);
        let drops = match verdict {
            Verdict::Pass => false,
            Verdict::Signal => p.signal == Signal::Drop,
            Verdict::Drop => true,
        };
        // The last packet of a queue may be marked, and is never dropped.
        if drops && q.packets == 0 {
            return Verdict::Pass;
        }
        verdict
    }

    /// Reacts to a full buffer (`cobalt_queue_full`).
    fn on_overflow(&mut self, now: Time, q: &QueueView) {
        let (t, times) = (now.as_nanos(), self.times(q));
        if !self.blue_is_frozen(t, times) {
            self.blue = self.blue.saturating_add(self.increment);
            self.blue_since = t;
        }
        self.signalling = true;
        self.next = t;
        self.count = self.count.max(1);
    }

    /// Reacts to an empty queue (`cobalt_queue_empty`).
    fn on_idle(&mut self, now: Time, q: &QueueView) {
        let (t, times) = (now.as_nanos(), self.times(q));
        if self.blue > 0 && !self.blue_is_frozen(t, times) {
            self.blue = self.blue.saturating_sub(self.decrement);
            self.blue_since = t;
        }
        self.signalling = false;
        if self.count > 0 && t >= self.next {
            self.count -= 1;
            self.step(self.count, times.interval);
        }
    }

    /// Counts every dropped packet as a full buffer (`cake_drop`).
    fn on_trim(&mut self, now: Time, q: &QueueView, packets: u32) {
        for _ in 0..packets {
            self.on_overflow(now, q);
        }
    }

    /// Returns true once the state of an empty flow has decayed (`cake_dequeue`).
    fn is_quiescent(&self, now: Time) -> bool {
        self.blue == 0 && self.count == 0 && now.as_nanos() >= self.next
    }

    fn set_point(&mut self, set_point: SetPoint) -> bool {
        self.target.set_point = set_point;
        self.times.rate = Rate::default(); // the times are computed again at the next call
        true
    }

    fn probe(&self, out: &mut dyn FnMut(&'static str, f64)) {
        out("p", f64::from(self.blue) / 2.0f64.powi(32));
        out("count", f64::from(self.count));
        out("signalling", f64::from(u8::from(self.signalling)));
    }
}

impl FluidLaw for Cobalt {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::laws::testing::{load, packet, phases, probed, site, view, Event, Phase};
    use forebay_units::Params;
    use proptest::prelude::{proptest, ProptestConfig};
    use std::collections::VecDeque;

    /// The kernel's functions `cobalt_*`, transcribed line by line: signed time and 32-bit
    /// fractions.
    #[derive(Default)]
    struct Kernel {
        interval: i64,
        target: i64,
        mtu_time: i64,
        count: u32,
        rec_inv_sqrt: u32,
        drop_next: i64,
        blue_timer: i64,
        p_drop: u32,
        dropping: bool,
    }

    impl Kernel {
        fn invsqrt(&mut self, count: u32) {
            self.rec_inv_sqrt = match count {
                0 | 1 => u32::MAX,
                4 => (1 << 31) - 1,
                2..16 => (4_294_967_296.0 / f64::from(count).sqrt()).round() as u32,
                _ => {
                    let invsqrt = u64::from(self.rec_inv_sqrt);
                    let invsqrt2 = (invsqrt * invsqrt) >> 32;
                    let val = (3u64 << 32).wrapping_sub(u64::from(count) * invsqrt2) >> 2;
                    (val.wrapping_mul(invsqrt) >> (32 - 2 + 1)) as u32
                }
            };
        }

        fn control(&self, t: i64) -> i64 {
            t + ((self.interval as u64 * u64::from(self.rec_inv_sqrt)) >> 32) as i64
        }

        fn full(&mut self, now: i64) {
            if now - self.blue_timer > self.target {
                let (sum, wrapped) = self.p_drop.overflowing_add(1 << 24);
                self.p_drop = if wrapped { u32::MAX } else { sum };
                self.blue_timer = now;
            }
            self.dropping = true;
            self.drop_next = now;
            if self.count == 0 {
                self.count = 1;
            }
        }

        fn empty(&mut self, now: i64) {
            if self.p_drop > 0 && now - self.blue_timer > self.target {
                if self.p_drop < 1 << 20 {
                    self.p_drop = 0;
                } else {
                    self.p_drop -= 1 << 20;
                }
                self.blue_timer = now;
            }
            self.dropping = false;
            if self.count > 0 && now - self.drop_next >= 0 {
                self.count -= 1;
                self.invsqrt(self.count);
                self.drop_next = self.control(self.drop_next);
            }
        }

        /// Returns whether the packet is dropped, and whether it was marked before.
        fn should_drop(
            &mut self,
            now: i64,
            sojourn: i64,
            ect: bool,
            rng: &mut Rng,
        ) -> (bool, bool) {
            let (mut drop, mut marked) = (false, false);
            let mut schedule = now - self.drop_next;
            let over_target = sojourn > self.target && sojourn > self.mtu_time * 4;
            let mut count = self.count;
            let mut next_due = count != 0 && schedule >= 0;
            if over_target {
                if !self.dropping {
                    self.dropping = true;
                    self.drop_next = self.control(now);
                }
                if count == 0 {
                    count = 1;
                }
            } else if self.dropping {
                self.dropping = false;
            }
            if next_due && self.dropping {
                marked = ect;
                drop = !marked;
                count += 1;
                self.invsqrt(count);
                self.drop_next = self.control(self.drop_next);
                schedule = now - self.drop_next;
            } else {
                while next_due {
                    count -= 1;
                    self.invsqrt(count);
                    self.drop_next = self.control(self.drop_next);
                    schedule = now - self.drop_next;
                    next_due = count != 0 && schedule >= 0;
                }
            }
            if self.p_drop > 0 && !drop && ((rng.next_u64() >> 32) as u32) < self.p_drop {
                drop = true;
            }
            self.count = count;
            if count == 0 {
                self.drop_next = now + self.interval;
            } else if schedule > 0 && !drop {
                self.drop_next = now;
            }
            (drop, marked)
        }
    }

    /// Runs the rng_copy packets through the law and the kernel's code, with the rng_copy random
    /// numbers. Returns the number of CoDel's signals, and the highest probability of BLUE.
    fn side_by_side(seed: u64, phases: &[Phase], limit: usize) -> (usize, f64) {
        let mut law = CobaltParams::defaults().build(&site(), 0).unwrap();
        // A packet of 1000 bytes at 30 Mbit/s.
        let mut kernel = Kernel {
            interval: 100_000_000,
            target: 5_000_000,
            mtu_time: 266_666,
            ..Kernel::default()
        };
        let mut rng = Rng::new(seed, "draws");
        let mut queue: VecDeque<(u64, u32, bool)> = VecDeque::new();
        let (mut signals, mut most_blue) = (0, 0.0f64);
        for (now_ns, event) in load(seed, phases) {
            let (now, at) = (Time::from_nanos(now_ns), now_ns as i64);
            match event {
                Event::Arrival { .. } if queue.len() >= limit => {
                    law.on_overflow(now, &view(queue.len() as u32));
                    kernel.full(at);
                }
                Event::Arrival { bytes, ect } => queue.push_back((now_ns, bytes, ect)),
                Event::Service => loop {
                    let Some((arrived, bytes, ect)) = queue.pop_front() else {
                        law.on_idle(now, &view(0));
                        kernel.empty(at);
                        break;
                    };
                    let p = PacketMeta {
                        signal: if ect { Signal::Mark } else { Signal::Drop },
                        sojourn: Span::from_nanos(now_ns - arrived),
                        ..packet(bytes)
                    };
                    let mut rng_copy = rng.clone();
                    let actual = law.on_dequeue(now, &view(queue.len() as u32), &p, &mut rng);
                    let (drop, marked) =
                        kernel.should_drop(at, at - arrived as i64, ect, &mut rng_copy);
                    // "Last packet in queue may be marked, shouldn't be dropped."
                    let drop = drop && !queue.is_empty();
                    let drops = actual == Verdict::Drop || (actual == Verdict::Signal && !ect);
                    assert_eq!(drops, drop, "at {now_ns} ns");
                    let spared = queue.is_empty() && actual == Verdict::Pass;
                    if !(drop || spared) {
                        assert_eq!(actual == Verdict::Signal, marked, "at {now_ns} ns");
                    }
                    assert_eq!(probed(&*law, "count"), f64::from(kernel.count));
                    assert_eq!(
                        probed(&*law, "p"),
                        f64::from(kernel.p_drop) / 2.0f64.powi(32)
                    );
                    signals += usize::from(actual == Verdict::Signal);
                    most_blue = most_blue.max(probed(&*law, "p"));
                    if !drop {
                        break;
                    }
                },
            }
        }
        (signals, most_blue)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn the_same_arrivals_get_the_verdicts_of_linux(seed: u64, phases in phases(), limit in 20usize..400) {
            side_by_side(seed, &phases, limit);
        }
    }

    #[test]
    fn codel_and_blue_both_act_on_these_arrivals() {
        let phases = [2.0, 0.3, 2.0].map(|load| Phase {
            load,
            ms: 5000,
            ect: 0.0,
        });
        let (signals, blue) = side_by_side(1, &phases, 100);
        assert!(signals > 500 && blue > 0.05, "{signals} {blue}");
    }

    #[test]
    fn a_slow_link_raises_the_target_by_packets_in_transmission() {
        // 1000 bytes at 1 Mbit/s take 8 ms: the target is 12 ms, the interval 107 ms.
        let mut law = CobaltParams::defaults().build(&site(), 0).unwrap();
        let q = QueueView {
            rate: Rate::from_bps(1_000_000),
            ..view(50)
        };
        let signals = |law: &mut dyn Law, sojourn_ms| {
            let p = PacketMeta {
                sojourn: Span::from_millis(sojourn_ms),
                ..packet(1000)
            };
            (0..1000)
                .map(|ms| Time::ZERO + Span::from_millis(1 + ms))
                .filter(|now| law.on_dequeue(*now, &q, &p, &mut Rng::new(1, "")) != Verdict::Pass)
                .count()
        };
        assert_eq!(signals(&mut *law, 30), 0);
        assert!(signals(&mut *law, 40) > 5);
    }
}
