//! A linear loop in time: each mode of its plant exactly, over steps with a held input.

use num_complex::Complex64;

/// A mode of the plant over a step.
#[derive(Clone, Copy, Debug)]
pub struct Mode {
    /// What it keeps of itself.
    pub decay: Complex64,
    /// What it gains from the input that is held now, as late as its delay, and from that of a step
    /// before.
    pub new: Complex64,
    pub old: Complex64,
    /// Whole steps of its delay.
    pub delay_steps: usize,
}

/// The part of a law behind a sampler and hold.
#[derive(Clone, Debug)]
pub struct SampledLaw {
    pub steps_per_sample: usize,
    /// In z⁰, z⁻¹, …; the denominator begins with what the output is divided by.
    pub numerator: Vec<f64>,
    pub denominator: Vec<f64>,
}

/// A loop to be stepped.
#[derive(Clone, Debug)]
pub struct Loop {
    pub modes: Vec<Mode>,
    /// Share of the way to the queue that the average goes in a step; `None` without an average.
    pub smoothing: Option<f64>,
    /// Gain of what acts at once, on the average where there is one.
    pub direct: f64,
    pub sampled: Option<SampledLaw>,
}

impl Loop {
    /// Deviation of the queue at 0, 1, … `steps` after a change of this size at the plant's input.
    pub fn step_response(&self, change: f64, steps: usize) -> Vec<f64> {
        let mut values = vec![Complex64::ZERO; self.modes.len()];
        let mut queue = vec![0.0; steps + 1];
        // `latest` steps before the first.
        let latest = self.modes.iter().map(|mode| mode.delay_steps).max();
        let latest = latest.unwrap_or(0) + 1;
        let mut input = vec![0.0; steps + latest + 1];
        let mut law = self.sampled.as_ref().map(Held::new);
        let mut average = 0.0;
        for step in 0..steps {
            let seen = match self.smoothing {
                Some(_) => average,
                None => queue[step],
            };
            let held = law.as_mut().map_or(0.0, |law| law.at(step, seen));
            let now = step + latest;
            input[now] = change - (held + self.direct * seen);
            let mut sum = Complex64::ZERO;
            for (value, mode) in values.iter_mut().zip(&self.modes) {
                let late = now - mode.delay_steps;
                *value = mode.decay * *value + mode.new * input[late] + mode.old * input[late - 1];
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

/// What a sampled law has put out, and what it was shown.
struct Held<'a> {
    law: &'a SampledLaw,
    inputs: Vec<f64>,
    outputs: Vec<f64>,
}

impl Held<'_> {
    fn new(law: &SampledLaw) -> Held<'_> {
        Held {
            law,
            inputs: vec![0.0; law.numerator.len()],
            outputs: vec![0.0; law.denominator.len()],
        }
    }

    /// The output at a step.
    fn at(&mut self, step: usize, seen: f64) -> f64 {
        let law = self.law;
        if step.is_multiple_of(law.steps_per_sample) {
            self.inputs.rotate_right(1);
            self.inputs[0] = seen;
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

    /// x' = −x + u over steps of 0.1 s, without a law: 1 − e^{−t}, a delay later.
    #[test]
    fn a_mode_alone_is_exact() {
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
        for (k, got) in queue.iter().enumerate() {
            let since = 0.1 * (k as f64 - 3.0);
            let want = if since > 0.0 {
                2.0 * (1.0 - (-since).exp())
            } else {
                0.0
            };
            assert!((got - want).abs() < 1e-12, "{k}: {got} {want}");
        }
    }

    /// An integrating law, sampled every second step, takes the change away.
    #[test]
    fn an_integral_leaves_no_deviation() {
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
