//! Recent queuing delays, for watchers.

use forebay_units::Span;
use hdrhistogram::Histogram;

/// A histogram of the queuing delays since they were last taken.
pub struct RecentDelays(Histogram<u64>);

impl Default for RecentDelays {
    /// Returns an empty histogram, from 1 µs to 100 s with two significant digits.
    fn default() -> RecentDelays {
        let histogram = Histogram::new_with_bounds(1_000, 100_000_000_000, 2);
        RecentDelays(histogram.expect("the bounds are constant and valid"))
    }
}

impl RecentDelays {
    /// Adds the delay of a packet.
    pub fn record(&mut self, delay: Span) {
        self.0.saturating_record(delay.as_nanos());
    }

    /// Returns the 50th, 95th and 99th percentile since the last call, in s; `None` without
    /// packets.
    pub fn take_s(&mut self) -> Option<[f64; 3]> {
        if self.0.is_empty() {
            return None;
        }
        let delays =
            [0.5, 0.95, 0.99].map(|quantile| self.0.value_at_quantile(quantile) as f64 / 1e9);
        self.0.reset();
        Some(delays)
    }
}
