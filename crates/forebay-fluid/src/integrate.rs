//! The integration: classical Runge–Kutta of order four over a fixed step, delays by cubic
//! interpolation of the past.
//!
//! Where something jumps, a step ends: at a tick, at a change, and one round trip later, when
//! the jump of a sampled law's probability reaches a sender. Between those the right-hand side
//! is smooth except where a queue runs empty or full. The integration does not seek such a moment:
//! it holds the queue to [0, B] at the end of the step. That is exact for the queue, and gives the
//! windows an error of order step² at that moment alone.

use std::ops::Range;

use forebay_core::{ParamError, Rng, Span, Time};

use crate::history::{History, Segment};
use crate::model::{Class, Model, What};
use crate::port::{Passed, Port};
use crate::senders::{Equations, Flow, Windows};
use crate::trace::Trace;

/// Runs the model.
///
/// # Errors
/// A fault that [`Model::check`] finds, or a law's parameter that does not fit its queue.
pub fn run(model: &Model) -> Result<Trace, ParamError> {
    model.check()?;
    Ok(Engine::new(model)?.run())
}

/// Shortest step before a jump; clocks are in nanoseconds.
const NEAR_S: f64 = 2e-9;

/// A class as it runs.
struct Source {
    class: Class,
    equations: Equations,
    feedback_rtts: f64,
    /// Of the state: what its sender knows beside the window.
    own: Range<usize>,
    flows: f64,
    rtt_s: f64,
    history: History,
    /// Signals for packets sent before then belong to no flow.
    since_s: f64,
    turnover: Option<Turnover>,
    /// When probabilities on the way jumped, in order.
    jumps_s: Vec<f64>,
    /// How many of them the sender has seen.
    seen: usize,
    /// The last one seen, and just before the next: all stages of a step look at one side of a
    /// jump, in spite of rounding.
    between_s: (f64, f64),
}

/// Flows came or left. Those that come fill their windows during one round trip; the packets of
/// those that leave pass the queue during one, in the order in which they were sent.
#[derive(Clone, Copy)]
struct Turnover {
    /// By which the packets on the way grow; below zero where flows left.
    pkts_per_s: f64,
    until: Time,
}

impl Turnover {
    /// Packets that N·n counts before they are on the way: D.
    fn pkts_early(&self, now_s: f64) -> f64 {
        self.pkts_per_s * (self.until.as_secs_f64() - now_s).max(0.0)
    }

    /// What this adds to a class's rate while packets queue. F = N·n − D are on the way, and
    /// F/R + dF/dt is the rate of a class: −D/R − dD/dt beside the N·(n/R + dn/dt) of its flows.
    fn rate(&self, now_s: f64, per_rtt: f64) -> f64 {
        self.pkts_per_s - self.pkts_early(now_s) * per_rtt
    }
}

impl Source {
    /// dW/dt; the slopes of the sender's other states go to `out`.
    fn window_slope(
        &mut self,
        now_s: f64,
        window: f64,
        states: &[f64],
        class_state: &ClassState,
        out: &mut [f64],
    ) -> f64 {
        let (sent, probability) = self.sent(now_s - self.feedback_rtts * class_state.rtt_s);
        let class = &self.class;
        let flow = Flow {
            window,
            rtt_s: class_state.rtt_s,
            per_rtt: class_state.per_rtt,
            growth_pkts_per_rtt: class.growth_pkts_per_rtt,
            sent,
            probability,
            states,
        };
        let slope = self.equations.slopes(&flow, out);
        if self.flows == 0.0 {
            out.fill(0.0);
            return 0.0;
        }
        let held = window >= class.window_pkts && slope > 0.0
            || window <= class.windows.least() && slope < 0.0;
        if held {
            0.0
        } else {
            slope
        }
    }

    fn look_between_jumps(&mut self) {
        let last = self.seen.checked_sub(1).map_or(0.0, |k| self.jumps_s[k]);
        let next = self.jumps_s.get(self.seen);
        self.between_s = (last, next.map_or(f64::INFINITY, |at| at - 1e-9));
    }

    /// What one flow learns of from `time_s`: its rate then, and the probability of a signal.
    fn sent(&mut self, time_s: f64) -> (f64, f64) {
        if time_s < self.since_s {
            return (0.0, 0.0);
        }
        let (low, high) = self.between_s;
        self.history.sent(time_s, time_s.min(high).max(low))
    }
}

/// A queue as it runs.
struct Queue {
    port: Port,
    pkts_per_s: f64,
    s_per_pkt: f64,
    buffer_pkts: f64,
    /// Classes that pass, by index.
    passing: Vec<usize>,
    /// Whether some of them pass another queue later.
    feeds: bool,
}

/// Flows through a queue at one moment, packets/s.
#[derive(Clone, Copy, Default)]
struct Through {
    arriving: f64,
    /// Not dropped by the law.
    admitted: f64,
    leaving: f64,
    /// Share of the admitted for which there is no room.
    overflow: f64,
}

/// Shares of packets without a signal.
#[derive(Clone, Copy, Default)]
struct Kept {
    classic: f64,
    /// Of ECT(1) packets.
    l4s: f64,
}

/// A class at one moment.
#[derive(Clone, Copy, Default)]
struct ClassState {
    /// R, 1/R and dR/dt.
    rtt_s: f64,
    per_rtt: f64,
    rtt_slope: f64,
    /// Rate of one flow.
    rate: f64,
    /// What the class sends past the queues so far.
    passing_on: f64,
}

/// Right-hand side at one moment.
#[derive(Clone, Default)]
struct Slopes {
    /// Of windows, then of queues, then of what senders know beside their windows.
    state: Vec<f64>,
    classes: Vec<ClassState>,
    through: Vec<Through>,
}

struct Engine<'a> {
    model: &'a Model,
    sources: Vec<Source>,
    queues: Vec<Queue>,
    /// Indices of queues, upstream first.
    order: Vec<usize>,
    /// Windows, then queues, then what senders know beside their windows.
    state: Vec<f64>,
    /// Scratch: the state at the start of a step.
    before: Vec<f64>,
    /// Scratch: by queue, share of packets without a signal at both ends of a step.
    kept: Vec<[Kept; 2]>,
    trace: Trace,
    /// By queue: time integral of the probability since the last row.
    signal_s: Vec<f64>,
    last_row: Time,
}

impl<'a> Engine<'a> {
    fn new(model: &'a Model) -> Result<Engine<'a>, ParamError> {
        let mut state: Vec<f64> = (model.classes.iter())
            .map(|class| class.initial_window_pkts)
            .collect();
        state.resize(model.classes.len() + model.bottlenecks.len(), 0.0);
        let mut own = |class: &Class| {
            let first = state.len();
            state.extend(class.equations().start(class.initial_window_pkts));
            first..state.len()
        };
        let sources: Vec<Source> = (model.classes.iter().enumerate())
            .map(|(i, class)| Source {
                equations: class.equations(),
                feedback_rtts: class.feedback_s(1.0),
                own: own(class),
                flows: class.flows,
                rtt_s: class.rtt.as_secs_f64(),
                history: History::new(class.feedback_s(model.longest_rtt_s(i))),
                since_s: 0.0,
                turnover: None,
                jumps_s: Vec::new(),
                seen: 0,
                between_s: (0.0, f64::INFINITY),
                class: class.clone(),
            })
            .collect();
        let mut queues = Vec::new();
        for (v, bottleneck) in model.bottlenecks.iter().enumerate() {
            let law = bottleneck.law.build(&bottleneck.site())?;
            let rng = Rng::new(model.seed, &format!("law {v}"));
            let passes = |i: &usize| model.classes[*i].route.contains(&v);
            queues.push(Queue {
                port: Port::new(bottleneck, law, rng),
                pkts_per_s: bottleneck.pkts_per_s(),
                s_per_pkt: 1.0 / bottleneck.pkts_per_s(),
                buffer_pkts: bottleneck.buffer_pkts,
                feeds: (model.classes.iter())
                    .any(|class| class.route.contains(&v) && class.route.last() != Some(&v)),
                passing: (0..model.classes.len()).filter(passes).collect(),
            });
        }
        let columns = |count| vec![Vec::new(); count];
        Ok(Engine {
            trace: Trace {
                time_s: Vec::new(),
                queue_pkts: columns(queues.len()),
                probability: columns(queues.len()),
                window_pkts: columns(sources.len()),
                in_flight_pkts: Vec::new(),
                rtt_s: columns(sources.len()),
            },
            order: model.order(),
            before: state.clone(),
            kept: vec![[Kept::default(); 2]; queues.len()],
            signal_s: vec![0.0; queues.len()],
            last_row: Time::ZERO,
            model,
            sources,
            queues,
            state,
        })
    }

    fn run(mut self) -> Trace {
        let (step, sample) = (self.model.step, self.model.sample);
        let end = Time::ZERO + self.model.duration;
        let mut changes = self.model.changes.iter().peekable();
        let mut now = Time::ZERO;
        let (mut next_step, mut next_sample) = (now + step, now);
        let mut slopes: [Slopes; 5] = std::array::from_fn(|_| self.no_slopes());
        let mut fresh = false;
        loop {
            while let Some(change) = changes.next_if(|change| change.at <= now) {
                self.change(now, &change.what);
                fresh = false;
            }
            fresh &= !self.tick(now);
            if now == next_sample {
                self.record(now);
                next_sample += sample;
            }
            if now >= end {
                return self.trace;
            }
            if !fresh {
                self.slopes_now(now, &mut slopes[0]);
            }
            if self.see_jumps(now, &slopes[0]) {
                self.slopes_now(now, &mut slopes[0]);
            }
            while next_step <= now {
                next_step += step;
            }
            let mut until = end.min(next_step).min(next_sample);
            if let Some(change) = changes.peek() {
                until = until.min(change.at);
            }
            for queue in &self.queues {
                if let Some(tick) = queue.port.next_tick() {
                    until = until.min(tick);
                }
            }
            until = self.before_jumps(now, until, &slopes[0]);
            self.advance(now, until, &mut slopes);
            fresh = true;
            // The last one was taken at the end of the step.
            slopes.swap(0, 4);
            now = until;
        }
    }

    fn no_slopes(&self) -> Slopes {
        Slopes {
            state: vec![0.0; self.state.len()],
            classes: vec![ClassState::default(); self.sources.len()],
            through: vec![Through::default(); self.queues.len()],
        }
    }

    fn slopes_now(&mut self, now: Time, out: &mut Slopes) {
        let state = std::mem::take(&mut self.state);
        self.slopes(now.as_secs_f64(), &state, out);
        self.state = state;
    }

    /// The equations.
    fn slopes(&mut self, now_s: f64, state: &[f64], out: &mut Slopes) {
        let (windows, queues_pkts) = state.split_at(self.sources.len());
        let (window_slopes, rest) = out.state.split_at_mut(windows.len());
        let (queue_slopes, own_slopes) = rest.split_at_mut(self.queues.len());
        let first_own = windows.len() + queue_slopes.len();
        let classes = &mut out.classes;
        for (i, source) in self.sources.iter_mut().enumerate() {
            let (class_state, window) = (&mut classes[i], windows[i]);
            let waiting_s = |v: &usize| queues_pkts[*v] * self.queues[*v].s_per_pkt;
            let queueing_s = source.class.route.iter().map(waiting_s).sum::<f64>();
            class_state.rtt_s = source.rtt_s + queueing_s;
            class_state.per_rtt = 1.0 / class_state.rtt_s;
            class_state.rate = source.class.windows.in_flight(window) * class_state.per_rtt;
            class_state.passing_on = source.flows * class_state.rate;
            if source.class.windows == Windows::Sawtooth {
                // An ACK lets a packet go, and so does a window that grows. A window that shrinks
                // by n holds the packets of n ACKs back.
                let own = source.own.clone();
                let own_slopes = &mut own_slopes[own.start - first_own..own.end - first_own];
                window_slopes[i] =
                    source.window_slope(now_s, window, &state[own], class_state, own_slopes);
                class_state.rate = (class_state.rate + window_slopes[i]).max(0.0);
                class_state.passing_on = source.flows * class_state.rate;
                // Without a queue R stays, and no rate waits for ACKs in a new mixture.
                if let (Some(turnover), true) = (source.turnover, queueing_s > 0.0) {
                    class_state.passing_on += turnover.rate(now_s, class_state.per_rtt);
                }
            }
        }
        for &v in &self.order {
            let queue = &self.queues[v];
            let mut through = Through::default();
            for &i in &queue.passing {
                through.arriving += classes[i].passing_on;
                if !self.sources[i].class.marks {
                    // A dropped packet does not enter the queue.
                    classes[i].passing_on *= (1.0 - queue.port.probability).max(0.0);
                }
                through.admitted += classes[i].passing_on;
            }
            let capacity = queue.pkts_per_s;
            let backlog = queues_pkts[v];
            let growth = through.admitted - capacity;
            through.leaving = if backlog > 0.0 {
                capacity
            } else {
                capacity.min(through.admitted)
            };
            let full = backlog >= queue.buffer_pkts && growth > 0.0;
            if full {
                through.overflow = growth / through.admitted;
            }
            // Packets that leave are taken to have the mix of those that enter at the same time.
            if queue.feeds && through.admitted > 0.0 {
                let share = through.leaving / through.admitted;
                for &i in &queue.passing {
                    classes[i].passing_on *= share;
                }
            }
            let slope = if full {
                0.0
            } else {
                through.admitted - through.leaving
            };
            queue_slopes[v] = slope;
            out.through[v] = through;
        }
        for (i, source) in self.sources.iter_mut().enumerate() {
            let waiting = |v: &usize| queue_slopes[*v] * self.queues[*v].s_per_pkt;
            classes[i].rtt_slope = source.class.route.iter().map(waiting).sum();
            if source.class.windows == Windows::Smooth {
                let own = source.own.clone();
                let own_slopes = &mut own_slopes[own.start - first_own..own.end - first_own];
                window_slopes[i] =
                    source.window_slope(now_s, windows[i], &state[own], &classes[i], own_slopes);
            }
        }
    }

    /// One step; `slopes[0]` are those at its start, and become those at its end in
    /// `slopes[4]`.
    fn advance(&mut self, start: Time, end: Time, slopes: &mut [Slopes; 5]) {
        let (start_s, end_s) = (start.as_secs_f64(), end.as_secs_f64());
        let h = end_s - start_s;
        let mut before = std::mem::take(&mut self.before);
        let mut state = std::mem::take(&mut self.state);
        before.copy_from_slice(&state);
        for stage in 1..4 {
            let part = if stage < 3 { h / 2.0 } else { h };
            for (y, (from, slope)) in state
                .iter_mut()
                .zip(before.iter().zip(&slopes[stage - 1].state))
            {
                *y = from + part * slope;
            }
            self.slopes(start_s + part, &state, &mut slopes[stage]);
        }
        for (k, y) in state.iter_mut().enumerate() {
            let [k1, k2, k3, k4] = [0, 1, 2, 3].map(|stage| slopes[stage].state[k]);
            *y = before[k] + h / 6.0 * (k1 + 2.0 * (k2 + k3) + k4);
        }
        let (windows, rest) = state.split_at_mut(self.sources.len());
        let (queues_pkts, own) = rest.split_at_mut(self.queues.len());
        let first_own = windows.len() + queues_pkts.len();
        for (window, source) in windows.iter_mut().zip(&self.sources) {
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
        for (backlog, queue) in queues_pkts.iter_mut().zip(&self.queues) {
            *backlog = backlog.clamp(0.0, queue.buffer_pkts);
        }
        for (v, queue) in self.queues.iter_mut().enumerate() {
            let k = self.sources.len() + v;
            let total = |of: fn(&Through) -> f64| {
                let [k1, k2, k3, k4] = [0, 1, 2, 3].map(|stage| of(&slopes[stage].through[v]));
                h / 6.0 * (k1 + 2.0 * (k2 + k3) + k4)
            };
            let left = total(|through| through.leaving);
            let no_room = total(|through| through.admitted) - left - (state[k] - before[k]);
            let p = queue.port.pass(&Passed {
                start,
                end,
                queue_pkts: [before[k], state[k]],
                arrived: total(|through| through.arriving),
                // Of the rest, rounding.
                overflowed: if state[k] >= queue.buffer_pkts {
                    no_room.max(0.0)
                } else {
                    0.0
                },
                left,
            });
            self.signal_s[v] += h * (p[0] + p[1]) / 2.0;
            self.kept[v] = p.map(|p| Kept {
                classic: 1.0 - p,
                l4s: 1.0 - queue.port.marks_l4s(p),
            });
        }
        self.slopes(end_s, &state, &mut slopes[4]);
        for (v, kept) in self.kept.iter_mut().enumerate() {
            for (kept, side) in kept.iter_mut().zip([0, 4]) {
                let room = 1.0 - slopes[side].through[v].overflow;
                kept.classic *= room;
                kept.l4s *= room;
            }
        }
        for (i, source) in self.sources.iter_mut().enumerate() {
            let side = |side: usize| {
                let slopes = &slopes[4 * side];
                let ClassState {
                    rate,
                    per_rtt,
                    rtt_slope,
                    ..
                } = slopes.classes[i];
                // x = W/R
                let slope = (slopes.state[i] - rate * rtt_slope) * per_rtt;
                let through = source.class.route.iter().map(|v| {
                    let kept = &self.kept[*v][side];
                    if source.class.l4s {
                        kept.l4s
                    } else {
                        kept.classic
                    }
                });
                (rate, slope, 1.0 - through.product::<f64>())
            };
            let (mut first, mut last) = (side(0), side(1));
            if source.class.windows == Windows::Sawtooth {
                // No second derivative of W is at hand for the slope of dW/dt: a line instead,
                // with an error of order step².
                first.1 = (last.0 - first.0) / h;
                last.1 = first.1;
            }
            source.history.push(Segment {
                start_s,
                end_s,
                rate: [first.0, last.0],
                slope: [first.1, last.1],
                probability: [first.2, last.2],
            });
        }
        self.state = state;
        self.before = before;
    }

    /// Lets senders see the jumps that have reached them, and turnovers end; true if there were
    /// any.
    fn see_jumps(&mut self, now: Time, slopes: &Slopes) -> bool {
        let mut any = false;
        for (source, class_state) in self.sources.iter_mut().zip(&slopes.classes) {
            let looks_at = now.as_secs_f64() - source.feedback_rtts * class_state.rtt_s;
            let reached = |at: &f64| at - looks_at < NEAR_S;
            while source.jumps_s.get(source.seen).is_some_and(reached) {
                source.seen += 1;
                any = true;
            }
            source.look_between_jumps();
            if source.turnover.is_some_and(|it| it.until <= now) {
                source.turnover = None;
                any = true;
            }
        }
        any
    }

    /// Ends a step where a jump of the probability reaches a sender: the time that feedback comes
    /// from meets that of the jump, with R continued along its slope. And where a turnover ends.
    fn before_jumps(&self, now: Time, mut until: Time, slopes: &Slopes) -> Time {
        let now_s = now.as_secs_f64();
        let mut until_s = until.as_secs_f64();
        for (i, source) in self.sources.iter().enumerate() {
            let looks_at = now_s - source.feedback_rtts * slopes.classes[i].rtt_s;
            let passes = 1.0 - source.feedback_rtts * slopes.classes[i].rtt_slope;
            if let Some(at) = source.jumps_s.get(source.seen) {
                if passes > 0.0 {
                    until_s = until_s.min(now_s + (at - looks_at) / passes);
                }
            }
            if let Some(turnover) = source.turnover {
                until = until.min(turnover.until);
            }
        }
        let early = Time::ZERO + Span::from_secs_f64(until_s);
        until.min(early.max(now + Span::from_nanos(1)))
    }

    /// Every tick that is due; true if one moved a probability.
    fn tick(&mut self, now: Time) -> bool {
        let mut moved = false;
        for (v, queue) in self.queues.iter_mut().enumerate() {
            let due = queue.port.next_tick().is_some_and(|due| due <= now);
            if due && queue.port.tick(now, self.state[self.sources.len() + v]) {
                moved = true;
                for &i in &queue.passing {
                    self.sources[i].jumps_s.push(now.as_secs_f64());
                }
            }
        }
        moved
    }

    fn change(&mut self, now: Time, what: &What) {
        match *what {
            What::Rate { bottleneck, rate } => {
                let queue = &mut self.queues[bottleneck];
                queue.pkts_per_s = rate.packets_per_sec(self.model.bottlenecks[bottleneck].packet);
                queue.s_per_pkt = 1.0 / queue.pkts_per_s;
                queue.port.set_rate(rate);
            }
            What::Buffer {
                bottleneck,
                buffer_pkts,
            } => {
                self.queues[bottleneck].buffer_pkts = buffer_pkts;
                self.queues[bottleneck].port.set_buffer(buffer_pkts);
            }
            What::Rtt { class, rtt } => self.sources[class].rtt_s = rtt.as_secs_f64(),
            What::Flows { class, flows } => {
                let rtt_s = self.rtt_s(class);
                let source = &mut self.sources[class];
                let come = flows - source.flows;
                if source.class.windows == Windows::Sawtooth {
                    let window = if come > 0.0 {
                        source.class.initial_window_pkts
                    } else {
                        self.state[class]
                    };
                    let early = |it: Turnover| it.pkts_early(now.as_secs_f64());
                    let pending = source.turnover.map_or(0.0, early);
                    let pkts = pending + come * source.class.windows.in_flight(window);
                    source.turnover = Some(Turnover {
                        pkts_per_s: pkts / rtt_s,
                        until: now + Span::from_secs_f64(rtt_s),
                    });
                }
                if source.flows == 0.0 {
                    source.since_s = now.as_secs_f64();
                }
                if come > 0.0 {
                    let new = come * source.class.initial_window_pkts;
                    self.state[class] = (source.flows * self.state[class] + new) / flows;
                    let fresh = source.equations.start(source.class.initial_window_pkts);
                    for (k, fresh) in source.own.clone().zip(fresh) {
                        self.state[k] = (source.flows * self.state[k] + come * fresh) / flows;
                    }
                    let states = &self.state[source.own.clone()];
                    if let Some(window) = source.equations.window(states) {
                        self.state[class] = window;
                    }
                }
                source.flows = flows;
            }
        }
    }

    /// Round trip of a class now.
    fn rtt_s(&self, class: usize) -> f64 {
        let source = &self.sources[class];
        let queues_pkts = &self.state[self.sources.len()..];
        let waiting_s = |v: &usize| queues_pkts[*v] * self.queues[*v].s_per_pkt;
        source.rtt_s + source.class.route.iter().map(waiting_s).sum::<f64>()
    }

    /// Of a mean flow through the first bottleneck.
    fn in_flight_pkts(&self) -> f64 {
        let (mut flows, mut pkts) = (0.0, 0.0);
        for &i in &self.queues[0].passing {
            let source = &self.sources[i];
            flows += source.flows;
            pkts += source.flows * source.class.windows.in_flight(self.state[i]);
        }
        pkts / flows
    }

    fn record(&mut self, now: Time) {
        let classes = self.sources.len();
        let since_s = now.since(self.last_row).as_secs_f64();
        self.last_row = now;
        self.trace.time_s.push(now.as_secs_f64());
        for (v, queue) in self.queues.iter().enumerate() {
            let signal_s = std::mem::take(&mut self.signal_s[v]);
            let mean = if since_s > 0.0 {
                signal_s / since_s
            } else {
                queue.port.probability
            };
            self.trace.probability[v].push(mean);
            self.trace.queue_pkts[v].push(self.state[classes + v]);
        }
        self.trace.in_flight_pkts.push(self.in_flight_pkts());
        for (i, source) in self.sources.iter().enumerate() {
            let rtt_s = self.rtt_s(i);
            self.trace.rtt_s[i].push(rtt_s);
            // No flows, no window.
            let running = source.flows > 0.0;
            self.trace.window_pkts[i].push(if running { self.state[i] } else { f64::NAN });
        }
    }
}
