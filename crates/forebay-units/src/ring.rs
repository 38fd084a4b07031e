//! A ring buffer: the part of `VecDeque` that packet queues need, in fewer instructions and inlined
//! into the packet path.

/// A queue of values in the order in which they were pushed. Its capacity is a power of two.
#[derive(Clone, Debug, Default)]
pub struct Ring<T> {
    /// The slots, whose number is a power of two, or zero. Those without a value have an old one.
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
        self.slots
            .get(self.slot(self.popped.wrapping_add(position)))
    }

    /// Returns the first values that are contiguous in memory: at least one, unless the queue is
    /// empty.
    #[inline(always)]
    pub fn front(&self) -> &[T] {
        let first = self.slot(self.popped);
        let contiguous = self.slots.get(first..).unwrap_or_default();
        contiguous.get(..self.len()).unwrap_or(contiguous)
    }

    /// Returns the index in `slots` of the value with this number.
    #[inline(always)]
    fn slot(&self, number: usize) -> usize {
        number & self.slots.len().wrapping_sub(1)
    }

    /// Appends a value.
    #[inline(always)]
    pub fn push(&mut self, value: T) {
        if self.len() == self.slots.len() {
            self.grow(value);
        }
        let at = self.slot(self.pushed);
        if let Some(slot) = self.slots.get_mut(at) {
            *slot = value;
        }
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

    /// Removes and returns the value at `position`, counted from the first. The values before it
    /// move by one slot.
    pub fn remove(&mut self, position: usize) -> Option<T> {
        let value = *self.get(position)?;
        for earlier in (0..position).rev() {
            let number = self.popped.wrapping_add(earlier);
            let (at, next) = (self.slot(number), self.slot(number.wrapping_add(1)));
            self.slots[next] = self.slots[at];
        }
        self.pop();
        Some(value)
    }

    /// Doubles the number of slots and fills the new ones with `value`.
    #[cold]
    #[inline(never)]
    fn grow(&mut self, value: T) {
        let len = self.len();
        let first = self.slot(self.popped);
        self.slots.rotate_left(first);
        self.slots.resize((2 * len).max(4), value);
        (self.popped, self.pushed) = (0, len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    #[test]
    fn values_are_popped_in_the_order_in_which_they_were_pushed() {
        let (mut ring, mut expected) = (Ring::new(), VecDeque::new());
        for i in 0..1000u32 {
            ring.push(i);
            expected.push_back(i);
            // The ring wraps many times between two growths.
            for _ in 0..(i % 3).min(i % 2 + i / 900) {
                assert_eq!(ring.get(0).copied(), expected.pop_front());
                ring.pop();
            }
            if i % 97 == 0 {
                assert_eq!(ring.pop_last(), expected.pop_back());
            }
            if i % 41 == 0 {
                assert_eq!(ring.remove(5), expected.remove(5));
            }
            assert_eq!(ring.get(7), expected.get(7));
            let front = ring.front();
            assert_eq!(front.is_empty(), expected.is_empty());
            assert!(front.iter().eq(expected.iter().take(front.len())));
            if i % 53 == 0 {
                expected.drain(..front.len());
                ring.pop_front(front.len());
            }
            assert_eq!(
                (ring.len(), ring.is_empty()),
                (expected.len(), expected.is_empty())
            );
        }
        while let Some(value) = expected.pop_front() {
            assert_eq!(ring.get(0), Some(&value));
            ring.pop();
        }
        assert!(ring.is_empty() && ring.get(0).is_none());
    }
}
