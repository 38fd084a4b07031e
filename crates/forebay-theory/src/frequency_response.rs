//! The gain of a sampled loop at any complex s.
//!
//! A law acts on the (averaged) queue directly with the gain d, and through D(z), sampled every T
//! with a zero-order hold H. G(s) is the transfer function of plant, delay and average.
//!
//! - Without D the loop is continuous: L = d·G.
//! - Without d it is discrete: L = D(z)·Z{H·G}, with the pulse transfer function of hold, delay and
//!   plant.
//! - With both, the direct part closes an inner loop, and the sampler sees G/(1 + d·G) instead of
//!   G: L_s = D(z)·Z{H·G/(1 + d·G)}.
//!
//! Z aliases frequencies above half the sampling frequency by Poisson's sum, Z{F} = (1/T)·Σ F(s +
//! 2πjm/T). For H·G the sum has a closed form. The difference due to the inner loop, −H·d·G²/(1 +
//! d·G), decreases with the seventh power of the frequency if G has three poles, so that a few
//! alias terms suffice.

use std::f64::consts::TAU;

use num_complex::Complex64;

const ONE: Complex64 = Complex64::ONE;

/// A path from the law's output to its input: gain·e^{−s·delay}/((s + p1)…(s + pn)), or
/// gain·e^{−s·delay}·Σ share/(s + pole).
#[derive(Clone, Debug)]
pub struct Path {
    /// The gain.
    pub gain: f64,
    /// The poles p1, …, pn, with the sign of s + p.
    pub poles: Vec<Complex64>,
    /// The numerators of partial fractions, one for each pole; `None` for the product form. All
    /// paths of a loop in this form must have the same poles.
    pub shares: Option<Vec<Complex64>>,
    /// The dead time.
    pub delay_s: f64,
}

/// The sampled part D(z) of a law.
#[derive(Clone, Debug)]
pub struct Sampler {
    /// The sampling interval T.
    pub interval_s: f64,
    /// The coefficients of z⁰, z⁻¹, … in the numerator.
    pub numerator: Vec<f64>,
    /// The coefficients of z⁰, z⁻¹, … in the denominator.
    pub denominator: Vec<f64>,
}

/// A loop of plant and law.
#[derive(Clone, Debug)]
pub struct Loop {
    /// The paths of the plant, at least one.
    pub paths: Vec<Path>,
    /// The direct gain d of the law.
    pub direct: f64,
    /// The sampled part of the law.
    pub sampler: Option<Sampler>,
    /// True if the law acts both directly and through the sampler.
    pub hybrid: bool,
}

/// Returns the number of alias terms on each side for a sampler much faster than the RTT. With
/// fewer poles of the plant, the terms decrease more slowly.
fn min_aliases(poles: usize) -> f64 {
    match poles {
        1 => 60.0,
        2 => 6.0,
        _ => 2.0,
    }
}

impl Loop {
    /// Returns the number of alias terms on each side that suffice.
    pub fn most_folds(&self) -> i32 {
        let Some(sampler) = &self.sampler else {
            return 0;
        };
        let poles = self.paths.iter().map(|path| path.poles.len()).min();
        let shortest = self.paths.iter().map(|path| path.delay_s);
        let shortest_s = shortest.fold(f64::INFINITY, f64::min);
        let further = (sampler.interval_s / shortest_s).ceil();
        term_count(min_aliases(poles.unwrap_or(0)) + further)
    }

    /// Prepares the evaluation at many frequencies. `folds` are the alias terms m ≠ 0 to include.
    pub fn response<'a>(&'a self, folds: &'a [i32]) -> Response<'a> {
        let pulses = self.sampler.as_ref().map(|sampler| {
            let pulse = |path: &Path| Pulse::new(path, sampler.interval_s);
            self.paths.iter().map(pulse).collect()
        });
        Response {
            system: self,
            folds,
            pulses: pulses.unwrap_or_default(),
            with_shares: self.paths.iter().all(|path| path.shares.is_some()),
        }
    }
}

/// Returns a number of terms as an integer, at most a million.
#[allow(
    clippy::cast_possible_truncation,
    reason = "limited to far less than i32::MAX"
)]
fn term_count(terms: f64) -> i32 {
    terms.clamp(0.0, 1e6) as i32
}

/// The pulse transfer function of a path.
struct Pulse {
    /// The number of whole intervals in the delay.
    whole: f64,
    modes: Vec<Mode>,
}

/// The discretisation of a mode r/(s + p).
struct Mode {
    /// r·Γ0: the response to the input held in this interval.
    new: Complex64,
    /// r·Γ1: the response to the input held in the interval before.
    old: Complex64,
    /// p.
    pole: Complex64,
    /// e^{−pT}.
    decay: Complex64,
}

impl Mode {
    /// Returns 1/(1 − e^{−pT}z⁻¹), accurately even if z⁻¹ is close to e^{pT}.
    fn decayed(&self, s: Complex64, z_1: Complex64, interval_s: f64) -> Complex64 {
        let gap = ONE - self.decay * z_1;
        reciprocal(if gap.norm_sqr() > 1e-8 {
            gap
        } else {
            -exp_m1(-(s + self.pole) * interval_s)
        })
    }
}

/// Returns (1 − e^{−p·t})/p: the response of a mode after time t to an input of one.
fn rise(pole: Complex64, time_s: f64) -> Complex64 {
    if pole == Complex64::ZERO {
        time_s.into()
    } else {
        -exp_m1(-pole * time_s) / pole
    }
}

impl Pulse {
    /// Discretises a path. With R = nT + δ each mode becomes
    /// r(Γ0 z⁻ⁿ⁻¹ + Γ1 z⁻ⁿ⁻²)/(1 − e^{−pT}z⁻¹) (Åström and Wittenmark, Computer-Controlled Systems,
    /// section 2.3): for the first δ of an interval, the input of the interval before acts.
    fn new(path: &Path, interval_s: f64) -> Pulse {
        let whole = (path.delay_s / interval_s + 1e-9).floor();
        let rest_s = (path.delay_s - whole * interval_s).max(0.0);
        let new_s = interval_s - rest_s;
        let mode = |(residue, pole): (Complex64, Complex64)| {
            let new = rise(pole, new_s);
            let old = (-pole * new_s).exp() * rise(pole, rest_s);
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
    /// Returns (r, p) of the partial fractions Σ r/(s + p).
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

/// Returns e^x − 1, accurately near zero.
fn exp_m1(x: Complex64) -> Complex64 {
    let half = (0.5 * x.im).sin();
    let real = x.re.exp_m1() * x.im.cos() - 2.0 * half * half;
    Complex64::new(real, x.re.exp() * x.im.sin())
}

/// Returns e^{−s·delay}.
fn dead_time(s: Complex64, delay_s: f64) -> Complex64 {
    let (sin, cos) = (s.im * delay_s).sin_cos();
    let phasor = Complex64::new(cos, -sin);
    if s.re == 0.0 {
        phasor
    } else {
        phasor * (-s.re * delay_s).exp()
    }
}

/// Returns 1/z, with one division.
fn reciprocal(z: Complex64) -> Complex64 {
    z.conj() * (1.0 / (z.re * z.re + z.im * z.im))
}

/// Returns (1 − e^{−x})/x; `rise` is 1 − e^{−x}.
fn hold_gain(x: Complex64, rise: Complex64) -> Complex64 {
    if x.norm_sqr() < 1e-8 {
        ONE - x * (0.5 - x / 6.0)
    } else {
        reciprocal(x) * rise
    }
}

/// Returns Σ cᵢ z⁻ⁱ.
fn series(coefficients: &[f64], z_1: Complex64) -> Complex64 {
    let start = Complex64::ZERO;
    coefficients
        .iter()
        .rev()
        .fold(start, |total, c| total * z_1 + c)
}

/// A loop prepared for evaluation at many frequencies. Without a sampler, its sampled terms are
/// zero.
pub struct Response<'a> {
    system: &'a Loop,
    folds: &'a [i32],
    pulses: Vec<Pulse>,
    with_shares: bool,
}

impl Response<'_> {
    /// Returns the sampling interval; zero without a sampler.
    fn interval_s(&self) -> f64 {
        self.system
            .sampler
            .as_ref()
            .map_or(0.0, |sampler| sampler.interval_s)
    }

    /// Returns G(s).
    pub fn plant(&self, s: Complex64) -> Complex64 {
        self.plant_delayed(s, |path| dead_time(s, self.system.paths[path].delay_s))
    }

    /// Returns G(s), where `delay` returns e^{−sR} of each path.
    fn plant_delayed(&self, s: Complex64, delay: impl Fn(usize) -> Complex64) -> Complex64 {
        let paths = &self.system.paths;
        if !self.with_shares {
            let path = |(index, path): (usize, &Path)| {
                let poles = path.poles.iter();
                let denominator = poles.fold(ONE, |product, pole| product * (s + pole));
                reciprocal(denominator) * path.gain * delay(index)
            };
            return paths.iter().enumerate().map(path).sum();
        }
        // The paths of several classes have the same poles.
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

    /// Returns Z{H·G} at z = e^{sT}.
    pub fn pulse(&self, s: Complex64) -> Complex64 {
        self.pulse_at(s, dead_time(s, self.interval_s()))
    }

    fn pulse_at(&self, s: Complex64, z_1: Complex64) -> Complex64 {
        let interval_s = self.interval_s();
        let power = |pulse: &Pulse| dead_time(s * interval_s, pulse.whole + 1.0);
        if !self.with_shares || self.pulses.len() == 1 {
            let mode = |mode: &Mode| (mode.new + mode.old * z_1) * mode.decayed(s, z_1, interval_s);
            let path =
                |pulse: &Pulse| power(pulse) * pulse.modes.iter().map(mode).sum::<Complex64>();
            return self.pulses.iter().map(path).sum();
        }
        let powers: Vec<Complex64> = self.pulses.iter().map(power).collect();
        let mode = |k: usize| {
            let paths = self.pulses.iter().zip(&powers);
            let gained = paths.map(|(pulse, power)| {
                let mode = &pulse.modes[k];
                (mode.new + mode.old * z_1) * power
            });
            let first = &self.pulses[0].modes[k];
            gained.sum::<Complex64>() * first.decayed(s, z_1, interval_s)
        };
        (0..self.pulses[0].modes.len()).map(mode).sum()
    }

    /// Returns D(e^{sT}).
    pub fn law(&self, s: Complex64) -> Complex64 {
        self.law_at(dead_time(s, self.interval_s()))
    }

    fn law_at(&self, z_1: Complex64) -> Complex64 {
        self.system
            .sampler
            .as_ref()
            .map_or(Complex64::ZERO, |sampler| {
                series(&sampler.numerator, z_1) * reciprocal(series(&sampler.denominator, z_1))
            })
    }

    /// Returns d·G, the gain of the inner loop that the direct part of the law closes.
    pub fn inner(&self, s: Complex64) -> Complex64 {
        self.system.direct * self.plant(s)
    }

    /// Returns the loop gain at the sampler, L_s; without a direct part, this is the whole loop.
    pub fn outer(&self, s: Complex64) -> Complex64 {
        let z_1 = dead_time(s, self.interval_s());
        let mut pulse = self.pulse_at(s, z_1);
        if self.system.hybrid {
            pulse -= self.inner_loop_terms(s, z_1);
        }
        self.law_at(z_1) * pulse
    }

    /// Returns Σ H·d·G²/(1 + d·G) over s and its aliases.
    fn inner_loop_terms(&self, s: Complex64, z_1: Complex64) -> Complex64 {
        let direct = self.system.direct;
        let rise = ONE - z_1;
        let delays = self.delays(s);
        let g = self.plant_delayed(s, |path| delays[path]);
        let hold = hold_gain(s * self.interval_s(), rise);
        let baseband = reciprocal(ONE + direct * g) * g * g * hold * direct;
        let folds = self.folds.iter();
        baseband
            + folds
                .map(|fold| self.alias(s, *fold, rise, &delays))
                .sum::<Complex64>()
    }

    /// Returns e^{−sR} of each path.
    fn delays(&self, s: Complex64) -> Vec<Complex64> {
        self.system
            .paths
            .iter()
            .map(|path| dead_time(s, path.delay_s))
            .collect()
    }

    /// Returns H·d·G²/(1 + d·G) at the alias s + fold·2πj/T. `rise` is 1 − e^{−sT}, which all
    /// aliases share, and `delays` are e^{−sR} of each path.
    fn alias(&self, s: Complex64, fold: i32, rise: Complex64, delays: &[Complex64]) -> Complex64 {
        let (direct, interval_s) = (self.system.direct, self.interval_s());
        let shift = Complex64::new(0.0, TAU * f64::from(fold) / interval_s);
        let alias = s + shift;
        let delay = |path: usize| delays[path] * dead_time(shift, self.system.paths[path].delay_s);
        let g = self.plant_delayed(alias, delay);
        reciprocal((ONE + direct * g) * alias) * g * g * rise * (direct / interval_s)
    }

    /// Returns the alias terms among `folds` that are larger than the fraction `threshold` of the
    /// pulse transfer function.
    pub fn counted(&self, s: Complex64, folds: &[i32], threshold: f64) -> Vec<i32> {
        let size = threshold * self.pulse(s).norm();
        let rise = ONE - dead_time(s, self.interval_s());
        let delays = self.delays(s);
        let is_relevant = |fold: &i32| self.alias(s, *fold, rise, &delays).norm() > size;
        folds.iter().copied().filter(is_relevant).collect()
    }

    /// Returns the gain of the hold, H/T = (1 − e^{−sT})/(sT).
    pub fn hold(&self, s: Complex64) -> Complex64 {
        let interval_s = self.interval_s();
        hold_gain(s * interval_s, ONE - dead_time(s, interval_s))
    }

    /// Returns the sensitivity 1/(1 + L): the response of the closed loop to a sine added to the
    /// queue. For a hybrid loop, this is the component at the frequency of the sine.
    pub fn sensitivity(&self, s: Complex64) -> Complex64 {
        if !self.system.hybrid {
            return reciprocal(ONE + self.loop_gain(s));
        }
        let g = self.plant(s);
        let inner = reciprocal(ONE + self.system.direct * g);
        let through_law = self.hold(s) * g * inner * self.law(s);
        inner * (ONE - through_law * reciprocal(ONE + self.outer(s)))
    }

    /// Returns the loop gain L. 1 + L is zero at the poles of the closed loop.
    ///
    /// For a hybrid loop, 1 + L = (1 + d·G)(1 + L_s). Without aliasing this is L = (d + D·H/T)·G.
    pub fn loop_gain(&self, s: Complex64) -> Complex64 {
        if self.system.sampler.is_none() {
            return self.inner(s);
        }
        let outer = self.outer(s);
        if !self.system.hybrid {
            return outer;
        }
        let inner = self.inner(s);
        inner + (ONE + inner) * outer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns real poles as complex numbers.
    fn real(poles: &[f64]) -> Vec<Complex64> {
        poles
            .iter()
            .map(|pole| Complex64::new(*pole, 0.0))
            .collect()
    }

    /// Returns a loop with two paths, a sampled PI law and this direct gain.
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

    /// Returns Poisson's sum Z{F} = (1/T)·Σ F(s + 2πjm/T), with this many terms on each side.
    fn summed(
        s: Complex64,
        interval_s: f64,
        terms: i32,
        f: impl Fn(Complex64) -> Complex64,
    ) -> Complex64 {
        let term = |m: i32| f(s + Complex64::new(0.0, TAU * f64::from(m) / interval_s));
        (-terms..=terms).map(term).sum::<Complex64>() / interval_s
    }

    fn near(actual: Complex64, expected: Complex64) {
        assert!(
            (actual - expected).norm() < 1e-7 * expected.norm(),
            "{actual} {expected}"
        );
    }

    #[test]
    fn the_gain_at_the_sampler_is_poissons_sum() {
        for direct in [0.0, 0.4] {
            let system = sampled(direct);
            let max_fold = system.most_folds();
            let folds: Vec<i32> = (-max_fold..=max_fold).filter(|fold| *fold != 0).collect();
            let response = system.response(&folds);
            for omega in [0.3, 4.0, 70.0, 150.0] {
                for real in [0.0, 0.7] {
                    let s = Complex64::new(real, omega);
                    let pulse = summed(s, 0.02, 500, |s| {
                        let hold = (ONE - (-s * 0.02).exp()) / s;
                        let plant = response.plant(s);
                        hold * plant / (ONE + direct * plant)
                    });
                    near(response.outer(s), response.law(s) * pulse);
                    near(response.hold(s), (ONE - (-s * 0.02).exp()) / (s * 0.02));
                }
            }
        }
    }

    /// A plant in product form and the same plant as partial fractions.
    #[test]
    fn both_forms_of_a_plant_have_the_same_response() {
        let product = sampled(0.3);
        let mut fractions = product.clone();
        for path in &mut fractions.paths {
            let residues = path.residues().map(|(residue, _)| residue / path.gain);
            path.shares = Some(residues.collect());
        }
        for omega in [0.2, 6.0, 90.0] {
            let s = Complex64::new(0.0, omega);
            let (by_product, by_fractions) =
                (product.response(&[-1, 1]), fractions.response(&[-1, 1]));
            near(by_fractions.plant(s), by_product.plant(s));
            near(by_fractions.pulse(s), by_product.pulse(s));
            near(by_fractions.loop_gain(s), by_product.loop_gain(s));
            near(by_fractions.sensitivity(s), by_product.sensitivity(s));
        }
    }

    /// Paths in product form need not have the same poles.
    #[test]
    fn the_pulse_of_parallel_paths_is_the_sum_of_theirs() {
        let mut both = sampled(0.0);
        both.paths[1].poles = real(&[2.0, 30.0]);
        let alone = |path: usize| Loop {
            paths: vec![both.paths[path].clone()],
            ..both.clone()
        };
        let (first, second) = (alone(0), alone(1));
        for omega in [0.2, 6.0, 90.0] {
            let s = Complex64::new(0.0, omega);
            let pulse = |system: &Loop| system.response(&[]).pulse(s);
            near(pulse(&both), pulse(&first) + pulse(&second));
        }
    }

    #[test]
    fn negligible_aliases_are_left_out() {
        let system = sampled(0.3);
        let response = system.response(&[]);
        let s = Complex64::new(0.0, 2.0);
        let all: Vec<i32> = (-15..=15).filter(|fold| *fold != 0).collect();
        let relevant = response.counted(s, &all, 1e-8);
        assert!(relevant.len() < all.len(), "{relevant:?}");
        near(
            system.response(&relevant).outer(s),
            system.response(&all).outer(s),
        );
        assert!(response.counted(s, &all, 1.0).is_empty());
    }

    #[test]
    fn without_a_sampler_the_gain_is_the_direct_gain_times_the_plant() {
        let system = Loop {
            sampler: None,
            hybrid: false,
            ..sampled(0.2)
        };
        let s = Complex64::new(0.1, 3.0);
        let response = system.response(&[]);
        let gain = |gain: f64, delay_s: f64| {
            let poles = [0.5, 4.0, 9.0].iter();
            (-s * delay_s).exp() * gain / poles.map(|pole| s + pole).product::<Complex64>()
        };
        let expected = 0.2 * (gain(30.0, 0.25) + gain(5.0, 0.11));
        near(response.loop_gain(s), expected);
        near(response.sensitivity(s), ONE / (ONE + expected));
    }

    /// Returns the one path gain·e^{−s·delay}/Π(s + pole) with a direct gain and a sampled law.
    fn one_path(gain: f64, poles: &[f64], delay_s: f64, direct: f64, interval_s: f64) -> Loop {
        Loop {
            paths: vec![Path {
                gain,
                poles: real(poles),
                shares: None,
                delay_s,
            }],
            direct,
            sampler: Some(Sampler {
                interval_s,
                numerator: vec![0.3, -0.29],
                denominator: vec![1.0, -1.0],
            }),
            hybrid: direct != 0.0,
        }
    }

    fn closer(actual: Complex64, expected: Complex64, tolerance: f64) {
        assert!(
            (actual - expected).norm() <= tolerance * expected.norm(),
            "{actual} {expected}"
        );
    }

    /// Fewer poles of the plant leave more of the aliases.
    #[test]
    fn the_number_of_alias_terms_suffices_for_plants_with_few_poles() {
        for (poles, interval_s, delay_s) in [
            (&[0.5][..], 0.02, 0.107),
            (&[0.5, 4.0], 0.02, 0.107),
            (&[0.5, 4.0, 9.0], 0.02, 0.107),
            (&[0.5, 4.0], 0.3, 0.04),
        ] {
            let system = one_path(8.0, poles, delay_s, 0.4, interval_s);
            let max_fold = system.most_folds();
            let folds: Vec<i32> = (-max_fold..=max_fold).filter(|fold| *fold != 0).collect();
            let response = system.response(&folds);
            for omega in [0.3, 2.0, 3.0 / interval_s] {
                let s = Complex64::new(0.0, omega);
                let pulse = summed(s, interval_s, 3000, |s| {
                    let hold = (ONE - (-s * interval_s).exp()) / s;
                    let plant = response.plant(s);
                    hold * plant / (ONE + 0.4 * plant)
                });
                closer(response.outer(s), response.law(s) * pulse, 1e-4);
            }
        }
    }

    #[test]
    fn alias_terms_are_for_samplers_and_more_of_them_for_slow_ones() {
        let folds =
            |poles: &[f64], interval_s| one_path(8.0, poles, 0.1, 0.4, interval_s).most_folds();
        // An interval of a fifth of the delay, and of five delays and a bit.
        assert_eq!((folds(&[1.0], 0.02), folds(&[1.0], 0.51)), (61, 66));
        assert_eq!((folds(&[1.0; 2], 0.02), folds(&[1.0; 2], 0.51)), (7, 12));
        assert_eq!((folds(&[1.0; 3], 0.02), folds(&[1.0; 3], 0.51)), (3, 8));
        // The shortest delay and the fewest poles of all paths count.
        let mut two = sampled(0.3);
        two.paths[0].poles.truncate(2);
        two.paths[1].delay_s = 0.01;
        assert_eq!(two.most_folds(), 8);
        let continuous = Loop {
            sampler: None,
            ..two
        };
        assert_eq!(continuous.most_folds(), 0);
    }

    /// Without a delay, Z{H/s} is T/(e^{sT} − 1) = (1 − sT/2 + (sT)²/12 − …)/s.
    #[test]
    fn the_pulse_of_an_integrator_is_exact_close_to_its_pole() {
        let system = one_path(1.0, &[0.0], 0.0, 0.0, 0.02);
        let response = system.response(&[]);
        for size in [1e-9, 1e-5, 4e-3, 6e-3, 0.1] {
            for s in [Complex64::new(0.0, size), Complex64::new(size, -size)] {
                let x = 0.02 * s;
                let expected = (ONE - x / 2.0 + x * x / 12.0 - x.powi(4) / 720.0) / s;
                closer(response.pulse(s), expected, 1e-12);
            }
        }
    }

    /// With a delay of half an interval, of a whole one, of two and a half, and of three.
    #[test]
    fn the_pulse_of_a_mode_is_that_of_its_step_response() {
        for delay_s in [0.05, 0.1, 0.25, 0.3] {
            let system = one_path(3.0, &[2.0], delay_s, 0.0, 0.1);
            let response = system.response(&[]);
            for s in [Complex64::new(0.5, 3.0), Complex64::new(0.0, 20.0)] {
                // Σ g(kT)z⁻ᵏ − z⁻¹·Σ g(kT)z⁻ᵏ, for the response g to a step.
                let z_1 = (-s * 0.1).exp();
                let step = |k: u32| {
                    let t = 0.1 * f64::from(k) - delay_s;
                    if t > 1e-9 {
                        1.5 * (1.0 - (-2.0 * t).exp())
                    } else {
                        0.0
                    }
                };
                let mut expected = Complex64::ZERO;
                for k in 1..2000 {
                    expected += (step(k) - step(k - 1)) * z_1.powu(k);
                }
                closer(response.pulse(s), expected, 1e-9);
            }
        }
    }

    /// sin(ωT/2)/(ωT/2)·e^{−jωT/2} on the imaginary axis, down to frequencies close to zero.
    #[test]
    fn the_hold_is_a_sinc_with_a_delay_of_half_an_interval() {
        let system = one_path(1.0, &[1.0], 0.1, 0.4, 0.02);
        let response = system.response(&[]);
        for omega in [1e-6, 1e-3, 4.9e-3, 5.1e-3, 1.0, 100.0] {
            let half = 0.01 * omega;
            let expected = Complex64::from_polar(f64::sin(half) / half, -half);
            closer(response.hold(Complex64::new(0.0, omega)), expected, 1e-11);
        }
        assert_eq!(response.hold(Complex64::ZERO), ONE);
        // The law is (0.3 − 0.29z⁻¹)/(1 − z⁻¹): 0.295 at half of the sampling frequency.
        let half_sampling = Complex64::new(0.0, 50.0 * std::f64::consts::PI);
        closer(response.law(half_sampling), 0.295.into(), 1e-12);
    }

    /// The term of one alias only, on one side.
    #[test]
    fn every_alias_is_at_its_own_frequency() {
        let system = one_path(30.0, &[0.5, 4.0], 0.033, 0.4, 0.02);
        let s = Complex64::new(0.2, 40.0);
        let term = |fold: i32| {
            let alias = s + Complex64::new(0.0, TAU * f64::from(fold) / 0.02);
            let g = 30.0 * (-alias * 0.033).exp() / ((alias + 0.5) * (alias + 4.0));
            let hold = (ONE - (-alias * 0.02).exp()) / alias;
            hold * 0.4 * g * g / (ONE + 0.4 * g) / 0.02
        };
        let without = system.response(&[]).outer(s);
        let law = system.response(&[]).law(s);
        for fold in [-2, -1, 1, 3] {
            let with = system.response(&[fold]).outer(s);
            let difference = without - with;
            assert!((difference - law * term(fold)).norm() < 1e-9 * law.norm());
        }
        // An alias counts if it is larger than the threshold times the pulse transfer function.
        let response = system.response(&[]);
        let size = response.pulse(s).norm();
        for fold in [-2, -1, 1, 3] {
            let share = term(fold).norm() / size;
            assert_eq!(response.counted(s, &[fold], 0.99 * share), [fold]);
            assert!(response.counted(s, &[fold], 1.01 * share).is_empty());
        }
    }

    /// With a sampler a thousand times faster than the plant there are no aliases, and the hybrid
    /// loop is the continuous loop (d + D·H/T)·G.
    #[test]
    fn a_hybrid_loop_with_a_fast_sampler_is_a_continuous_loop() {
        let system = one_path(30.0, &[0.5, 4.0, 9.0], 0.25, 0.2, 1e-4);
        let max_fold = system.most_folds();
        let folds: Vec<i32> = (-max_fold..=max_fold).filter(|fold| *fold != 0).collect();
        let response = system.response(&folds);
        for omega in [0.4, 1.3, 4.0, 11.0] {
            let s = Complex64::new(0.1, omega);
            let plant = 30.0 * (-s * 0.25).exp() / ((s + 0.5) * (s + 4.0) * (s + 9.0));
            let z_1 = (-s * 1e-4).exp();
            let law = (0.3 - 0.29 * z_1) / (1.0 - z_1);
            let hold = (ONE - z_1) / (s * 1e-4);
            let expected = (0.2 + law * hold) * plant;
            closer(response.plant(s), plant, 1e-12);
            closer(response.inner(s), 0.2 * plant, 1e-12);
            closer(response.law(s), law, 1e-9);
            closer(response.loop_gain(s), expected, 1e-6);
            closer(response.sensitivity(s), ONE / (ONE + expected), 1e-4);
        }
    }

    /// A sine n is added to the queue x of x' = −x + u(t − R), and u = −(d·(x + n) + p), where p is a
    /// sampled law held for half a second. The response is compared with the component of x + n in
    /// a simulation, whose period is that of the sine and four samples.
    #[test]
    fn the_sensitivity_is_the_component_of_a_simulation_with_a_slow_sampler() {
        let (direct, period_s, step_s, delay_steps) = (0.8, 2.0, 1e-3, 300);
        let mut system = one_path(1.0, &[1.0], 0.3, direct, 0.5);
        system.sampler = Some(Sampler {
            interval_s: 0.5,
            numerator: vec![0.6, -0.1],
            denominator: vec![1.0, -0.5],
        });
        let omega = TAU / period_s;
        let steps = 2000;
        let decay = f64::exp(-step_s);
        let (mut x, mut p, mut last) = (0.0, 0.0, 0.0);
        let mut inputs = vec![0.0; delay_steps];
        let mut component = Complex64::ZERO;
        for step in 0..30 * steps {
            let angle = omega * step_s * f64::from(step);
            let queue = x + angle.cos();
            if step % 500 == 0 {
                p = 0.5 * p + 0.6 * queue - 0.1 * last;
                last = queue;
            }
            // The last of the periods, in which the initial deviation has decayed.
            if step >= 29 * steps {
                component += queue * Complex64::from_polar(2.0 / f64::from(steps), -angle);
            }
            let delayed = &mut inputs[step as usize % delay_steps];
            x = decay * x + (1.0 - decay) * *delayed;
            *delayed = -(direct * queue + p);
        }
        let folds: Vec<i32> = (-60..=60).filter(|fold| *fold != 0).collect();
        let s = Complex64::new(0.0, omega);
        let sensitivity = system.response(&folds).sensitivity(s);
        closer(sensitivity, component, 3e-3);
        // Without the direct part the samples alone make the loop, and its sensitivity is 1/(1 + L).
        system.direct = 0.0;
        system.hybrid = false;
        let response = system.response(&[]);
        closer(
            response.sensitivity(s) * (ONE + response.outer(s)),
            ONE,
            1e-12,
        );
    }

    /// With a continuous path of gain d next to the sampled controller, 1 + L is the product of
    /// 1 + d·G, where G is the plant, and 1 + L_s, where L_s is the loop that the sampled path
    /// closes around it. Without the continuous path (d = 0), 1 + L is 1 + L_s.
    #[test]
    fn the_gain_of_a_hybrid_loop_has_the_poles_of_both_of_its_loops() {
        let s = Complex64::new(0.3, 17.0);
        for direct in [0.0, 0.4] {
            let system = one_path(300.0, &[0.5, 4.0], 0.033, direct, 0.1);
            let response = system.response(&[-1, 1]);
            let product = (ONE + response.inner(s)) * (ONE + response.outer(s));
            closer(ONE + response.loop_gain(s), product, 1e-12);
        }
    }

    /// A real system responds to opposite frequencies with conjugate gains.
    #[test]
    fn gains_at_conjugate_frequencies_are_conjugate() {
        let mut complex = sampled(0.3);
        for path in &mut complex.paths {
            path.poles = vec![
                Complex64::new(0.5, 0.0),
                Complex64::new(4.0, 7.0),
                Complex64::new(4.0, -7.0),
            ];
        }
        let response = complex.response(&[-2, -1, 1, 2]);
        for s in [Complex64::new(0.2, 3.0), Complex64::new(0.0, 80.0)] {
            closer(response.plant(s.conj()), response.plant(s).conj(), 1e-12);
            closer(response.outer(s.conj()), response.outer(s).conj(), 1e-12);
            closer(
                response.loop_gain(s.conj()),
                response.loop_gain(s).conj(),
                1e-12,
            );
            closer(
                response.sensitivity(s.conj()),
                response.sensitivity(s).conj(),
                1e-12,
            );
        }
    }

    /// e^x − 1 is x + x²/2 + x³/6 + … close to zero, where the difference would lose digits.
    #[test]
    fn the_exponential_minus_one_is_accurate_for_large_and_small_numbers() {
        for (re, im) in [(1.0, 0.0), (0.0, 1.0), (-0.7, 0.3), (0.4, -2.0)] {
            let direction = Complex64::new(re, im);
            closer(exp_m1(direction), direction.exp() - ONE, 1e-14);
            let x = 1e-5 * direction;
            closer(
                exp_m1(x),
                x * (ONE + x / 2.0 * (ONE + x / 3.0 * (ONE + x / 4.0))),
                1e-15,
            );
        }
    }

    #[test]
    fn the_number_of_terms_is_between_zero_and_a_million() {
        assert_eq!(term_count(-1.0), 0);
        assert_eq!(term_count(61.0), 61);
        assert_eq!(term_count(f64::INFINITY), 1_000_000);
    }
}
