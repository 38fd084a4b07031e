//! Adaptive RED of Floyd, Gummadi and Shenker, as implemented in ns-2.35: RED whose max_p increases
//! additively and decreases multiplicatively, to keep the average queue in the middle of its range.

use forebay_linux_tc::fixed_point::{self, FixedPointLaw, Twin};
use forebay_linux_tc::{LinuxQdisc, Tc, TcSite};
use forebay_theory::design::{DesignRequest, DesignResult, LinearLaw};
use forebay_theory::linear::{LoopFilter, OperatingPoint};
use forebay_theory::search::{number, time, Axis, Condition, Conditions, Point, Search, Space};
use forebay_units::{
    params, Packets, ParamError, ParamValues, Params, Rate, SetPoint, Site, Span, Time,
};

use crate::configured_law::ConfiguredLaw;
use crate::law::Law;
use crate::law_spec::LawSpec;
use crate::laws::red::{signals_per_probability, Red, RedGoals, RedParams};
use crate::tuner::{Tuned, Tuner};

/// The registry entry of Adaptive RED.
pub const LAW: LawSpec = LawSpec::of::<AredParams>(
    "ared",
    "Adaptive RED: RED whose max_p keeps the average queue midway between the thresholds",
    "Floyd, Gummadi and Shenker 2001; pd-red section III; staqm section IV",
)
.with_equation(
    "RED;  each interval max_p += min(alpha, max_p/4) above, max_p *= beta below the middle of [min_th, max_th]",
)
.with_set_point("target_delay")
.with_goals(RedGoals::SPECS)
.with_search(AredParams::search);

params! {
    /// Adaptive RED. If a threshold, w_q or bottom is zero, its value is derived from the link's
    /// rate.
    pub struct AredParams {
        /// Queuing delay from which the thresholds are derived.
        target_delay: Span = Span::from_millis(5), 1e-6 => 60.0;
        /// Average queue below which nothing is signalled. Zero: half of the packets that the link
        /// sends in target_delay, at least 5.
        min_th: Packets = Packets(0.0), 0.0 => 1e9;
        /// Average queue at which the probability reaches max_p. Zero: three times min_th.
        max_th: Packets = Packets(0.0), 0.0 => 1e9;
        /// Initial probability at max_th.
        max_p: f64 = 0.1, 1e-12 => 1.0;
        /// Weight of an arrival in the average. Zero: 1 − exp(−1/C), a time constant of 1 s.
        w_q: f64 = 0.0, 0.0 => 1.0;
        /// Largest increase of max_p in one step; an increase is never more than a quarter of
        /// max_p.
        alpha: f64 = 0.01, 0.0 => 1.0;
        /// Factor by which max_p is decreased.
        beta: f64 = 0.9, 1e-3 => 1.0;
        /// Shortest time between two changes of max_p.
        interval: Span = Span::from_millis(500), 1e-6 => 60.0;
        /// Value of max_p above which adaptation does not increase it.
        top: f64 = 0.5, 1e-12 => 1.0;
        /// Value of max_p below which adaptation does not decrease it. Zero: 0.01, or 80 kbit/s
        /// over the rate if that is less.
        bottom: f64 = 0.0, 0.0 => 1.0;
        /// Above max_th, let the probability rise linearly to 1 at twice max_th. The slope there is
        /// that of the initial max_p, as in ns-2.35, which can trap the average above max_th.
        gentle: bool = true;
        /// Space signals by at least 1/p packets.
        wait: bool = true;
        /// Mark ECN-capable packets even above max_th (twice max_th if gentle), where otherwise
        /// every packet is dropped.
        mark_above: bool = false;
        /// Average bytes instead of packets.
        queue_in_bytes: bool = false;
        /// Make the probability proportional to the size of the packet.
        by_size: bool = false;
    }
}

impl AredParams {
    /// Returns RED's parameters, with those that are zero derived from the link (Floyd et al. 2001;
    /// staqm section IV.A).
    pub fn red(&self, site: &Site) -> RedParams {
        let pkts_per_s = site.rate.packets_per_sec(site.packet);
        let min_th = if self.min_th.0 > 0.0 {
            self.min_th.0
        } else {
            least_threshold_pkts(self.target_delay.as_secs_f64(), pkts_per_s)
        };
        RedParams {
            min_th: Packets(min_th),
            max_th: if self.max_th.0 > 0.0 {
                self.max_th
            } else {
                Packets(3.0 * min_th)
            },
            max_p: self.max_p,
            w_q: if self.w_q > 0.0 {
                self.w_q
            } else {
                -(-1.0 / pkts_per_s).exp_m1()
            },
            gentle: self.gentle,
            wait: self.wait,
            queue_in_bytes: self.queue_in_bytes,
            by_size: self.by_size,
            mark_above: self.mark_above,
        }
    }

    /// Returns the adaptation of max_p with these parameters.
    fn adaptation(&self, red: &RedParams, site: &Site) -> Adaptation {
        Adaptation {
            low_pkts: red.min_th.0 + QUIET.0 * (red.max_th.0 - red.min_th.0),
            high_pkts: red.max_th.0 - (1.0 - QUIET.1) * (red.max_th.0 - red.min_th.0),
            alpha: self.alpha,
            beta: self.beta,
            interval: self.interval,
            bottom: self.bottom(site),
            top: self.top,
            last_change: Time::ZERO,
        }
    }

    /// Returns the value of max_p below which adaptation does not decrease it.
    fn bottom(&self, site: &Site) -> f64 {
        if self.bottom > 0.0 {
            return self.bottom;
        }
        least_max_p(site.rate)
    }
}

/// The value of `max_p` below which Linux's red does not decrease it.
const LINUX_BOTTOM: f64 = 0.01;

/// The part of the range between the thresholds in which adaptation leaves max_p alone.
const QUIET: (f64, f64) = (0.4, 0.6);

/// Returns min_th: half of the packets that the link sends in the target delay, at least 5.
fn least_threshold_pkts(target_delay_s: f64, pkts_per_s: f64) -> f64 {
    (target_delay_s * pkts_per_s / 2.0).max(5.0)
}

/// Returns 1/W, for a window W of 1000-byte packets that fills the link for 100 ms; at most 0.01.
fn least_max_p(rate: Rate) -> f64 {
    (80_000.0 / rate.as_bps() as f64).min(0.01)
}

impl AredParams {
    fn search(conditions: &Conditions) -> Search {
        let (slowest, _) = conditions.capacities_pkts_per_s();
        let (_, longest_rtt_s) = conditions.rtts_s();
        let longest_s = (0.5 * conditions.buffer_pkts / slowest).min(longest_rtt_s);
        let axes = [
            Axis::new("delay", 0.001, longest_s.max(0.002)),
            conditions.weight(),
        ];
        let queue_pkts = move |x: &Point| (x["delay"] * slowest).max(10.0);
        let settings = |x: &Point| {
            vec![
                ("target_delay", time(x["delay"], 4)),
                ("w_q", number(x["w_q"])),
            ]
        };
        let packet = conditions.packet;
        // Adaptation moves max_p until the average is midway between min_th and 3·min_th.
        let adapted = move |x: &Point, at: &Condition, flows: f64| {
            let law = AredParams::defaults();
            let capacity = at.rate.packets_per_sec(packet);
            let queue_pkts = 2.0 * least_threshold_pkts(x["delay"], capacity);
            let point = OperatingPoint::of_flows(flows, at.rtt_s + queue_pkts / capacity, capacity);
            let max_p = 2.0 * point.probability() / signals_per_probability(law.wait);
            vec![(
                "max_p",
                number(max_p.max(least_max_p(at.rate)).min(law.top)),
            )]
        };
        Search::Space(Space::new(axes, queue_pkts, settings).adapting(adapted))
    }
}

impl ConfiguredLaw for AredParams {
    fn check(&self, site: &Site) -> Result<(), ParamError> {
        self.red(site).check(site)
    }

    fn build(&self, site: &Site, _seed: u64) -> Result<Box<dyn Law>, ParamError> {
        self.check(site)?;
        let red = self.red(site);
        let tuner = self.adaptation(&red, site);
        Ok(Box::new(Tuned::new(Red::new(red, site), tuner)))
    }

    /// Returns the target delay if the thresholds are derived from it.
    fn set_point(&self) -> Option<SetPoint> {
        let derived = self.min_th.0 <= 0.0 && self.max_th.0 <= 0.0;
        derived.then_some(SetPoint::Delay(self.target_delay))
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

impl LinearLaw for AredParams {
    /// RED with the initial max_p, if the equilibrium is in the middle fifth of the range.
    /// Otherwise adaptation moves max_p until the equilibrium is at the nearer edge of that fifth,
    /// or max_p reaches a bound. Adaptation is too slow to matter for the loop.
    fn linear(&self, point: &OperatingPoint, site: &Site) -> Option<LoopFilter> {
        let mut red = self.red(site);
        let (start, p_b) = (
            red.max_p,
            point.probability() / signals_per_probability(self.wait),
        );
        red.max_p = start.clamp(
            (p_b / QUIET.1).min(self.top.max(start)),
            (p_b / QUIET.0).max(self.bottom(site).min(start)),
        );
        if p_b < red.max_p || !self.gentle {
            return red.linear(point, site);
        }
        // Above max_th the slope is that of the initial max_p: see `Red::gentle_slope`.
        red.max_p = start;
        red.linear(point, site)
    }

    /// RED's rule for the parameters that adaptation does not move, and for the initial max_p.
    fn design(&self, request: &DesignRequest, goals: &ParamValues) -> DesignResult {
        let mut red = RedParams::defaults();
        red.wait = self.wait;
        let Some(mut design) = red.design(request, goals)? else {
            return Ok(None);
        };
        design.notes.push(
            "Adaptation moves max_p from there, up to twice the designed loop gain and beyond \
             where the load differs."
                .into(),
        );
        Ok(Some(design))
    }
}

impl FixedPointLaw for AredParams {
    fn twin(&self, site: &Site) -> Result<Twin, ParamError> {
        if self.mark_above {
            let expected = "false, since the law in the kernel does not support it";
            return Err(ParamError::new("mark_above", true, expected));
        }
        let red = self.red(site);
        let length = |pkts| fixed_point::length("max_th", pkts, site);
        let adaptation = self.adaptation(&red, site);
        let mut config = red.twin_config(site)?;
        config.extend([
            ("low", length(adaptation.low_pkts)?),
            ("high", length(adaptation.high_pkts)?),
            ("alpha", fixed_point::probability(self.alpha)),
            ("beta", fixed_point::probability(self.beta)),
            ("pause_ns", fixed_point::nanos(self.interval)),
            ("bottom", fixed_point::probability(adaptation.bottom)),
            ("top", fixed_point::probability(self.top)),
        ]);
        Ok(Twin {
            interval: None,
            config,
            state: Red::new(red, site).twin_state(),
        })
    }
}

impl LinuxQdisc for AredParams {
    /// tc-red(8) with `adaptive`: the kernel's adaptation has constants (`red_adaptative_algo`).
    fn tc(&self, queue: &str, site: &TcSite) -> Result<Option<Tc>, ParamError> {
        let law_site = site.queue.law_site();
        Tc::new("red").defaults(self, &["alpha", "beta", "interval", "top"])?;
        let Some(mut tc) = self.red(&law_site).tc(queue, site)? else {
            return Ok(None);
        };
        let bottom = self.bottom(&law_site);
        if (bottom - LINUX_BOTTOM).abs() > 1e-12 {
            let expected = format!("{LINUX_BOTTOM}, which is constant in Linux's red");
            return Err(ParamError::new("bottom", bottom, expected));
        }
        tc.word("adaptive");
        Ok(Some(tc))
    }
}

/// The adaptation of max_p.
struct Adaptation {
    low_pkts: f64,
    high_pkts: f64,
    alpha: f64,
    beta: f64,
    interval: Span,
    bottom: f64,
    top: f64,
    last_change: Time,
}

impl Tuner<Red> for Adaptation {
    fn watches_departures(&self) -> bool {
        false
    }

    /// ns-2.35 adapts at arrivals, and measures the interval from the last change, not from the
    /// last check: after a period within the band, the first change is immediate. It adapts just
    /// before it decides on the arrival, and this implementation just after: one packet per
    /// interval sees the older max_p.
    fn arrival(&mut self, now: Time, red: &mut Red) {
        if now <= self.last_change + self.interval {
            return;
        }
        let average_pkts = red.average_pkts();
        // The bounds stop further changes; the last step may exceed them.
        if average_pkts < self.low_pkts && red.max_p > self.bottom {
            red.max_p *= self.beta;
        } else if average_pkts > self.high_pkts && red.max_p < self.top {
            red.max_p += self.alpha.min(red.max_p / 4.0);
        } else {
            return;
        }
        self.last_change = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::law::{PacketMeta, Verdict};
    use crate::laws::testing::{packet, probed, site, view};
    use forebay_units::{Params, Rng};

    /// Returns pd-red's ARED with an average that equals the queue at the last arrival.
    fn law(change: impl FnOnce(&mut AredParams)) -> Box<dyn Law> {
        let mut params = AredParams::defaults();
        params.min_th = Packets(15.0);
        params.max_th = Packets(785.0);
        params.max_p = 0.01;
        params.w_q = 1.0;
        change(&mut params);
        params.build(&site(), 0).unwrap()
    }

    const PACKET: PacketMeta = packet(1000);

    /// Returns max_p after an arrival at `ms` that finds `packets` in the queue.
    fn arrive(law: &mut dyn Law, ms: u64, packets: u32) -> f64 {
        let now = Time::ZERO + Span::from_millis(ms);
        let _: Verdict = law.on_enqueue(now, &view(packets), &PACKET, &mut Rng::new(1, "test"));
        probed(law, "max_p")
    }

    #[test]
    fn max_p_rises_and_falls_outside_the_band() {
        // Band: 15 + 0.4·770 = 323 to 785 − 308 = 477.
        let mut law = law(|_| {});
        assert_eq!(arrive(&mut *law, 500, 478), 0.01); // not later than lastset + interval
        assert_eq!(arrive(&mut *law, 501, 478), 0.0125); // a quarter of 0.01
        assert_eq!(arrive(&mut *law, 1001, 478), 0.0125);
        assert_eq!(arrive(&mut *law, 1002, 322), 0.0125 * 0.9);
        assert_eq!(arrive(&mut *law, 1600, 323), 0.0125 * 0.9);
        assert_eq!(arrive(&mut *law, 1700, 477), 0.0125 * 0.9);
        // The last change was at 1002 ms, so the next one need not wait.
        assert_eq!(arrive(&mut *law, 1701, 322), 0.0125 * 0.81);
    }

    #[test]
    fn the_step_up_is_at_most_alpha() {
        let mut law = law(|p| p.max_p = 0.2);
        assert!((arrive(&mut *law, 501, 600) - 0.21).abs() < 1e-15);
    }

    #[test]
    fn the_bounds_stop_further_changes() {
        let mut high = law(|p| p.max_p = 0.5);
        assert_eq!(arrive(&mut *high, 501, 600), 0.5);
        // bottom = 80 000/30e6 = 1/375: 0.0027 decreases once, and is then below.
        let mut low = law(|p| p.max_p = 0.0027);
        assert_eq!(arrive(&mut *low, 501, 100), 0.0027 * 0.9);
        assert_eq!(arrive(&mut *low, 1002, 100), 0.0027 * 0.9);
    }

    #[test]
    fn the_gentle_slope_keeps_the_initial_max_p() {
        // ns-2.35's trap: adapted to 0.0125, p falls from 0.0125 to 0.01 on crossing max_th.
        let mut law = law(|_| {});
        arrive(&mut *law, 501, 700);
        arrive(&mut *law, 502, 785);
        assert!((probed(&*law, "p") - 0.01).abs() < 1e-12);
    }

    #[test]
    fn parameters_of_zero_are_derived_from_the_link() {
        // staqm section IV.A: 622 Mbit/s, 500-byte packets.
        let site = Site {
            rate: forebay_units::Rate::from_bps(622_000_000),
            buffer_pkts: 3600.0,
            packet: forebay_units::Bytes(500),
        };
        let params = AredParams::defaults();
        let red = params.red(&site);
        // 5 ms · 155 500/s / 2 = 388.75; the paper rounds to 400 and 1200.
        assert!((red.min_th.0 - 388.75).abs() < 1e-9);
        assert!((red.max_th.0 - 1166.25).abs() < 1e-9);
        assert!((red.w_q - 6.4308e-6).abs() < 1e-10);
        assert!((params.bottom(&site) - 80_000.0 / 622e6).abs() < 1e-12);
    }
}
