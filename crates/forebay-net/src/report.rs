//! Metrics of a run.

use std::io;

use forebay_scenario::Scenario;
use forebay_trace::{Metrics, RunTrace, TrafficMetrics};

/// The metrics of a run over the measurement window of the scenario.
pub struct Report {
    /// The metrics of the link under test.
    pub metrics: Metrics,
    /// The metrics of each traffic that crosses the bottleneck, external traffic included, by
    /// label. Empty where there is only one, to which `metrics` applies.
    pub traffic: Vec<(String, TrafficMetrics)>,
    /// The traces of all links.
    pub trace: RunTrace,
    /// The number of the link under test in `trace`.
    pub tested: usize,
    /// The first error with which a file of a [recording](crate::Network::record) could not be
    /// written.
    pub recording: io::Result<()>,
}

impl Report {
    /// Returns the report of a trace.
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
                .map(|part| (label(part.traffic), TrafficMetrics::of(part, tested)))
                .collect(),
            trace,
            tested: scenario.tested,
            recording,
        }
    }

    /// Returns a metric of the bottleneck by its name, such as `delay_p95_s`; `None` for an unknown
    /// name. docs/reference/metrics.md defines the metrics.
    pub fn metric(&self, name: &str) -> Option<f64> {
        let fields = self.metrics.fields();
        let metric = fields.iter().find(|(field, _)| *field == name);
        metric.map(|(_, value)| *value)
    }

    /// Returns a metric of the traffic with this label, such as `goodput_bps`; `None` for
    /// an unknown label or name.
    pub fn traffic_metric(&self, label: &str, name: &str) -> Option<f64> {
        let (_, metrics) = self.traffic.iter().find(|(traffic, _)| traffic == label)?;
        let fields = metrics.fields();
        let metric = fields.iter().find(|(field, _)| *field == name);
        metric.map(|(_, value)| *value)
    }
}
