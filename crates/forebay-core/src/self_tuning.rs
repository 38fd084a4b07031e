//! The self-tuning structure of Zhang, Hollot, Towsley and Misra (staqm figure 6): estimate the
//! network on-line, and design the law anew for each estimate as if it were exact.

use crate::estimator::{CapacityEstimate, LoadEstimate};
use crate::law::{PacketMeta, QueueView, Scale};
use crate::linear::OperatingPoint;
use crate::param::Value;
use crate::search::{Conditions, Settings};
use crate::tuner::Tuner;
use crate::units::{Span, Time};

/// A rule that sets the gains of a law of type `L` for a network.
pub trait Design<L>: Send {
    /// The signal probability as the law computed it.
    fn probability(&self, law: &L) -> f64;

    fn apply(&self, point: &OperatingPoint, law: &mut L);
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

/// What a tuned law starts from: the first design is for the middle of the conditions, and makes
/// way for the estimates as soon as that of the capacity has had its time constant.
pub fn first_design(conditions: &Conditions) -> Settings {
    vec![
        ("flows", Value::Integer(conditions.middle.flows.into())),
        ("tune_after", Value::Text("5s".into())),
    ]
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
    /// `start` is what the law is first designed for.
    pub fn new(design: D, how: Estimation, start: &OperatingPoint, scale: Scale) -> SelfTuning<D> {
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
    fn point(&self) -> OperatingPoint {
        let capacity = self.capacity.pkts_per_s().max(1.0 / self.rtt_s);
        let one_flow = OperatingPoint::of_flows(1.0, self.rtt_s, capacity);
        OperatingPoint {
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
            self.design.apply(&self.point(), law);
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
        let point = self.point();
        out("capacity_pkts_per_s", point.capacity_pkts_per_s);
        out("load", point.load);
        out("flows", point.flows());
    }
}
