//! Whole runs of scenarios that a test writes.

use forebay_scenario::{parse, Options};
use forebay_sim::{run, Watch};
use forebay_trace::Trace;

/// A run of a scenario's first law at its first point, with seed 1.
pub fn simulate(text: &str) -> Trace {
    let experiment = parse(text.as_bytes(), "test", &Options::default());
    let point = &experiment.unwrap_or_else(|error| panic!("{error}")).points[0];
    let run = run(&point.scenario, &point.laws[0].aqm(), 1, &Watch::default());
    run.unwrap().unwrap()
}
