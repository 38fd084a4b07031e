//! The right-hand side: slopes of windows and queues at one moment.
//!
//! Whether a link is busy, and whether a buffer is full, is determined at the start of a step and
//! assumed throughout it, so that all stages of the step belong to one smooth piece of the
//! right-hand side; [`System::left`] returns where the piece ends.

use std::ops::Range;

use forebay_units::{ParamError, Time};

use crate::history::{History, Line};
use crate::model::{Class, Model};
use crate::port::Port;
use crate::senders::{Equations, Flow, Windows};

/// A class as it runs.
pub struct Source {
    pub class: Class,
    pub equations: Equations,
    pub feedback_rtts: f64,
    /// Indices of the sender's state variables other than its window.
    pub own: Range<usize>,
    pub flows: f64,
    pub rtt_s: f64,
    pub history: History,
    /// Signals for packets sent before then belong to no flow.
    pub since_s: f64,
    pub turnover: Option<Turnover>,
    /// Times at which the model of the class changed and its past jumped, in order.
    pub jumps_s: Vec<f64>,
    /// Number of these jumps that the sender has reached.
    pub seen: usize,
    /// The time of the last jump seen, and the time just before the next: all stages of a step are
    /// on the same side of a jump, in spite of rounding.
    pub between_s: (f64, f64),
    /// The time up to which the sender has seen the past, so that it sees every part of it once.
    pub observed_to_s: Option<f64>,
    /// Signals per packet that it sees during a step.
    pub sees: Line,
    /// R and dR/dt at the start of a step.
    pub round: (f64, f64),
}

/// Flows came or left. Those that come fill their windows during one round trip; the packets of
/// those that leave pass the queue during one, in the order in which they were sent.
#[derive(Clone, Copy)]
pub struct Turnover {
    /// Rate at which the packets in flight increase; negative after flows have left.
    pub pkts_per_s: f64,
    pub until: Time,
}

impl Turnover {
    /// Returns D, the packets that N·n counts although they are not in flight yet.
    pub fn pkts_early(&self, now_s: f64) -> f64 {
        self.pkts_per_s * (self.until.as_secs_f64() - now_s).max(0.0)
    }

    /// Returns the addition to a class's rate while packets queue. F = N·n − D packets are in
    /// flight, and F/R + dF/dt is the rate of a class: −D/R − dD/dt in addition to the N·(n/R +
    /// dn/dt) of its flows.
    fn rate(&self, now_s: f64, per_rtt: f64) -> f64 {
        self.pkts_per_s - self.pkts_early(now_s) * per_rtt
    }
}

impl Source {
    /// dW/dt at `part` of a step; the slopes of the sender's other states go to `out`.
    #[inline(always)]
    fn window_slope(
        &mut self,
        now_s: f64,
        part: f64,
        window: f64,
        states: &[f64],
        at: &ClassState,
        out: &mut [f64],
    ) -> f64 {
        if self.flows == 0.0 {
            out.fill(0.0);
            return 0.0;
        }
        let (low, high) = self.between_s;
        let delayed_s = (now_s - self.feedback_rtts * at.rtt_s).min(high).max(low);
        let (sent, probability) = if delayed_s < self.since_s {
            (0.0, 0.0)
        } else {
            (self.history.rate(delayed_s), self.sees.at(part))
        };
        let class = &self.class;
        let flow = Flow {
            window,
            rtt_s: at.rtt_s,
            per_rtt: at.per_rtt,
            growth_pkts_per_rtt: class.growth_pkts_per_rtt,
            sent,
            probability,
            states,
        };
        let slope = self.equations.slopes(&flow, out);
        let held = window >= class.window_pkts && slope > 0.0
            || window <= class.windows.least() && slope < 0.0;
        if held {
            0.0
        } else {
            slope
        }
    }

    /// Sets the signal probabilities that the sender sees during a step, with R extrapolated along
    /// its slope, and returns the time of the last of them.
    pub fn observe(&mut self, start_s: f64, end_s: f64) -> f64 {
        let (low, high) = self.between_s;
        let (rtt_s, rtt_slope) = self.round;
        let step_s = end_s - start_s;
        let then_s = (rtt_s + step_s * rtt_slope).max(self.rtt_s);
        let to_s = (end_s - self.feedback_rtts * then_s).min(high).max(low);
        let true_from_s = start_s - self.feedback_rtts * rtt_s;
        let from_s = (self.observed_to_s)
            .filter(|observed_to_s| (observed_to_s - true_from_s).abs() < 0.5 * step_s)
            .unwrap_or(true_from_s)
            .max(low)
            .max(self.since_s);
        self.sees = if to_s < self.since_s {
            Line::default()
        } else {
            self.history.line(from_s, to_s)
        };
        to_s
    }

    /// Looks at the signal probabilities between two jumps.
    pub fn look_between_jumps(&mut self) {
        let last = (self.seen.checked_sub(1)).map_or(f64::NEG_INFINITY, |k| self.jumps_s[k]);
        let next = self.jumps_s.get(self.seen);
        self.between_s = (last, next.map_or(f64::INFINITY, |at| at - 1e-9));
    }
}

/// A queue as it runs.
pub struct Queue {
    pub port: Port,
    pub pkts_per_s: f64,
    pub s_per_pkt: f64,
    pub buffer_pkts: f64,
    /// Classes that pass, by index.
    pub passing: Vec<usize>,
    /// True if packets of some classes are dropped and not marked.
    pub drops: bool,
    pub piece: Piece,
}

/// The pieces of the right-hand side of a queue's equation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Piece {
    /// Empty, and less arrives than could leave.
    Idle,
    Busy,
    /// The buffer is full, and more arrives than leaves.
    Full,
}

/// Flows through a queue at one moment, packets/s.
#[derive(Clone, Copy, Default)]
pub struct Through {
    pub arriving: f64,
    /// Packets that the law did not drop.
    pub admitted: f64,
    /// Marked by it, of the admitted.
    pub marked: f64,
    pub leaving: f64,
    /// Share of the admitted for which there is no room.
    pub overflow: f64,
}

/// A class at one moment.
#[derive(Clone, Copy, Default)]
pub struct ClassState {
    /// R, 1/R and dR/dt.
    pub rtt_s: f64,
    per_rtt: f64,
    pub rtt_slope: f64,
    /// Rate of one flow, and its slope but for that of dW/dt.
    pub rate: f64,
    pub rate_slope: f64,
    /// Packets of the class that have passed the queues so far; behind the last queue, these are
    /// the delivered packets.
    pub passing_on: f64,
}

/// The packets of one class that come to a queue, per second.
#[derive(Clone, Copy, Default)]
pub struct Entering {
    pub arriving: f64,
    /// The packets without those that the law drops.
    pub admitted: f64,
    pub marked: f64,
}

/// Right-hand side at one moment.
#[derive(Clone, Default)]
pub struct Slopes {
    /// Derivatives of the windows, then of the queues, then of the senders' other state variables.
    pub state: Vec<f64>,
    pub classes: Vec<ClassState>,
    pub through: Vec<Through>,
    /// By queue, of the classes that pass it.
    pub entering: Vec<Vec<Entering>>,
}

/// A moment of a step.
#[derive(Clone, Copy)]
pub struct Moment {
    pub now_s: f64,
    /// Share of the step that has elapsed.
    pub part: f64,
}

/// The equations of classes and queues.
pub struct System {
    pub sources: Vec<Source>,
    pub queues: Vec<Queue>,
    /// Indices of queues, upstream first.
    order: Vec<usize>,
}

impl System {
    /// Returns the equations and their initial state: windows, then queues, then the senders'
    /// auxiliary variables.
    pub fn new(model: &Model) -> Result<(System, Vec<f64>), ParamError> {
        let mut state: Vec<f64> = (model.classes.iter())
            .map(|class| class.initial_window_pkts)
            .collect();
        state.resize(model.classes.len() + model.bottlenecks.len(), 0.0);
        let mut own = |class: &Class| {
            let first = state.len();
            state.extend(class.equations().start(class.initial_window_pkts));
            first..state.len()
        };
        let sources = (model.classes.iter().enumerate())
            .map(|(i, class)| Source {
                equations: class.equations(),
                feedback_rtts: class.feedback_s(1.0),
                own: own(class),
                flows: class.flows,
                rtt_s: class.rtt.as_secs_f64(),
                history: History::new(1.1 * class.feedback_s(model.longest_rtt_s(i))),
                since_s: 0.0,
                turnover: None,
                // The start.
                jumps_s: vec![0.0],
                seen: 0,
                between_s: (f64::NEG_INFINITY, -1e-9),
                observed_to_s: None,
                sees: Line::default(),
                round: (class.rtt.as_secs_f64(), 0.0),
                class: class.clone(),
            })
            .collect();
        let mut queues = Vec::new();
        for (v, bottleneck) in model.bottlenecks.iter().enumerate() {
            let mut laws = bottleneck.law.laws(model.seed, &format!("law {v}"));
            let (law, rng) = laws.build(&bottleneck.site())?;
            let passing: Vec<usize> = (0..model.classes.len())
                .filter(|i| model.classes[*i].route.contains(&v))
                .collect();
            queues.push(Queue {
                port: Port::new(bottleneck, law, rng),
                pkts_per_s: bottleneck.pkts_per_s(),
                s_per_pkt: 1.0 / bottleneck.pkts_per_s(),
                buffer_pkts: bottleneck.buffer_pkts,
                drops: passing.iter().any(|i| !model.classes[*i].marks),
                passing,
                piece: Piece::Idle,
            });
        }
        let system = System {
            order: model.order(),
            sources,
            queues,
        };
        Ok((system, state))
    }

    /// Returns slopes of zero for a state of this size.
    pub fn no_slopes(&self, state: &[f64]) -> Slopes {
        Slopes {
            state: vec![0.0; state.len()],
            classes: vec![ClassState::default(); self.sources.len()],
            through: vec![Through::default(); self.queues.len()],
            entering: (self.queues.iter())
                .map(|queue| vec![Entering::default(); queue.passing.len()])
                .collect(),
        }
    }

    /// Returns the smallest scale against which the error of each state is judged: one packet for a
    /// window, one bandwidth-delay product for a queue, and 0.1 for an auxiliary variable.
    pub fn floors(&self, state: &[f64]) -> Vec<f64> {
        let mut floors = vec![1.0; state.len()];
        for (v, queue) in self.queues.iter().enumerate() {
            let rtts = queue.passing.iter().map(|i| self.sources[*i].rtt_s);
            let shortest_s = rtts.fold(f64::INFINITY, f64::min).min(1.0);
            floors[self.sources.len() + v] = 1.0 + queue.pkts_per_s * shortest_s;
        }
        for source in &self.sources {
            floors[source.own.clone()].fill(0.1);
        }
        floors
    }

    /// Returns the round trip of a class.
    pub fn rtt_s(&self, class: usize, state: &[f64]) -> f64 {
        let source = &self.sources[class];
        let queues_pkts = &state[self.sources.len()..];
        let waiting_s = |v: &usize| queues_pkts[*v] * self.queues[*v].s_per_pkt;
        source.rtt_s + source.class.route.iter().map(waiting_s).sum::<f64>()
    }

    /// Returns the packets in flight of a mean flow through the first bottleneck.
    pub fn in_flight_pkts(&self, state: &[f64]) -> f64 {
        let (mut flows, mut pkts) = (0.0, 0.0);
        for &i in &self.queues[0].passing {
            let source = &self.sources[i];
            flows += source.flows;
            pkts += source.flows * source.class.windows.in_flight(state[i]);
        }
        pkts / flows
    }

    /// The equations; with `part` 0 also the pieces of this step.
    pub fn slopes(&mut self, at: Moment, state: &[f64], out: &mut Slopes) {
        let now_s = at.now_s;
        let (windows, queues_pkts) = state.split_at(self.sources.len());
        let (window_slopes, rest) = out.state.split_at_mut(windows.len());
        let (queue_slopes, own_slopes) = rest.split_at_mut(self.queues.len());
        let first_own = windows.len() + queue_slopes.len();
        let classes = &mut out.classes;
        for (i, source) in self.sources.iter_mut().enumerate() {
            let (class_state, window) = (&mut classes[i], windows[i]);
            let mut queueing_s = 0.0;
            for &v in &source.class.route {
                queueing_s += queues_pkts[v] * self.queues[v].s_per_pkt;
            }
            class_state.rtt_s = source.rtt_s + queueing_s;
            class_state.per_rtt = 1.0 / class_state.rtt_s;
            class_state.rate = source.class.windows.in_flight(window) * class_state.per_rtt;
            class_state.passing_on = source.flows * class_state.rate;
            if source.class.windows == Windows::Sawtooth {
                // An ACK releases a packet, and so does a window that grows. A window that shrinks
                // by n holds back the packets of n ACKs.
                let own = source.own.clone();
                let own_slopes = &mut own_slopes[own.start - first_own..own.end - first_own];
                let states = &state[own];
                window_slopes[i] =
                    source.window_slope(now_s, at.part, window, states, class_state, own_slopes);
                class_state.rate = (class_state.rate + window_slopes[i]).max(0.0);
                class_state.passing_on = source.flows * class_state.rate;
                // Without a queue, R does not change, and no rate depends on ACKs of another mix of
                // classes.
                if let (Some(turnover), true) = (source.turnover, queueing_s > 0.0) {
                    class_state.passing_on += turnover.rate(now_s, class_state.per_rtt);
                }
            }
        }
        for &v in &self.order {
            let queue = &mut self.queues[v];
            let mut through = Through::default();
            // A dropped packet does not enter the queue.
            let signals = queue.port.probability_at(now_s);
            let kept = if queue.drops { 1.0 - signals } else { 1.0 };
            for (&i, own) in queue.passing.iter().zip(&mut out.entering[v]) {
                let class = &self.sources[i].class;
                own.arriving = classes[i].passing_on;
                own.marked = 0.0;
                if class.l4s {
                    own.marked = queue.port.marks_l4s(signals) * own.arriving;
                } else if class.marks {
                    own.marked = signals * own.arriving;
                } else {
                    classes[i].passing_on *= kept;
                }
                own.admitted = classes[i].passing_on;
                through.arriving += own.arriving;
                through.admitted += own.admitted;
                through.marked += own.marked;
            }
            let backlog = queues_pkts[v];
            let growth = through.admitted - queue.pkts_per_s;
            if at.part == 0.0 {
                queue.piece = if backlog <= 0.0 && growth <= 0.0 {
                    Piece::Idle
                } else if backlog >= queue.buffer_pkts && growth > 0.0 {
                    Piece::Full
                } else {
                    Piece::Busy
                };
            }
            let mut slope = 0.0;
            through.leaving = queue.pkts_per_s;
            match queue.piece {
                Piece::Idle => through.leaving = through.admitted,
                Piece::Busy => slope = growth,
                Piece::Full => through.overflow = (growth / through.admitted).max(0.0),
            }
            // Packets that leave are taken to have the mix of those that enter at the same time.
            if through.admitted > 0.0 {
                let share = through.leaving / through.admitted;
                for &i in &queue.passing {
                    classes[i].passing_on *= share;
                }
            }
            queue_slopes[v] = slope;
            out.through[v] = through;
        }
        for (i, source) in self.sources.iter_mut().enumerate() {
            let class_state = &mut classes[i];
            class_state.rtt_slope = 0.0;
            for &v in &source.class.route {
                class_state.rtt_slope += queue_slopes[v] * self.queues[v].s_per_pkt;
            }
            if source.class.windows == Windows::Smooth {
                let own = source.own.clone();
                let own_slopes = &mut own_slopes[own.start - first_own..own.end - first_own];
                let states = &state[own];
                window_slopes[i] = source.window_slope(
                    now_s,
                    at.part,
                    windows[i],
                    states,
                    class_state,
                    own_slopes,
                );
            }
            // x = W/R
            class_state.rate_slope =
                (window_slopes[i] - class_state.rate * class_state.rtt_slope) * class_state.per_rtt;
        }
    }

    /// Returns the fraction of the step after which a queue leaves the piece of its right-hand
    /// side, by linear interpolation from `before` to `queues_pkts`, the end of the step; `None` if
    /// no queue leaves its piece by more than rounding.
    pub fn left(&self, before: &[f64], queues_pkts: &[f64], slopes: &[Slopes; 5]) -> Option<f64> {
        let mut earliest: Option<f64> = None;
        for (v, queue) in self.queues.iter().enumerate() {
            let k = self.sources.len() + v;
            let growth = |side: usize| {
                let through = &slopes[side].through[v];
                (through.admitted - queue.pkts_per_s) / queue.pkts_per_s
            };
            // Negative before the piece is left, positive after.
            let (first, last, near) = match queue.piece {
                Piece::Idle => (growth(0), growth(4), NEAR_GROWTH),
                Piece::Full => (-growth(0), -growth(4), NEAR_GROWTH),
                Piece::Busy if queues_pkts[v] > queue.buffer_pkts => {
                    let over = |pkts: f64| pkts - queue.buffer_pkts;
                    (over(before[k]), over(queues_pkts[v]), near_pkts(queue))
                }
                Piece::Busy => (-before[k], -queues_pkts[v], near_pkts(queue)),
            };
            if last > near && first < 0.0 {
                let part = first / (first - last);
                earliest = Some(earliest.map_or(part, |other| other.min(part)));
            }
        }
        earliest
    }
}

/// Growth, as a part of the capacity, that counts as none.
const NEAR_GROWTH: f64 = 1e-6;

/// Returns the distance below which a queue counts as at its bound.
fn near_pkts(queue: &Queue) -> f64 {
    1e-6 + 1e-7 * queue.buffer_pkts
}

/// Limits the state after a step from `before` to its valid range.
pub fn hold(system: &System, before: &[f64], state: &mut [f64]) {
    let (windows, rest) = state.split_at_mut(system.sources.len());
    let (queues_pkts, own) = rest.split_at_mut(system.queues.len());
    let first_own = windows.len() + queues_pkts.len();
    for (window, source) in windows.iter_mut().zip(&system.sources) {
        let class = &source.class;
        let states = &mut own[source.own.start - first_own..source.own.end - first_own];
        for state in states.iter_mut() {
            *state = state.clamp(0.0, source.equations.most());
        }
        if let Some(found) = source.equations.window(states) {
            *window = found;
        }
        *window = window.clamp(class.windows.least(), class.window_pkts);
    }
    let first = &before[windows.len()..];
    for ((backlog, first), queue) in queues_pkts.iter_mut().zip(first).zip(&system.queues) {
        let near = near_pkts(queue);
        if *backlog < near && *backlog < *first {
            *backlog = 0.0;
        } else if *backlog > queue.buffer_pkts - near && *backlog > *first {
            *backlog = queue.buffer_pkts;
        }
    }
}
