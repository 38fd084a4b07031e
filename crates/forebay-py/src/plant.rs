//! Windows of TCP, and where mixes of them settle under a law, as Python values.

use forebay_core::equilibrium::{self, FlowClass, Flows, MixedFlows};
use forebay_core::window_law::{self, WindowLaw};
use numpy::ndarray::Array;
use numpy::{IntoPyArray, PyArray1, PyArray2, PyArray3, PyReadonlyArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::control::{fault, outcome, place, LawModel};

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

/// Windows at rest in packets, of probabilities and round trips.
/// Raises `ValueError` for a window law that there is not, and columns of different lengths.
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

/// The least window that a sender keeps, in packets.
/// Raises `ValueError` for a window law that there is not.
#[pyfunction]
fn least_window_pkts(window_law: &str) -> PyResult<f64> {
    Ok(law_named(window_law)?.least_pkts())
}

/// x' = a·x + b·δp(t − R) + e·δR, δW = c·x of a window around its rest.
type Motions<'py> = (
    Bound<'py, PyArray3<f64>>,
    Bound<'py, PyArray2<f64>>,
    Bound<'py, PyArray2<f64>>,
    Bound<'py, PyArray2<f64>>,
);

/// (a, b, e, c) of windows around their rest at probabilities and round trips, with a row for each:
/// x' = a·x + b·δp(t − R) + e·δR, δW = c·x.
/// Raises `ValueError` for a window law that there is not, and columns of different lengths.
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
    Ok((
        a.into_pyarray(py),
        matrix(|it| &it.b)?,
        matrix(|it| &it.e)?,
        matrix(|it| &it.c)?,
    ))
}

fn ragged(error: impl ToString) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// How much of CUBIC's mean window is RFC 9438's cubic; the rest is the Reno-friendly region.
#[pyfunction]
fn cubic_share(probability: f64, rtt_s: f64) -> f64 {
    window_law::cubic_share(probability, rtt_s)
}

/// Classes of flows with window laws and round trips of their own, scaled to any number of flows and
/// any mean round trip. `shares` are of the flows, `rtt_ratios` of each round trip without a queue to
/// the mean.
#[pyclass(frozen, module = "forebay._native")]
pub struct FlowMix {
    classes: Vec<FlowClass>,
}

impl FlowMix {
    fn with(&self, flows: f64, propagation_s: f64, capacity_pkts_per_s: f64) -> MixedFlows {
        MixedFlows::new(
            self.classes.clone(),
            flows,
            propagation_s,
            capacity_pkts_per_s,
        )
    }
}

/// How each settles, its queue in packets, and its probability; nan for what does not apply.
type Settled<'py> = (
    Vec<&'static str>,
    Bound<'py, PyArray1<f64>>,
    Bound<'py, PyArray1<f64>>,
);

#[pymethods]
impl FlowMix {
    /// Raises `ValueError` for a window law that there is not, and lists of different lengths.
    #[new]
    fn new(window_laws: Vec<String>, shares: Vec<f64>, rtt_ratios: Vec<f64>) -> PyResult<Self> {
        if window_laws.len() != shares.len() || shares.len() != rtt_ratios.len() {
            return Err(PyValueError::new_err("lists of different lengths"));
        }
        let classes = window_laws.iter().zip(shares).zip(rtt_ratios);
        let class = |((name, share), rtt_ratio): ((&String, f64), f64)| {
            Ok(FlowClass {
                window_law: law_named(name)?,
                share,
                rtt_ratio,
            })
        };
        Ok(FlowMix {
            classes: classes.map(class).collect::<PyResult<_>>()?,
        })
    }

    /// The probability with which each number of flows fills a link, with a queue there.
    fn probabilities<'py>(
        &self,
        py: Python<'py>,
        flows: Column,
        propagation_s: Column,
        queue_pkts: Column,
        capacity_pkts_per_s: Column,
    ) -> PyResult<Bound<'py, PyArray1<f64>>> {
        let columns = [flows, propagation_s, queue_pkts, capacity_pkts_per_s];
        let found = rows(&columns)?.map(|[flows, propagation_s, queue_pkts, capacity]| {
            self.with(flows, propagation_s, capacity)
                .probability(queue_pkts)
        });
        Ok(found.collect::<Vec<_>>().into_pyarray(py))
    }

    /// How many flows fill a link at a probability, with a queue there.
    fn flows<'py>(
        &self,
        py: Python<'py>,
        probability: Column,
        propagation_s: Column,
        queue_pkts: Column,
        capacity_pkts_per_s: Column,
    ) -> PyResult<Bound<'py, PyArray1<f64>>> {
        let columns = [probability, propagation_s, queue_pkts, capacity_pkts_per_s];
        let found = rows(&columns)?.map(|[p, propagation_s, queue_pkts, capacity]| {
            let mix = self.with(1.0, propagation_s, capacity);
            capacity / mix.mean_rate_pkts_per_s(p, queue_pkts)
        });
        Ok(found.collect::<Vec<_>>().into_pyarray(py))
    }

    /// How many flows of Reno need the same probability as each number of these, with a queue there.
    fn reno_flows<'py>(
        &self,
        py: Python<'py>,
        flows: Column,
        propagation_s: Column,
        queue_pkts: Column,
        capacity_pkts_per_s: Column,
    ) -> PyResult<Bound<'py, PyArray1<f64>>> {
        let columns = [flows, propagation_s, queue_pkts, capacity_pkts_per_s];
        let found = rows(&columns)?.map(|[flows, propagation_s, queue_pkts, capacity]| {
            let mix = self.with(flows, propagation_s, capacity);
            mix.operating_point(queue_pkts).flows()
        });
        Ok(found.collect::<Vec<_>>().into_pyarray(py))
    }

    /// How each number of flows with a mean round trip without a queue settles under a law, as
    /// `LawModel.rest` has it of Reno's: ([how], queue_pkts, probability), nan for what does not
    /// apply. "small": a window would be less than its sender keeps.
    /// Raises `ScenarioError` for a parameter of the law that does not fit its link.
    fn settle<'py>(
        &self,
        py: Python<'py>,
        law: &LawModel,
        flows: Column,
        propagation_s: Column,
    ) -> PyResult<Settled<'py>> {
        let capacity = law.site.rate.packets_per_sec(law.site.packet);
        let configured = law.spec.read(&law.given).map_err(fault)?;
        let columns = [flows, propagation_s];
        let (mut how, mut queue, mut probability) = (Vec::new(), Vec::new(), Vec::new());
        for [flows, propagation_s] in rows(&columns)? {
            let mix = self.with(flows, propagation_s, capacity);
            let found = equilibrium::settle(
                &|point, site| configured.linear(point, site),
                &mix,
                &law.site,
            )
            .map_err(fault)?;
            let (queue_pkts, p) = place(&found);
            how.push(outcome(&found));
            queue.push(queue_pkts.unwrap_or(f64::NAN));
            probability.push(p.unwrap_or(f64::NAN));
        }
        Ok((how, queue.into_pyarray(py), probability.into_pyarray(py)))
    }
}

pub fn register(module: &Bound<PyModule>) -> PyResult<()> {
    module.add_class::<FlowMix>()?;
    module.add_function(wrap_pyfunction!(windows_pkts, module)?)?;
    module.add_function(wrap_pyfunction!(least_window_pkts, module)?)?;
    module.add_function(wrap_pyfunction!(window_motions, module)?)?;
    module.add_function(wrap_pyfunction!(cubic_share, module)?)
}
