//! The past of a class: its rate and the probability of a signal, as far back as a sender may look.

/// One integration step. The rate is a cubic through values and slopes at both ends (Hermite),
/// the probability a line.
#[derive(Clone, Copy)]
pub struct Segment {
    pub start_s: f64,
    pub end_s: f64,
    /// Rate of one flow, packets/s, at both ends.
    pub rate: [f64; 2],
    pub slope: [f64; 2],
    pub probability: [f64; 2],
}

impl Segment {
    /// At `s`, the part of the step that has passed.
    fn rate_at(&self, s: f64) -> f64 {
        let r = 1.0 - s;
        let values =
            r * r * (1.0 + 2.0 * s) * self.rate[0] + s * s * (3.0 - 2.0 * s) * self.rate[1];
        let slopes = r * self.slope[0] - s * self.slope[1];
        values + (self.end_s - self.start_s) * s * r * slopes
    }

    fn probability_at(&self, s: f64) -> f64 {
        self.probability[0] + s.clamp(0.0, 1.0) * (self.probability[1] - self.probability[0])
    }

    fn part(&self, time_s: f64) -> f64 {
        (time_s - self.start_s) / (self.end_s - self.start_s)
    }
}

/// Segments to make room for at first.
const SOME: usize = 1024;

/// Segments in order of time, without gaps.
pub struct History {
    segments: Vec<Segment>,
    /// Nobody looks further back than this.
    reach_s: f64,
    /// Place of the last look: looks move forward, unless a round trip grows faster than time
    /// passes.
    cursor: usize,
}

impl History {
    pub fn new(reach_s: f64) -> History {
        History {
            segments: Vec::with_capacity(SOME),
            reach_s,
            cursor: 0,
        }
    }

    pub fn push(&mut self, segment: Segment) {
        if self.segments.len() == self.segments.capacity() {
            // Room is made by forgetting first, so that all of it stays in the cache.
            let old = segment.start_s - self.reach_s;
            let forgotten = self.segments.partition_point(|known| known.end_s < old);
            if forgotten > SOME / 2 {
                self.segments.drain(..forgotten);
                self.cursor = self.cursor.saturating_sub(forgotten);
            }
        }
        self.segments.push(segment);
    }

    fn seek(&mut self, time_s: f64) -> Option<&Segment> {
        let last = self.segments.len().checked_sub(1)?;
        let mut at = self.cursor;
        while at > 0 && time_s < self.segments[at].start_s {
            at -= 1;
        }
        while at < last && time_s >= self.segments[at].end_s {
            at += 1;
        }
        self.cursor = at;
        Some(&self.segments[at])
    }

    /// What one flow sent at `time_s`, in packets/s, and the probability at
    /// `probability_time_s`.
    pub fn sent(&mut self, time_s: f64, probability_time_s: f64) -> (f64, f64) {
        let Some(segment) = self.seek(time_s) else {
            return (0.0, 0.0);
        };
        if time_s < segment.start_s {
            return (0.0, 0.0);
        }
        let part = segment.part(time_s);
        let rate = segment.rate_at(part);
        if probability_time_s == time_s {
            return (rate, segment.probability_at(part));
        }
        let probability = self.seek(probability_time_s).map_or(0.0, |segment| {
            segment.probability_at(segment.part(probability_time_s))
        });
        (rate, probability)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cubic_is_interpolated_exactly() {
        let (f, slope) = (
            |t: f64| t.powi(3) - 2.0 * t + 5.0,
            |t: f64| 3.0 * t * t - 2.0,
        );
        let mut history = History::new(3.0);
        for k in 0..10 {
            let (a, b) = (0.3 * f64::from(k), 0.3 * f64::from(k + 1));
            history.push(Segment {
                start_s: a,
                end_s: b,
                rate: [f(a), f(b)],
                slope: [slope(a), slope(b)],
                probability: [1.0 + a, 1.0 + b],
            });
        }
        // Forward, and back.
        for t in [0.0, 0.1, 1.23, 2.9, 0.4, 2.0] {
            let (rate, probability) = history.sent(t, t);
            assert!((rate - f(t)).abs() < 1e-9, "{t}");
            assert!((probability - (1.0 + t)).abs() < 1e-9, "{t}");
        }
        assert_eq!(history.sent(-0.1, -0.1), (0.0, 0.0));
    }
}
