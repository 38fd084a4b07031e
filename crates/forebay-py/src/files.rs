//! Files that a scenario names: Python reads them, since only it knows where the scenario is.

use forebay_scenario::{files, Options, ScenarioError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// Puts into `options` what `read`, a function from a name to bytes or None, has of the files
/// that the scenario names.
pub fn add(
    options: &mut Options,
    text: &[u8],
    file: &str,
    read: Option<&Bound<PyAny>>,
) -> PyResult<()> {
    let Some(read) = read else { return Ok(()) };
    let names = files(text, file, options).map_err(refused)?;
    for name in names {
        let contents = read.call1((&name,))?;
        if !contents.is_none() {
            let contents = contents.cast::<PyBytes>()?.as_bytes().to_vec();
            options.files.push((name, contents));
        }
    }
    Ok(())
}

pub fn refused(error: ScenarioError) -> PyErr {
    crate::ScenarioError::new_err(error.to_string())
}
