//! Runs on the real kernel: the orders for a guest, and the results that it leaves.

use std::path::PathBuf;

use forebay_batch::{Key, Outcome};
use forebay_guest::record::{Fate, PacketRow, START_BYTES};
use forebay_guest::{check, qdisc, trace, Orders};
use forebay_scenario::TrafficKind;
use forebay_trace::Metrics;
use pyo3::exceptions::{PyIndexError, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::batch::Run;
use crate::fluid::refused;
use crate::plan::Plan;

/// Refuses a plan that a guest cannot run. Raises ScenarioError.
#[pyfunction]
fn guest_check(plan: &Plan) -> PyResult<()> {
    let read = plan.read()?;
    for point in &read.experiment.points {
        for law in &point.laws {
            check(&point.scenario, law).map_err(|error| refused(&read.inputs.file, &error))?;
        }
    }
    Ok(())
}

/// Returns the orders of a guest for one run: JSON, true if its queue is the kernel's, and the
/// files that the scenario names, by number. `ours` requests Forebay's queue even if the kernel has
/// the law; programs run in `folder`.
#[pyfunction]
#[pyo3(signature = (plan, point, law, seed, *, ours=false, several_calls=false, folder="/"))]
#[allow(clippy::too_many_arguments, reason = "keywords in Python")]
fn guest_orders(
    py: Python,
    plan: &Plan,
    point: usize,
    law: usize,
    seed: u64,
    ours: bool,
    several_calls: bool,
    folder: &str,
) -> PyResult<(String, bool, Vec<Py<PyBytes>>)> {
    let read = plan.read()?;
    let at = read.experiment.points.get(point);
    let at = at.ok_or_else(|| PyIndexError::new_err("point"))?;
    let gains = read.gains.get(point).map_or(&[][..], Vec::as_slice);
    let orders = Orders::of(&read.inputs, &at.settings, gains, law, seed);
    let mut orders = orders.map_err(PyRuntimeError::new_err)?;
    folder.clone_into(&mut orders.folder);
    orders.several_calls = several_calls;
    let choice = at.laws.get(law);
    let choice = choice.ok_or_else(|| PyIndexError::new_err("law"))?;
    orders.qdisc = qdisc(&at.scenario, choice).filter(|_| !ours);
    let json = serde_json::to_string(&orders).map_err(failed)?;
    // A guest finds the files of programs in the scenario's folder.
    let of_programs = |name: &str| {
        let traffic = at.scenario.traffic.iter();
        let mut files = traffic.flat_map(|of| match &of.kind {
            TrafficKind::Program(program) => &program.files[..],
            _ => &[],
        });
        files.any(|file| file.name == name)
    };
    let files = read.inputs.files.iter().map(|(name, contents)| {
        let contents: &[u8] = if of_programs(name) { &[] } else { contents };
        PyBytes::new(py, contents).unbind()
    });
    Ok((json, orders.qdisc.is_some(), files.collect()))
}

/// Returns the run that a guest has left in `folder`, and its outcome as JSON: the outputs of
/// programs, and the counts of the kernel. Raises RuntimeError with the reason if the guest left no
/// run.
#[pyfunction]
#[pyo3(signature = (plan, point, law, seed, folder, user_cpu_s, *, kernels, samples=true))]
#[allow(clippy::too_many_arguments, reason = "keywords in Python")]
fn guest_run(
    py: Python,
    plan: &Plan,
    point: usize,
    law: usize,
    seed: u64,
    folder: PathBuf,
    user_cpu_s: f64,
    kernels: bool,
    samples: bool,
) -> PyResult<(Py<Run>, String)> {
    let read = plan.read()?;
    let at = read.experiment.points.get(point);
    let at = at.ok_or_else(|| PyIndexError::new_err("point"))?;
    let choice = at.laws.get(law);
    let choice = choice.ok_or_else(|| PyIndexError::new_err("law"))?;
    let (scenario, ours) = (&at.scenario, !kernels);
    let found = py.detach(|| trace(scenario, choice, seed, ours, &folder));
    let (trace, outcome) = found.map_err(PyRuntimeError::new_err)?;
    let target_pkts = scenario
        .target_pkts()
        .or_else(|| choice.target_pkts(&scenario.site()));
    let made = Outcome {
        metrics: vec![Metrics::of(trace.link(0), target_pkts)],
        user_cpu_s,
        trace,
    };
    let run = Run::of(py, Key { point, law, seed }, made, samples)?;
    let json = serde_json::to_string(&outcome).map_err(failed)?;
    Ok((Py::new(py, run)?, json))
}

/// A packet that arrived at the bottleneck of a guest: the times in ns of its arrival and of the
/// start of its transmission (None if it was dropped), its size on the wire, True if it was marked,
/// and its first bytes.
type GuestPacket = (u64, Option<u64>, u32, bool, Py<PyBytes>);

/// Returns the packets of a guest's run, from the contents of its files `packets` and `starts`.
#[pyfunction]
fn guest_packets(py: Python, packets: &[u8], starts: &[u8]) -> Vec<GuestPacket> {
    let rows = PacketRow::rows(packets).zip(starts.chunks_exact(START_BYTES));
    let packet = |(row, start): (PacketRow, &[u8])| {
        let left = (!matches!(row.fate, Fate::Lost(_))).then_some(row.left.as_nanos());
        let marked = row.fate == Fate::Marked;
        let start = PyBytes::new(py, start).unbind();
        (row.arrived.as_nanos(), left, row.bytes, marked, start)
    };
    rows.map(packet).collect()
}

fn failed(error: serde_json::Error) -> PyErr {
    PyRuntimeError::new_err(error.to_string())
}

/// Adds the functions and classes of this file to the module.
pub fn register(module: &Bound<PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(guest_check, module)?)?;
    module.add_function(wrap_pyfunction!(guest_orders, module)?)?;
    module.add_function(wrap_pyfunction!(guest_run, module)?)?;
    module.add_function(wrap_pyfunction!(guest_packets, module)?)
}
