//! Stability by the Nyquist criterion: the number of encirclements of zero by 1 + L.
//!
//! The contour of s follows the imaginary axis upwards. It passes poles at zero on their right, by
//! a quarter of a circle that starts on the real axis, so that law and plant may contain any number
//! of integrators.

use std::f64::consts::{FRAC_PI_2, PI};

use num_complex::Complex64;

use crate::frequency_response::{Loop, Response};

/// The largest change of the angle of 1 + L between two points of the contour, in rad.
const MAX_TURN: f64 = 0.5;
/// The size of |L| below which the contour needs no even resolution of the delay.
const SMALL_GAIN: f64 = 0.2;
/// The largest number of points of the contour.
const MAX_POINTS: usize = 1_200_000;
/// Poles below this fraction of the inverse of the longest delay count as zero.
const ZERO_POLE: f64 = 1e-9;

impl Loop {
    /// Returns the longest delay of the paths, in seconds.
    pub fn longest_s(&self) -> f64 {
        self.paths
            .iter()
            .map(|path| path.delay_s)
            .fold(0.0, f64::max)
    }

    /// Returns the shortest delay of the paths, in seconds.
    pub fn shortest_s(&self) -> f64 {
        let delays = self.paths.iter().map(|path| path.delay_s);
        delays.fold(f64::INFINITY, f64::min)
    }

    /// Returns the absolute value of the smallest pole that is not zero.
    fn slowest(&self) -> f64 {
        let threshold = ZERO_POLE / self.longest_s();
        let poles = self.paths.iter().flat_map(|path| &path.poles);
        let sizes = poles
            .map(|pole| pole.norm())
            .filter(|size| *size > threshold);
        sizes.fold(f64::INFINITY, f64::min)
    }

    /// Returns the number of unstable poles of the closed loop; `None` if one is on the stability
    /// boundary, up to rounding. `folds` are the alias terms to include.
    ///
    /// The law's own poles must be stable, or at z = 1.
    pub fn unstable_roots(&self, folds: &[i32]) -> Option<i32> {
        let response = self.response(folds);
        let inner = |s| response.inner(s);
        let mut count = 0;
        if self.sampler.is_none() || self.hybrid {
            count += self.zeros_minus_poles(&inner, None, quiet_from(&response, self))?;
        }
        if let Some(sampler) = &self.sampler {
            // A closed-loop pole of the inner loop is a pole of the outer gain. If it is near the
            // axis, its narrow peak may lie between two points of the contour, but 1 + d·G turns by
            // half a circle there.
            let peaks: Option<&Gain> = if self.hybrid { Some(&inner) } else { None };
            let outer = |s| response.outer(s);
            count += self.zeros_minus_poles(&outer, peaks, PI / sampler.interval_s)?;
        }
        Some(count)
    }

    /// Returns the number of zeros minus poles of 1 + L in the right half-plane, from the change of
    /// its angle along the contour up to the frequency `high`. `peaks` is another gain L' whose 1 +
    /// L' must not turn by more than [`MAX_TURN`] between two points either.
    fn zeros_minus_poles(&self, gain: &Gain, peaks: Option<&Gain>, high: f64) -> Option<i32> {
        let evaluate = |s: Complex64| {
            let second = peaks.map_or(Complex64::ONE, |gain| gain(s));
            [1.0 + gain(s), 1.0 + second]
        };
        let mut total_turn = 0.0;
        let mut evaluations = 0;
        let mut last: Option<(Complex64, [Complex64; 2])> = None;
        for s in self.contour(gain, high) {
            // A stack of the points up to this one, the next one on top.
            let mut stack = vec![s];
            let (mut from, mut values) = match last {
                Some(last) => last,
                None => (s, evaluate(s)),
            };
            while let Some(to) = stack.pop() {
                let next = evaluate(to);
                evaluations += 1;
                if evaluations > MAX_POINTS || next[0].norm_sqr() == 0.0 {
                    return None;
                }
                let turn = (next[0] / values[0]).arg();
                let largest = turn.abs().max((next[1] / values[1]).arg().abs());
                if largest <= MAX_TURN {
                    total_turn += turn;
                    (from, values) = (to, next);
                    continue;
                }
                let middle = midpoint(from, to);
                if middle == from || middle == to {
                    return None;
                }
                stack.extend([to, middle]);
            }
            last = Some((from, values));
        }
        let count = -total_turn / PI;
        if (count - count.round()).abs() > 0.2 {
            return None;
        }
        #[allow(clippy::cast_possible_truncation, reason = "at most MAX_POINTS turns")]
        Some(count.round() as i32)
    }

    /// Returns the points of the upper half of the Nyquist contour: a quarter circle around the
    /// poles at zero, from the real to the imaginary axis, and then the imaginary axis up to `high`.
    /// Points on the axis are spaced logarithmically. As far as the gain is not small, they are also
    /// spaced evenly, because the delay rotates its phase in proportion to the frequency.
    fn contour(&self, gain: &Gain, high: f64) -> Vec<Complex64> {
        let size = |omega: f64| gain(Complex64::new(0.0, omega)).norm();
        let mut low = 1e-4 * self.slowest().min(1.0 / self.longest_s()).min(high);
        // Within the circle the integrators must dominate the gain.
        for _ in 0..8 {
            let (gain_here, gain_below) = (size(low), size(0.1 * low));
            if gain_here > 1e3 || gain_below < 3.0 * gain_here {
                break;
            }
            low *= 0.1;
        }
        let steps = |count: u32| (0..=count).map(move |k| f64::from(k) / f64::from(count));
        let decades = (high / low).log10();
        let coarse: Vec<f64> = steps(count_of(25.0 * decades))
            .map(|share| low * (high / low).powf(share))
            .collect();
        let last_large = coarse.iter().rposition(|omega| size(*omega) > SMALL_GAIN);
        let last = last_large.map_or(low, |k| coarse[(k + 1).min(coarse.len() - 1)]);
        // Points half a radian of the delay apart; the sampler adds to the delay.
        let interval_s = self
            .sampler
            .as_ref()
            .map_or(0.0, |sampler| sampler.interval_s);
        let even = count_of(2.0 * last * (self.longest_s() + interval_s));
        let mut axis: Vec<f64> = steps(even)
            .map(|share| low + share * (last - low))
            .collect();
        axis.extend(coarse);
        axis.sort_unstable_by(f64::total_cmp);
        axis.dedup();
        let circle = steps(16).map(|share| Complex64::from_polar(low, share * FRAC_PI_2));
        let mut contour: Vec<Complex64> = circle.collect();
        contour.extend(axis.into_iter().map(|omega| Complex64::new(0.0, omega)));
        contour
    }
}

/// A gain as a function of s.
type Gain<'a> = dyn Fn(Complex64) -> Complex64 + 'a;

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "limited to 60 000"
)]
fn count_of(steps: f64) -> u32 {
    steps.ceil().clamp(1.0, 60_000.0) as u32
}

/// Returns the point halfway between two points of the contour.
fn midpoint(from: Complex64, to: Complex64) -> Complex64 {
    if to.re > 0.0 {
        Complex64::from_polar(from.norm(), 0.5 * (from.arg() + to.arg()))
    } else if from.re > 0.0 {
        Complex64::from_polar(from.norm(), 0.5 * (from.arg() + FRAC_PI_2))
    } else {
        Complex64::new(0.0, 0.5 * (from.im + to.im))
    }
}

/// Returns a frequency above which |d·G|, which decreases monotonically, is below 0.1.
fn quiet_from(response: &Response, system: &Loop) -> f64 {
    let mut high = 1.0 / system.shortest_s();
    while response.inner(Complex64::new(0.0, high)).norm() > 0.1 {
        high *= 2.0;
    }
    high
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frequency_response::{Path, Sampler};

    /// Returns a loop with these poles and this delay; without a sampler, the law is a direct gain
    /// of 1.
    fn integrals(gain: f64, poles: &[f64], delay_s: f64, sampler: Option<Sampler>) -> Loop {
        Loop {
            paths: vec![Path {
                gain,
                poles: poles
                    .iter()
                    .map(|pole| Complex64::new(*pole, 0.0))
                    .collect(),
                shares: None,
                delay_s,
            }],
            direct: if sampler.is_some() { 0.0 } else { 1.0 },
            sampler,
            hybrid: false,
        }
    }

    /// k·e^{−s}/s is stable up to k = π/2, and gains two unstable poles at every 2π.
    #[test]
    fn an_integrator_with_a_delay_has_the_known_unstable_poles() {
        for (gain, roots) in [
            (0.01, 0),
            (1.57, 0),
            (1.58, 2),
            (7.8, 2),
            (7.9, 4),
            (40.0, 14),
        ] {
            let system = integrals(gain, &[0.0], 1.0, None);
            assert_eq!(system.unstable_roots(&[]), Some(roots), "{gain}");
        }
    }

    /// Two integrators are unstable for every gain, unless a sampled law adds phase lead.
    #[test]
    fn two_integrators_need_phase_lead() {
        for gain in [1e-12, 1e-6, 0.1, 1.0] {
            let system = integrals(gain, &[0.0, 0.0], 1.0, None);
            assert_eq!(system.unstable_roots(&[]), Some(2), "{gain}");
        }
        let sampler = |b: f64| Sampler {
            interval_s: 0.01,
            numerator: vec![1.0, -b],
            denominator: vec![1.0, -1.0],
        };
        for (gain, b, roots) in [
            (0.1, 0.9995, 0),
            (0.1, 1.0005, 1),
            (0.1, 0.9, 2),
            (3.0, 0.9995, 2),
        ] {
            let system = integrals(gain, &[0.0], 1.0, Some(sampler(b)));
            assert_eq!(system.unstable_roots(&[]), Some(roots), "{gain} {b}");
        }
    }

    fn proportional(gain: f64, interval_s: f64) -> Sampler {
        Sampler {
            interval_s,
            numerator: vec![gain],
            denominator: vec![1.0],
        }
    }

    /// k·e^{−s}/(s + 1) is on the boundary with k = √(1 + ω²) where tan ω = −ω: at ω = 2.028758 with
    /// k = 2.261826, then at 7.978666 with k = 8.041086.
    #[test]
    fn a_lag_with_a_delay_has_the_known_unstable_poles() {
        for (gain, roots) in [(2.26, 0), (2.263, 2), (8.03, 2), (8.05, 4)] {
            let system = integrals(gain, &[1.0], 1.0, None);
            assert_eq!(system.unstable_roots(&[]), Some(roots), "{gain}");
            // The same loop a million times slower and faster.
            for scale in [1e-6, 1e6] {
                let system = integrals(gain * scale, &[scale], 1.0 / scale, None);
                assert_eq!(system.unstable_roots(&[]), Some(roots), "{gain} {scale}");
            }
        }
    }

    /// k/((s + a)(s + b)(s + c)) without a delay is stable up to k = (a + b)(b + c)(c + a) (Routh);
    /// a delay far below the time constants changes that by its fraction of them.
    #[test]
    fn three_lags_are_stable_up_to_rouths_limit() {
        let limit = 3.0 * 5.0 * 4.0;
        for (gain, roots) in [(0.98 * limit, 0), (1.02 * limit, 2), (30.0 * limit, 2)] {
            let system = integrals(gain, &[1.0, 2.0, 3.0], 1e-4, None);
            assert_eq!(system.unstable_roots(&[]), Some(roots), "{gain}");
        }
        // Poles in pairs: 1 ± 2j and 3, with Routh's limit (p1 + p2)|p1 + p3|² = 2·20.
        for (gain, roots) in [(39.0, 0), (41.0, 2)] {
            let mut system = integrals(gain, &[3.0], 1e-4, None);
            system.paths[0]
                .poles
                .extend([Complex64::new(1.0, 2.0), Complex64::new(1.0, -2.0)]);
            assert_eq!(system.unstable_roots(&[]), Some(roots), "{gain}");
        }
    }

    /// Poles whose time constants are a hundred million apart, in a loop whose crossover is between
    /// them: k·e^{−s}/((s + 1e-8)(s + 100)) ≈ (k/100)·e^{−s}/s with a further delay of 10 ms, whose
    /// limit is (π/2)/1.01.
    #[test]
    fn time_constants_far_apart_are_resolved() {
        for (gain, roots) in [(154.0, 0), (157.0, 2)] {
            let system = integrals(gain, &[1e-8, 100.0], 1.0, None);
            assert_eq!(system.unstable_roots(&[]), Some(roots), "{gain}");
        }
    }

    /// With samples at intervals of T, k/s has the closed-loop poles z² − z + kT = 0 with a delay of
    /// T, whose product is kT; z² + (kT/2 − 1)z + kT/2 = 0 with half of it; and z = 1 − kT with a
    /// delay far below T. They leave the unit circle at kT = 1, at kT = 2, and at kT = 2 with z = −1.
    #[test]
    fn a_sampled_integrator_has_the_poles_of_its_polynomial() {
        for (delay, gain, roots) in [
            (1.0, 0.99, 0),
            (1.0, 1.01, 2),
            (0.5, 1.98, 0),
            (0.5, 2.02, 2),
            (1e-6, 1.98, 0),
            (1e-6, 2.02, 1),
            (1e-6, 30.0, 1),
        ] {
            for interval_s in [0.02, 5.0] {
                let sampler = proportional(gain / interval_s, interval_s);
                let system = integrals(1.0, &[0.0], delay * interval_s, Some(sampler));
                assert_eq!(system.unstable_roots(&[]), Some(roots), "{delay} {gain}");
            }
        }
    }

    /// A direct and a fast sampled gain are in parallel: k·e^{−s}/s with the sum of both, whose first
    /// two limits are π/2 and 5π/2.
    #[test]
    fn a_hybrid_loop_with_a_fast_sampler_has_the_poles_of_the_sum_of_its_gains() {
        for (direct, sampled, roots) in [
            (0.1, 1.45, 0),
            (1.45, 0.1, 0),
            (0.8, 0.8, 2),
            (2.0, -1.0, 0),
            (4.0, 4.0, 4),
            // The direct part alone is close to its limit, so that the sampler sees a narrow peak.
            (FRAC_PI_2 - 1e-6, -0.05, 0),
            (FRAC_PI_2 + 1e-6, -0.05, 0),
            (FRAC_PI_2 - 1e-6, 0.05, 2),
            (FRAC_PI_2 + 1e-6, 0.05, 2),
        ] {
            let system = Loop {
                direct,
                hybrid: true,
                ..integrals(1.0, &[0.0], 1.0, Some(proportional(sampled, 0.01)))
            };
            let folds: Vec<i32> = (-60..=60).filter(|fold| *fold != 0).collect();
            assert_eq!(
                system.unstable_roots(&folds),
                Some(roots),
                "{direct} {sampled}"
            );
        }
    }

    #[test]
    fn a_gain_of_zero_leaves_no_unstable_pole() {
        let system = integrals(0.0, &[1.0, 2.0], 1.0, None);
        assert_eq!(system.unstable_roots(&[]), Some(0));
    }

    #[test]
    fn a_pole_on_the_boundary_is_reported_as_such() {
        // With z² − z + 1 = 0 both poles are on the unit circle.
        let on_the_circle = integrals(1.0, &[0.0], 1.0, Some(proportional(1.0, 1.0)));
        assert_eq!(on_the_circle.unstable_roots(&[]), None);
        // π/2 is the limit of an integrator with a delay.
        let limit = integrals(FRAC_PI_2, &[0.0], 1.0, None);
        assert_eq!(limit.unstable_roots(&[]), None);
    }

    #[test]
    fn a_loop_knows_its_longest_and_its_shortest_delay() {
        let mut system = integrals(1.0, &[0.0], 0.3, None);
        assert_eq!((system.shortest_s(), system.longest_s()), (0.3, 0.3));
        let second = Path {
            delay_s: 0.7,
            ..system.paths[0].clone()
        };
        system.paths.push(second);
        assert_eq!((system.shortest_s(), system.longest_s()), (0.3, 0.7));
        // Two paths of an integrator: (e^{−0.3s} + e^{−0.7s})/s = 2cos(0.2ω)·e^{−0.5s}/s, whose
        // angle is −π at ω = π with a size of 2cos(0.2π)/π = 0.515.
        for (gain, roots) in [(1.9, 0), (1.98, 2)] {
            for path in &mut system.paths {
                path.gain = gain;
            }
            assert_eq!(system.unstable_roots(&[]), Some(roots), "{gain}");
        }
    }

    /// Halfway along a quarter of a circle around zero, from there to the axis, and along the axis.
    #[test]
    fn the_midpoint_of_two_points_of_the_contour_is_on_the_contour() {
        let at = |size: f64, degrees: f64| Complex64::from_polar(size, degrees.to_radians());
        let axis = |omega: f64| Complex64::new(0.0, omega);
        for (from, to, expected) in [
            (at(2.0, 20.0), at(2.0, 50.0), at(2.0, 35.0)),
            (at(2.0, 80.0), axis(2.0), at(2.0, 85.0)),
            (axis(2.0), axis(5.0), axis(3.5)),
        ] {
            let middle = midpoint(from, to);
            assert!((middle - expected).norm() < 1e-12, "{middle} {expected}");
        }
    }
}
