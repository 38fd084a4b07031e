//! Scenarios of RFC 7928 for a transport under test, whose bulk flows come from the caller, and the
//! results of the transport as lines, JSON and JUnit's XML.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{env, fs};

use crate::escape::{json, xml};
use crate::Report;

macro_rules! scenario {
    ($name:literal) => {
        ($name, include_str!(concat!("../rfc7928/", $name, ".toml")))
    };
}

/// The name and the text of each scenario. The names begin with the section of the RFC. External
/// traffic has the label "external". The law is DropTail, which
/// [`Options::laws`](crate::Options::laws) replaces.
pub const SCENARIOS: &[(&str, &str)] = &[
    scenario!("4-5-ecn"),
    scenario!("4-5-l4s"),
    scenario!("5-1-friendly"),
    scenario!("5-1-windows"),
    scenario!("5-2-aggressive"),
    scenario!("5-3-unresponsive"),
    scenario!("5-4-background"),
    scenario!("6-rtt-fairness-5ms"),
    scenario!("6-rtt-fairness-20ms"),
    scenario!("6-rtt-fairness-100ms"),
    scenario!("6-rtt-fairness-250ms"),
    scenario!("6-rtt-fairness-560ms"),
    scenario!("7-1-web"),
    scenario!("7-2-frames"),
    scenario!("7-3-bursts"),
    scenario!("8-1-mild"),
    scenario!("8-2-medium"),
    scenario!("8-3-heavy"),
    scenario!("8-5-capacity"),
    scenario!("9-1-mix"),
    scenario!("9-2-two-ways"),
];

/// The environment variable that names the folder for files of results.
pub const RESULTS: &str = "FOREBAY_RESULTS";

/// The metrics of the bottleneck in a result (docs/reference/metrics.md). A result also has
/// `share`, that of the traffic "external".
const METRICS: [&str; 4] = ["utilisation", "delay_p95_s", "drop_rate", "mark_rate"];

/// The results of a transport in the scenarios under one law.
///
/// Tests of several laws run at the same time. The lines of one law are therefore written together,
/// by [`finish`](Results::finish), and each law has files of its own.
///
/// ```
/// # use forebay_net::{rfc7928::Results, Handle, Network};
/// # let scenario = "duration = '1s'\nmeasure = ['100ms', '1s']\n[bottleneck]\nrate = '1Mbit/s'\nbuffer = '9p'\n[[traffic]]\nkind = 'external'\nflows = 1\nrtt = '9ms'\n[[law]]\nkind = 'pie'\n";
/// let mut results = Results::under("pie");
/// // For each scenario, once the transport has run in it:
/// let network: Network<Handle> = Network::from_toml(scenario, 1)?;
/// let result = results.add("5-4-background", &network.finish());
/// result.expect(result.metric("utilisation") < 2.0, "more than the link carries");
/// results.finish()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Results {
    law: String,
    results: Vec<ScenarioResult>,
    began: Instant,
}

/// The result of a transport in one scenario.
pub struct ScenarioResult {
    scenario: String,
    metrics: Vec<(&'static str, f64)>,
    failures: Vec<String>,
    took: Duration,
}

impl ScenarioResult {
    /// Returns `share`, `utilisation`, `delay_p95_s`, `drop_rate` or `mark_rate`; NaN for any other
    /// name.
    pub fn metric(&self, name: &str) -> f64 {
        let mut metrics = self.metrics.iter();
        let metric = metrics.find(|(key, _)| *key == name);
        metric.map_or(f64::NAN, |(_, value)| *value)
    }

    /// Notes a failure of the scenario, unless `holds` is true.
    pub fn expect(&mut self, holds: bool, failure: impl Into<String>) {
        if !holds {
            self.failures.push(failure.into());
        }
    }

    /// Returns the line of the result.
    fn line(&self, law: &str) -> String {
        format!(
            "{:22} {law:9} its share {:3.0} %, utilisation {:3.0} %, delay p95 {:6.1} ms, drops {:5.2} %, \
             marks {:5.2} %",
            self.scenario,
            100.0 * self.metric("share"),
            100.0 * self.metric("utilisation"),
            1e3 * self.metric("delay_p95_s"),
            100.0 * self.metric("drop_rate"),
            100.0 * self.metric("mark_rate"),
        )
    }
}

impl Results {
    /// Returns an empty list of results with this law.
    pub fn under(law: &str) -> Results {
        Results {
            law: law.to_owned(),
            results: Vec::new(),
            began: Instant::now(),
        }
    }

    /// Adds the result of a scenario, which the caller may check with [`ScenarioResult::expect`].
    pub fn add(&mut self, scenario: &str, report: &Report) -> &mut ScenarioResult {
        let share = report.traffic_metric("external", "share").unwrap_or(1.0);
        let mut metrics = vec![("share", share)];
        metrics.extend(METRICS.map(|name| (name, report.metric(name).unwrap_or(f64::NAN))));
        let took = self.began.elapsed();
        self.began = Instant::now();
        self.results.push(ScenarioResult {
            scenario: scenario.to_owned(),
            metrics,
            failures: Vec::new(),
            took,
        });
        let last = self.results.len() - 1;
        &mut self.results[last]
    }

    /// Prints a line for each scenario, and writes `LAW.json` and `LAW.xml` into the folder that
    /// the environment variable [`RESULTS`] names, if it is set.
    ///
    /// # Errors
    /// A scenario has failed, or a file cannot be written. The text has a line for each failure.
    pub fn finish(self) -> Result<(), String> {
        let lines = self
            .results
            .iter()
            .map(|result| result.line(&self.law) + "\n");
        let text: String = lines.collect();
        // A single write keeps the lines together while other tests print.
        let result = io::stdout().lock().write_all(text.as_bytes());
        result.map_err(|error| format!("standard output: {error}"))?;
        if let Some(folder) = env::var_os(RESULTS).filter(|folder| !folder.is_empty()) {
            self.write(&PathBuf::from(folder))?;
        }
        let failures = self.results.iter().flat_map(|result| {
            let place = format!("{}, {}", result.scenario, self.law);
            let failures = result.failures.iter();
            failures.map(move |failure| format!("{place}: {failure}"))
        });
        let failures: Vec<String> = failures.collect();
        match failures.is_empty() {
            true => Ok(()),
            false => Err(failures.join("\n")),
        }
    }

    /// Writes the results as JSON and as JUnit's XML into `folder`.
    fn write(&self, folder: &Path) -> Result<(), String> {
        let write = |path: &Path, text: String| {
            let result = fs::create_dir_all(folder).and_then(|()| fs::write(path, text));
            result.map_err(|error| format!("{}: {error}", path.display()))
        };
        write(&folder.join(format!("{}.json", self.law)), self.json())?;
        write(&folder.join(format!("{}.xml", self.law)), self.junit())
    }

    /// Returns the results as JSON: a list of objects with `law`, `scenario`, `passed`, `failures`
    /// and `metrics`.
    pub fn json(&self) -> String {
        let object = |result: &ScenarioResult| {
            let texts = result
                .failures
                .iter()
                .map(|failure| format!("\"{}\"", json(failure)));
            let failures: Vec<String> = texts.collect();
            let number = |(name, value): &(&str, f64)| match value.is_finite() {
                true => format!("\"{name}\":{value}"),
                false => format!("\"{name}\":null"),
            };
            let metrics: Vec<String> = result.metrics.iter().map(number).collect();
            format!(
                "{{\"law\":\"{}\",\"scenario\":\"{}\",\"passed\":{},\"failures\":[{}],\"metrics\":{{{}}}}}",
                json(&self.law),
                json(&result.scenario),
                result.failures.is_empty(),
                failures.join(","),
                metrics.join(",")
            )
        };
        let objects: Vec<String> = self.results.iter().map(object).collect();
        format!("[\n{}\n]\n", objects.join(",\n"))
    }

    /// Returns the results as a test suite in JUnit's XML, with a test case for each scenario.
    pub fn junit(&self) -> String {
        let failed = |result: &&ScenarioResult| !result.failures.is_empty();
        let law = xml(&self.law);
        let mut text = format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"rfc7928.{law}\" tests=\"{}\" \
             failures=\"{}\">\n",
            self.results.len(),
            self.results.iter().filter(failed).count()
        );
        for result in &self.results {
            let (name, seconds) = (xml(&result.scenario), result.took.as_secs_f64());
            // Writing to a String cannot fail.
            let _ = writeln!(
                text,
                "  <testcase classname=\"rfc7928.{law}\" name=\"{name}\" time=\"{seconds:.3}\">"
            );
            for failure in &result.failures {
                let _ = writeln!(text, "    <failure message=\"{}\"/>", xml(failure));
            }
            let line = xml(&result.line(&self.law));
            let _ = writeln!(text, "    <system-out>{line}</system-out>\n  </testcase>");
        }
        text + "</testsuite>\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn results() -> Results {
        let result = |scenario: &str, share, failures: &[&str]| ScenarioResult {
            scenario: scenario.into(),
            metrics: vec![("share", share), ("utilisation", 0.9)],
            failures: failures.iter().map(|why| (*why).to_owned()).collect(),
            took: Duration::from_millis(1500),
        };
        Results {
            results: vec![
                result("7-1-web", 0.5, &[]),
                result("8-1-mild", f64::NAN, &["flow 3 \"starves\" < 100", "idle"]),
            ],
            ..Results::under("fq-codel")
        }
    }

    #[test]
    fn results_are_written_as_json() {
        let expected = "[\n\
            {\"law\":\"fq-codel\",\"scenario\":\"7-1-web\",\"passed\":true,\"failures\":[],\
            \"metrics\":{\"share\":0.5,\"utilisation\":0.9}},\n\
            {\"law\":\"fq-codel\",\"scenario\":\"8-1-mild\",\"passed\":false,\
            \"failures\":[\"flow 3 \\\"starves\\\" < 100\",\"idle\"],\
            \"metrics\":{\"share\":null,\"utilisation\":0.9}}\n]\n";
        assert_eq!(results().json(), expected);
    }

    #[test]
    fn results_are_written_as_a_test_suite() {
        let text = results().junit();
        assert!(text.contains("<testsuite name=\"rfc7928.fq-codel\" tests=\"2\" failures=\"1\">"));
        assert!(text.contains("name=\"7-1-web\" time=\"1.500\">"));
        let failure = "<failure message=\"flow 3 &quot;starves&quot; &lt; 100\"/>";
        assert!(text.contains(failure), "{text}");
        assert_eq!(text.matches("</testcase>").count(), 2);
    }

    #[test]
    fn failures_are_an_error_with_a_line_for_each() {
        let failures = results().finish().unwrap_err();
        assert_eq!(
            failures,
            "8-1-mild, fq-codel: flow 3 \"starves\" < 100\n8-1-mild, fq-codel: idle"
        );
    }
}
