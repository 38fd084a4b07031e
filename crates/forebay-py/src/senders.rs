//! The registry of TCP senders as Python values.

use forebay_scenario::{SenderSpec, SENDERS};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

/// Returns every kind of TCP sender: a list of {name, title, recovery, growth, kernel, window_law,
/// window_law_on_drops}. `kernel` is Linux's name of the congestion control that is most like the
/// sender. `window_law` names the model of the sender's window in linear theory if queues mark
/// packets, and `window_law_on_drops` the model if they drop packets; both are None for a sender
/// without a model.
#[pyfunction]
pub fn senders(py: Python) -> PyResult<Bound<PyList>> {
    let entries: PyResult<Vec<_>> = SENDERS.iter().map(|sender| entry(py, sender)).collect();
    PyList::new(py, entries?)
}

fn entry<'py>(py: Python<'py>, sender: &SenderSpec) -> PyResult<Bound<'py, PyDict>> {
    let entry = PyDict::new(py);
    entry.set_item("name", sender.name)?;
    entry.set_item("title", sender.title)?;
    entry.set_item("recovery", sender.recovery)?;
    entry.set_item("growth", sender.growth)?;
    entry.set_item("kernel", sender.kernel)?;
    let window_law = sender.window_law;
    entry.set_item("window_law", window_law.map(|law| law.name()))?;
    let on_drops = window_law.map(|law| law.on_drops().name());
    entry.set_item("window_law_on_drops", on_drops)?;
    Ok(entry)
}
