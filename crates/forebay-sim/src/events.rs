//! A queue of packets on their way. Where there are few kinds of access link, packets that cannot
//! overtake each other are on a delay line, the others are in a calendar, and a tournament between
//! the heads of the lines finds the next event. Otherwise all events are in the calendar.
//!
//! Events enter a delay line in order of time and leave it in that order, so that the tournament
//! compares only the first event of each line. The queue knows the events behind the first one, so
//! it can fetch the memory that they need before their turn.

use forebay_units::{Ring, Span, Time};

use crate::calendar::{Calendar, Entry};
use crate::number::index;

/// Distance, in events of a line, at which the memory that an event needs is prefetched.
const AHEAD: usize = 12;

/// The number of delay lines of a queue. Late lines have the lower numbers.
///
/// A packet that waited for its access link comes after one of the same time that did not. ns-2 has
/// the same order, because it schedules the first packet when the wait ends. With equal link rates
/// every arrival is such a tie, and AVQ's mean queue depends fourfold on this order. So of events of
/// one time those on prompt lines come first, that on the line with the highest number before the
/// others; of all other events the one that was pushed first comes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineCounts {
    /// Lines for packets that waited.
    pub late: usize,
    /// Lines for packets that did not wait.
    pub prompt: usize,
}

/// Events in order of time. Each has a tag, which fills space that alignment leaves free.
pub struct EventQueue<E, T = ()> {
    /// A winner tree. The leaves are the head of each line, from `leaves` on, and then that of the
    /// calendar. The node at i is the earlier one of those at 2i and 2i + 1, so that node 1 is the
    /// head of the next event, and a change of one head costs a comparison for each level.
    heads: [Head; NODES],
    leaves: usize,
    /// The lines by their number. That with the highest number has the first leaf.
    lines: Vec<DelayLine<E, T>>,
    /// Leaves below this number are those of prompt lines.
    prompt: usize,
    /// True if the memory that an event needs is fetched early.
    fetches: bool,
    /// Number of pushes; it wraps.
    pushed: u32,
    /// Number of the push of the calendar's first event.
    calendar_first: u32,
    calendar: Calendar<Queued<E, T>, BUCKET_EVENTS>,
}

/// Time and leaf, so that one comparison of words finds the earlier event without a branch that the
/// processor would have to predict. If the number of the push decides a tie, the lines know it.
type Head = u64;

/// Bits of a leaf's number.
const LEAF_BITS: u32 = 5;

/// Largest number of lines of a queue. The calendar is one more leaf.
const MOST_LINES: usize = (1 << LEAF_BITS) - 1;

/// Number of nodes of a tree with all its leaves.
const NODES: usize = 2 << LEAF_BITS;

/// Largest number of leaves with which events are taken in runs of one line. With more lines the
/// next event is usually on another line.
const RUN_LEAVES: usize = 8;

/// Number of events of the calendar that are in one bucket on average, if all events are there.
const BUCKET_EVENTS: usize = 8;

const EMPTY: Head = Head::MAX;

/// The next time of a queue without events. No run lasts this long (18 years); an event with a later
/// time comes just before it.
const HORIZON: Time = Time::from_nanos(EMPTY >> LEAF_BITS);

#[derive(Clone, Copy)]
struct Queued<E, T> {
    event: E,
    pushed: u32,
    tag: T,
}

struct DelayLine<E, T> {
    queue: Ring<Entry<Queued<E, T>>>,
    /// Time of the last event that entered.
    last: Time,
}

impl<E: Copy, T: Copy> EventQueue<E, T> {
    /// Creates a queue with these lines. Its events are about `spacing` apart, and most of them are
    /// due within `horizon`.
    ///
    /// # Panics
    /// If there are more than 31 lines.
    pub fn new(spacing: Span, horizon: Span, lines: LineCounts, fetches: bool) -> Self {
        let count = lines.late + lines.prompt;
        assert!(count <= MOST_LINES, "{count} lines");
        let leaves = (count + 1).next_power_of_two();
        let line = || DelayLine {
            queue: Ring::new(),
            last: Time::ZERO,
        };
        EventQueue {
            heads: [EMPTY; NODES],
            leaves,
            lines: std::iter::repeat_with(line).take(count).collect(),
            prompt: lines.prompt,
            fetches,
            pushed: 0,
            calendar_first: 0,
            calendar: Calendar::new(spacing * BUCKET_EVENTS as u64, horizon),
        }
    }

    /// Returns the time of the next event, or a time past the end of every run if there is none.
    #[inline(always)]
    pub fn next_time(&self) -> Time {
        time_of(self.heads[1])
    }

    /// Adds an event to the calendar.
    pub fn push(&mut self, time: Time, event: E, tag: T) {
        let pushed = self.number();
        self.push_to_calendar(time, event, pushed, tag);
    }

    /// Adds an event to `line`. An event that overtakes the last one of the line goes to the
    /// calendar, and so does every event of a line that the queue does not have.
    #[inline(always)]
    pub fn push_on(&mut self, line: usize, time: Time, event: E, tag: T) {
        let pushed = self.number();
        let number = line;
        let Some(line) = self.lines.get_mut(number) else {
            return self.push_to_calendar(time, event, pushed, tag);
        };
        let was_empty = line.queue.is_empty();
        if time < line.last && !was_empty {
            return self.push_overtaking(time, event, pushed, tag);
        }
        line.last = time;
        line.queue.push(Entry {
            time,
            event: Queued { event, pushed, tag },
        });
        if was_empty {
            self.wake(number, time);
        }
    }

    /// Returns the next event with its time and its tag.
    #[inline(always)]
    pub fn peek(&mut self) -> Option<(Time, &E, T)> {
        let entry = match line_at(&self.lines, leaf_of(self.heads[1])) {
            Some(line) => line.queue.get(0),
            None => self.calendar.peek_and(|_| {}),
        }?;
        Some((entry.time, &entry.event.event, entry.event.tag))
    }

    /// Removes the next event, and calls `fetch` for events whose memory is worth fetching.
    #[inline(always)]
    pub fn pop(&mut self, mut fetch: impl FnMut(&E)) {
        let leaf = leaf_of(self.heads[1]);
        let number = line_of(leaf, self.lines.len());
        let coming = match self.lines.get_mut(number) {
            Some(line) => {
                line.queue.pop();
                line.queue.get(AHEAD)
            }
            None => {
                self.calendar.pop();
                self.calendar.next_bucket().first()
            }
        };
        if let Some(coming) = coming.filter(|_| self.fetches) {
            fetch(&coming.event.event);
        }
        self.renew_head(leaf);
    }

    /// Removes events one after another while their times are before `before`; each call of `each`
    /// returns the next value of `before`.
    ///
    /// `each` gets the context, the time and the event. It cannot reach the queue, so that heads are
    /// compared once for a run of events from one line. After each run, `fetch` gets as many later
    /// events whose memory is worth fetching.
    ///
    /// When the next event is not before `before`, `extend` gets this time. It may process what is due
    /// then and return a later time, up to which events are taken; otherwise it returns the same.
    #[inline(always)]
    pub fn take_before<C>(
        &mut self,
        mut before: Time,
        context: &mut C,
        mut each: impl FnMut(&mut C, Time, &E) -> Time,
        mut extend: impl FnMut(&mut C, Time) -> Time,
        fetch: impl Fn(&C, &E),
    ) {
        while self.next_time() < before {
            let leaf = leaf_of(self.heads[1]);
            let others = match self.leaves <= RUN_LEAVES {
                true => self.second(leaf),
                false => Time::ZERO,
            };
            let EventQueue {
                lines, calendar, ..
            } = self;
            let number = line_of(leaf, lines.len());
            let mut line = lines.get_mut(number);
            let run = match &line {
                Some(line) => line.queue.front(),
                None => calendar.front(),
            };
            let mut rest = run;
            // The first is the next event of all, also if another line has one of the same time.
            let mut limit = Time::NEVER;
            // There is one call of `each` for all events, so that it is compiled into this loop.
            while let [entry, others_of_run @ ..] = rest {
                if entry.time >= limit {
                    if others < before {
                        break;
                    }
                    let extended = extend(context, before);
                    if extended <= before {
                        break;
                    }
                    before = extended;
                    limit = before.min(others);
                    continue;
                }
                before = each(context, entry.time, &entry.event.event);
                limit = before.min(others);
                rest = others_of_run;
            }
            let taken = run.len() - rest.len();
            if self.fetches {
                let ahead = match &line {
                    Some(_) => rest.get(AHEAD..).unwrap_or_default(),
                    None => calendar.next_bucket(),
                };
                for entry in ahead.iter().take(taken) {
                    fetch(context, &entry.event.event);
                }
            }
            let next = rest.first().map(|entry| entry.time);
            match &mut line {
                Some(line) => line.queue.pop_front(taken),
                None => calendar.pop_front(taken),
            }
            match next {
                Some(time) if line.is_some() => self.set_head(leaf, head(time, leaf)),
                _ => self.renew_head(leaf),
            }
        }
    }

    /// Returns the time of the first event that is not at this leaf.
    #[inline(always)]
    fn second(&self, leaf: usize) -> Time {
        let mut at = (self.leaves + leaf) % NODES;
        let mut second = EMPTY;
        while at > 1 {
            second = second.min(self.heads[at ^ 1]);
            at /= 2;
        }
        time_of(second)
    }

    #[inline(always)]
    fn number(&mut self) -> u32 {
        let pushed = self.pushed;
        self.pushed = pushed.wrapping_add(1);
        pushed
    }

    #[inline(always)]
    fn push_to_calendar(&mut self, time: Time, event: E, pushed: u32, tag: T) {
        let leaf = self.lines.len();
        // The calendar keeps the order of events of one time.
        if head(time, leaf) < self.heads[(self.leaves + leaf) % NODES] {
            return self.push_first_to_calendar(time, event, pushed, tag);
        }
        self.calendar.push(time, Queued { event, pushed, tag });
    }

    /// Adds an event to the calendar that comes before all others there.
    #[inline(never)]
    fn push_first_to_calendar(&mut self, time: Time, event: E, pushed: u32, tag: T) {
        let leaf = self.lines.len();
        if self.heads[self.leaves + leaf] == EMPTY {
            self.calendar.turn_to(time);
        }
        self.calendar.push(time, Queued { event, pushed, tag });
        self.calendar_first = pushed;
        self.set_head(leaf, head(time, leaf));
    }

    #[cold]
    #[inline(never)]
    fn push_overtaking(&mut self, time: Time, event: E, pushed: u32, tag: T) {
        self.push_to_calendar(time, event, pushed, tag);
    }

    /// Sets the head of a line that is no longer empty.
    #[inline(never)]
    fn wake(&mut self, line: usize, time: Time) {
        let leaf = line_of(line, self.lines.len());
        self.set_head(leaf, head(time, leaf));
    }

    /// Sets the head of a leaf to that of its first event.
    #[inline(always)]
    fn renew_head(&mut self, leaf: usize) {
        let head = self.head_of(leaf);
        self.set_head(leaf, head);
    }

    #[inline(always)]
    fn head_of(&mut self, leaf: usize) -> Head {
        match line_at(&self.lines, leaf) {
            Some(line) => (line.queue.get(0)).map_or(EMPTY, |first| head(first.time, leaf)),
            None => {
                let Some(first) = self.calendar.peek_and(|_| {}) else {
                    return EMPTY;
                };
                self.calendar_first = first.event.pushed;
                head(first.time, leaf)
            }
        }
    }

    #[inline(always)]
    fn set_head(&mut self, leaf: usize, head: Head) {
        // There are no more nodes; the remainder saves a check of the bounds at each level.
        let mut at = (self.leaves + leaf) % NODES;
        let mut winner = head;
        self.heads[at] = winner;
        while at > 1 {
            let other = self.heads[at ^ 1];
            winner = match (winner ^ other) >> LEAF_BITS {
                0 => first_of_tie(
                    &self.lines,
                    self.calendar_first,
                    self.prompt,
                    [winner, other],
                ),
                _ => winner.min(other),
            };
            at /= 2;
            self.heads[at] = winner;
        }
    }
}

/// Returns the earlier one of two heads with the same time, by the order of their pushes. Only ties
/// across the wrap of 2^32 pushes are resolved wrongly.
#[cold]
#[inline(never)]
fn first_of_tie<E: Copy, T: Copy>(
    lines: &[DelayLine<E, T>],
    calendar_first: u32,
    prompt: usize,
    [a, b]: [Head; 2],
) -> Head {
    let least = a.min(b);
    if leaf_of(least) < prompt {
        return least;
    }
    let pushed = |head| match line_at(lines, leaf_of(head)) {
        Some(line) => line.queue.get(0).map_or(0, |first| first.event.pushed),
        None => calendar_first,
    };
    match pushed(b) < pushed(a) {
        true => b,
        false => a,
    }
}

/// Returns the number of the line with this leaf, or the leaf of the line with this number. It is
/// no line's number for the leaf of the calendar.
#[inline(always)]
fn line_of(leaf: usize, lines: usize) -> usize {
    lines.wrapping_sub(1).wrapping_sub(leaf)
}

/// Returns the line with this leaf; `None` for the leaf of the calendar.
#[inline(always)]
fn line_at<E, T>(lines: &[DelayLine<E, T>], leaf: usize) -> Option<&DelayLine<E, T>> {
    lines.get(line_of(leaf, lines.len()))
}

#[inline(always)]
fn head(time: Time, leaf: usize) -> Head {
    let latest = HORIZON.as_nanos() - 1;
    time.as_nanos().min(latest) << LEAF_BITS | leaf as Head
}

#[inline(always)]
fn time_of(head: Head) -> Time {
    Time::from_nanos(head >> LEAF_BITS)
}

#[inline(always)]
fn leaf_of(head: Head) -> usize {
    index(head & ((1 << LEAF_BITS) - 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_units::Rng;
    use std::cell::Cell;

    /// Pushes and pops alternately, and compares the queue with a list of the pending events.
    fn check(late: usize, prompt: usize) {
        let lines = late + prompt;
        let mut rng = Rng::new(9, "events");
        let mut events = EventQueue::new(
            Span::from_micros(1),
            Span::from_millis(1),
            LineCounts { late, prompt },
            true,
        );
        let mut waiting: Vec<(Time, u32)> = Vec::new();
        let mut now = Time::ZERO;
        for i in 0..20_000 {
            // Times are coarse, so that there are ties.
            let time = now + Span::from_nanos(500 * (rng.uniform() * 40.0) as u64);
            match i as usize % (lines + 2) {
                0 => events.push(time, i, ()),
                // The numbers include a line that the queue does not have.
                line => events.push_on(line, time, i, ()),
            }
            waiting.push((time, i));
            match i % 100 {
                0 => now = take_many(&mut events, &mut waiting, now),
                _ if rng.chance(0.5) => now = take(&mut events, &mut waiting, prompt),
                _ => {}
            }
        }
        while !waiting.is_empty() {
            take(&mut events, &mut waiting, prompt);
        }
        assert_eq!(events.next_time(), HORIZON);
        assert!(next(&mut events).is_none());
    }

    fn take(events: &mut EventQueue<u32>, waiting: &mut Vec<(Time, u32)>, prompt: usize) -> Time {
        let first = *waiting.iter().min().expect("one was pushed");
        assert_eq!(events.next_time(), first.0);
        let (time, event) = next(events).expect("one was pushed");
        assert_eq!(time, first.0);
        if prompt == 0 {
            assert_eq!(event, first.1);
        }
        waiting.retain(|&(_, other)| other != event);
        time
    }

    fn take_many(
        events: &mut EventQueue<u32>,
        waiting: &mut Vec<(Time, u32)>,
        mut now: Time,
    ) -> Time {
        let last = now + Span::from_micros(5);
        let (mut count, end) = (0, Cell::new(now + Span::from_micros(2)));
        let each = |waiting: &mut &mut Vec<(Time, u32)>, time, event: &u32| {
            assert_eq!(Some(time), waiting.iter().map(|(time, _)| *time).min());
            waiting.retain(|(_, other)| other != event);
            now = time;
            count += 1;
            if count < 50 {
                end.get()
            } else {
                Time::ZERO
            }
        };
        let extend = |waiting: &mut &mut Vec<(Time, u32)>, before| {
            if before == Time::ZERO {
                return before;
            }
            assert!(waiting.iter().all(|(time, _)| *time >= before));
            end.set(last);
            last
        };
        events.take_before(end.get(), &mut &mut *waiting, each, extend, |_, _| {});
        assert!(count == 50 || waiting.iter().all(|(time, _)| *time >= end.get()));
        now
    }

    fn next<E: Copy>(events: &mut EventQueue<E>) -> Option<(Time, E)> {
        let next = events.peek().map(|(time, event, ())| (time, *event));
        events.pop(|_| {});
        next
    }

    #[test]
    fn lines_and_calendar_pop_in_one_order() {
        for (late, prompt) in [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (7, 7)] {
            check(late, prompt);
        }
    }

    #[test]
    fn ties_have_their_order() {
        let order = |lines| {
            let mut events =
                EventQueue::new(Span::from_micros(1), Span::from_millis(1), lines, true);
            let at = Time::from_nanos(5);
            events.push(at, 'a', ());
            events.push_on(1, at, 'b', ());
            events.push_on(2, at, 'c', ());
            events.push_on(3, at, 'd', ());
            events.push_on(0, at, 'e', ());
            events.push_on(2, at, 'f', ());
            events.push(at, 'g', ());
            let pop = || next(&mut events).map(|(_, event)| event);
            std::iter::from_fn(pop).collect::<String>()
        };
        assert_eq!(order(LineCounts { late: 2, prompt: 2 }), "dcfabeg");
        assert_eq!(order(LineCounts { late: 4, prompt: 0 }), "abcdefg");
        assert_eq!(order(LineCounts::default()), "abcdefg");
    }
}
