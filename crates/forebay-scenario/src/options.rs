//! Changes to a scenario from the command line.

use forebay_core::{ParamError, Value};

use crate::tree::command_line_value;

/// What `--set KEY=TEXT` means in every command: `text` as TOML, or as a plain text where it is
/// not TOML.
///
/// # Errors
/// A TOML value that no key takes, such as a date.
pub fn set_value(key: &str, text: &str) -> Result<Value, ParamError> {
    match command_line_value(key, text, "--set") {
        Ok(node) => Ok(node.to_value()),
        Err(fault) => Err(fault.error),
    }
}

/// Changes from the command line.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// `--set KEY=VALUE`. KEY is a path as in `[sweep]`, with a label in place of a number if
    /// wanted; VALUE is TOML, or a plain text where it is not. A key that is set is not swept.
    pub sets: Vec<(String, String)>,
    /// `--law NAME`: keep only these laws, by label or kind. A kind that the file does not
    /// have is added with its defaults.
    pub laws: Vec<String>,
    /// Labels of laws that the caller brings itself. Naming one is like `--law`: the laws of
    /// the file take part only where `laws` names them.
    pub prototypes: Vec<String>,
    /// Files that the scenario may name, with their contents.
    pub files: Vec<(String, Vec<u8>)>,
    /// `--seeds N`, in place of the file's.
    pub seeds: Option<u32>,
}
