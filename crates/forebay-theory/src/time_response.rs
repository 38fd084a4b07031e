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
}
