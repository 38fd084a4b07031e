//! The gain of a sampled loop at any complex s.
//!
//! A law acts on the (averaged) queue at once with the gain d, and through D(z), sampled every T and
//! held. With G(s) for plant, delay and average:
//!
//! - without D the loop is continuous: L = d·G;
//! - without d it is discrete: L = D(z)·Z{H·G}, the pulse transfer function of hold, delay and plant;
//! - with both, the part that acts at once closes a loop of its own, and the sampler sees
//!   G/(1 + d·G) instead of G: L_s = D(z)·Z{H·G/(1 + d·G)}.
//!
//! Z folds every frequency above half the sampling frequency back, by Poisson's sum
//! Z{F} = (1/T)·Σ F(s + 2πjm/T). Of H·G it has a closed form; what the inner loop changes in it,
//! −H·d·G²/(1 + d·G), falls with the seventh power of frequency where G has three poles, so that a few
//! terms are the sum.

use std::f64::consts::TAU;

use num_complex::Complex64;

const ONE: Complex64 = Complex64::ONE;

/// A way from the law's output to its input: gain·e^{−s·delay}/((s + p1)…(s + pn)), or
/// gain·e^{−s·delay}·Σ share/(s + pole).
#[derive(Clone, Debug)]
pub struct Path {
    pub gain: f64,
    pub poles: Vec<Complex64>,
    /// One for each pole; `None` for the product. Paths with shares have the same poles.
    pub shares: Option<Vec<Complex64>>,
    pub delay_s: f64,
}

/// D and its interval.
#[derive(Clone, Debug)]
pub struct Sampler {
    pub interval_s: f64,
    /// In z⁰, z⁻¹, ….
    pub numerator: Vec<f64>,
    pub denominator: Vec<f64>,
}

/// A loop. The law acts both ways where there are a sampler and `hybrid`.
#[derive(Clone, Debug)]
pub struct Loop {
    /// One at least.
    pub paths: Vec<Path>,
    pub direct: f64,
    pub sampler: Option<Sampler>,
    pub hybrid: bool,
}

/// Least number of terms of Poisson's sum to each side by the plant's poles, for a sampler much
/// quicker than the RTT: the fewer poles, the slower its terms fall.
fn least_folds(poles: usize) -> f64 {
    match poles {
        1 => 60.0,
        2 => 6.0,
        _ => 2.0,
    }
}

impl Loop {
    /// Terms of Poisson's sum to each side that are enough.
    pub fn most_folds(&self) -> i32 {
        let Some(sampler) = &self.sampler else {
            return 0;
        };
        let poles = self.paths.iter().map(|path| path.poles.len()).min();
        let shortest = self.paths.iter().map(|path| path.delay_s);
        let shortest_s = shortest.fold(f64::INFINITY, f64::min);
        let more = (sampler.interval_s / shortest_s).ceil();
        whole(least_folds(poles.unwrap_or(0)) + more)
    }

    /// Ready to be asked at many frequencies, with these terms of Poisson's sum beside the first.
    pub fn response<'a>(&'a self, folds: &'a [i32]) -> Response<'a> {
        let pulses = self.sampler.as_ref().map(|sampler| {
            let pulse = |path: &Path| Pulse::new(path, sampler.interval_s);
            self.paths.iter().map(pulse).collect()
        });
        Response {
            of: self,
            folds,
            pulses: pulses.unwrap_or_default(),
            with_shares: self.paths.iter().all(|path| path.shares.is_some()),
        }
    }
}

/// A number of terms, held to what can be summed.
#[allow(
    clippy::cast_possible_truncation,
    reason = "held to far less than an i32 has"
)]
fn whole(terms: f64) -> i32 {
    terms.clamp(0.0, 1e6) as i32
}

/// What a path's modes gain in an interval.
struct Pulse {
    /// Of the delay: whole intervals.
    whole: f64,
    modes: Vec<Mode>,
}

/// r·Γ0, r·Γ1, p and e^{−pT} of a mode r/(s + p).
struct Mode {
    new: Complex64,
    old: Complex64,
    pole: Complex64,
    decay: Complex64,
}

impl Mode {
    /// 1/(1 − e^{−pT}z⁻¹), also where z⁻¹ is next to e^{pT}.
    fn decayed(&self, s: Complex64, z_1: Complex64, interval_s: f64) -> Complex64 {
        let gap = ONE - self.decay * z_1;
        reciprocal(if gap.norm_sqr() > 1e-8 {
            gap
        } else {
            -exp_m1(-(s + self.pole) * interval_s)
        })
    }
}

/// (1 − e^{−p·t})/p: what a mode rises to in a time with an input of one.
fn rise(pole: Complex64, time_s: f64) -> Complex64 {
    if pole == Complex64::ZERO {
        time_s.into()
    } else {
        -exp_m1(-pole * time_s) / pole
    }
}

impl Pulse {
    /// With R = nT + δ each mode becomes r(Γ0 z⁻ⁿ⁻¹ + Γ1 z⁻ⁿ⁻²)/(1 − e^{−pT}z⁻¹) (Åström and
    /// Wittenmark, Computer-Controlled Systems, section 2.3): an interval starts with the input held
    /// before, for δ.
    fn new(path: &Path, interval_s: f64) -> Pulse {
        let whole = (path.delay_s / interval_s + 1e-9).floor();
        let rest_s = (path.delay_s - whole * interval_s).max(0.0);
        let left_s = interval_s - rest_s;
        let mode = |(residue, pole): (Complex64, Complex64)| {
            let new = rise(pole, left_s);
            let old = (-pole * left_s).exp() * rise(pole, rest_s);
            Mode {
                new: residue * new,
                old: residue * old,
                pole,
                decay: (-pole * interval_s).exp(),
            }
        };
        Pulse {
            whole,
            modes: path.residues().map(mode).collect(),
        }
    }
}

impl Path {
    /// (r, p) of the partial fractions Σ r/(s + p).
    fn residues(&self) -> impl Iterator<Item = (Complex64, Complex64)> + '_ {
        self.poles.iter().enumerate().map(|(i, pole)| {
            let residue = match &self.shares {
                Some(shares) => self.gain * shares[i],
                None => {
                    let others = self.poles.iter().enumerate().filter(|(j, _)| *j != i);
                    let start = Complex64::new(self.gain, 0.0);
                    others.fold(start, |residue, (_, other)| residue / (other - pole))
                }
            };
            (residue, *pole)
        })
    }
}

/// e^x − 1 without loss of digits near zero.
fn exp_m1(x: Complex64) -> Complex64 {
    let half = (0.5 * x.im).sin();
    let real = x.re.exp_m1() * x.im.cos() - 2.0 * half * half;
    Complex64::new(real, x.re.exp() * x.im.sin())
}

/// e^{−s·delay}.
fn late(s: Complex64, delay_s: f64) -> Complex64 {
    let (sin, cos) = (s.im * delay_s).sin_cos();
    let turned = Complex64::new(cos, -sin);
    if s.re == 0.0 {
        turned
    } else {
        turned * (-s.re * delay_s).exp()
    }
}

/// 1/z, with one division.
fn reciprocal(z: Complex64) -> Complex64 {
    z.conj() * (1.0 / (z.re * z.re + z.im * z.im))
}

/// (1 − e^{−x})/x, with 1 − e^{−x}.
fn held(x: Complex64, rise: Complex64) -> Complex64 {
    if x.norm_sqr() < 1e-8 {
        ONE - x * (0.5 - x / 6.0)
    } else {
        reciprocal(x) * rise
    }
}

/// Σ cᵢ z⁻ⁱ.
fn series(coefficients: &[f64], z_1: Complex64) -> Complex64 {
    let start = Complex64::ZERO;
    coefficients
        .iter()
        .rev()
        .fold(start, |total, c| total * z_1 + c)
}

/// A loop that is asked at many frequencies. Without a sampler, what depends on one is zero.
pub struct Response<'a> {
    of: &'a Loop,
    folds: &'a [i32],
    pulses: Vec<Pulse>,
    with_shares: bool,
}

impl Response<'_> {
    fn interval_s(&self) -> f64 {
        self.of
            .sampler
            .as_ref()
            .map_or(0.0, |sampler| sampler.interval_s)
    }

    /// G(s).
    pub fn plant(&self, s: Complex64) -> Complex64 {
        self.plant_delayed(s, |path| late(s, self.of.paths[path].delay_s))
    }

    /// G(s), with e^{−sR} of each path.
    fn plant_delayed(&self, s: Complex64, delay: impl Fn(usize) -> Complex64) -> Complex64 {
        let paths = &self.of.paths;
        if !self.with_shares {
            let path = |(index, path): (usize, &Path)| {
                let poles = path.poles.iter();
                let below = poles.fold(ONE, |below, pole| below * (s + pole));
                reciprocal(below) * path.gain * delay(index)
            };
            return paths.iter().enumerate().map(path).sum();
        }
        // Paths of several classes share their poles.
        let modes: Vec<Complex64> = paths[0]
            .poles
            .iter()
            .map(|pole| reciprocal(s + pole))
            .collect();
        let path = |(index, path): (usize, &Path)| {
            let shares = path.shares.iter().flatten();
            let sum = shares
                .zip(&modes)
                .map(|(share, mode)| share * mode)
                .sum::<Complex64>();
            path.gain * sum * delay(index)
        };
        paths.iter().enumerate().map(path).sum()
    }

    /// Z{H·G} at z = e^{sT}.
    pub fn pulse(&self, s: Complex64) -> Complex64 {
        self.pulse_at(s, late(s, self.interval_s()))
    }

    fn pulse_at(&self, s: Complex64, z_1: Complex64) -> Complex64 {
        let interval_s = self.interval_s();
        let power = |pulse: &Pulse| late(s * interval_s, pulse.whole + 1.0);
        if !self.with_shares || self.pulses.len() == 1 {
            let mode = |it: &Mode| (it.new + it.old * z_1) * it.decayed(s, z_1, interval_s);
            let path =
                |pulse: &Pulse| power(pulse) * pulse.modes.iter().map(mode).sum::<Complex64>();
            return self.pulses.iter().map(path).sum();
        }
        let powers: Vec<Complex64> = self.pulses.iter().map(power).collect();
        let mode = |k: usize| {
            let paths = self.pulses.iter().zip(&powers);
            let gained = paths.map(|(pulse, power)| {
                let it = &pulse.modes[k];
                (it.new + it.old * z_1) * power
            });
            let first = &self.pulses[0].modes[k];
            gained.sum::<Complex64>() * first.decayed(s, z_1, interval_s)
        };
        (0..self.pulses[0].modes.len()).map(mode).sum()
    }

    /// D(e^{sT}).
    pub fn law(&self, s: Complex64) -> Complex64 {
        self.law_at(late(s, self.interval_s()))
    }

    fn law_at(&self, z_1: Complex64) -> Complex64 {
        self.of.sampler.as_ref().map_or(Complex64::ZERO, |sampler| {
            series(&sampler.numerator, z_1) * reciprocal(series(&sampler.denominator, z_1))
        })
    }

    /// d·G, the loop that the part of the law that acts at once closes.
    pub fn inner(&self, s: Complex64) -> Complex64 {
        self.of.direct * self.plant(s)
    }

    /// L_s at the sampler; the whole loop where nothing acts at once.
    pub fn outer(&self, s: Complex64) -> Complex64 {
        let z_1 = late(s, self.interval_s());
        let mut seen = self.pulse_at(s, z_1);
        if self.of.hybrid {
            seen -= self.folded(s, z_1);
        }
        self.law_at(z_1) * seen
    }

    /// Σ H·d·G²/(1 + d·G) over all that folds to s.
    fn folded(&self, s: Complex64, z_1: Complex64) -> Complex64 {
        let direct = self.of.direct;
        let rise = ONE - z_1;
        let delays = self.delays(s);
        let g = self.plant_delayed(s, |path| delays[path]);
        let hold = held(s * self.interval_s(), rise);
        let unfolded = reciprocal(ONE + direct * g) * g * g * hold * direct;
        let folds = self.folds.iter();
        unfolded
            + folds
                .map(|fold| self.fold(s, *fold, rise, &delays))
                .sum::<Complex64>()
    }

    /// e^{−sR} of each path.
    fn delays(&self, s: Complex64) -> Vec<Complex64> {
        self.of
            .paths
            .iter()
            .map(|path| late(s, path.delay_s))
            .collect()
    }

    /// H·d·G²/(1 + d·G) at s + fold·2πj/T, with 1 − e^{−sT} and e^{−sR} of each path: e^{−sT} is the
    /// same at each.
    fn fold(&self, s: Complex64, fold: i32, rise: Complex64, delays: &[Complex64]) -> Complex64 {
        let (direct, interval_s) = (self.of.direct, self.interval_s());
        let turn = Complex64::new(0.0, TAU * f64::from(fold) / interval_s);
        let there = s + turn;
        let delay = |path: usize| delays[path] * late(turn, self.of.paths[path].delay_s);
        let g = self.plant_delayed(there, delay);
        reciprocal((ONE + direct * g) * there) * g * g * rise * (direct / interval_s)
    }

    /// Of these terms of Poisson's sum, those that are more than a share of what the sampler sees.
    pub fn counted(&self, s: Complex64, folds: &[i32], least_share: f64) -> Vec<i32> {
        let size = least_share * self.pulse(s).norm();
        let rise = ONE - late(s, self.interval_s());
        let delays = self.delays(s);
        let counts = |fold: &i32| self.fold(s, *fold, rise, &delays).norm() > size;
        folds.iter().copied().filter(counts).collect()
    }

    /// H/T = (1 − e^{−sT})/(sT).
    pub fn hold(&self, s: Complex64) -> Complex64 {
        let interval_s = self.interval_s();
        held(s * interval_s, ONE - late(s, interval_s))
    }

    /// What a sine on the queue becomes in the closed loop: 1/(1 + L). With both ways, its component
    /// at the sine's own frequency.
    pub fn sensitivity(&self, s: Complex64) -> Complex64 {
        if !self.of.hybrid {
            return reciprocal(ONE + self.loop_gain(s));
        }
        let g = self.plant(s);
        let at_once = reciprocal(ONE + self.of.direct * g);
        let through_law = self.hold(s) * g * at_once * self.law(s);
        at_once * (ONE - through_law * reciprocal(ONE + self.outer(s)))
    }

    /// L, whose 1 + L is zero at the roots of the closed loop.
    ///
    /// With both ways, 1 + L = (1 + d·G)(1 + L_s): where nothing is folded that is L = (d + D·H/T)·G.
    pub fn loop_gain(&self, s: Complex64) -> Complex64 {
        if self.of.sampler.is_none() {
            return self.inner(s);
        }
        let at_sampler = self.outer(s);
        if !self.of.hybrid {
            return at_sampler;
        }
        let at_once = self.inner(s);
        at_once + (ONE + at_once) * at_sampler
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn real(poles: &[f64]) -> Vec<Complex64> {
        poles
            .iter()
            .map(|pole| Complex64::new(*pole, 0.0))
            .collect()
    }

    fn sampled(direct: f64) -> Loop {
        let path = |gain: f64, delay_s: f64| Path {
            gain,
            poles: real(&[0.5, 4.0, 9.0]),
            shares: None,
            delay_s,
        };
        Loop {
            paths: vec![path(30.0, 0.25), path(5.0, 0.11)],
            direct,
            sampler: Some(Sampler {
                interval_s: 0.02,
                numerator: vec![0.3, -0.29],
                denominator: vec![1.0, -1.0],
            }),
            hybrid: direct != 0.0,
        }
    }

    /// Poisson's sum, term by term: Z{F} = (1/T)·Σ F(s + 2πjm/T).
    fn summed(s: Complex64, interval_s: f64, of: impl Fn(Complex64) -> Complex64) -> Complex64 {
        let term = |m: i32| of(s + Complex64::new(0.0, TAU * f64::from(m) / interval_s));
        (-20_000..=20_000).map(term).sum::<Complex64>() / interval_s
    }

    fn near(got: Complex64, want: Complex64) {
        assert!((got - want).norm() < 1e-7 * want.norm(), "{got} {want}");
    }

    #[test]
    fn the_sampler_sees_what_poissons_sum_says() {
        for direct in [0.0, 0.4] {
            let of = sampled(direct);
            let most = of.most_folds();
            let folds: Vec<i32> = (-most..=most).filter(|fold| *fold != 0).collect();
            let response = of.response(&folds);
            for omega in [0.3, 4.0, 70.0, 150.0] {
                for real in [0.0, 0.7] {
                    let s = Complex64::new(real, omega);
                    let seen = summed(s, 0.02, |s| {
                        let hold = (ONE - (-s * 0.02).exp()) / s;
                        let plant = response.plant(s);
                        hold * plant / (ONE + direct * plant)
                    });
                    near(response.outer(s), response.law(s) * seen);
                    near(response.hold(s), (ONE - (-s * 0.02).exp()) / (s * 0.02));
                }
            }
        }
    }

    /// The same plant by its partial fractions, as paths of several classes have it.
    #[test]
    fn shares_are_partial_fractions() {
        let product = sampled(0.3);
        let mut fractions = product.clone();
        for path in &mut fractions.paths {
            let residues = path.residues().map(|(residue, _)| residue / path.gain);
            path.shares = Some(residues.collect());
        }
        for omega in [0.2, 6.0, 90.0] {
            let s = Complex64::new(0.0, omega);
            let (one, other) = (product.response(&[-1, 1]), fractions.response(&[-1, 1]));
            near(other.plant(s), one.plant(s));
            near(other.pulse(s), one.pulse(s));
            near(other.loop_gain(s), one.loop_gain(s));
            near(other.sensitivity(s), one.sensitivity(s));
        }
    }

    #[test]
    fn folds_that_do_not_count_are_left_out() {
        let of = sampled(0.3);
        let response = of.response(&[]);
        let s = Complex64::new(0.0, 2.0);
        let every: Vec<i32> = (-15..=15).filter(|fold| *fold != 0).collect();
        let few = response.counted(s, &every, 1e-8);
        assert!(few.len() < every.len(), "{few:?}");
        near(of.response(&few).outer(s), of.response(&every).outer(s));
        assert!(response.counted(s, &every, 1.0).is_empty());
    }

    /// Without a sampler a loop is d·G, and a sine in it becomes 1/(1 + d·G).
    #[test]
    fn a_continuous_loop() {
        let of = Loop {
            sampler: None,
            hybrid: false,
            ..sampled(0.2)
        };
        let s = Complex64::new(0.1, 3.0);
        let response = of.response(&[]);
        let gain = |gain: f64, delay_s: f64| {
            let poles = [0.5, 4.0, 9.0].iter();
            (-s * delay_s).exp() * gain / poles.map(|pole| s + pole).product::<Complex64>()
        };
        let want = 0.2 * (gain(30.0, 0.25) + gain(5.0, 0.11));
        near(response.loop_gain(s), want);
        near(response.sensitivity(s), ONE / (ONE + want));
    }
}
