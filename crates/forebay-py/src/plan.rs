//! A scenario that has been read and checked, described for reports and ready to start.

use std::collections::HashSet;

use forebay_batch::{jobs, Batch, Key};
use forebay_scenario::{parse, Experiment, Options};
use pyo3::exceptions::{PyIndexError, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString, PyTuple};

use crate::batch::PyBatch;
use crate::facts::PointInfo;
use crate::files;
use crate::prototype;

/// Reads a scenario. `laws` are names, or classes (or functions) that make a prototype; `file`
/// names it in errors, and files of Python are found beside it; `read` gives the contents of a file that the scenario names, or None.
///
/// Raises ScenarioError with the one line that says what is wrong.
#[pyfunction]
#[pyo3(signature = (text, file, *, sets=Vec::new(), laws=Vec::new(), seeds=None, read=None))]
pub fn plan(
    text: &Bound<PyBytes>,
    file: &str,
    sets: Vec<(String, String)>,
    laws: Vec<Bound<PyAny>>,
    seeds: Option<u32>,
    read: Option<Bound<PyAny>>,
) -> PyResult<Plan> {
    let mut options = Options {
        sets,
        seeds,
        ..Options::default()
    };
    let mut brought = Vec::new();
    for law in laws {
        match law.cast::<PyString>() {
            Ok(name) => options.laws.push(name.to_string()),
            Err(_) => brought.push(law),
        }
    }
    let py = text.py();
    prototype::add(py, &mut options, text.as_bytes(), file, &brought)?;
    files::add(&mut options, text.as_bytes(), file, read.as_ref())?;
    let experiment = parse(text.as_bytes(), file, &options).map_err(files::refused)?;
    let points = experiment.points.iter();
    let points: PyResult<Vec<_>> = points
        .map(|point| Py::new(py, PointInfo::of(py, point)?))
        .collect();
    Ok(Plan {
        title: experiment.title.clone(),
        source: experiment.source.clone(),
        laws: experiment.laws.clone(),
        seeds: experiment.seeds.clone(),
        points: PyTuple::new(py, points?)?.unbind(),
        runs: Some(experiment),
    })
}

/// Every law at every point with every seed. One that Python makes describes real traffic, and
/// has nothing to start.
#[pyclass(frozen, module = "forebay._native")]
pub struct Plan {
    #[pyo3(get)]
    title: String,
    #[pyo3(get)]
    source: String,
    /// Labels, the same at every point.
    #[pyo3(get)]
    laws: Vec<String>,
    #[pyo3(get)]
    seeds: Vec<u64>,
    /// A PointInfo each.
    #[pyo3(get)]
    points: Py<PyTuple>,
    runs: Option<Experiment>,
}

#[pymethods]
impl Plan {
    #[new]
    fn new(
        title: String,
        source: String,
        laws: Vec<String>,
        seeds: Vec<u64>,
        points: Py<PyTuple>,
    ) -> Plan {
        Plan {
            title,
            source,
            laws,
            seeds,
            points,
            runs: None,
        }
    }

    /// What the runs at a point depend on beside the seed: a text for the point, and one for each
    /// law; None for a prototype, whose behaviour no text has.
    fn resolved(&self, point: usize) -> PyResult<(String, Vec<Option<String>>)> {
        let Some(experiment) = &self.runs else {
            return Err(PyRuntimeError::new_err("real traffic is not resolved"));
        };
        let point = experiment
            .points
            .get(point)
            .ok_or_else(|| PyIndexError::new_err("point"))?;
        let laws = point.laws.iter();
        let laws = laws.map(|law| (!law.spec.is_own()).then(|| law.resolved()));
        Ok((point.scenario.resolved(), laws.collect()))
    }

    /// Starts every run in background threads, and returns at once. Without `samples`, runs
    /// keep only their metrics. `only` leaves out all but these (point, law, seed), the first
    /// two as indices.
    #[pyo3(signature = (threads, *, samples=true, only=None))]
    fn start(
        &self,
        threads: usize,
        samples: bool,
        only: Option<HashSet<(usize, usize, u64)>>,
    ) -> PyResult<PyBatch> {
        let Some(experiment) = &self.runs else {
            return Err(PyRuntimeError::new_err("real traffic has nothing to start"));
        };
        let wanted = |key: &Key| {
            let only = only.as_ref();
            only.is_none_or(|only| only.contains(&(key.point, key.law, key.seed)))
        };
        let (keys, jobs) = jobs(experiment, wanted).into_iter().unzip();
        let mut laws = experiment.points.iter().flat_map(|point| &point.laws);
        let batch = match laws.any(|law| law.spec.is_own()) {
            // Python makes a state for a thread at its first call, and it lives as long as this.
            true => Batch::start_within(jobs, threads, |run| {
                Python::attach(|py| py.detach(run));
            }),
            false => Batch::start(jobs, threads),
        };
        let batch = batch.map_err(PyRuntimeError::new_err)?;
        Ok(PyBatch {
            batch,
            keys,
            samples,
        })
    }
}
