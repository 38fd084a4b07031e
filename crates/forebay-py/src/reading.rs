//! A scenario that Python asks for, with what Python supplies for it: files, laws written in
//! Python, samples of its sweep, and numbers of laws with automatic gains.

use forebay_scenario::{LinkPlace, Options, Reading, Relink, Settings};
use forebay_units::{Bytes, ParamError, Rate, Span, Value};
use numpy::PyReadonlyArray2;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString};

use crate::laws::{read_setting, read_value, values};
use crate::record::record;
use crate::{files, prototype, ScenarioError};

/// Python's modules for what a scenario needs in addition to its text.
const SAMPLES: &str = "forebay.scenario.axes";
/// The Python module that designs gains automatically.
pub const GAINS: &str = "forebay.experiment.automatic_gains";

/// Numbers of laws at a point: the number of the law, and its parameters.
pub type PointGains<'py> = Vec<(usize, Vec<(String, Bound<'py, PyAny>)>)>;
/// The values that a point sets, in the order of the sweep's keys.
pub type Row<'py> = Vec<Bound<'py, PyAny>>;
/// A link, (rate in bit/s, delay in s), another one, and the usual size of a packet in bytes.
pub type Links = ((u64, f64), (u64, f64), u64);

/// The arguments with which a scenario is read, besides its text.
pub struct Asked<'py> {
    pub sets: Vec<(String, String)>,
    /// Names, or classes (or functions) that make a prototype.
    pub laws: Vec<Bound<'py, PyAny>>,
    pub seeds: Option<u32>,
    /// A function from the name of a file to its contents, or None.
    pub read: Option<Bound<'py, PyAny>>,
    pub without_own_laws: bool,
    pub link: Option<Links>,
    /// True if the engine can run programs.
    pub programs: bool,
    /// True if the caller sends the packets of external traffic.
    pub external: bool,
}

/// Reads the tables of a scenario, with its prototypes and its files. `file` is the name of the
/// scenario in errors; Python files are found relative to its folder.
pub fn read(text: &Bound<PyBytes>, file: &str, asked: Asked) -> PyResult<Reading> {
    let py = text.py();
    let mut options = Options {
        sets: asked.sets,
        seeds: asked.seeds,
        without_own_laws: asked.without_own_laws,
        link: asked.link.map(relink),
        programs: asked.programs,
        external: asked.external,
        ..Options::default()
    };
    let mut brought = Vec::new();
    for law in asked.laws {
        match law.cast::<PyString>() {
            Ok(name) => options.laws.push(name.to_string()),
            Err(_) => brought.push(law),
        }
    }
    prototype::add(py, &mut options, text.as_bytes(), file, &brought)?;
    let mut reading = Reading::new(text.as_bytes(), file, options).map_err(files::refused)?;
    files::add(&mut reading, asked.read.as_ref())?;
    Ok(reading)
}

fn relink((from, to, packet_bytes): Links) -> Relink {
    let place = |(rate_bps, delay_s)| LinkPlace {
        rate: Rate::from_bps(rate_bps),
        delay: Span::from_secs_f64(delay_s),
    };
    Relink {
        from: place(from),
        to: place(to),
        packet: Bytes(packet_bytes),
    }
}

/// Returns the points of these rows.
pub fn read_rows(reading: &Reading, rows: Vec<Row>) -> PyResult<Vec<Settings>> {
    let rows = rows.iter().map(|row| row.iter().map(exact).collect());
    let rows = rows.collect::<PyResult<Vec<Vec<Value>>>>()?;
    reading.points_at(rows).map_err(files::refused)
}

/// Parameters of a law as somebody has designed them.
pub fn read_params(params: Vec<(String, Bound<PyAny>)>) -> PyResult<Vec<(String, Value)>> {
    let read = |(name, given): (String, Bound<PyAny>)| {
        let value = read_setting(&name, &given)?;
        Ok((name, value))
    };
    let read: Result<_, ParamError> = params.into_iter().map(read).collect();
    read.map_err(|error| ScenarioError::new_err(error.to_string()))
}

/// Returns a value of a sweep as Python holds it: a text is that text.
pub fn exact(given: &Bound<PyAny>) -> PyResult<Value> {
    if let Ok(text) = given.cast::<PyString>() {
        return Ok(Value::Text(text.to_string()));
    }
    if let Ok(items) = given.cast::<PyList>() {
        let items = items.iter().map(|item| exact(&item));
        return Ok(Value::List(items.collect::<PyResult<_>>()?));
    }
    if let Ok(table) = given.cast::<PyDict>() {
        let field = |(name, field): (Bound<PyAny>, Bound<PyAny>)| {
            Ok((name.extract::<String>()?, exact(&field)?))
        };
        return Ok(Value::Table(
            table.iter().map(field).collect::<PyResult<_>>()?,
        ));
    }
    read_value(given).map_err(|error| ScenarioError::new_err(error.to_string()))
}

/// Shares of the sampled ranges, which scipy draws; empty without a sample.
pub fn shares(py: Python, reading: &Reading) -> PyResult<Vec<f64>> {
    let Some(sample) = reading.sweep().sample() else {
        return Ok(Vec::new());
    };
    let columns = sample.ranges().len();
    let module = py.import(SAMPLES)?;
    let drawn =
        module.call_method1("draw", (sample.method, sample.points, columns, sample.seed))?;
    let drawn: PyReadonlyArray2<f64> = drawn.extract()?;
    Ok(drawn.as_array().iter().copied().collect())
}

record! {
    /// A law with `gains = "auto"`, and the link and load for which it is designed.
    GainsRequest {
        /// Number of its `[[law]]`; those that only `--law` names come last.
        law: usize,
        label: String,
        kind: String,
        /// Parameters that are given; for a sweep, those of its first point.
        given: Vec<(String, Py<PyAny>)>,
        /// True if the law closes one loop for each flow, and not one for all.
        per_flow: bool,
        /// The largest rate of the bottleneck over all changes.
        rate_bps: u64,
        packet_bytes: u64,
        /// Least and most propagation both ways.
        rtt_s: (f64, f64),
        /// The smallest buffer, in packets.
        room_pkts: f64,
        /// Fewest and most long-lived flows; None without any.
        flows: Option<(f64, f64)>,
        /// Smallest number of short flows that send at a time, in parallel with the long-lived
        /// flows.
        short_flows: f64,
        /// Smallest rate of traffic that does not respond to congestion, or that ends before it
        /// could respond, in parallel with the long-lived flows.
        other_bps: f64,
        /// The sender of these flows, as `--tcp` of `forebay design` names it.
        tcp: String,
    }
}

impl GainsRequest {
    /// Returns the Python form of a request for designed gains.
    pub fn of(py: Python, request: forebay_scenario::GainsRequest) -> PyResult<GainsRequest> {
        let load = request.load;
        Ok(GainsRequest {
            law: request.law,
            label: request.label,
            kind: request.kind.to_owned(),
            given: values(py, &request.given)?,
            per_flow: request.per_flow,
            rate_bps: load.rate_bps,
            packet_bytes: load.packet_bytes,
            rtt_s: load.rtt_s,
            room_pkts: load.room_pkts,
            flows: load.flows,
            short_flows: load.beside.short_flows,
            other_bps: load.beside.bps,
            tcp: load.window_law.name().to_owned(),
        })
    }
}

record! {
    /// Numbers that were designed for a law of a plan.
    Designed {
        /// The index of the law, as in `GainsRequest`.
        law: usize,
        label: String,
        params: Vec<(String, Py<PyAny>)>,
        /// A sentence about the link and the load of the design.
        line: String,
        /// Numbers of the points that have it.
        points: Vec<usize>,
    }
}

/// Adds the functions and classes of this file to the module.
pub fn register(module: &Bound<PyModule>) -> PyResult<()> {
    module.add_class::<GainsRequest>()?;
    module.add_class::<Designed>()
}
