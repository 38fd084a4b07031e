//! The time response of a linear loop. Each mode of the plant is integrated exactly over steps with
//! a constant input.

use num_complex::Complex64;

/// A mode of the plant, discretised for a step.
#[derive(Clone, Copy, Debug)]
pub struct Mode {
    /// The factor by which the mode decays.
    pub decay: Complex64,
    /// The response to the delayed input.
    pub new: Complex64,
    /// The response to the delayed input of the step before.
    pub old: Complex64,
    /// The delay in whole steps.
    pub delay_steps: usize,
}

/// The part of a law with a sampler and a zero-order hold.
#[derive(Clone, Debug)]
pub struct SampledLaw {
    /// The sampling interval in steps.
    pub steps_per_sample: usize,
    /// The coefficients of z⁰, z⁻¹, … in the numerator.
    pub numerator: Vec<f64>,
    /// The coefficients of z⁰, z⁻¹, … in the denominator.
    pub denominator: Vec<f64>,
}

/// A discretised loop.
#[derive(Clone, Debug)]
pub struct Loop {
    /// The modes of the plant.
    pub modes: Vec<Mode>,
    /// The weight of the queue in the average per step; `None` without an average.
    pub smoothing: Option<f64>,
    /// The direct gain of the law, on the average if there is one.
    pub direct: f64,
    /// The sampled part of the law.
    pub sampled: Option<SampledLaw>,
}

impl Loop {
    /// Returns the deviation of the queue at the steps 0, 1, …, `steps` after a step of size
    /// `change` at the plant's input.
    pub fn step_response(&self, change: f64, steps: usize) -> Vec<f64> {
        let mut values = vec![Complex64::ZERO; self.modes.len()];
        let mut queue = vec![0.0; steps + 1];
        // The input has `latest` zeros before the first step.
        let latest = self.modes.iter().map(|mode| mode.delay_steps).max();
        let latest = latest.unwrap_or(0) + 1;
        let mut input = vec![0.0; steps + latest + 1];
        let mut law = self.sampled.as_ref().map(LawState::new);
        let mut average = 0.0;
        for step in 0..steps {
            let measured = match self.smoothing {
                Some(_) => average,
                None => queue[step],
            };
            let sampled = law.as_mut().map_or(0.0, |law| law.at(step, measured));
            let now = step + latest;
            input[now] = change - (sampled + self.direct * measured);
            let mut sum = Complex64::ZERO;
            for (value, mode) in values.iter_mut().zip(&self.modes) {
                let delayed = now - mode.delay_steps;
                *value =
                    mode.decay * *value + mode.new * input[delayed] + mode.old * input[delayed - 1];
                sum += *value;
            }
            queue[step + 1] = sum.re;
            if let Some(share) = self.smoothing {
                average += share * (0.5 * (queue[step + 1] + queue[step]) - average);
            }
        }
        queue
    }
}

/// The past inputs and outputs of a sampled law.
struct LawState<'a> {
    law: &'a SampledLaw,
    inputs: Vec<f64>,
    outputs: Vec<f64>,
}

impl LawState<'_> {
    fn new(law: &SampledLaw) -> LawState<'_> {
        LawState {
            law,
            inputs: vec![0.0; law.numerator.len()],
            outputs: vec![0.0; law.denominator.len()],
        }
    }

    /// Returns the output at a step with this measured queue.
    fn at(&mut self, step: usize, measured: f64) -> f64 {
        let law = self.law;
        if step.is_multiple_of(law.steps_per_sample) {
            self.inputs.rotate_right(1);
            self.inputs[0] = measured;
            let sum = |weights: &[f64], values: &[f64]| -> f64 {
                weights.iter().zip(values).map(|(w, x)| w * x).sum()
            };
            let fresh =
                sum(&law.numerator, &self.inputs) - sum(&law.denominator[1..], &self.outputs);
            self.outputs.rotate_right(1);
            self.outputs[0] = fresh / law.denominator[0];
        }
        self.outputs[0]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The response of x' = −x + u to a step is 1 − e^{−t}, after the delay.
    #[test]
    fn a_single_mode_is_exact() {
        let decay = (-0.1_f64).exp();
        let bare = Loop {
            modes: vec![Mode {
                decay: Complex64::new(decay, 0.0),
                new: Complex64::new(1.0 - decay, 0.0),
                old: Complex64::ZERO,
                delay_steps: 3,
            }],
            smoothing: None,
            direct: 0.0,
            sampled: None,
        };
        let queue = bare.step_response(2.0, 40);
        for (k, actual) in queue.iter().enumerate() {
            let since = 0.1 * (k as f64 - 3.0);
            let expected = if since > 0.0 {
                2.0 * (1.0 - (-since).exp())
            } else {
                0.0
            };
            assert!(
                (actual - expected).abs() < 1e-12,
                "{k}: {actual} {expected}"
            );
        }
    }

    /// A law with integral action, sampled every second step, removes the deviation.
    #[test]
    fn integral_action_leaves_no_deviation() {
        let decay = (-0.1_f64).exp();
        let mode = Mode {
            decay: Complex64::new(decay, 0.0),
            new: Complex64::new(1.0 - decay, 0.0),
            old: Complex64::ZERO,
            delay_steps: 1,
        };
        let closed = |smoothing| Loop {
            modes: vec![mode],
            smoothing,
            direct: 0.1,
            sampled: Some(SampledLaw {
                steps_per_sample: 2,
                numerator: vec![0.2, 0.0],
                denominator: vec![1.0, -1.0],
            }),
        };
        for smoothing in [None, Some(0.2)] {
            let queue = closed(smoothing).step_response(1.0, 2000);
            assert!(queue.iter().any(|x| *x > 0.2), "it moves");
            assert!(queue[2000].abs() < 1e-6, "{}", queue[2000]);
        }
    }

    fn real_mode(decay: f64, new: f64, old: f64, delay_steps: usize) -> Mode {
        Mode {
            decay: decay.into(),
            new: new.into(),
            old: old.into(),
            delay_steps,
        }
    }

    /// x'' + 2x' + 10x = 10u has the step response 1 − e^{−t}(cos 3t + sin 3t/3).
    #[test]
    fn a_pair_of_complex_modes_solves_its_differential_equation() {
        let step = 0.05;
        // 10/((s + p)(s + p*)) with p = 1 − 3j has the residue 10/(p* − p) = 10/6j at −p.
        let mode = |pole: Complex64| {
            let residue = 10.0 / (pole.conj() - pole);
            let decay = (-pole * step).exp();
            Mode {
                decay,
                new: residue * (1.0 - decay) / pole,
                old: Complex64::ZERO,
                delay_steps: 0,
            }
        };
        let pole = Complex64::new(1.0, -3.0);
        let oscillator = Loop {
            modes: vec![mode(pole), mode(pole.conj())],
            smoothing: None,
            direct: 0.0,
            sampled: None,
        };
        for (k, actual) in oscillator.step_response(1.0, 100).iter().enumerate() {
            let t = step * k as f64;
            let expected = 1.0 - (-t).exp() * ((3.0 * t).cos() + (3.0 * t).sin() / 3.0);
            assert!(
                (actual - expected).abs() < 1e-12,
                "{k}: {actual} {expected}"
            );
        }
    }

    /// x' = u with u = 1 − x(t − 1) has, by the method of steps, x = t up to t = 1, then
    /// t − (t − 1)²/2 up to t = 2, and (t − 2)³/6 more up to t = 3.
    #[test]
    fn an_integrator_with_delayed_feedback_solves_its_delay_equation() {
        let step = 1e-3;
        let integrator = Loop {
            modes: vec![real_mode(1.0, step, 0.0, 0), real_mode(0.0, 0.0, 0.0, 1000)],
            smoothing: None,
            direct: 0.0,
            sampled: None,
        };
        let open = integrator.step_response(1.0, 10);
        assert!((open[10] - 0.01).abs() < 1e-12);
        // The delay is at the input of the mode, so that x starts to move at t = 1.
        let delayed = Loop {
            modes: vec![real_mode(1.0, step, 0.0, 1000)],
            direct: 1.0,
            ..integrator
        };
        let queue = delayed.step_response(1.0, 4000);
        for (k, actual) in queue.iter().enumerate() {
            let t = step * k as f64 - 1.0;
            let part = |from: f64, power: i32| (t - from).max(0.0).powi(power);
            let expected = part(0.0, 1) - part(1.0, 2) / 2.0 + part(2.0, 3) / 6.0;
            assert!((actual - expected).abs() < 2e-3, "{t}: {actual} {expected}");
        }
    }

    /// Two modes, of which the first also responds to the input of the step before: with an input
    /// of one they contribute 0, 0, 1, 3.5, 4.75 and 0, 0, 0, 3, 3. Feedback changes the input from
    /// step 2 on; all of these numbers are computed by hand.
    #[test]
    fn modes_with_different_delays_are_added() {
        let system = |direct, smoothing| Loop {
            modes: vec![real_mode(0.5, 1.0, 2.0, 1), real_mode(0.0, 3.0, 0.0, 2)],
            smoothing,
            direct,
            sampled: None,
        };
        let open = system(0.0, None).step_response(1.0, 4);
        assert_eq!(open, [0.0, 0.0, 1.0, 6.5, 7.75]);
        // The inputs are 1, 1, 0.5, −2.25.
        let closed = system(0.5, None).step_response(1.0, 5);
        assert_eq!(closed, [0.0, 0.0, 1.0, 6.5, 7.25, 2.375]);
        // The averages of the queue are 0, 0, 0.25, 2, 4.53125, and the inputs 1, 1, 0.875, 0.
        let averaged = system(0.5, Some(0.5)).step_response(1.0, 5);
        assert_eq!(averaged, [0.0, 0.0, 1.0, 6.5, 7.625, 6.6875]);
    }

    /// p = (q + q₋₁/2 + p₋₁ − p₋₂/2)/2 at every second step: its outputs are 0, 0.5, 0.75, 0.5,
    /// 0.375, by hand.
    #[test]
    fn a_sampled_law_holds_its_output_between_samples() {
        let system = Loop {
            modes: vec![real_mode(0.0, 1.0, 0.0, 1)],
            smoothing: None,
            direct: 0.0,
            sampled: Some(SampledLaw {
                steps_per_sample: 2,
                numerator: vec![1.0, 0.5],
                denominator: vec![2.0, -1.0, 0.5],
            }),
        };
        let expected = [0.0, 0.0, 1.0, 1.0, 0.5, 0.5, 0.25, 0.25, 0.5, 0.5, 0.625];
        assert_eq!(system.step_response(1.0, 10), expected);
    }
}
