//! The trace of a run, and the error of its step size.
//!
//! The packets that pass a queue are spread evenly over a step, which is short compared with a round
//! trip.

use forebay_units::{ParamError, Span, Time};

use crate::system::System;
use crate::{run, Model};

/// Columns with one row per sample, the first at time zero.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    /// The time in s.
    pub time_s: Vec<f64>,
    /// The queue length of each bottleneck in packets.
    pub queue_pkts: Vec<Vec<f64>>,
    /// The signal probability of each bottleneck's law, its mean since the last row.
    pub probability: Vec<Vec<f64>>,
    /// The window of one flow of each class in packets; NaN while the class has no flows.
    pub window_pkts: Vec<Vec<f64>>,
    /// The packets in flight of one flow, the mean over those that pass the first bottleneck; NaN
    /// while there are none. With sawtooth windows half a packet less than the window.
    pub in_flight_pkts: Vec<f64>,
    /// The round-trip time of each class with queueing, in s.
    pub rtt_s: Vec<Vec<f64>>,
    /// The packets that passed each bottleneck since the last row.
    pub passed: Vec<Vec<Passage>>,
    /// The packets of each class at each bottleneck on its route since the last row: by bottleneck,
    /// and then by class that passes it, in the order of the classes.
    pub met: Vec<Vec<Vec<Met>>>,
    /// The packets of each class that have left its last bottleneck since the last row.
    pub delivered_pkts: Vec<Vec<f64>>,
}

/// The packets of the fluid that passed a queue within a time, which need not be integers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Passage {
    /// Packets that arrived.
    pub arrived: f64,
    /// Packets that the law dropped.
    pub dropped: f64,
    /// Packets that the law marked.
    pub marked: f64,
    /// Packets that found the buffer full.
    pub overflowed: f64,
    /// Packets that left.
    pub left: f64,
    /// Packets that the link could have sent.
    pub could_leave: f64,
}

impl Passage {
    /// Adds `share` of another passage.
    fn add(&mut self, share: f64, other: &Passage) {
        self.arrived += share * other.arrived;
        self.dropped += share * other.dropped;
        self.marked += share * other.marked;
        self.overflowed += share * other.overflowed;
        self.left += share * other.left;
        self.could_leave += share * other.could_leave;
    }
}

/// The packets of one class that came to a queue within a time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Met {
    /// Packets that joined the queue.
    pub entered: f64,
    /// Packets that were dropped, for any reason.
    pub lost: f64,
    /// Packets that were marked.
    pub marked: f64,
}

impl Met {
    fn add(&mut self, share: f64, other: &Met) {
        self.entered += share * other.entered;
        self.lost += share * other.lost;
        self.marked += share * other.marked;
    }
}

/// The largest differences between a run and one with half its step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Halving {
    /// Largest difference of a queue length in packets.
    pub queue_pkts: f64,
    /// Largest difference of a window in packets.
    pub window_pkts: f64,
    /// Largest difference of a signal probability.
    pub probability: f64,
}

/// Runs the model at its step and at half of it; the difference estimates the error of the step size.
/// An unstable loop amplifies any difference, so the estimate means little there.
///
/// # Errors
/// If [`run`] fails.
pub fn halving(model: &Model) -> Result<Halving, ParamError> {
    let half = Model {
        step: model.step.divided(2),
        ..model.clone()
    };
    let (whole, half) = (run(model)?, run(&half)?);
    Ok(Halving {
        queue_pkts: greatest(&whole.queue_pkts, &half.queue_pkts),
        window_pkts: greatest(&whole.window_pkts, &half.window_pkts),
        probability: greatest(&whole.probability, &half.probability),
    })
}

fn greatest(a: &[Vec<f64>], b: &[Vec<f64>]) -> f64 {
    let pairs = a.iter().flatten().zip(b.iter().flatten());
    pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

/// The trace as it grows: a row where a step ends at its time, and between the ends of a step.
pub(crate) struct Rows {
    pub trace: Trace,
    sample: Span,
    next: Time,
    last: Time,
    /// By queue: time integral of the probability since the last row.
    signal_s: Vec<f64>,
    /// By queue: probability at both ends of the last step.
    probability: Vec<[f64; 2]>,
    in_step: Amounts,
    since_row: Amounts,
    /// Scratch.
    state: Vec<f64>,
}

/// Amounts that passed within an interval of time.
#[derive(Clone)]
struct Amounts {
    /// By queue.
    passed: Vec<Passage>,
    /// By queue, and by class that passes it.
    met: Vec<Vec<Met>>,
    /// By class.
    delivered_pkts: Vec<f64>,
}

impl Amounts {
    fn none(system: &System) -> Amounts {
        let queues = system.queues.iter();
        Amounts {
            passed: vec![Passage::default(); queues.len()],
            met: queues
                .map(|queue| vec![Met::default(); queue.passing.len()])
                .collect(),
            delivered_pkts: vec![0.0; system.sources.len()],
        }
    }

    fn add(&mut self, share: f64, other: &Amounts) {
        for (sum, more) in self.passed.iter_mut().zip(&other.passed) {
            sum.add(share, more);
        }
        for (sum, more) in self
            .met
            .iter_mut()
            .flatten()
            .zip(other.met.iter().flatten())
        {
            sum.add(share, more);
        }
        for (sum, more) in self.delivered_pkts.iter_mut().zip(&other.delivered_pkts) {
            *sum += share * more;
        }
    }
}

impl Rows {
    /// Returns an empty trace of the model.
    pub fn new(system: &System, model: &Model) -> Rows {
        let (queues, classes) = (system.queues.len(), system.sources.len());
        let rows = model.duration.as_nanos() / model.sample.as_nanos() + 1;
        let rows = usize::try_from(rows).unwrap_or(0);
        let columns = |count| (0..count).map(|_| Vec::with_capacity(rows)).collect();
        Rows {
            trace: Trace {
                time_s: Vec::with_capacity(rows),
                queue_pkts: columns(queues),
                probability: columns(queues),
                window_pkts: columns(classes),
                in_flight_pkts: Vec::new(),
                rtt_s: columns(classes),
                passed: (0..queues).map(|_| Vec::with_capacity(rows)).collect(),
                met: (system.queues.iter())
                    .map(|queue| vec![Vec::with_capacity(rows); queue.passing.len()])
                    .collect(),
                delivered_pkts: columns(classes),
            },
            sample: model.sample,
            next: Time::ZERO,
            last: Time::ZERO,
            signal_s: vec![0.0; queues],
            probability: vec![[0.0; 2]; queues],
            in_step: Amounts::none(system),
            since_row: Amounts::none(system),
            state: Vec::new(),
        }
    }

    /// Sets the packets that passed a queue in a step.
    pub fn passed(&mut self, queue: usize, passage: Passage) {
        self.in_step.passed[queue] = passage;
    }

    /// Sets the packets of a class at a queue in a step; `place` is its place among the classes that
    /// pass the queue.
    pub fn met(&mut self, queue: usize, place: usize, met: Met) {
        self.in_step.met[queue][place] = met;
    }

    /// Sets the packets of a class that left its last queue in a step.
    pub fn delivered(&mut self, class: usize, pkts: f64) {
        self.in_step.delivered_pkts[class] = pkts;
    }

    /// Sets the signal probabilities of a queue at both ends of a step.
    pub fn signals(&mut self, queue: usize, probability: [f64; 2]) {
        self.probability[queue] = probability;
    }

    /// Adds the rows that are due before the end of a step, by cubics through its ends, and the
    /// amounts of the step.
    pub fn between(
        &mut self,
        start: Time,
        end: Time,
        system: &System,
        states: [&[f64]; 2],
        slopes: [&[f64]; 2],
    ) {
        let h = end.since(start).as_secs_f64();
        let mut from = 0.0;
        while self.next < end {
            let s = self.next.since(start).as_secs_f64() / h;
            self.add_up(from, s, h);
            from = s;
            let r = 1.0 - s;
            let mut state = std::mem::take(&mut self.state);
            state.clear();
            state.extend((0..states[0].len()).map(|k| {
                let values =
                    r * r * (1.0 + 2.0 * s) * states[0][k] + s * s * (3.0 - 2.0 * s) * states[1][k];
                values + h * s * r * (r * slopes[0][k] - s * slopes[1][k])
            }));
            for (v, queue) in system.queues.iter().enumerate() {
                let backlog = &mut state[system.sources.len() + v];
                *backlog = backlog.clamp(0.0, queue.buffer_pkts);
            }
            self.row(system, &state);
            self.state = state;
        }
        self.add_up(from, 1.0, h);
    }

    fn add_up(&mut self, from: f64, to: f64, h: f64) {
        for (signal_s, [first, last]) in self.signal_s.iter_mut().zip(&self.probability) {
            let middle = first + 0.5 * (from + to) * (last - first);
            *signal_s += h * (to - from) * middle;
        }
        self.since_row.add(to - from, &self.in_step);
    }

    /// Adds a row if one is due now.
    pub fn at(&mut self, now: Time, system: &System, state: &[f64]) {
        if self.next == now {
            self.row(system, state);
        }
    }

    fn row(&mut self, system: &System, state: &[f64]) {
        let classes = system.sources.len();
        let since_s = self.next.since(self.last).as_secs_f64();
        let trace = &mut self.trace;
        trace.time_s.push(self.next.as_secs_f64());
        for (v, queue) in system.queues.iter().enumerate() {
            let signal_s = std::mem::take(&mut self.signal_s[v]);
            let mean = if since_s > 0.0 {
                // But for rounding.
                (signal_s / since_s).min(1.0)
            } else {
                queue.port.probability
            };
            trace.probability[v].push(mean);
            trace.queue_pkts[v].push(state[classes + v]);
            trace.passed[v].push(std::mem::take(&mut self.since_row.passed[v]));
            for (column, met) in trace.met[v].iter_mut().zip(&mut self.since_row.met[v]) {
                column.push(std::mem::take(met));
            }
        }
        trace.in_flight_pkts.push(system.in_flight_pkts(state));
        for (i, source) in system.sources.iter().enumerate() {
            trace.rtt_s[i].push(system.rtt_s(i, state));
            // No flows, no window.
            let running = source.flows > 0.0;
            trace.window_pkts[i].push(if running { state[i] } else { f64::NAN });
            trace.delivered_pkts[i].push(std::mem::take(&mut self.since_row.delivered_pkts[i]));
        }
        self.last = self.next;
        self.next += self.sample;
    }
}
