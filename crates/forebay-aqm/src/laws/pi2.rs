//! PI2 of De Schepper, Bondarenko, Tsang and Briscoe: a PI controller of the queuing delay whose
//! output is squared for classic traffic and used linearly for scalable traffic.

use forebay_linux_tc::{LinuxQdisc, Tc, TcSite};
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

impl LinuxQdisc for Pi2Params {
    /// tc-dualpi2(8).
    fn tc(&self, queue: &str, site: &TcSite) -> Result<Option<Tc>, ParamError> {
        if queue != "dualpi2" {
            return Ok(None);
        }
        let mut tc = Tc::new("dualpi2");
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

    /// Judges an arrival. Two random draws below p' have the probability p'².
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
    use crate::laws::testing::{packet, probed, site, view};
    use forebay_units::Params;
    use proptest::prelude::{prop_assert, proptest};

    /// Returns a queue whose head packet arrived `delay_us` ago.
    fn waiting(now: Time, delay_us: u64) -> QueueView {
        let since = now.as_nanos().saturating_sub(1000 * delay_us);
        QueueView {
            head_since: Some(Time::from_nanos(since)),
            ..view(100)
        }
    }

    /// `calculate_probability` of sch_dualpi2.c, transcribed line by line: a probability of 32
    /// bits, and gains in integer multiples of 2^-32 per 64 ns.
    struct Kernel {
        alpha: i64,
        beta: i64,
        prob: u32,
        last_ns: i64,
    }

    /// Returns the kernel's form of a gain in 256ths per second (`dualpi2_scale_alpha_beta`).
    fn scaled(gain: u64) -> i64 {
        (((gain * u64::from(u32::MAX)) >> (8 - 6)) / 1_000_000_000) as i64
    }

    impl Kernel {
        fn change(&mut self, delay_ns: i64, target_ns: i64) {
            let mut delta = (delay_ns - target_ns) * self.alpha;
            delta += (delay_ns - self.last_ns) * self.beta;
            self.last_ns = delay_ns;
            let size = (delta.unsigned_abs() / (1 << 6)).min(u64::from(u32::MAX)) as u32;
            self.prob = match delta > 0 {
                true => self.prob.saturating_add(size),
                false => self.prob.saturating_sub(size),
            };
        }
    }

    proptest! {
        #[test]
        fn the_root_follows_that_of_linux(delays_us in proptest::collection::vec(0u64..60_000, 1..400)) {
            // Linux starts with a last delay of zero, this law with a last delay at the target.
            let mut kernel = Kernel {
                alpha: scaled(41),
                beta: scaled(819),
                prob: 0,
                last_ns: 15_000_000,
            };
            let per_s = |gain: i64| gain as f64 / 64.0 * 1e9 / f64::from(u32::MAX);
            let params = Pi2Params {
                alpha: per_s(kernel.alpha),
                beta: per_s(kernel.beta),
                ..Pi2Params::defaults()
            };
            assert!((params.alpha - 0.16).abs() < 1e-3 && (params.beta - 3.2).abs() < 5e-3);
            let mut law = params.build(&site(), 0).unwrap();
            for (k, delay_us) in (100..).zip(delays_us) {
                let now = Time::ZERO + Span::from_millis(16 * k);
                if k == 100 {
                    // The law's clock has run with an empty queue until now.
                    law.handle_timeout(now, &waiting(now, 15_000));
                    kernel.prob = (probed(&*law, "p_root") * f64::from(u32::MAX)) as u32;
                    continue;
                }
                law.handle_timeout(now, &waiting(now, delay_us));
                kernel.change(1000 * delay_us as i64, 15_000_000);
                let expected = f64::from(kernel.prob) / f64::from(u32::MAX);
                // The kernel rounds each change to 2^-32.
                prop_assert!((probed(&*law, "p_root") - expected).abs() < 1e-6);
            }
        }
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
