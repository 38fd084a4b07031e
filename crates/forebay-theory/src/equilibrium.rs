//! The equilibrium of TCP flows under a law: the queue at which the law's signal probability is the
//! one that the flows need.

use std::cell::Cell;

use forebay_units::Site;

use crate::design::LinearLaw;
use crate::linear::{LoopFilter, OperatingPoint};
use crate::window_law::WindowLaw;

/// The equilibrium of flows under a law.
#[derive(Clone, Debug)]
pub enum Equilibrium {
    /// Law, queue and TCP agree, and the law has a linear model there.
    Linear {
        /// The network at the equilibrium.
        point: OperatingPoint,
        /// The linear model of the law at the equilibrium.
        model: LoopFilter,
        /// The queue in packets.
        queue_pkts: f64,
    },
    /// The law has no linear model with its parameters.
    Unmodelled,
    /// Even without a queue, the law signals more than the flows need.
    Empty {
        /// The probability that the flows need.
        probability: f64,
    },
    /// Some flows would need a probability of one or more at the law's set-point.
    Saturated {
        /// The queue in packets.
        queue_pkts: f64,
        /// The probability that these flows would need.
        probability: f64,
    },
    /// Law and TCP agree at a queue that exceeds the buffer, which overflows first.
    Full {
        /// The queue in packets.
        queue_pkts: f64,
        /// The probability there.
        probability: f64,
    },
    /// The law's probability jumps past the one that TCP needs at this queue, so the loop has a
    /// limit cycle across the discontinuity.
    Jump {
        /// The queue in packets.
        queue_pkts: f64,
        /// The probability that TCP needs.
        probability: f64,
    },
    /// Law and TCP agree at a window below the smallest window of a sender.
    Small {
        /// The queue in packets.
        queue_pkts: f64,
        /// The probability there.
        probability: f64,
    },
}

/// TCP flows on a link, as an equilibrium depends on them.
pub trait Flows {
    /// Returns the operating point with this queue. Its number of flows is that of the Reno flows
    /// that need the same probability; its round-trip time is the mean of the flows.
    fn operating_point(&self, queue_pkts: f64) -> OperatingPoint;

    /// Returns the largest signal probability of a class of flows at this point.
    fn largest_probability(&self, point: &OperatingPoint) -> f64 {
        point.probability()
    }

    /// Returns true if a window at this point would be below the smallest window of its sender.
    fn has_small_window(&self, _point: &OperatingPoint, _queue_pkts: f64) -> bool {
        false
    }
}

/// Reno flows with the published fluid model, pW² = 2.
#[derive(Clone, Copy, Debug)]
pub struct RenoFlows {
    /// The number of flows.
    pub flows: f64,
    /// The round-trip time without a queue.
    pub propagation_s: f64,
    /// The capacity of the link in packets per second.
    pub capacity_pkts_per_s: f64,
}

impl Flows for RenoFlows {
    fn operating_point(&self, queue_pkts: f64) -> OperatingPoint {
        let rtt_s = self.propagation_s + queue_pkts / self.capacity_pkts_per_s;
        OperatingPoint::of_flows(self.flows, rtt_s, self.capacity_pkts_per_s)
    }
}

/// Reno flows with ACK clocking and sawtooth windows. With n packets in flight and W = n + ½, their
/// equilibrium is where (1 − p)b² = κ·p·W²·a², with a = 1 + n·p and b = 1 + κ·n·p (see
/// `python/forebay/control/ack_clocking.py` for the equations).
#[derive(Clone, Copy, Debug)]
pub struct AckClockedFlows {
    /// The flows.
    pub reno: RenoFlows,
}

impl AckClockedFlows {
    /// κ = `E[W²]/(2E[W]²)` of flows at independent phases of their sawtooth.
    const KAPPA: f64 = 7.0 / 12.0;

    /// Returns the probability with this many packets of a flow in flight, by Newton's method in ln
    /// p, in which the logarithms of both sides are nearly linear.
    fn probability(in_flight_pkts: f64) -> f64 {
        let (n, window) = (in_flight_pkts, in_flight_pkts + 0.5);
        let mut p = 1.0 / (1.0 + Self::KAPPA * window.powi(2));
        for _ in 0..NEWTON_STEPS {
            let (a, b) = (1.0 + n * p, 1.0 + Self::KAPPA * n * p);
            let error = ((1.0 - p) * b.powi(2) / (Self::KAPPA * p * (window * a).powi(2))).ln();
            p *= (error / (1.0 / (1.0 - p) + 2.0 / b - 2.0 / a)).exp();
            if error.abs() < TOLERANCE {
                break;
            }
        }
        p
    }
}

impl Flows for AckClockedFlows {
    fn operating_point(&self, queue_pkts: f64) -> OperatingPoint {
        let capacity = self.reno.capacity_pkts_per_s;
        let rtt_s = self.reno.propagation_s + queue_pkts / capacity;
        let pipe_pkts = rtt_s * capacity;
        let p = Self::probability(pipe_pkts / self.reno.flows);
        OperatingPoint::of_flows(pipe_pkts * (0.5 * p).sqrt(), rtt_s, capacity)
    }
}

/// A class of flows in a mix.
#[derive(Clone, Copy, Debug)]
pub struct FlowClass {
    /// The response of the class's windows to signals.
    pub window_law: WindowLaw,
    /// The fraction of all flows.
    pub share: f64,
    /// The round-trip time without a queue, relative to the mean of all flows.
    pub rtt_ratio: f64,
    /// Flows in addition to the fraction, independent of the number of all flows.
    pub fixed_flows: f64,
    /// The coupling factor k of L4S flows, which are marked with k·√p (RFC 9332 section 2.1).
    pub coupling: Option<f64>,
    /// True if the class's packets wait in the queue that the law sees.
    pub waits: bool,
}

impl FlowClass {
    /// Returns a class that is a fraction of all flows and gets the law's own probability.
    pub fn of_share(window_law: WindowLaw, share: f64, rtt_ratio: f64) -> FlowClass {
        FlowClass {
            window_law,
            share,
            rtt_ratio,
            fixed_flows: 0.0,
            coupling: None,
            waits: true,
        }
    }

    /// Returns the signal probability of the class when that of the law is `p`.
    fn probability(&self, p: f64) -> f64 {
        self.coupling.map_or(p, |coupling| coupling * p.sqrt())
    }
}

/// Classes of flows with different senders and round-trip times, under one law.
///
/// They fill the link where Σ N·W(p, R)/R = C, with R = T + q/C for the propagation delay T of each
/// class. Because each W decreases with p, a queue q determines p.
#[derive(Clone, Debug)]
pub struct MixedFlows {
    /// The classes.
    pub classes: Vec<FlowClass>,
    /// The number of all flows.
    pub flows: f64,
    /// The mean round-trip time without a queue.
    pub propagation_s: f64,
    /// The capacity of the link in packets per second.
    pub capacity_pkts_per_s: f64,
    /// The last solution for ln p, from which the next search starts.
    guess: Cell<f64>,
}

/// The relative change of ln p at which a search ends.
const TOLERANCE: f64 = 1e-14;
/// The step in ln p for the numerical derivative.
const SLOPE_STEP: f64 = 1e-7;
/// The largest number of iterations of Newton's method for ACK-clocked flows, which needs five at
/// most.
const NEWTON_STEPS: u32 = 8;
/// The largest number of iterations of a search.
const MAX_STEPS: u32 = 200;

impl MixedFlows {
    /// Creates a mix of flows.
    pub fn new(
        classes: Vec<FlowClass>,
        flows: f64,
        propagation_s: f64,
        capacity_pkts_per_s: f64,
    ) -> MixedFlows {
        MixedFlows {
            classes,
            flows,
            propagation_s,
            capacity_pkts_per_s,
            guess: Cell::new(-5.0),
        }
    }

    /// Returns the round-trip time of a class with this queue.
    pub fn rtt_s(&self, class: &FlowClass, queue_pkts: f64) -> f64 {
        let queuing_s = if class.waits {
            queue_pkts / self.capacity_pkts_per_s
        } else {
            0.0
        };
        class.rtt_ratio * self.propagation_s + queuing_s
    }

    /// Returns the rate of all flows in packets per second.
    pub fn rate_pkts_per_s(&self, probability: f64, queue_pkts: f64) -> f64 {
        let rate = |class: &FlowClass| {
            let rtt_s = self.rtt_s(class, queue_pkts);
            let p = class.probability(probability);
            let flows = class.share * self.flows + class.fixed_flows;
            flows * class.window_law.window_pkts(p, rtt_s) / rtt_s
        };
        self.classes.iter().map(rate).sum()
    }

    /// Returns the probability at which the flows fill the link, from the logarithms of both.
    pub fn probability(&self, queue_pkts: f64) -> f64 {
        let ln_capacity = self.capacity_pkts_per_s.ln();
        let excess = |x: f64| self.rate_pkts_per_s(x.exp(), queue_pkts).ln() - ln_capacity;
        let x = decreasing_root(excess, (-60.0, 30.0), self.guess.get());
        self.guess.set(x);
        x.exp()
    }
}

/// Returns the root of a decreasing function between two bounds: by Newton's method from `start`,
/// and by bisection where a step would leave the bounds. Where the function does not decrease, a
/// step is as long as its value.
fn decreasing_root(f: impl Fn(f64) -> f64, (mut low, mut high): (f64, f64), start: f64) -> f64 {
    let mut x = start;
    for _ in 0..MAX_STEPS {
        let error = f(x);
        if error > 0.0 {
            low = x;
        } else {
            high = x;
        }
        let slope = (f(x + SLOPE_STEP) - error) / SLOPE_STEP;
        let step = x - error / if slope < 0.0 { slope } else { -1.0 };
        let last = x;
        x = if (low..=high).contains(&step) {
            step
        } else {
            0.5 * (low + high)
        };
        if (x - last).abs() <= TOLERANCE * (1.0 + x.abs()) {
            break;
        }
    }
    x
}

impl Flows for MixedFlows {
    fn operating_point(&self, queue_pkts: f64) -> OperatingPoint {
        let p = self.probability(queue_pkts);
        let rtt_s = self.propagation_s + queue_pkts / self.capacity_pkts_per_s;
        let flows = (0.5 * p).sqrt() * rtt_s * self.capacity_pkts_per_s;
        OperatingPoint::of_flows(flows, rtt_s, self.capacity_pkts_per_s)
    }

    fn largest_probability(&self, point: &OperatingPoint) -> f64 {
        let p = point.probability();
        let classes = self.classes.iter().map(|class| class.probability(p));
        classes.fold(p, f64::max)
    }

    fn has_small_window(&self, point: &OperatingPoint, queue_pkts: f64) -> bool {
        self.classes.iter().any(|class| {
            let (law, p) = (class.window_law, class.probability(point.probability()));
            law.window_pkts(p, self.rtt_s(class, queue_pkts)) < law.least_pkts()
        })
    }
}

/// The longest queue that is considered.
const LONGEST_PKTS: f64 = 1e12;

/// Finds the equilibrium of flows under a law on its link.
///
/// A longer queue means a longer RTT and a lower probability that TCP needs, so the equilibrium is
/// found by bisection. If the law's probability jumps, there may be none: see [`Equilibrium`].
///
/// `site` must be one at which the law can be built.
pub fn settle(law: &dyn LinearLaw, flows: &dyn Flows, site: &Site) -> Equilibrium {
    let point = |queue_pkts: f64| flows.operating_point(queue_pkts);
    let model = |queue_pkts: f64| law.linear(&point(queue_pkts), site);
    // If the law integrates, its queue does not depend on the network.
    if let Some(first) = model(0.0) {
        if first.queue_pkts < 0.0 {
            let empty = point(0.0);
            let probability = empty.probability();
            let unreachable = unreachable_at(0.0, &empty, flows, site);
            return unreachable.unwrap_or(Equilibrium::Empty { probability });
        }
        match model(first.queue_pkts) {
            Some(again) if again.queue_pkts == first.queue_pkts => {
                return agreement(first.queue_pkts, again, flows, site);
            }
            _ => {}
        }
    }
    // Without a linear model at a queue, the law cannot signal enough, and the queue grows.
    let settles_above =
        |queue_pkts: f64| model(queue_pkts).is_none_or(|model| model.queue_pkts > queue_pkts);
    let (mut low, mut high) = (0.0, 1.0);
    while settles_above(high) {
        if high > LONGEST_PKTS {
            return Equilibrium::Unmodelled;
        }
        high *= 2.0;
    }
    while high - low > 1e-12 * high {
        let middle = 0.5 * (low + high);
        if settles_above(middle) {
            low = middle;
        } else {
            high = middle;
        }
    }
    let Some(solution) = model(high) else {
        return Equilibrium::Unmodelled;
    };
    if (solution.queue_pkts - high).abs() <= 1e-6 * (1.0 + high) {
        return agreement(high, solution, flows, site);
    }
    // The bisection has ended at a jump of the law's probability. The probability that the flows
    // need there is between those on both sides of the jump, or above both.
    let queue_pkts = solution.queue_pkts;
    let point = point(queue_pkts);
    unreachable_at(queue_pkts, &point, flows, site).unwrap_or(Equilibrium::Jump {
        queue_pkts,
        probability: point.probability(),
    })
}

/// Returns the reason for which the flows cannot be at equilibrium with this queue; `None` if there
/// is none.
fn unreachable_at(
    queue_pkts: f64,
    point: &OperatingPoint,
    flows: &dyn Flows,
    site: &Site,
) -> Option<Equilibrium> {
    let probability = flows.largest_probability(point);
    if probability >= 1.0 {
        Some(Equilibrium::Saturated {
            queue_pkts,
            probability,
        })
    } else if queue_pkts > site.buffer_pkts {
        Some(Equilibrium::Full {
            queue_pkts,
            probability: point.probability(),
        })
    } else {
        None
    }
}

/// Classifies a queue at which law and flows agree.
fn agreement(queue_pkts: f64, model: LoopFilter, flows: &dyn Flows, site: &Site) -> Equilibrium {
    let point = flows.operating_point(queue_pkts);
    if let Some(unreachable) = unreachable_at(queue_pkts, &point, flows, site) {
        unreachable
    } else if flows.has_small_window(&point, queue_pkts) {
        Equilibrium::Small {
            queue_pkts,
            probability: point.probability(),
        }
    } else {
        Equilibrium::Linear {
            point,
            model,
            queue_pkts,
        }
    }
}

#[cfg(test)]
mod tests {
    use forebay_units::{Bytes, Rate};

    use super::*;
    use crate::assertions::close;
    use crate::linear::Sampled;

    /// A law whose queue at the probability that the flows need is that of this function.
    struct TestLaw<F>(F);

    impl<F: Fn(f64) -> Option<f64>> LinearLaw for TestLaw<F> {
        fn linear(&self, point: &OperatingPoint, _site: &Site) -> Option<LoopFilter> {
            let sampled = Sampled {
                interval_s: 0.01,
                numerator: vec![1.0],
                denominator: vec![1.0, -1.0],
            };
            let queue_pkts = (self.0)(point.probability())?;
            Some(LoopFilter::sampled(queue_pkts, sampled))
        }
    }

    /// Flows with a window or a class of their own.
    struct TestFlows {
        reno: RenoFlows,
        largest_probability: f64,
        has_small_window: bool,
    }

    impl Flows for TestFlows {
        fn operating_point(&self, queue_pkts: f64) -> OperatingPoint {
            self.reno.operating_point(queue_pkts)
        }
        fn largest_probability(&self, _point: &OperatingPoint) -> f64 {
            self.largest_probability
        }
        fn has_small_window(&self, _point: &OperatingPoint, _queue_pkts: f64) -> bool {
            self.has_small_window
        }
    }

    /// Returns a link of 10 000 packets/s.
    fn site(buffer_pkts: f64) -> Site {
        Site {
            rate: Rate::from_bps(80_000_000),
            buffer_pkts,
            packet: Bytes(1000),
        }
    }

    /// Returns flows with 900 packets on the way of a link of 10 000 packets/s. With N flows and a
    /// queue q they need the probability 2N²/(900 + q)².
    fn reno(flows: f64) -> RenoFlows {
        RenoFlows {
            flows,
            propagation_s: 0.09,
            capacity_pkts_per_s: 10_000.0,
        }
    }

    fn settled(
        law: impl Fn(f64) -> Option<f64>,
        flows: &dyn Flows,
        buffer_pkts: f64,
    ) -> Equilibrium {
        settle(&TestLaw(law), flows, &site(buffer_pkts))
    }

    #[test]
    fn a_queue_adds_its_delay_to_the_round_trip_time_of_renos_flows() {
        let flows = reno(50.0);
        let point = flows.operating_point(100.0);
        close(point.rtt_s, 0.1, 1e-12);
        close(point.flows(), 50.0, 1e-12);
        close(point.probability(), 0.005, 1e-12);
        assert_eq!(flows.largest_probability(&point), point.probability());
        assert!(!flows.has_small_window(&point, 100.0));
    }

    /// The queue of a law with integral action is its target, whatever the flows need.
    #[test]
    fn the_equilibrium_of_integral_action_is_at_the_target() {
        for target in [0.0, 100.1, 300.0] {
            match settled(|_| Some(target), &reno(50.0), 300.0) {
                Equilibrium::Linear {
                    point,
                    model,
                    queue_pkts,
                } => {
                    assert_eq!((queue_pkts, model.queue_pkts), (target, target));
                    close(point.rtt_s, (900.0 + target) / 1e4, 1e-12);
                }
                other => panic!("{other:?}"),
            }
        }
    }

    /// A law with p = k·q settles at q if 2·50² = k·q·(900 + q)², such as at 100 with k = 5e-5.
    #[test]
    fn the_equilibrium_of_proportional_control_is_where_law_and_flows_agree() {
        for queue in [0.5, 100.0, 1e11 / 3.0] {
            let pipe_pkts: f64 = 900.0 + queue;
            let gain = 5000.0 / (queue * pipe_pkts * pipe_pkts);
            match settled(|p| Some(p / gain), &reno(50.0), 1e12) {
                Equilibrium::Linear {
                    point,
                    model,
                    queue_pkts,
                } => {
                    close(queue_pkts, queue, 1e-8);
                    close(model.queue_pkts, queue, 1e-8);
                    close(point.probability(), gain * queue, 1e-8);
                }
                other => panic!("{other:?}"),
            }
        }
    }

    /// The law signals at most 1 %. Without a queue 90 flows need 2 %, and at 900 packets 0.5 %.
    #[test]
    fn a_queue_grows_until_the_law_can_signal_enough() {
        let law = |p: f64| (p <= 0.01).then(|| 900.0 * p / 0.005);
        match settled(law, &reno(90.0), 1000.0) {
            Equilibrium::Linear { queue_pkts, .. } => close(queue_pkts, 900.0, 1e-8),
            other => panic!("{other:?}"),
        }
        let unmodelled = settled(|_| None, &reno(90.0), 1000.0);
        assert!(matches!(unmodelled, Equilibrium::Unmodelled));
    }

    #[test]
    fn a_law_that_signals_too_much_without_a_queue_keeps_it_empty() {
        match settled(|_| Some(-1.0), &reno(90.0), 0.0) {
            Equilibrium::Empty { probability } => close(probability, 0.02, 1e-12),
            other => panic!("{other:?}"),
        }
        // 2·900²/900² = 2.
        match settled(|_| Some(-1.0), &reno(900.0), 100.0) {
            Equilibrium::Saturated {
                queue_pkts,
                probability,
            } => {
                assert_eq!(queue_pkts, 0.0);
                close(probability, 2.0, 1e-12);
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_equilibrium_beyond_the_buffer_overflows_it() {
        match settled(|_| Some(100.0), &reno(50.0), 99.0) {
            Equilibrium::Full {
                queue_pkts,
                probability,
            } => {
                assert_eq!(queue_pkts, 100.0);
                close(probability, 0.005, 1e-12);
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_class_that_would_need_a_probability_of_one_saturates_the_law() {
        let flows = |largest_probability| TestFlows {
            reno: reno(50.0),
            largest_probability,
            has_small_window: false,
        };
        match settled(|_| Some(100.0), &flows(1.0), 300.0) {
            Equilibrium::Saturated {
                queue_pkts,
                probability,
            } => assert_eq!((queue_pkts, probability), (100.0, 1.0)),
            other => panic!("{other:?}"),
        }
        let below_one = settled(|_| Some(100.0), &flows(0.999), 300.0);
        assert!(matches!(below_one, Equilibrium::Linear { .. }));
    }

    #[test]
    fn a_window_below_the_smallest_one_of_its_sender_is_reported() {
        let flows = TestFlows {
            reno: reno(50.0),
            largest_probability: 0.005,
            has_small_window: true,
        };
        match settled(|_| Some(100.0), &flows, 300.0) {
            Equilibrium::Small {
                queue_pkts,
                probability,
            } => {
                assert_eq!(queue_pkts, 100.0);
                close(probability, 0.005, 1e-12);
            }
            other => panic!("{other:?}"),
        }
    }

    /// The law's queue jumps from 100 to 10 packets where the flows need less than 0.55 %, which is
    /// at a queue of 53 packets.
    #[test]
    fn a_law_whose_probability_jumps_past_that_of_the_flows_has_no_equilibrium() {
        let law = |p: f64| Some(if p > 0.0055 { 100.0 } else { 10.0 });
        match settled(law, &reno(50.0), 300.0) {
            Equilibrium::Jump {
                queue_pkts,
                probability,
            } => {
                assert_eq!(queue_pkts, 10.0);
                close(probability, 5000.0 / 910.0_f64.powi(2), 1e-12);
            }
            other => panic!("{other:?}"),
        }
        let beyond_the_buffer = settled(law, &reno(50.0), 9.0);
        assert!(matches!(beyond_the_buffer, Equilibrium::Full { .. }));
    }

    /// c·b = W·a with c² = (1 − p)/(κp) is a quadratic equation in n, so that n is known for each p.
    #[test]
    fn ack_clocked_flows_need_the_probability_of_their_equilibrium_equation() {
        let kappa = 7.0 / 12.0;
        for p in [1e-6_f64, 1e-3, 0.02, 0.2, 0.6] {
            let c = ((1.0 - p) / (kappa * p)).sqrt();
            let linear = 1.0 + 0.5 * p - c * kappa * p;
            let n = ((linear * linear - 4.0 * p * (0.5 - c)).sqrt() - linear) / (2.0 * p);
            close(AckClockedFlows::probability(n), p, 1e-8);
        }
        // Without packets in flight the windows are half a packet: 1 − p = κp/4.
        close(
            AckClockedFlows::probability(0.0),
            1.0 / (1.0 + kappa / 4.0),
            1e-12,
        );
        // With many, W = 1.31/√p (Ott, Kemperman and Mathis 1996).
        let p = AckClockedFlows::probability(1e5);
        close(1e5 * p.sqrt(), 1.31, 1e-3);
    }

    /// The point of ACK-clocked flows has their round-trip time, and as many Reno flows as need
    /// their probability.
    #[test]
    fn the_operating_point_of_ack_clocked_flows_has_their_probability() {
        let flows = AckClockedFlows { reno: reno(50.0) };
        let point = flows.operating_point(100.0);
        close(point.rtt_s, 0.1, 1e-12);
        assert_eq!(point.capacity_pkts_per_s, 10_000.0);
        // 1000 packets in flight of 50 flows.
        close(
            point.probability(),
            AckClockedFlows::probability(20.0),
            1e-12,
        );
    }

    fn mix(classes: Vec<FlowClass>) -> MixedFlows {
        MixedFlows::new(classes, 100.0, 0.09, 10_000.0)
    }

    /// Classes of Reno have W = √(2/p), so that √(p/2) = Σ (N/R)/C.
    #[test]
    fn a_mix_of_renos_flows_needs_the_probability_of_its_classes() {
        let flows = mix(vec![
            FlowClass::of_share(WindowLaw::Reno, 0.25, 0.5),
            FlowClass {
                fixed_flows: 5.0,
                waits: false,
                ..FlowClass::of_share(WindowLaw::Reno, 0.75, 2.0)
            },
        ]);
        // 25 flows with 45 + 10 ms, and 75 + 5 with 180 ms, whose packets do not wait.
        let sum: f64 = 25.0 / 0.055 + 80.0 / 0.18;
        let expected = 2.0 * (sum / 1e4).powi(2);
        close(flows.probability(100.0), expected, 1e-12);
        close(flows.rate_pkts_per_s(expected, 100.0), 1e4, 1e-12);
        close(flows.rtt_s(&flows.classes[0], 100.0), 0.055, 1e-12);
        close(flows.rtt_s(&flows.classes[1], 100.0), 0.18, 1e-12);
        let point = flows.operating_point(100.0);
        close(point.probability(), expected, 1e-12);
        close(point.rtt_s, 0.1, 1e-12);
        assert_eq!(point.capacity_pkts_per_s, 1e4);
        assert_eq!(flows.largest_probability(&point), point.probability());
        assert!(!flows.has_small_window(&point, 100.0));
    }

    /// L4S flows of DCTCP have W = 2/(k√p), and flows of Reno √2/√p.
    #[test]
    fn coupled_classes_are_marked_with_the_root_of_the_probability() {
        let flows = mix(vec![
            FlowClass::of_share(WindowLaw::Reno, 0.5, 1.0),
            FlowClass {
                coupling: Some(2.0),
                ..FlowClass::of_share(WindowLaw::Dctcp, 0.5, 1.0)
            },
        ]);
        let root = 50.0 * (2.0_f64.sqrt() + 1.0) / 1000.0;
        close(flows.probability(100.0), root * root, 1e-12);
        let point = flows.operating_point(100.0);
        close(flows.largest_probability(&point), 2.0 * root, 1e-12);
    }

    /// From 1e-9 to 1000 flows per packet in flight, and whatever was asked before.
    #[test]
    fn the_probability_of_a_mix_is_found_from_any_earlier_one() {
        let mut flows = mix(vec![FlowClass::of_share(WindowLaw::Dctcp, 1.0, 1.0)]);
        for per_packet in [1e-9, 1e3, 1e-3, 1e2, 1e-6, 0.3] {
            flows.flows = per_packet * 1000.0;
            close(flows.probability(100.0), 2.0 * per_packet, 1e-11);
            close(flows.probability(100.0), 2.0 * per_packet, 1e-11);
        }
    }

    /// Finds a root, and returns it with the points at which the function was evaluated, in pairs: one
    /// of each step, and one close to it for the slope.
    fn searched(f: impl Fn(f64) -> f64, start: f64) -> (f64, Vec<f64>) {
        let points = std::cell::RefCell::new(Vec::new());
        let counted = |x: f64| {
            points.borrow_mut().push(x);
            f(x)
        };
        let root = decreasing_root(counted, (-60.0, 30.0), start);
        (root, points.into_inner())
    }

    /// Newton's method needs few steps for smooth functions, from close to the root or from far.
    #[test]
    fn a_root_is_found_in_few_steps() {
        let bent = |x: f64| -0.5 * x - (1.0 + x.exp()).ln() + 2.0_f64.ln();
        let logistic = |x: f64| 0.5 - 1.0 / (1.0 + (-x).exp());
        let cubic = |x: f64| -(x - 1.0).powi(3) - 4.0 * (x - 1.0);
        for start in [-5.0, 0.0, 7.0, 25.0] {
            for (root, steps, f) in [
                (20.0, 4, &(|x: f64| 40.0 - 2.0 * x) as &dyn Fn(f64) -> f64),
                (-50.0, 4, &|x: f64| -0.5 * x - 25.0),
                (0.0, 8, &bent),
                (0.0, 16, &logistic),
                (1.0, 13, &cubic),
            ] {
                let (actual, points) = searched(f, start);
                close(actual, root, 1e-13);
                assert!(points.len() <= 2 * steps, "{root} from {start}: {points:?}");
            }
        }
    }

    /// The value is 1 up to x = −3: the steps from −10 are of that length.
    #[test]
    fn where_a_function_does_not_decrease_a_step_is_as_long_as_its_value() {
        let (root, points) = searched(|x| if x < -3.0 { 1.0 } else { -2.0 - x }, -10.0);
        close(root, -2.0, 1e-13);
        for (k, x) in points.iter().step_by(2).take(8).enumerate() {
            close(*x, k as f64 - 10.0, 1e-12);
        }
    }

    /// A jump from 1 to −1 at 5 has no slope: the bounds around it are halved.
    #[test]
    fn a_jump_is_bisected() {
        let (root, points) = searched(|x| if x < 5.0 { 40.0 } else { -40.0 }, 0.0);
        close(root, 5.0, 1e-12);
        assert!(points.len() < 2 * 60, "{} points", points.len());
    }

    /// DCTCP does not go below two packets. Its window is 2/p, and 2/(k√p) with a coupling.
    #[test]
    fn a_mix_has_a_small_window_where_one_of_its_classes_has() {
        let flows = |coupling| {
            mix(vec![
                FlowClass::of_share(WindowLaw::Reno, 0.5, 1.0),
                FlowClass {
                    coupling,
                    ..FlowClass::of_share(WindowLaw::Dctcp, 0.5, 1.0)
                },
            ])
        };
        let point = |probability: f64| OperatingPoint {
            load: (0.5 * probability).sqrt(),
            capacity_pkts_per_s: 1e4,
            rtt_s: 0.1,
        };
        assert!(!flows(None).has_small_window(&point(0.99), 100.0));
        assert!(flows(None).has_small_window(&point(1.01), 100.0));
        assert!(!flows(Some(2.0)).has_small_window(&point(0.24), 100.0));
        assert!(flows(Some(2.0)).has_small_window(&point(0.26), 100.0));
        // Exactly two packets are not too few.
        let half = OperatingPoint {
            load: 0.5,
            ..point(0.5)
        };
        let coupling = 1.0 / 0.5_f64.sqrt();
        assert_eq!(coupling * half.probability().sqrt(), 1.0);
        assert!(!flows(Some(coupling)).has_small_window(&half, 100.0));
    }

    /// Law and flows agree for a mix too, whose law has p = k·q.
    #[test]
    fn a_mix_settles_where_its_flows_fill_the_link() {
        let flows = mix(vec![
            FlowClass::of_share(WindowLaw::Cubic, 0.5, 0.5),
            FlowClass::of_share(WindowLaw::IndependentReno, 0.5, 1.5),
        ]);
        match settled(|p| Some(p / 1e-4), &flows, 1000.0) {
            Equilibrium::Linear {
                point, queue_pkts, ..
            } => {
                close(point.probability(), 1e-4 * queue_pkts, 1e-8);
                close(
                    flows.rate_pkts_per_s(1e-4 * queue_pkts, queue_pkts),
                    1e4,
                    1e-8,
                );
            }
            other => panic!("{other:?}"),
        }
    }
}
