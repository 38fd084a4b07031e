//! Laws with a clock: a controller computes a probability at a fixed interval, and every
//! arrival is signalled with it.

use forebay_units::{Rng, SetPoint, Span, Time};

use crate::clock::{self, State, Ticking};
use crate::law::{FluidLaw, FluidStep, Law, PacketMeta, QueueView, Verdict};

/// What a controller may know at its tick.
#[derive(Clone, Copy, Debug)]
pub struct Sample<'a> {
    /// When the tick was due.
    pub now: Time,
    pub q: &'a QueueView,
}

/// The part of a periodic law that differs from one to the next.
pub trait Controller: Send {
    /// Time between two samples; more than zero.
    fn interval(&self) -> Span;

    /// The probability until the next sample. [`Periodic`] holds it to [0, 1].
    fn sample(&mut self, s: &Sample) -> f64;

    /// A packet has arrived; `q` is the queue without it.
    fn arrival(&mut self, _q: &QueueView, _p: &PacketMeta) {}

    /// As [`FluidLaw::take_fluid`]: what [`arrival`](Self::arrival) does, for all of them.
    fn take_fluid(&mut self, _step: &FluidStep) {}

    /// Whether an arrival that finds this queue is let in whatever the probability.
    fn spares(&self, _q: &QueueView) -> bool {
        false
    }

    /// Judges an arrival under the probability of the last sample.
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

    /// As [`Law::set_point`].
    fn set_point(&mut self, _set_point: SetPoint) -> bool {
        false
    }

    /// Named inner values besides the probability.
    fn probe(&self, _out: &mut dyn FnMut(&'static str, f64)) {}

    /// Returns all that [`sample`](Self::sample) changes, as [`Ticking::state`] does. The last place is
    /// left free, for the probability.
    fn state(&self) -> Option<State> {
        None
    }

    /// Comes to where this many samples would lead, of which `first` is the first. See
    /// [`Ticking::skip`].
    fn skip(&mut self, _first: &Sample, _samples: u64) {}
}

/// A controller on its clock.
pub struct Periodic<C> {
    pub controller: C,
    next: Time,
    probability: f64,
}

impl<C: Controller> Periodic<C> {
    /// The first sample is taken one interval after the start.
    pub fn new(controller: C) -> Self {
        Periodic {
            next: Time::ZERO + controller.interval(),
            controller,
            probability: 0.0,
        }
    }

    /// As the controller last computed it.
    pub fn probability(&self) -> f64 {
        self.probability
    }
}

impl<C: Controller> Law for Periodic<C> {
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
        // A NaN must not stick: it counts as "no signal".
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
