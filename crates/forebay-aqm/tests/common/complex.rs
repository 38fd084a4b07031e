//! Complex numbers, and the building blocks of sampled transfer functions.

use std::ops::{Add, Div, Mul, Sub};

/// A complex number: its real and its imaginary part.
#[derive(Clone, Copy, Debug)]
pub struct Complex(pub f64, pub f64);

/// The imaginary unit.
pub const J: Complex = Complex(0.0, 1.0);

impl Complex {
    /// Returns the absolute value.
    pub fn size(self) -> f64 {
        self.0.hypot(self.1)
    }

    /// Returns e to the power of this number.
    pub fn exp(self) -> Complex {
        Complex(self.0.exp() * self.1.cos(), self.0.exp() * self.1.sin())
    }
}

impl From<f64> for Complex {
    fn from(re: f64) -> Complex {
        Complex(re, 0.0)
    }
}

impl<T: Into<Complex>> Add<T> for Complex {
    type Output = Complex;
    fn add(self, other: T) -> Complex {
        let other = other.into();
        Complex(self.0 + other.0, self.1 + other.1)
    }
}

impl<T: Into<Complex>> Sub<T> for Complex {
    type Output = Complex;
    fn sub(self, other: T) -> Complex {
        let other = other.into();
        Complex(self.0 - other.0, self.1 - other.1)
    }
}

impl<T: Into<Complex>> Mul<T> for Complex {
    type Output = Complex;
    fn mul(self, other: T) -> Complex {
        let other = other.into();
        Complex(
            self.0 * other.0 - self.1 * other.1,
            self.0 * other.1 + self.1 * other.0,
        )
    }
}

impl<T: Into<Complex>> Div<T> for Complex {
    type Output = Complex;
    fn div(self, other: T) -> Complex {
        let other = other.into();
        let square = other.0 * other.0 + other.1 * other.1;
        self * Complex(other.0 / square, -other.1 / square)
    }
}

/// Returns z⁻¹ = e^{−jωT} for samples at this interval.
pub fn delayed(omega: f64, interval_s: f64) -> Complex {
    (J * (-omega * interval_s)).exp()
}

/// Returns the zero-order hold (1 − e^{−jωT})/(jωT), relative to a sampler.
pub fn hold(omega: f64, interval_s: f64) -> Complex {
    (Complex(1.0, 0.0) - delayed(omega, interval_s)) / (J * (omega * interval_s))
}

/// Returns the average w/(1 − (1 − w)z⁻¹), updated at this interval.
pub fn average(omega: f64, weight: f64, interval_s: f64) -> Complex {
    Complex(weight, 0.0) / (Complex(1.0, 0.0) - delayed(omega, interval_s) * (1.0 - weight))
}

/// Returns a held PID controller: K_P + K_I·(T/2)(1 + z⁻¹)/(1 − z⁻¹) + K_D·(1 − z⁻¹)/T.
pub fn pid(omega: f64, gains: [f64; 3], interval_s: f64) -> Complex {
    let z_1 = delayed(omega, interval_s);
    let one = Complex(1.0, 0.0);
    let integral = (one + z_1) / (one - z_1) * (0.5 * interval_s);
    let derivative = (one - z_1) / interval_s;
    let [k_p, k_i, k_d] = gains;
    (integral * k_i + derivative * k_d + k_p) * hold(omega, interval_s)
}
