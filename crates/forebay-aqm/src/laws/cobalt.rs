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

    /// Decides on a departure by CoDel, then by BLUE (`cobalt_should_drop`).
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
    use crate::laws::recorded::{judge_departures, Fate, Vector};
    use crate::laws::testing::{packet, probed, site, view};
    use forebay_units::Params;

    /// Asserts that the law decides on every packet of a vector as Linux's cake did. Returns the
    /// numbers of marks and drops.
    fn replay(text: &'static str) -> (usize, usize) {
        let vector = Vector::read(text);
        let mut law = CobaltParams::defaults().build(&vector.site(), 0).unwrap();
        judge_departures(&vector, &mut *law, |_, _| ());
        (vector.count(Fate::Marked), vector.count(Fate::Dropped))
    }

    #[test]
    fn packets_have_the_fates_that_linux_gave_them() {
        let (marked, dropped) = replay(include_str!("../../tests/vectors/cobalt.csv"));
        assert!(marked > 50 && dropped > 50, "{marked} {dropped}");
    }

    #[test]
    fn packets_of_a_slow_link_have_the_fates_that_linux_gave_them() {
        let (marked, dropped) = replay(include_str!("../../tests/vectors/cobalt-slow.csv"));
        assert!(marked > 50 && dropped > 50, "{marked} {dropped}");
    }

    #[test]
    fn blue_rises_at_overflows_and_falls_while_the_queue_is_empty() {
        let params = CobaltParams::defaults();
        let mut law = params.build(&site(), 0).unwrap();
        let blue = |law: &dyn Law| probed(law, "p");
        let at = |us: u64| Time::ZERO + Span::from_micros(us);
        law.on_overflow(at(5000), &view(100));
        assert_eq!(blue(&*law), 0.0); // within a target time, 5 ms, of the last change
        for k in 1..=300 {
            law.on_overflow(at(5001 * k), &view(100));
            assert_eq!(blue(&*law), (k as f64 / 256.0).min(1.0 - 2.0f64.powi(-32)));
            law.on_overflow(at(5001 * k + 4000), &view(100));
        }
        assert!(blue(&*law) > 0.999);
        let start = 5001 * 300;
        for k in 1..=10 {
            law.on_idle(at(start + 5001 * k), &view(0));
            law.on_idle(at(start + 5001 * k + 4000), &view(0));
            let expected = 1.0 - k as f64 / 4096.0;
            assert!((blue(&*law) - expected).abs() < 1e-9, "{k}");
        }
        for k in 11..=5000 {
            law.on_idle(at(start + 5001 * k), &view(0));
        }
        assert_eq!(blue(&*law), 0.0);
    }

    #[test]
    fn blue_drops_its_share_of_packets_that_could_be_marked() {
        let mut law = CobaltParams::defaults().build(&site(), 0).unwrap();
        for k in 1..=64 {
            let now = Time::ZERO + Span::from_micros(5001 * k);
            law.on_overflow(now, &view(100));
        }
        assert_eq!(probed(&*law, "p"), 0.25);
        let p = PacketMeta {
            signal: Signal::Mark,
            ..packet(1000)
        };
        let mut rng = Rng::new(1, "blue");
        let mut dropped = 0;
        for k in 0..40_000 {
            let now = Time::ZERO + Span::from_millis(10_000 + k);
            match law.on_dequeue(now, &view(100), &p, &mut rng) {
                Verdict::Drop => dropped += 1,
                // The delay is zero, so that CoDel does not signal.
                verdict => assert_eq!(verdict, Verdict::Pass),
            }
        }
        // Four standard deviations.
        assert!(
            (f64::from(dropped) - 10_000.0).abs() < 4.0 * 86.6,
            "{dropped}"
        );
        // The last packet of a queue is never dropped.
        let last = (0..100).map(|k| Time::ZERO + Span::from_millis(60_000 + k));
        for now in last {
            let verdict = law.on_dequeue(now, &view(0), &p, &mut rng);
            assert_eq!(verdict, Verdict::Pass);
        }
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
