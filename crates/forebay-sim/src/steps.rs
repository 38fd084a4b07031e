//! Changes of a link that a scenario announces.
//!
//! A packet is followed over its link when the link takes it, and so the changes that come while the
//! packet is being sent must be known then: what is left of the packet at a change of the rate goes
//! at the new rate, and the packet has the propagation delay of the time at which its last bit
//! enters the line.

use forebay_aqm::RateStep;
use forebay_scenario::{LinkSetting, Scenario, Setting};
use forebay_units::{Span, Time};

use crate::line::Wire;

/// All changes of one link, in order of time.
#[derive(Clone, Debug, Default)]
pub struct LinkSteps {
    pub rates: Vec<RateStep>,
    pub delays: Vec<DelayStep>,
}

/// A change of the propagation delay.
#[derive(Clone, Copy, Debug)]
pub struct DelayStep {
    pub at: Time,
    pub delay: Span,
}

impl LinkSteps {
    /// Returns the changes that `scenario` makes to the link with this number.
    pub fn of(scenario: &Scenario, number: usize) -> LinkSteps {
        let mut steps = LinkSteps::default();
        for change in &scenario.changes {
            let Setting::Link { link, what } = change.what else {
                continue;
            };
            match what {
                LinkSetting::Rate(rate) if link == number => {
                    steps.rates.push(RateStep {
                        at: change.at,
                        rate,
                    });
                }
                LinkSetting::Delay(delay) if link == number => steps.delays.push(DelayStep {
                    at: change.at,
                    delay,
                }),
                _ => {}
            }
        }
        steps
    }
}

/// The propagation delay of a link and the changes of it that are still to come.
pub struct Delay {
    delay: Span,
    /// When it changes next.
    until: Time,
    /// The next change last.
    steps: Vec<DelayStep>,
}

impl Delay {
    pub fn new(delay: Span, steps: &[DelayStep]) -> Delay {
        Delay {
            delay,
            until: steps.first().map_or(Time::NEVER, |step| step.at),
            steps: steps.iter().rev().copied().collect(),
        }
    }

    /// Returns when the last bit that enters the link at `out` comes out of it. Calls come in order
    /// of time.
    #[inline(always)]
    pub fn after(&mut self, out: Time) -> Time {
        if out >= self.until {
            self.step(out);
        }
        out + self.delay
    }

    #[cold]
    #[inline(never)]
    fn step(&mut self, out: Time) {
        while let Some(step) = self.steps.last().filter(|step| step.at <= out) {
            self.delay = step.delay;
            self.steps.pop();
        }
        self.until = self.steps.last().map_or(Time::NEVER, |step| step.at);
    }
}

/// The way back along a link that has no link the other way: its rate and delay, never full.
pub struct LineBack {
    pub wire: Wire,
    /// When it is next free.
    pub free: Time,
    steps: Option<Box<LineSteps>>,
}

/// The changes of a line that are still to come.
struct LineSteps {
    /// The next one last. Those within the transmission that ends at [`LineBack::free`] are made.
    rates: Vec<RateStep>,
    delay: Delay,
    /// When the last packet comes out: a shorter delay does not let one overtake.
    last_arrival: Time,
}

impl LineBack {
    /// A line along a link that changes so; with a rate of its own it does not follow the link's.
    pub fn new(wire: Wire, has_own_rate: bool, steps: &LinkSteps) -> LineBack {
        let rates = match has_own_rate {
            true => &[],
            false => &steps.rates[..],
        };
        let steps = (!rates.is_empty() || !steps.delays.is_empty()).then(|| {
            Box::new(LineSteps {
                rates: rates.iter().rev().copied().collect(),
                delay: Delay::new(wire.delay, &steps.delays),
                last_arrival: Time::ZERO,
            })
        });
        LineBack {
            wire,
            free: Time::ZERO,
            steps,
        }
    }

    /// True if neither its rate nor its delay changes during the run.
    #[inline]
    pub fn is_steady(&self) -> bool {
        self.steps.is_none()
    }

    /// Returns when an ACK that enters at `now` comes out; the line [never
    /// changes](Self::is_steady).
    #[inline(always)]
    pub fn pass_ack_steadily(&mut self, now: Time) -> Time {
        debug_assert!(self.is_steady());
        self.wire.pass_ack(&mut self.free, now)
    }

    /// Returns when a packet that enters at `now` comes out. Calls come in order of time.
    #[inline]
    pub fn pass(&mut self, now: Time, bytes: u16) -> Time {
        let LineBack { wire, free, steps } = self;
        match steps {
            None => wire.pass(free, now, bytes),
            Some(steps) => steps.pass(wire, free, now, bytes),
        }
    }
}

impl LineSteps {
    fn pass(&mut self, wire: &mut Wire, free: &mut Time, now: Time, bytes: u16) -> Time {
        let start = now.max(*free);
        self.step(wire, start);
        let mut span = wire.serialisation(bytes);
        let mut at = start;
        while let Some(next) = self.rates.last().map(|step| step.at) {
            if at + span <= next {
                break;
            }
            let before = *wire;
            let left = at + span - next;
            self.step(wire, next);
            span = wire.restated(left, &before);
            at = next;
        }
        let end = at + span;
        *free = end;
        self.last_arrival = self.last_arrival.max(self.delay.after(end));
        self.last_arrival
    }

    /// Makes the changes of the rate up to `at`.
    fn step(&mut self, wire: &mut Wire, at: Time) {
        while let Some(step) = self.rates.last().filter(|step| step.at <= at) {
            *wire = Wire::new(step.rate, wire.delay);
            self.rates.pop();
        }
    }
}
