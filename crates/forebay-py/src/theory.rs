//! Linear loops in frequency and in time, as Python values.

use forebay_theory::frequency_response::{Loop, Path, Response, Sampler};
use forebay_theory::saturated::SaturatedLoop;
use forebay_theory::time_response::{self, Mode, SampledLaw};
use forebay_theory::Complex64;
use numpy::ndarray::Array2;
use numpy::{Element, IntoPyArray, PyArray1, PyArray2, PyReadonlyArray1, PyReadonlyArray2};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// A number that all loops share, or one for each.
type Column<'py> = PyReadonlyArray1<'py, f64>;
type ComplexColumn<'py> = PyReadonlyArray1<'py, Complex64>;
/// Gain, poles, residues of the poles or None for the product of the poles, and delay in s.
type PathColumns<'py> = (
    Column<'py>,
    Vec<ComplexColumn<'py>>,
    Option<Vec<ComplexColumn<'py>>>,
    Column<'py>,
);
/// Interval in s, numerator and denominator in z⁰, z⁻¹, ….
type SamplerColumns<'py> = (Column<'py>, Vec<Column<'py>>, Vec<Column<'py>>);

/// Returns the entry of a column for a row; a column of one entry applies to all rows.
fn entry<T>(column: &[T], row: usize) -> &T {
    &column[if column.len() == 1 { 0 } else { row }]
}

fn number<T: Element + Copy>(column: &PyReadonlyArray1<T>, row: usize) -> T {
    let column = column.as_array();
    column[if column.len() == 1 { 0 } else { row }]
}

fn numbers<T: Element + Copy>(columns: &[PyReadonlyArray1<T>], row: usize) -> Vec<T> {
    columns.iter().map(|column| number(column, row)).collect()
}

/// Loops of one kind. Every column, and every line of values of s, has one number for all loops or
/// one for each loop.
#[pyclass(frozen, module = "forebay._native")]
pub struct Loops {
    loops: Vec<Loop>,
    folds: Vec<i32>,
}

#[pymethods]
impl Loops {
    /// `folds` is the number of terms of Poisson's sum in addition to the first; None for as many
    /// as are needed. Raises `ValueError` for columns of different lengths, and without a path.
    #[new]
    fn new(
        paths: Vec<PathColumns>,
        direct: Column,
        sampler: Option<SamplerColumns>,
        hybrid: bool,
        folds: Option<Vec<i32>>,
    ) -> PyResult<Self> {
        let mut lengths = vec![direct.as_array().len()];
        for (gain, poles, shares, delay_s) in &paths {
            let complex = poles.iter().chain(shares.iter().flatten());
            lengths.extend(complex.map(|column| column.as_array().len()));
            lengths.extend([gain.as_array().len(), delay_s.as_array().len()]);
            if shares.as_ref().is_some_and(|it| it.len() != poles.len()) {
                return Err(PyValueError::new_err("a share for each pole"));
            }
        }
        if let Some((interval_s, numerator, denominator)) = &sampler {
            let columns = numerator.iter().chain(denominator);
            lengths.extend(columns.map(|column| column.as_array().len()));
            lengths.push(interval_s.as_array().len());
        }
        let count = lengths.iter().copied().max().unwrap_or(0);
        if paths.is_empty() || lengths.iter().any(|length| ![1, count].contains(length)) {
            return Err(PyValueError::new_err("columns of different lengths"));
        }
        let path = |(gain, poles, shares, delay_s): &PathColumns, row: usize| Path {
            gain: number(gain, row),
            poles: numbers(poles, row),
            shares: shares.as_ref().map(|shares| numbers(shares, row)),
            delay_s: number(delay_s, row),
        };
        let sampler_of =
            |(interval_s, numerator, denominator): &SamplerColumns, row: usize| Sampler {
                interval_s: number(interval_s, row),
                numerator: numbers(numerator, row),
                denominator: numbers(denominator, row),
            };
        let loops: Vec<Loop> = (0..count)
            .map(|row| Loop {
                paths: paths.iter().map(|it| path(it, row)).collect(),
                direct: number(&direct, row),
                sampler: sampler.as_ref().map(|it| sampler_of(it, row)),
                hybrid,
            })
            .collect();
        let folds = folds.unwrap_or_else(|| {
            let most = loops.iter().map(Loop::most_folds).max().unwrap_or(0);
            (-most..=most).filter(|fold| *fold != 0).collect()
        });
        Ok(Loops { loops, folds })
    }

    /// G(s): gain, poles and delay.
    fn plant<'py>(&self, py: Python<'py>, s: Lines<'py>) -> PyResult<Answer<'py>> {
        self.each(py, s, Response::plant)
    }

    /// Z{H·G} at z = e^{sT}.
    fn pulse<'py>(&self, py: Python<'py>, s: Lines<'py>) -> PyResult<Answer<'py>> {
        self.each(py, s, Response::pulse)
    }

    /// D(e^{sT}).
    fn law<'py>(&self, py: Python<'py>, s: Lines<'py>) -> PyResult<Answer<'py>> {
        self.each(py, s, Response::law)
    }

    /// H/T = (1 − e^{−sT})/(sT).
    fn hold<'py>(&self, py: Python<'py>, s: Lines<'py>) -> PyResult<Answer<'py>> {
        self.each(py, s, Response::hold)
    }

    /// Returns the loop transfer function L; the roots of the closed loop are the zeros of 1 + L.
    fn loop_gain<'py>(&self, py: Python<'py>, s: Lines<'py>) -> PyResult<Answer<'py>> {
        self.each(py, s, Response::loop_gain)
    }

    /// Returns the sensitivity 1/(1 + L), the factor by which the closed loop amplifies a sine on
    /// the queue.
    fn sensitivity<'py>(&self, py: Python<'py>, s: Lines<'py>) -> PyResult<Answer<'py>> {
        self.each(py, s, Response::sensitivity)
    }

    /// Returns the number of unstable roots of each closed loop; None if a root is on the limit of
    /// stability within rounding.
    fn unstable_roots(&self, py: Python) -> Vec<Option<i32>> {
        let count = |it: &Loop| it.unstable_roots(&self.folds);
        py.detach(|| self.loops.iter().map(count).collect())
    }

    /// Returns the terms of Poisson's sum that exceed this share of the sampled signal at any of
    /// these s in any loop.
    fn counted_folds(&self, py: Python, s: Lines, least_share: f64) -> PyResult<Vec<i32>> {
        let s = s.as_array();
        let rows = self.rows(s.nrows())?;
        Ok(py.detach(|| {
            let mut left = self.folds.clone();
            let mut found = Vec::new();
            for row in 0..rows {
                let response = entry(&self.loops, row).response(&self.folds);
                for s in s.row(if s.nrows() == 1 { 0 } else { row }) {
                    let counted = response.counted(*s, &left, least_share);
                    left.retain(|fold| !counted.contains(fold));
                    found.extend(counted);
                }
            }
            found.sort_unstable();
            found
        }))
    }
}

/// Values of s in rows: a row for each loop, or one row for all loops.
type Lines<'py> = PyReadonlyArray2<'py, Complex64>;
/// A row for each loop, or for each line of s.
type Answer<'py> = Bound<'py, PyArray2<Complex64>>;

impl Loops {
    /// Returns the number of rows of a result with so many lines of s.
    fn rows(&self, lines: usize) -> PyResult<usize> {
        let loops = self.loops.len();
        if lines == loops || lines.min(loops) == 1 {
            return Ok(lines.max(loops));
        }
        let message = format!("{lines} rows of s for {loops} loops");
        Err(PyValueError::new_err(message))
    }

    fn each<'a, 'py>(
        &'a self,
        py: Python<'py>,
        s: Lines<'py>,
        gain: fn(&Response<'a>, Complex64) -> Complex64,
    ) -> PyResult<Answer<'py>> {
        let s = s.as_array();
        let rows = self.rows(s.nrows())?;
        let found = py.detach(|| {
            let mut found = Array2::zeros((rows, s.ncols()));
            for (row, mut values) in found.outer_iter_mut().enumerate() {
                let response = entry(&self.loops, row).response(&self.folds);
                let line = s.row(if s.nrows() == 1 { 0 } else { row });
                for (value, s) in values.iter_mut().zip(line) {
                    *value = gain(&response, *s);
                }
            }
            found
        });
        Ok(found.into_pyarray(py))
    }
}

/// Returns the deviation of the queue at each of `steps` + 1 times after a change of this size at
/// the plant's input. In a step, a mode is multiplied by `decay`, and gains `new` times the input
/// of `delay_steps` ago and `old` times the input of one step earlier. `smoothing` is the share of
/// its distance to the queue by which the average moves in a step; None without an average.
/// `direct` is the gain of the path that acts immediately. `sampled` has the steps for each sample,
/// and numerator and denominator in z⁰, z⁻¹, …. Raises `ValueError` for columns of different
/// lengths, and a law without a number.
#[pyfunction]
#[pyo3(signature = (decay, new, old, delay_steps, *, smoothing, direct, sampled, change, steps))]
#[allow(clippy::too_many_arguments, reason = "what a loop is, by name")]
fn step_response<'py>(
    py: Python<'py>,
    decay: ComplexColumn,
    new: ComplexColumn,
    old: ComplexColumn,
    delay_steps: Vec<usize>,
    smoothing: Option<f64>,
    direct: f64,
    sampled: Option<(usize, Vec<f64>, Vec<f64>)>,
    change: f64,
    steps: usize,
) -> PyResult<Bound<'py, PyArray1<f64>>> {
    let (decay, new, old) = (decay.as_array(), new.as_array(), old.as_array());
    if [new.len(), old.len(), delay_steps.len()] != [decay.len(); 3] {
        return Err(PyValueError::new_err("columns of different lengths"));
    }
    let sampled = sampled.map(|(steps_per_sample, numerator, denominator)| SampledLaw {
        steps_per_sample,
        numerator,
        denominator,
    });
    if sampled.as_ref().is_some_and(|law| {
        law.steps_per_sample == 0 || law.numerator.is_empty() || law.denominator.is_empty()
    }) {
        return Err(PyValueError::new_err("a sampled law without a number"));
    }
    let modes = (0..decay.len()).map(|k| Mode {
        decay: decay[k],
        new: new[k],
        old: old[k],
        delay_steps: delay_steps[k],
    });
    let stepped = time_response::Loop {
        modes: modes.collect(),
        smoothing,
        direct,
        sampled,
    };
    let queue = py.detach(|| stepped.step_response(change, steps));
    Ok(queue.into_pyarray(py))
}

/// Simulates a loop that is driven by noise, and whose queue and probability do not go below zero,
/// for many queues at once. Returns (mean queue, its standard deviation, mean of the part that the
/// limit at zero cut off, standard deviation of the probability). `noise` has a row for each step
/// with a normal number for each queue; a number moves its queue by the first of `kicks_pkts` at
/// once, and by the second `round_trip_steps` later. `decay` is the factor of a deviation in a
/// step. `answers` has, for each path, packets per step of probability, and the steps of its delay.
/// `sampled` has the steps for each sample, numerator and denominator. `unseen` is the number of
/// first steps that are not counted. Raises `ValueError` for a law without a number, and if no step
/// is counted.
#[pyfunction]
#[pyo3(signature = (noise, *, decay, kicks_pkts, round_trip_steps, answers, sampled, rest_pkts,
                    rest_probability, unseen))]
#[allow(clippy::too_many_arguments, reason = "what a loop is, by name")]
fn saturated_moments(
    py: Python,
    noise: PyReadonlyArray2<f64>,
    decay: f64,
    kicks_pkts: [f64; 2],
    round_trip_steps: usize,
    answers: Vec<(f64, usize)>,
    sampled: (usize, Vec<f64>, Vec<f64>),
    rest_pkts: f64,
    rest_probability: f64,
    unseen: usize,
) -> PyResult<(f64, f64, f64, f64)> {
    let (steps_per_sample, numerator, denominator) = sampled;
    let (steps, queues) = noise.as_array().dim();
    if steps_per_sample == 0 || denominator.is_empty() || queues == 0 || unseen >= steps {
        return Err(PyValueError::new_err(
            "a law without a number, or nothing to count",
        ));
    }
    let driven = SaturatedLoop {
        decay,
        kicks_pkts,
        round_trip_steps,
        answers,
        numerator,
        denominator,
        steps_per_sample,
        rest_pkts,
        rest_probability,
    };
    let noise = noise.as_slice()?;
    let found = py.detach(|| driven.moments(noise, queues, unseen));
    Ok((
        found.queue_mean_pkts,
        found.queue_deviation_pkts,
        found.missing_pkts,
        found.probability_deviation,
    ))
}

/// Adds the functions and classes of this file to the module.
pub fn register(module: &Bound<PyModule>) -> PyResult<()> {
    module.add_class::<Loops>()?;
    module.add_function(wrap_pyfunction!(step_response, module)?)?;
    module.add_function(wrap_pyfunction!(saturated_moments, module)?)
}
