//! Counts of delays in the bins of a histogram. A count takes a third of the instructions that the
//! histogram needs to record a delay.

use hdrhistogram::Histogram;

/// Binary logarithm of the width in ns of the narrowest bins of [`delays`].
const UNIT_BITS: u32 = 9;
/// Binary logarithm of the number of the narrowest bins. Behind them there are half as many for
/// each doubling of the delay.
const NARROW_BITS: u32 = 11;
/// Binary logarithm of the delay in ns, about 1100 s, from which on delays are not counted here.
const MOST_BITS: u32 = 40;
/// Number of bins below that delay.
const BINS: usize = ((MOST_BITS - UNIT_BITS - NARROW_BITS + 2) as usize) << (NARROW_BITS - 1);

/// Returns an empty histogram from 1 us to 1000 s with three digits; longer delays count as 1000 s.
pub(crate) fn delays() -> Histogram<u64> {
    Histogram::new_with_bounds(1_000, 1_000_000_000_000, 3)
        .expect("the bounds are constant and valid")
}

/// The number of delays in each bin of [`delays`].
pub struct DelayCounts {
    bins: Vec<u64>,
    /// The few delays that no bin holds.
    longer: Histogram<u64>,
}

impl DelayCounts {
    /// Returns counts of no delays.
    pub fn new() -> DelayCounts {
        DelayCounts {
            bins: vec![0; BINS],
            longer: delays(),
        }
    }

    /// Counts a delay.
    #[inline(always)]
    pub fn count(&mut self, delay_ns: u64) {
        match self.bins.get_mut(bin(delay_ns)) {
            Some(bin) => *bin += 1,
            None => self.count_long(delay_ns),
        }
    }

    #[cold]
    #[inline(never)]
    fn count_long(&mut self, delay_ns: u64) {
        self.longer.saturating_record(delay_ns);
    }

    /// Returns the histogram of all delays.
    pub fn histogram(self) -> Histogram<u64> {
        let mut all = self.longer;
        for (bin, &count) in self.bins.iter().enumerate().filter(|(_, &count)| count > 0) {
            all.saturating_record_n(shortest(bin), count);
        }
        all
    }
}

/// Returns the number of a delay's bin.
#[inline(always)]
fn bin(delay_ns: u64) -> usize {
    let units = delay_ns >> UNIT_BITS;
    let narrow = (1 << NARROW_BITS) - 1;
    let doublings = u64::BITS - NARROW_BITS - (units | narrow).leading_zeros();
    let bin = (u64::from(doublings) << (NARROW_BITS - 1)) + (units >> doublings);
    usize::try_from(bin).unwrap_or(usize::MAX)
}

/// Returns the shortest delay in ns of a bin.
fn shortest(bin: usize) -> u64 {
    let half = 1 << (NARROW_BITS - 1);
    let doublings = (bin / half).saturating_sub(1);
    ((bin - doublings * half) as u64) << doublings << UNIT_BITS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_histogram_is_that_of_the_single_delays() {
        let (mut counts, mut expected) = (DelayCounts::new(), delays());
        let mut delay_ns = 0u64;
        for step in 0..20_000 {
            counts.count(delay_ns);
            expected.saturating_record(delay_ns);
            // From zero past the longest delay that has a bin.
            delay_ns += delay_ns / 1000 + step % 700;
        }
        assert!(delay_ns > 1 << MOST_BITS);
        let actual = counts.histogram();
        assert_eq!(actual, expected);
        assert_eq!(
            (actual.min(), actual.max()),
            (expected.min(), expected.max())
        );
        let bins = |histogram: &Histogram<u64>| {
            let bins = histogram.iter_recorded();
            bins.map(|bin| (bin.value_iterated_to(), bin.count_at_value()))
                .collect::<Vec<_>>()
        };
        assert_eq!(bins(&actual), bins(&expected));
    }
}
