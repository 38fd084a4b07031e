//! A sampled loop driven by noise, with the queue and the probability limited to non-negative
//! values: many independent queues are stepped together.

/// A loop with saturation at zero.
#[derive(Clone, Debug)]
pub struct SaturatedLoop {
    /// The factor by which a deviation of the queue decays in a step.
    pub decay: f64,
    /// The effect of a standard normal number on the queue, in packets: immediately, and
    /// `round_trip_steps` later.
    pub kicks_pkts: [f64; 2],
    /// The round-trip time in steps.
    pub round_trip_steps: usize,
    /// The effect of the probability on the queue through each path: packets per step, and the
    /// delay in steps.
    pub answers: Vec<(f64, usize)>,
    /// The coefficients of z⁰, z⁻¹, … in the law's numerator.
    pub numerator: Vec<f64>,
    /// The coefficients of z⁰, z⁻¹, … in the law's denominator.
    pub denominator: Vec<f64>,
    /// The sampling interval in steps.
    pub steps_per_sample: usize,
    /// The equilibrium of the queue.
    pub rest_pkts: f64,
    /// The equilibrium of the probability.
    pub rest_probability: f64,
}

/// The moments of queue and probability.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moments {
    /// The mean of the queue.
    pub queue_mean_pkts: f64,
    /// The standard deviation of the queue.
    pub queue_deviation_pkts: f64,
    /// The mean of the part by which the unlimited queue is below zero.
    pub missing_pkts: f64,
    /// The standard deviation of the probability.
    pub probability_deviation: f64,
}

impl SaturatedLoop {
    /// Runs the queues and returns their moments. `noise` contains standard normal numbers, a row
    /// of `queues` numbers for each step. The first `warm_up` steps are not counted.
    pub fn moments(&self, noise: &[f64], queues: usize, warm_up: usize) -> Moments {
        let steps = noise.len() / queues;
        let row = |step: usize| &noise[step * queues..(step + 1) * queues];
        let longest = self.answers.iter().map(|(_, delay)| *delay).max();
        let ring = longest.unwrap_or(0) + 1;
        let mut probability = vec![vec![self.rest_probability; queues]; ring];
        let mut errors = vec![vec![0.0; queues]; self.numerator.len()];
        let taps = self.denominator.len() - 1;
        let mut outputs = vec![vec![self.rest_probability; queues]; taps];
        let mut now = vec![self.rest_probability; queues];
        let mut deviation = vec![0.0; queues];
        let mut queue = vec![0.0; queues];
        let mut samples = [Vec::new(), Vec::new()];
        let mut missing = 0.0;
        for step in 0..steps {
            let [immediate, later] = self.kicks_pkts;
            let kicks = deviation.iter_mut().zip(row(step));
            for (x, kick) in kicks {
                *x = self.decay * *x + immediate * kick;
            }
            if let Some(before) = step.checked_sub(self.round_trip_steps) {
                for (x, kick) in deviation.iter_mut().zip(row(before)) {
                    *x += later * kick;
                }
            }
            for (gain, delay) in &self.answers {
                let delayed = &probability[(step + ring - delay) % ring];
                for (x, p) in deviation.iter_mut().zip(delayed) {
                    *x -= gain * (p - self.rest_probability);
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
                // A law without feedback of its output keeps none.
                if !outputs.is_empty() {
                    outputs.rotate_right(1);
                    outputs[0].copy_from_slice(&now);
                }
            }
            probability[step % ring].copy_from_slice(&now);
            if step >= warm_up {
                samples[0].extend_from_slice(&queue);
                samples[1].extend_from_slice(&now);
                let cut = queue.iter().zip(&deviation);
                let cut: f64 = cut.map(|(queue, x)| queue - self.rest_pkts - x).sum();
                missing += cut / queues as f64;
            }
        }
        let [queue, probability] = samples.map(|values| mean_and_deviation(&values, queues));
        Moments {
            queue_mean_pkts: queue.0,
            queue_deviation_pkts: queue.1,
            missing_pkts: missing / (steps - warm_up) as f64,
            probability_deviation: probability.1,
        }
    }
}

/// Adds `values` times `weight` to `sums`.
fn add(sums: &mut [f64], weight: f64, values: &[f64]) {
    for (sum, value) in sums.iter_mut().zip(values) {
        *sum += weight * value;
    }
}

/// Returns the mean and the standard deviation. Sums are taken by rows, which reduces rounding
/// errors.
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

    /// Returns pseudo-random numbers of mean 0 and variance 1: sines of quadratically growing
    /// phases.
    fn noise(count: u32) -> Vec<f64> {
        let turn =
            |k: u32| 2.0_f64.sqrt() * (f64::from(k) * f64::from(k) * 1.618_033_988_749).sin();
        (0..count).map(turn).collect()
    }

    #[test]
    fn far_from_zero_the_loop_is_a_linear_filter() {
        let moments = bare().moments(&noise(60_000), 100, 100);
        assert!(moments.missing_pkts.abs() < 1e-9, "{moments:?}");
        assert!(moments.probability_deviation < 1e-12, "{moments:?}");
        let expected = (1.0 - 0.9_f64.powi(2)).powf(-0.5);
        assert!(
            (moments.queue_deviation_pkts / expected - 1.0).abs() < 0.02,
            "{moments:?}"
        );
        assert!((moments.queue_mean_pkts - 1e6).abs() < 0.2, "{moments:?}");
    }

    #[test]
    fn near_zero_the_queue_is_limited_and_an_integral_compensates_for_it() {
        let cut = SaturatedLoop {
            rest_pkts: 1.0,
            ..bare()
        };
        let moments = cut.moments(&noise(60_000), 100, 100);
        assert!(moments.missing_pkts > 0.1, "{moments:?}");
        assert!(
            (moments.queue_mean_pkts - 1.0 - moments.missing_pkts).abs() < 0.2,
            "{moments:?}"
        );
        // Integral action moves the mean back to the set-point.
        let integral = SaturatedLoop {
            answers: vec![(1.0, 4)],
            numerator: vec![0.002],
            ..cut
        };
        let controlled = integral.moments(&noise(60_000), 100, 200);
        assert!(
            controlled.queue_mean_pkts < moments.queue_mean_pkts,
            "{controlled:?}"
        );
        assert!(controlled.probability_deviation > 0.0);
    }

    /// Compares moments with those of queues and probabilities that were computed by hand.
    fn assert_moments(actual: Moments, queue: &[f64], probability: &[f64], missing_pkts: f64) {
        let moments = |values: &[f64]| {
            let count = values.len() as f64;
            let mean = values.iter().sum::<f64>() / count;
            let square = values.iter().map(|x| x * x).sum::<f64>() / count;
            (mean, (square - mean * mean).max(0.0).sqrt())
        };
        let (mean, deviation) = moments(queue);
        let (_, probability_deviation) = moments(probability);
        for (actual, expected) in [
            (actual.queue_mean_pkts, mean),
            (actual.queue_deviation_pkts, deviation),
            (actual.probability_deviation, probability_deviation),
            (actual.missing_pkts, missing_pkts),
        ] {
            assert!((actual - expected).abs() < 1e-7, "{actual} {expected}");
        }
    }

    /// A number of 1 moves the queue by 2 packets now and by 3 a round trip later, and a deviation
    /// is halved in a step.
    #[test]
    fn a_kick_acts_immediately_and_a_round_trip_later() {
        let kicked = SaturatedLoop {
            decay: 0.5,
            kicks_pkts: [2.0, 3.0],
            round_trip_steps: 2,
            answers: vec![],
            rest_pkts: 100.0,
            ..bare()
        };
        let noise = [1.0, 0.0, 0.0, 0.0];
        let queue = [102.0, 101.0, 103.5, 101.75];
        assert_moments(kicked.moments(&noise, 1, 0), &queue, &[0.1], 0.0);
        assert_moments(kicked.moments(&noise, 1, 2), &queue[2..], &[0.1], 0.0);
    }

    /// p moves by (0.05·e − 0.02·e₋₁)/2 at every second step, and acts on the queue one and two steps
    /// later.
    #[test]
    fn a_sampled_law_acts_through_the_delays_of_its_paths() {
        let controlled = SaturatedLoop {
            decay: 0.5,
            kicks_pkts: [1.0, 0.0],
            round_trip_steps: 1,
            answers: vec![(10.0, 1), (4.0, 2)],
            numerator: vec![0.05, -0.02],
            denominator: vec![2.0, -2.0],
            steps_per_sample: 2,
            rest_pkts: 10.0,
            rest_probability: 0.2,
        };
        let moments = controlled.moments(&[4.0, 0.0, 0.0, 0.0, 0.0], 1, 0);
        let queue = [14.0, 11.0, 9.1, 8.775, 8.8625];
        let probability = [0.3, 0.3, 0.2375, 0.2375, 0.218_062_5];
        assert_moments(moments, &queue, &probability, 0.0);
    }

    /// Two queues with deviations of −3 and 5 from 1: the first is empty, and 2 packets are missing.
    /// A step later the deviations are −1.5 and 2.5.
    #[test]
    fn queue_and_probability_are_limited_in_every_queue_by_itself() {
        let limited = SaturatedLoop {
            decay: 0.5,
            kicks_pkts: [1.0, 0.0],
            numerator: vec![1.0],
            rest_pkts: 1.0,
            rest_probability: 0.5,
            ..bare()
        };
        let noise = [-3.0, 5.0, 0.0, 0.0];
        assert_moments(
            limited.moments(&noise[..2], 2, 0),
            &[0.0, 6.0],
            &[0.0, 1.0],
            1.0,
        );
        assert_moments(
            limited.moments(&noise, 2, 1),
            &[0.0, 3.5],
            &[0.0, 1.0],
            0.25,
        );
    }

    /// Without earlier outputs p is e/4: 0.05 and 0.1 for deviations of 0.2 and 0.4.
    #[test]
    fn a_law_without_feedback_of_its_output_is_proportional() {
        let proportional = SaturatedLoop {
            decay: 0.0,
            numerator: vec![0.5],
            denominator: vec![2.0],
            rest_pkts: 1.0,
            ..bare()
        };
        let moments = proportional.moments(&[0.2, 0.4], 1, 0);
        assert_moments(moments, &[1.2, 1.4], &[0.05, 0.1], 0.0);
    }
}
