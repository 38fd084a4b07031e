//! A queue of packets under way: delay lines for those that cannot overtake each other, a
//! calendar for the rest, and a tournament between their heads.
//!
//! Events enter a delay line in order of time and leave it in that order, so the queue compares
//! its head alone. It knows the events behind the head, so it can fetch their memory early.

use forebay_units::{Ring, Span, Time};

use crate::calendar::{Calendar, Entry};
use crate::number::index;

/// How far ahead of a line's head memory is fetched, in events.
const AHEAD: usize = 12;

/// Which of two events of one time comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ties {
    /// Events on prompt lines come before the others: a packet that waited for its access link
    /// comes after one that did not. ns-2 has the same order, since it schedules the first when the
    /// wait ends; with equal link rates, where every arrival is such a tie, AVQ's mean queue depends
    /// on it fourfold. Of two prompt lines the one with the higher number comes first, and of other
    /// events the one that was pushed first.
    PromptFirst,
    /// The event that was pushed first comes first.
    PushedFirst,
}

/// How many delay lines a queue has. Late ones have the lower numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineCounts {
    /// For events that waited, and take their place in a tie by that.
    pub late: usize,
    pub prompt: usize,
}

impl LineCounts {
    fn count(self) -> usize {
        self.late + self.prompt
    }

    /// These, or none where they are more than a queue can have: all events wait in its calendar
    /// then.
    pub fn or_none(self) -> LineCounts {
        match self.count() <= MOST_LINES {
            true => self,
            false => LineCounts::default(),
        }
    }
}

/// Events in order of time.
pub struct EventQueue<E> {
    /// A winner tree: from `leaves` on the head of each line, then that of the calendar; before
    /// them, at i, the earlier of 2i and 2i + 1. So 1 holds the next event's, and a change of one
    /// head costs a comparison for each doubling of the number of lines.
    heads: Box<[Head; NODES]>,
    leaves: usize,
    /// The line with the highest number stands first.
    lines: Vec<DelayLine<E>>,
    /// Leaves below are those of prompt lines.
    prompt: usize,
    ties: Ties,
    /// What events need is fetched early.
    fetches: bool,
    /// Number of pushes.
    pushed: u32,
    /// The calendar's first event has this number.
    calendar_first: u32,
    calendar: Calendar<Queued<E>>,
}

/// Time and leaf, in this order of weight: one comparison of words settles both, without a branch
/// for the processor to guess. Where the number of the push decides a tie, the lines are asked.
type Head = u64;

/// Binary digits of a leaf's number.
const LEAF_BITS: u32 = 10;

/// Most lines of a queue. The calendar is one leaf more.
const MOST_LINES: usize = 1 << (LEAF_BITS - 1);

/// Number of nodes of a tree with all its leaves.
const NODES: usize = 2 << LEAF_BITS;

/// Events of one line are taken in runs where a tree has no more leaves.
const RUN_LEAVES: usize = 8;

const EMPTY: Head = Head::MAX;

/// The next time of a queue without events. No run lasts so long (208 days), and what is put off
/// for longer comes just before it.
const HORIZON: Time = Time::from_nanos(EMPTY >> LEAF_BITS);

#[derive(Clone, Copy)]
struct Queued<E> {
    event: E,
    pushed: u32,
}

struct DelayLine<E> {
    queue: Ring<Entry<Queued<E>>>,
    /// Time of the last event that entered.
    last: Time,
}

impl<E: Copy> EventQueue<E> {
    /// A queue with this many lines; what is not on them is about `spacing` apart and mostly
    /// within `horizon`.
    ///
    /// # Panics
    /// With more than 512 lines.
    pub fn new(spacing: Span, horizon: Span, lines: LineCounts, ties: Ties, fetches: bool) -> Self {
        let count = lines.count();
        assert!(count <= MOST_LINES, "{count} lines");
        let leaves = (count + 1).next_power_of_two();
        let line = || DelayLine {
            queue: Ring::new(),
            last: Time::ZERO,
        };
        EventQueue {
            heads: Box::new([EMPTY; NODES]),
            leaves,
            lines: std::iter::repeat_with(line).take(count).collect(),
            prompt: lines.prompt,
            ties,
            fetches,
            pushed: 0,
            calendar_first: 0,
            calendar: Calendar::new(spacing, horizon),
        }
    }

    /// Time of the next event; past the end of every run if there is none.
    #[inline(always)]
    pub fn next_time(&self) -> Time {
        time_of(self.heads[1])
    }

    /// Adds an event to the calendar.
    pub fn push(&mut self, time: Time, event: E) {
        let pushed = self.number();
        self.push_to_calendar(time, event, pushed);
    }

    /// Adds an event behind the others of `line`; one that overtakes goes to the calendar, and
    /// so does every event of a line that is not there.
    #[inline(always)]
    pub fn push_on(&mut self, line: usize, time: Time, event: E) {
        let pushed = self.number();
        let leaf = self.lines.len().wrapping_sub(1).wrapping_sub(line);
        let Some(line) = self.lines.get_mut(leaf) else {
            return self.push_to_calendar(time, event, pushed);
        };
        let was_empty = line.queue.is_empty();
        if time < line.last && !was_empty {
            return self.push_to_calendar(time, event, pushed);
        }
        line.last = time;
        line.queue.push(Entry {
            time,
            event: Queued { event, pushed },
        });
        if was_empty {
            self.wake(leaf, time);
        }
    }

    /// The next event and its time.
    #[inline(always)]
    pub fn peek(&mut self) -> Option<(Time, &E)> {
        let entry = match self.lines.get(leaf_of(self.heads[1])) {
            Some(line) => line.queue.get(0),
            None => peek_at(&mut self.calendar),
        }?;
        Some((entry.time, &entry.event.event))
    }

    /// Takes the next event away; `fetch` is told of events to come.
    #[inline(always)]
    pub fn pop(&mut self, mut fetch: impl FnMut(&E)) {
        let leaf = leaf_of(self.heads[1]);
        let Some(line) = self.lines.get_mut(leaf) else {
            return self.pop_from_calendar(fetch);
        };
        line.queue.pop();
        let next = line.queue.get(0);
        let next = next.map_or(EMPTY, |next| head(next.time, leaf));
        if self.fetches {
            if let Some(coming) = line.queue.get(AHEAD) {
                fetch(&coming.event.event);
            }
        }
        self.set_head(leaf, next);
    }

    /// Takes events away one after another while they come before `before`, which `each` sets anew:
    /// it is given time and event, and one to come whose memory is worth fetching. It cannot reach
    /// the queue, so heads are compared once for a run of events from one line.
    #[inline(always)]
    pub fn take_before(
        &mut self,
        mut before: Time,
        mut each: impl FnMut(Time, &E, Option<&E>) -> Time,
    ) {
        while self.next_time() < before {
            let leaf = leaf_of(self.heads[1]);
            // With many lines the next event is another's as a rule.
            let others = match self.leaves <= RUN_LEAVES {
                true => self.second(leaf),
                false => Time::ZERO,
            };
            let fetches = self.fetches;
            let EventQueue {
                lines,
                calendar,
                calendar_first,
                ..
            } = self;
            let mut line = lines.get_mut(leaf);
            // The first is the next event of all, also where another has the same time.
            let mut limit = Time::NEVER;
            let next = loop {
                let from_calendar;
                let run = match &line {
                    Some(line) => line.queue.front(),
                    None => {
                        from_calendar = peek_at(calendar).copied();
                        from_calendar.as_slice()
                    }
                };
                let ahead = match fetches {
                    true => run.get(AHEAD..).unwrap_or_default(),
                    false => &[],
                };
                let mut taken = 0;
                // One call of `each`, whoever has the event: it is compiled into this loop.
                let stopped = loop {
                    let Some(entry) = run.get(taken) else {
                        break None;
                    };
                    if entry.time >= limit {
                        break Some(entry);
                    }
                    let coming = ahead.get(taken).map(|entry| &entry.event.event);
                    before = each(entry.time, &entry.event.event, coming);
                    limit = before.min(others);
                    taken += 1;
                };
                if let Some(entry) = stopped {
                    if line.is_none() {
                        *calendar_first = entry.event.pushed;
                    }
                    let next = head(entry.time, leaf);
                    if let Some(line) = &mut line {
                        line.queue.pop_front(taken);
                    }
                    break next;
                }
                if taken == 0 {
                    break EMPTY;
                }
                match &mut line {
                    Some(line) => line.queue.pop_front(taken),
                    None => drop_first(calendar),
                }
            };
            self.set_head(leaf, next);
        }
    }

    /// Time of the first event that is not at this leaf.
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

    #[cold]
    #[inline(never)]
    fn push_to_calendar(&mut self, time: Time, event: E, pushed: u32) {
        let leaf = self.lines.len();
        if self.heads[self.leaves + leaf] == EMPTY {
            self.calendar.turn_to(time);
        }
        self.calendar.push(time, Queued { event, pushed });
        let new = head(time, leaf);
        // Of events of one time the calendar keeps the order.
        if new < self.heads[self.leaves + leaf] {
            self.calendar_first = pushed;
            self.set_head(leaf, new);
        }
    }

    #[cold]
    #[inline(never)]
    fn pop_from_calendar(&mut self, mut fetch: impl FnMut(&E)) {
        if self.calendar.pop().is_none() {
            return;
        }
        let leaf = self.lines.len();
        let next = self.calendar.peek_and(|events| {
            for entry in events {
                fetch(&entry.event.event);
            }
        });
        let next = next.map_or(EMPTY, |next| {
            self.calendar_first = next.event.pushed;
            head(next.time, leaf)
        });
        self.set_head(leaf, next);
    }

    /// A line is no longer empty.
    #[inline(never)]
    fn wake(&mut self, leaf: usize, time: Time) {
        self.set_head(leaf, head(time, leaf));
    }

    #[inline(always)]
    fn set_head(&mut self, leaf: usize, head: Head) {
        let EventQueue {
            heads,
            leaves,
            prompt,
            ..
        } = self;
        // There are no more nodes; the bits save looking at each level.
        let mut at = (*leaves + leaf) % NODES;
        let mut winner = head;
        heads[at] = winner;
        while at > 1 {
            let other = heads[at ^ 1];
            winner = match (winner ^ other) >> LEAF_BITS {
                0 => match self.ties {
                    Ties::PromptFirst if leaf_of(winner.min(other)) < *prompt => winner.min(other),
                    _ => pushed_first(&self.lines, self.calendar_first, winner, other),
                },
                _ => winner.min(other),
            };
            at /= 2;
            heads[at] = winner;
        }
    }
}

#[cold]
#[inline(never)]
fn peek_at<E: Copy>(calendar: &mut Calendar<Queued<E>>) -> Option<&Entry<Queued<E>>> {
    calendar.peek_and(|_| {})
}

#[cold]
#[inline(never)]
fn drop_first<E: Copy>(calendar: &mut Calendar<Queued<E>>) {
    calendar.pop();
}

/// Which of two heads of one time was pushed first. Only a tie across the wrap of 2^32 pushes comes
/// out wrong.
#[cold]
#[inline(never)]
fn pushed_first<E: Copy>(
    lines: &[DelayLine<E>],
    calendar_first: u32,
    one: Head,
    other: Head,
) -> Head {
    let pushed = |head| match lines.get(leaf_of(head)) {
        Some(line) => line.queue.get(0).map_or(0, |first| first.event.pushed),
        None => calendar_first,
    };
    match pushed(other) < pushed(one) {
        true => other,
        false => one,
    }
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

    /// Pushes and pops by turns, against a list sorted by time and, where pushes decide ties, by
    /// push.
    fn check(late: usize, prompt: usize, ties: Ties) {
        let lines = late + prompt;
        let mut rng = Rng::new(9, "events");
        let mut events = EventQueue::new(
            Span::from_micros(1),
            Span::from_millis(1),
            LineCounts { late, prompt },
            ties,
            true,
        );
        let mut waiting: Vec<(Time, u32)> = Vec::new();
        let mut now = Time::ZERO;
        for i in 0..20_000 {
            // Coarse, so that there are ties.
            let time = now + Span::from_nanos(500 * (rng.uniform() * 40.0) as u64);
            match i as usize % (lines + 2) {
                0 => events.push(time, i),
                // A line that is not there is one of these.
                line => events.push_on(line, time, i),
            }
            waiting.push((time, i));
            if rng.chance(0.5) {
                now = take(&mut events, &mut waiting, ties);
            }
        }
        while !waiting.is_empty() {
            take(&mut events, &mut waiting, ties);
        }
        assert_eq!(events.next_time(), HORIZON);
        assert!(next(&mut events).is_none());
    }

    fn take(events: &mut EventQueue<u32>, waiting: &mut Vec<(Time, u32)>, ties: Ties) -> Time {
        let first = *waiting.iter().min().expect("one was pushed");
        assert_eq!(events.next_time(), first.0);
        let (time, got) = next(events).expect("one was pushed");
        assert_eq!(time, first.0);
        if ties == Ties::PushedFirst {
            assert_eq!(got, first.1);
        }
        waiting.retain(|&(_, event)| event != got);
        time
    }

    fn next<E: Copy>(events: &mut EventQueue<E>) -> Option<(Time, E)> {
        let next = events.peek().map(|(time, event)| (time, *event));
        events.pop(|_| {});
        next
    }

    #[test]
    fn lines_and_calendar_pop_in_one_order() {
        for (late, prompt) in [(0, 0), (0, 1), (1, 1), (0, 2), (21, 21)] {
            check(late, prompt, Ties::PromptFirst);
            check(late, prompt, Ties::PushedFirst);
        }
    }

    #[test]
    fn ties_have_their_order() {
        let order = |ties| {
            let lines = LineCounts { late: 2, prompt: 2 };
            let mut events = EventQueue::new(
                Span::from_micros(1),
                Span::from_millis(1),
                lines,
                ties,
                true,
            );
            let at = Time::from_nanos(5);
            events.push(at, 'a');
            events.push_on(1, at, 'b');
            events.push_on(2, at, 'c');
            events.push_on(3, at, 'd');
            events.push_on(0, at, 'e');
            events.push_on(2, at, 'f');
            events.push(at, 'g');
            let pop = || next(&mut events).map(|(_, event)| event);
            std::iter::from_fn(pop).collect::<String>()
        };
        assert_eq!(order(Ties::PromptFirst), "dcfabeg");
        assert_eq!(order(Ties::PushedFirst), "abcdefg");
    }
}
