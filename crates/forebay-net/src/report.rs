//! What was measured, as of any run.

use std::io;

use forebay_scenario::Scenario;
use forebay_trace::{Metrics, RunTrace, TrafficMetrics};

/// The metrics of a run, over the window that the scenario measures.
pub struct Report {
    /// The metrics of the link under test.
    pub metrics: Metrics,
    /// What each traffic got that crosses it, by its label; external traffic is one of them. Empty
    /// where there is one alone: `metrics` has it.
    pub traffic: Vec<(String, TrafficMetrics)>,
    /// All that was observed.
    pub trace: RunTrace,
    /// The number of the link under test in `trace`.
    pub tested: usize,
    /// The first error with which a file of a [recording](crate::Network::record) could not be written.
    pub recording: io::Result<()>,
}

impl Report {
    pub(crate) fn of(
        trace: RunTrace,
        scenario: &Scenario,
        target_pkts: Option<f64>,
        recording: io::Result<()>,
    ) -> Report {
        let label = |number: u32| scenario.traffic[number as usize].label.clone();
        let tested = trace.link(scenario.tested);
        let traffic = tested.traffic.iter();
        Report {
            metrics: Metrics::of(tested, target_pkts),
            traffic: traffic
                .map(|of| (label(of.traffic), TrafficMetrics::of(of, tested)))
                .collect(),
            trace,
            tested: scenario.tested,
            recording,
        }
    }

    /// A metric of the bottleneck by its name, such as `delay_p95_s` (docs/reference/metrics.md).
    pub fn metric(&self, name: &str) -> Option<f64> {
        let fields = self.metrics.fields();
        let found = fields.iter().find(|(field, _)| *field == name);
        found.map(|(_, value)| *value)
    }

    /// A metric of the traffic with this label, such as `goodput_bps`.
    pub fn traffic_metric(&self, label: &str, name: &str) -> Option<f64> {
        let (_, metrics) = self.traffic.iter().find(|(of, _)| of == label)?;
        let fields = metrics.fields();
        let found = fields.iter().find(|(field, _)| *field == name);
        found.map(|(_, value)| *value)
    }
}
