//! CoDel of Nichols, Jacobson, McGregor and Iyengar: once packets have waited longer than the
//! target for an interval, it signals at departures, at an increasing rate.

use forebay_linux_tc::{LinuxQdisc, StateVariable, Tc, TcSite};
use forebay_theory::search::{time, Conditions, Search, Settings};
use forebay_units::{params, words, Bytes, ParamError, Rng, SetPoint, Site, Span, Time, Value};

use crate::configured_law::ConfiguredLaw;
use crate::law::{FluidLaw, Law, PacketMeta, QueueView, Signal, Target, Verdict};
use crate::law_spec::LawSpec;

/// The registry entry of CoDel.
pub const LAW: LawSpec = LawSpec::of::<CodelParams>(
    "codel",
    "CoDel: signals at departures, ever more often while packets wait longer than the target",
    "RFC 8289; count, clock and square root as in Linux (codel_impl.h)",
)
.with_equation(
    "signal at t, then at t + interval/√count, while every packet has waited longer than target for interval",
)
.with_search(CodelParams::search);

/// The registry entry of FQ-CoDel: CoDel in the discipline `fq`.
pub const FQ: LawSpec = LAW
    .in_queue(
        "fq",
        "fq-codel",
        "FQ-CoDel: CoDel on a queue for each flow",
        "RFC 8290",
    )
    .with_several_loops(CodelParams::search);

words! {
    /// The arithmetic of CoDel's time and square root.
    pub enum Arithmetic {
        /// Ticks of 1024 ns, and 1/√count by one step of Newton's method in 16 bits, as in Linux.
        Fixed = "fixed",
        /// Nanoseconds, and a square root with 53 bits.
        Exact = "exact",
    }
}

params! {
    /// CoDel's parameters.
    pub struct CodelParams {
        /// Acceptable standing queuing delay, or a queue length, which is converted to a delay at
        /// the link's rate; 5 to 10 % of the interval (RFC 8289 section 4.4).
        target: SetPoint = SetPoint::Delay(Span::from_millis(5)), 0.0 => 1e9;
        /// Time for which the delay may stay above the target before the first signal: about the
        /// longest usual round-trip time (RFC 8289 section 4.3).
        interval: Span = Span::from_millis(100), 1e-6 => 60.0;
        /// A packet is not signalled if at most this backlog is behind it. 0B: one of the link's
        /// usual packets.
        least_backlog: Bytes = Bytes(0), 0.0 => 1e9;
        /// Delay above which every ECN-capable packet is marked in addition, as Linux can. 0s:
        /// none.
        ce_threshold: Span = Span::ZERO, 0.0 => 60.0;
        /// "fixed" counts time in ticks of 1024 ns and computes 1/√count by Newton's method in 16
        /// bits, as Linux does; "exact" is RFC 8289's pseudocode in nanoseconds.
        arithmetic: Arithmetic = Arithmetic::Fixed;
    }
}

/// Returns settings to simulate, for laws that have an interval and a target: the interval is a
/// round-trip time (RFC 8289 section 4.3), and the target 5 or 10 % of it (section 4.4).
pub fn settings(conditions: &Conditions) -> Vec<Settings> {
    let (shortest_s, longest_s) = conditions.rtts_s();
    let (_, fastest) = conditions.capacities_pkts_per_s();
    let longest_target_s = 0.5 * conditions.buffer_pkts / fastest;
    let setting = |(interval_s, share): (f64, f64)| {
        let target_s = (share * interval_s).min(longest_target_s);
        vec![
            ("target", time(target_s, 4)),
            ("interval", time(interval_s, 4)),
        ]
    };
    let intervals_s = [shortest_s, conditions.middle.rtt_s, longest_s];
    let both = intervals_s.into_iter().flat_map(|s| [(s, 0.05), (s, 0.1)]);
    both.map(setting).collect()
}

impl CodelParams {
    /// CoDel is tuned by simulation, because it has no linear model: it controls the time between
    /// signals, not their probability, by the time for which the delay has been above the target.
    fn search(conditions: &Conditions) -> Search {
        Search::Listed(settings(conditions))
    }
}

impl ConfiguredLaw for CodelParams {
    fn build(&self, site: &Site, _seed: u64) -> Result<Box<dyn Law>, ParamError> {
        let clock = Clock(match self.arithmetic {
            Arithmetic::Fixed => 10, // CODEL_SHIFT
            Arithmetic::Exact => 0,
        });
        let ce_threshold = clock.span(self.ce_threshold);
        Ok(Box::new(Codel {
            arithmetic: self.arithmetic,
            clock,
            target: Target::new(self.target, site),
            interval: clock.span(self.interval).max(1),
            least_backlog: match self.least_backlog {
                Bytes(0) => site.packet.0,
                Bytes(bytes) => bytes,
            },
            ce_threshold: (self.ce_threshold > Span::ZERO).then_some(ce_threshold),
            count: 0,
            last_count: 0,
            inverse_root: 0,
            signalling: false,
            first_above: None,
            next: 0,
            delay: 0,
            last_drop: None,
        }))
    }

    fn set_point(&self) -> Option<SetPoint> {
        Some(self.target)
    }

    /// Raises the target on a slow link, and the interval to the RTT on a long one. With a target
    /// below the transmission time of a packet, CoDel would signal whenever a packet waits (RFC
    /// 8290 section 5.2.1); the interval should be about the longest RTT (RFC 8289 section 4.3).
    /// The target is at least 3/2 of a transmission time and the interval at least two targets, as
    /// in `cake_set_rate` of Linux.
    fn fitted(&self, rtt: Span, site: &Site) -> Vec<(&'static str, Value)> {
        let packet_s = 1.0 / site.rate.packets_per_sec(site.packet);
        let target_s = site.pkts(self.target) * packet_s;
        let needed_s = target_s.max(1.5 * packet_s);
        let interval_s = self.interval.as_secs_f64();
        let long_s = interval_s
            .max(rtt.as_secs_f64() + needed_s)
            .max(2.0 * needed_s);
        let mut changes = Vec::new();
        if needed_s > target_s {
            changes.push(("target", time(needed_s, 3)));
        }
        if rtt > self.interval || needed_s > target_s && long_s > interval_s {
            changes.push(("interval", time(long_s, 3)));
        }
        changes
    }

    fn linux(&self) -> Option<&dyn LinuxQdisc> {
        Some(self)
    }
}

/// `struct tc_codel_xstats`.
const XSTATS: &[StateVariable] = &[
    StateVariable {
        name: "count",
        offset: 4,
        size: 4,
        unit: 1.0,
    },
    StateVariable {
        name: "signalling",
        offset: 28,
        size: 4,
        unit: 1.0,
    },
    StateVariable {
        name: "delay",
        offset: 12,
        size: 4,
        unit: 1e-6,
    },
];

impl LinuxQdisc for CodelParams {
    /// tc-codel(8) and tc-fq_codel(8).
    fn tc(&self, queue: &str, site: &TcSite) -> Result<Option<Tc>, ParamError> {
        let mut tc = match queue {
            "fifo" => Tc::new("codel").reporting(XSTATS),
            "fq" => Tc::new("fq_codel"),
            _ => return Ok(None),
        };
        tc.defaults(self, &["arithmetic"])?;
        tc.backlog("least_backlog", self.least_backlog, 1, site)?;
        tc.limit(site);
        tc.delay("target", "target", self.target, site);
        tc.time("interval", "interval", self.interval);
        if self.ce_threshold > Span::ZERO {
            tc.time("ce_threshold", "ce_threshold", self.ce_threshold);
        }
        tc.ecn(site);
        Ok(Some(tc))
    }
}

/// CoDel's clock, whose ticks are nanoseconds shifted right by this many bits.
#[derive(Clone, Copy)]
struct Clock(u32);

impl Clock {
    fn time(self, time: Time) -> u64 {
        time.as_nanos() >> self.0
    }

    fn span(self, span: Span) -> u64 {
        span.as_nanos() >> self.0
    }
}

/// A drop whose departure goes on: the next packet offered at the same time belongs to it.
#[derive(Clone, Copy)]
struct LastDrop {
    at: Time,
    /// True for the drop that starts signalling: the packet after it is sent.
    first: bool,
    /// The number of drops in this departure.
    drops: u32,
}

/// CoDel at a queue (`struct codel_vars`).
struct Codel {
    arithmetic: Arithmetic,
    clock: Clock,
    target: Target,
    // Times from here on are in ticks of `clock`.
    interval: u64,
    least_backlog: u64,
    ce_threshold: Option<u64>,
    /// The number of signals since signalling began, including those carried over from the last
    /// signalling state.
    count: u32,
    /// `count` when signalling began.
    last_count: u32,
    /// 1/√count in units of 2^−16 (`rec_inv_sqrt`).
    inverse_root: u16,
    /// True while in the signalling state (`dropping`).
    signalling: bool,
    /// The time at which the delay will have been above the target for an interval
    /// (`first_above_time`).
    first_above: Option<u64>,
    /// The time at which the next signal is due, or at which the last one was (`drop_next`).
    next: u64,
    /// The sojourn time of the last packet (`ldelay`).
    delay: u64,
    last_drop: Option<LastDrop>,
}

/// The largest number of drops in one departure, after which Linux schedules the next signal from
/// now (`codel_dequeue`).
const MAX_DROPS: u32 = 256;

impl Codel {
    /// Returns true if the delay has been above the target for an interval (`dodequeue` in RFC 8289
    /// section 5.6, `codel_should_drop` in Linux).
    #[inline]
    fn stays_above(&mut self, now: Time, q: &QueueView, p: &PacketMeta) -> bool {
        let arrived = Time::from_nanos(now.as_nanos().saturating_sub(p.sojourn.as_nanos()));
        let t = self.clock.time(now);
        self.delay = t - self.clock.time(arrived);
        let target = self.clock.span(self.target.delay(q));
        if self.delay < target || q.link_bytes() <= self.least_backlog {
            self.first_above = None;
            return false;
        }
        match (self.first_above, self.arithmetic) {
            (None, _) => {
                self.first_above = Some(t + self.interval);
                false
            }
            (Some(due), Arithmetic::Fixed) => t > due,
            (Some(due), Arithmetic::Exact) => t >= due,
        }
    }

    /// Returns `t` + interval/√count (RFC 8289 section 5.6, `control_law`).
    fn control_law(&self, t: u64) -> u64 {
        let step = match self.arithmetic {
            // reciprocal_scale(interval, rec_inv_sqrt << 16)
            Arithmetic::Fixed => (self.interval * u64::from(self.inverse_root)) >> 16,
            Arithmetic::Exact => {
                forebay_units::cast::whole_u64(self.interval as f64 / f64::from(self.count).sqrt())
            }
        };
        t + step.max(1)
    }

    /// Takes one step of Newton's method towards 1/√count, x·(3 − count·x²)/2, with x in units of
    /// 2^−32 (`codel_Newton_step`).
    fn newton_step(&mut self) {
        let x = u64::from(self.inverse_root) << 16;
        let square = (x * x) >> 32;
        let rest = (3u64 << 32).wrapping_sub(u64::from(self.count) * square);
        // Two bits are shifted out first, so that the product fits into 64 bits.
        let next = (rest >> 2).wrapping_mul(x) >> 31;
        self.inverse_root = (next >> 16) as u16;
    }

    /// Enters the signalling state. The count continues from the last signalling state if that
    /// ended recently (RFC 8289 section 5.5, which adopts this from Linux).
    fn begin(&mut self, t: u64) {
        self.signalling = true;
        let since_last = self.count.wrapping_sub(self.last_count);
        if since_last > 1 && t < self.next + 16 * self.interval {
            self.count = since_last;
            self.newton_step();
        } else {
            self.count = 1;
            self.inverse_root = u16::MAX;
        }
        self.last_count = self.count;
        self.next = self.control_law(t);
    }

    /// Signals once more. After a drop, the next packet of the same departure is decided on; a mark
    /// ends the departure.
    fn signal_again(&mut self, now: Time, p: &PacketMeta, drops: u32) -> Verdict {
        let drops = drops + 1;
        if self.arithmetic == Arithmetic::Fixed && drops > MAX_DROPS {
            self.next = self.control_law(self.clock.time(now));
            return Verdict::Pass;
        }
        self.count = self.count.wrapping_add(1);
        self.newton_step();
        match p.signal {
            Signal::Mark => self.next = self.control_law(self.next),
            Signal::Drop => {
                self.last_drop = Some(LastDrop {
                    at: now,
                    first: false,
                    drops,
                });
            }
        }
        Verdict::Signal
    }

    /// Decides on one packet: one iteration of the loop in `deque` (RFC 8289 section 5.5).
    #[inline]
    fn judge(&mut self, now: Time, q: &QueueView, p: &PacketMeta) -> Verdict {
        let stays_above = self.stays_above(now, q, p);
        let t = self.clock.time(now);
        let mut drops = 0;
        match self.last_drop.take().filter(|last| last.at == now) {
            Some(last) if last.first => return Verdict::Pass,
            Some(last) if stays_above => {
                self.next = self.control_law(self.next);
                drops = last.drops;
            }
            _ => {}
        }
        if self.signalling {
            self.signalling = stays_above;
            if stays_above && t >= self.next {
                return self.signal_again(now, p, drops);
            }
            return Verdict::Pass;
        }
        if !stays_above {
            return Verdict::Pass;
        }
        self.begin(t);
        if p.signal == Signal::Drop {
            self.last_drop = Some(LastDrop {
                at: now,
                first: true,
                drops: 1,
            });
        }
        Verdict::Signal
    }
}

impl Law for Codel {
    fn watches_arrivals(&self) -> bool {
        false
    }

    #[inline]
    fn on_dequeue(&mut self, now: Time, q: &QueueView, p: &PacketMeta, _: &mut Rng) -> Verdict {
        let verdict = self.judge(now, q, p);
        let late = self.ce_threshold.is_some_and(|limit| self.delay > limit);
        if late && verdict == Verdict::Pass && p.signal == Signal::Mark {
            return Verdict::Signal;
        }
        verdict
    }

    /// Counts packets that were dropped to free buffer space, which raises the rate of signals
    /// (`fq_codel_drop`).
    fn on_trim(&mut self, _: Time, _: &QueueView, packets: u32) {
        self.count = self.count.wrapping_add(packets);
    }

    fn on_idle(&mut self, _now: Time, _q: &QueueView) {
        self.first_above = None;
        self.signalling = false;
        self.last_drop = None;
    }

    fn set_point(&mut self, set_point: SetPoint) -> bool {
        self.target.set_point = set_point;
        true
    }

    fn probe(&self, out: &mut dyn FnMut(&'static str, f64)) {
        out("count", f64::from(self.count));
        out("signalling", f64::from(u8::from(self.signalling)));
        out(
            "delay",
            Span::from_nanos(self.delay << self.clock.0).as_secs_f64(),
        );
    }
}

impl FluidLaw for Codel {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::laws::recorded::{judge_departures, Fate, JudgedPacket, Vector};
    use crate::laws::testing::{packet, probed, site, view};
    use forebay_units::cast::whole_u64;
    use forebay_units::Params;

    /// Asserts that the law decides on every packet of a vector as Linux's codel did, with the
    /// state variables that codel reported. Returns the numbers of marks and drops.
    fn replay(text: &'static str, ce_threshold: Span) -> (usize, usize) {
        let vector = Vector::read(text);
        let params = CodelParams {
            ce_threshold,
            ..CodelParams::defaults()
        };
        let mut law = params.build(&vector.site(), 0).unwrap();
        let mut at = vector.packets[0].arrived;
        let samples = vector.state.iter().map(|state| {
            at += Span::from_nanos(state[0]);
            (at, &state[1..])
        });
        let mut samples = samples.peekable();
        judge_departures(&vector, &mut *law, |now, law| {
            while let Some((at, state)) = samples.next_if(|(at, _)| *at < now) {
                let delay_ns = 1e9 * probed(law, "delay");
                let actual = [
                    whole_u64(probed(law, "count")),
                    whole_u64(probed(law, "signalling")),
                    whole_u64(delay_ns.round()) / 1000,
                ];
                assert_eq!(actual[..], *state, "at {} ns", at.as_nanos());
            }
        });
        (vector.count(Fate::Marked), vector.count(Fate::Dropped))
    }

    #[test]
    fn packets_have_the_fates_that_linux_gave_them() {
        let text = include_str!("../../tests/vectors/codel.csv");
        let (marked, dropped) = replay(text, Span::ZERO);
        assert!(marked > 50 && dropped > 50, "{marked} {dropped}");
    }

    #[test]
    fn a_threshold_marks_the_packets_that_linux_marked() {
        let text = include_str!("../../tests/vectors/codel-ce-threshold.csv");
        let (marked, dropped) = replay(text, Span::from_millis(8));
        assert!(marked > 500 && dropped > 10, "{marked} {dropped}");
    }

    #[test]
    fn the_fates_are_those_of_linux_while_its_clock_wraps_around() {
        let text = include_str!("../../tests/vectors/codel-wrap.csv");
        let packets = Vector::read(text).packets;
        // The kernel's time has 32 bits in units of 1024 ns.
        let wraps = |packet: &JudgedPacket| packet.arrived.as_nanos() >> 42;
        assert_eq!((wraps(&packets[0]), wraps(packets.last().unwrap())), (0, 1));
        let (marked, dropped) = replay(text, Span::ZERO);
        assert!(marked > 10 && dropped > 10, "{marked} {dropped}");
    }

    /// Returns the times of the signals, in ms, when every 1 ms a packet that waited `delay_ms`
    /// leaves a long queue.
    fn signal_times(params: &CodelParams, delay_ms: u64, until_ms: u64) -> Vec<u64> {
        let mut law = params.build(&site(), 0).unwrap();
        let p = PacketMeta {
            sojourn: Span::from_millis(delay_ms),
            signal: Signal::Mark,
            ..packet(1000)
        };
        (1000..until_ms)
            .filter(|ms| {
                let now = Time::ZERO + Span::from_millis(*ms);
                law.on_dequeue(now, &view(100), &p, &mut Rng::new(0, "")) == Verdict::Signal
            })
            .collect()
    }

    #[test]
    fn signals_follow_the_square_root() {
        let exact = CodelParams {
            arithmetic: Arithmetic::Exact,
            ..CodelParams::defaults()
        };
        // The first signal after an interval, the next 100/√1, 100/√2, 100/√3, … ms later.
        let mut expected = vec![1100];
        let mut due = 1100.0;
        for count in 1..20 {
            due += 100.0 / f64::from(count).sqrt();
            expected.push(due.ceil() as u64);
        }
        let actual = signal_times(&exact, 6, 3000);
        assert_eq!(actual[..20], expected[..]);
        // One step of Newton's method from 1 gives 1/2 for 1/√2, so that signal is 20 ms early; the
        // offset remains.
        let fixed = signal_times(&CodelParams::defaults(), 6, 3000);
        let early: Vec<u64> = actual
            .iter()
            .zip(&fixed)
            .skip(2)
            .map(|(e, f)| e - f)
            .collect();
        assert!(early.iter().all(|ms| (15..30).contains(ms)), "{early:?}");
    }

    #[test]
    fn a_short_queue_or_a_short_delay_is_not_signalled() {
        let params = CodelParams::defaults();
        assert!(signal_times(&params, 4, 3000).is_empty());
        let mut law = params.build(&site(), 0).unwrap();
        let p = PacketMeta {
            sojourn: Span::from_millis(50),
            ..packet(1000)
        };
        for ms in 0..2000 {
            let now = Time::ZERO + Span::from_millis(ms);
            let verdict = law.on_dequeue(now, &view(1), &p, &mut Rng::new(0, ""));
            assert_eq!(verdict, Verdict::Pass);
        }
    }

    #[test]
    fn a_target_in_packets_is_converted_at_the_links_rate() {
        // 20 packets of 1000 bytes at 30 Mbit/s wait 5.33 ms.
        let params = CodelParams {
            target: SetPoint::Packets(20.0),
            ..CodelParams::defaults()
        };
        assert!(signal_times(&params, 5, 3000).is_empty());
        assert_eq!(signal_times(&params, 6, 3000)[0], 1101);
    }
}
