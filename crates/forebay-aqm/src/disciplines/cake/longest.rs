//! The search for the longest of CAKE's queues: a heap, as in Linux's `cake_drop`.

/// Length of a queue: bytes, and packets where packets have no bytes.
pub type Length = (u64, u32);

/// A binary heap of queues by length. Of equally long queues the one with the lowest number comes
/// first.
///
/// The heap learns of each queue that grows, and only the search for the longest one learns that
/// queues have become shorter: until then a queue keeps the place of its former length. So a queue
/// that never loses packets to others costs one comparison for each packet.
#[derive(Default)]
pub struct LongestQueue {
    /// Each queue with a length that it does not exceed. That of place i is at most that of
    /// place (i − 1) / 2.
    heap: Vec<(Length, usize)>,
    /// Place in the heap by number of the queue; [`ABSENT`] for those that never held a packet.
    places: Vec<usize>,
}

const ABSENT: usize = usize::MAX;

impl LongestQueue {
    /// Takes note that the queue with this number has grown to `length`.
    pub fn grow(&mut self, queue: usize, length: Length) {
        if queue >= self.places.len() {
            self.places.resize(queue + 1, ABSENT);
        }
        let place = match self.places[queue] {
            ABSENT => {
                self.heap.push((length, queue));
                self.heap.len() - 1
            }
            place if self.heap[place].0 >= length => return,
            place => {
                self.heap[place].0 = length;
                place
            }
        };
        self.rise(place);
    }

    /// Returns the number of the longest queue; `length` returns the length of a queue. `None` if
    /// all queues are empty.
    pub fn find(&mut self, length: impl Fn(usize) -> Length) -> Option<usize> {
        loop {
            let (noted, queue) = *self.heap.first()?;
            let now = length(queue);
            if now == noted {
                return (now > (0, 0)).then_some(queue);
            }
            self.heap[0].0 = now;
            self.sink(0);
        }
    }

    fn comes_before(&self, a: usize, b: usize) -> bool {
        let ((a_length, a), (b_length, b)) = (self.heap[a], self.heap[b]);
        a_length > b_length || a_length == b_length && a < b
    }

    fn rise(&mut self, mut place: usize) {
        while place > 0 && self.comes_before(place, (place - 1) / 2) {
            self.swap(place, (place - 1) / 2);
            place = (place - 1) / 2;
        }
        self.places[self.heap[place].1] = place;
    }

    fn sink(&mut self, mut place: usize) {
        loop {
            let below = [2 * place + 1, 2 * place + 2].into_iter();
            let first = below
                .filter(|child| *child < self.heap.len())
                .reduce(|a, b| if self.comes_before(b, a) { b } else { a });
            match first {
                Some(child) if self.comes_before(child, place) => {
                    self.swap(place, child);
                    place = child;
                }
                _ => return,
            }
        }
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.heap.swap(a, b);
        self.places[self.heap[a].1] = a;
        self.places[self.heap[b].1] = b;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_units::Rng;

    #[test]
    fn the_longest_queue_is_that_of_a_linear_search() {
        let mut rng = Rng::new(5, "longest");
        let mut longest = LongestQueue::default();
        let mut lengths = [(0_u64, 0_u32); 50];
        let mut draw = |below: f64| (rng.uniform() * below) as usize;
        for _ in 0..20_000 {
            let queue = draw(50.0);
            let length = &mut lengths[queue];
            if draw(3.0) == 0 {
                let lost = draw(4.0) as u32;
                length.1 = length.1.saturating_sub(lost);
            } else {
                length.1 += 1;
            }
            // Some packets have no bytes.
            length.0 = u64::from(length.1 / 3);
            longest.grow(queue, *length);
            let first = (0..50).rev().max_by_key(|queue| lengths[*queue]);
            let expected = first.filter(|queue| lengths[*queue] > (0, 0));
            assert_eq!(longest.find(|queue| lengths[queue]), expected);
        }
    }

    #[test]
    fn empty_queues_are_not_the_longest() {
        let mut longest = LongestQueue::default();
        assert_eq!(longest.find(|_| (0, 0)), None);
        longest.grow(3, (500, 1));
        assert_eq!(longest.find(|_| (500, 1)), Some(3));
        assert_eq!(longest.find(|_| (0, 0)), None);
    }
}
