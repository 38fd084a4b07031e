//! The files that a scenario names, each read once for all points.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use forebay_aqm::RateTrace;
use forebay_packets::{Arrivals, Selection};

use crate::error::Fault;
use crate::model::ProgramFile;
use crate::tree::Section;

/// The key of a link that names the file of a rate trace.
pub const TRACE_KEY: &str = "rate_trace";
/// The key of a traffic that names the file of recorded packets.
pub const ARRIVALS_KEY: &str = "file";
/// The key of a traffic that lists the files of its programs.
pub const PROGRAM_KEY: &str = "files";

/// The contents of the files that a scenario names. The caller supplies them; nothing is opened.
#[derive(Default)]
pub struct Files {
    contents: Vec<(String, Arc<[u8]>)>,
    traces: Parsed<String, RateTrace>,
    arrivals: Parsed<(String, Selection), Arrivals>,
}

/// The contents that were parsed, each once.
struct Parsed<K, T>(Mutex<HashMap<K, Arc<T>>>);

impl<K, T> Default for Parsed<K, T> {
    fn default() -> Self {
        Parsed(Mutex::default())
    }
}

impl<K: std::hash::Hash + Eq, T> Parsed<K, T> {
    fn get(&self, key: K, parse: impl FnOnce(&K) -> Result<T, Fault>) -> Result<Arc<T>, Fault> {
        // What a panic elsewhere left is whole.
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = all.get(&key) {
            return Ok(Arc::clone(known));
        }
        let parsed = Arc::new(parse(&key)?);
        all.insert(key, Arc::clone(&parsed));
        Ok(parsed)
    }
}

impl Files {
    /// Adds the contents of files, by name.
    pub fn add(&mut self, contents: Vec<(String, Vec<u8>)>) {
        let contents = contents.into_iter();
        self.contents
            .extend(contents.map(|(name, contents)| (name, contents.into())));
    }

    /// Returns all files that were added.
    pub fn all(&self) -> &[(String, Arc<[u8]>)] {
        &self.contents
    }

    fn contents(&self, section: &Section, key: &str, file: &str) -> Result<&[u8], Fault> {
        match self.contents.iter().find(|(name, _)| name == file) {
            Some((_, contents)) => Ok(contents),
            None => {
                let expected = "a readable file, relative to the folder of the scenario";
                Err(section.fault(key, format!("{file:?}"), expected))
            }
        }
    }

    /// Returns a file that programs may read.
    pub fn of_programs(&self, section: &Section, name: String) -> Result<ProgramFile, Fault> {
        let contents = self.contents(section, PROGRAM_KEY, &name)?;
        Ok(ProgramFile::new(name, contents))
    }

    /// Returns the recorded link in the file of this name.
    pub fn trace(&self, section: &Section, file: &str) -> Result<Arc<RateTrace>, Fault> {
        self.traces.get(file.to_owned(), |file| {
            let contents = self.contents(section, TRACE_KEY, file)?;
            let trace = RateTrace::parse(contents, TRACE_KEY, file);
            trace.map_err(|error| section.locate(error))
        })
    }

    /// Returns the packets in the file of this name.
    pub fn arrivals(
        &self,
        section: &Section,
        file: &str,
        selection: Selection,
    ) -> Result<Arc<Arrivals>, Fault> {
        self.arrivals
            .get((file.to_owned(), selection), |(file, selection)| {
                let contents = self.contents(section, ARRIVALS_KEY, file)?;
                let arrivals = Arrivals::parse(contents, selection, ARRIVALS_KEY, file);
                arrivals.map_err(|error| section.locate(error))
            })
    }
}
