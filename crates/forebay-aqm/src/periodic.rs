//! Laws with a clock: a controller computes a probability at a fixed interval, and every arrival is
//! signalled with that probability.

use forebay_units::{Rng, SetPoint, Span, Time};

use crate::clock::{self, State, Ticking};
use crate::law::{FluidLaw, FluidStep, Law, PacketMeta, QueueView, Verdict};

/// The input of a controller at a tick.
#[derive(Clone, Copy, Debug)]
pub struct Sample<'a> {
    /// The time at which the tick was due.
    pub now: Time,
    /// The queue.
    pub q: &'a QueueView,
}

/// The part in which periodic laws differ.
pub trait Controller: Send {
    /// Returns the time between two samples, which is above zero.
    fn interval(&self) -> Span;

    /// Returns the probability until the next sample. [`Periodic`] limits it to [0, 1].
    fn sample(&mut self, s: &Sample) -> f64;

    /// Takes note of an arrival; `q` is the queue without it.
    fn arrival(&mut self, _q: &QueueView, _p: &PacketMeta) {}

    /// Takes note of all arrivals of a step of the fluid model, as [`arrival`](Self::arrival) does
    /// of each.
    fn take_fluid(&mut self, _step: &FluidStep) {}

    /// Returns true if an arrival that finds this queue passes whatever the probability.
    fn spares(&self, _q: &QueueView) -> bool {
        false
    }

    /// Decides on an arrival under the probability of the last sample.
    #[inline]
    fn judge(
        &mut self,
        q: &QueueView,
        _p: &PacketMeta,
        probability: f64,
        rng: &mut Rng,
    ) -> Verdict {
        Verdict::signal_if(!self.spares(q) && rng.chance(probability))
    }

    /// Moves the set-point. Returns false if the controller cannot.
    fn set_point(&mut self, _set_point: SetPoint) -> bool {
        false
    }

    /// Reports state variables other than the probability by name.
    fn probe(&self, _out: &mut dyn FnMut(&'static str, f64)) {}

    /// Returns every variable that [`sample`](Self::sample) changes, like [`Ticking::state`]. The
    /// last element is reserved for the probability.
    fn state(&self) -> Option<State> {
        None
    }

    /// Advances the controller by this many samples, of which `first` is the first: see
    /// [`Ticking::skip`].
    fn skip(&mut self, _first: &Sample, _samples: u64) {}
}

/// A law that runs a controller on a clock.
pub struct Periodic<C> {
    /// The controller.
    pub controller: C,
    next: Time,
    probability: f64,
}

impl<C: Controller> Periodic<C> {
    /// Creates the law, whose first sample is one interval after time zero.
    pub fn new(controller: C) -> Self {
        Periodic {
            next: Time::ZERO + controller.interval(),
            controller,
            probability: 0.0,
        }
    }

    /// Returns the probability of the last sample.
    pub fn probability(&self) -> f64 {
        self.probability
    }
}

impl<C: Controller + 'static> Law for Periodic<C> {
    fn on_enqueue(&mut self, _now: Time, q: &QueueView, p: &PacketMeta, rng: &mut Rng) -> Verdict {
        self.controller.arrival(q, p);
        self.controller.judge(q, p, self.probability, rng)
    }

    fn watches_departures(&self) -> bool {
        false
    }

    fn poll_timeout(&self) -> Option<Time> {
        Some(self.next)
    }

    fn handle_timeout(&mut self, now: Time, q: &QueueView) {
        self.next = clock::run(self, self.next, now, q);
    }

    fn set_point(&mut self, set_point: SetPoint) -> bool {
        self.controller.set_point(set_point)
    }

    fn probe(&self, out: &mut dyn FnMut(&'static str, f64)) {
        out("p", self.probability);
        self.controller.probe(out);
    }
}

impl<C: Controller> Ticking for Periodic<C> {
    fn interval(&self) -> Span {
        self.controller.interval()
    }

    #[inline]
    fn tick(&mut self, due: Time, q: &QueueView) {
        let p = self.controller.sample(&Sample { now: due, q });
        // A NaN counts as "no signal", so that it cannot persist.
        self.probability = if p.is_nan() { 0.0 } else { p.clamp(0.0, 1.0) };
    }

    fn state(&self) -> Option<State> {
        let mut state = self.controller.state()?;
        if let Some(last) = state.last_mut() {
            *last = self.probability.to_bits();
        }
        Some(state)
    }

    fn skip(&mut self, first: Time, ticks: u64, q: &QueueView) {
        self.controller.skip(&Sample { now: first, q }, ticks);
    }
}

impl<C: Controller> FluidLaw for Periodic<C> {
    fn take_fluid(&mut self, step: &FluidStep) -> bool {
        self.controller.take_fluid(step);
        true
    }

    fn intensity(&self, q: &QueueView) -> Option<f64> {
        Some(if self.controller.spares(q) {
            0.0
        } else {
            self.probability
        })
    }
}
