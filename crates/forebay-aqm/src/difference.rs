//! The difference equation that P, PI, PD, PID and PI-PD share.

use forebay_linux_tc::fixed_point::{self, Twin};
use forebay_theory::linear::Sampled;
use forebay_units::{ParamError, SetPoint, Site, Span};

use crate::clock::{state_of, Errors, State};
use crate::law::{Scale, Target};
use crate::periodic::{Controller, Sample};

/// Δp = a·e_k − b·e_{k−1} + c·e_{k−2} (pi-pd eq. 6).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Coefficients {
    /// Gain on the error of this sample.
    pub a: f64,
    /// Gain on the error of the last sample, with a minus sign in front.
    pub b: f64,
    /// Gain on the error of the last sample but one.
    pub c: f64,
}

impl Coefficients {
    /// Digitises a continuous PID controller, with Tustin's rule for the integral and the backward
    /// difference for the derivative (pi-pd eq. 6). P, PI and PD set gains to zero.
    ///
    /// `k_p`, `k_i` and `k_d` are per unit of the error; `k_i` also per second, `k_d` times seconds.
    /// `interval_s` is above zero.
    pub fn pid(k_p: f64, k_i: f64, k_d: f64, interval_s: f64) -> Coefficients {
        let (integral, derivative) = (k_i * interval_s / 2.0, k_d / interval_s);
        Coefficients {
            a: k_p + derivative + integral,
            b: k_p + 2.0 * derivative - integral,
            c: derivative,
        }
    }

    /// Returns the transfer function from error to probability, (a − b·z⁻¹ + c·z⁻²)/(1 − z⁻¹), with
    /// its numerator multiplied by `scale`.
    pub fn sampled(self, interval_s: f64, scale: f64) -> Sampled {
        let Coefficients { a, b, c } = self;
        // Without an integral the numerator has a zero on the pole at z = 1, up to rounding.
        let integral = a - b + c;
        let (numerator, denominator) = if integral.abs() <= 1e-12 * (a.abs() + b.abs() + c.abs()) {
            (vec![a, a - b], vec![1.0])
        } else {
            (vec![a, -b, c], vec![1.0, -1.0])
        };
        Sampled {
            interval_s,
            numerator: numerator.into_iter().map(|n| scale * n).collect(),
            denominator,
        }
    }
}

impl Coefficients {
    /// Returns the fixed-point twin of a law that samples the queue at its clock and applies this
    /// difference equation.
    ///
    /// # Errors
    /// If a gain or the target saturates in fixed point.
    pub fn twin(self, target_pkts: f64, interval: Span, site: &Site) -> Result<Twin, ParamError> {
        let Coefficients { a, b, c } = self;
        let config = vec![
            ("target", fixed_point::length("target", target_pkts, site)?),
            ("a", fixed_point::difference_gain("a", a, site)?),
            ("b", fixed_point::difference_gain("b", b, site)?),
            ("c", fixed_point::difference_gain("c", c, site)?),
        ];
        Ok(Twin {
            interval: Some(interval),
            config,
            state: Vec::new(),
        })
    }
}

/// A probability that moves by the difference equation and stays in [0, 1].
#[derive(Clone, Debug, Default)]
pub struct Difference {
    probability: f64,
    error_1: f64,
    error_2: f64,
}

impl Difference {
    /// Starts from this value instead of zero.
    pub fn starting_at(probability: f64) -> Difference {
        Difference {
            probability,
            ..Difference::default()
        }
    }

    /// Takes the error of this sample and returns the new probability.
    ///
    /// The clamp is on the stored value, so the integral cannot wind up.
    pub fn step(&mut self, k: Coefficients, error: f64) -> f64 {
        let p = self.probability + k.a * error - k.b * self.error_1 + k.c * self.error_2;
        self.probability = if p.is_nan() { 0.0 } else { p.clamp(0.0, 1.0) };
        self.error_2 = self.error_1;
        self.error_1 = error;
        self.probability
    }

    /// Processes the errors of `count` samples at once. The result is that of [`step`](Self::step)
    /// with each of them, up to rounding. The change of the probability may change its sign once, as
    /// it does for errors of the form of [`Errors`].
    pub fn advance(&mut self, k: Coefficients, errors: &Errors, count: u64) {
        if count == 0 {
            return;
        }
        // Any realistic number of ticks is below 2^53, so the conversion is exact.
        let n = count as f64;
        let error = |i: f64| match i {
            _ if i >= 0.0 => errors.at(i),
            _ if i >= -1.0 => self.error_1,
            _ => self.error_2,
        };
        let change = |i: f64| k.a * error(i) - k.b * error(i - 1.0) + k.c * error(i - 2.0);
        // Σ e_{i−1} and Σ e_{i−2} differ from Σ e_i only in the terms at both ends.
        let total = |n: f64| {
            let sum = errors.sum(n);
            let sum_1 = sum - error(n - 1.0) + self.error_1;
            let sum_2 = sum_1 - error(n - 2.0) + self.error_2;
            k.a * sum - k.b * sum_1 + k.c * sum_2
        };
        // Changes of the same sign may be added up before the sum is clamped to [0, 1].
        let turn = match change(2.0) * change(n - 1.0) < 0.0 {
            true => sign_change(change, 2.0, n - 1.0),
            false => n,
        };
        let clamped = |p: f64| if p.is_nan() { 0.0 } else { p.clamp(0.0, 1.0) };
        let mut probability = clamped(self.probability + total(turn));
        if turn < n {
            probability = clamped(probability + total(n) - total(turn));
        }
        (self.error_2, self.error_1) = (error(n - 2.0), error(n - 1.0));
        self.probability = probability;
    }

    /// Returns every variable that a sample changes: p, e_{k−1} and e_{k−2}.
    pub fn state(&self) -> [f64; 3] {
        [self.probability, self.error_1, self.error_2]
    }

    /// Returns e_{k−1}.
    pub fn error_1(&self) -> f64 {
        self.error_1
    }

    /// Returns e_{k−2}.
    pub fn error_2(&self) -> f64 {
        self.error_2
    }
}

/// Returns the first whole number above `low` at which `value` has changed its sign, which it does
/// once between `low` and `high`.
fn sign_change(value: impl Fn(f64) -> f64, mut low: f64, mut high: f64) -> f64 {
    let rises = value(low) < 0.0;
    while high - low > 1.0 {
        let middle = (0.5 * (low + high)).floor();
        if (value(middle) < 0.0) == rises {
            low = middle;
        } else {
            high = middle;
        }
    }
    high
}

/// A controller of the queue by the difference equation. PI and PID differ in the coefficients only;
/// a tuner may change `gains` while the law runs.
pub struct QueueControl {
    /// The coefficients in use.
    pub gains: Coefficients,
    target: Target,
    interval: Span,
    scale: Scale,
    state: Difference,
}

impl QueueControl {
    /// Creates a controller whose probability and errors are zero.
    pub fn new(gains: Coefficients, target: Target, interval: Span, scale: Scale) -> QueueControl {
        QueueControl {
            gains,
            target,
            interval,
            scale,
            state: Difference::default(),
        }
    }

    /// Returns the distance of the queue from the target, in packets.
    fn error(&self, s: &Sample) -> f64 {
        self.scale.queue_pkts(s.q) - self.target.pkts(s.q)
    }
}

impl Controller for QueueControl {
    fn interval(&self) -> Span {
        self.interval
    }

    fn sample(&mut self, s: &Sample) -> f64 {
        let error = self.error(s);
        self.state.step(self.gains, error)
    }

    fn state(&self) -> Option<State> {
        let [p, e_1, e_2] = self.state.state();
        let Coefficients { a, b, c } = self.gains;
        Some(state_of(&[p, e_1, e_2, a, b, c]))
    }

    fn skip(&mut self, first: &Sample, samples: u64) {
        let errors = Errors::constant(self.error(first));
        self.state.advance(self.gains, &errors, samples);
    }

    fn set_point(&mut self, set_point: SetPoint) -> bool {
        self.target.move_to(set_point)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_in_error_gives_the_pid_response() {
        // K_P = 2, K_I = 4, K_D = 0.5, T = 0.1: a = 2 + 5 + 0.2, b = 2 + 10 − 0.2, c = 5.
        let k = Coefficients::pid(2.0, 4.0, 0.5, 0.1);
        assert!(
            (k.a - 7.2).abs() < 1e-12 && (k.b - 11.8).abs() < 1e-12 && (k.c - 5.0).abs() < 1e-12
        );
        let mut d = Difference::default();
        let e = 0.01;
        // By hand: 0.072; 0.072 + 0.072 − 0.118 = 0.026; then a − b + c = 0.4 per unit error.
        for want in [0.072, 0.026, 0.030, 0.034] {
            assert!((d.step(k, e) - want).abs() < 1e-12);
        }
    }

    #[test]
    fn many_samples_at_once_lead_to_the_state_of_one_by_one() {
        let pid = Coefficients::pid(2e-3, 4e-3, 5e-4, 0.1);
        let pi = Coefficients {
            a: 0.05,
            b: 0.048,
            c: 0.0,
        };
        for errors in [
            Errors::constant(1e-3),
            Errors::constant(-1e-3),
            // The probability falls to its bound and rises again, and the reverse.
            Errors {
                base: -2.0,
                slope: 1e-3,
                ..Errors::default()
            },
            Errors {
                base: -0.01,
                decaying: 5.0,
                ratio: 0.997,
                ..Errors::default()
            },
            Errors {
                base: 0.01,
                decaying: -5.0,
                ratio: 0.997,
                ..Errors::default()
            },
        ] {
            for (k, start) in [(pid, 0.5), (pid, 0.0), (pi, 0.3), (pi, 1.0)] {
                let mut stepped = Difference::starting_at(start);
                for i in 0..20 {
                    stepped.step(k, errors.at(f64::from(i)));
                }
                for count in [1_u32, 2, 3, 50, 3000, 30_000] {
                    let mut at_once = stepped.clone();
                    let later = Errors {
                        base: errors.base + 20.0 * errors.slope,
                        decaying: errors.decaying * errors.ratio.powi(20),
                        ..errors
                    };
                    at_once.advance(k, &later, count.into());
                    let mut stepped = stepped.clone();
                    for i in 20..20 + count {
                        stepped.step(k, errors.at(f64::from(i)));
                    }
                    for (got, want) in at_once.state().into_iter().zip(stepped.state()) {
                        assert!(
                            (got - want).abs() < 1e-9,
                            "{errors:?} {k:?} {start} {count}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn the_clamp_does_not_wind_up() {
        let k = Coefficients {
            a: 0.2,
            b: 0.1,
            c: 0.0,
        };
        let mut d = Difference::default();
        for _ in 0..100 {
            d.step(k, 10.0);
        }
        assert_eq!(d.step(k, 10.0), 1.0);
        assert!(d.step(k, -10.0) < 1.0);
    }
}
