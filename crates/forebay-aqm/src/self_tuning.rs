//! The self-tuning structure of Zhang, Hollot, Towsley and Misra (staqm figure 6): estimate the
//! network on-line, and design the law anew for each estimate as if it were exact.

use forebay_linux_tc::fixed_point::{self, Field};
use forebay_theory::linear::OperatingPoint;
use forebay_theory::search::{Conditions, Settings};
use forebay_units::{ParamError, Site, Span, Time, Value};

use crate::clock::{state_of, State};
use crate::estimator::{CapacityEstimate, LoadEstimate};
use crate::law::{FluidStep, PacketMeta, QueueView, Scale};
use crate::tuner::Tuner;

/// A rule that sets the gains of a law of type `L` for a network.
pub trait Design<L>: Send {
    /// The signal probability as the law computed it.
    fn probability(&self, law: &L) -> f64;

    fn apply(&self, point: &OperatingPoint, law: &mut L);

    /// All of the law that [`apply`](Design::apply) or the law's own clock changes, in at most ten
    /// places. See [`Ticking::state`](crate::clock::Ticking::state).
    fn state(&self, law: &L) -> Option<State>;
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

impl Estimation {
    /// What `estimate.h` takes. Its 1 − e^−x has three terms, so an interval is at most a quarter of
    /// the time constant.
    pub fn twin_config(&self, rtt: Span, site: &Site) -> Result<Vec<Field>, ParamError> {
        let shortest = Span::from_secs_f64(4.0 * self.interval.as_secs_f64());
        if self.capacity_time < shortest {
            let allowed = format!("at least {shortest}, four intervals, in fixed point");
            return Err(ParamError::new(
                "capacity_time",
                self.capacity_time,
                allowed,
            ));
        }
        let shortest = Span::from_millis(1);
        if rtt < shortest {
            let allowed = format!("at least {shortest}, in fixed point");
            return Err(ParamError::new("rtt", rtt, allowed));
        }
        let capacity_ns = self.capacity_time.as_secs_f64() * 1e9;
        let per_ns = 2f64.powi(fixed_point::PROBABILITY_BITS) / capacity_ns;
        let gone = self.interval.as_secs_f64() / self.load_time.as_secs_f64();
        Ok(vec![
            (
                "capacity_per_ns",
                fixed_point::factor("capacity_time", capacity_ns, per_ns)?,
            ),
            ("load_weight", fixed_point::probability(-(-gone).exp_m1())),
            (
                "least",
                fixed_point::rate(site.packet.0 as f64 / rtt.as_secs_f64()),
            ),
            ("tune_after_ns", fixed_point::nanos(self.tune_after)),
        ])
    }

    /// As `estimate.h` starts.
    pub fn twin_state(
        &self,
        start: &OperatingPoint,
        site: &Site,
    ) -> Result<Vec<Field>, ParamError> {
        // In 62 bits.
        const MOST: f64 = 4.0;
        if start.load >= MOST {
            let flows = MOST * start.flows() / start.load;
            let allowed = format!("less than {flows:.4}, in fixed point");
            return Err(ParamError::new("flows", start.flows(), allowed));
        }
        let bytes_per_s = start.capacity_pkts_per_s * site.packet.0 as f64;
        Ok(vec![
            ("capacity", fixed_point::rate(bytes_per_s)),
            ("load", fixed_point::probability(start.load)),
        ])
    }
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

    fn state(&self, law: &L) -> Option<State> {
        let (capacity, load) = (self.capacity.pkts_per_s(), self.load.value());
        let designed = self.design.state(law)?;
        let mut state = state_of(&[capacity, load]);
        for (place, part) in state.iter_mut().skip(2).zip(designed) {
            *place = part;
        }
        Some(state)
    }

    /// A filter takes one long step as it takes many short ones.
    fn skip(&mut self, _q: &QueueView, last: Time, ticks: u64, law: &mut L) {
        self.capacity.update(last);
        self.load
            .update(self.design.probability(law), self.interval * ticks);
        if last >= self.tune_from {
            self.design.apply(&self.point(), law);
        }
    }

    fn edges(&self) -> [Option<Time>; 2] {
        [Some(self.tune_from), self.capacity.busy_since()]
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

    fn take_fluid(&mut self, step: &FluidStep, _law: &mut L) {
        if step.packet.tcp && step.departures > 0 {
            let pkts = self.scale.packet_pkts(step.packet.bytes) * f64::from(step.departures);
            self.capacity.departure(step.end, pkts);
        }
    }

    fn idle(&mut self, now: Time) {
        self.capacity.idle(now);
    }

    fn watches_idle(&self) -> bool {
        true
    }

    fn probe(&self, out: &mut dyn FnMut(&'static str, f64)) {
        let point = self.point();
        out("capacity_pkts_per_s", point.capacity_pkts_per_s);
        out("load", point.load);
        out("flows", point.flows());
    }
}
