//! The options of `forebay link` as Python reads them. They are declared in the scenario's crate, so
//! a build without real traffic has them, too, and its help with them.

use forebay_scenario::link_options::OptionGroup;
use forebay_units::Shape;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::laws::{text, value};

/// Returns every option of a link: a list of {name, placeholder, type, default, default_text, doc,
/// group}, in the order of help. `type` is "flag", "integer", "text" or "table"; `default` is None
/// where there is none; `group` is "link", "up" or "run".
#[pyfunction]
pub fn link_options(py: Python) -> PyResult<Bound<PyList>> {
    let entries: PyResult<Vec<_>> = forebay_scenario::link_options()
        .into_iter()
        .map(|option| {
            let entry = PyDict::new(py);
            let default = option.default.as_ref();
            let kind = match option.shape {
                Shape::Flag => "flag",
                Shape::Integer => "integer",
                Shape::Table => "table",
                _ => "text",
            };
            let group = match option.group {
                OptionGroup::Link => "link",
                OptionGroup::Up => "up",
                OptionGroup::Run => "run",
            };
            entry.set_item("name", option.name)?;
            entry.set_item("placeholder", option.placeholder)?;
            entry.set_item("type", kind)?;
            entry.set_item("default", default.map(|it| value(py, it)).transpose()?)?;
            entry.set_item("default_text", default.map(text))?;
            entry.set_item("doc", option.doc)?;
            entry.set_item("group", group)?;
            Ok(entry)
        })
        .collect();
    PyList::new(py, entries?)
}
