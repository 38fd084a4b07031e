//! A sampled loop driven by noise whose queue and probability do not go below zero: many queues at
//! once, step by step.

/// The loop, and what is cut of it.
#[derive(Clone, Debug)]
pub struct SaturatedLoop {
    /// What a deviation of the queue keeps of itself over a step.
    pub decay: f64,
    /// What a normal number does to it at once, and `round_trip_steps` later: packets.
    pub kicks_pkts: [f64; 2],
    pub round_trip_steps: usize,
    /// What the probability does to it, by each path: packets per step, and steps of its delay.
    pub answers: Vec<(f64, usize)>,
    /// Of the law, in z⁰, z⁻¹, …; the denominator begins with what the output is divided by.
    pub numerator: Vec<f64>,
    pub denominator: Vec<f64>,
    pub steps_per_sample: usize,
    /// Where queue and probability rest.
    pub rest_pkts: f64,
    pub rest_probability: f64,
}

/// What was seen of queue and probability.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moments {
    pub queue_mean_pkts: f64,
    pub queue_deviation_pkts: f64,
    /// Mean of what the queue would have been below zero.
    pub missing_pkts: f64,
    pub probability_deviation: f64,
}

impl SaturatedLoop {
    /// Steps the queues by normal numbers, `noise` in rows of one for each queue; the first `unseen`
    /// steps are not counted.
    pub fn moments(&self, noise: &[f64], queues: usize, unseen: usize) -> Moments {
        let steps = noise.len() / queues;
        let row = |step: usize| &noise[step * queues..(step + 1) * queues];
        let longest = self.answers.iter().map(|(_, late)| *late).max();
        let ring = longest.unwrap_or(0) + 1;
        let mut probability = vec![vec![self.rest_probability; queues]; ring];
        let mut errors = vec![vec![0.0; queues]; self.numerator.len()];
        let taps = self.denominator.len() - 1;
        let mut outputs = vec![vec![self.rest_probability; queues]; taps];
        let mut now = vec![self.rest_probability; queues];
        let mut deviation = vec![0.0; queues];
        let mut queue = vec![0.0; queues];
        let mut seen = [Vec::new(), Vec::new()];
        let mut missing = 0.0;
        for step in 0..steps {
            let [at_once, later] = self.kicks_pkts;
            let kicks = deviation.iter_mut().zip(row(step));
            for (x, kick) in kicks {
                *x = self.decay * *x + at_once * kick;
            }
            if let Some(before) = step.checked_sub(self.round_trip_steps) {
                for (x, kick) in deviation.iter_mut().zip(row(before)) {
                    *x += later * kick;
                }
            }
            for (answer, late) in &self.answers {
                let then = &probability[(step + ring - late) % ring];
                for (x, p) in deviation.iter_mut().zip(then) {
                    *x -= answer * (p - self.rest_probability);
                }
            }
            for (queue, x) in queue.iter_mut().zip(&deviation) {
                *queue = (self.rest_pkts + x).max(0.0);
            }
            if step.is_multiple_of(self.steps_per_sample) {
                errors.rotate_right(1);
                for (error, queue) in errors[0].iter_mut().zip(&queue) {
                    *error = queue - self.rest_pkts;
                }
                now.fill(0.0);
                for (weight, error) in self.numerator.iter().zip(&errors) {
                    add(&mut now, *weight, error);
                }
                for (weight, output) in self.denominator[1..].iter().zip(&outputs) {
                    add(&mut now, -weight, output);
                }
                for p in &mut now {
                    *p = (*p / self.denominator[0]).clamp(0.0, 1.0);
                }
                outputs.rotate_right(1);
                if let Some(last) = outputs.first_mut() {
                    last.copy_from_slice(&now);
                }
            }
            probability[step % ring].copy_from_slice(&now);
            if step >= unseen {
                seen[0].extend_from_slice(&queue);
                seen[1].extend_from_slice(&now);
                let cut = queue.iter().zip(&deviation);
                let cut: f64 = cut.map(|(queue, x)| queue - self.rest_pkts - x).sum();
                missing += cut / queues as f64;
            }
        }
        let [queue, probability] = seen.map(|values| mean_and_deviation(&values, queues));
        Moments {
            queue_mean_pkts: queue.0,
            queue_deviation_pkts: queue.1,
            missing_pkts: missing / (steps - unseen) as f64,
            probability_deviation: probability.1,
        }
    }
}

fn add(to: &mut [f64], weight: f64, values: &[f64]) {
    for (sum, value) in to.iter_mut().zip(values) {
        *sum += weight * value;
    }
}

/// By rows, so that sums of millions keep their digits.
fn mean_and_deviation(values: &[f64], row: usize) -> (f64, f64) {
    let count = values.len() as f64;
    let sums = values.chunks(row).map(|row| row.iter().sum::<f64>());
    let mean = sums.sum::<f64>() / count;
    let square = |row: &[f64]| -> f64 { row.iter().map(|x| (x - mean).powi(2)).sum() };
    let squares = values.chunks(row).map(square).sum::<f64>();
    (mean, (squares / count).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bare() -> SaturatedLoop {
        SaturatedLoop {
            decay: 0.9,
            kicks_pkts: [1.0, 0.0],
            round_trip_steps: 4,
            answers: vec![(0.0, 4)],
            numerator: vec![0.0],
            denominator: vec![1.0, -1.0],
            steps_per_sample: 1,
            rest_pkts: 1e6,
            rest_probability: 0.1,
        }
    }

    /// Numbers of variance 1 and mean 0 that look random: a sine's quarter turns by an irrational.
    fn noise(count: u32) -> Vec<f64> {
        let turn =
            |k: u32| 2.0_f64.sqrt() * (f64::from(k) * f64::from(k) * 1.618_033_988_749).sin();
        (0..count).map(turn).collect()
    }

    #[test]
    fn far_from_zero_it_is_a_linear_filter() {
        let found = bare().moments(&noise(400_000), 100, 500);
        assert!(found.missing_pkts.abs() < 1e-9, "{found:?}");
        assert!(found.probability_deviation < 1e-12, "{found:?}");
        let want = (1.0 - 0.9_f64.powi(2)).powf(-0.5);
        assert!(
            (found.queue_deviation_pkts / want - 1.0).abs() < 0.02,
            "{found:?}"
        );
        assert!((found.queue_mean_pkts - 1e6).abs() < 0.2, "{found:?}");
    }

    #[test]
    fn near_zero_the_queue_is_cut_and_the_law_lowers_its_probability() {
        let cut = SaturatedLoop {
            rest_pkts: 1.0,
            ..bare()
        };
        let found = cut.moments(&noise(400_000), 100, 500);
        assert!(found.missing_pkts > 0.1, "{found:?}");
        assert!(
            (found.queue_mean_pkts - 1.0 - found.missing_pkts).abs() < 0.2,
            "{found:?}"
        );
        // An integral takes the mean back to its set-point.
        let held = SaturatedLoop {
            answers: vec![(1.0, 4)],
            numerator: vec![0.002],
            ..cut
        };
        let held = held.moments(&noise(400_000), 100, 1000);
        assert!(held.queue_mean_pkts < found.queue_mean_pkts, "{held:?}");
        assert!(held.probability_deviation > 0.0);
    }
}
