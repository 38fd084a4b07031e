//! Files that a scenario names: Python reads them, since only it knows where the scenario is.

use forebay_scenario::{Reading, ScenarioError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// Gives `reading` what `read`, a function from a name to bytes or None, has of the files that the
/// scenario names.
pub fn add(reading: &mut Reading, read: Option<&Bound<PyAny>>) -> PyResult<()> {
    let Some(read) = read else { return Ok(()) };
    for name in reading.files() {
        let contents = read.call1((&name,))?;
        if !contents.is_none() {
            let contents = contents.cast::<PyBytes>()?.as_bytes().to_vec();
            reading.add_file(name, contents);
        }
    }
    Ok(())
}

pub fn refused(error: ScenarioError) -> PyErr {
    crate::ScenarioError::new_err(error.to_string())
}
