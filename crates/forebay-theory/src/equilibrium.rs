//! Where flows of TCP settle under a law: the queue at which the law signals what they need.

use std::cell::Cell;

use forebay_units::Site;

use crate::design::LinearLaw;
use crate::linear::{LoopFilter, OperatingPoint};
use crate::window_law::WindowLaw;

/// How flows settle under a law.
#[derive(Clone, Debug)]
pub enum Equilibrium {
    /// Law, queue and TCP agree: the network there, the law near it, and the queue for which both
    /// were asked, which is the law's own but for rounding.
    Linear {
        point: OperatingPoint,
        model: LoopFilter,
        queue_pkts: f64,
    },
    /// The law has no linear model with its parameters.
    Unmodelled,
    /// The law signals more than the flows need before a packet is queued: this is what they need.
    Empty { probability: f64 },
    /// At the queue that the law holds, some flows would need this probability, of one or more.
    Saturated { queue_pkts: f64, probability: f64 },
    /// Law and TCP agree at a queue beyond the buffer, which overflows first.
    Full { queue_pkts: f64, probability: f64 },
    /// At this queue the law's probability jumps past the one that TCP needs: law and queue go to
    /// and fro.
    Jump { queue_pkts: f64, probability: f64 },
    /// Law and TCP agree where a window would be smaller than its sender keeps.
    Small { queue_pkts: f64, probability: f64 },
}

/// Flows of TCP on a link, as a law meets them.
pub trait Flows {
    /// How many flows of Reno need the same probability with this queue, with the mean RTT there.
    fn operating_point(&self, queue_pkts: f64) -> OperatingPoint;

    /// The largest probability of those that classes of flows get at this point.
    fn largest_probability(&self, point: &OperatingPoint) -> f64 {
        point.probability()
    }

    /// Whether a window at this point would be smaller than its sender keeps.
    fn has_small_window(&self, _point: &OperatingPoint, _queue_pkts: f64) -> bool {
        false
    }
}

/// Flows of Reno, as its fluid model was published.
#[derive(Clone, Copy, Debug)]
pub struct RenoFlows {
    pub flows: f64,
    /// The round trip without a queue.
    pub propagation_s: f64,
    pub capacity_pkts_per_s: f64,
}

impl Flows for RenoFlows {
    fn operating_point(&self, queue_pkts: f64) -> OperatingPoint {
        let rtt_s = self.propagation_s + queue_pkts / self.capacity_pkts_per_s;
        OperatingPoint::of_flows(self.flows, rtt_s, self.capacity_pkts_per_s)
    }
}

/// Flows of Reno with ACKs as their clock and windows in sawteeth: with n packets in flight and
/// W = n + ½, they rest where (1 − p)b² = κ·p·W²·a², a = 1 + n·p, b = 1 + κ·n·p
/// (`python/forebay/control/ack_clocking.py` has the equations).
#[derive(Clone, Copy, Debug)]
pub struct AckClockedFlows {
    pub reno: RenoFlows,
}

impl AckClockedFlows {
    /// `E[W²]/(2E[W]²)` of flows at different points of their sawtooth.
    const KAPPA: f64 = 7.0 / 12.0;

    /// The probability with this many packets of a flow under way: Newton's method in ln p, in which
    /// the logarithms of both sides are nearly lines.
    fn probability(in_flight_pkts: f64) -> f64 {
        let (n, window) = (in_flight_pkts, in_flight_pkts + 0.5);
        let mut p = 1.0 / (1.0 + Self::KAPPA * window.powi(2));
        for _ in 0..MOST_STEPS {
            let (a, b) = (1.0 + n * p, 1.0 + Self::KAPPA * n * p);
            let off = ((1.0 - p) * b.powi(2) / (Self::KAPPA * p * (window * a).powi(2))).ln();
            p *= (off / (1.0 / (1.0 - p) + 2.0 / b - 2.0 / a)).exp();
            if off.abs() < SAME {
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
    pub window_law: WindowLaw,
    /// Of all flows.
    pub share: f64,
    /// Of its round trip without a queue, to the mean of all flows.
    pub rtt_ratio: f64,
    /// Flows besides, whatever the number of all.
    pub fixed_flows: f64,
    /// k of flows of L4S, which are marked with k·√p (RFC 9332 section 2.1).
    pub coupling: Option<f64>,
    /// Whether its packets wait in the queue that the law sees.
    pub waits: bool,
}

impl FlowClass {
    /// Of all flows, under the law's own probability.
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

    fn probability(&self, p: f64) -> f64 {
        self.coupling.map_or(p, |coupling| coupling * p.sqrt())
    }
}

/// Classes of flows with senders and round trips of their own, under one law.
///
/// They fill the link where Σ N·W(p, R)/R = C, with R = T + q/C of each class's own T; a queue q
/// so has one p, as each W falls with p.
#[derive(Clone, Debug)]
pub struct MixedFlows {
    pub classes: Vec<FlowClass>,
    pub flows: f64,
    /// The mean round trip without a queue.
    pub propagation_s: f64,
    pub capacity_pkts_per_s: f64,
    /// ln p as it was found last: the next is near.
    guess: Cell<f64>,
}

/// Relative change of ln p at which it is found, the step of its slope, and steps until it is given
/// up.
const SAME: f64 = 1e-14;
const SLOPE_STEP: f64 = 1e-7;
const MOST_STEPS: u32 = 200;

impl MixedFlows {
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

    /// R of a class.
    pub fn rtt_s(&self, class: &FlowClass, queue_pkts: f64) -> f64 {
        let waits_s = if class.waits {
            queue_pkts / self.capacity_pkts_per_s
        } else {
            0.0
        };
        class.rtt_ratio * self.propagation_s + waits_s
    }

    /// Packets per second of all flows.
    pub fn rate_pkts_per_s(&self, probability: f64, queue_pkts: f64) -> f64 {
        let rate = |class: &FlowClass| {
            let rtt_s = self.rtt_s(class, queue_pkts);
            let p = class.probability(probability);
            let flows = class.share * self.flows + class.fixed_flows;
            flows * class.window_law.window_pkts(p, rtt_s) / rtt_s
        };
        self.classes.iter().map(rate).sum()
    }

    /// The probability with which the flows fill the link: Newton's method on logarithms, within
    /// bounds.
    pub fn probability(&self, queue_pkts: f64) -> f64 {
        let wanted = self.capacity_pkts_per_s.ln();
        let excess = |x: f64| self.rate_pkts_per_s(x.exp(), queue_pkts).ln() - wanted;
        let (mut low, mut high) = (-60.0, 30.0);
        let mut x = self.guess.get();
        for _ in 0..MOST_STEPS {
            let off = excess(x);
            if off > 0.0 {
                low = x;
            } else {
                high = x;
            }
            let slope = (excess(x + SLOPE_STEP) - off) / SLOPE_STEP;
            let step = x - off / if slope < 0.0 { slope } else { -1.0 };
            let last = x;
            x = if (low..=high).contains(&step) {
                step
            } else {
                0.5 * (low + high)
            };
            if (x - last).abs() <= SAME * (1.0 + x.abs()) {
                break;
            }
        }
        self.guess.set(if x.is_finite() { x } else { -5.0 });
        x.exp()
    }
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

/// Queues up to here are looked at.
const LONGEST_PKTS: f64 = 1e12;

/// Where flows settle under a law on its link.
///
/// The longer the queue, the longer the RTT and the smaller the probability that TCP needs, so that
/// the queue at which both agree is found by bisection. Where the law's probability jumps there may
/// be no such queue; see [`Equilibrium`].
///
/// The law can be built at `site`.
pub fn settle(law: &dyn LinearLaw, flows: &dyn Flows, site: &Site) -> Equilibrium {
    let point = |queue_pkts: f64| flows.operating_point(queue_pkts);
    let model = |queue_pkts: f64| law.linear(&point(queue_pkts), site);
    // Where the law integrates, its queue does not depend on the network.
    if let Some(first) = model(0.0) {
        if first.queue_pkts < 0.0 {
            let empty = point(0.0);
            let probability = empty.probability();
            let unreachable = unreachable_at(0.0, &empty, flows, site);
            return unreachable.unwrap_or(Equilibrium::Empty { probability });
        }
        match model(first.queue_pkts) {
            Some(again) if again.queue_pkts == first.queue_pkts => {
                return resting(first.queue_pkts, again, flows, site);
            }
            _ => {}
        }
    }
    // Without an equilibrium the law cannot signal enough: the queue is longer.
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
    let Some(settled) = model(high) else {
        return Equilibrium::Unmodelled;
    };
    if (settled.queue_pkts - high).abs() <= 1e-6 * (1.0 + high) {
        return resting(high, settled, flows, site);
    }
    // The bisection has ended at a jump: there the law's queue is one, and what the flows need
    // there is between its probabilities on both sides of the jump, or above both.
    let queue_pkts = settled.queue_pkts;
    let point = point(queue_pkts);
    unreachable_at(queue_pkts, &point, flows, site).unwrap_or(Equilibrium::Jump {
        queue_pkts,
        probability: point.probability(),
    })
}

/// What keeps flows from a queue that the law has.
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

/// What a queue at which law and flows agree is.
fn resting(queue_pkts: f64, model: LoopFilter, flows: &dyn Flows, site: &Site) -> Equilibrium {
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
