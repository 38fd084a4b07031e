//! RED of Floyd and Jacobson, with the later `gentle` and `wait`, as ns-2.35 runs it.

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
    /// RED. Thresholds count packets; in byte mode, packets of the link's usual size.
    pub struct RedParams {
        /// Average queue below which nothing is signalled.
        min_th: Packets = Packets(5.0), 0.0 => 1e9;
        /// Average queue at which the probability reaches max_p.
        max_th: Packets = Packets(15.0), 0.0 => 1e9;
        /// Probability at max_th.
        max_p: f64 = 0.1, 1e-12 => 1.0;
        /// Weight of an arrival in the average.
        w_q: f64 = 0.002, 1e-12 => 1.0;
        /// Let the probability rise on to 1 at twice max_th instead of jumping there.
        gentle: bool = true;
        /// Space signals by at least 1/p packets: uniform on [1/p, 2/p]. Without it [1, 1/p],
        /// which signals three times as often.
        wait: bool = true;
        /// Above max_th, twice that where gentle, mark what can be marked. Without it everything is
        /// dropped there (RFC 3168 section 7), as in Linux with `harddrop`.
        mark_above: bool = false;
        /// Average bytes instead of packets.
        queue_in_bytes: bool = false;
        /// Signal a packet with a probability in proportion to its size.
        by_size: bool = false;
    }
}

params! {
    /// What RED is designed for.
    pub struct RedGoals {
        /// Phase margin, in degrees.
        phase_margin: f64 = 85.0, 10.0 => 89.99;
        /// Crossover frequency, as a share of the slower of TCP's two poles.
        crossover: f64 = 0.1, 1e-3 => 0.5;
    }
}

/// The rule in a sentence.
pub fn note(design: &AveragingDesign, target_pkts: f64) -> String {
    let settles = if design.q_d_pkts >= target_pkts {
        format!(
            "A RED this stable needs the average {:.1} packets above min_th, more than the \
             wanted {target_pkts:.1}: min_th is 0 and the queue settles at q_d.",
            design.q_d_pkts
        )
    } else {
        format!(
            "The average settles q_d = {:.1} packets above min_th, midway to max_th.",
            design.q_d_pkts
        )
    };
    format!(
        "RED has no integral, so its averaging is made slow enough for the phase margin: it \
         crosses over at {:.4} rad/s and answers in about {:.1} s. {settles}",
        design.omega_g,
        1.0 / design.omega_g
    )
}

/// Signals per arrival over p_b: their mean spacing is 1.5/p_b with `wait`, 0.5/p_b without.
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
        // The average and the slope where the profile reaches p_b; see `base_probability`.
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
        // The rule speaks of the probability that TCP sees.
        let max_p = red.l_red * (max_th - min_th) / signals_per_probability(self.wait);
        let designed = RedParams {
            min_th: Packets(min_th),
            max_th: Packets(max_th),
            max_p: max_p.min(1.0),
            w_q: red.w_q,
            ..self.clone()
        };
        let spacing = format!(
            "RED's spacing of signals makes TCP see {:.4} of the probability, so the parameter \
             max_p is {:.4e}.",
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
                "false in the kernel's header",
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
    /// tc-red(8): classic RED of bytes, with a weight that is a power of two.
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
        let (least, most) = (in_bytes(self.min_th.0), in_bytes(self.max_th.0));
        let log = whole_u32((-self.w_q.log2()).round());
        let burst = burst_of(log, f64::from(least) / unit);
        // red_check_params: the average is a whole number of 32 bits.
        let bits = u32::BITS - most.leading_zeros();
        let (Some(burst), true) = (burst, bits + log < 32) else {
            let allowed = format!("2^-1 to 2^-{} in Linux's red", 31 - bits);
            return Err(ParamError::new("w_q", self.w_q, allowed));
        };
        let taken = 0.5f64.powi(log.cast_signed());
        if (taken - self.w_q).abs() > 1e-9 * taken {
            tc.round("w_q", self.w_q, taken);
        }
        tc.limit_bytes(site);
        tc.pair("min", least);
        tc.pair("max", most);
        tc.pair("avpkt", site.packet_bytes());
        tc.pair("burst", burst);
        tc.pair("probability", self.max_p);
        // For the time that a packet takes of an idle link.
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
    /// What `red.h` takes.
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

/// The least burst, in packets, for which tc takes the weight 2^-`log` (`tc_red_eval_ewma`: the
/// least weight that keeps the average of a burst below `min`; Floyd and Jacobson 1993, section VI).
fn burst_of(log: u32, min_pkts: f64) -> Option<u32> {
    let log_of = |burst: u32| {
        let burst = f64::from(burst);
        let rest = burst + 1.0 - min_pkts;
        (1..32u32).find(|log| {
            let weight = 0.5f64.powi(log.cast_signed());
            rest <= (1.0 - (1.0 - weight).powf(burst)) / weight
        })
    };
    // The weight falls as the burst grows.
    let (mut low, mut high) = (whole_u32(min_pkts.ceil()), u32::MAX >> 1);
    while low < high {
        let middle = low + (high - low) / 2;
        match log_of(middle) {
            Some(found) if found < log => low = middle + 1,
            _ => high = middle,
        }
    }
    (log_of(low) == Some(log)).then_some(low)
}

/// RED's state; a tuner over it sets `max_p` and `w_q`.
pub struct Red {
    params: RedParams,
    packet_bytes: f64,
    scale: Scale,
    /// From here on every packet is dropped.
    full_pkts: f64,
    /// Slope above max_th in gentle mode, from max_p as it was at the start: ns-2.35 does not
    /// update it when a tuner moves max_p, and its adaptive RED runs show the jump.
    gentle_slope: f64,
    pub max_p: f64,
    pub w_q: f64,
    average_pkts: f64,
    /// p_b, before the spacing of signals.
    probability: f64,
    /// Arrivals (or their size in usual packets) since the last signal.
    count: f64,
    /// Whether the last arrival found the average above min_th.
    above_min: bool,
}

impl Red {
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

    /// As `red.h` starts.
    pub fn twin_state(&self) -> Vec<Field> {
        vec![
            ("max_p", fixed_point::probability(self.max_p)),
            ("w_q", fixed_point::probability(self.w_q)),
        ]
    }

    pub fn average_pkts(&self) -> f64 {
        self.average_pkts
    }

    /// The weighted average, with an idle link counted as arrivals to an empty queue.
    fn update_average(&mut self, now: Time, q: &QueueView) {
        let w_q = self.w_q;
        if let Some(since) = q.idle_since {
            self.decay(now.since(since), q.rate);
        }
        self.average_pkts = (1.0 - w_q) * self.average_pkts + w_q * self.scale.queue_pkts(q);
    }

    /// The average as if packets had come to an empty queue for so long.
    #[cold]
    fn decay(&mut self, idle: Span, rate: Rate) {
        let per_sec = rate.as_bps() as f64 / (8.0 * self.packet_bytes);
        let missed = (per_sec * idle.as_secs_f64()).floor();
        self.average_pkts *= (1.0 - self.w_q).powf(missed);
    }

    /// p_b as a function of the average (pi-pd eq. 2, and gentle mode above max_th).
    pub fn base_probability(&self) -> f64 {
        let (min_th, max_th) = (self.params.min_th.0, self.params.max_th.0);
        let average = self.average_pkts;
        let p = if average < min_th {
            0.0
        } else if average < max_th {
            self.max_p * (average - min_th) / (max_th - min_th)
        } else if self.params.gentle {
            // Meets max_p at max_th and 1 at 2·max_th while max_p is as at the start.
            1.0 + self.gentle_slope * (average - 2.0 * max_th)
        } else {
            1.0
        };
        p.clamp(0.0, 1.0)
    }

    /// Spaces signals evenly (Floyd and Jacobson section 7; `wait` as in ns-2).
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
        if self.params.by_size && p < 1.0 {
            p * f64::from(bytes) / self.packet_bytes
        } else {
            p
        }
    }

    fn weight(&self, bytes: u32) -> f64 {
        if self.params.by_size {
            f64::from(bytes) / self.packet_bytes
        } else {
            1.0
        }
    }
}

impl Law for Red {
    fn watches_departures(&self) -> bool {
        false
    }

    fn on_enqueue(&mut self, now: Time, q: &QueueView, p: &PacketMeta, rng: &mut Rng) -> Verdict {
        self.update_average(now, q);
        let weight = self.weight(p.bytes);
        self.count += weight;

        // With one packet or none waiting there is nothing to shorten.
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
            // The average has just risen above min_th: start counting here.
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
    /// The count of arrivals since the last signal does not enter the intensity.
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

    /// Fraction of arrivals signalled with the average held at `pkts`.
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
        for (average, want) in [
            (69.0, 0.0),
            (70.0, 0.0),
            (135.0, 0.05),
            (200.0, 0.1),
            (300.0, 0.55),
            (400.0, 1.0),
        ] {
            r.average_pkts = average;
            assert!((r.base_probability() - want).abs() < 1e-12, "{average}");
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
    fn above_the_upper_threshold_it_drops_or_marks_as_it_is_told() {
        for (marks, want) in [(false, Verdict::Drop), (true, Verdict::Signal)] {
            let mut r = red(|p| {
                p.gentle = false;
                p.mark_above = marks;
            });
            let max_th = r.params.max_th.0;
            r.average_pkts = 2.0 * max_th;
            let q = view(whole_u32(2.0 * max_th));
            let verdict = r.on_enqueue(Time::ZERO, &q, &packet(1000), &mut Rng::new(0, ""));
            assert_eq!(verdict, want);
        }
    }

    #[test]
    fn intensity_is_the_measured_rate() {
        for (wait, pkts) in [(true, 135), (false, 135), (true, 250), (false, 100)] {
            let mut r = red(|p| p.wait = wait);
            r.average_pkts = f64::from(pkts);
            let told = r.intensity(&view(pkts)).unwrap();
            let seen = rate_at(r, pkts);
            assert!(
                (seen / told - 1.0).abs() < 0.1,
                "{wait} {pkts}: {seen} {told}"
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
        // 3750 packets could have left in 1 s; then one arrival more.
        r.update_average(Time::ZERO + Span::from_secs(1), &q);
        let want = 100.0 * 0.998f64.powi(3751);
        assert!((r.average_pkts - want).abs() < 1e-9);
    }

    #[test]
    fn byte_mode_counts_bytes() {
        let mut r = red(|p| p.queue_in_bytes = true);
        let mut q = view(300);
        q.bytes = 12_000; // 300 ACKs of 40 bytes are 12 usual packets
        r.update_average(Time::ZERO, &q);
        assert!((r.average_pkts - 0.002 * 12.0).abs() < 1e-12);
        let small = red(|p| p.by_size = true);
        assert!((small.weight(40) - 0.04).abs() < 1e-12);
    }
}
