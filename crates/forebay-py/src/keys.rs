//! The keys of a scenario as Python values, for the generated page.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

/// Returns every key: a list of {section, name, unit, default, required, min, max, expected, doc},
/// in the order of a scenario. `default` is as it is written, and None where there is none.
#[pyfunction]
pub fn keys(py: Python) -> PyResult<Bound<PyList>> {
    let entries: PyResult<Vec<_>> = forebay_scenario::keys()
        .into_iter()
        .map(|key| {
            let entry = PyDict::new(py);
            let (min, max) = key.range.unzip();
            entry.set_item("section", key.section)?;
            entry.set_item("name", key.name)?;
            entry.set_item("unit", key.unit)?;
            entry.set_item("default", key.default)?;
            entry.set_item("required", key.required)?;
            entry.set_item("min", min)?;
            entry.set_item("max", max)?;
            entry.set_item("expected", key.expected)?;
            entry.set_item("doc", key.doc)?;
            Ok(entry)
        })
        .collect();
    PyList::new(py, entries?)
}
