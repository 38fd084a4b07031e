//! How laws are tuned, as Python values.

use forebay_theory::search::{self, Condition, Search, Settings, Space};
use forebay_units::{Bytes, Rate};
use pyo3::prelude::*;

use crate::control::known;
use crate::laws::value;

/// Rate in bit/s, propagation both ways in s, flows.
type Plain = (u64, f64, u32);
/// Parameters with their values: numbers, or quantities as texts.
type Params<'py> = Vec<(&'static str, Bound<'py, PyAny>)>;

fn condition((rate_bps, rtt_s, flows): Plain) -> Condition {
    Condition {
        rate: Rate::from_bps(rate_bps),
        rtt_s,
        flows,
    }
}

fn params<'py>(py: Python<'py>, settings: &Settings) -> PyResult<Params<'py>> {
    let each = settings.iter();
    each.map(|(name, it)| Ok((*name, value(py, it)?))).collect()
}

/// The links and loads over which laws are tuned.
#[pyclass(frozen, module = "forebay._native")]
pub struct Conditions(search::Conditions);

#[pymethods]
impl Conditions {
    /// `conditions` is not empty; each condition is (rate in bit/s, propagation both ways in s,
    /// flows).
    #[new]
    fn new(conditions: Vec<Plain>, middle: Plain, packet_bytes: u64, buffer_pkts: f64) -> Self {
        Conditions(search::Conditions {
            all: conditions.into_iter().map(condition).collect(),
            middle: condition(middle),
            packet: Bytes(packet_bytes),
            buffer_pkts,
        })
    }

    /// Returns the number of flows that can have ten packets each in flight with this queue.
    fn active_flows(&self, at: Plain, queue_pkts: f64) -> f64 {
        self.0.active_flows(&condition(at), queue_pkts)
    }

    /// Returns the search space of a law's linear model; None for a law without such a model.
    /// Raises `ScenarioError` for a law that does not exist.
    fn space(&self, law: &str) -> PyResult<Option<SearchSpace>> {
        Ok(match known(law)?.search(&self.0) {
            Search::Space(space) => Some(SearchSpace(space)),
            Search::Nothing | Search::Listed(_) => None,
        })
    }

    /// Settings of a law that only packets can judge.
    /// Raises `ScenarioError` for a law that does not exist.
    fn listed<'py>(&self, py: Python<'py>, law: &str) -> PyResult<Vec<Params<'py>>> {
        match known(law)?.search(&self.0) {
            Search::Listed(listed) => listed.iter().map(|each| params(py, each)).collect(),
            Search::Nothing | Search::Space(_) => Ok(Vec::new()),
        }
    }
}

/// The axes of a search, and the meaning of a point on them. A point has one value for each axis.
#[pyclass(frozen, module = "forebay._native")]
pub struct SearchSpace(Space);

#[pymethods]
impl SearchSpace {
    /// (name, low, high) of each.
    #[getter]
    fn axes(&self) -> Vec<(&'static str, f64, f64)> {
        let axes = self.0.axes.iter();
        axes.map(|axis| (axis.name, axis.low, axis.high)).collect()
    }

    fn params<'py>(&self, py: Python<'py>, point: Vec<f64>) -> PyResult<Params<'py>> {
        params(py, &self.0.settings(&point))
    }

    /// Returns the approximate queue at equilibrium.
    fn queue_pkts(&self, point: Vec<f64>) -> f64 {
        self.0.queue_pkts(&point)
    }

    /// Returns the parameters that the law adapts by itself at an operating point with this number
    /// of active flows.
    fn adapted<'py>(
        &self,
        py: Python<'py>,
        point: Vec<f64>,
        at: Plain,
        flows: f64,
    ) -> PyResult<Params<'py>> {
        params(py, &self.0.adapted(&point, &condition(at), flows))
    }
}

/// Adds the functions and classes of this file to the module.
pub fn register(module: &Bound<PyModule>) -> PyResult<()> {
    module.add_class::<Conditions>()?;
    module.add_class::<SearchSpace>()
}
