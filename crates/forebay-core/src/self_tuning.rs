//! The self-tuning structure of Zhang, Hollot, Towsley and Misra (staqm figure 6): estimate the
//! network on-line, and design the law anew for each estimate as if it were exact.

use crate::clock::{state_of, State};
use crate::estimator::{CapacityEstimate, LoadEstimate};
use crate::fixed_point::{self, Field};
use crate::law::{FluidStep, PacketMeta, QueueView, Scale, Site};
use crate::linear::OperatingPoint;
use crate::param::{ParamError, Value};
use crate::search::{Conditions, Settings};
use crate::tuner::Tuner;
use crate::units::{Span, Time};

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

/// 1/K_rc below which a self-tuning PI, as the paper writes it, is unstable (staqm theorem 1,
/// figure 11):
/// where s³ + s²/R + (g/R²)(s + K_rc)e^{−sR} has a root s = jx/R, with g = β√(β²+1).
///
/// Its two parts are g = x·sin x + x²·cos x and K_rc·R = (x²·cos x − x³·sin x)/g. Infinite where
/// no time constant is long enough, as PI's own loop is unstable.
///
/// The paper's (5) scales the whole integral with a new gain. PI's difference form leaves
/// the integral alone, so near equilibrium its estimate does not feed back at all, and the bound
/// is on the safe side.
pub fn critical_load_time_s(beta: f64, rtt_s: f64) -> f64 {
    let g = beta * beta.hypot(1.0);
    let gain = |x: f64| x * x.sin() + x * x * x.cos();
    // `gain` rises from 0 up to x = 1.077.
    let (mut low, mut high) = (0.0, 1.0768);
    if gain(high) < g {
        return f64::INFINITY;
    }
    for _ in 0..100 {
        let middle = 0.5 * (low + high);
        if gain(middle) < g {
            low = middle;
        } else {
            high = middle;
        }
    }
    let x = high;
    let k_rc = (x * x * x.cos() - x.powi(3) * x.sin()) / g;
    if k_rc > 0.0 {
        rtt_s / k_rc
    } else {
        f64::INFINITY
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_critical_time_constants_are_figure_11s() {
        let close = |got: f64, want: f64| assert!((got / want - 1.0).abs() < 0.01, "{got} {want}");
        close(critical_load_time_s(0.5, 0.1), 0.325);
        close(critical_load_time_s(0.5, 0.25), 0.81);
        // It blows up at β = 0.8603, where PI itself is at the edge.
        assert!(critical_load_time_s(0.855, 0.1) > 5.0);
        assert!(critical_load_time_s(0.861, 0.1).is_infinite());
    }
}
