//! What linear control theory works on: data, and how to read it.

/// The point around which TCP and a queue are linearised: N flows of round-trip time R on a link
/// of capacity C.
#[derive(Clone, Copy, Debug)]
pub struct OperatingPoint {
    /// N/(RC): flows over the packets that they have under way. Unlike N it can be measured
    /// without knowing R.
    pub load: f64,
    /// C, in packets per second.
    pub capacity_pkts_per_s: f64,
    /// R, with queueing delay.
    pub rtt_s: f64,
}

impl OperatingPoint {
    pub fn of_flows(flows: f64, rtt_s: f64, capacity_pkts_per_s: f64) -> OperatingPoint {
        OperatingPoint {
            load: flows / (rtt_s * capacity_pkts_per_s),
            capacity_pkts_per_s,
            rtt_s,
        }
    }

    /// N.
    pub fn flows(&self) -> f64 {
        self.load * self.rtt_s * self.capacity_pkts_per_s
    }

    /// W0 = RC/N, from q' = 0 in the fluid model (staqm section III.B).
    pub fn window_pkts(&self) -> f64 {
        1.0 / self.load
    }

    /// p0 = 2/W0², from W' = 0 in the fluid model (staqm section III.B).
    pub fn probability(&self) -> f64 {
        2.0 * self.load.powi(2)
    }

    /// The pole of TCP's window, 2N/(R²C), in rad/s (pi-pd eq. 1).
    pub fn tcp_pole(&self) -> f64 {
        2.0 * self.load / self.rtt_s
    }

    /// The pole of the queue, 1/R, in rad/s (pi-pd eq. 1).
    pub fn queue_pole(&self) -> f64 {
        1.0 / self.rtt_s
    }

    /// C²/(2N): the plant is this over (s + tcp_pole)(s + queue_pole). pi-pd prints the numerators
    /// of (1) wrongly, but Example 1 has this.
    pub fn plant_gain(&self) -> f64 {
        self.capacity_pkts_per_s.powi(2) / (2.0 * self.flows())
    }

    /// K_P per packet of the PI controller whose zero cancels TCP's pole and whose loop gain
    /// crosses one at β/R: 2β√(β²+1)·θ_rc/(RC) with θ_rc = N/(RC) (staqm eq. 4).
    pub fn pi_gain(&self, beta: f64) -> f64 {
        2.0 * beta * beta.hypot(1.0) * self.load / (self.rtt_s * self.capacity_pkts_per_s)
    }

    /// (RC)³/(2N)², the plant's gain at rest, in packets.
    pub fn gain_at_rest(&self) -> f64 {
        self.plant_gain() / (self.tcp_pole() * self.queue_pole())
    }
}

/// A law near an operating point: from queue length, in packets, to signals per arriving packet.
///
/// The queue is averaged, where there is an average. What comes out of that acts at once with
/// the gain `direct`, and through `sampled`, whose output is held until the next sample.
#[derive(Clone, Debug, PartialEq)]
pub struct LoopFilter {
    /// Where the queue settles when TCP needs the operating point's probability.
    pub queue_pkts: f64,
    pub average: Option<Average>,
    /// Probability per packet of (averaged) queue.
    pub direct: f64,
    pub sampled: Option<Sampled>,
    /// The model only holds while the queue stays on one side of `queue_pkts`.
    pub one_sided: bool,
    /// How old the queue is that the law acts on, as with the delay of a head that has waited.
    pub age_s: f64,
}

/// An average that moves by `weight` of the difference every `interval_s`: at every arrival.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Average {
    pub weight: f64,
    pub interval_s: f64,
}

/// A transfer function in z, sampled and held at an interval. Coefficients go with z⁰, z⁻¹, …;
/// the numerator's unit is probability per packet.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampled {
    pub interval_s: f64,
    pub numerator: Vec<f64>,
    pub denominator: Vec<f64>,
}

impl Sampled {
    /// This after an average that is taken at the same samples.
    pub fn averaged(self, weight: f64) -> Sampled {
        // w/(1 − (1 − w)z⁻¹)
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
    /// Whether there is a pole at z = 1 that no zero cancels, but for rounding.
    fn integrates(&self) -> bool {
        let at_one = |c: &[f64]| c.iter().sum::<f64>().abs();
        let size = |c: &[f64]| c.iter().map(|c| c.abs()).sum::<f64>();
        at_one(&self.denominator) <= 1e-12 * size(&self.denominator)
            && at_one(&self.numerator) > 1e-12 * size(&self.numerator)
    }

    /// N(1)/2 − N'(1) over 1 − z⁻¹, for N in z⁻¹, takes the integral by Tustin's rule and the
    /// backward difference out of a PID controller; without an integral it is N(1).
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
    /// A law that is one sampled filter.
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

    /// A law that is one sampled filter of the distance to `target_pkts`, where TCP needs
    /// `probability`; `None` where it has no gain.
    ///
    /// With an integral it rests at its target. Without one it does not: p moves by a·Δe and so
    /// on from zero, and the first sample, of an empty queue, is cut off there. What p loses is
    /// the target's share, so p = (n₀ + n₁)·q − n₁·target for a numerator n₀ + n₁z⁻¹; n₁ is zero
    /// without a derivative, and then the target does not matter at all.
    pub fn controlled(target_pkts: f64, sampled: Sampled, probability: f64) -> Option<LoopFilter> {
        let gain = sampled.proportional();
        let queue_pkts = if sampled.integrates() {
            target_pkts
        } else {
            let kick = sampled.numerator.get(1).map_or(0.0, |n| -n * target_pkts);
            (probability - kick) / gain
        };
        (queue_pkts.is_finite() && gain > 0.0).then(|| LoopFilter::sampled(queue_pkts, sampled))
    }

    /// Whether the law keeps changing its probability while the queue is off its set-point: its
    /// sampled path has a pole at z = 1 that no zero cancels.
    pub fn integrates(&self) -> bool {
        self.sampled.as_ref().is_some_and(Sampled::integrates)
    }

    /// K_P: the change of the probability at once with a step of one packet, without the parts of
    /// an integral and of a derivative.
    pub fn proportional(&self) -> f64 {
        self.direct + self.sampled.as_ref().map_or(0.0, Sampled::proportional)
    }

    /// What a sine of the queue length at `omega` rad/s becomes, as a complex gain (re, im); of
    /// a held output, its component at that frequency.
    pub fn response(&self, omega: f64) -> (f64, f64) {
        let mut paths = Complex(self.direct, 0.0);
        if let Some(sampled) = &self.sampled {
            let z_1 = Complex::turn(-omega * sampled.interval_s);
            let filter = z_1.polynomial(&sampled.numerator) / z_1.polynomial(&sampled.denominator);
            paths = paths + filter * Complex::hold(omega * sampled.interval_s);
        }
        if let Some(Average { weight, interval_s }) = self.average {
            let z_1 = Complex::turn(-omega * interval_s);
            paths = paths * (Complex(weight, 0.0) / z_1.polynomial(&[1.0, weight - 1.0]));
        }
        paths = paths * Complex::turn(-omega * self.age_s);
        (paths.0, paths.1)
    }
}

/// Just enough complex arithmetic for [`LoopFilter::response`].
#[derive(Clone, Copy)]
struct Complex(f64, f64);

impl Complex {
    /// e^{jφ}
    fn turn(phi: f64) -> Complex {
        Complex(phi.cos(), phi.sin())
    }

    /// A zero-order hold at φ = ωT: (1 − e^{−jφ})/(jφ) = e^{−jφ/2}·sin(φ/2)/(φ/2).
    fn hold(phi: f64) -> Complex {
        let half = phi / 2.0;
        let sinc = if half == 0.0 { 1.0 } else { half.sin() / half };
        Complex::turn(-half) * Complex(sinc, 0.0)
    }

    /// Σ cᵢ·selfⁱ
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
    fn example_1_of_pi_pd() {
        let point = OperatingPoint::of_flows(60.0, 0.2467, 3750.0);
        assert!((point.plant_gain() - 117_187.5).abs() < 1e-6);
        assert!((point.tcp_pole() - 0.53).abs() < 5e-3);
        assert!((point.queue_pole() - 4.05).abs() < 5e-3);
        // p0·W0² = 2 with W0 = 0.2467·3750/60 = 15.42.
        assert!((point.window_pkts() - 15.418_75).abs() < 1e-9);
        assert!((point.probability() * point.window_pkts().powi(2) - 2.0).abs() < 1e-12);
    }

    #[test]
    fn the_parts_of_a_pid_controller() {
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
        // PI with a = b has no integral: the pole at z = 1 is cancelled.
        assert!(!law(&[2.0, -2.0]).integrates());
    }

    #[test]
    fn a_response_by_hand() {
        // Held differences (1 − z⁻¹)/(1) at T = π/2 and ω = 1: z⁻¹ = −j, so 1 + j; the hold is
        // (1 + j)/(jπ/2) = (1 − j)·2/π. Together 4/π. The direct path adds 1.
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
