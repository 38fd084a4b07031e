//! The points of a scenario, made when they are asked for.

use std::sync::OnceLock;

use forebay_scenario::Reading;
use forebay_units::Value;
use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::files;
use crate::laws::value;
use crate::plan::{plan_of_rows, Plan};
use crate::reading::{self, exact, shares, Asked, GainsRequest, PointGains, Row};

/// The points of a scenario, made when they are asked for: there may be a million.
#[pyclass(frozen, module = "forebay._native")]
pub struct Sweep {
    reading: Reading,
    shares: OnceLock<Vec<f64>>,
}

#[pymethods]
impl Sweep {
    /// Reads a scenario as `plan` does.
    #[new]
    #[pyo3(signature = (
        text, file, *, overrides=Vec::new(), laws=Vec::new(), seeds=None, read=None, programs=false
    ))]
    fn new(
        text: &Bound<PyBytes>,
        file: &str,
        overrides: Vec<(String, String)>,
        laws: Vec<Bound<PyAny>>,
        seeds: Option<u32>,
        read: Option<Bound<PyAny>>,
        programs: bool,
    ) -> PyResult<Sweep> {
        let asked = Asked {
            sets: overrides,
            laws,
            seeds,
            read,
            without_own_laws: false,
            link: None,
            programs,
            external: false,
        };
        Ok(Sweep {
            reading: reading::read(text, file, asked)?,
            shares: OnceLock::new(),
        })
    }

    /// Returns the keys that a point sets, in the order of its row.
    #[getter]
    fn keys(&self) -> Vec<&str> {
        self.reading.sweep().keys().collect()
    }

    /// Returns the keys that vary together with the rows of their values, for each line of lists.
    #[getter]
    fn lists<'py>(&self, py: Python<'py>) -> PyResult<Vec<(Vec<&str>, Vec<Row<'py>>)>> {
        let lists = self.reading.sweep().lists();
        let line = |(keys, rows): (_, Vec<Vec<Value>>)| {
            let rows = rows.iter().map(|row| to_python(py, row));
            Ok((keys, rows.collect::<PyResult<_>>()?))
        };
        lists.map(line).collect()
    }

    /// Key, low end, high end and unit of each range that is sampled.
    #[getter]
    fn ranges(&self) -> Vec<(&str, f64, f64, &str)> {
        let sample = self.reading.sweep().sample();
        let ranges = sample.into_iter().flat_map(|sample| sample.ranges());
        ranges
            .map(|(key, range)| (key, range.low, range.high, range.unit.as_str()))
            .collect()
    }

    /// Points of the sample, which are the fastest; 1 without one.
    #[getter]
    fn samples(&self) -> usize {
        self.reading
            .sweep()
            .sample()
            .map_or(1, |sample| sample.points)
    }

    fn __len__(&self) -> usize {
        self.reading.sweep().point_count()
    }

    /// Returns the values that a point sets, by its number; the last key varies fastest.
    fn row<'py>(&self, py: Python<'py>, index: usize) -> PyResult<Row<'py>> {
        if index >= self.reading.sweep().point_count() {
            return Err(PyIndexError::new_err("point"));
        }
        let shares = match self.shares.get() {
            Some(known) => known,
            None => {
                let drawn = shares(py, &self.reading)?;
                self.shares.get_or_init(|| drawn)
            }
        };
        to_python(py, &self.reading.sweep().row(index, shares))
    }

    /// Returns the laws with `gains = "auto"` at the point of this row.
    fn gains_requests(&self, py: Python, row: Vec<Bound<PyAny>>) -> PyResult<Vec<GainsRequest>> {
        let row = row.iter().map(exact).collect::<PyResult<_>>()?;
        let requests = self.reading.gains_requests_at(row);
        let requests = requests.map_err(files::refused)?.into_iter();
        requests
            .map(|request| GainsRequest::of(py, request))
            .collect()
    }

    /// Returns the points of these rows as a plan, with the gains of the laws that are designed at
    /// each point.
    #[pyo3(signature = (rows, gains=Vec::new()))]
    fn plan(&self, py: Python, rows: Vec<Row>, gains: Vec<PointGains>) -> PyResult<Plan> {
        plan_of_rows(py, &self.reading, rows, gains)
    }
}

fn to_python<'py>(py: Python<'py>, row: &[Value]) -> PyResult<Row<'py>> {
    row.iter().map(|it| value(py, it)).collect()
}
