//! Queuing delays of the last moment, for those who watch.

use forebay_units::Span;
use hdrhistogram::Histogram;

pub struct RecentDelays(Histogram<u64>);

impl Default for RecentDelays {
    /// From 1 us to 100 s at two digits.
    fn default() -> RecentDelays {
        let histogram = Histogram::new_with_bounds(1_000, 100_000_000_000, 2);
        RecentDelays(histogram.expect("the bounds are constant and valid"))
    }
}

impl RecentDelays {
    pub fn record(&mut self, delay: Span) {
        self.0.saturating_record(delay.as_nanos());
    }

    /// Median, 95th and 99th percentile since the last call, in s; None without packets.
    pub fn take_s(&mut self) -> Option<[f64; 3]> {
        if self.0.is_empty() {
            return None;
        }
        let delays = [0.5, 0.95, 0.99].map(|it| self.0.value_at_quantile(it) as f64 / 1e9);
        self.0.reset();
        Some(delays)
    }
}
