//! Tuned laws: a tuner watches the queue and adjusts the settings of another law while it runs.
//! Adaptive RED, PD-RED, STPI and STRED are such laws.

use forebay_units::{Rng, SetPoint, Span, Time};

use crate::clock::{self, State, Ticking};
use crate::law::{FluidLaw, FluidStep, Law, PacketMeta, QueueView, Verdict};

/// A tuner of a law of type `L`. It acts on packets or on a clock of its own.
#[allow(unused_variables, reason = "names say what a default leaves alone")]
pub trait Tuner<L>: Send {
    /// Returns the time between two ticks, which is above zero; `None` if the tuner keeps no clock.
    fn interval(&self) -> Option<Span> {
        None
    }

    /// Adjusts the law at a tick that was due at `now`.
    fn tick(&mut self, q: &QueueView, now: Time, law: &mut L) {}

    /// Adjusts the law after it has decided on an arrival.
    fn arrival(&mut self, now: Time, law: &mut L) {}

    /// Returns true if [`departure`](Self::departure) must be called.
    fn watches_departures(&self) -> bool {
        true
    }

    /// Takes note of a packet that leaves the queue for the link.
    fn departure(&mut self, now: Time, p: &PacketMeta) {}

    /// Takes note of all packets of a step of the fluid model, as [`arrival`](Self::arrival) and
    /// [`departure`](Self::departure) do of each.
    fn take_fluid(&mut self, step: &FluidStep, law: &mut L) {
        self.arrival(step.end, law);
    }

    /// Takes note that the link has run out of packets.
    fn idle(&mut self, now: Time) {}

    /// Returns true if the tuner needs [`idle`](Self::idle), so that `take_fluid` cannot process a
    /// step with idle time.
    fn watches_idle(&self) -> bool {
        false
    }

    /// Moves the tuner's set-point. Returns false if the tuner has none.
    fn set_point(&mut self, set_point: SetPoint) -> bool {
        false
    }

    /// Reports the tuner's state variables by name.
    fn probe(&self, out: &mut dyn FnMut(&'static str, f64)) {}

    /// Returns every variable that [`tick`](Self::tick) and the law's own ticks change: see
    /// [`Ticking::state`].
    fn state(&self, law: &L) -> Option<State> {
        None
    }

    /// Advances the tuner by this many ticks, the last of which is due at `last`, with the law's
    /// current output: see [`Ticking::skip`].
    fn skip(&mut self, q: &QueueView, last: Time, ticks: u64, law: &mut L) {}

    /// Returns times at which the tuner's input changes: see [`Ticking::edges`].
    fn edges(&self) -> [Option<Time>; 2] {
        [None, None]
    }
}

/// A law under a tuner.
pub struct Tuned<L, T> {
    law: L,
    tuner: T,
    next: Option<Time>,
}

impl<L: Law, T: Tuner<L>> Tuned<L, T> {
    /// Combines a law and a tuner, whose first tick is one interval after time zero.
    pub fn new(law: L, tuner: T) -> Self {
        Tuned {
            next: tuner.interval().map(|interval| Time::ZERO + interval),
            law,
            tuner,
        }
    }
}

impl<L: Law, T: Tuner<L> + 'static> Law for Tuned<L, T> {
    fn on_enqueue(&mut self, now: Time, q: &QueueView, p: &PacketMeta, rng: &mut Rng) -> Verdict {
        let verdict = self.law.on_enqueue(now, q, p, rng);
        self.tuner.arrival(now, &mut self.law);
        verdict
    }

    fn watches_departures(&self) -> bool {
        self.tuner.watches_departures() || self.law.watches_departures()
    }

    fn on_dequeue(&mut self, now: Time, q: &QueueView, p: &PacketMeta, rng: &mut Rng) -> Verdict {
        self.tuner.departure(now, p);
        self.law.on_dequeue(now, q, p, rng)
    }

    fn on_overflow(&mut self, now: Time, q: &QueueView) {
        self.law.on_overflow(now, q);
    }

    fn on_idle(&mut self, now: Time, q: &QueueView) {
        self.tuner.idle(now);
        self.law.on_idle(now, q);
    }

    fn poll_timeout(&self) -> Option<Time> {
        match (self.next, self.law.poll_timeout()) {
            (Some(own), Some(inner)) => Some(own.min(inner)),
            (own, inner) => own.or(inner),
        }
    }

    /// Runs both clocks in order of time, the law first if both are due at the same time.
    fn handle_timeout(&mut self, now: Time, q: &QueueView) {
        self.next = self.next.map(|next| clock::run(self, next, now, q));
        self.law.handle_timeout(now, q);
    }

    fn set_point(&mut self, set_point: SetPoint) -> bool {
        self.law.set_point(set_point) || self.tuner.set_point(set_point)
    }

    fn probe(&self, out: &mut dyn FnMut(&'static str, f64)) {
        self.law.probe(out);
        self.tuner.probe(out);
    }
}

/// The number of parts in which ticks of a tuned law are skipped. Within a part, the tuner sees a
/// constant output of the law.
const PARTS: u64 = 16;

impl<L: Law, T: Tuner<L>> Ticking for Tuned<L, T> {
    fn interval(&self) -> Span {
        self.tuner.interval().unwrap_or(Span::MAX)
    }

    fn tick(&mut self, due: Time, q: &QueueView) {
        self.law.handle_timeout(due, q);
        self.tuner.tick(q, due, &mut self.law);
    }

    fn state(&self) -> Option<State> {
        self.tuner.state(&self.law)
    }

    fn skip(&mut self, first: Time, ticks: u64, q: &QueueView) {
        let interval = self.interval();
        let (mut next, mut remaining) = (first, ticks);
        while remaining > 0 {
            let part = remaining.min(ticks.div_ceil(PARTS));
            let last = next + interval * (part - 1);
            self.law.handle_timeout(last, q);
            self.tuner.skip(q, last, part, &mut self.law);
            (next, remaining) = (last + interval, remaining - part);
        }
    }

    fn edges(&self, _: &QueueView) -> [Option<Time>; 2] {
        self.tuner.edges()
    }
}

impl<L: Law, T: Tuner<L>> FluidLaw for Tuned<L, T> {
    fn take_fluid(&mut self, step: &FluidStep) -> bool {
        let is_complete = step.missed == 0 || !self.tuner.watches_idle();
        let processed = is_complete && self.law.take_fluid(step);
        if processed {
            self.tuner.take_fluid(step, &mut self.law);
        }
        processed
    }

    fn intensity(&self, q: &QueueView) -> Option<f64> {
        self.law.intensity(q)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::laws::testing::view;

    /// A law that records the times of its ticks, in ms.
    #[derive(Default)]
    struct Clock {
        every_ms: u64,
        next_ms: u64,
        ticks: Vec<(u64, usize)>,
    }

    impl Law for Clock {
        fn poll_timeout(&self) -> Option<Time> {
            Some(Time::ZERO + Span::from_millis(self.next_ms))
        }
        fn handle_timeout(&mut self, now: Time, _q: &QueueView) {
            while self.poll_timeout().is_some_and(|due| due <= now) {
                self.ticks.push((self.next_ms, usize::MAX));
                self.next_ms += self.every_ms;
            }
        }
    }

    impl FluidLaw for Clock {}

    /// A tuner that records in the law how many ticks the law had run before.
    struct Counter;

    impl Tuner<Clock> for Counter {
        fn interval(&self) -> Option<Span> {
            Some(Span::from_millis(4))
        }
        fn tick(&mut self, _q: &QueueView, now: Time, law: &mut Clock) {
            let count = law.ticks.len();
            law.ticks.push((now.as_nanos() / 1_000_000, count));
        }
    }

    #[test]
    fn a_late_call_interleaves_both_clocks() {
        let clock = Clock {
            every_ms: 2,
            next_ms: 2,
            ..Clock::default()
        };
        let mut tuned = Tuned::new(clock, Counter);
        tuned.handle_timeout(Time::ZERO + Span::from_millis(9), &view(0));
        let law = usize::MAX;
        let expected = [(2, law), (4, law), (4, 2), (6, law), (8, law), (8, 5)];
        assert_eq!(tuned.law.ticks, expected);
        assert_eq!(
            tuned.poll_timeout(),
            Some(Time::ZERO + Span::from_millis(10))
        );
    }
}
