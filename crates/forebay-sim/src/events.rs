//! A queue of packets under way: delay lines for those that cannot overtake each other, a
//! calendar for the rest, and a tournament between their heads.
//!
//! What enters a delay line in order of time comes out in order, so only its head is looked at;
//! and since the events behind the head are known, the memory they need can be fetched early.

use std::collections::VecDeque;

use crate::calendar::{Calendar, Entry};

/// How far ahead of a line's head memory is fetched, in events.
const AHEAD: usize = 12;

/// Which of two events of one time comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ties {
    /// Events on lines come before those in the calendar: a packet that waited for its access
    /// link comes after one that did not. ns-2 has the same order, since it schedules the first
    /// when the wait ends; with equal link rates, where every arrival is such a tie, AVQ's mean
    /// queue depends on it fourfold. Of two lines the one with the higher number comes first.
    LinesFirst,
    /// The event that was pushed first comes first.
    PushedFirst,
}

/// Events in order of time.
pub struct EventQueue<E> {
    calendar: Calendar<Queued<E>>,
    /// The line with the highest number stands first.
    lines: Vec<Line<E>>,
    /// A winner tree: from `leaves` on the head of each line, then that of the calendar; before
    /// them, at i, the earlier of 2i and 2i + 1. So 1 holds the next event's, and a change of one
    /// head costs a comparison for each doubling of the number of lines.
    heads: Vec<Head>,
    leaves: usize,
    ties: Ties,
    /// Number of pushes.
    pushed: u32,
    /// What events need is fetched early.
    fetches: bool,
}

/// Time, number of the push where that decides ties, and leaf, in this order of weight: one
/// comparison settles all three. Only a tie across the wrap of 2^32 pushes comes out wrong.
type Head = u128;

const EMPTY: Head = Head::MAX;

#[derive(Clone, Copy)]
struct Queued<E> {
    event: E,
    pushed: u32,
}

struct Line<E> {
    queue: VecDeque<Entry<Queued<E>>>,
    /// Time of the last event that entered.
    last: u64,
}

impl<E: Copy> EventQueue<E> {
    /// A queue with this many lines; what is not on them is about `spacing_ns` apart and mostly
    /// within `horizon_ns`.
    pub fn new(spacing_ns: u64, horizon_ns: u64, lines: usize, ties: Ties, fetches: bool) -> Self {
        let leaves = (lines + 1).next_power_of_two();
        let line = || Line {
            queue: VecDeque::new(),
            last: 0,
        };
        EventQueue {
            calendar: Calendar::new(spacing_ns, horizon_ns),
            lines: std::iter::repeat_with(line).take(lines).collect(),
            heads: vec![EMPTY; 2 * leaves],
            leaves,
            ties,
            pushed: 0,
            fetches,
        }
    }

    /// Time of the next event; `u64::MAX` if there is none.
    #[inline(always)]
    pub fn next_time(&self) -> u64 {
        (self.heads[1] >> 64) as u64
    }

    /// Adds an event to the calendar.
    #[inline]
    pub fn push(&mut self, time: u64, event: E) {
        let queued = self.number(event);
        self.push_to_calendar(time, queued);
    }

    /// Adds an event behind the others of `line`; one that overtakes goes to the calendar, and
    /// so does every event of a line that is not there.
    #[inline]
    pub fn push_on(&mut self, line: usize, time: u64, event: E) {
        let queued = self.number(event);
        let leaf = self.lines.len().wrapping_sub(1 + line);
        let Some(line) = self.lines.get_mut(leaf) else {
            return self.push_to_calendar(time, queued);
        };
        let was_empty = line.queue.is_empty();
        if time < line.last && !was_empty {
            return self.push_to_calendar(time, queued);
        }
        line.last = time;
        line.queue.push_back(Entry {
            time,
            event: queued,
        });
        if was_empty {
            self.set_head(leaf, head(time, queued.pushed, leaf));
        }
    }

    /// Takes the next event; `fetch` is told of events to come.
    #[inline]
    pub fn pop(&mut self, mut fetch: impl FnMut(&E)) -> Option<Entry<E>> {
        if self.heads[1] == EMPTY {
            return None;
        }
        let leaf = self.heads[1] as u32 as usize;
        let Some(line) = self.lines.get_mut(leaf) else {
            return self.pop_from_calendar(fetch);
        };
        let entry = line.queue.pop_front()?;
        let next = line.queue.front();
        let next = next.map_or(EMPTY, |next| head(next.time, next.event.pushed, leaf));
        if self.fetches {
            if let Some(coming) = line.queue.get(AHEAD) {
                fetch(&coming.event.event);
            }
        }
        self.set_head(leaf, next);
        Some(Entry {
            time: entry.time,
            event: entry.event.event,
        })
    }

    #[inline(always)]
    fn number(&mut self, event: E) -> Queued<E> {
        let pushed = self.pushed;
        if self.ties == Ties::PushedFirst {
            self.pushed = pushed.wrapping_add(1);
        }
        Queued { event, pushed }
    }

    #[inline(never)]
    fn push_to_calendar(&mut self, time: u64, queued: Queued<E>) {
        let leaf = self.lines.len();
        if self.heads[self.leaves + leaf] == EMPTY {
            self.calendar.turn_to(time);
        }
        self.calendar.push(time, queued);
        let new = head(time, queued.pushed, leaf);
        // Of events of one time the calendar keeps the order.
        if new < self.heads[self.leaves + leaf] {
            self.set_head(leaf, new);
        }
    }

    #[inline(never)]
    fn pop_from_calendar(&mut self, mut fetch: impl FnMut(&E)) -> Option<Entry<E>> {
        let entry = self.calendar.pop()?;
        let leaf = self.lines.len();
        let next = self.calendar.peek_and(|events| {
            for entry in events {
                fetch(&entry.event.event);
            }
        });
        let next = next.map_or(EMPTY, |next| head(next.time, next.event.pushed, leaf));
        self.set_head(leaf, next);
        Some(Entry {
            time: entry.time,
            event: entry.event.event,
        })
    }

    #[inline(always)]
    fn set_head(&mut self, leaf: usize, head: Head) {
        let mut at = self.leaves + leaf;
        self.heads[at] = head;
        while at > 1 {
            let winner = self.heads[at].min(self.heads[at ^ 1]);
            at /= 2;
            self.heads[at] = winner;
        }
    }
}

#[inline(always)]
fn head(time: u64, pushed: u32, leaf: usize) -> Head {
    Head::from(time) << 64 | Head::from(pushed) << 32 | leaf as Head
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::Rng;

    /// Pushes and pops by turns, against a list sorted by time and, where pushes decide ties, by
    /// push.
    fn check(lines: usize, ties: Ties) {
        let mut rng = Rng::new(9, "events");
        let mut events = EventQueue::new(1000, 1_000_000, lines, ties, true);
        let mut waiting: Vec<(u64, u32)> = Vec::new();
        let mut now = 0;
        for i in 0..20_000 {
            // Coarse, so that there are ties.
            let time = now + 500 * (rng.uniform() * 40.0) as u64;
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
        assert_eq!(events.next_time(), u64::MAX);
        assert!(events.pop(|_| {}).is_none());
    }

    fn take(events: &mut EventQueue<u32>, waiting: &mut Vec<(u64, u32)>, ties: Ties) -> u64 {
        let first = *waiting.iter().min().expect("one was pushed");
        assert_eq!(events.next_time(), first.0);
        let got = events.pop(|_| {}).expect("one was pushed");
        assert_eq!(got.time, first.0);
        if ties == Ties::PushedFirst {
            assert_eq!(got.event, first.1);
        }
        waiting.retain(|&(_, event)| event != got.event);
        got.time
    }

    #[test]
    fn lines_and_calendar_pop_in_one_order() {
        for lines in [0, 1, 2, 21] {
            check(lines, Ties::LinesFirst);
            check(lines, Ties::PushedFirst);
        }
    }

    #[test]
    fn ties_have_their_order() {
        let order = |ties| {
            let mut events = EventQueue::new(1000, 1_000_000, 2, ties, true);
            events.push(5, 'a');
            events.push_on(0, 5, 'b');
            events.push_on(1, 5, 'c');
            events.push_on(0, 5, 'd');
            events.push(5, 'e');
            let pop = || events.pop(|_| {}).map(|entry| entry.event);
            std::iter::from_fn(pop).collect::<String>()
        };
        assert_eq!(order(Ties::LinesFirst), "cbdae");
        assert_eq!(order(Ties::PushedFirst), "abcde");
    }
}
