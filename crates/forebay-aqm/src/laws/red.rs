//! RED of Floyd and Jacobson, with the later options `gentle` and `wait`, as implemented in
//! ns-2.35.

use forebay_linux_tc::fixed_point::{self, Field, FixedPointLaw, Twin};
use forebay_linux_tc::{LinuxQdisc, Tc, TcSite};
use forebay_theory::averaging::{design, thresholds, AveragingDesign};
use forebay_theory::design::{Design, DesignRequest, DesignResult, LinearLaw};
use forebay_theory::linear::{Average, LoopFilter, OperatingPoint};
use forebay_theory::search::{number, packets, Axis, Conditions, Point, Search, Space};
use forebay_units::cast::whole_u32;
use forebay_units::{
    params, Packets, ParamError, ParamValues, Params, Rate, Rng, Site, Span, Time, Value,
};

use crate::configured_law::ConfiguredLaw;
use crate::law::{FluidLaw, FluidStep, Law, PacketMeta, QueueView, Scale, Verdict};
use crate::law_spec::LawSpec;

/// The registry entry of RED.
pub const LAW: LawSpec = LawSpec::of::<RedParams>(
    "red",
    "RED: signal with a probability that rises with the average queue length",
    "Floyd and Jacobson 1993; pi-pd eq. (2); gentle: Floyd 2000",
)
.with_equation(
    "p_b = max_p·(avg − min_th)/(max_th − min_th);  avg += w_q·(q − avg) at each arrival",
)
.with_goals(RedGoals::SPECS)
.with_search(RedParams::search);

params! {
    /// RED. Thresholds are in packets; in byte mode, in packets of the link's usual size.
    pub struct RedParams {
        /// Average queue below which nothing is signalled.
        min_th: Packets = Packets(5.0), 0.0 => 1e9;
        /// Average queue at which the probability reaches max_p.
        max_th: Packets = Packets(15.0), 0.0 => 1e9;
        /// Probability at max_th.
        max_p: f64 = 0.1, 1e-12 => 1.0;
        /// Weight of an arrival in the average.
        w_q: f64 = 0.002, 1e-12 => 1.0;
        /// Above max_th, let the probability rise linearly to 1 at twice max_th instead of jumping
        /// to 1.
        gentle: bool = true;
        /// Space signals by at least 1/p packets: the spacing is uniform on [1/p, 2/p]. Otherwise
        /// it is uniform on [1, 1/p], so that signals are three times as frequent.
        wait: bool = true;
        /// Mark ECN-capable packets even above max_th (twice max_th if gentle). Otherwise every
        /// packet is dropped there (RFC 3168 section 7), as in Linux with `harddrop`.
        mark_above: bool = false;
        /// Average bytes instead of packets.
        queue_in_bytes: bool = false;
        /// Make the probability proportional to the size of the packet.
        by_size: bool = false;
    }
}

params! {
    /// Goals of RED's design rule.
    pub struct RedGoals {
        /// Phase margin, in degrees.
        phase_margin: f64 = 85.0, 10.0 => 89.99;
        /// Crossover frequency, as a fraction of the slower of TCP's two poles.
        crossover: f64 = 0.1, 1e-3 => 0.5;
    }
}

/// Returns sentences that describe the design.
pub fn note(design: &AveragingDesign, target_pkts: f64) -> String {
    let equilibrium = if design.q_d_pkts >= target_pkts {
        format!(
            "With this phase margin the average must be q_d = {:.1} packets above min_th, more than \
             the target of {target_pkts:.1}: min_th is 0, and the equilibrium is at q_d.",
            design.q_d_pkts
        )
    } else {
        format!(
            "The equilibrium of the average is q_d = {:.1} packets above min_th, midway to max_th.",
            design.q_d_pkts
        )
    };
    format!(
        "RED has no integral action, so its averaging is made slow enough for the phase margin: \
         the crossover is at {:.4} rad/s and the response time about {:.1} s. {equilibrium}",
        design.omega_g,
        1.0 / design.omega_g
    )
}

/// Returns the signals per arrival divided by p_b: their mean spacing is 1.5/p_b with `wait`, and
/// 0.5/p_b without.
pub fn signals_per_probability(wait: bool) -> f64 {
    if wait {
        1.0 / 1.5
    } else {
        2.0
    }
}

impl RedParams {
    fn search(conditions: &Conditions) -> Search {
        let axes = [
            Axis::new("min_th", 1.0, (0.25 * conditions.buffer_pkts).max(2.0)),
            Axis::new("ratio", 1.2, 20.0),
            Axis::new("max_p", 0.01, 1.0),
            conditions.weight(),
        ];
        let midway = |x: &Point| 0.5 * x["min_th"] * (1.0 + x["ratio"]);
        Search::Space(Space::new(axes, midway, |x| {
            vec![
                ("min_th", packets(x["min_th"])),
                ("max_th", packets(x["min_th"] * x["ratio"])),
                ("max_p", number(x["max_p"])),
                ("w_q", number(x["w_q"])),
            ]
        }))
    }
}

impl ConfiguredLaw for RedParams {
    fn check(&self, _site: &Site) -> Result<(), ParamError> {
        if self.min_th.0 < self.max_th.0 {
            return Ok(());
        }
        Err(ParamError::new(
            "min_th",
            format!("\"{}\"", self.min_th),
            format!("less than max_th, \"{}\"", self.max_th),
        ))
    }

    fn build(&self, site: &Site, _seed: u64) -> Result<Box<dyn Law>, ParamError> {
        self.check(site)?;
        Ok(Box::new(Red::new(self.clone(), site)))
    }

    fn theory(&self) -> Option<&dyn LinearLaw> {
        Some(self)
    }

    fn linux(&self) -> Option<&dyn LinuxQdisc> {
        Some(self)
    }

    fn kernel(&self) -> Option<&dyn FixedPointLaw> {
        Some(self)
    }
}

impl LinearLaw for RedParams {
    fn linear(&self, point: &OperatingPoint, _site: &Site) -> Option<LoopFilter> {
        let rate = signals_per_probability(self.wait);
        let p_b = point.probability() / rate;
        // The average at which `base_probability` is p_b, and the slope there.
        let (average_pkts, slope) = if p_b < self.max_p {
            let slope = self.max_p / (self.max_th.0 - self.min_th.0);
            (self.min_th.0 + p_b / slope, slope)
        } else if self.gentle && p_b < 1.0 {
            let slope = (1.0 - self.max_p) / self.max_th.0;
            (self.max_th.0 + (p_b - self.max_p) / slope, slope)
        } else {
            return None;
        };
        Some(LoopFilter {
            queue_pkts: average_pkts,
            average: Some(Average {
                weight: self.w_q,
                interval_s: 1.0 / point.capacity_pkts_per_s,
            }),
            direct: rate * slope,
            sampled: None,
            one_sided: false,
            age_s: 0.0,
        })
    }

    fn design(&self, request: &DesignRequest, goals: &ParamValues) -> DesignResult {
        let goals = RedGoals::read(goals)?;
        let red = design(goals.phase_margin, goals.crossover, &request.point);
        let (min_th, max_th) = thresholds(red.q_d_pkts, request.target_pkts());
        // The rule is for the signal probability that TCP sees.
        let max_p = red.l_red * (max_th - min_th) / signals_per_probability(self.wait);
        let designed = RedParams {
            min_th: Packets(min_th),
            max_th: Packets(max_th),
            max_p: max_p.min(1.0),
            w_q: red.w_q,
            ..self.clone()
        };
        let spacing = format!(
            "Because signals are spaced, TCP sees {:.4} times the probability p_b, so max_p is \
             {:.4e}.",
            signals_per_probability(self.wait),
            designed.max_p
        );
        Ok(Some(Design::of(
            red.gains(max_th - min_th),
            &designed,
            &["min_th", "max_th", "max_p", "w_q"],
            vec![note(&red, request.target_pkts()), spacing],
        )))
    }
}

impl FixedPointLaw for RedParams {
    fn twin(&self, site: &Site) -> Result<Twin, ParamError> {
        if self.mark_above {
            return Err(ParamError::new(
                "mark_above",
                true,
                "false, since the law in the kernel does not support it",
            ));
        }
        let law = Red::new(self.clone(), site);
        Ok(Twin {
            interval: None,
            config: self.twin_config(site)?,
            state: law.twin_state(),
        })
    }
}

impl LinuxQdisc for RedParams {
    /// tc-red(8): classic RED in byte mode, with a weight that is a power of two.
    fn tc(&self, queue: &str, site: &TcSite) -> Result<Option<Tc>, ParamError> {
        if queue != "fifo" {
            return Ok(None);
        }
        let mut tc = Tc::new("red");
        let constants = [
            ("gentle", false),
            ("wait", false),
            ("queue_in_bytes", true),
            ("by_size", false),
        ];
        tc.constant(
            self,
            &constants.map(|(key, value)| (key, Value::Flag(value))),
        )?;
        let unit = site.packet_bytes() as f64;
        let held = f64::from(site.held_packets());
        let in_bytes = |pkts: f64| whole_u32((pkts + held) * unit);
        let (min_bytes, max_bytes) = (in_bytes(self.min_th.0), in_bytes(self.max_th.0));
        let log = whole_u32((-self.w_q.log2()).round());
        let burst = burst_of(log, f64::from(min_bytes) / unit);
        // The kernel's average is an integer of 32 bits (`red_check_params`).
        let bits = u32::BITS - max_bytes.leading_zeros();
        let (Some(burst), true) = (burst, bits + log < 32) else {
            let expected = format!("a value from 2^-{} to 2^-1 in Linux's red", 31 - bits);
            return Err(ParamError::new("w_q", self.w_q, expected));
        };
        let applied = 0.5f64.powi(log.cast_signed());
        if (applied - self.w_q).abs() > 1e-9 * applied {
            tc.round("w_q", self.w_q, applied);
        }
        tc.limit_bytes(site);
        tc.pair("min", min_bytes);
        tc.pair("max", max_bytes);
        tc.pair("avpkt", site.packet_bytes());
        tc.pair("burst", burst);
        tc.pair("probability", self.max_p);
        // The bandwidth gives the transmission time of a packet, by which the average decays while
        // the link is idle.
        tc.pair("bandwidth", format!("{}bit", site.queue.rate.as_bps()));
        if site.queue.ecn {
            tc.word("ecn");
            if !self.mark_above {
                tc.word("harddrop");
            }
        }
        Ok(Some(tc))
    }
}

impl RedParams {
    /// Returns the configuration for the kernel's `red.h`.
    ///
    /// # Errors
    /// If a parameter saturates in fixed point.
    pub fn twin_config(&self, site: &Site) -> Result<Vec<Field>, ParamError> {
        let length = |key, pkts: Packets| fixed_point::length(key, pkts.0, site);
        let slope = |key, per_packet| fixed_point::gain(key, per_packet, site);
        let packet_bytes = site.packet.0 as f64;
        let per_ns = site.rate.packets_per_sec(site.packet) * 1e-9;
        let per_byte = if self.by_size {
            65536.0 / packet_bytes
        } else {
            0.0
        };
        let above = Red::new(self.clone(), site).gentle_slope;
        Ok(vec![
            ("min_th", length("min_th", self.min_th)?),
            ("max_th", length("max_th", self.max_th)?),
            (
                "share",
                slope("max_th", 1.0 / (self.max_th.0 - self.min_th.0))?,
            ),
            ("gentle", i64::from(self.gentle)),
            ("gentle_slope", slope("max_th", above)?),
            ("wait", i64::from(self.wait)),
            ("per_ns", fixed_point::factor("rate", per_ns, per_ns)?),
            ("packet_bytes", site.packet.0.cast_signed()),
            (
                "per_byte",
                fixed_point::factor("by_size", per_byte, per_byte)?,
            ),
        ])
    }
}

/// Returns the smallest burst, in packets, for which tc chooses the weight 2^-`log`; `None` if
/// there is none. tc chooses the smallest weight that keeps the average of a burst below `min`
/// (`tc_red_eval_ewma`; Floyd and Jacobson 1993, section VI).
fn burst_of(log: u32, min_pkts: f64) -> Option<u32> {
    let log_of = |burst: u32| {
        let burst = f64::from(burst);
        let excess = burst + 1.0 - min_pkts;
        (1..32u32).find(|log| {
            let weight = 0.5f64.powi(log.cast_signed());
            excess <= (1.0 - (1.0 - weight).powf(burst)) / weight
        })
    };
    // The weight decreases as the burst grows.
    let (mut low, mut high) = (whole_u32(min_pkts.ceil()), u32::MAX >> 1);
    while low < high {
        let middle = low + (high - low) / 2;
        match log_of(middle) {
            Some(chosen) if chosen < log => low = middle + 1,
            _ => high = middle,
        }
    }
    (log_of(low) == Some(log)).then_some(low)
}

/// RED at a queue. A tuner may change `max_p` and `w_q` while the law runs.
pub struct Red {
    params: RedParams,
    packet_bytes: f64,
    scale: Scale,
    /// The average from which on every packet is dropped.
    full_pkts: f64,
    /// The slope above max_th in gentle mode, computed from the initial max_p. ns-2.35 does not
    /// update it when max_p adapts; the resulting jump is visible in its runs of adaptive RED.
    gentle_slope: f64,
    /// The probability at max_th.
    pub max_p: f64,
    /// The weight of an arrival in the average.
    pub w_q: f64,
    average_pkts: f64,
    /// p_b, before the spacing of signals.
    probability: f64,
    /// Arrivals since the last signal, or their size in usual packets.
    count: f64,
    /// True if the last arrival found the average above min_th.
    above_min: bool,
}

impl Red {
    /// Returns the law in its initial state.
    pub fn new(params: RedParams, site: &Site) -> Red {
        let max_p = params.max_p;
        Red {
            full_pkts: if params.gentle { 2.0 } else { 1.0 } * params.max_th.0,
            gentle_slope: (1.0 - max_p) / params.max_th.0,
            max_p,
            w_q: params.w_q,
            packet_bytes: site.packet.0 as f64,
            scale: Scale::new(site, params.queue_in_bytes),
            params,
            average_pkts: 0.0,
            probability: 0.0,
            count: 0.0,
            above_min: false,
        }
    }

    /// Returns the initial state for the kernel's `red.h`.
    pub fn twin_state(&self) -> Vec<Field> {
        vec![
            ("max_p", fixed_point::probability(self.max_p)),
            ("w_q", fixed_point::probability(self.w_q)),
        ]
    }

    /// Returns the average queue length in packets.
    pub fn average_pkts(&self) -> f64 {
        self.average_pkts
    }

    /// Updates the weighted average at an arrival. Idle time counts as arrivals at an empty queue.
    fn update_average(&mut self, now: Time, q: &QueueView) {
        let w_q = self.w_q;
        if let Some(since) = q.idle_since {
            self.decay(now.since(since), q.rate);
        }
        self.average_pkts = (1.0 - w_q) * self.average_pkts + w_q * self.scale.queue_pkts(q);
    }

    /// Reduces the average as if usual packets had arrived at an empty queue during the idle time.
    #[cold]
    #[inline(never)]
    fn decay(&mut self, idle: Span, rate: Rate) {
        let per_sec = rate.as_bps() as f64 / (8.0 * self.packet_bytes);
        let missed = (per_sec * idle.as_secs_f64()).floor();
        self.average_pkts *= (1.0 - self.w_q).powf(missed);
    }

    /// Returns p_b as a function of the average (pi-pd eq. 2, and gentle mode above max_th).
    pub fn base_probability(&self) -> f64 {
        let (min_th, max_th) = (self.params.min_th.0, self.params.max_th.0);
        let average = self.average_pkts;
        let p = if average < min_th {
            0.0
        } else if average < max_th {
            self.max_p * (average - min_th) / (max_th - min_th)
        } else if self.params.gentle {
            // While max_p has its initial value, this is max_p at max_th and 1 at 2·max_th.
            1.0 + self.gentle_slope * (average - 2.0 * max_th)
        } else {
            1.0
        };
        p.clamp(0.0, 1.0)
    }

    /// Returns the probability of a signal now, which spaces signals evenly (Floyd and Jacobson
    /// section 7; `wait` as in ns-2).
    fn spaced(&self, p_b: f64, bytes: u32) -> f64 {
        let expected = self.count * p_b;
        let p = if self.params.wait {
            if expected < 1.0 {
                0.0
            } else if expected < 2.0 {
                p_b / (2.0 - expected)
            } else {
                1.0
            }
        } else if expected < 1.0 {
            p_b / (1.0 - expected)
        } else {
            1.0
        };
        match self.params.by_size && p < 1.0 {
            true => self.proportional(p, bytes),
            false => p,
        }
    }

    /// Returns the probability `p` for a packet of this size instead of the usual one.
    #[cold]
    #[inline(never)]
    fn proportional(&self, p: f64, bytes: u32) -> f64 {
        p * f64::from(bytes) / self.packet_bytes
    }

    /// Returns the number of packets as which an arrival counts in the spacing of signals.
    fn weight(&self, bytes: u32) -> f64 {
        match self.params.by_size {
            true => self.proportional(1.0, bytes),
            false => 1.0,
        }
    }
}

impl Law for Red {
    fn watches_departures(&self) -> bool {
        false
    }

    #[inline(always)]
    fn on_enqueue(&mut self, now: Time, q: &QueueView, p: &PacketMeta, rng: &mut Rng) -> Verdict {
        self.update_average(now, q);
        let weight = self.weight(p.bytes);
        self.count += weight;

        // A queue of one packet or none cannot be shortened.
        if self.average_pkts < self.params.min_th.0 || q.packets <= 1 {
            self.probability = 0.0;
            self.above_min = false;
            return Verdict::Pass;
        }
        if self.average_pkts >= self.full_pkts {
            self.probability = 1.0;
            self.count = 0.0;
            return match self.params.mark_above {
                true => Verdict::Signal,
                false => Verdict::Drop,
            };
        }
        if !self.above_min {
            // The average has just risen above min_th: counting starts here.
            self.above_min = true;
            self.count = weight;
            return Verdict::Pass;
        }
        self.probability = self.base_probability();
        if rng.chance(self.spaced(self.probability, p.bytes)) {
            self.count = 0.0;
            return Verdict::Signal;
        }
        Verdict::Pass
    }

    fn on_overflow(&mut self, _now: Time, _q: &QueueView) {
        self.count = 0.0;
    }

    fn probe(&self, out: &mut dyn FnMut(&'static str, f64)) {
        out("p", self.probability);
        out("average", self.average_pkts);
        out("max_p", self.max_p);
    }
}

impl FluidLaw for Red {
    /// Updates the average. The count of arrivals since the last signal does not affect the
    /// intensity.
    fn take_fluid(&mut self, step: &FluidStep) -> bool {
        let in_unit = self.scale.packet_pkts(step.packet.bytes);
        let in_units = FluidStep {
            queue_pkts: step.queue_pkts.map(|pkts| in_unit * pkts),
            ..*step
        };
        self.average_pkts = in_units.averaged(self.average_pkts, self.w_q)
            * (1.0 - self.w_q).powf(f64::from(step.missed));
        self.probability = self.base_probability();
        true
    }

    fn intensity(&self, _q: &QueueView) -> Option<f64> {
        let p_b = self.base_probability();
        Some(if p_b >= 1.0 {
            1.0
        } else {
            (signals_per_probability(self.params.wait) * p_b).min(1.0)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::laws::testing::{packet, site, view};
    use forebay_units::{Params, Span};

    const PACKET: PacketMeta = packet(1000);

    fn red(change: impl FnOnce(&mut RedParams)) -> Red {
        let mut params = RedParams::defaults();
        params.min_th = Packets(70.0);
        params.max_th = Packets(200.0);
        change(&mut params);
        Red::new(params, &site())
    }

    /// Returns the fraction of arrivals signalled while the average stays at `pkts`.
    fn rate_at(mut red: Red, pkts: u32) -> f64 {
        let mut rng = Rng::new(1, "test");
        red.average_pkts = f64::from(pkts);
        let n = 400_000;
        let hits = (0..n)
            .filter(|_| red.on_enqueue(Time::ZERO, &view(pkts), &PACKET, &mut rng) != Verdict::Pass)
            .count();
        hits as f64 / f64::from(n)
    }

    #[test]
    fn the_probability_is_piecewise_linear() {
        let mut r = red(|_| {});
        for (average, expected) in [
            (69.0, 0.0),
            (70.0, 0.0),
            (135.0, 0.05),
            (200.0, 0.1),
            (300.0, 0.55),
            (400.0, 1.0),
        ] {
            r.average_pkts = average;
            assert!((r.base_probability() - expected).abs() < 1e-12, "{average}");
        }
        let mut r = red(|p| p.gentle = false);
        r.average_pkts = 200.0;
        assert_eq!(r.base_probability(), 1.0);
    }

    #[test]
    fn wait_spaces_signals_between_one_and_two_over_p() {
        // p_b = 0.05: signals every 1.5/p_b packets with wait, every 0.5/p_b without.
        let with = rate_at(red(|_| {}), 135);
        assert!((with / (0.05 / 1.5) - 1.0).abs() < 0.02, "{with}");
        let without = rate_at(red(|p| p.wait = false), 135);
        assert!((without / (2.0 * 0.05) - 1.0).abs() < 0.02, "{without}");
    }

    #[test]
    fn above_the_upper_threshold_mark_above_decides_between_marks_and_drops() {
        for (marks, expected) in [(false, Verdict::Drop), (true, Verdict::Signal)] {
            let mut r = red(|p| {
                p.gentle = false;
                p.mark_above = marks;
            });
            let max_th = r.params.max_th.0;
            r.average_pkts = 2.0 * max_th;
            let q = view(whole_u32(2.0 * max_th));
            let verdict = r.on_enqueue(Time::ZERO, &q, &packet(1000), &mut Rng::new(0, ""));
            assert_eq!(verdict, expected);
        }
    }

    #[test]
    fn intensity_is_the_measured_rate() {
        for (wait, pkts) in [(true, 135), (false, 135), (true, 250), (false, 100)] {
            let mut r = red(|p| p.wait = wait);
            r.average_pkts = f64::from(pkts);
            let intensity = r.intensity(&view(pkts)).unwrap();
            let measured = rate_at(r, pkts);
            assert!(
                (measured / intensity - 1.0).abs() < 0.1,
                "{wait} {pkts}: {measured} {intensity}"
            );
        }
    }

    #[test]
    fn above_the_upper_threshold_every_packet_is_dropped() {
        assert_eq!(rate_at(red(|p| p.gentle = false), 201), 1.0);
        assert_eq!(rate_at(red(|_| {}), 401), 1.0);
    }

    #[test]
    fn an_idle_link_decays_the_average() {
        let mut r = red(|_| {});
        r.average_pkts = 100.0;
        let mut q = view(0);
        q.idle_since = Some(Time::ZERO);
        // 3750 packets could have left in 1 s, and there is one arrival.
        r.update_average(Time::ZERO + Span::from_secs(1), &q);
        let expected = 100.0 * 0.998f64.powi(3751);
        assert!((r.average_pkts - expected).abs() < 1e-9);
    }

    #[test]
    fn byte_mode_counts_bytes() {
        let mut r = red(|p| p.queue_in_bytes = true);
        let mut q = view(300);
        q.bytes = 12_000; // 300 ACKs of 40 bytes count as 12 usual packets
        r.update_average(Time::ZERO, &q);
        assert!((r.average_pkts - 0.002 * 12.0).abs() < 1e-12);
        let small = red(|p| p.by_size = true);
        assert!((small.weight(40) - 0.04).abs() < 1e-12);
    }
}
