//! The fluid model from Python. `python/forebay/fluid/model.py` has the classes that are read here.

use forebay_aqm::{laws, QueueChoice};
use forebay_fluid::{
    halving, run, Bottleneck, Change, Class, Model, Sender, Step, Trace, What, Windows,
};
use forebay_scenario::LawChoice;
use forebay_units::{Bytes, ParamError, Rate, Span, Time, Value};
use numpy::{PyArray1, PyArray2};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::record::record;
use crate::ScenarioError;

/// Returns a quantity as a scenario writes it.
pub fn quantity<T>(
    key: &str,
    text: &str,
    read: fn(&str) -> Result<T, String>,
) -> Result<T, ParamError> {
    read(text).map_err(|expected| ParamError::new(key, format!("{text:?}"), expected))
}

#[derive(FromPyObject)]
struct PyBottleneck {
    rate: String,
    packet: String,
    buffer_pkts: f64,
    law: String,
    params: Vec<(String, Param)>,
}

#[derive(FromPyObject)]
enum Param {
    Flag(bool),
    Integer(i64),
    Number(f64),
    Text(String),
}

#[derive(FromPyObject)]
struct PyClass {
    label: String,
    flows: f64,
    rtt: String,
    route: Vec<usize>,
    initial_window_pkts: f64,
    window_pkts: f64,
    growth_pkts_per_rtt: f64,
    marks: bool,
    l4s: bool,
    tcp: String,
    sawtooth: bool,
}

#[derive(FromPyObject)]
struct PyChange {
    at: String,
    what: String,
    index: usize,
    value: Amount,
}

/// A quantity, or a plain number.
#[derive(FromPyObject)]
enum Amount {
    Number(f64),
    Text(String),
}

/// A fluid model as Python describes it.
#[derive(FromPyObject)]
pub struct PyModel {
    bottlenecks: Vec<PyBottleneck>,
    classes: Vec<PyClass>,
    changes: Vec<PyChange>,
    duration: String,
    step: String,
    sample: String,
    seed: u64,
}

impl PyBottleneck {
    fn read(self, v: usize) -> Result<Bottleneck, ParamError> {
        let key = |name| format!("bottlenecks.{v}.{name}");
        let spec = laws::find(&self.law).ok_or_else(|| {
            ParamError::new(
                key("law"),
                format!("{:?}", self.law),
                "the name of a law in `forebay laws`",
            )
        })?;
        let value = |param| match param {
            Param::Flag(it) => Value::Flag(it),
            Param::Integer(it) => Value::Integer(it),
            Param::Number(it) => Value::Number(it),
            Param::Text(it) => Value::Text(it),
        };
        Ok(Bottleneck {
            rate: quantity(&key("rate"), &self.rate, Rate::parse)?,
            packet: quantity(&key("packet"), &self.packet, Bytes::parse)?,
            buffer_pkts: self.buffer_pkts,
            law: LawChoice::in_queue(
                spec,
                (self.params.into_iter())
                    .map(|(name, param)| (name, value(param)))
                    .collect(),
                QueueChoice::default(),
            )?,
        })
    }
}

impl PyChange {
    fn read(self, k: usize) -> Result<Change, ParamError> {
        let key = |name| format!("changes.{k}.{name}");
        let index = self.index;
        let what = match (self.what.as_str(), self.value) {
            ("flows", Amount::Number(flows)) => What::Flows {
                class: index,
                flows,
            },
            ("buffer_pkts", Amount::Number(buffer_pkts)) => What::Buffer {
                bottleneck: index,
                buffer_pkts,
            },
            ("rate", Amount::Text(rate)) => What::Rate {
                bottleneck: index,
                rate: quantity(&key("value"), &rate, Rate::parse)?,
            },
            ("rtt", Amount::Text(rtt)) => What::Rtt {
                class: index,
                rtt: quantity(&key("value"), &rtt, Span::parse)?,
            },
            (what, _) => {
                let expected =
                    "\"flows\" or \"buffer_pkts\" with a number, or \"rate\" or \"rtt\" with a text";
                return Err(ParamError::new(key("what"), format!("{what:?}"), expected));
            }
        };
        let at = Time::ZERO + quantity(&key("at"), &self.at, Span::parse)?;
        Ok(Change { at, what })
    }
}

impl PyModel {
    fn read(self) -> Result<Model, ParamError> {
        let class = |(i, class): (usize, PyClass)| {
            Ok(Class {
                rtt: quantity(&format!("classes.{i}.rtt"), &class.rtt, Span::parse)?,
                label: class.label,
                flows: class.flows,
                route: class.route,
                initial_window_pkts: class.initial_window_pkts,
                window_pkts: class.window_pkts,
                growth_pkts_per_rtt: class.growth_pkts_per_rtt,
                // ECT(1) packets can be marked.
                marks: class.marks || class.l4s,
                l4s: class.l4s,
                sender: quantity(&format!("classes.{i}.tcp"), &class.tcp, Sender::named)?,
                windows: windows(class.sawtooth),
            })
        };
        Ok(Model {
            bottlenecks: (self.bottlenecks.into_iter().enumerate())
                .map(|(v, bottleneck)| bottleneck.read(v))
                .collect::<Result<_, _>>()?,
            classes: (self.classes.into_iter().enumerate())
                .map(class)
                .collect::<Result<_, _>>()?,
            changes: (self.changes.into_iter().enumerate())
                .map(|(k, change)| change.read(k))
                .collect::<Result<_, _>>()?,
            duration: quantity("duration", &self.duration, Span::parse)?,
            step: quantity("step", &self.step, Step::parse)?,
            sample: quantity("sample", &self.sample, Span::parse)?,
            seed: self.seed,
        })
    }
}

/// Returns the model of congestion windows: sawtooth or smooth.
pub fn windows(sawtooth: bool) -> Windows {
    if sawtooth {
        Windows::Sawtooth
    } else {
        Windows::Smooth
    }
}

/// Converts an error in a model's parameter to a `ScenarioError` that names the file.
pub fn refused(file: &str, error: &ParamError) -> PyErr {
    let (text, line) = (format!("{file}: {error}"), None::<usize>);
    ScenarioError::new_err((
        text,
        file.to_owned(),
        line,
        error.key.clone(),
        error.expected.clone(),
    ))
}

record! {
    /// Columns of one run.
    FluidTrace {
        point: String,
        law: String,
        classes: Vec<String>,
        time_s: Py<PyArray1<f64>>,
        queue_pkts: Py<PyArray2<f64>>,
        probability: Py<PyArray2<f64>>,
        window_pkts: Py<PyArray2<f64>>,
        in_flight_pkts: Py<PyArray1<f64>>,
        rtt_s: Py<PyArray2<f64>>,
    }
}

impl FluidTrace {
    fn of(py: Python, law: String, model: &Model, trace: Trace) -> PyResult<Self> {
        let columns = |columns: &[Vec<f64>]| -> PyResult<_> {
            Ok(PyArray2::from_vec2(py, columns)?.unbind())
        };
        Ok(FluidTrace {
            point: String::new(),
            law,
            classes: labels(model),
            queue_pkts: columns(&trace.queue_pkts)?,
            probability: columns(&trace.probability)?,
            window_pkts: columns(&trace.window_pkts)?,
            in_flight_pkts: PyArray1::from_vec(py, trace.in_flight_pkts).unbind(),
            rtt_s: columns(&trace.rtt_s)?,
            time_s: PyArray1::from_vec(py, trace.time_s).unbind(),
        })
    }
}

/// Returns the labels of a model's classes.
pub fn labels(model: &Model) -> Vec<String> {
    let classes = model.classes.iter();
    classes.map(|class| class.label.clone()).collect()
}

/// Runs a model.
#[pyfunction]
pub fn fluid_run(py: Python, model: PyModel) -> PyResult<FluidTrace> {
    let refuse = |error: ParamError| refused("fluid model", &error);
    let model = model.read().map_err(refuse)?;
    let trace = py.detach(|| run(&model)).map_err(refuse)?;
    let laws: Vec<&str> = model
        .bottlenecks
        .iter()
        .map(|it| it.law.label.as_str())
        .collect();
    FluidTrace::of(py, laws.join(", "), &model, trace)
}

/// Returns the greatest differences between a run and one with half its step.
#[pyfunction]
pub fn fluid_halving(py: Python, model: PyModel) -> PyResult<Py<PyDict>> {
    let refuse = |error: ParamError| refused("fluid model", &error);
    let model = model.read().map_err(refuse)?;
    let found = py.detach(|| halving(&model)).map_err(refuse)?;
    let table = PyDict::new(py);
    table.set_item("queue_pkts", found.queue_pkts)?;
    table.set_item("window_pkts", found.window_pkts)?;
    table.set_item("probability", found.probability)?;
    Ok(table.unbind())
}
