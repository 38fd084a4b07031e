//! PI2 of De Schepper, Bondarenko, Tsang and Briscoe: a PI controller of the queuing delay whose
//! output is squared for classic traffic and used linearly for scalable traffic.

use forebay_linux_tc::{LinuxQdisc, StateVariable, Tc, TcSite};
use forebay_theory::design::{Design, DesignRequest, DesignResult, LinearLaw};
use forebay_theory::linear::{LoopFilter, OperatingPoint};
use forebay_theory::search::{pi_on_delay, Conditions, Search};
use forebay_units::{
    params, Bytes, ParamError, ParamValues, Params, Rng, SetPoint, Site, Span, Time,
};

use crate::clock::{state_of, Errors, State};
use crate::configured_law::ConfiguredLaw;
use crate::difference::{Coefficients, Difference};
use crate::law::{Ecn, FluidLaw, FluidStep, Law, PacketMeta, QueueView, Signal, Target, Verdict};
use crate::law_spec::LawSpec;
use crate::laws::pie::PieGoals;
use crate::periodic::{Controller, Periodic, Sample};

/// The registry entry of PI2.
pub const LAW: LawSpec = LawSpec::of::<Pi2Params>(
    "pi2",
    "PI2: the square of a PI controller of the queuing delay, and its root for scalable flows",
    "De Schepper et al., CoNEXT 2016; RFC 9332 appendix A; defaults of Linux (sch_dualpi2.c)",
)
.with_equation("p = p'²;  p' += alpha·(d_k − target) + beta·(d_k − d_{k−1});  d = queuing delay")
.with_goals(PieGoals::SPECS)
.slowed_by("crossover")
.with_search(Pi2Params::search);

/// The registry entry of DualPI2: PI2 in the discipline `dualpi2`.
pub const DUAL: LawSpec = LAW.in_queue(
    "dualpi2",
    "dualpi2",
    "DualPI2: PI2 on the classic queue, coupled with a queue for L4S",
    "RFC 9332",
);

params! {
    /// PI2's parameters.
    pub struct Pi2Params {
        /// Queuing delay to control, or a queue length, which is converted to a delay at the link's
        /// rate.
        target: SetPoint = SetPoint::Delay(Span::from_millis(15)), 0.0 => 1e9;
        /// Time between two changes of p' (Tupdate).
        interval: Span = Span::from_millis(16), 1e-4 => 60.0;
        /// Gain on the distance from the target, per second, for each change.
        alpha: f64 = 0.16, 0.0 => 1000.0;
        /// Gain on the change of the delay, per second.
        beta: f64 = 3.2, 0.0 => 1000.0;
        /// Coupling factor k: scalable packets, ECT(1) or CE, are marked with probability k·p', and
        /// classic ones are signalled with p'² (RFC 9332 section 2.1).
        coupling: f64 = 2.0, 0.0 => 100.0;
        /// Backlog below which nothing is signalled. 0B: two of the link's usual packets.
        least_backlog: Bytes = Bytes(0), 0.0 => 1e9;
    }
}

impl Pi2Params {
    fn search(conditions: &Conditions) -> Search {
        // The gains lie around those of RFC 9332 appendix A.1, 0.3/R.
        pi_on_delay(conditions, Pi2Params::defaults().interval, 0.03, 3.0)
    }
}

impl ConfiguredLaw for Pi2Params {
    fn build(&self, site: &Site, _seed: u64) -> Result<Box<dyn Law>, ParamError> {
        Ok(Box::new(Pi2(Periodic::new(Root::new(self, site)))))
    }

    fn set_point(&self) -> Option<SetPoint> {
        Some(self.target)
    }

    fn theory(&self) -> Option<&dyn LinearLaw> {
        Some(self)
    }

    fn linux(&self) -> Option<&dyn LinuxQdisc> {
        Some(self)
    }
}

impl LinearLaw for Pi2Params {
    /// The linear model for classic traffic: the square has the slope 2p' at p', whatever the load.
    fn linear(&self, point: &OperatingPoint, site: &Site) -> Option<LoopFilter> {
        let capacity = site.rate.packets_per_sec(site.packet);
        let root = point.probability().sqrt();
        let interval_s = self.interval.as_secs_f64();
        // The controller's output is p', so its equilibrium value is the root of TCP's probability.
        let filter = (self.gains()).sampled(interval_s, 1.0 / capacity);
        let equilibrium = LoopFilter::controlled(site.pkts(self.target), filter, root)?;
        let filter = (self.gains()).sampled(interval_s, 2.0 * root / capacity);
        // The delay of the head packet is that of the queue when the packet arrived.
        let age_s = equilibrium.queue_pkts.max(0.0) / capacity;
        Some(LoopFilter {
            age_s,
            ..LoopFilter::sampled(equilibrium.queue_pkts, filter)
        })
    }

    fn design(&self, request: &DesignRequest, goals: &ParamValues) -> DesignResult {
        let goals = PieGoals::read(goals)?;
        let point = &request.point;
        let (alpha, beta) = goals.gains(point, self.interval);
        let slope = 2.0 * request.probability.sqrt();
        let designed = Pi2Params {
            target: request.set_point,
            alpha: (alpha / slope).min(1e3),
            beta: (beta / slope).min(1e3),
            ..self.clone()
        };
        Ok(Some(Design::of(
            vec![("alpha", designed.alpha), ("beta", designed.beta)],
            &designed,
            &["target", "alpha", "beta", "interval"],
            vec![
                goals.note(point),
                format!(
                    "Because of the square, beta depends only on the RTT. RFC 9332 (appendix A.1) \
                     recommends alpha = 0.1·T/R² = {:.4} and beta = 0.3/R = {:.4} for R = {:.4} s.",
                    0.1 * self.interval.as_secs_f64() / point.rtt_s.powi(2),
                    0.3 / point.rtt_s,
                    point.rtt_s
                ),
            ],
        )))
    }

    fn coupling(&self) -> Option<f64> {
        Some(self.coupling)
    }
}

/// `struct tc_dualpi2_xstats`.
const XSTATS: &[StateVariable] = &[StateVariable {
    name: "p_root",
    offset: 0,
    size: 4,
    unit: 1.0 / u32::MAX as f64,
}];

impl LinuxQdisc for Pi2Params {
    /// tc-dualpi2(8).
    fn tc(&self, queue: &str, site: &TcSite) -> Result<Option<Tc>, ParamError> {
        if queue != "dualpi2" {
            return Ok(None);
        }
        let mut tc = Tc::new("dualpi2").reporting(XSTATS);
        tc.always_marks(site)?;
        tc.backlog("least_backlog", self.least_backlog, 2, site)?;
        tc.limit(site);
        tc.delay("target", "target", self.target, site);
        tc.time("tupdate", "interval", self.interval);
        for (key, gain) in [("alpha", self.alpha), ("beta", self.beta)] {
            let (argument, applied) = linux_gain(gain);
            if applied <= 0.0 && gain > 0.0 || argument > 256.0 {
                let expected = "a value from 0.004 to 256 in Linux's dualpi2";
                return Err(ParamError::new(key, gain, expected));
            }
            if (applied - gain).abs() > 1e-6 * gain {
                tc.round(key, gain, applied);
            }
            tc.pair(key, format!("{argument:.6}"));
        }
        Ok(Some(tc))
    }
}

/// Returns the argument of tc for a gain, and the gain that the kernel then applies. tc converts
/// the argument to multiples of 1/256, and `dualpi2_scale_alpha_beta` (sch_dualpi2.c) converts
/// these to multiples of 10⁹/(64·2³²).
fn linux_gain(gain: f64) -> (f64, f64) {
    let unit = 1e9 / 64.0 / 2.0f64.powi(32);
    let applied = |parts: f64| (parts * f64::from(u32::MAX) / 4e9).floor() * unit;
    let error = |parts: &f64| (applied(*parts) - gain).abs();
    let nearest = (256.0 * gain).round();
    let parts = [nearest, nearest - 1.0, nearest + 1.0]
        .into_iter()
        .filter(|parts| *parts >= 0.0)
        .min_by(|a, b| error(a).total_cmp(&error(b)))
        .unwrap_or(0.0);
    // Slightly above the multiple, because tc rounds down.
    let argument = if parts > 0.0 {
        (parts + 0.25) / 256.0
    } else {
        0.0
    };
    (argument, applied(parts))
}

impl Pi2Params {
    /// Returns the coefficients of Δp' = (α + β)·e_k − β·e_{k−1}, where e is the delay minus the
    /// target, in seconds.
    fn gains(&self) -> Coefficients {
        Coefficients {
            a: self.alpha + self.beta,
            b: self.beta,
            c: 0.0,
        }
    }
}

/// The PI controller of the delay whose output is p' (RFC 9332 appendix A.1, `dualpi2_update`).
struct Root {
    gains: Coefficients,
    interval: Span,
    target: Target,
    coupling: f64,
    least_backlog: u64,
    state: Difference,
}

impl Root {
    fn new(params: &Pi2Params, site: &Site) -> Root {
        Root {
            gains: params.gains(),
            interval: params.interval,
            target: Target::new(params.target, site),
            coupling: params.coupling,
            least_backlog: match params.least_backlog {
                Bytes(0) => 2 * site.packet.0,
                Bytes(bytes) => bytes,
            },
            state: Difference::default(),
        }
    }
}

impl Controller for Root {
    fn interval(&self) -> Span {
        self.interval
    }

    fn sample(&mut self, s: &Sample) -> f64 {
        let delay_s = s.q.link_age(s.now).as_secs_f64();
        let error = delay_s - self.target.delay(s.q).as_secs_f64();
        self.state.step(self.gains, error)
    }

    fn state(&self) -> Option<State> {
        Some(state_of(&self.state.state()))
    }

    /// If a packet waits, the delay grows by an interval at each sample.
    fn skip(&mut self, first: &Sample, samples: u64) {
        let delay = first.q.link_age(first.now);
        let slope = match delay {
            Span::ZERO => 0.0,
            _ => self.interval.as_secs_f64(),
        };
        let errors = Errors {
            slope,
            ..Errors::constant(delay.as_secs_f64() - self.target.delay(first.q).as_secs_f64())
        };
        self.state.advance(self.gains, &errors, samples);
    }

    fn spares(&self, q: &QueueView) -> bool {
        q.link_bytes() < self.least_backlog
    }

    /// Decides on an arrival. Two random draws below p' have the probability p'².
    #[inline]
    fn judge(&mut self, q: &QueueView, p: &PacketMeta, root: f64, rng: &mut Rng) -> Verdict {
        if self.spares(q) {
            return Verdict::Pass;
        }
        let scalable = root * self.coupling;
        let square = |rng: &mut Rng| rng.chance(root) && rng.chance(root);
        let signals = match (p.signal, p.ecn) {
            // In overload, k·p' > 1, packets of every kind are dropped (RFC 9332 section 4.2.3 and
            // appendix A.2).
            (Signal::Mark, ecn) if scalable > 1.0 => {
                let is_scalable = matches!(ecn, Ecn::Ect1 | Ecn::Ce);
                return match square(rng) {
                    true => Verdict::Drop,
                    false if is_scalable => Verdict::Signal,
                    false => Verdict::Pass,
                };
            }
            (Signal::Mark, Ecn::Ect1 | Ecn::Ce) => rng.chance(scalable),
            _ => square(rng),
        };
        match signals {
            true => Verdict::Signal,
            false => Verdict::Pass,
        }
    }

    fn set_point(&mut self, set_point: SetPoint) -> bool {
        self.target.set_point = set_point;
        true
    }
}

/// PI2 at a queue.
struct Pi2(Periodic<Root>);

impl Law for Pi2 {
    fn watches_departures(&self) -> bool {
        false
    }

    #[inline]
    fn on_enqueue(&mut self, now: Time, q: &QueueView, p: &PacketMeta, rng: &mut Rng) -> Verdict {
        self.0.on_enqueue(now, q, p, rng)
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.0.poll_timeout()
    }

    fn handle_timeout(&mut self, now: Time, q: &QueueView) {
        self.0.handle_timeout(now, q);
    }

    fn set_point(&mut self, set_point: SetPoint) -> bool {
        self.0.set_point(set_point)
    }

    fn probe(&self, out: &mut dyn FnMut(&'static str, f64)) {
        let root = self.0.probability();
        out("p", root * root);
        out("p_root", root);
    }
}

impl FluidLaw for Pi2 {
    fn take_fluid(&mut self, step: &FluidStep) -> bool {
        self.0.take_fluid(step)
    }

    fn marks_l4s(&self, classic: f64) -> f64 {
        (self.0.controller.coupling * classic.sqrt()).min(1.0)
    }

    /// Returns the expected signals per packet of classic traffic.
    fn intensity(&self, q: &QueueView) -> Option<f64> {
        self.0.intensity(q).map(|root| root * root)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::laws::recorded::{
        compare_counts, Backlog, Fate, QueueEvent, SignalCounts, Vector, PARTS,
    };
    use crate::laws::testing::{packet, probed, site, view};
    use forebay_units::Params;

    /// Returns a queue whose head packet arrived `delay_us` ago.
    fn waiting(now: Time, delay_us: u64) -> QueueView {
        let since = now.as_nanos().saturating_sub(1000 * delay_us);
        QueueView {
            head_since: Some(Time::from_nanos(since)),
            ..view(100)
        }
    }

    /// A law that follows a vector, and the outcome.
    struct Replay {
        signals: SignalCounts,
        /// The largest distance of p' from the kernel's after an update.
        error: f64,
    }

    /// Lets the law decide on the packets of a vector, with the first update at this time. The
    /// queue is the kernel's, and so are the packets that were dropped, so that p' follows from the
    /// law alone. Linux decides at departures, and the law is asked then.
    fn replay(vector: &Vector, params: &Pi2Params, first_ns: u64, seed: u64) -> Replay {
        // The law changes p' an interval after its start.
        let start_ns = first_ns - params.interval.as_nanos();
        let since_start = |at: Time| Time::from_nanos(at.as_nanos() - start_ns);
        let view = |backlog: &Backlog| {
            let q = backlog.view();
            QueueView {
                head_since: q.head_since.map(since_start),
                ..q
            }
        };
        let mut law = Pi2(Periodic::new(Root::new(params, &vector.site())));
        let times = Vector::times(first_ns, params.interval.as_nanos());
        let mut updates = times.zip(&vector.state).peekable();
        let mut rng = Rng::new(seed, "pi2");
        let mut backlog = Backlog::new(vector);
        let (mut signals, mut error) = (SignalCounts::default(), 0.0f64);
        for (now, event) in vector.events() {
            while let Some((at, state)) = updates.next_if(|(at, _)| *at < now) {
                assert_eq!(law.poll_timeout(), Some(since_start(at)));
                law.handle_timeout(since_start(at), &view(&backlog));
                let linux = state[0] as f64 / f64::from(u32::MAX);
                error = error.max((probed(&law, "p_root") - linux).abs());
            }
            let number = match event {
                QueueEvent::Arrival(number) => {
                    backlog.push(number);
                    continue;
                }
                QueueEvent::Departure(number) => number,
            };
            // Packets that are dropped at a departure were in front of the one that leaves.
            while let Some(head) = backlog.pop() {
                let packet = &vector.packets[head];
                let p = packet.meta(now);
                let verdict = law.on_enqueue(now, &view(&backlog), &p, &mut rng);
                let was_signalled = packet.fate != Fate::Passed;
                let part = &mut signals[PARTS * head / vector.packets.len()];
                part.law += u32::from(verdict != Verdict::Pass);
                part.kernel += u32::from(was_signalled);
                if was_signalled {
                    let spares = law.0.controller.spares(&view(&backlog));
                    assert!(!spares, "packet {head} at {} ns", now.as_nanos());
                    let overload = params.coupling * law.0.probability() > 1.0;
                    let drops = match p.ecn {
                        Ecn::NotEct => true,
                        Ecn::Ect0 => overload,
                        // In overload, scalable packets are marked or dropped.
                        Ecn::Ect1 | Ecn::Ce => overload && packet.fate == Fate::Dropped,
                    };
                    assert_eq!(packet.fate == Fate::Dropped, drops, "packet {head}");
                }
                if head == number {
                    break;
                }
            }
        }
        Replay { signals, error }
    }

    /// Asserts that p' follows that of Linux's dualpi2, and that the kernel signals as often as the
    /// law. Returns the number of the kernel's signals.
    fn assert_like_linux(text: &'static str) -> u32 {
        let vector = Vector::read(text);
        let params = Pi2Params {
            // The kernel's multiples for these gains.
            alpha: linux_gain(0.16).1,
            beta: linux_gain(3.2).1,
            interval: Span::from_nanos(vector.number("update_period_ns")),
            ..Pi2Params::defaults()
        };
        let highest = vector.state.iter().map(|state| state[0]).max();
        assert!(highest > Some(u64::from(u32::MAX) / 10), "{highest:?}");
        // The recorder knows the times of the updates to about a microsecond, and the guest's clock
        // has steps of 256 ns. One of these times must give p' after every update.
        let step_ns = 256;
        let near_ns = vector.number("first_update_ns") / step_ns * step_ns;
        let phase_ns = vector.number("first_arrival_ns") % step_ns;
        let error = |first_ns: u64| replay(&vector, &params, first_ns, 0).error;
        let (first_ns, error) = (0..=10)
            .map(|k| near_ns + phase_ns + step_ns * k - 5 * step_ns)
            .map(|first_ns| (first_ns, error(first_ns)))
            .min_by(|(_, a), (_, b)| a.total_cmp(b))
            .expect("eleven times");
        // The kernel rounds each change to 2^-32.
        assert!(error < 1e-6, "{error}");
        compare_counts(|seed| replay(&vector, &params, first_ns, seed).signals)
    }

    #[test]
    fn the_root_and_the_signals_are_those_of_linux() {
        let signals = assert_like_linux(include_str!("../../tests/vectors/dualpi2.csv"));
        assert!(signals > 100, "{signals}");
    }

    #[test]
    fn scalable_packets_are_marked_as_often_as_in_linux() {
        let signals = assert_like_linux(include_str!("../../tests/vectors/dualpi2-l4s.csv"));
        assert!(signals > 100, "{signals}");
    }

    /// Returns a controller whose p' is `root`.
    fn with_root(params: &Pi2Params, root: f64) -> Root {
        let mut controller = Root::new(params, &site());
        controller.state = Difference::starting_at(root);
        controller
    }

    /// Returns the fractions of packets that are signalled and dropped.
    fn shares(root: f64, ecn: Ecn, signal: Signal) -> (f64, f64) {
        let mut controller = with_root(&Pi2Params::defaults(), root);
        let mut rng = Rng::new(1, "pi2");
        let p = PacketMeta {
            ecn,
            signal,
            ..packet(1000)
        };
        let (mut marks, mut drops) = (0.0, 0.0);
        for _ in 0..200_000 {
            match controller.judge(&view(100), &p, root, &mut rng) {
                Verdict::Signal => marks += 1.0 / 200_000.0,
                Verdict::Drop => drops += 1.0 / 200_000.0,
                Verdict::Pass => {}
            }
        }
        (marks, drops)
    }

    #[test]
    fn classic_packets_are_signalled_with_the_square_and_scalable_ones_with_k_times_the_root() {
        let near = |actual: (f64, f64), expected: (f64, f64)| {
            let off = |(actual, expected): (f64, f64)| (actual - expected).abs() > 0.004;
            assert!(
                !off((actual.0, expected.0)) && !off((actual.1, expected.1)),
                "{actual:?}"
            );
        };
        near(shares(0.3, Ecn::NotEct, Signal::Drop), (0.09, 0.0));
        near(shares(0.3, Ecn::Ect0, Signal::Mark), (0.09, 0.0));
        near(shares(0.3, Ecn::Ect1, Signal::Mark), (0.6, 0.0));
        // A queue that does not mark treats all packets alike.
        near(shares(0.3, Ecn::Ect1, Signal::Drop), (0.09, 0.0));
        // In overload every scalable packet is marked or dropped.
        near(shares(0.6, Ecn::Ect1, Signal::Mark), (0.64, 0.36));
        near(shares(0.6, Ecn::Ect0, Signal::Mark), (0.0, 0.36));
    }

    #[test]
    fn p_follows_the_difference_equation() {
        let params = Pi2Params {
            target: SetPoint::Delay(Span::from_millis(5)),
            ..Pi2Params::defaults()
        };
        let mut law = params.build(&site(), 0).unwrap();
        let mut sample = |ms: u64, delay_us| {
            let now = Time::ZERO + Span::from_millis(ms);
            law.handle_timeout(now, &waiting(now, delay_us));
            probed(&*law, "p_root")
        };
        // By hand: both gains act on the first error of 7 ms; then 0.16·9 ms and 3.2·2 ms.
        let mut expected = (0.16 + 3.2) * 0.007;
        assert!((sample(16, 12_000) - expected).abs() < 1e-12);
        expected += 0.16 * 0.009 + 3.2 * 0.002;
        assert!((sample(32, 14_000) - expected).abs() < 1e-12);
        assert!((law.intensity(&view(100)).unwrap() - expected * expected).abs() < 1e-12);
        // A backlog of up to two packets is not signalled.
        assert_eq!(law.intensity(&view(1)), Some(0.0));
    }

    #[test]
    fn the_default_gains_are_nearly_those_of_the_rfc_for_100_ms() {
        let params = Pi2Params::defaults();
        let interval_s = params.interval.as_secs_f64();
        assert!((0.1 * interval_s / 0.01 - params.alpha).abs() < 1e-9);
        assert!((0.3 / 0.1 / params.beta - 1.0).abs() < 0.07);
        // The rule of staqm gives 0.3/R for any load, and 0.08·T/R² for W = 8.
        let point = OperatingPoint::of_flows(125.0, 0.1, 10_000.0);
        let (alpha, beta) = PieGoals::defaults().gains(&point, params.interval);
        let slope = 2.0 * point.probability().sqrt();
        assert!((beta / slope - 3.046).abs() < 0.01, "{}", beta / slope);
        assert!((alpha / slope - 0.122).abs() < 0.001, "{}", alpha / slope);
    }
}
