//! Changes to a scenario from the command line.

use forebay_aqm::LawSpec;
use forebay_units::{ParamError, Value};

use crate::law_choice::law_named;
use crate::relink::Relink;
use crate::tree::command_line_value;

/// Reads the value of `--set KEY=TEXT`: TOML, or a plain text if `text` is not TOML.
///
/// # Errors
/// A TOML value that no key takes, such as a date.
pub fn set_value(key: &str, text: &str) -> Result<Value, ParamError> {
    match command_line_value(key, text, "--set") {
        Ok(node) => Ok(node.to_value()),
        Err(fault) => Err(fault.error),
    }
}

/// A law that the caller brings.
#[derive(Clone)]
pub struct Own {
    /// The specification of the law.
    pub spec: &'static LawSpec,
    /// Name in reports where nothing else names it.
    pub label: String,
    /// True if this law runs, as after `--law`; the laws of the file run only if [`Options::laws`]
    /// names them.
    pub runs: bool,
}

impl std::fmt::Debug for Own {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(self.spec.kind)
    }
}

/// Returns true if `kind` names a law in a Python file, FILE.py:CLASS.
pub fn is_prototype(kind: &str) -> bool {
    kind.rsplit_once(':')
        .is_some_and(|(file, class)| file.ends_with(".py") && !class.is_empty())
}

/// Changes from the command line.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The caller brings laws of its own as classes, which are added once it is known which laws
    /// the document names: no other law runs, unless [`Options::laws`] has its name.
    pub brings_laws: bool,
    /// `--set KEY=VALUE`. KEY is a path as in `[sweep]`, with a label in place of a number if
    /// wanted; VALUE is TOML, or a plain text where it is not. A key that is set is not swept.
    pub sets: Vec<(String, String)>,
    /// `--law NAME`: keep only these laws, by label or kind. A kind that the file does not
    /// have is added with its defaults.
    pub laws: Vec<String>,
    /// Laws that the caller brings itself, which the scenario and `laws` may name by their kinds.
    pub own: Vec<Own>,
    /// Files that the scenario may name, with their contents.
    pub files: Vec<(String, Vec<u8>)>,
    /// `--seeds N`, in place of the file's.
    pub seeds: Option<u32>,
    /// The laws of the file take no part, whatever `laws` names.
    pub without_own_laws: bool,
    /// Another link for the scenario, before anything is set.
    pub link: Option<Relink>,
    /// True if the caller sends the packets of external traffic; otherwise a scenario with external
    /// traffic is an error.
    pub external: bool,
    /// True if programs can be run, as on a real kernel; otherwise a scenario with programs is an
    /// error.
    pub programs: bool,
}

impl Options {
    /// Returns the caller's law of this kind.
    pub fn own(&self, kind: &str) -> Option<&Own> {
        self.own.iter().find(|own| own.spec.kind == kind)
    }

    /// Returns the law of this kind: the caller's, or one of the registry.
    ///
    /// # Errors
    /// The kinds there are, with a suggestion.
    pub fn law(&self, kind: &str) -> Result<&'static LawSpec, String> {
        match self.own(kind) {
            Some(own) => Ok(own.spec),
            None if kind.ends_with(".py") => Err("a law, or FILE.py:CLASS".into()),
            None => law_named(kind),
        }
    }
}
