//! The integration: classical Runge–Kutta of order four, delays by cubic interpolation of the past.
//!
//! A step is as long as its error allows ([`Pace`]); the error is estimated by h/6·(k₄ − k₅), the
//! difference from the rule of order three that the stages and the end of the step give. A step
//! ends at a tick of a law, at a change, one round trip after a change, and where a queue becomes
//! empty or full or begins to grow. A sampled law's probability jumps at its ticks; when the jumps
//! reach a sender, the step does not end; the sender then sees a line of the same mean and first
//! moment ([`History::line`](crate::history::History::line)). Rows of the trace are read from the
//! cubic through the ends of a step.

use forebay_units::{ParamError, Span, Time};

use crate::history::Segment;
use crate::model::{Model, What};
use crate::port::Passed;
use crate::senders::Windows;
use crate::step::Pace;
use crate::system::{hold, Entering, Moment, Piece, Slopes, System, Through, Turnover};
use crate::trace::{Met, Passage, Rows, Trace};

/// Runs the model.
///
/// # Errors
/// A fault that [`Model::check`] finds, or a law's parameter that does not fit its queue.
pub fn run(model: &Model) -> Result<Trace, ParamError> {
    let trace = run_while(model, |_| true)?;
    Ok(trace.expect("nothing ends it early"))
}

/// Runs the model as long as `goes_on` returns true, which is called with the time after each step;
/// returns `None` if `goes_on` ended the run.
///
/// # Errors
/// As [`run`].
pub fn run_while(
    model: &Model,
    goes_on: impl FnMut(Time) -> bool,
) -> Result<Option<Trace>, ParamError> {
    model.check()?;
    Ok(Engine::new(model)?.run(goes_on))
}

/// Shortest step before a jump; clocks are in nanoseconds.
const NEAR_S: f64 = 2e-9;

/// Shortest step for which the moment at which a queue leaves its piece is searched for.
const LOCATED: Span = Span::from_nanos(200);

/// Shares of packets without a signal.
#[derive(Clone, Copy, Default)]
struct Kept {
    classic: f64,
    /// The share of ECT(1) packets.
    l4s: f64,
}

struct Engine<'a> {
    model: &'a Model,
    system: System,
    pace: Pace,
    /// Windows, then queues, then the senders' other state variables.
    state: Vec<f64>,
    /// Scratch: the state at the end of a step.
    after: Vec<f64>,
    /// Slopes at the stages of a step, and at its end.
    slopes: [Slopes; 5],
    /// The scale of the error of each state.
    floors: Vec<f64>,
    /// Scratch: queue lengths at the end of a step, with and without their bounds.
    led_to: Vec<f64>,
    /// Scratch: the time up to which each class sees the past.
    observed_to_s: Vec<f64>,
    /// Scratch: by queue, share of packets without a signal at both ends of a step.
    kept: Vec<[Kept; 2]>,
    rows: Rows,
}

impl<'a> Engine<'a> {
    fn new(model: &'a Model) -> Result<Engine<'a>, ParamError> {
        let (system, state) = System::new(model)?;
        let slopes = std::array::from_fn(|_| system.no_slopes(&state));
        Ok(Engine {
            pace: Pace::new(model.step),
            after: state.clone(),
            slopes,
            floors: system.floors(&state),
            led_to: vec![0.0; system.queues.len()],
            observed_to_s: vec![0.0; system.sources.len()],
            kept: vec![[Kept::default(); 2]; system.queues.len()],
            rows: Rows::new(&system, model),
            model,
            system,
            state,
        })
    }

    fn run(mut self, mut goes_on: impl FnMut(Time) -> bool) -> Option<Trace> {
        let end = Time::ZERO + self.model.duration;
        let mut changes = self.model.changes.iter().peekable();
        let mut now = Time::ZERO;
        self.slopes_now(now);
        loop {
            let mut changed = false;
            while let Some(change) = changes.next_if(|change| change.at <= now) {
                self.change(now, &change.what);
                changed = true;
            }
            self.tick(now);
            if changed {
                self.slopes_now(now);
            }
            self.rows.at(now, &self.system, &self.state);
            if now >= end {
                return Some(self.rows.trace);
            }
            if !goes_on(now) {
                return None;
            }
            self.see_jumps(now);
            let mut until = end;
            if let Some(change) = changes.peek() {
                until = until.min(change.at);
            }
            for queue in &self.system.queues {
                if let Some(tick) = queue.port.next_tick() {
                    until = until.min(tick);
                }
            }
            until = self.before_jumps(now, until);
            now = self.step(now, until);
        }
    }

    fn slopes_now(&mut self, now: Time) {
        let at = Moment {
            now_s: now.as_secs_f64(),
            part: 0.0,
        };
        (self.system).slopes(at, &self.state, &mut self.slopes[4]);
        self.keep_rounds();
    }

    /// Stores R and dR/dt, from which later values are predicted.
    fn keep_rounds(&mut self) {
        for (source, class_state) in (self.system.sources.iter_mut()).zip(&self.slopes[4].classes) {
            source.round = (class_state.rtt_s, class_state.rtt_slope);
        }
    }

    /// Returns the shortest time from a packet to its signal, now and without a queue.
    fn feedback_s(&self) -> (f64, f64) {
        let running = self.system.sources.iter().filter(|it| it.flows > 0.0);
        running.fold((f64::INFINITY, f64::INFINITY), |(now, empty), source| {
            (
                now.min(source.feedback_rtts * source.round.0),
                empty.min(source.feedback_rtts * source.rtt_s),
            )
        })
    }

    /// Takes a step that does not pass `until`, and returns its end.
    fn step(&mut self, now: Time, until: Time) -> Time {
        let (feedback_s, shortest_s) = self.feedback_s();
        let left_s = until.since(now).as_secs_f64();
        // The step must not need values that are not computed yet.
        let most_s = self.pace.step_s(feedback_s).min(shortest_s);
        // Even steps up to the end.
        let mut end = until;
        if most_s < left_s {
            let even_s = left_s / (left_s / most_s).ceil();
            end = until.min(now + Span::from_secs_f64(even_s).max(Span::from_nanos(1)));
        }
        loop {
            let step_s = end.since(now).as_secs_f64();
            let error = self.attempt(now, end);
            let shorter_s = if !self.pace.accepts(step_s, error, feedback_s) {
                self.pace.step_s(feedback_s)
            } else {
                let part = self.left(now, end);
                part.map_or(step_s, |part| step_s * part.max(1e-3))
            };
            let shorter = now + Span::from_secs_f64(shorter_s).max(Span::from_nanos(1));
            // Not by rounding alone.
            if shorter >= end {
                self.accept(now, end);
                return end;
            }
            end = shorter;
        }
    }

    fn left(&self, now: Time, end: Time) -> Option<f64> {
        if end.since(now) < LOCATED {
            return None;
        }
        (self.system).left(&self.state, &self.led_to, &self.slopes)
    }

    /// Tries a step; `after` is then the state at its end, and `slopes` those of its stages and its
    /// end. Returns the error, relative to the state.
    fn attempt(&mut self, start: Time, end: Time) -> f64 {
        let (start_s, end_s) = (start.as_secs_f64(), end.as_secs_f64());
        let h = end_s - start_s;
        let (system, after, state) = (&mut self.system, &mut self.after, &self.state);
        for (source, observed_to_s) in system.sources.iter_mut().zip(&mut self.observed_to_s) {
            *observed_to_s = source.observe(start_s, end_s);
        }
        let at = |part: f64| Moment {
            now_s: start_s + part * h,
            part,
        };
        let [first, second, third, fourth, last] = &mut self.slopes;
        system.slopes(at(0.0), state, first);
        along(after, state, 0.5 * h, &first.state);
        system.slopes(at(0.5), after, second);
        along(after, state, 0.5 * h, &second.state);
        system.slopes(at(0.5), after, third);
        along(after, state, h, &third.state);
        system.slopes(at(1.0), after, fourth);
        for (k, y) in after.iter_mut().enumerate() {
            let middle = second.state[k] + third.state[k];
            *y = state[k] + h / 6.0 * (first.state[k] + 2.0 * middle + fourth.state[k]);
        }
        let queues = system.sources.len()..system.sources.len() + system.queues.len();
        self.led_to.copy_from_slice(&after[queues]);
        hold(system, state, after);
        system.slopes(at(1.0), after, last);
        let mut error = 0.0_f64;
        for (k, floor) in self.floors.iter().enumerate() {
            let off = h / 6.0 * (fourth.state[k] - last.state[k]);
            error = error.max(off.abs() / (after[k].abs() + floor));
        }
        error
    }

    /// Accepts the step that was tried: shows its packets to the laws, and keeps it for the
    /// senders.
    fn accept(&mut self, start: Time, end: Time) {
        self.pass_queues(start, end);
        self.keep_history(start.as_secs_f64(), end.as_secs_f64());
        let slopes = [&self.slopes[0].state[..], &self.slopes[4].state[..]];
        let states = [&self.state[..], &self.after[..]];
        self.rows.between(start, end, &self.system, states, slopes);
        std::mem::swap(&mut self.state, &mut self.after);
        self.keep_rounds();
    }

    /// Shows each queue's law the packets that passed the queue, and records them.
    fn pass_queues(&mut self, start: Time, end: Time) {
        let h = end.as_secs_f64() - start.as_secs_f64();
        let classes = self.system.sources.len();
        for (v, queue) in self.system.queues.iter_mut().enumerate() {
            let k = classes + v;
            let total = |of: fn(&Through) -> f64| {
                integral(h, |stage: usize| of(&self.slopes[stage].through[v]))
            };
            let (first, last) = (self.state[k], self.after[k]);
            let left = total(|through| through.leaving);
            let arrived = total(|through| through.arriving);
            let admitted = total(|through| through.admitted);
            let no_room = admitted - left - (last - first);
            // Of the rest, rounding.
            let full = last >= queue.buffer_pkts;
            let overflowed = if full { no_room.max(0.0) } else { 0.0 };
            for n in 0..queue.passing.len() {
                let own = |of: fn(&Entering) -> f64| {
                    integral(h, |stage: usize| of(&self.slopes[stage].entering[v][n]))
                };
                let own_admitted = own(|it| it.admitted);
                // The packets that find no room are distributed evenly over those that arrive.
                let no_room = if admitted > 0.0 {
                    overflowed * own_admitted / admitted
                } else {
                    0.0
                };
                let entered = own_admitted - no_room;
                let met = Met {
                    entered,
                    lost: own(|it| it.arriving) - entered,
                    marked: own(|it| it.marked),
                };
                self.rows.met(v, n, met);
            }
            self.rows.passed(
                v,
                Passage {
                    arrived,
                    dropped: arrived - admitted,
                    marked: total(|through| through.marked),
                    overflowed,
                    left,
                    could_leave: h * queue.pkts_per_s,
                },
            );
            let p = queue.port.pass(&Passed {
                start,
                end,
                idle: queue.piece == Piece::Idle,
                queue_pkts: [first, last],
                queue_slopes: [self.slopes[0].state[k], self.slopes[4].state[k]],
                arrived,
                overflowed,
                left,
            });
            self.rows.signals(v, p);
            for (side, (kept, p)) in [0, 4].into_iter().zip(self.kept[v].iter_mut().zip(p)) {
                let room = 1.0 - self.slopes[side].through[v].overflow;
                *kept = Kept {
                    classic: room * (1.0 - p),
                    l4s: room * (1.0 - queue.port.marks_l4s(p)),
                };
            }
        }
    }

    /// Keeps rates and probabilities for the senders, who see them a round trip later.
    fn keep_history(&mut self, start_s: f64, end_s: f64) {
        let h = end_s - start_s;
        for (i, source) in self.system.sources.iter_mut().enumerate() {
            let delivered = integral(h, |stage| self.slopes[stage].classes[i].passing_on);
            self.rows.delivered(i, delivered);
            let probability = [0, 1].map(|side: usize| {
                let mut through = 1.0;
                for &v in &source.class.route {
                    let kept = &self.kept[v][side];
                    through *= if source.class.l4s {
                        kept.l4s
                    } else {
                        kept.classic
                    };
                }
                1.0 - through
            });
            let [first, middle, last] = [0, 2, 4].map(|stage| self.slopes[stage].classes[i]);
            let slope = match source.class.windows {
                Windows::Smooth => [first.rate_slope, last.rate_slope],
                // The rate has dW/dt, and no second derivative is at hand: a parabola through the
                // middle instead.
                Windows::Sawtooth => {
                    let (risen, bent) = (last.rate - first.rate, 4.0 * middle.rate);
                    let bent = bent - 2.0 * (first.rate + last.rate);
                    [(risen + bent) / h, (risen - bent) / h]
                }
            };
            let rate = [first.rate, last.rate];
            let segment = Segment::new([start_s, end_s], rate, slope, probability);
            source.history.push(segment);
            source.observed_to_s = Some(self.observed_to_s[i]);
        }
    }

    /// Lets senders see the jumps that have reached them, and ends turnovers.
    fn see_jumps(&mut self, now: Time) {
        for source in &mut self.system.sources {
            if source.seen == source.jumps_s.len() && source.turnover.is_none() {
                continue;
            }
            let delayed_s = now.as_secs_f64() - source.feedback_rtts * source.round.0;
            let reached = |at: &f64| at - delayed_s < NEAR_S;
            while source.jumps_s.get(source.seen).is_some_and(reached) {
                source.seen += 1;
            }
            source.look_between_jumps();
            if source.turnover.is_some_and(|it| it.until <= now) {
                source.turnover = None;
            }
        }
    }

    /// Ends a step where a jump reaches a sender: the time that feedback comes from meets that of
    /// the jump, with R continued along its slope. And where a turnover ends.
    fn before_jumps(&self, now: Time, mut until: Time) -> Time {
        let now_s = now.as_secs_f64();
        let mut until_s = until.as_secs_f64();
        for source in &self.system.sources {
            if let Some(at) = source.jumps_s.get(source.seen) {
                let delayed_s = now_s - source.feedback_rtts * source.round.0;
                let passes = 1.0 - source.feedback_rtts * source.round.1;
                if passes > 0.0 {
                    until_s = until_s.min(now_s + (at - delayed_s) / passes);
                }
            }
            if let Some(turnover) = source.turnover {
                until = until.min(turnover.until);
            }
        }
        if until_s < until.as_secs_f64() {
            let early = Time::ZERO + Span::from_secs_f64(until_s.max(0.0));
            until = until.min(early.max(now + Span::from_nanos(1)));
        }
        until
    }

    /// Processes every tick that is due.
    fn tick(&mut self, now: Time) {
        for (v, queue) in self.system.queues.iter_mut().enumerate() {
            if queue.port.next_tick().is_some_and(|due| due <= now) {
                (queue.port).tick(now, self.state[self.system.sources.len() + v]);
            }
        }
    }

    fn change(&mut self, now: Time, what: &What) {
        // Rates and round trips jump.
        for source in &mut self.system.sources {
            source.observed_to_s = None;
            if source
                .jumps_s
                .last()
                .is_none_or(|last| *last < now.as_secs_f64())
            {
                source.jumps_s.push(now.as_secs_f64());
            }
        }
        match *what {
            What::Rate { bottleneck, rate } => {
                let queue = &mut self.system.queues[bottleneck];
                queue.pkts_per_s = rate.packets_per_sec(self.model.bottlenecks[bottleneck].packet);
                queue.s_per_pkt = 1.0 / queue.pkts_per_s;
                queue.port.set_rate(rate);
            }
            What::Buffer {
                bottleneck,
                buffer_pkts,
            } => {
                self.system.queues[bottleneck].buffer_pkts = buffer_pkts;
                self.system.queues[bottleneck].port.set_buffer(buffer_pkts);
            }
            What::Rtt { class, rtt } => self.system.sources[class].rtt_s = rtt.as_secs_f64(),
            What::Flows { class, flows } => {
                let rtt_s = self.system.rtt_s(class, &self.state);
                let source = &mut self.system.sources[class];
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
}

/// Returns the integral over a step of `h` seconds of a rate, from its values at the four stages of
/// Runge and Kutta.
fn integral(h: f64, rate: impl Fn(usize) -> f64) -> f64 {
    h / 6.0 * (rate(0) + 2.0 * (rate(1) + rate(2)) + rate(3))
}

/// from + length·slopes
fn along(out: &mut [f64], from: &[f64], length: f64, slopes: &[f64]) {
    for (y, (from, slope)) in out.iter_mut().zip(from.iter().zip(slopes)) {
        *y = from + length * slope;
    }
}
