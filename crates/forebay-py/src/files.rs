//! Files that a scenario names: Python reads them, since only it knows where the scenario is.

use forebay_scenario::{Reading, ScenarioError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// The Python function that decompresses data files and reads their encoding.
const DATA: (&str, &str) = ("forebay._base.input_file", "data");

/// Adds the contents of the files that the scenario names to `reading`; `read` is a function from a
/// name to bytes or None.
pub fn add(reading: &mut Reading, read: Option<&Bound<PyAny>>) -> PyResult<()> {
    let Some(read) = read else { return Ok(()) };
    let of_programs = reading.program_files();
    for name in reading.files() {
        let mut contents = read.call1((&name,))?;
        if !contents.is_none() {
            if !of_programs.contains(&name) {
                let data = read.py().import(DATA.0)?.getattr(DATA.1)?;
                contents = data.call1((&name, contents))?;
            }
            let contents = contents.cast::<PyBytes>()?.as_bytes().to_vec();
            reading.add_file(name, contents);
        }
    }
    Ok(())
}

/// Returns the Python exception with the facts of `error`: file, line, key, and the values that the
/// key accepts.
pub fn refused(error: ScenarioError) -> PyErr {
    let (file, key) = (error.file().to_owned(), error.key().to_owned());
    let expected = error.expected().to_owned();
    crate::ScenarioError::new_err((error.to_string(), file, error.line(), key, expected))
}
