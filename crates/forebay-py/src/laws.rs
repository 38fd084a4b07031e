//! The registry of laws as Python values.

use forebay_core::param::{ParamSpec, Value};
use forebay_core::{laws::LAWS, LawSpec};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use pyo3::IntoPyObjectExt;

/// Every law: a list of {name, title, source, params}, each parameter {name, unit, default,
/// default_text, min, max, doc}. Numbers are in the unit; `default` is None where the
/// parameter must be given, and a bound is None where there is none.
#[pyfunction]
pub fn laws(py: Python) -> PyResult<Bound<PyList>> {
    PyList::new(
        py,
        LAWS.iter()
            .map(|law| describe(py, law))
            .collect::<PyResult<Vec<_>>>()?,
    )
}

fn describe<'py>(py: Python<'py>, law: &LawSpec) -> PyResult<Bound<'py, PyDict>> {
    let entry = PyDict::new(py);
    entry.set_item("name", law.kind)?;
    entry.set_item("title", law.title)?;
    entry.set_item("source", law.source)?;
    let params: PyResult<Vec<_>> = law.params.iter().map(|spec| param(py, spec)).collect();
    entry.set_item("params", params?)?;
    Ok(entry)
}

fn param<'py>(py: Python<'py>, spec: &ParamSpec) -> PyResult<Bound<'py, PyDict>> {
    let entry = PyDict::new(py);
    let finite = |bound: f64| bound.is_finite().then_some(bound);
    let written = (spec.default)();
    let default = match (spec.default_base)() {
        _ if spec.required => None,
        Some(number) => Some(number.into_bound_py_any(py)?),
        None => Some(value(py, &written)?),
    };
    // A range means nothing for a flag or a text.
    let ranged = (spec.default_base)().is_some();
    entry.set_item("name", spec.name)?;
    entry.set_item("unit", spec.unit)?;
    entry.set_item("default", default)?;
    entry.set_item("default_text", text(&written))?;
    entry.set_item("min", finite(spec.min).filter(|_| ranged))?;
    entry.set_item("max", finite(spec.max).filter(|_| ranged))?;
    entry.set_item("doc", spec.doc.trim())?;
    Ok(entry)
}

/// A value as it is written in a scenario, but for the quotes of a text.
pub fn text(value: &Value) -> String {
    match value {
        Value::Text(text) => text.clone(),
        other => other.to_string(),
    }
}

/// A value as Python has it.
pub fn value<'py>(py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyAny>> {
    match value {
        Value::Flag(it) => it.into_bound_py_any(py),
        Value::Integer(it) => it.into_bound_py_any(py),
        Value::Number(it) => it.into_bound_py_any(py),
        Value::Text(it) => it.into_bound_py_any(py),
        Value::List(items) => {
            let items: PyResult<Vec<_>> = items.iter().map(|item| self::value(py, item)).collect();
            items?.into_bound_py_any(py)
        }
        Value::Table(fields) => {
            let table = PyDict::new(py);
            for (name, field) in fields {
                table.set_item(name, self::value(py, field)?)?;
            }
            table.into_bound_py_any(py)
        }
    }
}
