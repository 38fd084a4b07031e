//! The queue of packets under way: delay lines for those that cannot overtake each other, a
//! calendar for the rest.
//!
//! What enters a delay line in order of time comes out in order, so only its head is looked at;
//! and since the events behind the head are known, the memory they need can be fetched early.

use std::collections::VecDeque;

use crate::calendar::{Calendar, Entry};

/// How far ahead of a line's head memory is fetched, in events.
const AHEAD: usize = 12;

/// Lines are looked at one by one, so a few pay and many do not.
pub const MOST_LINES: usize = 12;

pub struct EventQueue<E> {
    calendar: Calendar<E>,
    lines: Vec<VecDeque<Entry<E>>>,
    /// Time of each line's head; `u64::MAX` for an empty line.
    heads: Vec<u64>,
}

impl<E: Copy> EventQueue<E> {
    pub fn new(calendar: Calendar<E>, lines: usize) -> Self {
        EventQueue {
            calendar,
            lines: vec![VecDeque::new(); lines],
            heads: vec![u64::MAX; lines],
        }
    }

    /// Adds an event to the calendar.
    #[inline]
    pub fn push(&mut self, time: u64, event: E) {
        self.calendar.push(time, event);
    }

    /// Adds an event behind the others of `line`; one that overtakes goes to the calendar, and
    /// so does every event of a line that is not there.
    #[inline]
    pub fn push_on(&mut self, line: usize, time: u64, event: E) {
        let Some(queue) = self.lines.get_mut(line) else {
            return self.calendar.push(time, event);
        };
        match queue.back() {
            Some(last) if last.time > time => return self.calendar.push(time, event),
            Some(_) => {}
            None => self.heads[line] = time,
        }
        queue.push_back(Entry { time, event });
    }

    /// Of events of one time, those on lines come before those in the calendar: a packet that
    /// waited for its access link comes after one that did not. ns-2 has the same order, since
    /// it schedules the first when the wait ends; with equal link rates, where every arrival is
    /// such a tie, AVQ's mean queue depends on it fourfold.
    ///
    /// Takes the next event if it is before `limit`; `fetch` is told of events to come.
    #[inline]
    pub fn pop_before(
        &mut self,
        limit: u64,
        mut fetch: impl FnMut(&E),
    ) -> Result<Entry<E>, Option<u64>> {
        let mut first = self
            .calendar
            .peek_and(|events| events.iter().for_each(|entry| fetch(&entry.event)))
            .unwrap_or(u64::MAX);
        let mut line = None;
        for (i, &head) in self.heads.iter().enumerate() {
            if head <= first {
                first = head;
                line = Some(i);
            }
        }
        if first >= limit {
            return Err((first != u64::MAX).then_some(first));
        }
        let Some(i) = line else {
            return self.calendar.pop().ok_or(None);
        };
        let queue = &mut self.lines[i];
        let entry = queue.pop_front().ok_or(None)?;
        self.heads[i] = queue.front().map_or(u64::MAX, |next| next.time);
        if let Some(coming) = queue.get(AHEAD) {
            fetch(&coming.event);
        }
        Ok(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::Rng;

    #[test]
    fn lines_and_calendar_pop_in_one_order() {
        let mut rng = Rng::new(9, "events");
        let mut events = EventQueue::new(Calendar::new(1000, 1_000_000), 2);
        let mut want = Vec::new();
        for i in 0..3000u64 {
            let jitter = (rng.uniform() * 3000.0) as u64;
            let time = i * 500 + jitter;
            match i % 4 {
                0 => events.push(time, i),
                // Line 7 is not there; lines 0 and 1 get some events that would overtake.
                1 => events.push_on(7, time, i),
                n => events.push_on(n as usize - 2, time, i),
            }
            want.push(time);
        }
        want.sort_unstable();
        let mut got = Vec::new();
        while let Ok(entry) = events.pop_before(u64::MAX, |_| {}) {
            got.push(entry.time);
        }
        assert_eq!(got, want);
    }

    #[test]
    fn nothing_is_taken_at_or_after_the_limit() {
        let mut events = EventQueue::new(Calendar::new(1000, 1_000_000), 1);
        events.push_on(0, 50, 'x');
        assert_eq!(events.pop_before(50, |_| {}).err(), Some(Some(50)));
        assert!(events.pop_before(51, |_| {}).is_ok());
        assert_eq!(events.pop_before(u64::MAX, |_| {}).err(), Some(None));
    }
}
