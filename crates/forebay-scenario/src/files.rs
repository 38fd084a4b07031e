//! The files that a scenario names, each read once for all points.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use forebay_core::RateTrace;
use forebay_packets::{Arrivals, Selection};

use crate::error::Fault;
use crate::options::Options;
use crate::tree::Section;

/// The key of a link that names a file, and that of traffic.
pub const TRACE_KEY: &str = "rate_trace";
pub const ARRIVALS_KEY: &str = "file";

/// Their contents come with the call; nothing is opened.
pub struct Files<'a> {
    contents: &'a [(String, Vec<u8>)],
    traces: RefCell<HashMap<String, Arc<RateTrace>>>,
    arrivals: RefCell<HashMap<(String, Selection), Arc<Arrivals>>>,
}

impl<'a> Files<'a> {
    pub fn of(options: &'a Options) -> Files<'a> {
        Files {
            contents: &options.files,
            traces: RefCell::default(),
            arrivals: RefCell::default(),
        }
    }

    fn contents(&self, section: &Section, key: &str, file: &str) -> Result<&'a [u8], Fault> {
        match self.contents.iter().find(|(name, _)| name == file) {
            Some((_, contents)) => Ok(contents),
            None => {
                let allowed = "a file that can be read, named as from this one's folder";
                Err(section.fault(key, format!("{file:?}"), allowed))
            }
        }
    }

    /// The recorded link in the file of this name.
    pub fn trace(&self, section: &Section, file: &str) -> Result<Arc<RateTrace>, Fault> {
        if let Some(trace) = self.traces.borrow().get(file) {
            return Ok(Arc::clone(trace));
        }
        let key = TRACE_KEY;
        let contents = self.contents(section, key, file)?;
        let trace = RateTrace::parse(contents, key, file).map_err(|error| section.locate(error))?;
        let trace = Arc::new(trace);
        let mut traces = self.traces.borrow_mut();
        traces.insert(file.to_owned(), Arc::clone(&trace));
        Ok(trace)
    }

    /// The packets in the file of this name.
    pub fn arrivals(
        &self,
        section: &Section,
        file: &str,
        selection: Selection,
    ) -> Result<Arc<Arrivals>, Fault> {
        let which = (file.to_owned(), selection);
        if let Some(arrivals) = self.arrivals.borrow().get(&which) {
            return Ok(Arc::clone(arrivals));
        }
        let key = ARRIVALS_KEY;
        let contents = self.contents(section, key, file)?;
        let arrivals = Arrivals::parse(contents, &which.1, key, file)
            .map_err(|error| section.locate(error))?;
        let arrivals = Arc::new(arrivals);
        let mut all = self.arrivals.borrow_mut();
        all.insert(which, Arc::clone(&arrivals));
        Ok(arrivals)
    }
}
