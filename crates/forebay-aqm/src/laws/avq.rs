//! AVQ of Kunniyur and Srikant: packets that would overflow a virtual queue with a lower capacity are
//! signalled. The law adapts the virtual capacity so that arrivals reach the desired utilisation.

use std::f64::consts::PI;

use forebay_linux_tc::fixed_point::{self, FixedPointLaw, Twin};
use forebay_theory::design::{Design, DesignRequest, DesignResult, LinearLaw, RateControl};
use forebay_theory::linear::OperatingPoint;
use forebay_theory::search::{Conditions, Search};
use forebay_units::{no_goals, params, Packets, ParamError, ParamValues, Rng, Site, Time};

use crate::configured_law::ConfiguredLaw;
use crate::law::{FluidLaw, Law, PacketMeta, QueueView, Signal, Verdict};
use crate::law_spec::LawSpec;
use crate::virtual_queue::{link_bytes_per_s, listed, virtual_buffer_pkts, VirtualQueue, BURSTS};

/// The registry entry of AVQ.
pub const LAW: LawSpec = LawSpec::of::<AvqParams>(
    "avq",
    "AVQ: signal packets that overflow a virtual queue, with a capacity adapted to the arrival rate",
    "Kunniyur and Srikant 2001; e-avq eq. (1), (2); pi-pd section 2.5",
)
.with_equation(
    "signal what overflows a virtual queue of capacity C̃;  C̃' = alpha·(gamma·C − λ)",
)
.with_reality(BURSTS)
.with_search(AvqParams::search);

params! {
    /// AVQ, with the defaults of ns-2.35.
    pub struct AvqParams {
        /// Desired utilisation of the link.
        gamma: f64 = 0.98, 0.0 => 1.0;
        /// Rate at which the virtual capacity adapts, per second.
        alpha: f64 = 0.15, 0.0 => 1e3;
        /// Initial virtual capacity, as a fraction of the link's.
        start_share: f64 = 0.8, 0.0 => 1.0;
        /// Size of the virtual buffer. Zero: as large as the real one.
        virtual_buffer: Packets = Packets(0.0), 0.0 => 1e9;
        /// Count dropped packets as arrivals, as the papers do. ns-2 does not; without ECN, the
        /// carried instead of the offered load then reaches gamma.
        count_drops: bool = true;
    }
}

/// The fluid model of TCP under AVQ (e-avq eq. 18 with C̃' = −α·δλ). It is a model of rates, without a
/// queue: δλ' = −K11·δλ − K12·δλ(t − d) + K2·δC̃(t − d), with K2 = K12.
#[derive(Clone, Copy, Debug)]
pub struct RateModel {
    /// K11, in 1/s.
    pub k11: f64,
    /// K12 = K2, in 1/s.
    pub k12: f64,
}

impl RateModel {
    /// Returns the model at an operating point, with β = 2/3 as in e-avq.
    pub fn new(gamma: f64, point: &OperatingPoint) -> RateModel {
        let window = gamma * point.window_pkts();
        RateModel {
            k11: 1.0 / (window * point.rtt_s),
            k12: (2.0 / 3.0) * window / point.rtt_s,
        }
    }
}

/// Returns the smallest α at which the loop oscillates: where s² + K11·s + (K12·s + α·K2)e^{−sd} has
/// a root jω. Its two parts are K12 = ω·sin ωd − K11·cos ωd and α·K2 = ω²·cos ωd + K11·ω·sin ωd.
///
/// `None` if the loop oscillates with every α. The marking of a virtual queue of constant capacity
/// alone, with the slope of e-avq eq. (4), is too steep for windows above about 2.8 packets. Katabi
/// and Blake 2002 found that AVQ's own stability condition has no solution for real networks.
pub fn alpha_bound(gamma: f64, point: &OperatingPoint) -> Option<f64> {
    let RateModel { k11, k12 } = RateModel::new(gamma, point);
    let d = point.rtt_s;
    // ω·sin ωd − K11·cos ωd rises from −K11 at ω = 0 for ωd in (0, π/2], where α·K2 is positive.
    let (mut low, mut high) = (0.0, PI / (2.0 * d));
    let excess = |w: f64| w * (w * d).sin() - k11 * (w * d).cos() - k12;
    let alpha = |w: f64| (w * w * (w * d).cos() + k11 * w * (w * d).sin()) / k12;
    // Past π/2, α falls through zero at tan ωd = −ω/K11.
    while alpha(high) > 0.0 {
        high += 0.01 / d;
    }
    if excess(high) <= 0.0 {
        return None;
    }
    for _ in 0..100 {
        let middle = 0.5 * (low + high);
        if excess(middle) < 0.0 {
            low = middle;
        } else {
            high = middle;
        }
    }
    Some(alpha(low)).filter(|alpha| *alpha > 0.0)
}

impl AvqParams {
    fn search(conditions: &Conditions) -> Search {
        listed(conditions)
    }
}

impl ConfiguredLaw for AvqParams {
    fn check(&self, site: &Site) -> Result<(), ParamError> {
        virtual_buffer_pkts(self.virtual_buffer, site).map(|_| ())
    }

    fn build(&self, site: &Site, _seed: u64) -> Result<Box<dyn Law>, ParamError> {
        self.check(site)?;
        Ok(Box::new(Avq {
            params: self.clone(),
            queue: VirtualQueue::new(self.virtual_buffer, self.start_share, site),
            last: Time::ZERO,
        }))
    }

    fn theory(&self) -> Option<&dyn LinearLaw> {
        Some(self)
    }

    fn kernel(&self) -> Option<&dyn FixedPointLaw> {
        Some(self)
    }
}

impl LinearLaw for AvqParams {
    fn design(&self, request: &DesignRequest, goals: &ParamValues) -> DesignResult {
        no_goals(goals)?;
        let model = RateModel::new(self.gamma, &request.point);
        let mut designed = self.clone();
        let mut gains = vec![("k11", model.k11), ("k12", model.k12)];
        let note = match alpha_bound(self.gamma, &request.point) {
            Some(bound) => {
                designed.alpha = (bound / 2.0).min(1e3);
                gains.push(("alpha_bound", bound));
                format!(
                    "The rate loop oscillates for alpha above {bound:.4}; the design takes half of \
                     that."
                )
            }
            None => format!(
                "No alpha makes the rate loop stable: with a window of {:.1} packets, marking \
                 responds too steeply to the rate. alpha is unchanged.",
                request.point.window_pkts()
            ),
        };
        gains.push(("alpha", designed.alpha));
        Ok(Some(Design::of(gains, &designed, &["alpha"], vec![note])))
    }

    /// e-avq eq. (1): C̃' = α(γC − λ).
    fn rate_control(&self) -> Option<RateControl> {
        Some(RateControl {
            utilisation: self.gamma,
            k_p: 0.0,
            k_i: self.alpha,
            k_d: 0.0,
        })
    }
}

impl FixedPointLaw for AvqParams {
    fn twin(&self, site: &Site) -> Result<Twin, ParamError> {
        let link = site.rate.as_bps() as f64 / 8.0;
        let buffer_pkts = virtual_buffer_pkts(self.virtual_buffer, site)?;
        // The units of lengths and of rates differ in fixed point.
        let per_length =
            self.alpha * 1e-9 * 2f64.powi(fixed_point::RATE_BITS - fixed_point::LENGTH_BITS);
        Ok(Twin {
            interval: None,
            config: vec![
                (
                    "buffer",
                    fixed_point::length("virtual_buffer", buffer_pkts, site)?,
                ),
                ("gamma", fixed_point::probability(self.gamma)),
                (
                    "alpha",
                    fixed_point::factor("alpha", self.alpha, per_length)?,
                ),
                ("count_drops", i64::from(self.count_drops)),
            ],
            state: vec![("capacity", fixed_point::rate(self.start_share * link))],
        })
    }
}

/// AVQ at a queue. It has no `intensity`, because overflows depend on the arrivals and not on the
/// length of the queue.
struct Avq {
    params: AvqParams,
    queue: VirtualQueue,
    last: Time,
}

impl Law for Avq {
    fn watches_departures(&self) -> bool {
        false
    }

    fn on_enqueue(&mut self, now: Time, q: &QueueView, p: &PacketMeta, _: &mut Rng) -> Verdict {
        let overflow = self.queue.overflows(now, p.bytes);
        if overflow && p.signal == Signal::Drop && !self.params.count_drops {
            return Verdict::Signal;
        }
        // e-avq eq. (1), integrated from the last arrival to this one: λ·Δt is this packet.
        let link = link_bytes_per_s(q);
        let elapsed_s = now.since(self.last).as_secs_f64();
        self.last = now;
        let change = self.params.gamma * link * elapsed_s - f64::from(p.bytes);
        self.queue.adjust(self.params.alpha * change, link);
        Verdict::signal_if(overflow)
    }

    fn probe(&self, out: &mut dyn FnMut(&'static str, f64)) {
        self.queue.probe(out);
    }
}

impl FluidLaw for Avq {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::laws::testing::{packet, probed, site, view};
    use forebay_units::{Params, Span};

    #[test]
    fn the_capacity_follows_equation_1() {
        let mut law = AvqParams::defaults().build(&site(), 0).unwrap();
        let mut rng = Rng::new(1, "test");
        let mut arrive = |us, bytes| {
            let now = Time::ZERO + Span::from_micros(us);
            law.on_enqueue(now, &view(0), &packet(bytes), &mut rng);
            probed(&*law, "virtual_capacity_bps") / 8.0
        };
        // C = 3.75e6 bytes/s, so C̃ starts at 3e6. In 1 ms γC amounts to 3675 bytes.
        let mut want = 3e6 + 0.15 * (3675.0 - 1000.0);
        assert!((arrive(1000, 1000) - want).abs() < 1e-6);
        want += 0.15 * (3675.0 - 8000.0);
        assert!((arrive(2000, 8000) - want).abs() < 1e-6);
        // Each second without arrivals adds α·γ·C·1 s = 551 250; after two, C̃ is limited to C.
        want += 0.15 * (3.675e6 - 1000.0);
        assert!((arrive(1_002_000, 1000) - want).abs() < 1e-6);
        assert_eq!(arrive(2_002_000, 1000), 3.75e6);
    }

    #[test]
    fn the_bound_on_alpha_is_a_root_on_the_imaginary_axis() {
        // A window of two packets: N = 50, C = 1000/s, d = 0.1 s.
        let point = OperatingPoint::of_flows(50.0, 0.1, 1000.0);
        let RateModel { k11, k12 } = RateModel::new(0.98, &point);
        assert!((k11 - 50.0 / (0.98 * 1000.0 * 0.01)).abs() < 1e-9);
        assert!((k12 - (2.0 / 3.0) * 0.98 * 1000.0 / 50.0).abs() < 1e-9);
        let bound = alpha_bound(0.98, &point).unwrap();
        // The characteristic equation has a root where magnitudes and phases agree.
        let residue = |w: f64| {
            let (re, im) = ((w * 0.1).cos(), -(w * 0.1).sin());
            let a = -w * w + bound * k12 * re - k12 * w * im;
            let b = k11 * w + bound * k12 * im + k12 * w * re;
            a.hypot(b)
        };
        let least = (1..200_000)
            .map(|k| residue(f64::from(k) * 2e-4))
            .fold(f64::MAX, f64::min);
        assert!(least < 1e-2, "{least}");
        // With a window of twenty packets no alpha is stable.
        assert_eq!(
            alpha_bound(0.98, &OperatingPoint::of_flows(5.0, 0.1, 1000.0)),
            None
        );
    }

    #[test]
    fn arrivals_at_gamma_leave_the_capacity_alone() {
        // A million packets of 1000 bytes, one every 1000/(0.98·3.75e6) s = 272.109 us.
        let mut law = AvqParams::defaults().build(&site(), 0).unwrap();
        let mut rng = Rng::new(1, "test");
        for k in 1..=1_000_000_u64 {
            let now = Time::from_nanos((k as f64 * 1e12 / 3.675e6) as u64);
            law.on_enqueue(now, &view(0), &packet(1000), &mut rng);
        }
        let capacity = probed(&*law, "virtual_capacity_bps") / 8.0;
        assert!((capacity - 3e6).abs() < 1.0, "{capacity}");
    }

    #[test]
    fn packets_that_overflow_the_virtual_queue_are_signalled() {
        // All packets arrive at the same time, so exactly 800 packets of 1000 bytes fit.
        let mut law = AvqParams::defaults().build(&site(), 0).unwrap();
        let mut rng = Rng::new(1, "test");
        let verdicts: Vec<_> = (0..802)
            .map(|_| law.on_enqueue(Time::ZERO, &view(0), &packet(1000), &mut rng))
            .collect();
        assert_eq!(verdicts[799], Verdict::Pass);
        assert_eq!(verdicts[800..], [Verdict::Signal, Verdict::Signal]);
    }
}
