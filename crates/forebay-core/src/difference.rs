//! The one difference equation behind P, PI, PD, PID and PI-PD.

use crate::law::{Scale, Target};
use crate::linear::Sampled;
use crate::periodic::{Controller, Sample};
use crate::units::{SetPoint, Span};

/// Δp = a·e_k − b·e_{k−1} + c·e_{k−2} (pi-pd eq. 6).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Coefficients {
    pub a: f64,
    pub b: f64,
    pub c: f64,
}

impl Coefficients {
    /// A continuous PID controller, digitised with Tustin's rule for the integral and the
    /// backward difference for the derivative (pi-pd eq. 6). P, PI and PD have gains at zero.
    ///
    /// `k_i` in 1/s, `k_d` in s, relative to the unit of the error; `interval_s` > 0.
    pub fn pid(k_p: f64, k_i: f64, k_d: f64, interval_s: f64) -> Coefficients {
        let (integral, derivative) = (k_i * interval_s / 2.0, k_d / interval_s);
        Coefficients {
            a: k_p + derivative + integral,
            b: k_p + 2.0 * derivative - integral,
            c: derivative,
        }
    }

    /// As a transfer function from error to probability, (a − b·z⁻¹ + c·z⁻²)/(1 − z⁻¹), with its
    /// numerator times `scale`.
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

    /// e_{k−1}.
    pub fn error_1(&self) -> f64 {
        self.error_1
    }

    /// e_{k−2}.
    pub fn error_2(&self) -> f64 {
        self.error_2
    }
}

/// Controls the queue by the difference equation: PI and PID differ in its coefficients. A tuner
/// over it sets `gains`.
pub struct QueueControl {
    pub gains: Coefficients,
    target: Target,
    interval: Span,
    scale: Scale,
    state: Difference,
}

impl QueueControl {
    pub fn new(gains: Coefficients, target: Target, interval: Span, scale: Scale) -> QueueControl {
        QueueControl {
            gains,
            target,
            interval,
            scale,
            state: Difference::default(),
        }
    }
}

impl Controller for QueueControl {
    fn interval(&self) -> Span {
        self.interval
    }

    fn sample(&mut self, s: &Sample) -> f64 {
        let error = self.scale.queue_pkts(s.q) - self.target.pkts(s.q);
        self.state.step(self.gains, error)
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
