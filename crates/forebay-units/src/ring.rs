//! A ring buffer: the part of `VecDeque` that packet queues need, in fewer instructions and inlined
//! into the packet path.

/// A queue of values in the order in which they were pushed. Its capacity is a power of two.
#[derive(Clone, Debug, Default)]
pub struct Ring<T> {
    /// The slots: a power of two, or none.
    slots: Vec<T>,
    /// The number of values popped, modulo 2^64.
    popped: usize,
    /// The number of values pushed, modulo 2^64.
    pushed: usize,
}

impl<T: Copy> Ring<T> {
    /// Creates an empty queue.
    #[must_use]
    pub const fn new() -> Ring<T> {
        Ring {
            slots: Vec::new(),
            popped: 0,
            pushed: 0,
        }
    }

    /// Returns the number of values.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.pushed.wrapping_sub(self.popped)
    }

    /// Returns true if there are no values.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.pushed == self.popped
    }

    /// Returns the value at `position`, counted from the first, which is at 0.
    #[inline(always)]
    pub fn get(&self, position: usize) -> Option<&T> {
        if position >= self.len() {
            return None;
        }
        let at = self.popped.wrapping_add(position) & self.slots.len().wrapping_sub(1);
        self.slots.get(at)
    }

    /// Returns the first values that are contiguous in memory: at least one, unless the queue is empty.
    #[inline(always)]
    pub fn front(&self) -> &[T] {
        let first = self.popped & self.slots.len().wrapping_sub(1);
        let contiguous = self.slots.get(first..).unwrap_or_default();
        contiguous.get(..self.len()).unwrap_or(contiguous)
    }

    /// Appends a value.
    #[inline(always)]
    pub fn push(&mut self, value: T) {
        if self.len() == self.slots.len() {
            self.grow(value);
        }
        let at = self.pushed & (self.slots.len().wrapping_sub(1));
        self.slots[at] = value;
        self.pushed = self.pushed.wrapping_add(1);
    }

    /// Removes the first value. The queue must not be empty.
    #[inline(always)]
    pub fn pop(&mut self) {
        debug_assert!(!self.is_empty(), "the queue is empty");
        self.popped = self.popped.wrapping_add(1);
    }

    /// Removes the first `count` values. There must be as many.
    #[inline(always)]
    pub fn pop_front(&mut self, count: usize) {
        debug_assert!(count <= self.len(), "the queue has fewer values");
        self.popped = self.popped.wrapping_add(count);
    }

    /// Removes and returns the last value.
    pub fn pop_last(&mut self) -> Option<T> {
        let last = self.get(self.len().checked_sub(1)?).copied();
        self.pushed = self.pushed.wrapping_sub(1);
        last
    }

    /// Removes and returns the value at `position`, counted from the first. The values before it move
    /// by one slot.
    pub fn remove(&mut self, position: usize) -> Option<T> {
        let value = *self.get(position)?;
        let mask = self.slots.len().wrapping_sub(1);
        for earlier in (0..position).rev() {
            let at = self.popped.wrapping_add(earlier);
            self.slots[at.wrapping_add(1) & mask] = self.slots[at & mask];
        }
        self.pop();
        Some(value)
    }

    /// Doubles the number of slots; the free ones contain `filler`.
    #[cold]
    #[inline(never)]
    fn grow(&mut self, filler: T) {
        let len = self.len();
        let mut slots = Vec::with_capacity((2 * len).max(4));
        slots.extend((0..len).filter_map(|position| self.get(position).copied()));
        slots.resize((2 * len).max(4), filler);
        (self.slots, self.popped, self.pushed) = (slots, 0, len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    #[test]
    fn values_are_popped_in_the_order_in_which_they_were_pushed() {
        let (mut ring, mut want) = (Ring::new(), VecDeque::new());
        for i in 0..1000u32 {
            ring.push(i);
            want.push_back(i);
            // The ring wraps many times between two growths.
            for _ in 0..(i % 3).min(i % 2 + i / 900) {
                assert_eq!(ring.get(0).copied(), want.pop_front());
                ring.pop();
            }
            if i % 97 == 0 {
                assert_eq!(ring.pop_last(), want.pop_back());
            }
            if i % 41 == 0 {
                assert_eq!(ring.remove(5), want.remove(5));
            }
            assert_eq!(ring.get(7), want.get(7));
            let front = ring.front();
            assert_eq!(front.is_empty(), want.is_empty());
            assert!(front.iter().eq(want.iter().take(front.len())));
            if i % 53 == 0 {
                want.drain(..front.len());
                ring.pop_front(front.len());
            }
            assert_eq!((ring.len(), ring.is_empty()), (want.len(), want.is_empty()));
        }
        while let Some(value) = want.pop_front() {
            assert_eq!(ring.get(0), Some(&value));
            ring.pop();
        }
        assert!(ring.is_empty() && ring.get(0).is_none());
    }
}
