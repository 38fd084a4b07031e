//! Measures from Python: the registry, and a measure of a run in memory or read back.

use std::borrow::Cow;

use forebay_trace::measures::{
    self as registry, Columns, FlowPart, Measure, Of, Part, TrafficPart,
};
use forebay_units::cast::whole_u32;
use forebay_units::{one_of, ParamError, Span, Time};
use numpy::PyReadonlyArray1;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::control::fault;

/// Returns the metrics of every run, in the order of tables: {name, claim, title, unit, scale,
/// doc}.
#[pyfunction]
pub fn metrics(py: Python) -> PyResult<Bound<PyList>> {
    entries(py, &mut registry::METRICS.iter())
}

/// Returns every measure that a claim can name, the metrics first, described like [`metrics`].
#[pyfunction]
pub fn measures(py: Python) -> PyResult<Bound<PyList>> {
    entries(py, &mut registry::all())
}

/// Returns the metrics of every class of a queue, in the order of tables; as [`metrics`].
#[pyfunction]
pub fn class_metrics(py: Python) -> PyResult<Bound<PyList>> {
    entries(py, &mut forebay_trace::CLASS_METRICS.iter())
}

/// Returns the metrics of every traffic, in the order of tables; as [`metrics`].
#[pyfunction]
pub fn traffic_metrics(py: Python) -> PyResult<Bound<PyList>> {
    entries(py, &mut forebay_trace::TRAFFIC_METRICS.iter())
}

fn entries<'py>(
    py: Python<'py>,
    all: &mut dyn Iterator<Item = &'static Measure>,
) -> PyResult<Bound<'py, PyList>> {
    let entries: PyResult<Vec<_>> = all
        .map(|measure| {
            let entry = PyDict::new(py);
            entry.set_item("name", measure.name)?;
            entry.set_item("claim", measure.claim())?;
            entry.set_item("title", measure.title)?;
            entry.set_item("unit", measure.unit)?;
            entry.set_item("scale", measure.scale)?;
            entry.set_item("doc", measure.doc)?;
            Ok(entry)
        })
        .collect();
    PyList::new(py, entries?)
}

/// A mapping of names to numpy columns.
struct PyColumns<'py>(Bound<'py, PyAny>);

impl Columns for PyColumns<'_> {
    fn column(&self, name: &str) -> Option<Cow<'_, [f64]>> {
        let column = self.0.get_item(name).ok()?;
        Some(Cow::Owned(numbers(&column)?))
    }
}

/// Returns a column of any type that samples have.
fn numbers(column: &Bound<PyAny>) -> Option<Vec<f64>> {
    fn widened<T: numpy::Element + Copy>(
        column: &Bound<PyAny>,
        number: fn(T) -> f64,
    ) -> Option<Vec<f64>> {
        let column: PyReadonlyArray1<T> = column.extract().ok()?;
        Some(column.as_array().iter().map(|&it| number(it)).collect())
    }
    widened(column, |it: f64| it)
        .or_else(|| widened(column, f64::from as fn(u32) -> f64))
        .or_else(|| widened(column, |it: u64| it as f64))
        // Read back from JSON.
        .or_else(|| widened(column, |it: i64| it as f64))
}

/// Returns a measure of the samples in `window`, two times in s. `run` has the columns of
/// `Observed`; `traffic` has, for each entry, whether it is TCP, and its round-trip times in s.
///
/// Raises ScenarioError for an unknown name, and if a required column is missing.
#[pyfunction]
#[pyo3(signature = (name, run, *, sample_s, window, target_pkts, traffic))]
pub fn measure(
    name: &str,
    run: &Bound<PyAny>,
    sample_s: f64,
    window: (f64, f64),
    target_pkts: Option<f64>,
    traffic: Vec<(bool, Vec<f64>)>,
) -> PyResult<f64> {
    let Some(measure) = registry::find(name) else {
        let known: Vec<_> = registry::all().map(Measure::claim).collect();
        let known: Vec<&str> = known.iter().map(AsRef::as_ref).collect();
        let error = ParamError::new("measure", format!("{name:?}"), one_of(&known, name));
        return Err(fault(error));
    };
    let metrics = run.getattr("metrics")?;
    let Of::Samples(of) = measure.of else {
        return metrics.get_item(measure.name)?.extract();
    };
    let columns = PyColumns(run.getattr("samples")?);
    let kinds: Vec<TrafficPart> = traffic
        .into_iter()
        .map(|(is_tcp, rtts_s)| TrafficPart { is_tcp, rtts_s })
        .collect();
    let flow_traffic = numbers(&run.getattr("flow_traffic")?);
    let goodput_bps = numbers(&run.getattr("flow_goodput_bps")?);
    let flows = flow_traffic
        .zip(goodput_bps)
        .and_then(|(traffic, goodput_bps)| {
            let traffic: Vec<u32> = traffic.iter().map(|&index| whole_u32(index)).collect();
            FlowPart::of(&traffic, &goodput_bps, &kinds)
        });
    let at = |seconds: f64| Time::ZERO + Span::from_secs_f64(seconds);
    let (interval, window) = (Span::from_secs_f64(sample_s), (at(window.0), at(window.1)));
    let part = Part {
        rows: registry::rows_in(interval, columns.0.get_item("queue_pkts")?.len()?, window),
        columns: &columns,
        interval,
        window,
        target_pkts,
        flows: flows.as_deref(),
        delay_mean_s: metrics.get_item("delay_mean_s")?.extract()?,
    };
    of(&part).ok_or_else(|| {
        let expected = "a measure of quantities that the law reports";
        fault(ParamError::new("measure", format!("{name:?}"), expected))
    })
}
