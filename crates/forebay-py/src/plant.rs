//! TCP windows, and the equilibria of classes of flows under a law, as Python values.

use forebay_theory::equilibrium::{
    AckClockedFlows, Equilibrium, FlowClass, Flows, MixedFlows, RenoFlows,
};
use forebay_theory::window_law::{self, WindowLaw};
use numpy::ndarray::Array;
use numpy::{IntoPyArray, PyArray1, PyArray2, PyArray3, PyReadonlyArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::control::{fault, filter, outcome, place, LawModel, OperatingPoint};

/// A number for each row.
type Column<'py> = PyReadonlyArray1<'py, f64>;

fn law_named(name: &str) -> PyResult<WindowLaw> {
    WindowLaw::named(name).ok_or_else(|| {
        let names: Vec<&str> = WindowLaw::ALL.iter().map(|law| law.name()).collect();
        let names = names.join(", ");
        PyValueError::new_err(format!("window law {name:?} is none of {names}"))
    })
}

/// Rows of columns that have the same length.
fn rows<'a, const N: usize>(
    columns: &'a [Column; N],
) -> PyResult<impl Iterator<Item = [f64; N]> + 'a> {
    let columns = columns.each_ref().map(|column| column.as_array());
    let length = columns[0].len();
    if columns.iter().any(|column| column.len() != length) {
        return Err(PyValueError::new_err("columns of different lengths"));
    }
    Ok((0..length).map(move |row| columns.each_ref().map(|column| column[row])))
}

/// Returns the windows at equilibrium, in packets, for these probabilities and round trips. Raises
/// `ValueError` for an unknown window law, and for columns of different lengths.
#[pyfunction]
fn windows_pkts<'py>(
    py: Python<'py>,
    window_law: &str,
    probability: Column,
    rtt_s: Column,
) -> PyResult<Bound<'py, PyArray1<f64>>> {
    let law = law_named(window_law)?;
    let columns = [probability, rtt_s];
    let found = rows(&columns)?.map(|[p, rtt_s]| law.window_pkts(p, rtt_s));
    Ok(found.collect::<Vec<_>>().into_pyarray(py))
}

/// Returns the smallest window of a sender, in packets. Raises `ValueError` for an unknown window
/// law.
#[pyfunction]
fn least_window_pkts(window_law: &str) -> PyResult<f64> {
    Ok(law_named(window_law)?.least_pkts())
}

/// Coefficients of a window near its equilibrium, x' = a·x + b·δp(t − R) + e·δR, δW = c·x; and 1 if
/// packets leave at the rate W/R + W', 0 if at W/R.
type Motions<'py> = (
    Bound<'py, PyArray3<f64>>,
    Bound<'py, PyArray2<f64>>,
    Bound<'py, PyArray2<f64>>,
    Bound<'py, PyArray2<f64>>,
    Bound<'py, PyArray1<f64>>,
);

/// Returns (a, b, e, c, clocked) of windows near their equilibrium, with a row for each probability
/// and round trip: x' = a·x + b·δp(t − R) + e·δR, δW = c·x. `clocked` is 1 if packets leave at the
/// rate W/R + W', and 0 if at W/R. Raises `ValueError` for an unknown window law, and columns of
/// different lengths.
#[pyfunction]
fn window_motions<'py>(
    py: Python<'py>,
    window_law: &str,
    probability: Column,
    rtt_s: Column,
) -> PyResult<Motions<'py>> {
    let law = law_named(window_law)?;
    let columns = [probability, rtt_s];
    let found: Vec<_> = rows(&columns)?
        .map(|[p, rtt_s]| law.motion(p, rtt_s))
        .collect();
    let (count, order) = (found.len(), law.order());
    let a = found.iter().flat_map(|it| it.a.concat()).collect();
    let matrix = |of: fn(&window_law::Motion) -> &Vec<f64>| {
        let values = found.iter().flat_map(|it| of(it).clone()).collect();
        let shaped = Array::from_shape_vec((count, order), values);
        Ok::<_, PyErr>(shaped.map_err(ragged)?.into_pyarray(py))
    };
    let a = Array::from_shape_vec((count, order, order), a).map_err(ragged)?;
    let clocked = found.iter().map(|it| f64::from(u8::from(it.clocked)));
    let clocked: Vec<f64> = clocked.collect();
    Ok((
        a.into_pyarray(py),
        matrix(|it| &it.b)?,
        matrix(|it| &it.e)?,
        matrix(|it| &it.c)?,
        clocked.into_pyarray(py),
    ))
}

fn ragged(error: impl ToString) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// Returns the share of CUBIC's mean window that is RFC 9438's cubic; the rest is the Reno-friendly
/// region.
#[pyfunction]
fn cubic_share(probability: f64, rtt_s: f64) -> f64 {
    window_law::cubic_share(probability, rtt_s)
}

/// The response of a link's flows to a law, scaled to any number of flows and any mean round trip.
#[derive(Clone)]
enum Kind {
    Reno,
    AckClocked,
    Mixed(Vec<FlowClass>),
}

/// A link's flows and their response to a law, for any number of flows and mean round trip.
#[pyclass(frozen, module = "forebay._native")]
pub struct FlowModel(Kind);

impl FlowModel {
    fn on_link(&self, flows: f64, propagation_s: f64, capacity_pkts_per_s: f64) -> Box<dyn Flows> {
        let reno = RenoFlows {
            flows,
            propagation_s,
            capacity_pkts_per_s,
        };
        match &self.0 {
            Kind::Reno => Box::new(reno),
            Kind::AckClocked => Box::new(AckClockedFlows { reno }),
            Kind::Mixed(classes) => Box::new(MixedFlows::new(
                classes.clone(),
                flows,
                propagation_s,
                capacity_pkts_per_s,
            )),
        }
    }
}

/// The kind of equilibrium, the queue in packets and the probability, None for what does not apply;
/// and at a linear equilibrium, the point and the law's model there.
type Settled<'py> = (
    &'static str,
    Option<f64>,
    Option<f64>,
    Option<(OperatingPoint, Bound<'py, PyDict>)>,
);

#[pymethods]
impl FlowModel {
    /// Reno as published.
    #[staticmethod]
    fn reno() -> Self {
        FlowModel(Kind::Reno)
    }

    /// Reno with ACKs as its clock and windows in sawteeth.
    #[staticmethod]
    fn ack_clocked() -> Self {
        FlowModel(Kind::AckClocked)
    }

    /// Classes with window laws and round trips of their own: `shares` are the fractions of the
    /// flows in each class, and `rtt_ratios` the ratios of each class's round trip without a queue
    /// to the mean. `l4s` describes additional L4S flows with the mean round trip: their number,
    /// the factor k of the coupling, and whether they have a queue of their own. Raises
    /// `ValueError` for an unknown window law, and lists of different lengths.
    #[staticmethod]
    #[pyo3(signature = (window_laws, shares, rtt_ratios, l4s = None))]
    fn mixed(
        window_laws: Vec<String>,
        shares: Vec<f64>,
        rtt_ratios: Vec<f64>,
        l4s: Option<(f64, f64, bool)>,
    ) -> PyResult<Self> {
        if window_laws.len() != shares.len() || shares.len() != rtt_ratios.len() {
            return Err(PyValueError::new_err("lists of different lengths"));
        }
        let classes = window_laws.iter().zip(shares).zip(rtt_ratios);
        let class = |((name, share), rtt_ratio): ((&String, f64), f64)| {
            Ok(FlowClass::of_share(law_named(name)?, share, rtt_ratio))
        };
        let mut classes: Vec<FlowClass> = classes.map(class).collect::<PyResult<_>>()?;
        classes.extend(l4s.map(|(fixed_flows, coupling, apart)| FlowClass {
            fixed_flows,
            coupling: Some(coupling),
            waits: !apart,
            ..FlowClass::of_share(WindowLaw::Dctcp, 0.0, 1.0)
        }));
        Ok(FlowModel(Kind::Mixed(classes)))
    }

    /// These flows on a link with a queue: the probability that they need, and how many flows of
    /// Reno need the same.
    fn operating_point(
        &self,
        flows: f64,
        propagation_s: f64,
        queue_pkts: f64,
        capacity_pkts_per_s: f64,
    ) -> OperatingPoint {
        let flows = self.on_link(flows, propagation_s, capacity_pkts_per_s);
        OperatingPoint(flows.operating_point(queue_pkts))
    }

    /// Returns the kind of equilibrium under a law for each number of flows and mean propagation
    /// RTT, as `LawModel.rest` does for Reno, with the point and the law's model there. "small"
    /// means that a window would be smaller than the smallest window of its sender. Raises
    /// `ScenarioError` for a parameter of the law that does not fit its link.
    fn settle<'py>(
        &self,
        py: Python<'py>,
        law: &LawModel,
        flows: Vec<f64>,
        propagation_s: f64,
    ) -> PyResult<Vec<Settled<'py>>> {
        let settle = |flows: f64| {
            let flows = self.on_link(flows, propagation_s, law.capacity_pkts_per_s());
            let found = law.law.settle(flows.as_ref(), &law.site).map_err(fault)?;
            settled(py, &found)
        };
        flows.into_iter().map(settle).collect()
    }
}

fn settled<'py>(py: Python<'py>, found: &Equilibrium) -> PyResult<Settled<'py>> {
    let (queue_pkts, probability) = place(found);
    let there = match found {
        Equilibrium::Linear {
            point,
            model,
            queue_pkts,
        } => {
            let model = filter(py, model)?;
            // Up to rounding, this is the queue that the search found.
            model.set_item("queue_pkts", queue_pkts)?;
            Some((OperatingPoint(*point), model))
        }
        _ => None,
    };
    Ok((outcome(found), queue_pkts, probability, there))
}

/// Adds the functions and classes of this file to the module.
pub fn register(module: &Bound<PyModule>) -> PyResult<()> {
    module.add_class::<FlowModel>()?;
    module.add_function(wrap_pyfunction!(windows_pkts, module)?)?;
    module.add_function(wrap_pyfunction!(least_window_pkts, module)?)?;
    module.add_function(wrap_pyfunction!(window_motions, module)?)?;
    module.add_function(wrap_pyfunction!(cubic_share, module)?)
}
