//! JSON Schema of a scenario.

/// JSON Schema (draft 2020-12) of a scenario, for editors.
pub fn schema() -> String {
    String::new()
}
