//! PIE of Pan, Natarajan, Baker and White: proportional-integral control of the queuing delay,
//! with gains that grow as the probability does.

use std::cmp::Ordering;

use forebay_linux_tc::{LinuxQdisc, Tc, TcSite};
use forebay_theory::design::{Design, DesignRequest, DesignResult, LinearLaw};
use forebay_theory::linear::{LoopFilter, OperatingPoint};
use forebay_theory::search::{pi_on_delay, Conditions, Search, Settings};
use forebay_units::cast::whole_u64;
use forebay_units::{
    params, words, Bytes, ParamError, ParamType, ParamValues, Params, Rng, SetPoint, Site, Span,
    Time,
};

use crate::clock::{self, State, Ticking};
use crate::configured_law::ConfiguredLaw;
use crate::difference::Coefficients;
use crate::law::{FluidLaw, FluidStep, Law, PacketMeta, QueueView, Signal, Target, Verdict};
use crate::law_spec::LawSpec;

pub const LAW: LawSpec = LawSpec::of::<PieParams>(
    "pie",
    "PIE: proportional-integral control of the queuing delay, with gains that follow the probability",
    "RFC 8033; arithmetic and defaults of Linux (sch_pie.c)",
)
.with_equation(
    "p += alpha·(d_k − target) + beta·(d_k − d_{k−1}), times a factor that falls with p;  d = queuing delay",
)
.with_goals(PieGoals::SPECS)
.slowed_by("crossover")
.with_search(PieParams::search);

/// FQ-PIE.
pub const FQ: LawSpec = LAW
    .in_queue(
        "fq",
        "fq-pie",
        "FQ-PIE: PIE on a queue for each flow",
        "RFC 8033; Linux tc-fq_pie(8)",
    )
    .with_several_loops(|_| Search::Listed(Vec::from([5, 30].map(target_of))));

/// Shorter and longer than the default, for a queue for each flow has no model to search by.
fn target_of(ms: u64) -> Settings {
    let target = SetPoint::Delay(Span::from_millis(ms));
    vec![("target", target.to_value())]
}

words! {
    /// How PIE learns the queuing delay.
    pub enum Estimator {
        /// As long as the last packet that left has waited (RFC 8033 section 4.3).
        Timestamp = "timestamp",
        /// The backlog over an average of the departure rate (RFC 8033 section 5.2).
        DepartureRate = "departure-rate",
        /// The same, with the rate in whole bytes per 64 ns times 256, as Linux has it.
        LinuxDepartureRate = "linux-departure-rate",
    }
}

params! {
    /// PIE's parameters. Defaults are those of Linux.
    pub struct PieParams {
        /// Queuing delay to hold, or a queue length as the delay it has at the link's rate.
        target: SetPoint = SetPoint::Delay(Span::from_millis(15)), 0.0 => 1e9;
        /// Time between two changes of the probability (T_UPDATE).
        interval: Span = Span::from_millis(15), 1e-6 => 60.0;
        /// Gain on the distance to the target, per second; applied at every change.
        alpha: f64 = 0.125, 0.0 => 1000.0;
        /// Gain on the change of the delay, per second.
        beta: f64 = 1.25, 0.0 => 1000.0;
        /// Time before the first change; Linux takes half a second.
        first_change: Span = Span::from_millis(500), 0.0 => 60.0;
        /// How long a burst is let through after a time without congestion (RFC 8033 section 4.4).
        max_burst: Span = Span::from_millis(150), 0.0 => 60.0;
        /// The time between departures uses up the burst allowance, as in Linux; false: each
        /// change of the probability takes an interval (RFC 8033 section 4.4).
        burst_by_departures: bool = true;
        /// How the delay is estimated.
        estimator: Estimator = Estimator::Timestamp;
        /// Backlog below which nothing is signalled; 0B takes two of the link's usual packets.
        least_backlog: Bytes = Bytes(0), 0.0 => 1e9;
        /// Probability up to which ECN-capable packets are marked; above it they are dropped
        /// (RFC 8033 section 5.1).
        mark_up_to: f64 = 0.1, 0.0 => 1.0;
        /// Spaces signals: none before the probabilities of the packets since the last one add up
        /// to 0.85, and one at 8.5 (RFC 8033 section 5.4).
        derandomise: bool = true;
        /// A mark at the sum of 8.5 begins the sum anew. Linux does not do that: it goes on to
        /// mark every packet until one is dropped or the probability is zero.
        restart_at_mark: bool = false;
        /// Scales the probability by the size of the packet over the link's usual one.
        by_bytes: bool = false;
        /// The probability stays at most 1 (RFC 8033 section 4.2). Linux lets it grow to 256: a
        /// flow that does not answer has its queue drained, and kept at `least_backlog` for as
        /// long as the probability takes to come down.
        bounded: bool = false;
        /// Part of the probability that a change takes off while there is no delay: one in 64 in
        /// Linux, one in 50 in RFC 8033 section 4.2.
        decay: u32 = 64, 1.0 => 1e6;
        /// Delay above which every change adds another 2 % to the probability; 0s for none.
        high_delay: Span = Span::from_millis(250), 0.0 => 60.0;
    }
}

params! {
    /// What PIE is designed for.
    pub struct PieGoals {
        /// Crossover frequency times RTT; 0.4 gives PI2 RFC 9332's beta, 0.3/R.
        crossover: f64 = 0.4, 1e-3 => 0.85;
    }
}

impl PieGoals {
    /// Gains on the distance to the target and on the change of the delay, of a signal
    /// probability, per second: PI's rule (staqm section III.A), per packet, at C packets per
    /// second of delay.
    pub fn gains(&self, point: &OperatingPoint, interval: Span) -> (f64, f64) {
        let beta = point.pi_gain(self.crossover) * point.capacity_pkts_per_s;
        (point.tcp_pole() * beta * interval.as_secs_f64(), beta)
    }

    pub fn note(&self, point: &OperatingPoint) -> String {
        format!(
            "The zero of the PI controller cancels TCP's pole at 2N/(R²C) = {:.4} rad/s, and the \
             gain puts the crossover at {:.4} rad/s, not counting the sampler and the age of the \
             delay that the law sees.",
            point.tcp_pole(),
            self.crossover / point.rtt_s
        )
    }
}

/// Probabilities are whole numbers up to this, as in Linux.
const MAX_PROB: u64 = u64::MAX >> 8;
/// Times are of this many nanoseconds as powers of two, as in Linux.
const TICK_SHIFT: u32 = 6;
const TICKS_PER_S: u64 = 1_000_000_000 >> TICK_SHIFT;
/// Bytes that must be waiting, and leave, for a sample of the departure rate.
const RATE_THRESHOLD: u64 = 16384;
/// Weight of a sample of the departure rate (RFC 8033 appendix B): 2^14/2^16.
const RATE_WEIGHT: f64 = 0.25;

/// By what power of two the gains fall at this probability (RFC 8033 section 4.2).
fn gain_shift(prob: u64) -> u32 {
    if prob >= MAX_PROB / 10 {
        return 0;
    }
    let (mut shift, mut power) = (1, 100);
    while power <= 1_000_000 && prob < MAX_PROB / power {
        shift += 2;
        power *= 10;
    }
    shift
}

fn prob_of(p: f64) -> u64 {
    whole_u64(p * MAX_PROB as f64).min(MAX_PROB)
}

impl PieParams {
    /// Signals per packet where the law's probability is `p`. A sum that starts at zero passes
    /// 0.85 after 0.85/p packets, half a packet more or less, and then draws.
    fn signals(&self, p: f64) -> f64 {
        if !self.derandomise || p >= 0.85 {
            return p;
        }
        p / (1.85 - 0.5 * p)
    }

    /// The inverse of [`signals`](Self::signals), and its slope there.
    fn probability(&self, signals: f64) -> (f64, f64) {
        if !self.derandomise {
            return (signals, 1.0);
        }
        let p = 1.85 * signals / (1.0 + 0.5 * signals);
        if p >= 0.85 {
            return (signals, 1.0);
        }
        (p, 1.85 / (1.85 - 0.5 * p).powi(2))
    }

    /// How many times smaller the gains are than alpha and beta where the link needs this
    /// probability of signals.
    fn gain_at(&self, signals: f64) -> f64 {
        let (p, slope) = self.probability(signals);
        slope * 0.5f64.powi(gain_shift(prob_of(p)).cast_signed())
    }
}

impl PieParams {
    fn search(conditions: &Conditions) -> Search {
        pi_on_delay(conditions, PieParams::defaults().interval, 0.05, 10.0)
    }
}

impl ConfiguredLaw for PieParams {
    fn build(&self, site: &Site, _seed: u64) -> Result<Box<dyn Law>, ParamError> {
        Ok(Box::new(Pie::new(self, site)))
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

impl LinearLaw for PieParams {
    /// PI on a delay, with the gains of this probability. The delay that a packet has had is
    /// that of the queue when it came.
    fn linear(&self, point: &OperatingPoint, site: &Site) -> Option<LoopFilter> {
        let gains = Coefficients {
            a: self.alpha + self.beta,
            b: self.beta,
            c: 0.0,
        };
        let per_packet = self.gain_at(point.probability()) / site.rate.packets_per_sec(site.packet);
        let filter = gains.sampled(self.interval.as_secs_f64(), per_packet);
        let target_pkts = site.pkts(self.target);
        let age_s = match self.estimator {
            Estimator::Timestamp => target_pkts / site.rate.packets_per_sec(site.packet),
            Estimator::DepartureRate | Estimator::LinuxDepartureRate => 0.0,
        };
        // Without an integral, where PIE rests depends on how its gains changed on the way.
        (self.alpha > 0.0).then(|| LoopFilter {
            age_s,
            ..LoopFilter::sampled(target_pkts, filter)
        })
    }

    fn design(&self, request: &DesignRequest, goals: &ParamValues) -> DesignResult {
        let goals = PieGoals::read(goals)?;
        let (alpha, beta) = goals.gains(&request.point, self.interval);
        let factor = self.gain_at(request.probability);
        let designed = PieParams {
            target: request.set_point,
            alpha: (alpha / factor).min(1e3),
            beta: (beta / factor).min(1e3),
            ..self.clone()
        };
        let design = Design::of(
            vec![
                ("alpha", designed.alpha),
                ("beta", designed.beta),
                ("gain_factor", factor),
            ],
            &designed,
            &["target", "alpha", "beta", "interval"],
            vec![
                goals.note(&request.point),
                format!(
                    "At the probability that TCP needs, {:.2e}, PIE takes alpha and beta times \
                     {factor:.3e}.",
                    request.probability
                ),
            ],
        );
        if !request.marked {
            return Ok(Some(design));
        }
        let marking = PieParams {
            mark_up_to: 1.0,
            restart_at_mark: true,
            ..designed
        };
        Ok(Some(design.with_settings(
            &marking,
            &["mark_up_to", "restart_at_mark"],
            format!(
                "These flows count marks: PIE marks at any probability, where it would drop above {} \
                 (RFC 8033 section 5.1), and a mark begins the spacing anew, which in Linux only a \
                 drop does.",
                self.mark_up_to
            ),
        )))
    }
}

impl LinuxQdisc for PieParams {
    /// tc-pie(8) and tc-fq_pie(8), whose gains are counted in sixteenths.
    fn tc(&self, queue: &str, site: &TcSite) -> Result<Option<Tc>, ParamError> {
        let mut tc = match queue {
            "fifo" => Tc::new("pie"),
            "fq" => Tc::new("fq_pie"),
            _ => return Ok(None),
        };
        tc.defaults(
            self,
            &[
                "first_change",
                "max_burst",
                "burst_by_departures",
                "derandomise",
                "restart_at_mark",
                "bounded",
                "decay",
                "high_delay",
            ],
        )?;
        tc.backlog("least_backlog", self.least_backlog, 2, site)?;
        let target = match (self.estimator, self.target) {
            (Estimator::Timestamp, target) => target,
            // Its delay is that of the backlog, with the packet that is being sent.
            (Estimator::LinuxDepartureRate, SetPoint::Delay(delay)) => {
                SetPoint::Delay(delay + site.held_time())
            }
            (Estimator::LinuxDepartureRate, SetPoint::Packets(pkts)) => {
                SetPoint::Packets(pkts + f64::from(site.held_packets()))
            }
            (Estimator::DepartureRate, _) => {
                let allowed = "timestamp, linux-departure-rate in Linux's pie";
                return Err(ParamError::new("estimator", "departure-rate", allowed));
            }
        };
        tc.limit(site);
        tc.delay("target", "target", target, site);
        tc.time("tupdate", "interval", self.interval);
        for (key, gain) in [("alpha", self.alpha), ("beta", self.beta)] {
            let sixteenths = tc.steps(key, gain, 16.0, 2.0)?;
            tc.pair(key, sixteenths);
        }
        tc.ecn(site);
        match tc.qdisc {
            "fq_pie" => {
                let percent = tc.steps("mark_up_to", self.mark_up_to, 100.0, 1.0)?;
                tc.pair("ecn_prob", percent);
            }
            _ => tc.defaults(self, &["mark_up_to"])?,
        }
        tc.word(match self.by_bytes {
            true => "bytemode",
            false => "nobytemode",
        });
        tc.word(match self.estimator {
            Estimator::Timestamp => "no_dq_rate_estimator",
            _ => "dq_rate_estimator",
        });
        Ok(Some(tc))
    }
}

struct Pie {
    params: PieParams,
    target: Target,
    // Times from here on are in ticks.
    /// Gains of a probability of [`MAX_PROB`], per tick.
    alpha: u64,
    beta: u64,
    high_delay: u64,
    max_burst: u64,
    interval: u64,
    least_backlog: u64,
    usual_packet: u64,
    mark_up_to: u64,
    next: Time,
    prob: u64,
    /// What the probabilities of packets since the last signal add up to.
    sum: u64,
    delay: u64,
    delay_1: u64,
    burst: u64,
    /// The last departure, or the start of the sample of the departure rate.
    since: Option<u64>,
    /// Bytes that have left since then.
    left: Option<u64>,
    /// Departure rate in bytes per tick, times 256 for Linux; 0 before the first sample.
    rate: f64,
}

fn ticks(span: Span) -> u64 {
    span.as_nanos() >> TICK_SHIFT
}

fn clock(time: Time) -> u64 {
    time.as_nanos() >> TICK_SHIFT
}

impl Pie {
    fn new(params: &PieParams, site: &Site) -> Pie {
        // Linux takes sixteenths from user space.
        let gain = |per_s: f64| whole_u64(per_s * 16.0 * (MAX_PROB / TICKS_PER_S) as f64) >> 4;
        let usual = site.packet.0;
        Pie {
            target: Target::new(params.target, site),
            alpha: gain(params.alpha),
            beta: gain(params.beta),
            high_delay: match params.high_delay {
                Span::ZERO => u64::MAX,
                high => ticks(high),
            },
            max_burst: ticks(params.max_burst),
            interval: ticks(params.interval),
            least_backlog: match params.least_backlog {
                Bytes(0) => 2 * usual,
                Bytes(bytes) => bytes,
            },
            usual_packet: usual.max(1),
            mark_up_to: prob_of(params.mark_up_to),
            next: Time::ZERO + params.first_change.max(params.interval),
            prob: 0,
            sum: 0,
            delay: 0,
            delay_1: 0,
            burst: ticks(params.max_burst),
            since: None,
            left: None,
            rate: 0.0,
            params: params.clone(),
        }
    }

    /// What is tossed for: any draw is below a probability that has grown above 1.
    fn probability(&self) -> f64 {
        self.prob.min(MAX_PROB) as f64 / MAX_PROB as f64
    }

    /// Whether an arrival is let in whatever the probability (RFC 8033 sections 4.1 and 4.4).
    #[inline]
    fn spares(&self, q: &QueueView) -> bool {
        self.burst > 0
            || (self.delay < ticks(self.target.delay(q)) / 2 && self.prob < MAX_PROB / 5)
            || q.bytes < self.least_backlog
    }

    /// Whether an arrival is signalled (RFC 8033 sections 4.1 and 5.4).
    #[inline]
    fn strikes(&mut self, q: &QueueView, bytes: u32, rng: &mut Rng) -> bool {
        if self.spares(q) {
            return false;
        }
        let bytes = u64::from(bytes);
        let prob = if self.params.by_bytes && bytes <= self.usual_packet {
            bytes * (self.prob / self.usual_packet)
        } else {
            self.prob
        };
        if self.params.derandomise {
            self.sum = match prob {
                0 => 0,
                _ => self.sum.wrapping_add(prob),
            };
            if self.sum < MAX_PROB / 100 * 85 {
                return false;
            }
            if self.sum >= MAX_PROB / 2 * 17 {
                return true;
            }
        }
        let strikes = (rng.next_u64() >> 8) < prob;
        if strikes {
            self.sum = 0;
        }
        strikes
    }

    fn use_burst(&mut self, ticks: u64) {
        self.burst = self.burst.saturating_sub(ticks);
    }

    /// A sample of the departure rate is complete after 16 KiB of a queue that was as long at its
    /// start (RFC 8033 section 5.2); how long it took.
    fn sample_rate(&mut self, t: u64, backlog: u64, bytes: u32) -> Option<u64> {
        if backlog >= RATE_THRESHOLD && self.left.is_none() {
            self.since = Some(t);
            self.left = Some(0);
        }
        let left = self.left? + u64::from(bytes);
        self.left = Some(left);
        let took = t - self.since?;
        if left < RATE_THRESHOLD || took == 0 {
            return None;
        }
        if self.params.estimator == Estimator::LinuxDepartureRate {
            let (rate, sample) = (whole_u64(self.rate), (left << 8) / took);
            self.rate = match rate {
                0 => sample,
                rate => rate - (rate >> 3) + (sample >> 3),
            } as f64;
        } else {
            let sample = left as f64 / took as f64;
            self.rate = match self.rate {
                0.0 => sample,
                rate => rate + RATE_WEIGHT * (sample - rate),
            };
        }
        self.left = (backlog >= RATE_THRESHOLD).then_some(0);
        self.since = Some(t);
        Some(took)
    }

    /// The queuing delay at a change of the probability.
    fn estimate(&self, q: &QueueView) -> u64 {
        match self.params.estimator {
            Estimator::Timestamp => self.delay,
            _ if self.rate == 0.0 => 0,
            Estimator::DepartureRate => whole_u64(q.bytes as f64 / self.rate),
            Estimator::LinuxDepartureRate => (q.bytes << 8) / whole_u64(self.rate),
        }
    }

    /// A change of the probability (RFC 8033 section 4.2).
    fn change(&mut self, q: &QueueView) {
        let target = ticks(self.target.delay(q));
        if self.params.estimator != Estimator::Timestamp {
            self.delay_1 = self.delay;
        }
        let (delay, delay_1) = (self.estimate(q), self.delay_1);
        let shift = gain_shift(self.prob);
        let term = |gain: u64, later: u64, earlier: u64| {
            let difference = later.cast_signed() - earlier.cast_signed();
            (gain >> shift).cast_signed().saturating_mul(difference)
        };
        let mut delta =
            term(self.alpha, delay, target).saturating_add(term(self.beta, delay, delay_1));
        // At most 2 % in one step where it is 10 % already (RFC 8033 section 5.5).
        let step = (MAX_PROB / 50).cast_signed();
        if delta > step && self.prob >= MAX_PROB / 10 {
            delta = (MAX_PROB / 100 * 2).cast_signed();
        }
        // Linux: more of it where the delay is out of bounds.
        if delay > self.high_delay {
            delta = delta.saturating_add(step);
        }
        self.prob = match self.prob.checked_add_signed(delta) {
            Some(prob) if self.params.bounded => prob.min(MAX_PROB),
            Some(prob) => prob,
            // Beyond 256 Linux begins again at 1.
            None if delta > 0 => MAX_PROB,
            None => 0,
        };
        if delay == 0 && delay_1 == 0 && q.bytes == 0 {
            self.prob -= self.prob / u64::from(self.params.decay);
        }
        if !self.params.burst_by_departures {
            self.use_burst(self.interval);
        }
        self.delay = delay;
        // Without congestion the next burst is let in (RFC 8033 section 4.4).
        let known = self.params.estimator == Estimator::Timestamp || self.rate > 0.0;
        if delay < target / 2 && delay_1 < target / 2 && self.prob == 0 && known {
            self.burst = self.max_burst;
            self.since = None;
            self.left = None;
            self.sum = 0;
            self.rate = 0.0;
        }
        if self.params.estimator == Estimator::Timestamp {
            self.delay_1 = delay;
        }
    }
}

impl Law for Pie {
    fn costs_arrivals(&self) -> bool {
        true
    }

    #[inline]
    fn on_enqueue(&mut self, _: Time, q: &QueueView, p: &PacketMeta, rng: &mut Rng) -> Verdict {
        if !self.strikes(q, p.bytes, rng) {
            return Verdict::Pass;
        }
        let may_mark = self.prob <= self.mark_up_to;
        if p.signal == Signal::Drop || !may_mark || self.params.restart_at_mark {
            self.sum = 0;
        }
        match p.signal {
            Signal::Mark if !may_mark => Verdict::Drop,
            _ => Verdict::Mark,
        }
    }

    #[inline]
    fn on_dequeue(&mut self, now: Time, q: &QueueView, p: &PacketMeta, _: &mut Rng) -> Verdict {
        let t = clock(now);
        let took = if self.params.estimator == Estimator::Timestamp {
            let came = Time::from_nanos(now.as_nanos().saturating_sub(p.sojourn.as_nanos()));
            self.delay = match q.bytes {
                0 => 0,
                _ => t - clock(came),
            };
            let since = self.since.replace(t);
            since.map(|since| t - since)
        } else {
            self.sample_rate(t, q.bytes, p.bytes)
        };
        if self.burst > 0 && self.params.burst_by_departures {
            self.use_burst(took.unwrap_or(0));
        }
        Verdict::Pass
    }

    fn on_overflow(&mut self, _now: Time, _q: &QueueView) {
        self.sum = 0;
    }

    fn poll_timeout(&self) -> Option<Time> {
        Some(self.next)
    }

    fn handle_timeout(&mut self, now: Time, q: &QueueView) {
        self.next = clock::run(self, self.next, now, q);
    }

    fn set_point(&mut self, set_point: SetPoint) -> bool {
        self.target.set_point = set_point;
        true
    }

    fn probe(&self, out: &mut dyn FnMut(&'static str, f64)) {
        out("p", self.probability());
        out(
            "delay",
            Span::from_nanos(self.delay << TICK_SHIFT).as_secs_f64(),
        );
    }
}

impl Ticking for Pie {
    fn interval(&self) -> Span {
        self.params.interval
    }

    fn tick(&mut self, _: Time, q: &QueueView) {
        self.change(q);
    }

    fn state(&self) -> Option<State> {
        let (since, left) = (self.since, self.left);
        Some([
            self.prob,
            self.sum,
            self.delay,
            self.delay_1,
            self.burst,
            self.rate.to_bits(),
            since.is_some().into(),
            since.unwrap_or(0),
            left.is_some().into(),
            left.unwrap_or(0),
            0,
            0,
        ])
    }

    /// At a queue that does not change, the probability moves by the same amount at each change, as
    /// long as the gains stay as they are; without a delay it also loses its part.
    fn skip(&mut self, _: Time, changes: u64, q: &QueueView) {
        if !self.params.burst_by_departures {
            self.use_burst(self.interval.saturating_mul(changes));
        }
        let (mut left, mut rise) = (changes, 0);
        // Each round ends a range of the probability, and a circle is closed once.
        for _ in 0..2 * GAIN_RANGES {
            if left == 0 {
                return;
            }
            let before = self.prob;
            self.change(q);
            left -= 1;
            let steps = match self.prob.cmp(&before) {
                Ordering::Equal => return,
                Ordering::Greater => {
                    rise = self.prob - before;
                    let most = match self.params.bounded {
                        true => MAX_PROB,
                        false => u64::MAX,
                    };
                    let last = range_of(self.prob).1.min(most);
                    let steps = ((last - self.prob) / rise).min(left);
                    self.prob += steps * rise;
                    steps
                }
                // Beyond 256 Linux has begun again at 1, and goes in circles from here on.
                Ordering::Less if rise > 0 => {
                    left %= (u64::MAX - self.prob) / rise + 1;
                    0
                }
                Ordering::Less if q.bytes == 0 && self.delay == 0 => return self.fade(left, q),
                Ordering::Less => {
                    let fall = before - self.prob;
                    let steps = ((self.prob - range_of(self.prob).0) / fall).min(left);
                    self.prob -= steps * fall;
                    steps
                }
            };
            left -= steps;
        }
    }
}

/// Ranges of the probability in which the gains are the same.
const GAIN_RANGES: usize = 7;

/// The least and the greatest probability with the same gains as this one.
fn range_of(prob: u64) -> (u64, u64) {
    let shift = gain_shift(prob);
    let mut bounds = (1..=6).rev().map(|digits| MAX_PROB / 10u64.pow(digits));
    let above = bounds.clone().find(|bound| gain_shift(*bound) < shift);
    let below = bounds.rfind(|bound| *bound <= prob);
    (
        below.unwrap_or(0),
        above.map_or(u64::MAX, |bound| bound - 1),
    )
}

impl Pie {
    /// Comes to where so many changes lead while there is no delay: p ← (p − c)·(1 − 1/d), in 16 parts
    /// in each of which the gains are those of its start.
    fn fade(&mut self, changes: u64, q: &QueueView) {
        let kept = 1.0 - 1.0 / f64::from(self.params.decay);
        let target = ticks(self.target.delay(q)) as f64;
        let mut left = changes;
        while left > 0 && self.prob > 0 {
            let part = left.min(changes.div_ceil(16));
            let cut = (self.alpha >> gain_shift(self.prob)) as f64 * target;
            let decayed = kept.powf(part as f64);
            let cuts = match kept {
                0.0 => 0.0,
                1.0 => cut * part as f64,
                _ => cut * kept * (1.0 - decayed) / (1.0 - kept),
            };
            self.prob = whole_u64(self.prob as f64 * decayed - cuts);
            left -= part;
        }
    }
}

impl FluidLaw for Pie {
    /// With time stamps the last departure says all; where the departure rate is measured, each
    /// counts.
    fn take_fluid(&mut self, step: &FluidStep) -> bool {
        if self.params.estimator != Estimator::Timestamp {
            return false;
        }
        if step.departures > 0 {
            // A law that never draws needs no randomness to see a departure.
            let mut unused = Rng::new(0, "pie");
            self.on_dequeue(step.end, &step.view, &step.packet, &mut unused);
        }
        true
    }

    fn intensity(&self, q: &QueueView) -> Option<f64> {
        Some(match self.spares(q) {
            true => 0.0,
            false => self.params.signals(self.probability()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::laws::testing::{load, packet, phases, probed, site, view, Happens, Phase};
    use proptest::prelude::{proptest, ProptestConfig};
    use std::collections::VecDeque;

    /// sch_pie.c read line by line: ticks of 64 ns, probabilities of 56 bits.
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

        /// (dropped, marked)
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

        fn process_dequeue(&mut self, now: u64, came: u64, bytes: u32, backlog: u64) {
            if !self.dq_rate_estimator {
                self.qdelay = if backlog != 0 { now - came } else { 0 };
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

    /// The same packets through both, with the same draws: signals, and the highest probability.
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
        for (now_ns, happens) in load(seed, phases) {
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
            match happens {
                Happens::Arrival { .. } if queue.len() >= 1000 => {
                    kernel.accu_prob = 0;
                    law.on_overflow(now, &q(queue.len(), backlog));
                }
                Happens::Arrival { bytes, ect } => {
                    let p = PacketMeta {
                        signal: if ect { Signal::Mark } else { Signal::Drop },
                        ..packet(bytes)
                    };
                    let mut same = rng.clone();
                    let got = law.on_enqueue(now, &q(queue.len(), backlog), &p, &mut rng);
                    let (dropped, marked) = kernel.enqueue(backlog, ect, &mut same);
                    let drops = got == Verdict::Drop || (got == Verdict::Mark && !ect);
                    assert_eq!(
                        (drops, got == Verdict::Mark && ect),
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
                Happens::Service => {
                    let Some((came, bytes)) = queue.pop_front() else {
                        continue;
                    };
                    backlog -= u64::from(bytes);
                    let p = PacketMeta {
                        sojourn: Span::from_nanos(now_ns - came),
                        ..packet(bytes)
                    };
                    law.on_dequeue(now, &q(queue.len(), backlog), &p, &mut rng);
                    kernel.process_dequeue(now_ns >> 6, came >> 6, bytes, backlog);
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
    fn the_arrivals_make_both_signal() {
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
            // What does not answer drives the probability above one.
            let (_, highest) = side_by_side(1, &phases([5.5, 0.5, 5.5]), dq_rate_estimator);
            assert!(highest > 1.0, "{highest}");
        }
    }

    /// A law with this probability, its burst used up, at a delay of 20 ms.
    fn with(params: PieParams, p: f64) -> Pie {
        let mut pie = Pie::new(&params, &site());
        pie.prob = prob_of(p);
        pie.burst = 0;
        pie.delay = ticks(Span::from_millis(20));
        pie
    }

    /// Signals over packets.
    fn rate(params: &PieParams, p: f64) -> f64 {
        let mut pie = with(params.clone(), p);
        let mut rng = Rng::new(7, "pie");
        let n = 400_000;
        let mut judge = || pie.on_enqueue(Time::ZERO, &view(100), &packet(1000), &mut rng);
        let signals = (0..n).filter(|_| judge() != Verdict::Pass).count();
        signals as f64 / f64::from(n)
    }

    #[test]
    fn spaced_signals_are_as_many_as_it_says() {
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
    fn a_change_by_hand() {
        // At p = 5 % the gains are halved; 20 ms now, 18 ms before: 0.0625·5 ms + 0.625·2 ms.
        let mut pie = with(PieParams::defaults(), 0.05);
        pie.delay_1 = ticks(Span::from_millis(18));
        pie.change(&view(100));
        let want = 0.05 + 0.0625 * 0.005 + 0.625 * 0.002;
        assert!((pie.probability() - want).abs() < 1e-6);
        // From 10 % on the gains are whole, and one change adds 2 % at most.
        let mut pie = with(PieParams::defaults(), 0.2);
        pie.delay = ticks(Span::from_millis(100));
        pie.change(&view(100));
        assert!((pie.probability() - 0.22).abs() < 1e-6);
        pie.delay = ticks(Span::from_millis(300));
        pie.change(&view(100));
        assert!((pie.probability() - 0.26).abs() < 1e-6);
        // Without any delay it decays besides.
        let mut pie = with(PieParams::defaults(), 0.5);
        (pie.delay, pie.delay_1) = (0, 0);
        pie.change(&view(0));
        let want = (0.5 - 0.125 * 0.015) * 63.0 / 64.0;
        assert!((pie.probability() - want).abs() < 1e-6);
    }

    #[test]
    fn above_one_it_is_linux_that_goes_on() {
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
    fn the_gains_fall_with_the_powers_of_p() {
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
        // At a sum of 8.5 Linux's marks leave the sum as it is.
        assert_eq!(verdict(0.09, &ect), (Verdict::Mark, false));
        assert_eq!(verdict(0.11, &ect), (Verdict::Drop, true));
        assert_eq!(verdict(0.11, &packet(1000)), (Verdict::Mark, true));
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
}
