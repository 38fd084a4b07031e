//! REM of Athuraliya, Low, Li and Yin: a price that rises with the backlog and the excess rate, and a
//! signal probability that is exponential in the price, so that the prices along a path add up.

use forebay_theory::design::{Design, DesignRequest, DesignResult, LinearLaw};
use forebay_theory::linear::{LoopFilter, OperatingPoint};
use forebay_theory::search::{number, packets, Conditions, Search, Space};
use forebay_units::{params, Bytes, ParamError, ParamValues, Params, SetPoint, Site, Span};

use crate::clock::{state_of, State};
use crate::configured_law::{fits_buffer, ConfiguredLaw};
use crate::difference::Coefficients;
use crate::law::{FluidStep, Law, PacketMeta, QueueView, Scale, Target};
use crate::law_spec::LawSpec;
use crate::laws::pi::PiGoals;
use crate::periodic::{Controller, Periodic, Sample};

/// The registry entry of REM.
pub const LAW: LawSpec = LawSpec::of::<RemParams>(
    "rem",
    "REM: signal with a probability exponential in a price of backlog and excess rate",
    "Athuraliya, Low, Li and Yin 2001",
)
.with_equation("p = 1 − phi^(−price);  price += gamma·(alpha·(q − target) + q − q_{k−1})")
.with_goals(PiGoals::SPECS)
.slowed_by("beta")
.with_search(RemParams::search);

params! {
    /// REM, with the defaults of ns-2.35, which REM's first author chose.
    pub struct RemParams {
        /// Queue length or queuing delay to control.
        target: SetPoint = SetPoint::Packets(20.0), 0.0 => 1e9;
        /// Step size of the price, per packet.
        gamma: f64 = 0.001, 0.0 => 1e3;
        /// Weight of the backlog relative to the excess of arrivals over capacity.
        alpha: f64 = 0.1, 0.0 => 1e3;
        /// Base of the probability 1 − phi^(−price).
        phi: f64 = 1.001, 1.000001 => 1e3;
        /// Time between two samples.
        interval: Span = Span::from_millis(2), 1e-6 => 60.0;
        /// Count the queue and arrivals in bytes, in units of the link's usual packet.
        queue_in_bytes: bool = false;
    }
}

impl RemParams {
    /// For small prices p ≈ ln φ·price, and the price changes by γ(α(q − target) + Δq): this is PI
    /// control with K_P = γ·ln φ and a zero at α/interval.
    fn search(conditions: &Conditions) -> Search {
        let law = RemParams::defaults();
        let (interval_s, ln_phi) = (law.interval.as_secs_f64(), law.phi.ln());
        let axes = [conditions.target(), conditions.k_p(), conditions.zero()];
        Search::Space(Space::with_target(axes, move |x| {
            vec![
                ("target", packets(x["target"])),
                ("gamma", number((x["k_p"] / ln_phi).min(1000.0))),
                ("alpha", number(x["zero"] * interval_s)),
            ]
        }))
    }
}

impl ConfiguredLaw for RemParams {
    fn check(&self, site: &Site) -> Result<(), ParamError> {
        fits_buffer("target", self.target, site)
    }

    fn build(&self, site: &Site, _seed: u64) -> Result<Box<dyn Law>, ParamError> {
        self.check(site)?;
        Ok(Box::new(Periodic::new(Rem {
            params: self.clone(),
            target: Target::new(self.target, site),
            packet: site.packet,
            scale: Scale::new(site, self.queue_in_bytes),
            arrived_pkts: 0.0,
            price: 0.0,
        })))
    }

    fn set_point(&self) -> Option<SetPoint> {
        Some(self.target)
    }

    fn theory(&self) -> Option<&dyn LinearLaw> {
        Some(self)
    }
}

impl LinearLaw for RemParams {
    /// While the link is busy, the excess of arrivals over capacity is the change of the queue, so the
    /// price is the output of a PI controller; p = 1 − φ^(−price) has the slope (1 − p)·ln φ.
    fn linear(&self, point: &OperatingPoint, site: &Site) -> Option<LoopFilter> {
        let slope = (1.0 - point.probability()) * self.phi.ln();
        let gains = Coefficients {
            a: self.gamma * (1.0 + self.alpha),
            b: self.gamma,
            c: 0.0,
        };
        let filter = gains.sampled(self.interval.as_secs_f64(), slope);
        // Without integral action the price is γ·q, if the queue was empty at first.
        let queue_pkts = if gains.a > gains.b {
            site.pkts(self.target)
        } else {
            -(-point.probability()).ln_1p() / (self.phi.ln() * self.gamma)
        };
        (slope > 0.0 && self.gamma > 0.0).then(|| LoopFilter::sampled(queue_pkts, filter))
    }

    /// PI's rule, because REM is PI control near its operating point.
    fn design(&self, request: &DesignRequest, goals: &ParamValues) -> DesignResult {
        let goals = PiGoals::read(goals)?;
        let (k_p, k_i, k) = goals.controller(&request.point, self.interval);
        let slope = (1.0 - request.probability).max(0.01) * self.phi.ln();
        let designed = RemParams {
            target: request.set_point,
            gamma: k.b / slope,
            alpha: k.a / k.b - 1.0,
            ..self.clone()
        };
        designed.check(&request.site)?;
        Ok(Some(Design::of(
            vec![
                ("gamma", designed.gamma),
                ("alpha", designed.alpha),
                ("k_p", k_p),
                ("k_i", k_i),
            ],
            &designed,
            &["target", "gamma", "alpha", "phi", "interval"],
            vec![
                "Near its operating point REM is PI control of the queue, and gets PI's gains."
                    .into(),
                goals.note(&request.point),
            ],
        )))
    }
}

/// REM at a queue.
struct Rem {
    params: RemParams,
    target: Target,
    packet: Bytes,
    scale: Scale,
    /// Packets that have arrived in this interval.
    arrived_pkts: f64,
    price: f64,
}

impl Rem {
    /// Returns α(b − b*) + x − c, in packets.
    fn excess_pkts(&self, q: &QueueView) -> f64 {
        let capacity_pkts =
            q.rate.packets_per_sec(self.packet) * self.params.interval.as_secs_f64();
        let backlog_pkts = self.scale.queue_pkts(q) - self.target.pkts(q);
        self.params.alpha * backlog_pkts + self.arrived_pkts - capacity_pkts
    }
}

impl Controller for Rem {
    fn interval(&self) -> Span {
        self.params.interval
    }

    fn sample(&mut self, s: &Sample) -> f64 {
        // The price becomes [price + γ(α(b − b*) + x − c)]⁺, with x and c in packets per interval.
        let excess = self.excess_pkts(s.q);
        self.price = (self.price + self.params.gamma * excess).max(0.0);
        self.arrived_pkts = 0.0;
        1.0 - self.params.phi.powf(-self.price)
    }

    fn state(&self) -> Option<State> {
        Some(state_of(&[self.price, self.arrived_pkts]))
    }

    /// Without arrivals the price changes by the same amount at each sample.
    fn skip(&mut self, first: &Sample, samples: u64) {
        let change = self.params.gamma * self.excess_pkts(first.q);
        self.price = (self.price + change * samples as f64).max(0.0);
    }

    fn arrival(&mut self, _q: &QueueView, p: &PacketMeta) {
        self.arrived_pkts += self.scale.packet_pkts(p.bytes);
    }

    fn take_fluid(&mut self, step: &FluidStep) {
        self.arrived_pkts += self.scale.packet_pkts(step.packet.bytes) * f64::from(step.arrivals);
    }

    fn set_point(&mut self, set_point: SetPoint) -> bool {
        self.target.move_to(set_point)
    }

    fn probe(&self, out: &mut dyn FnMut(&'static str, f64)) {
        out("price", self.price);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::laws::testing::{packet, probed, site, view};
    use forebay_units::{Params, Rng, Time};

    #[test]
    fn the_price_moves_by_hand_computed_steps() {
        let mut law = RemParams::defaults().build(&site(), 0).unwrap();
        let mut rng = Rng::new(1, "test");
        let mut sample = |arrivals, queue| {
            for _ in 0..arrivals {
                law.on_enqueue(Time::ZERO, &view(queue), &packet(1000), &mut rng);
            }
            law.handle_timeout(law.poll_timeout().unwrap(), &view(queue));
            (probed(&*law, "price"), probed(&*law, "p"))
        };
        // At 30 Mbit/s, 7.5 packets of 1000 bytes are sent in 2 ms.
        // 0.001·(0.1·(120 − 20) + 20 − 7.5) = 0.0225; p = 1 − 1.001^(−0.0225) = 2.24885e-5.
        let (price, p) = sample(20, 120);
        assert!((price - 0.0225).abs() < 1e-12);
        assert!((p - 2.248_85e-5).abs() < 1e-9, "{p}");
        // There are no arrivals in this interval: 0.0225 + 0.001·(10 − 7.5).
        assert!((sample(0, 120).0 - 0.025).abs() < 1e-12);
        // Three times 0.001·(0.1·(−20) − 7.5) = −0.0095: the price stops at zero.
        assert_eq!((0..3).map(|_| sample(0, 0)).last(), Some((0.0, 0.0)));
    }
}
