//! The length of integration steps.

use forebay_units::Span;

/// The length of integration steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Steps as long as the tolerated error allows, divided by a number.
    Auto {
        /// The divisor.
        divided_by: u32,
    },
    /// Steps of at most this length, regardless of the error.
    Longest(Span),
}

impl Step {
    /// Steps as long as the tolerated error allows.
    pub const AUTO: Step = Step::Auto { divided_by: 1 };

    /// Reads "auto", or a time.
    ///
    /// # Errors
    /// If `text` is neither, with what is expected.
    pub fn parse(text: &str) -> Result<Step, String> {
        if text == "auto" {
            return Ok(Step::AUTO);
        }
        match Span::parse(text) {
            Ok(span) => Ok(Step::Longest(span)),
            Err(expected) => Err(format!("\"auto\", or {expected}")),
        }
    }

    /// Returns steps that are shorter by the factor `by`.
    #[must_use]
    pub fn divided(self, by: u32) -> Step {
        match self {
            Step::Auto { divided_by } => Step::Auto {
                divided_by: divided_by * by,
            },
            Step::Longest(span) => Step::Longest(Span::from_nanos(span.as_nanos() / u64::from(by))),
        }
    }
}

/// Error that a step may have, relative to the size of the change in it.
const TOLERANCE: f64 = 1e-5;
/// Longest step, relative to the shortest round trip: within a step the past is interpolated.
const MOST_RTTS: f64 = 0.25;
/// Shortest step after a rejected one, relative to the shortest round trip.
const LEAST_RTTS: f64 = 1e-4;

/// Largest ratio of the lengths of two successive steps.
const MOST_TIMES: f64 = 4.0;

/// Chooses the length of the next step from the error of the last.
pub struct Pace {
    step: Step,
    /// The error is of order four in the step.
    tolerance: f64,
    divided_by: f64,
    wanted_s: f64,
}

impl Pace {
    /// Returns the pace of steps of this kind.
    pub fn new(step: Step) -> Pace {
        let divided_by = match step {
            Step::Auto { divided_by } => f64::from(divided_by),
            Step::Longest(_) => 1.0,
        };
        Pace {
            step,
            tolerance: TOLERANCE / divided_by.powi(4),
            divided_by,
            wanted_s: 0.0,
        }
    }

    /// Returns the next step, with round trips of at least `rtt_s` now.
    pub fn step_s(&mut self, rtt_s: f64) -> f64 {
        match self.step {
            Step::Longest(span) => span.as_secs_f64(),
            Step::Auto { .. } => {
                let most = MOST_RTTS * rtt_s / self.divided_by;
                if self.wanted_s == 0.0 {
                    self.wanted_s = 0.1 * most;
                }
                self.wanted_s = self.wanted_s.min(most);
                self.wanted_s
            }
        }
    }

    /// Returns true if a step of `step_s` with this error is accepted, and chooses the next step.
    pub fn accepts(&mut self, step_s: f64, error: f64, rtt_s: f64) -> bool {
        if matches!(self.step, Step::Longest(_)) {
            return true;
        }
        let share = error / self.tolerance;
        // A step that ended early for another reason says little about longer steps.
        if share <= 1.0 && step_s * MOST_TIMES <= self.wanted_s {
            return true;
        }
        let good = share <= 1.0 || step_s <= LEAST_RTTS * rtt_s / self.divided_by;
        // A NaN is never refused.
        if share > 1.0 {
            self.wanted_s = step_s * (0.9 * share.powf(-0.25)).max(0.2);
        } else {
            // A fourth root without a power: steps are many.
            let least = (0.9 / MOST_TIMES).powi(4);
            let factor = 0.9 / share.max(least).sqrt().sqrt();
            if factor >= 1.0 {
                self.wanted_s = self.wanted_s.max(step_s * factor);
            } else if step_s >= self.wanted_s {
                self.wanted_s = step_s * factor;
            }
        }
        good
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_read() {
        assert_eq!(Step::parse("auto"), Ok(Step::AUTO));
        assert_eq!(Step::parse("2ms"), Ok(Step::Longest(Span::from_millis(2))));
        assert!(Step::parse("soon").unwrap_err().starts_with("\"auto\", or"));
        assert_eq!(
            Step::Longest(Span::from_millis(2)).divided(2),
            Step::Longest(Span::from_millis(1))
        );
    }

    #[test]
    fn a_pace_follows_an_error_of_order_four() {
        // An error of (h/h₀)⁴·tolerance: the step settles just below h₀.
        let mut pace = Pace::new(Step::AUTO);
        let best = 0.01;
        for _ in 0..20 {
            let h = pace.step_s(1.0);
            pace.accepts(h, TOLERANCE * (h / best).powi(4), 1.0);
        }
        let h = pace.step_s(1.0);
        assert!((0.85..0.95).contains(&(h / best)), "{h}");
        assert!(!pace.accepts(2.0 * best, TOLERANCE * 16.0, 1.0));
        assert!(pace.step_s(1.0) < best);
    }
}
