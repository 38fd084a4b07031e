//! A ring buffer with a value for each packet under way, indexed by sequence number.

/// The values of the packets from the first unacknowledged one to the last sent.
#[derive(Clone, Debug)]
pub struct SequenceRing<T> {
    /// The slots, whose number is zero or a power of two. A packet uses the slot of its number
    /// modulo the number of slots.
    places: Vec<T>,
    una: u32,
    next: u32,
}

impl<T> Default for SequenceRing<T> {
    fn default() -> SequenceRing<T> {
        SequenceRing {
            places: Vec::new(),
            una: 0,
            next: 0,
        }
    }
}

impl<T: Copy> SequenceRing<T> {
    /// Returns the number of the first packet.
    #[inline(always)]
    pub fn una(&self) -> u32 {
        self.una
    }

    /// Returns the number of the packet that is pushed next.
    #[inline(always)]
    pub fn next(&self) -> u32 {
        self.next
    }

    /// Returns the number of packets.
    #[inline(always)]
    pub fn len(&self) -> u32 {
        self.next - self.una
    }

    /// Returns the slot of a packet.
    #[inline(always)]
    fn place(&self, seq: u32) -> usize {
        seq as usize & self.places.len().wrapping_sub(1)
    }

    /// Returns true if the ring has a value for this packet.
    #[inline(always)]
    fn holds(&self, seq: u32) -> bool {
        seq.wrapping_sub(self.una) < self.len()
    }

    /// Returns the value of a packet.
    #[inline(always)]
    pub fn get(&self, seq: u32) -> Option<&T> {
        match self.holds(seq) {
            true => self.places.get(self.place(seq)),
            false => None,
        }
    }

    /// Returns the value of a packet, to change it.
    #[inline(always)]
    pub fn get_mut(&mut self, seq: u32) -> Option<&mut T> {
        let place = self.place(seq);
        match self.holds(seq) {
            true => self.places.get_mut(place),
            false => None,
        }
    }

    /// Returns the value of the first packet.
    #[inline(always)]
    pub fn head(&self) -> Option<&T> {
        self.get(self.una)
    }

    /// Adds the value of the next packet.
    #[inline(always)]
    pub fn push(&mut self, value: T) {
        if self.len() as usize == self.places.len() {
            self.grow(value);
        }
        let place = self.place(self.next);
        self.places[place] = value;
        self.next += 1;
    }

    /// Removes the packets below `una`.
    #[inline(always)]
    pub fn advance(&mut self, una: u32) {
        self.una = una;
        self.next = self.next.max(una);
    }

    /// Calls `change` on each value.
    pub fn for_each(&mut self, mut change: impl FnMut(&mut T)) {
        for seq in self.una..self.next {
            if let Some(value) = self.get_mut(seq) {
                change(value);
            }
        }
    }

    /// Doubles the number of slots; free ones contain `filler`.
    #[cold]
    #[inline(never)]
    fn grow(&mut self, filler: T) {
        let places = (2 * self.places.len()).max(4);
        let mut grown = vec![filler; places];
        for seq in self.una..self.next {
            if let Some(value) = self.get(seq) {
                grown[seq as usize & (places - 1)] = *value;
            }
        }
        self.places = grown;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_keep_their_values_while_the_ring_grows_and_turns() {
        let mut ring = SequenceRing::default();
        assert_eq!((ring.len(), ring.head()), (0, None));
        ring.advance(7);
        for seq in 7..2000u32 {
            ring.push(3 * seq);
            // Two of three packets are acknowledged, so that the number under way grows.
            if seq % 3 != 0 {
                ring.advance(ring.una() + 1);
            }
            assert_eq!(ring.next(), seq + 1);
            assert_eq!(ring.get(ring.una().wrapping_sub(1)), None);
            assert_eq!(ring.get(ring.next()), None);
            for inside in [ring.una(), (ring.una() + seq) / 2, seq] {
                let want = (ring.len() > 0 && inside >= ring.una()).then_some(3 * inside);
                assert_eq!(ring.get(inside).copied(), want);
            }
        }
        ring.for_each(|value| *value += 1);
        assert_eq!(ring.head().copied(), Some(3 * ring.una() + 1));
        ring.advance(5000);
        assert_eq!((ring.len(), ring.next(), ring.head()), (0, 5000, None));
    }
}
