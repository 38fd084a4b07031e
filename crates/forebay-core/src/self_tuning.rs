//! The self-tuning structure of Zhang, Hollot, Towsley and Misra (staqm figure 6): estimate the
//! network on-line, and design the law anew for each estimate as if it were exact.

use crate::estimator::{CapacityEstimate, LoadEstimate};
use crate::law::{PacketMeta, QueueView, Scale};
use crate::tuner::Tuner;
use crate::units::{Span, Time};

/// What a design rule must know of the network.
#[derive(Clone, Copy, Debug)]
pub struct Network {
    /// N/(RC): flows over the packets that they have under way.
    pub load: f64,
    /// C, in packets per second.
    pub capacity_pkts_per_s: f64,
    /// R, with queueing delay.
    pub rtt_s: f64,
}

impl Network {
    pub fn of_flows(flows: f64, rtt_s: f64, capacity_pkts_per_s: f64) -> Network {
        Network {
            load: flows / (rtt_s * capacity_pkts_per_s),
            capacity_pkts_per_s,
            rtt_s,
        }
    }

    /// N.
    pub fn flows(&self) -> f64 {
        self.load * self.rtt_s * self.capacity_pkts_per_s
    }
}

/// A rule that sets the gains of a law of type `L` for a network.
pub trait Design<L>: Send {
    /// The signal probability as the law computed it.
    fn probability(&self, law: &L) -> f64;

    fn apply(&self, network: &Network, law: &mut L);
}

/// How a self-tuning law estimates.
#[derive(Clone, Copy, Debug)]
pub struct Estimation {
    pub interval: Span,
    /// 1/K_c.
    pub capacity_time: Span,
    /// 1/K_rc. Below a bound that grows with R, tuning itself is unstable (staqm theorem 1).
    pub load_time: Span,
    /// Estimates run from the start; the law keeps its first design until here.
    pub tune_after: Span,
}

/// The tuner: estimators and a design rule.
pub struct SelfTuning<D> {
    design: D,
    interval: Span,
    tune_from: Time,
    rtt_s: f64,
    scale: Scale,
    capacity: CapacityEstimate,
    load: LoadEstimate,
}

impl<D> SelfTuning<D> {
    /// `start` is the network that the law is first designed for.
    pub fn new(design: D, how: Estimation, start: &Network, scale: Scale) -> SelfTuning<D> {
        SelfTuning {
            design,
            interval: how.interval,
            tune_from: Time::ZERO + how.tune_after,
            rtt_s: start.rtt_s,
            scale,
            capacity: CapacityEstimate::new(start.capacity_pkts_per_s, how.capacity_time),
            load: LoadEstimate::new(start.load, how.load_time),
        }
    }

    /// The estimates, but at least one flow and one packet per round trip. staqm has no floor;
    /// without one, gains in proportion to the load stay at zero once p has been zero for long.
    fn network(&self) -> Network {
        let capacity = self.capacity.pkts_per_s().max(1.0 / self.rtt_s);
        let one_flow = Network::of_flows(1.0, self.rtt_s, capacity);
        Network {
            load: self.load.value().max(one_flow.load),
            ..one_flow
        }
    }
}

impl<L, D: Design<L>> Tuner<L> for SelfTuning<D> {
    fn interval(&self) -> Option<Span> {
        Some(self.interval)
    }

    fn tick(&mut self, _q: &QueueView, now: Time, law: &mut L) {
        self.capacity.update(now);
        self.load
            .update(self.design.probability(law), self.interval);
        if now >= self.tune_from {
            self.design.apply(&self.network(), law);
        }
    }

    fn departure(&mut self, now: Time, p: &PacketMeta) {
        // The capacity left to TCP: what others send counts as time that the link was busy.
        let pkts = if p.tcp {
            self.scale.packet_pkts(p.bytes)
        } else {
            0.0
        };
        self.capacity.departure(now, pkts);
    }

    fn idle(&mut self, now: Time) {
        self.capacity.idle(now);
    }

    fn probe(&self, out: &mut dyn FnMut(&'static str, f64)) {
        let network = self.network();
        out("capacity_pkts_per_s", network.capacity_pkts_per_s);
        out("load", network.load);
        out("flows", network.flows());
    }
}
