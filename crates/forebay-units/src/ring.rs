//! A queue in a ring of a power of two places: what queues of packets need of `VecDeque`, in fewer
//! instructions, and inlined where packets pass.

/// Values in the order in which they were pushed.
#[derive(Clone, Debug, Default)]
pub struct Ring<T> {
    /// A power of two of places, or none.
    places: Vec<T>,
    /// Numbers of pops and pushes; they wrap.
    popped: usize,
    pushed: usize,
}

impl<T: Copy> Ring<T> {
    #[must_use]
    pub const fn new() -> Ring<T> {
        Ring {
            places: Vec::new(),
            popped: 0,
            pushed: 0,
        }
    }

    #[inline(always)]
    pub fn len(&self) -> usize {
        self.pushed.wrapping_sub(self.popped)
    }

    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.pushed == self.popped
    }

    /// The value `ahead` places behind the first.
    #[inline(always)]
    pub fn get(&self, ahead: usize) -> Option<&T> {
        if ahead >= self.len() {
            return None;
        }
        let at = self.popped.wrapping_add(ahead) & self.places.len().wrapping_sub(1);
        self.places.get(at)
    }

    /// The first values, as many as lie one behind the other in memory: at least one, if there is
    /// any.
    #[inline(always)]
    pub fn front(&self) -> &[T] {
        let first = self.popped & self.places.len().wrapping_sub(1);
        let behind = self.places.get(first..).unwrap_or_default();
        behind.get(..self.len()).unwrap_or(behind)
    }

    #[inline(always)]
    pub fn push(&mut self, value: T) {
        if self.len() == self.places.len() {
            self.grow(value);
        }
        let at = self.pushed & (self.places.len().wrapping_sub(1));
        self.places[at] = value;
        self.pushed = self.pushed.wrapping_add(1);
    }

    /// Takes the first value away; there is one.
    #[inline(always)]
    pub fn pop(&mut self) {
        debug_assert!(!self.is_empty(), "nothing to take");
        self.popped = self.popped.wrapping_add(1);
    }

    /// Takes so many of the first values away; there are as many.
    #[inline(always)]
    pub fn pop_front(&mut self, count: usize) {
        debug_assert!(count <= self.len(), "not so many to take");
        self.popped = self.popped.wrapping_add(count);
    }

    /// Takes the last value away.
    pub fn pop_last(&mut self) -> Option<T> {
        let last = self.get(self.len().checked_sub(1)?).copied();
        self.pushed = self.pushed.wrapping_sub(1);
        last
    }

    /// Takes out the value `ahead` places behind the first; those before it move up.
    pub fn remove(&mut self, ahead: usize) -> Option<T> {
        let value = *self.get(ahead)?;
        let mask = self.places.len().wrapping_sub(1);
        for place in (0..ahead).rev() {
            let at = self.popped.wrapping_add(place);
            self.places[at.wrapping_add(1) & mask] = self.places[at & mask];
        }
        self.pop();
        Some(value)
    }

    /// Doubles the number of places; `filler` stands in those that are free.
    #[cold]
    #[inline(never)]
    fn grow(&mut self, filler: T) {
        let len = self.len();
        let mut places = Vec::with_capacity((2 * len).max(4));
        places.extend((0..len).filter_map(|ahead| self.get(ahead).copied()));
        places.resize((2 * len).max(4), filler);
        (self.places, self.popped, self.pushed) = (places, 0, len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    #[test]
    fn values_leave_in_the_order_in_which_they_came() {
        let (mut ring, mut want) = (Ring::new(), VecDeque::new());
        for i in 0..1000u32 {
            ring.push(i);
            want.push_back(i);
            // Wraps many times between two growths.
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
