//! The registry of TCP senders as Python values.

use forebay_scenario::{SenderSpec, SENDERS};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

/// Every sender of TCP: a list of {name, title, recovery, growth, kernel}; `kernel` is the Linux
/// kernel's name of the congestion control that is most like it.
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
    Ok(entry)
}
