//! The past of a class: its rate and the probability of a signal, as far back as a sender may look.

/// One integration step. The rate is a cubic through values and slopes at both ends (Hermite),
/// the probability a line.
#[derive(Clone, Copy)]
pub struct Segment {
    start_s: f64,
    end_s: f64,
    per_length: f64,
    /// Coefficients of the rate as a polynomial in the elapsed share of the step.
    rate: [f64; 4],
    probability: [f64; 2],
}

impl Segment {
    /// `rate` of one flow in packets/s, its `slope`, and `probability`, at both ends.
    pub fn new(
        span_s: [f64; 2],
        rate: [f64; 2],
        slope: [f64; 2],
        probability: [f64; 2],
    ) -> Segment {
        let [start_s, end_s] = span_s;
        let length = end_s - start_s;
        let (risen, a, b) = (rate[1] - rate[0], length * slope[0], length * slope[1]);
        Segment {
            start_s,
            end_s,
            per_length: 1.0 / length,
            rate: [rate[0], a, 3.0 * risen - 2.0 * a - b, a + b - 2.0 * risen],
            probability,
        }
    }

    fn rate_at(&self, time_s: f64) -> f64 {
        let s = self.part(time_s);
        let [a, b, c, d] = self.rate;
        a + s * (b + s * (c + s * d))
    }

    fn probability_at(&self, time_s: f64) -> f64 {
        let [first, last] = self.probability;
        first + self.part(time_s).clamp(0.0, 1.0) * (last - first)
    }

    fn part(&self, time_s: f64) -> f64 {
        (time_s - self.start_s) * self.per_length
    }
}

/// Probability over a span of time, as a line.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Line {
    pub first: f64,
    pub last: f64,
}

impl Line {
    /// Returns the value at the fraction `part` of the span.
    pub fn at(&self, part: f64) -> f64 {
        self.first + part * (self.last - self.first)
    }
}

/// Number of segments for which memory is reserved at first.
const SOME: usize = 1024;

/// Segments in order of time, without gaps.
pub struct History {
    segments: Vec<Segment>,
    /// Age in seconds beyond which no sender looks up a value.
    reach_s: f64,
    /// Segments of the last look-ups of rates and of probabilities: look-ups move forward, unless a
    /// round trip grows faster than time passes.
    rate_at: usize,
    line_at: usize,
}

fn seek(segments: &[Segment], from: usize, time_s: f64) -> usize {
    let mut at = from;
    while at > 0 && time_s < segments[at].start_s {
        at -= 1;
    }
    while at + 1 < segments.len() && time_s >= segments[at].end_s {
        at += 1;
    }
    at
}

impl History {
    /// Returns an empty history that keeps the last `reach_s` seconds.
    pub fn new(reach_s: f64) -> History {
        History {
            segments: Vec::with_capacity(SOME),
            reach_s,
            rate_at: 0,
            line_at: 0,
        }
    }

    /// Appends a segment.
    pub fn push(&mut self, segment: Segment) {
        if self.segments.len() == self.segments.capacity() {
            // Old segments are dropped before more memory is taken, so that all segments stay in
            // the cache.
            let old = segment.start_s - self.reach_s;
            let forgotten = self.segments.partition_point(|known| known.end_s < old);
            if forgotten > SOME / 2 {
                self.segments.drain(..forgotten);
                self.rate_at = self.rate_at.saturating_sub(forgotten);
                self.line_at = self.line_at.saturating_sub(forgotten);
            }
        }
        self.segments.push(segment);
    }

    /// Returns the rate of one flow at `time_s` in packets/s; zero before the first segment.
    #[inline]
    pub fn rate(&mut self, time_s: f64) -> f64 {
        if self.segments.is_empty() {
            return 0.0;
        }
        self.rate_at = seek(&self.segments, self.rate_at, time_s);
        let segment = &self.segments[self.rate_at];
        if time_s < segment.start_s {
            return 0.0;
        }
        segment.rate_at(time_s)
    }

    /// Returns the straight line over time whose mean and first moment between two times are those
    /// of the probability. A jump between the times is smoothed, but its size and its mean time are
    /// kept. If `to_s` is before `from_s`, the line connects the values at both times.
    pub fn line(&mut self, from_s: f64, to_s: f64) -> Line {
        let Some(start) = self.segments.first() else {
            return Line::default();
        };
        if to_s <= start.start_s {
            return Line::default();
        }
        self.line_at = seek(&self.segments, self.line_at, from_s);
        let first = &self.segments[self.line_at];
        if from_s.min(to_s) >= first.start_s && to_s <= first.end_s {
            return Line {
                first: first.probability_at(from_s),
                last: first.probability_at(to_s),
            };
        }
        if to_s <= from_s {
            let before = seek(&self.segments, self.line_at, to_s);
            return Line {
                first: first.probability_at(from_s),
                last: self.segments[before].probability_at(to_s),
            };
        }
        let per_length = 1.0 / (to_s - from_s);
        // ∫p du and ∫p·(2u − 1) du over u from 0 to 1, the second by Simpson's rule, which is exact
        // for a product of lines.
        let (mut mean, mut moment) = (0.0, 0.0);
        let last = self.segments.len() - 1;
        for (k, segment) in self.segments.iter().enumerate().skip(self.line_at) {
            let low_s = segment.start_s.max(from_s);
            let high_s = if k == last {
                to_s
            } else {
                segment.end_s.min(to_s)
            };
            let (p, q) = (
                segment.probability_at(low_s),
                segment.probability_at(high_s),
            );
            let share = (high_s - low_s) * per_length;
            let a = 2.0 * (low_s - from_s) * per_length - 1.0;
            let b = a + 2.0 * share;
            mean += share * 0.5 * (p + q);
            moment += share / 6.0 * (p * a + (p + q) * (a + b) + q * b);
            if segment.end_s >= to_s {
                break;
            }
        }
        // The line is limited to the range of a probability.
        let most = mean.min(1.0 - mean).max(0.0);
        let half = (3.0 * moment).clamp(-most, most);
        Line {
            first: mean - half,
            last: mean + half,
        }
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
            let probability = [0.1 + 0.1 * a, 0.1 + 0.1 * b];
            history.push(Segment::new(
                [a, b],
                [f(a), f(b)],
                [slope(a), slope(b)],
                probability,
            ));
        }
        // Forward, and back.
        for t in [0.0, 0.1, 1.23, 2.9, 0.4, 2.0] {
            assert!((history.rate(t) - f(t)).abs() < 1e-9, "{t}");
        }
        // A line through several segments is itself.
        for (from, to) in [(0.0, 3.0), (0.1, 1.0), (1.7, 1.75), (0.3, 0.2)] {
            let line = history.line(from, to);
            assert!((line.first - (0.1 + 0.1 * from)).abs() < 1e-12, "{line:?}");
            assert!((line.last - (0.1 + 0.1 * to)).abs() < 1e-12, "{line:?}");
        }
        assert_eq!(history.rate(-0.1), 0.0);
        assert_eq!(history.line(-0.2, -0.1), Line::default());
    }

    #[test]
    fn a_line_has_the_mean_and_the_first_moment_of_a_jump() {
        let mut history = History::new(10.0);
        for (k, p) in [0.2, 0.5, 0.5, 0.3].into_iter().enumerate() {
            let at = k as f64;
            history.push(Segment::new([at, at + 1.0], [1.0; 2], [0.0; 2], [p; 2]));
        }
        for (from, to) in [(0.4, 1.7), (0.5, 3.9), (0.9, 2.0)] {
            let line = history.line(from, to);
            let fine = 100_000;
            let (mut mean, mut moment) = (0.0, 0.0);
            for k in 0..fine {
                let u = (f64::from(k) + 0.5) / f64::from(fine);
                let at = seek(&history.segments, 0, from + u * (to - from));
                let off = history.segments[at].probability[0] - line.at(u);
                mean += off / f64::from(fine);
                moment += off * (2.0 * u - 1.0) / f64::from(fine);
            }
            assert!(mean.abs() < 1e-5 && moment.abs() < 1e-5, "{mean} {moment}");
        }
    }
}
