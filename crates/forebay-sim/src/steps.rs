//! Changes of a link's rate and delay during a run, which the scenario announces beforehand.
//!
//! The time at which a packet reaches the far end is computed when the link takes the packet, so
//! that changes during its transmission must be known by then. At a change of the rate, the
//! remaining part of the packet is sent at the new rate. The propagation delay of a packet is the
//! one at the time at which its last bit enters the line.

use forebay_aqm::RateStep;
use forebay_scenario::{LinkSetting, Scenario, Setting};
use forebay_units::{Span, Time};

use crate::line::Wire;

/// All changes of one link, in order of time.
#[derive(Clone, Debug, Default)]
pub struct LinkSteps {
    /// Changes of the rate.
    pub rates: Vec<RateStep>,
    /// Changes of the propagation delay.
    pub delays: Vec<DelayStep>,
}

/// A change of the propagation delay.
#[derive(Clone, Copy, Debug)]
pub struct DelayStep {
    /// The time of the change.
    pub at: Time,
    /// The propagation delay from then on.
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

/// The propagation delay of a link and its remaining changes.
pub struct Delay {
    delay: Span,
    /// The time of the next change.
    until: Time,
    /// The remaining changes in reverse order.
    steps: Vec<DelayStep>,
}

impl Delay {
    /// Creates a delay that changes at these steps, which are in order of time.
    pub fn new(delay: Span, steps: &[DelayStep]) -> Delay {
        Delay {
            delay,
            until: steps.first().map_or(Time::NEVER, |step| step.at),
            steps: steps.iter().rev().copied().collect(),
        }
    }

    /// Returns the time at which a bit that enters the link at `out` comes out. Calls are in order
    /// of time.
    #[inline(always)]
    pub fn after(&mut self, out: Time) -> Time {
        if out >= self.until {
            self.step(out);
        }
        out + self.delay
    }

    /// Makes the changes up to `out`.
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

/// The line back along a link without a link in the opposite direction. It has a rate and a delay,
/// and never drops a packet.
pub struct LineBack {
    /// The present rate and delay.
    pub wire: Wire,
    /// The time at which the line becomes free.
    pub free: Time,
    steps: Option<Box<LineSteps>>,
}

/// The remaining changes of a line.
struct LineSteps {
    /// Remaining changes of the rate in reverse order. Those during the transmission that ends at
    /// [`LineBack::free`] have been made.
    rates: Vec<RateStep>,
    delay: Delay,
    /// The time at which the last packet comes out. After a reduction of the delay, packets still
    /// come out in order.
    last_arrival: Time,
}

impl LineBack {
    /// Creates the line back along a link with these changes. With its own rate it does not follow
    /// changes of the link's rate.
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

    /// Returns true if neither its rate nor its delay changes during the run.
    #[inline]
    pub fn is_steady(&self) -> bool {
        self.steps.is_none()
    }

    /// Returns the time at which an ACK that arrives at `now` comes out of a line that [never
    /// changes](Self::is_steady).
    #[inline(always)]
    pub fn pass_ack_steadily(&mut self, now: Time) -> Time {
        debug_assert!(self.is_steady());
        self.wire.pass_ack(&mut self.free, now)
    }

    /// Returns the time at which a packet that arrives at `now` comes out. Calls are in order of
    /// time.
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
    /// Returns the time at which a packet that arrives at `now` comes out, with the changes on its
    /// way.
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
