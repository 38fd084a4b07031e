//! Whole runs of scenarios that a test writes.

use forebay_scenario::{parse, Options};
use forebay_sim::{run, Watch};
use forebay_trace::Trace;

/// A scenario with one bottleneck, measured from the first of these seconds to the second, which is
/// its end; `more` are further keys of the bottleneck, then tables.
pub fn one_bottleneck(measure_s: [u32; 2], rate: &str, buffer: &str, more: &str) -> String {
    let [from_s, to_s] = measure_s;
    format!(
        "duration = \"{to_s}s\"\nmeasure = [\"{from_s}s\", \"{to_s}s\"]\n[bottleneck]\n\
         rate = \"{rate}\"\nbuffer = \"{buffer}\"\n{more}"
    )
}

/// A run of a scenario's first law at its first point, with seed 1.
pub fn simulate(text: &str, options: &Options) -> Trace {
    let experiment = parse(text.as_bytes(), "test", options);
    let point = &experiment.unwrap_or_else(|error| panic!("{error}")).points[0];
    let run = run(&point.scenario, &point.laws[0].aqm(), 1, &Watch::default());
    run.unwrap().unwrap()
}
