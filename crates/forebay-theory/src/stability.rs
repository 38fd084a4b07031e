//! Stability by Nyquist's count: how often 1 + L turns about zero.
//!
//! The line of s goes up the imaginary axis, and passes poles at zero on their right by a quarter of
//! a circle, which starts on the real axis. So any number of integrals may be in law and plant.

use std::f64::consts::{FRAC_PI_2, PI};

use num_complex::Complex64;

use crate::frequency_response::{Loop, Response};

/// Largest turn of 1 + L between two places of the line, in rad.
const TURN: f64 = 0.5;
/// Beyond the last frequency at which |L| is this large, no crossing matters.
const SMALL: f64 = 0.2;
/// Most places of the line.
const MOST: usize = 1_200_000;
/// Poles below this share of the longest delay's rate count as at zero.
const AT_ZERO: f64 = 1e-9;

impl Loop {
    pub fn longest_s(&self) -> f64 {
        self.paths
            .iter()
            .map(|path| path.delay_s)
            .fold(0.0, f64::max)
    }

    pub fn shortest_s(&self) -> f64 {
        let delays = self.paths.iter().map(|path| path.delay_s);
        delays.fold(f64::INFINITY, f64::min)
    }

    /// The smallest pole that is not at zero, in size.
    fn slowest(&self) -> f64 {
        let least = AT_ZERO / self.longest_s();
        let poles = self.paths.iter().flat_map(|path| &path.poles);
        let sizes = poles.map(|pole| pole.norm()).filter(|size| *size > least);
        sizes.fold(f64::INFINITY, f64::min)
    }

    /// How many roots of the closed loop grow; `None` where one is on the edge, to rounding.
    ///
    /// The law's own poles are stable, or at z = 1.
    pub fn unstable_roots(&self, folds: &[i32]) -> Option<i32> {
        let response = self.response(folds);
        let at_once = |s| response.inner(s);
        let mut count = 0;
        if self.sampler.is_none() || self.hybrid {
            count += self.zeros_less_poles(&at_once, None, quiet_from(&response, self))?;
        }
        if let Some(sampler) = &self.sampler {
            // A root of the inner loop is a pole of what the sampler sees. One near the axis is a
            // peak that two frequencies may have between them, but 1 + d·G turns by half a circle
            // there.
            let peaks: Option<&Gain> = if self.hybrid { Some(&at_once) } else { None };
            let outer = |s| response.outer(s);
            count += self.zeros_less_poles(&outer, peaks, PI / sampler.interval_s)?;
        }
        Some(count)
    }

    /// Zeros less poles of 1 + L to the right, by how its angle turns up to a frequency. `peaks`:
    /// another gain of which 1 + it has to turn little between two places.
    fn zeros_less_poles(&self, gain: &Gain, peaks: Option<&Gain>, high: f64) -> Option<i32> {
        let seen = |s: Complex64| {
            let other = peaks.map_or(Complex64::ONE, |gain| gain(s));
            [1.0 + gain(s), 1.0 + other]
        };
        let mut turned = 0.0;
        let mut asked = 0;
        let mut last: Option<(Complex64, [Complex64; 2])> = None;
        for s in self.line(gain, high) {
            // Places between the last and this one, the next on top.
            let mut ahead = vec![s];
            let (mut from, mut at) = match last {
                Some(last) => last,
                None => (s, seen(s)),
            };
            while let Some(to) = ahead.pop() {
                let there = seen(to);
                asked += 1;
                if asked > MOST || there[0].norm_sqr() == 0.0 {
                    return None;
                }
                let turn = (there[0] / at[0]).arg();
                let wide = turn.abs().max((there[1] / at[1]).arg().abs());
                if wide <= TURN {
                    turned += turn;
                    (from, at) = (to, there);
                    continue;
                }
                let middle = between(from, to);
                if middle == from || middle == to {
                    return None;
                }
                ahead.extend([to, middle]);
            }
            last = Some((from, at));
        }
        let count = -turned / PI;
        if (count - count.round()).abs() > 0.2 {
            return None;
        }
        #[allow(clippy::cast_possible_truncation, reason = "at most MOST turns")]
        Some(count.round() as i32)
    }

    /// Places from the real axis on: around poles at zero, then up the imaginary axis evenly in the
    /// logarithm, and evenly where the delay turns a curve that is not yet small.
    fn line(&self, gain: &Gain, high: f64) -> Vec<Complex64> {
        let size = |omega: f64| gain(Complex64::new(0.0, omega)).norm();
        let mut low = 1e-4 * self.slowest().min(1.0 / self.longest_s()).min(high);
        // Within the circle an integral is all that there is.
        for _ in 0..8 {
            let (now, below) = (size(low), size(0.1 * low));
            if now > 1e3 || below < 3.0 * now {
                break;
            }
            low *= 0.1;
        }
        let steps = |count: u32| (0..=count).map(move |k| f64::from(k) / f64::from(count));
        let decades = (high / low).log10();
        let coarse: Vec<f64> = steps(count_of(25.0 * decades))
            .map(|share| low * (high / low).powf(share))
            .collect();
        let loud = coarse.iter().rposition(|omega| size(*omega) > SMALL);
        let last = loud.map_or(low, |k| coarse[(k + 1).min(coarse.len() - 1)]);
        // Half a radian of the delay, to which the sampler adds.
        let interval_s = self.sampler.as_ref().map_or(0.0, |it| it.interval_s);
        let even = count_of(2.0 * last * (self.longest_s() + interval_s));
        let mut axis: Vec<f64> = steps(even)
            .map(|share| low + share * (last - low))
            .collect();
        axis.extend(coarse);
        axis.sort_unstable_by(f64::total_cmp);
        axis.dedup();
        let circle = steps(16).map(|share| Complex64::from_polar(low, share * FRAC_PI_2));
        let mut line: Vec<Complex64> = circle.collect();
        line.extend(axis.into_iter().map(|omega| Complex64::new(0.0, omega)));
        line
    }
}

type Gain<'a> = dyn Fn(Complex64) -> Complex64 + 'a;

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "held to what can be counted"
)]
fn count_of(steps: f64) -> u32 {
    steps.ceil().clamp(1.0, 60_000.0) as u32
}

/// Between two places of the line.
fn between(from: Complex64, to: Complex64) -> Complex64 {
    if to.re > 0.0 {
        Complex64::from_polar(from.norm(), 0.5 * (from.arg() + to.arg()))
    } else if from.re > 0.0 {
        Complex64::from_polar(from.norm(), 0.5 * (from.arg() + FRAC_PI_2))
    } else {
        Complex64::new(0.0, 0.5 * (from.im + to.im))
    }
}

/// Where |d·G|, which only falls, has come below a tenth.
fn quiet_from(response: &Response, of: &Loop) -> f64 {
    let mut high = 1.0 / of.shortest_s();
    while response.inner(Complex64::new(0.0, high)).norm() > 0.1 {
        high *= 2.0;
    }
    high
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frequency_response::{Path, Sampler};

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

    /// k·e^{−s}/s is stable up to k = π/2, and has two roots more to the right every 2π.
    #[test]
    fn an_integral_with_a_delay() {
        for (gain, roots) in [
            (0.01, 0),
            (1.57, 0),
            (1.58, 2),
            (7.8, 2),
            (7.9, 4),
            (40.0, 14),
        ] {
            let it = integrals(gain, &[0.0], 1.0, None);
            assert_eq!(it.unstable_roots(&[]), Some(roots), "{gain}");
        }
    }

    /// Two integrals without lead never settle, with whatever gain; with lead of a sampled law, they
    /// do.
    #[test]
    fn two_integrals() {
        for gain in [1e-12, 1e-6, 0.1, 1.0] {
            let it = integrals(gain, &[0.0, 0.0], 1.0, None);
            assert_eq!(it.unstable_roots(&[]), Some(2), "{gain}");
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
            let it = integrals(gain, &[0.0], 1.0, Some(sampler(b)));
            assert_eq!(it.unstable_roots(&[]), Some(roots), "{gain} {b}");
        }
    }
}
