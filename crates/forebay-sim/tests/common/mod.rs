//! Helpers that run a scenario that a test writes.

#[path = "../../../forebay-scenario/tests/texts/mod.rs"]
mod texts;

use forebay_scenario::{parse, Options};
use forebay_sim::{run, Watch};
use forebay_trace::RunTrace;
#[allow(unused_imports, reason = "not every test has all")]
pub use texts::{ftp, one_bottleneck};

/// Runs a scenario's first law at its first point, with seed 1.
#[allow(dead_code, reason = "not every test has it")]
pub fn simulate(text: &str, options: &Options) -> RunTrace {
    let experiment = parse(text.as_bytes(), "test", options);
    let point = &experiment.unwrap_or_else(|error| panic!("{error}")).points[0];
    let run = run(&point.scenario, &point.laws[0].aqm(), 1, &Watch::default());
    run.unwrap().unwrap()
}

/// A link that no traffic crosses.
#[allow(dead_code, reason = "not every test has it")]
pub const IDLE_LINK: &str = r#"
    [[link]]
    from = "elsewhere"
    to = "nowhere"
    rate = "1Mbit/s"
    buffer = "10p"
"#;

/// Returns a link "back" from the far end of the bottleneck to its near end; `law` is written as in
/// a scenario.
#[allow(dead_code, reason = "not every test has it")]
pub fn link_back(rate: &str, buffer: &str, law: &str) -> String {
    format!(
        r#"
        [[link]]
        name = "back"
        from = "right"
        to = "left"
        rate = "{rate}"
        delay = "10ms"
        buffer = "{buffer}"
        law = {law}
        "#
    )
}
