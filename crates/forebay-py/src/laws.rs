//! The registries of laws and of queue disciplines as Python values.

use forebay_aqm::disciplines::{keys, DISCIPLINES};
use forebay_aqm::laws::LAWS;
use forebay_aqm::{ConfiguredLaw, DisciplineSpec, LawSpec, QueueChoice};
use forebay_scenario::set_value;
use forebay_theory::design::LinearLaw;
use forebay_units::{ParamError, ParamSpec, Shape, Value};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyInt, PyList, PyMapping, PyString};
use pyo3::IntoPyObjectExt;

/// Returns every law: a list of {name, title, source, equation, queue, short_title, baseline,
/// set_point, reality, has_rule, modelled, coupled, per_flow, params}, with the parameters of its
/// default queue. A parameter is {name, unit, default, default_text, min, max, doc}. Numbers are in
/// the unit; `default` is None if the parameter is required, and `min` and `max` are None if there
/// is no bound.
#[pyfunction]
pub fn laws(py: Python) -> PyResult<Bound<PyList>> {
    let entry = |law: &LawSpec| {
        let entry = describe(py, law.kind, law.title, law.source, law.equation, keys(law))?;
        entry.set_item("queue", law.queue)?;
        entry.set_item("short_title", law.name())?;
        entry.set_item("baseline", law.baseline)?;
        entry.set_item("set_point", law.set_point().map(|spec| spec.name))?;
        entry.set_item("reality", law.reality)?;
        entry.set_item("has_rule", law.has_rule())?;
        entry.set_item("modelled", law.is_modelled())?;
        let coupling = |law: &dyn ConfiguredLaw| law.theory().and_then(LinearLaw::coupling);
        let coupled = law.read(&[]).is_ok_and(|law| coupling(&*law).is_some());
        entry.set_item("coupled", coupled)?;
        entry.set_item("per_flow", QueueChoice::of_law(law).is_per_flow())?;
        Ok(entry)
    };
    PyList::new(py, LAWS.iter().map(entry).collect::<PyResult<Vec<_>>>()?)
}

/// Returns every queue discipline: {name, title, source, equation, per_flow, params}, as [`laws`]
/// has them.
#[pyfunction]
pub fn queues(py: Python) -> PyResult<Bound<PyList>> {
    let entry = |queue: &'static DisciplineSpec| {
        let entry = describe(py, queue.kind, queue.title, queue.source, "", queue.params)?;
        entry.set_item("per_flow", QueueChoice::with_defaults(queue).is_per_flow())?;
        Ok(entry)
    };
    let entries = DISCIPLINES.iter().map(entry);
    PyList::new(py, entries.collect::<PyResult<Vec<_>>>()?)
}

fn describe<'py, 'a>(
    py: Python<'py>,
    kind: &str,
    title: &str,
    source: &str,
    equation: &str,
    params: impl IntoIterator<Item = &'a ParamSpec>,
) -> PyResult<Bound<'py, PyDict>> {
    let entry = PyDict::new(py);
    entry.set_item("name", kind)?;
    entry.set_item("title", title)?;
    entry.set_item("source", source)?;
    entry.set_item("equation", equation)?;
    let params: PyResult<Vec<_>> = params.into_iter().map(|spec| param(py, spec)).collect();
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
    // Flags and texts have no range; a default that is in the other of two units has no value in
    // this unit.
    let quantities = matches!(spec.shape, Shape::Quantities(_));
    let ranged = quantities || (spec.default_base)().is_some();
    entry.set_item("name", spec.name)?;
    entry.set_item("unit", spec.unit)?;
    entry.set_item("default", default)?;
    entry.set_item("default_text", text(&written))?;
    entry.set_item("min", finite(spec.min).filter(|_| ranged))?;
    entry.set_item("max", finite(spec.max).filter(|_| ranged))?;
    entry.set_item("doc", spec.doc.trim())?;
    Ok(entry)
}

/// Returns a value as it is written in a scenario, but for the quotes of a text.
pub fn text(value: &Value) -> String {
    match value {
        Value::Text(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Returns the names with their values.
pub fn values<N: ToString>(py: Python, all: &[(N, Value)]) -> PyResult<Vec<(String, Py<PyAny>)>> {
    let one = |(name, it): &(N, Value)| Ok((name.to_string(), value(py, it)?.unbind()));
    all.iter().map(one).collect()
}

/// Returns a value that Python gives under a name; a text means what it means after `--set NAME=`.
pub fn read_setting(name: &str, given: &Bound<PyAny>) -> Result<Value, ParamError> {
    match given.cast::<PyString>() {
        Ok(text) => set_value(name, &text.to_string()),
        Err(_) => read_value(given),
    }
}

/// Returns a value that Python gives: a flag, a number, a text, a path, or a table, whose texts
/// mean what they mean after `--set KEY=`.
pub fn read_value(given: &Bound<PyAny>) -> Result<Value, ParamError> {
    if let Ok(flag) = given.cast::<PyBool>() {
        return Ok(Value::Flag(flag.is_true()));
    }
    if given.is_instance_of::<PyInt>() {
        // One of more than 64 bits goes on as a text.
        let wide = || Value::Text(given.to_string());
        return Ok(given.extract().map_or_else(|_| wide(), Value::Integer));
    }
    if let Ok(number) = given.extract::<f64>() {
        return Ok(Value::Number(number));
    }
    let Ok(table) = given.cast::<PyMapping>() else {
        return Ok(Value::Text(given.to_string()));
    };
    let items = table.items().map(|items| items.iter().collect::<Vec<_>>());
    let mut fields = Vec::new();
    for item in items.unwrap_or_default() {
        let Ok((name, field)) = item.extract::<(String, Bound<PyAny>)>() else {
            return Err(ParamError::new("params", item, "names with their values"));
        };
        let field = read_setting(&name, &field)?;
        fields.push((name, field));
    }
    Ok(Value::Table(fields))
}

/// Returns a value as Python has it.
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
