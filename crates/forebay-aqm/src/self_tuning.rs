//! The self-tuning structure of Zhang, Hollot, Towsley and Misra (staqm figure 6): the network is
//! estimated on-line, and the law is redesigned for each estimate as if the estimate were exact.

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
    /// Returns the signal probability that the law has computed.
    fn probability(&self, law: &L) -> f64;

    /// Sets the law's gains for an operating point.
    fn apply(&self, point: &OperatingPoint, law: &mut L);

    /// Returns every variable of the law that [`apply`](Design::apply) or the law's own clock
    /// changes, in at most ten elements: see [`Ticking::state`](crate::clock::Ticking::state).
    fn state(&self, law: &L) -> Option<State>;
}

/// The parameters of a self-tuning law's estimators.
#[derive(Clone, Copy, Debug)]
pub struct Estimation {
    /// The time between two updates.
    pub interval: Span,
    /// The time constant of the capacity estimate, 1/K_c.
    pub capacity_time: Span,
    /// The time constant of the load estimate, 1/K_rc. Below a bound that grows with R, tuning is
    /// unstable (staqm theorem 1).
    pub load_time: Span,
    /// The time until which the law keeps its first design. Estimation starts at time zero.
    pub tune_after: Span,
}

impl Estimation {
    /// Returns the configuration for the kernel's `estimate.h`, which computes 1 − e^−x by three
    /// terms of its series.
    ///
    /// # Errors
    /// If the interval is more than a quarter of the time constant of the capacity estimate, or a
    /// value saturates in fixed point.
    pub fn twin_config(&self, rtt: Span, site: &Site) -> Result<Vec<Field>, ParamError> {
        let shortest = Span::from_secs_f64(4.0 * self.interval.as_secs_f64());
        if self.capacity_time < shortest {
            let expected = format!("at least {shortest}, which is four intervals, in fixed point");
            return Err(ParamError::new(
                "capacity_time",
                self.capacity_time,
                expected,
            ));
        }
        let shortest = Span::from_millis(1);
        if rtt < shortest {
            let expected = format!("at least {shortest} in fixed point");
            return Err(ParamError::new("rtt", rtt, expected));
        }
        let capacity_ns = self.capacity_time.as_secs_f64() * 1e9;
        let per_ns = 2f64.powi(fixed_point::PROBABILITY_BITS) / capacity_ns;
        let elapsed = self.interval.as_secs_f64() / self.load_time.as_secs_f64();
        Ok(vec![
            (
                "capacity_per_ns",
                fixed_point::factor("capacity_time", capacity_ns, per_ns)?,
            ),
            (
                "load_weight",
                fixed_point::probability(-(-elapsed).exp_m1()),
            ),
            (
                "least",
                fixed_point::rate(site.packet.0 as f64 / rtt.as_secs_f64()),
            ),
            ("tune_after_ns", fixed_point::nanos(self.tune_after)),
        ])
    }

    /// Returns the initial state for the kernel's `estimate.h`.
    ///
    /// # Errors
    /// If the load is out of the range of the fixed-point arithmetic.
    pub fn twin_state(
        &self,
        start: &OperatingPoint,
        site: &Site,
    ) -> Result<Vec<Field>, ParamError> {
        // The kernel keeps the load in 62 bits.
        const MAX_LOAD: f64 = 4.0;
        if start.load >= MAX_LOAD {
            let flows = MAX_LOAD * start.flows() / start.load;
            let expected = format!("less than {flows:.4} flows in fixed point");
            return Err(ParamError::new("flows", start.flows(), expected));
        }
        let bytes_per_s = start.capacity_pkts_per_s * site.packet.0 as f64;
        Ok(vec![
            ("capacity", fixed_point::rate(bytes_per_s)),
            ("load", fixed_point::probability(start.load)),
        ])
    }
}

/// Returns settings with which a self-tuning law is tuned: the first design is for the middle of
/// the conditions, and the estimates take over after one time constant of the capacity estimate.
pub fn first_design(conditions: &Conditions) -> Settings {
    vec![
        ("flows", Value::Integer(conditions.middle.flows.into())),
        ("tune_after", Value::Text("5s".into())),
    ]
}

/// The tuner of a self-tuning law: estimators and a design rule.
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
    /// Creates the tuner. `start` is the operating point of the law's first design.
    pub fn new(
        design: D,
        estimation: Estimation,
        start: &OperatingPoint,
        scale: Scale,
    ) -> SelfTuning<D> {
        SelfTuning {
            design,
            interval: estimation.interval,
            tune_from: Time::ZERO + estimation.tune_after,
            rtt_s: start.rtt_s,
            scale,
            capacity: CapacityEstimate::new(start.capacity_pkts_per_s, estimation.capacity_time),
            load: LoadEstimate::new(start.load, estimation.load_time),
        }
    }

    /// Returns the estimated operating point: at least one flow, and one packet per round trip.
    /// staqm has no such floor; without one, gains that are proportional to the load would stay at
    /// zero after p has been zero for a long time.
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
        for (element, bits) in state.iter_mut().skip(2).zip(designed) {
            *element = bits;
        }
        Some(state)
    }

    /// The filters are exact for any step, so one long step replaces many short ones.
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
        // This is the capacity available to TCP: other packets count only as busy time.
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
    use forebay_units::{Bytes, Rate};

    use super::*;
    use crate::law::{Ecn, Signal};

    /// A design of a law that always signals 2 % of the packets.
    struct Constant;

    impl Design<()> for Constant {
        fn probability(&self, _law: &()) -> f64 {
            0.02
        }
        fn apply(&self, _point: &OperatingPoint, _law: &mut ()) {}
        fn state(&self, _law: &()) -> Option<State> {
            None
        }
    }

    const SITE: Site = Site {
        rate: Rate::from_bps(8_000_000),
        buffer_pkts: 100.0,
        packet: Bytes(1000),
    };

    fn estimation() -> Estimation {
        Estimation {
            interval: Span::from_millis(10),
            capacity_time: Span::from_millis(40),
            load_time: Span::from_millis(20),
            tune_after: Span::from_secs(20),
        }
    }

    fn view() -> QueueView {
        QueueView::busy(10, 1000, 100, SITE.rate)
    }

    fn packet(tcp: bool) -> PacketMeta {
        PacketMeta {
            flow: 0,
            bytes: 1000,
            ecn: Ecn::NotEct,
            signal: Signal::Drop,
            tcp,
            sojourn: Span::ZERO,
        }
    }

    /// Returns the estimates of capacity and load after an interval of 10 ms, from 1000 packets/s
    /// and a load of 0.05, in which one packet of TCP leaves at first and `then` happens.
    fn estimated(then: impl Fn(&mut dyn Tuner<()>)) -> (f64, f64) {
        let start = OperatingPoint::of_flows(5.0, 0.1, 1000.0);
        let mut tuner = SelfTuning::new(Constant, estimation(), &start, Scale::new(&SITE, false));
        let tuner: &mut dyn Tuner<()> = &mut tuner;
        tuner.departure(Time::ZERO, &packet(true));
        then(tuner);
        tuner.tick(&view(), Time::from_nanos(10_000_000), &mut ());
        let (mut capacity, mut load) = (0.0, 0.0);
        tuner.probe(&mut |name, value| match name {
            "capacity_pkts_per_s" => capacity = value,
            "load" => load = value,
            _ => {}
        });
        (capacity, load)
    }

    /// Six packets in 10 ms are 600 packets/s, and the filter moves by 1 − e^{−10/40} of the
    /// distance from 1000. A probability of 2 % is a load of √0.01, approached by 1 − e^{−10/20}.
    #[test]
    fn a_fluid_step_counts_like_its_packets() {
        let step = |departures, tcp| FluidStep {
            end: Time::from_nanos(10_000_000),
            queue_pkts: [10.0, 10.0],
            arrivals: 5,
            departures,
            missed: 0,
            packet: packet(tcp),
            view: view(),
        };
        let after = |pkts_per_s: f64| 1000.0 + (1.0 - (-0.25_f64).exp()) * (pkts_per_s - 1000.0);
        let one_by_one = estimated(|tuner| {
            for k in 1..=5 {
                tuner.departure(Time::from_nanos(1_000_000 * k), &packet(true));
            }
        });
        let at_once = estimated(|tuner| tuner.take_fluid(&step(5, true), &mut ()));
        assert_eq!(at_once, one_by_one);
        assert!((at_once.0 - after(600.0)).abs() < 1e-9, "{at_once:?}");
        let load = 0.05 + (1.0 - (-0.5_f64).exp()) * (0.1 - 0.05);
        assert!((at_once.1 - load).abs() < 1e-12, "{at_once:?}");
        // Packets that do not belong to TCP, and a step without departures, add nothing.
        for nothing in [step(5, false), step(0, true)] {
            let (capacity, _) = estimated(|tuner| tuner.take_fluid(&nothing, &mut ()));
            assert!((capacity - after(100.0)).abs() < 1e-9, "{capacity}");
        }
        let (capacity, _) = estimated(|tuner| tuner.departure(Time::ZERO, &packet(false)));
        assert!((capacity - after(100.0)).abs() < 1e-9, "{capacity}");
    }

    #[test]
    fn the_time_constant_of_the_capacity_is_at_least_four_intervals_in_fixed_point() {
        let rtt = Span::from_millis(100);
        assert!(estimation().twin_config(rtt, &SITE).is_ok());
        let shorter = Estimation {
            capacity_time: Span::from_micros(39_999),
            ..estimation()
        };
        let error = shorter.twin_config(rtt, &SITE).unwrap_err();
        assert_eq!(error.key, "capacity_time");
    }

    #[test]
    fn the_round_trip_time_is_at_least_a_millisecond_in_fixed_point() {
        let config = |rtt| estimation().twin_config(rtt, &SITE);
        assert!(config(Span::from_millis(1)).is_ok());
        assert_eq!(config(Span::from_micros(999)).unwrap_err().key, "rtt");
    }

    /// 400 packets are in flight at 100 ms and 4000 packets/s: four flows a packet are 1600.
    #[test]
    fn the_load_is_less_than_four_flows_per_packet_in_fixed_point() {
        let state = |flows| {
            let start = OperatingPoint::of_flows(flows, 0.1, 4000.0);
            estimation().twin_state(&start, &SITE)
        };
        assert!(state(1599.0).is_ok());
        let error = state(1600.0).unwrap_err();
        assert_eq!(error.key, "flows");
        assert!(
            error.expected.starts_with("less than 1600.0000 flows"),
            "{error}"
        );
    }
}
