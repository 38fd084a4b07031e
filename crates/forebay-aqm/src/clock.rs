//! The clock of a law: ticks at a fixed interval, and how a late call catches up.
//!
//! A call can be late by millions of ticks: a laptop was suspended, a program counts its time from
//! 1970, or a flow arrives at a queue that has existed for a day. [`run`] therefore bounds the work
//! of one call. Within that bound its result is that of running every tick:
//!
//! 1. Ticks are run one by one until the law's state repeats. At a constant queue most laws reach a
//!    fixed point; PIE without an upper bound on its probability enters a cycle. The remaining
//!    ticks, in whole cycles, then change nothing and are left out. This is exact.
//! 2. After [`MOST_TICKS`] ticks without a repetition, the law [skips](Ticking::skip) the remaining
//!    ticks by a closed form of its equation, except for the last [`LAST_TICKS`]. Those are run, so
//!    that the law's memory of recent samples is that of `now`.

use forebay_units::{Span, Time};

use crate::law::QueueView;

/// The largest number of ticks that one late call runs one by one, for each stretch of time between
/// two [edges](Ticking::edges), before it skips. Completing a cycle may take as many again.
pub const MOST_TICKS: u64 = 1 << 16;

/// The bound of [`MOST_TICKS`] for a law whose state is unknown, such as a law written in Python:
/// neither a repetition nor a closed form can be used.
pub const MOST_TICKS_UNSEEN: u64 = 1 << 20;

/// The number of ticks that are run one by one at the end, after the others were skipped.
pub const LAST_TICKS: u64 = 4;

/// The bits of every variable that a tick of a law can change, except for the time of the next
/// tick.
pub type State = [u64; 12];

/// A law, or a part of one, that ticks at an interval.
pub trait Ticking {
    /// Returns the time between two ticks, which is above zero.
    fn interval(&self) -> Span;

    /// Runs the tick that was due at `due`.
    fn tick(&mut self, due: Time, q: &QueueView);

    /// Returns the state; `None` for a law whose state is unknown, so that it never repeats.
    fn state(&self) -> Option<State>;

    /// Advances the law by `ticks` ticks at a constant queue, the first of which was due at
    /// `first`. A law whose equation is unknown stays unchanged.
    fn skip(&mut self, first: Time, ticks: u64, q: &QueueView);

    /// Returns times at which the law's input changes although the queue does not, such as the
    /// arrival of the head packet: earlier ticks do not see the packet wait.
    fn edges(&self, q: &QueueView) -> [Option<Time>; 2] {
        [q.head_since, q.other_queues.head_since]
    }
}

/// Returns a state that starts with these numbers and has zeros elsewhere.
pub fn state_of(numbers: &[f64]) -> State {
    let mut state = State::default();
    for (element, number) in state.iter_mut().zip(numbers) {
        *element = number.to_bits();
    }
    state
}

/// Runs the ticks that are due from `next` to `now`, and returns when the one after them is due.
#[inline]
pub fn run(law: &mut impl Ticking, next: Time, now: Time, q: &QueueView) -> Time {
    if next > now {
        return next;
    }
    law.tick(next, q);
    #[cfg(test)]
    tests::count();
    let next = next + law.interval();
    if next > now {
        return next;
    }
    run_late(law, next, now, q)
}

/// Runs the ticks that are due after the first one, up to each edge and then up to `now`.
#[cold]
#[inline(never)]
fn run_late(law: &mut impl Ticking, mut next: Time, now: Time, q: &QueueView) -> Time {
    let mut edges = law.edges(q);
    edges.sort_unstable();
    for edge in edges.into_iter().flatten() {
        // A tick at the time of the edge does not see its effect yet; it ends the stretch before.
        next = catch_up(law, next, now.min(edge), q);
    }
    catch_up(law, next, now, q)
}

/// Runs the ticks due from `next` to `end`, and returns when the one after them is due.
fn catch_up(law: &mut impl Ticking, mut next: Time, end: Time, q: &QueueView) -> Time {
    let interval = law.interval().max(Span::from_nanos(1));
    if next > end {
        return next;
    }
    let mut due = end.since(next).as_nanos() / interval.as_nanos() + 1;
    // Brent's cycle detection: the state is compared with a reference state that is replaced after
    // 1, 2, 4, 8, … ticks.
    let (mut mark, mut since_mark, mut renewal) = (law.state(), 0, 1);
    let (mut ticks, mut repeats) = (0, false);
    let most = mark.map_or(MOST_TICKS_UNSEEN, |_| MOST_TICKS);
    while due > 0 {
        if ticks >= most && due > LAST_TICKS && !repeats {
            let skipped = due - LAST_TICKS;
            law.skip(next, skipped, q);
            (next, due) = (next + interval * skipped, LAST_TICKS);
        }
        law.tick(next, q);
        #[cfg(test)]
        tests::count();
        (next, due, ticks) = (next + interval, due - 1, ticks + 1);
        since_mark += 1;
        let state = law.state();
        if state.is_some() && state == mark {
            let jumped = due - due % since_mark;
            (next, due, repeats) = (next + interval * jumped, due - jumped, true);
        } else if since_mark == renewal {
            (mark, since_mark, renewal) = (state, 0, 2 * renewal);
        }
    }
    next
}

/// The control errors of ticks that are skipped: e(i) = base + slope·i + decaying·ratioⁱ, i ≥ 0.
#[derive(Clone, Copy, Debug, Default)]
pub struct Errors {
    /// The constant part.
    pub base: f64,
    /// The change from tick to tick.
    pub slope: f64,
    /// The decaying part at the first tick.
    pub decaying: f64,
    /// The factor by which the decaying part changes from tick to tick, in [0, 1].
    pub ratio: f64,
}

impl Errors {
    /// Returns an error that is the same at every tick.
    pub fn constant(base: f64) -> Errors {
        Errors {
            base,
            ..Errors::default()
        }
    }

    /// Returns e(i).
    pub fn at(&self, i: f64) -> f64 {
        let decayed = match self.decaying {
            0.0 => 0.0,
            decaying => decaying * self.ratio.powf(i),
        };
        self.base + self.slope * i + decayed
    }

    /// Returns e(0) + … + e(count − 1).
    pub fn sum(&self, count: f64) -> f64 {
        let decayed = match 1.0 - self.ratio {
            _ if self.decaying == 0.0 => 0.0,
            0.0 => self.decaying * count,
            decay => self.decaying * (1.0 - self.ratio.powf(count)) / decay,
        };
        count * self.base + 0.5 * self.slope * count * (count - 1.0) + decayed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discipline::{testing, Dequeued, LawFactory};
    use crate::disciplines::DISCIPLINES;
    use crate::law::Law;
    use crate::laws::testing::{probed, site, view};
    use crate::laws::LAWS;
    use crate::queue_choice::QueueChoice;
    use forebay_units::{Buffer, QueueSite, Rng};
    use std::cell::Cell;
    use std::sync::Arc;

    thread_local! {
        static TICKS: Cell<u64> = const { Cell::new(0) };
    }

    /// Counts a tick run by this thread.
    pub fn count() {
        TICKS.with(|ticks| ticks.set(ticks.get() + 1));
    }

    /// Returns the number of ticks that `call` runs.
    fn counted(call: impl FnOnce()) -> u64 {
        TICKS.with(|ticks| ticks.set(0));
        call();
        TICKS.with(Cell::get)
    }

    /// An upper bound on the ticks of one call: three stretches, for a tuner and for the law under
    /// it, in each of the parts in which a tuner skips.
    const MOST_OF_A_LAW: u64 = 3 * 2 * MOST_TICKS * (2 + 16);

    const YEAR: Span = Span::from_secs(365 * 86_400);

    /// The time of a clock that counts from 1970.
    const TODAY: Time = Time::from_nanos(1_780_000_000_000_000_000);

    /// Returns queues that are empty, long, and near most set-points, with heads of different ages.
    fn queues(now: Time) -> Vec<QueueView> {
        let since = |ns: u64| Time::from_nanos(now.as_nanos().saturating_sub(ns));
        let mut queues = Vec::new();
        for packets in [0, 1, 50, 199, 200, 201, 600] {
            for head_ns in [0, 14_000_000, 16_000_000, 5_000_000_000, u64::MAX] {
                let mut q = view(packets);
                q.head_since = (packets > 0).then_some(since(head_ns));
                q.idle_since = (packets == 0).then_some(since(head_ns));
                queues.push(q);
            }
        }
        queues
    }

    #[test]
    fn a_late_call_of_a_law_runs_a_bounded_number_of_ticks() {
        for spec in LAWS {
            for now in [Time::ZERO + YEAR, TODAY, Time::MAX] {
                for q in queues(now) {
                    let mut law = spec.build(&[], &site(), 1).unwrap();
                    for end in [now, now + YEAR, now + YEAR, Time::MAX] {
                        let ticks = counted(|| law.handle_timeout(end, &q));
                        assert!(ticks <= MOST_OF_A_LAW, "{} {end}: {ticks}", spec.kind);
                        let due = law.poll_timeout();
                        assert!(due.is_none_or(|due| due > end || due == Time::MAX));
                        let p = law.intensity(&q).unwrap_or(0.0);
                        assert!((0.0..=1.0).contains(&p), "{}", spec.kind);
                        law.probe(&mut |key, value| assert!(value.is_finite(), "{key}"));
                    }
                }
            }
        }
    }

    /// Returns a law that has already seen two seconds of arrivals and departures.
    fn used(spec: &crate::LawSpec, packets: u32) -> Box<dyn Law> {
        let mut law = spec.build(&[], &site(), 1).unwrap();
        let mut rng = Rng::new(1, "clock");
        for ms in 0..2000 {
            let now = Time::ZERO + Span::from_millis(ms);
            let q = QueueView {
                head_since: Some(Time::from_nanos(now.as_nanos().saturating_sub(30_000_000))),
                ..view(packets)
            };
            let packet = crate::PacketMeta {
                sojourn: Span::from_millis(30),
                ..crate::laws::testing::packet(1000)
            };
            law.handle_timeout(now, &q);
            law.on_enqueue(now, &q, &packet, &mut rng);
            law.on_dequeue(now, &q, &packet, &mut rng);
        }
        law
    }

    #[test]
    fn a_late_call_leads_to_the_state_of_prompt_calls() {
        for spec in LAWS {
            for before in [0, 190, 400] {
                for packets in [0, 1, 199, 200, 201, 600] {
                    let (mut late, mut prompt) = (used(spec, before), used(spec, before));
                    let Some(first) = prompt.poll_timeout() else {
                        continue;
                    };
                    let now = first + Span::from_secs(1500);
                    let mut q = view(packets);
                    q.head_since = (packets > 0).then_some(first + Span::from_secs(1499));
                    late.handle_timeout(now, &q);
                    while let Some(due) = prompt.poll_timeout().filter(|due| *due <= now) {
                        prompt.handle_timeout(due, &q);
                    }
                    assert_eq!(late.poll_timeout(), prompt.poll_timeout(), "{}", spec.kind);
                    prompt.probe(&mut |key, expected| {
                        let actual = probed(&*late, key);
                        let close = (actual - expected).abs() <= 1e-6 * expected.abs().max(1e-3);
                        assert!(
                            close,
                            "{} at {packets}: {key} {actual} {expected}",
                            spec.kind
                        );
                    });
                }
            }
        }
    }

    #[test]
    fn a_late_call_of_a_discipline_runs_a_bounded_number_of_ticks() {
        let roomy = QueueSite {
            buffer: Buffer::Packets(800),
            ..testing::buffer_of(1).0
        };
        for queue in DISCIPLINES {
            for law in LAWS {
                let make = move |site: &forebay_units::Site, seed| law.build(&[], site, seed);
                let laws = LawFactory::new(Arc::new(make), 1, "law");
                let choice = QueueChoice::with_defaults(queue);
                let mut built = choice.build(&roomy, laws).unwrap();
                let mut drops = testing::Drops::default();
                let mut run = |now: Time| {
                    let ticks = counted(|| {
                        for id in 0..40 {
                            built.enqueue(now, testing::packet(id, id as u8), &mut drops);
                        }
                        built.handle_timeout(now);
                        while let Dequeued::Packet(_) = built.dequeue(now, &mut drops) {}
                        built.handle_timeout(now);
                    });
                    // Forty flows have a law each, and one law is spare.
                    let name = (law.kind, queue.kind);
                    assert!(ticks <= 2 * 41 * MOST_OF_A_LAW, "{name:?}: {ticks}");
                    let due = built.poll_timeout();
                    assert!(
                        due.is_none_or(|due| due > now || due == Time::MAX),
                        "{name:?}"
                    );
                };
                run(TODAY);
                run(TODAY + YEAR);
            }
        }
    }

    /// A law whose state cycles through `values` values, and which counts its ticks.
    struct Circle {
        values: u64,
        value: u64,
        ticks: u64,
        skipped: u64,
    }

    impl Circle {
        fn of(values: u64) -> Circle {
            Circle {
                values,
                value: 0,
                ticks: 0,
                skipped: 0,
            }
        }
    }

    impl Ticking for Circle {
        fn interval(&self) -> Span {
            Span::from_millis(1)
        }
        fn tick(&mut self, _: Time, _: &QueueView) {
            self.value = (self.value + 1) % self.values;
            self.ticks += 1;
        }
        fn state(&self) -> Option<State> {
            Some(state_of(&[f64::from_bits(self.value)]))
        }
        fn skip(&mut self, _: Time, ticks: u64, _: &QueueView) {
            self.value = (self.value + ticks % self.values) % self.values;
            self.skipped += ticks;
        }
    }

    #[test]
    fn a_year_of_ticks_ends_where_all_of_them_would() {
        let year_ms = 365 * 86_400_000;
        for values in [1, 2, 7, 1000, 30_000, 1 << 40] {
            let mut circle = Circle::of(values);
            let now = Time::ZERO + Span::from_millis(year_ms);
            let next = run(
                &mut circle,
                Time::ZERO + Span::from_millis(1),
                now,
                &view(0),
            );
            assert_eq!(next, now + Span::from_millis(1));
            assert_eq!(circle.value, year_ms % values);
            assert!(circle.ticks <= 2 * MOST_TICKS, "{values}");
            assert_eq!(circle.skipped > 0, values > MOST_TICKS);
        }
    }

    #[test]
    fn ticks_on_both_sides_of_an_edge_are_run() {
        let mut circle = Circle::of(1);
        let at = |ms| Time::ZERO + Span::from_millis(ms);
        let mut q = view(1);
        q.head_since = Some(at(999_990));
        run(&mut circle, at(1), at(1_000_000), &q);
        // The first tick, and at least one before and one after the edge.
        assert!((3..10).contains(&circle.ticks), "{}", circle.ticks);
    }

    #[test]
    fn a_clock_stops_at_the_end_of_time() {
        let mut circle = Circle::of(1 << 40);
        let next = run(&mut circle, Time::ZERO, Time::MAX, &view(0));
        assert_eq!(next, Time::MAX);
        assert_eq!(run(&mut circle, next, Time::MAX, &view(0)), Time::MAX);
    }

    #[test]
    fn the_sum_of_errors_is_that_of_each_error() {
        for errors in [
            Errors::constant(0.25),
            Errors {
                base: -1.0,
                slope: 0.5,
                decaying: 3.0,
                ratio: 0.75,
            },
            Errors {
                decaying: 2.0,
                ratio: 0.0,
                ..Errors::constant(1.0)
            },
        ] {
            let sum: f64 = (0..50).map(|i| errors.at(f64::from(i))).sum();
            assert!((errors.sum(50.0) - sum).abs() < 1e-9, "{errors:?}");
        }
    }
}
