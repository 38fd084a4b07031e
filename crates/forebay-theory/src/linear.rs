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
    use crate::assertions::close;

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

    /// Around 60 flows at 200 ms and 175 packets of 3750 packets/s, staqm prints a = 7.853e-5 and
    /// b = 7.827e-5 at 160 Hz for β = ½, where a, b = K_P ± K_I·T/2 with K_I/K_P at TCP's pole.
    #[test]
    fn the_gain_of_pi_is_that_which_staqm_prints() {
        let point = OperatingPoint::of_flows(60.0, 0.2 + 175.0 / 3750.0, 3750.0);
        let (k_p, half_s) = (point.pi_gain(0.5), 0.5 / 160.0);
        close(k_p * (1.0 + point.tcp_pole() * half_s), 7.853e-5, 1e-4);
        close(k_p * (1.0 - point.tcp_pole() * half_s), 7.827e-5, 1e-4);
    }

    /// With its zero on TCP's pole, PI in front of the plant leaves K_P·K/(s(s + 1/R)), whose size at
    /// the crossover s = jβ/R is one.
    #[test]
    fn the_gain_of_pi_has_its_crossover_at_beta_over_the_round_trip_time() {
        for (flows, rtt_s, capacity, beta) in [(60.0, 0.25, 3750.0, 0.5), (7.0, 0.02, 900.0, 0.2)] {
            let point = OperatingPoint::of_flows(flows, rtt_s, capacity);
            let omega: f64 = beta / rtt_s;
            let plant = capacity * capacity / (2.0 * flows);
            let size = plant / (omega * omega.hypot(1.0 / rtt_s));
            close(point.pi_gain(beta) * size, 1.0, 1e-12);
        }
    }

    /// 50 flows with 500 packets in flight at 0.1 s.
    #[test]
    fn the_quantities_of_an_operating_point_are_those_computed_by_hand() {
        let point = OperatingPoint::of_flows(50.0, 0.1, 5000.0);
        close(point.load, 0.1, 1e-12);
        close(point.flows(), 50.0, 1e-12);
        close(point.window_pkts(), 10.0, 1e-12);
        close(point.probability(), 0.02, 1e-12);
        close(point.tcp_pole(), 2.0, 1e-12);
        close(point.queue_pole(), 10.0, 1e-12);
        close(point.plant_gain(), 250_000.0, 1e-12);
        // (RC)³/(2N)² = 500³/100².
        close(point.gain_at_rest(), 12_500.0, 1e-12);
        // A steady load needs W' = 0: 1/R = W²p/(2R), and q' = 0: N·W/R = C.
        assert_eq!((point.capacity_pkts_per_s, point.rtt_s), (5000.0, 0.1));
    }

    fn filter(numerator: &[f64], denominator: &[f64]) -> Sampled {
        Sampled {
            interval_s: 0.1,
            numerator: numerator.to_vec(),
            denominator: denominator.to_vec(),
        }
    }

    /// ¼/(1 − ¾z⁻¹) in front of (1 + 2z⁻¹)/(1 − ½z⁻¹) is (¼ + ½z⁻¹)/(1 − 1¼z⁻¹ + ⅜z⁻²).
    #[test]
    fn an_average_in_front_of_a_filter_multiplies_both() {
        let averaged = filter(&[1.0, 2.0], &[1.0, -0.5]).averaged(0.25);
        assert_eq!(averaged, filter(&[0.25, 0.5], &[1.0, -1.25, 0.375]));
    }

    /// Returns the output of a filter after `steps` samples of one.
    fn after_a_step(sampled: &Sampled, steps: usize) -> f64 {
        let mut outputs: Vec<f64> = Vec::new();
        for step in 0..steps {
            let inputs: f64 = sampled.numerator.iter().take(step + 1).sum();
            let past = sampled.denominator.iter().skip(1);
            let past = past.zip(outputs.iter().rev());
            let sum = inputs - past.map(|(d, y)| d * y).sum::<f64>();
            outputs.push(sum / sampled.denominator[0]);
        }
        outputs[steps - 1]
    }

    /// A law integrates if its output grows for ever after a step, up to the rounding of gains such
    /// as 0.1 + 0.2 − 0.3.
    #[test]
    fn a_law_integrates_if_its_output_grows_for_ever() {
        for (numerator, denominator, integrates) in [
            (vec![0.3], vec![1.0, -1.0], true),
            (vec![-0.3], vec![1.0, -1.0], true),
            (vec![0.3], vec![1.0, -1.9, 0.9], true),
            (vec![0.3], vec![-2.0, 2.0], true),
            (vec![0.3], vec![1.0, -0.99], false),
            (vec![0.3, 0.1], vec![1.0], false),
            (vec![2.0, -2.0], vec![1.0, -1.0], false),
            (vec![0.1, 0.2, -0.3], vec![1.0, -1.0], false),
            (vec![0.0], vec![1.0, -1.0], false),
        ] {
            let sampled = filter(&numerator, &denominator);
            let growth = after_a_step(&sampled, 4000) - after_a_step(&sampled, 3000);
            assert_eq!(growth.abs() > 1.0, integrates, "{sampled:?}");
            // The units of the coefficients do not matter.
            for (gain, scale) in [
                (1.0, 1.0),
                (1e9, 1.0),
                (1e-12, 1.0),
                (1.0, 1e9),
                (1.0, 1e-9),
            ] {
                let scaled = |c: &[f64], by: f64| c.iter().map(|c| c * by).collect::<Vec<_>>();
                let (n, d) = (scaled(&numerator, gain), scaled(&denominator, scale));
                let model = LoopFilter::sampled(0.0, filter(&n, &d));
                assert_eq!(model.integrates(), integrates, "{model:?}");
            }
        }
        let direct = LoopFilter {
            direct: 1.0,
            sampled: None,
            ..LoopFilter::sampled(0.0, filter(&[1.0], &[1.0, -1.0]))
        };
        assert!(!direct.integrates());
    }

    /// Without integral action the proportional gain is the final output after a step.
    #[test]
    fn the_proportional_gain_without_integral_action_is_that_at_rest() {
        let sampled = filter(&[3.0, 1.0], &[1.0, -0.5]);
        close(after_a_step(&sampled, 100), 8.0, 1e-12);
        let model = LoopFilter {
            direct: 0.5,
            ..LoopFilter::sampled(0.0, sampled)
        };
        close(model.proportional(), 8.5, 1e-12);
        // K_P ± K_I·T/2 = 2 ± 0.2.
        let pi = LoopFilter::sampled(0.0, filter(&[2.2, -1.8], &[1.0, -1.0]));
        close(pi.proportional(), 2.0, 1e-12);
        let direct = LoopFilter {
            direct: 0.5,
            sampled: None,
            ..pi
        };
        assert_eq!(direct.proportional(), 0.5);
    }

    /// A law p += n₀·(e − e₋₁) + n₁·(e₋₁ − e₋₂), limited to non-negative p, whose first sample is of
    /// an empty queue, is stepped until p is constant.
    #[test]
    fn the_equilibrium_without_integral_action_is_that_of_the_stepped_law() {
        let target = 40.0;
        for numerator in [vec![3e-4, -1e-4], vec![3e-4, 0.0], vec![2e-4]] {
            let model = LoopFilter::controlled(target, filter(&numerator, &[1.0]), 0.01);
            let queue_pkts = model.unwrap().queue_pkts;
            let second = numerator.get(1).copied().unwrap_or(0.0);
            let (mut p, mut last, mut change) = (0.0_f64, 0.0, 0.0);
            for q in [0.0, queue_pkts, queue_pkts, queue_pkts, queue_pkts] {
                let error = q - target;
                p = (p + numerator[0] * (error - last) + second * change).max(0.0);
                (change, last) = (error - last, error);
            }
            close(p, 0.01, 1e-12);
        }
    }

    #[test]
    fn the_equilibrium_with_integral_action_is_at_the_target() {
        let pi = LoopFilter::controlled(40.0, filter(&[2.2, -1.8], &[1.0, -1.0]), 0.01);
        assert_eq!(pi.unwrap().queue_pkts, 40.0);
    }

    #[test]
    fn a_filter_without_a_positive_gain_has_no_equilibrium() {
        for numerator in [vec![0.0], vec![-1.0], vec![1.0, -1.0]] {
            let model = LoopFilter::controlled(40.0, filter(&numerator, &[1.0]), 0.01);
            assert_eq!(model, None, "{numerator:?}");
        }
        // Negative integral action.
        let falling = filter(&[-2.2, 1.8], &[1.0, -1.0]);
        assert_eq!(LoopFilter::controlled(40.0, falling, 0.01), None);
        assert_eq!(
            LoopFilter::controlled(f64::INFINITY, filter(&[2.2, -1.8], &[1.0, -1.0]), 0.01),
            None
        );
    }

    /// Both parts, averaged and late, with the complex numbers of `num-complex`.
    #[cfg(feature = "loops")]
    #[test]
    fn the_response_multiplies_average_hold_and_delay() {
        use crate::Complex64;
        let law = LoopFilter {
            average: Some(Average {
                weight: 0.3,
                interval_s: 0.004,
            }),
            direct: 0.7,
            age_s: 0.03,
            ..LoopFilter::sampled(5.0, filter(&[2.0, -1.5, 0.2], &[1.0, -0.4, 0.1]))
        };
        for omega in [0.5, 7.0, 60.0] {
            let s = Complex64::new(0.0, omega);
            let z_1 = (-s * 0.1).exp();
            let law_z = (2.0 - 1.5 * z_1 + 0.2 * z_1 * z_1) / (1.0 - 0.4 * z_1 + 0.1 * z_1 * z_1);
            let hold = (1.0 - z_1) / (s * 0.1);
            let average = 0.3 / (1.0 - 0.7 * (-s * 0.004).exp());
            let expected = (0.7 + law_z * hold) * average * (-s * 0.03).exp();
            let (re, im) = law.response(omega);
            assert!((Complex64::new(re, im) - expected).norm() < 1e-12);
            // The response to a sine of negative frequency is conjugate.
            let (re, im) = law.response(-omega);
            assert!((Complex64::new(re, -im) - expected).norm() < 1e-12);
        }
        // At rest: 0.7 in parallel with (2 − 1.5 + 0.2)/(1 − 0.4 + 0.1).
        let (re, im) = law.response(0.0);
        close(re, 1.7, 1e-12);
        assert_eq!(im, 0.0);
    }
}
