//! A queue of future events: a calendar of buckets of one width, and a heap for events that lie
//! beyond the last bucket. `bench/events.rs` compares it with a binary heap.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use forebay_units::{Span, Time};

use crate::number::{count, index};

const NONE: u32 = u32::MAX;

/// An event with its time.
#[derive(Clone, Copy, Debug)]
pub struct Entry<E> {
    /// The time of the event.
    pub time: Time,
    /// The event.
    pub event: E,
}

/// A part of a bucket's list: up to `K` entries next to each other.
#[derive(Clone, Copy)]
struct Slot<E, const K: usize> {
    entries: [Entry<E>; K],
    len: u32,
    next: u32,
}

/// Events in order of time. Events of one time come in an order that depends only on the pushes, so
/// that a run repeats exactly.
///
/// `K` entries of a bucket lie next to each other in memory: about as many as a bucket holds.
pub struct Calendar<E, const K: usize = 1> {
    /// A bucket is 2^shift ns wide.
    shift: u32,
    /// The number of buckets, which is a power of two, less one.
    mask: u64,
    /// First slot of each bucket's list.
    heads: Vec<u32>,
    /// One bit for each bucket, set while the bucket holds something.
    occupied: Vec<u64>,
    /// Number of such buckets.
    occupied_buckets: u32,
    slots: Vec<Slot<E, K>>,
    free: u32,
    /// Number of the current bucket. Everything before it has been popped.
    bucket: u64,
    /// Entries of the current bucket in order of time, from `cursor` on.
    current: Vec<Entry<E>>,
    cursor: usize,
    /// Entries past the last bucket: (time, tie-break, slot).
    far: BinaryHeap<Reverse<(Time, u64, u32)>>,
    pushed_far: u64,
}

impl<E: Copy, const K: usize> Calendar<E, K> {
    /// Creates a calendar with buckets of about this width, which reach as far as `horizon`.
    pub fn new(width: Span, horizon: Span) -> Self {
        let shift = width.as_nanos().clamp(64, 1 << 30).ilog2();
        let buckets = (horizon.as_nanos() >> shift)
            .clamp(1 << 10, 1 << 17)
            .next_power_of_two();
        Calendar {
            shift,
            mask: buckets - 1,
            heads: vec![NONE; index(buckets)],
            occupied: vec![0; index(buckets) / 64],
            occupied_buckets: 0,
            slots: Vec::new(),
            free: NONE,
            bucket: 0,
            current: Vec::new(),
            cursor: 0,
            far: BinaryHeap::new(),
            pushed_far: 0,
        }
    }

    /// Returns the number of the bucket of a time, counted from the start of the run.
    #[inline(always)]
    fn bucket_of(&self, time: Time) -> u64 {
        time.as_nanos() >> self.shift
    }

    /// Adds an event; its time is not before that of the last event popped.
    #[inline(always)]
    pub fn push(&mut self, time: Time, event: E) {
        let entry = Entry { time, event };
        let bucket = self.bucket_of(time);
        // The buckets of the wheel are the `mask` ones behind the current one.
        if bucket.wrapping_sub(self.bucket).wrapping_sub(1) < self.mask {
            self.file(bucket, entry);
        } else {
            self.push_outside_wheel(entry);
        }
    }

    #[cold]
    #[inline(never)]
    fn push_outside_wheel(&mut self, entry: Entry<E>) {
        if self.bucket_of(entry.time) <= self.bucket {
            self.push_current(entry);
            return;
        }
        let slot = self.take_slot(entry, NONE);
        self.far.push(Reverse((entry.time, self.pushed_far, slot)));
        self.pushed_far += 1;
    }

    /// Turns an empty calendar so that there is a bucket for about this time. Otherwise the time
    /// could be beyond the last bucket of a calendar that has been empty for long.
    pub fn turn_to(&mut self, time: Time) {
        let middle = self.bucket_of(time).saturating_sub(self.mask / 2);
        self.bucket = self.bucket.max(middle);
    }

    /// Returns the next event without removing it. `fresh` gets the events of a bucket when its turn
    /// comes, so that the memory that they need can be fetched for all of them at once.
    #[inline]
    pub fn peek_and(&mut self, fresh: impl FnOnce(&[Entry<E>])) -> Option<&Entry<E>> {
        if self.cursor == self.current.len() {
            if !self.advance() {
                return None;
            }
            fresh(&self.current);
        }
        self.current.get(self.cursor)
    }

    /// Returns the next events in order: those that are left in the current bucket.
    #[inline]
    pub fn front(&self) -> &[Entry<E>] {
        &self.current[self.cursor..]
    }

    /// Returns events of the next bucket, in no order.
    #[inline]
    pub fn next_bucket(&self) -> &[Entry<E>] {
        let head = self.heads[index((self.bucket + 1) & self.mask)];
        let slot = self.slots.get(head as usize);
        slot.map_or(&[], |slot| &slot.entries[..slot.len as usize])
    }

    /// Removes the first `count` events of [`front`](Calendar::front).
    #[inline]
    pub fn pop_front(&mut self, count: usize) {
        self.cursor += count;
        debug_assert!(self.cursor <= self.current.len(), "not so many events");
    }

    /// Removes and returns the next event.
    #[inline]
    pub fn pop(&mut self) -> Option<Entry<E>> {
        let entry = *self.peek_and(|_| {})?;
        self.cursor += 1;
        Some(entry)
    }

    fn push_current(&mut self, entry: Entry<E>) {
        let after = self.current[self.cursor..].partition_point(|e| e.time <= entry.time);
        self.current.insert(self.cursor + after, entry);
    }

    /// Returns a slot with this entry alone, in front of the slot `next`.
    fn take_slot(&mut self, entry: Entry<E>, next: u32) -> u32 {
        let index = self.free;
        if let Some(slot) = self.slots.get_mut(index as usize) {
            self.free = slot.next;
            slot.entries[0] = entry;
            (slot.len, slot.next) = (1, next);
            return index;
        }
        self.slots.push(Slot {
            entries: [entry; K],
            len: 1,
            next,
        });
        count(self.slots.len() - 1)
    }

    fn free_slot(&mut self, slot: u32) {
        self.slots[slot as usize].next = self.free;
        self.free = slot;
    }

    /// Puts an entry into a bucket of the wheel.
    #[inline(always)]
    fn file(&mut self, bucket: u64, entry: Entry<E>) {
        let head = self.heads[index(bucket & self.mask)];
        if let Some(slot) = self.slots.get_mut(head as usize) {
            if let Some(place) = slot.entries.get_mut(slot.len as usize) {
                *place = entry;
                slot.len += 1;
                return;
            }
        }
        self.file_in_new_slot(bucket, entry);
    }

    #[inline(never)]
    fn file_in_new_slot(&mut self, bucket: u64, entry: Entry<E>) {
        let at = index(bucket & self.mask);
        let head = self.heads[at];
        self.heads[at] = self.take_slot(entry, head);
        if head == NONE {
            self.occupied[at / 64] |= 1 << (at % 64);
            self.occupied_buckets += 1;
        }
    }

    /// Jumps to just before the first entry beyond the last bucket; false if there is none.
    #[cold]
    #[inline(never)]
    fn advance_far(&mut self) -> bool {
        let Some(Reverse((time, _, _))) = self.far.peek() else {
            return false;
        };
        self.bucket = self.bucket_of(*time) - 1;
        true
    }

    /// Moves to the next bucket that holds something; false if there is none.
    #[inline(never)]
    fn advance(&mut self) -> bool {
        self.current.clear();
        self.cursor = 0;
        let next = match self.next_occupied() {
            Some(next) => next,
            None if self.advance_far() => self.bucket + 1,
            None => return false,
        };
        self.bucket = next;
        let at = index(next & self.mask);
        let mut slot = std::mem::replace(&mut self.heads[at], NONE);
        if slot != NONE {
            self.occupied[at / 64] &= !(1 << (at % 64));
            self.occupied_buckets -= 1;
        }
        let far_time = self.far.peek().map_or(Time::NEVER, |far| far.0 .0);
        if self.take_single(slot, far_time) {
            return true;
        }
        // The list begins with the slot that was filled last.
        let mut in_order = true;
        while slot != NONE {
            let list = &self.slots[slot as usize];
            let next = list.next;
            let entries = &list.entries[..list.len as usize];
            if next == NONE && in_order {
                self.current.extend_from_slice(entries);
            } else {
                in_order = false;
                self.current.extend(entries.iter().rev());
            }
            self.free_slot(slot);
            slot = next;
        }
        // A far event may be within the wheel now, or in this very bucket.
        while let Some(&Reverse((time, _, slot))) = self.far.peek() {
            let bucket = self.bucket_of(time);
            if bucket - self.bucket > self.mask {
                break;
            }
            self.far.pop();
            let entry = self.slots[slot as usize].entries[0];
            self.free_slot(slot);
            if bucket == self.bucket {
                if in_order {
                    self.current.reverse();
                    in_order = false;
                }
                self.current.push(entry);
            } else {
                self.file(bucket, entry);
            }
        }
        // Entries in the order in which they were pushed keep it in a tie, as the sort is stable.
        if !in_order {
            self.current.reverse();
        }
        if self.current.len() > 1 {
            self.current.sort_by_key(|entry| entry.time);
        }
        true
    }

    /// Makes the entries of `slot` the current ones, in order. Returns false if they are not all
    /// entries of the current bucket, or if slots have another size than the sorting network. No
    /// entry beyond the wheel may be within the wheel now.
    #[inline(always)]
    fn take_single(&mut self, slot: u32, far_time: Time) -> bool {
        let is_near = self.bucket_of(far_time).wrapping_sub(self.bucket) <= self.mask;
        let Some(list) = self.slots.get(slot as usize) else {
            return false;
        };
        if K != NETWORK || list.next != NONE || is_near {
            return false;
        }
        let start = self.bucket << self.shift;
        let keys = std::array::from_fn(|number| {
            let key = (list.entries[number].time.as_nanos().wrapping_sub(start)) << NETWORK_BITS;
            // The number keeps entries of one time in the order in which they were pushed.
            match number < list.len as usize {
                true => key | number as u64,
                false => u64::MAX,
            }
        });
        let keys = sort_by_network(keys);
        let entries = keys.iter().map(|key| list.entries[index(*key) % NETWORK]);
        self.current.extend(entries);
        self.current.truncate(list.len as usize);
        self.free_slot(slot);
        true
    }

    /// Returns the number of the next bucket that holds something, within one turn of the wheel.
    fn next_occupied(&self) -> Option<u64> {
        if self.occupied_buckets == 0 {
            return None;
        }
        let start = self.bucket + 1;
        let words = self.occupied.len();
        let first = index(start & self.mask);
        let mut word = first / 64;
        let mut bits = self.occupied[word] & (!0u64 << (first % 64));
        for turn in 0..=words {
            if bits != 0 {
                let at = (word * 64 + bits.trailing_zeros() as usize) as u64;
                return Some(start + (at.wrapping_sub(start) & self.mask));
            }
            if turn == words {
                break;
            }
            word = (word + 1) % words;
            bits = self.occupied[word];
        }
        None
    }
}

/// Binary logarithm of the number of keys of a sorting network.
const NETWORK_BITS: u32 = 3;
/// Number of keys of a sorting network.
const NETWORK: usize = 1 << NETWORK_BITS;

/// Returns the keys in ascending order, by the network of 19 comparators for eight inputs (Knuth, The
/// Art of Computer Programming, volume 3, section 5.3.4), which has no branches.
#[inline(always)]
fn sort_by_network(keys: [u64; NETWORK]) -> [u64; NETWORK] {
    let compare = |a: u64, b: u64| (a.min(b), a.max(b));
    let [a, b, c, d, e, f, g, h] = keys;
    let ((a, c), (b, d), (e, g), (f, h)) =
        (compare(a, c), compare(b, d), compare(e, g), compare(f, h));
    let ((a, e), (b, f), (c, g), (d, h)) =
        (compare(a, e), compare(b, f), compare(c, g), compare(d, h));
    let ((a, b), (c, d), (e, f), (g, h)) =
        (compare(a, b), compare(c, d), compare(e, f), compare(g, h));
    let ((c, e), (d, f)) = (compare(c, e), compare(d, f));
    let ((b, e), (d, g)) = (compare(b, e), compare(d, g));
    let ((b, c), (d, e), (f, g)) = (compare(b, c), compare(d, e), compare(f, g));
    [a, b, c, d, e, f, g, h]
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_units::Rng;

    /// By the 0-1 principle a network sorts all keys if it sorts all sequences of zeros and ones.
    #[test]
    fn the_network_sorts() {
        for bits in 0..1u64 << NETWORK {
            let keys = sort_by_network(std::array::from_fn(|i| bits >> i & 1));
            assert!(keys.is_sorted(), "{bits:b}");
        }
    }

    /// Compares the calendar with a heap, with pushes between pops, and with gaps from zero to far
    /// past the wheel.
    #[test]
    fn pops_in_order_of_time() {
        let mut rng = Rng::new(3, "calendar");
        for spacing in [64, 1000, 1 << 20].map(Span::from_nanos) {
            let mut calendar = Calendar::<u32, 3>::new(spacing, 2000 * spacing);
            let mut want: BinaryHeap<Reverse<Time>> = BinaryHeap::new();
            let mut now = Time::ZERO;
            for i in 0..20_000u32 {
                let reach = [0, 1, 100, 100_000][i as usize % 4] * spacing;
                let ahead = (rng.uniform() * reach.as_nanos_f64()) as u64;
                let time = now + Span::from_nanos(ahead);
                calendar.push(time, i);
                want.push(Reverse(time));
                if i % 3 != 0 {
                    let got = calendar.pop().unwrap().time;
                    assert_eq!(got, want.pop().unwrap().0);
                    now = got;
                }
            }
            while let Some(Reverse(time)) = want.pop() {
                let next = calendar.peek_and(|_| {});
                assert_eq!(next.map(|entry| entry.time), Some(time));
                assert_eq!(calendar.pop().unwrap().time, time);
            }
            assert!(calendar.pop().is_none());
        }
    }

    #[test]
    fn events_of_one_time_keep_their_order() {
        let mut calendar = Calendar::<i32, 4>::new(Span::from_micros(1), Span::from_millis(1));
        for i in 0..50 {
            calendar.push(Time::from_nanos(5_000), i);
        }
        let order: Vec<i32> = std::iter::from_fn(|| calendar.pop().map(|e| e.event)).collect();
        assert_eq!(order, (0..50).collect::<Vec<_>>());
    }

    #[test]
    fn a_lone_far_event_is_found_without_turning_the_wheel() {
        let mut calendar = Calendar::<char>::new(Span::from_nanos(64), Span::from_nanos(1 << 16));
        calendar.push(Time::ZERO + Span::from_secs(3600), 'x');
        assert_eq!(calendar.pop().map(|e| e.event), Some('x'));
        assert!(calendar.pop().is_none());
    }
}
