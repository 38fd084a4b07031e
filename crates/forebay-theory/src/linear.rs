//! Operating points, and linear models of laws.

/// The point around which TCP and a queue are linearised: N flows with round-trip time R on a link
/// of capacity C.
#[derive(Clone, Copy, Debug)]
pub struct OperatingPoint {
    /// The load N/(RC): the number of flows per packet in flight. Unlike N, it can be measured
    /// without knowing R.
    pub load: f64,
    /// The capacity C, in packets per second.
    pub capacity_pkts_per_s: f64,
    /// The round-trip time R, including the queuing delay.
    pub rtt_s: f64,
}

impl OperatingPoint {
    /// Returns the point of N flows with round-trip time R on a link of capacity C.
    pub fn of_flows(flows: f64, rtt_s: f64, capacity_pkts_per_s: f64) -> OperatingPoint {
        OperatingPoint {
            load: flows / (rtt_s * capacity_pkts_per_s),
            capacity_pkts_per_s,
            rtt_s,
        }
    }

    /// Returns the number of flows N.
    pub fn flows(&self) -> f64 {
        self.load * self.rtt_s * self.capacity_pkts_per_s
    }

    /// Returns the equilibrium window W0 = RC/N, from q' = 0 in the fluid model (staqm section
    /// III.B).
    pub fn window_pkts(&self) -> f64 {
        1.0 / self.load
    }

    /// Returns the equilibrium probability p0 = 2/W0², from W' = 0 in the fluid model (staqm
    /// section III.B).
    pub fn probability(&self) -> f64 {
        2.0 * self.load.powi(2)
    }

    /// Returns the pole of TCP's window, 2N/(R²C), in rad/s (pi-pd eq. 1).
    pub fn tcp_pole(&self) -> f64 {
        2.0 * self.load / self.rtt_s
    }

    /// Returns the pole of the queue, 1/R, in rad/s (pi-pd eq. 1).
    pub fn queue_pole(&self) -> f64 {
        1.0 / self.rtt_s
    }

    /// Returns C²/(2N), the numerator of the plant over (s + tcp_pole)(s + queue_pole). The
    /// numerators of pi-pd eq. (1) are misprinted; its Example 1 has this one.
    pub fn plant_gain(&self) -> f64 {
        self.capacity_pkts_per_s.powi(2) / (2.0 * self.flows())
    }

    /// Returns K_P, per packet, of the PI controller whose zero cancels TCP's pole and whose
    /// crossover is at β/R: 2β√(β²+1)·θ_rc/(RC) with θ_rc = N/(RC) (staqm eq. 4).
    pub fn pi_gain(&self, beta: f64) -> f64 {
        2.0 * beta * beta.hypot(1.0) * self.load / (self.rtt_s * self.capacity_pkts_per_s)
    }

    /// Returns the steady-state gain of the plant, (RC)³/(2N)², in packets.
    pub fn gain_at_rest(&self) -> f64 {
        self.plant_gain() / (self.tcp_pole() * self.queue_pole())
    }
}

/// The linear model of a law at an operating point, from queue length in packets to signals per
/// arriving packet.
///
/// The queue passes the average, if there is one. The result acts directly with the gain `direct`,
/// and through `sampled`, whose output is held until the next sample.
#[derive(Clone, Debug, PartialEq)]
pub struct LoopFilter {
    /// The equilibrium queue, at which the law's probability is that of the operating point.
    pub queue_pkts: f64,
    /// The average of the queue.
    pub average: Option<Average>,
    /// The direct gain: probability per packet of the (averaged) queue.
    pub direct: f64,
    /// The sampled part.
    pub sampled: Option<Sampled>,
    /// True if the model holds only while the queue stays on one side of `queue_pkts`.
    pub one_sided: bool,
    /// The measurement delay: the age of the queue length on which the law acts. The delay of a
    /// departing packet, for example, is that of the queue when the packet arrived.
    pub age_s: f64,
}

/// An exponentially weighted average that is updated at every arrival.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Average {
    /// The weight of a new value.
    pub weight: f64,
    /// The mean time between two updates.
    pub interval_s: f64,
}

/// A transfer function in z with a zero-order hold.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampled {
    /// The sampling interval.
    pub interval_s: f64,
    /// The coefficients of z⁰, z⁻¹, … in the numerator, in probability per packet.
    pub numerator: Vec<f64>,
    /// The coefficients of z⁰, z⁻¹, … in the denominator.
    pub denominator: Vec<f64>,
}

impl Sampled {
    /// Returns the transfer function with an average of the same samples in front of it.
    pub fn averaged(self, weight: f64) -> Sampled {
        // The average is w/(1 − (1 − w)z⁻¹).
        let mut denominator = self.denominator.clone();
        denominator.push(0.0);
        for (i, d) in self.denominator.iter().enumerate() {
            denominator[i + 1] -= (1.0 - weight) * d;
        }
        Sampled {
            numerator: self.numerator.iter().map(|n| weight * n).collect(),
            denominator,
            ..self
        }
    }
}

impl Sampled {
    /// Returns true if there is a pole at z = 1 that no zero cancels, up to rounding.
    fn integrates(&self) -> bool {
        let at_one = |c: &[f64]| c.iter().sum::<f64>().abs();
        let size = |c: &[f64]| c.iter().map(|c| c.abs()).sum::<f64>();
        at_one(&self.denominator) <= 1e-12 * size(&self.denominator)
            && at_one(&self.numerator) > 1e-12 * size(&self.numerator)
    }

    /// Returns the proportional gain of a PID controller whose integral was digitised by Tustin's
    /// rule and whose derivative by the backward difference: N(1)/2 − N'(1), for a numerator N in
    /// z⁻¹ over 1 − z⁻¹. Without an integral it is the gain at z = 1.
    fn proportional(&self) -> f64 {
        let sum = self.numerator.iter().sum::<f64>();
        if !self.integrates() {
            return sum / self.denominator.iter().sum::<f64>();
        }
        let slope: f64 = (self.numerator.iter().zip(0u8..))
            .map(|(n, i)| f64::from(i) * n)
            .sum();
        0.5 * sum - slope
    }
}

impl LoopFilter {
    /// Returns the model of a law that consists of one sampled filter.
    pub fn sampled(queue_pkts: f64, sampled: Sampled) -> LoopFilter {
        LoopFilter {
            queue_pkts,
            average: None,
            direct: 0.0,
            sampled: Some(sampled),
            one_sided: false,
            age_s: 0.0,
        }
    }

    /// Returns the model of a law that consists of one sampled filter of the distance to
    /// `target_pkts`, where TCP needs `probability`; `None` if the filter has no gain.
    ///
    /// With integral action the equilibrium is at the target. Without it, p starts at zero and
    /// moves by a·Δe and so on. The first sample, of an empty queue, would make p negative and is
    /// clamped, which removes the contribution of the target: p = (n₀ + n₁)·q − n₁·target for a
    /// numerator n₀ + n₁z⁻¹. Without a derivative n₁ is zero, and the target has no effect.
    pub fn controlled(target_pkts: f64, sampled: Sampled, probability: f64) -> Option<LoopFilter> {
        let gain = sampled.proportional();
        let queue_pkts = if sampled.integrates() {
            target_pkts
        } else {
            let offset = sampled.numerator.get(1).map_or(0.0, |n| -n * target_pkts);
            (probability - offset) / gain
        };
        (queue_pkts.is_finite() && gain > 0.0).then(|| LoopFilter::sampled(queue_pkts, sampled))
    }

    /// Returns true if the law has integral action: its sampled part has a pole at z = 1 that no
    /// zero cancels.
    pub fn integrates(&self) -> bool {
        self.sampled.as_ref().is_some_and(Sampled::integrates)
    }

    /// Returns K_P: the immediate change of the probability after a step of one packet, without
    /// integral and derivative action.
    pub fn proportional(&self) -> f64 {
        self.direct + self.sampled.as_ref().map_or(0.0, Sampled::proportional)
    }

    /// Returns the complex gain (re, im) for a sine of the queue length at `omega` rad/s. For a
    /// held output, this is the component at that frequency.
    pub fn response(&self, omega: f64) -> (f64, f64) {
        let mut paths = Complex(self.direct, 0.0);
        if let Some(sampled) = &self.sampled {
            let z_1 = Complex::phasor(-omega * sampled.interval_s);
            let filter = z_1.polynomial(&sampled.numerator) / z_1.polynomial(&sampled.denominator);
            paths = paths + filter * Complex::hold(omega * sampled.interval_s);
        }
        if let Some(Average { weight, interval_s }) = self.average {
            let z_1 = Complex::phasor(-omega * interval_s);
            paths = paths * (Complex(weight, 0.0) / z_1.polynomial(&[1.0, weight - 1.0]));
        }
        paths = paths * Complex::phasor(-omega * self.age_s);
        (paths.0, paths.1)
    }
}

/// The complex arithmetic that [`LoopFilter::response`] needs without `num-complex`.
#[derive(Clone, Copy)]
struct Complex(f64, f64);

impl Complex {
    /// Returns e^{jφ}.
    fn phasor(phi: f64) -> Complex {
        Complex(phi.cos(), phi.sin())
    }

    /// Returns the gain of a zero-order hold at φ = ωT: (1 − e^{−jφ})/(jφ) =
    /// e^{−jφ/2}·sin(φ/2)/(φ/2).
    fn hold(phi: f64) -> Complex {
        let half = phi / 2.0;
        let sinc = if half == 0.0 { 1.0 } else { half.sin() / half };
        Complex::phasor(-half) * Complex(sinc, 0.0)
    }

    /// Returns Σ cᵢ·selfⁱ.
    fn polynomial(self, coefficients: &[f64]) -> Complex {
        let add = |sum, c: &f64| sum * self + Complex(*c, 0.0);
        coefficients.iter().rev().fold(Complex(0.0, 0.0), add)
    }
}

impl std::ops::Add for Complex {
    type Output = Complex;
    fn add(self, b: Complex) -> Complex {
        Complex(self.0 + b.0, self.1 + b.1)
    }
}

impl std::ops::Mul for Complex {
    type Output = Complex;
    fn mul(self, b: Complex) -> Complex {
        Complex(self.0 * b.0 - self.1 * b.1, self.0 * b.1 + self.1 * b.0)
    }
}

impl std::ops::Div for Complex {
    type Output = Complex;
    fn div(self, b: Complex) -> Complex {
        let square = b.0 * b.0 + b.1 * b.1;
        self * Complex(b.0 / square, -b.1 / square)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_operating_point_is_that_of_example_1_of_pi_pd() {
        let point = OperatingPoint::of_flows(60.0, 0.2467, 3750.0);
        assert!((point.plant_gain() - 117_187.5).abs() < 1e-6);
        assert!((point.tcp_pole() - 0.53).abs() < 5e-3);
        assert!((point.queue_pole() - 4.05).abs() < 5e-3);
        // p0·W0² = 2 with W0 = 0.2467·3750/60 = 15.42.
        assert!((point.window_pkts() - 15.418_75).abs() < 1e-9);
        assert!((point.probability() * point.window_pkts().powi(2) - 2.0).abs() < 1e-12);
    }

    #[test]
    fn the_proportional_gain_of_a_pid_controller_is_recovered() {
        // K_P = 2, K_I = 4, K_D = 0.5, T = 0.1: 7.2 − 11.8·z⁻¹ + 5·z⁻².
        let law = |numerator: &[f64]| {
            LoopFilter::sampled(
                0.0,
                Sampled {
                    interval_s: 0.1,
                    numerator: numerator.to_vec(),
                    denominator: vec![1.0, -1.0],
                },
            )
        };
        let pid = law(&[7.2, -11.8, 5.0]);
        assert!(pid.integrates());
        assert!((pid.proportional() - 2.0).abs() < 1e-12);
        // PI with a = b has no integral action: the pole at z = 1 is cancelled.
        assert!(!law(&[2.0, -2.0]).integrates());
    }

    #[test]
    fn the_response_is_that_computed_by_hand() {
        // The difference 1 − z⁻¹ at T = π/2 and ω = 1: z⁻¹ = −j, so it is 1 + j. The hold is
        // (1 + j)/(jπ/2) = (1 − j)·2/π. Their product is 4/π, and the direct path adds 1.
        let filter = LoopFilter {
            direct: 1.0,
            ..LoopFilter::sampled(
                0.0,
                Sampled {
                    interval_s: std::f64::consts::FRAC_PI_2,
                    numerator: vec![1.0, -1.0],
                    denominator: vec![1.0],
                },
            )
        };
        let (re, im) = filter.response(1.0);
        assert!((re - 1.0 - 4.0 / std::f64::consts::PI).abs() < 1e-12 && im.abs() < 1e-12);
        // An average of weight ½ at the same T: ½/(1 + j/2) = (0.4 − 0.2j).
        let averaged = LoopFilter {
            average: Some(Average {
                weight: 0.5,
                interval_s: std::f64::consts::FRAC_PI_2,
            }),
            direct: 1.0,
            sampled: None,
            ..filter
        };
        let (re, im) = averaged.response(1.0);
        assert!((re - 0.4).abs() < 1e-12 && (im + 0.2).abs() < 1e-12);
    }
}
