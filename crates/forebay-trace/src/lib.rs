//! Observations at a bottleneck: columns of samples and events, and the metrics taken from them.
//! Simulated and real runs join here: both use the same code for a metric.

#![forbid(unsafe_code)]

mod applications;
mod bottleneck;
mod classes;
mod digest;
mod goodput;
pub mod measures;
mod metrics;
mod named_numbers;
mod recorder;
mod traffic;

pub use applications::{Call, Viewer};
pub use bottleneck::Bottleneck;
pub use classes::{ClassMetrics, ClassTrace, CLASS_METRICS};
pub use digest::FloatSummary;
pub use goodput::{Goodput, GoodputOf, GoodputRecorder};
pub use metrics::Metrics;
pub use recorder::{Recorder, Settings};
pub use traffic::{mean_rtt_s, TrafficMetrics, TrafficTrace, TRAFFIC_METRICS};

use std::borrow::Cow;

use forebay_units::{Span, Time};
use hdrhistogram::Histogram;

/// All observations at one queue in one run.
#[derive(Clone, Debug)]
pub struct Trace {
    /// Of the link that the queue feeds.
    pub name: String,
    pub settings: Settings,
    /// One row per sample; all columns have the same length.
    pub samples: Samples,
    /// Queuing delay in ns of every packet that left the queue within the window.
    pub delay_ns: Histogram<u64>,
    /// What each class of the discipline met; empty where it tells none apart.
    pub classes: Vec<ClassTrace>,
    /// What each traffic met whose data crosses the queue; empty where there is one alone.
    pub traffic: Vec<TrafficTrace>,
    /// The flows that send data through the queue.
    pub flows: Vec<FlowTotals>,
    /// The transfers over those flows that were done within the window, in order of time for each
    /// traffic.
    pub transfers: Vec<Transfer>,
    /// What those flows got over time.
    pub goodput: Goodput,
    /// The calls among those flows.
    pub calls: Vec<Call>,
    /// The viewers of adaptive video among them.
    pub viewers: Vec<Viewer>,
    /// Packets forwarded in the whole run.
    pub forwarded_packets: u64,
    /// The other queues of the same run.
    pub others: Vec<Trace>,
}

impl Trace {
    /// Bins of the queuing delay with a packet in them: upper end in s, and packets.
    pub fn delay_bins(&self) -> impl Iterator<Item = (f64, u64)> + '_ {
        bins(&self.delay_ns)
    }

    /// What each flow got over the window, in bit/s.
    pub fn goodputs_bps(&self) -> impl Iterator<Item = f64> + '_ {
        let (start, end) = self.settings.window;
        let window_s = end.since(start).as_secs_f64();
        let flows = self.flows.iter();
        flows.map(move |flow| 8.0 * flow.delivered_bytes as f64 / window_s)
    }
}

fn bins(delay_ns: &Histogram<u64>) -> impl Iterator<Item = (f64, u64)> + '_ {
    let bins = delay_ns.iter_recorded();
    bins.map(|bin| (bin.value_iterated_to() as f64 / 1e9, bin.count_at_value()))
}

/// Columns over time. Row i describes (i·interval, (i+1)·interval]; counts are those of that
/// interval, lengths and probes are taken at its end.
#[derive(Clone, Debug, Default)]
pub struct Samples {
    pub queue_pkts: Vec<u32>,
    pub queue_bytes: Vec<u64>,
    pub arrivals: Vec<u32>,
    pub early_drops: Vec<u32>,
    pub forced_drops: Vec<u32>,
    pub overflow_drops: Vec<u32>,
    pub marks: Vec<u32>,
    pub departed_bytes: Vec<u64>,
    /// What the link could have carried, in bits.
    pub capacity_bits: Vec<f64>,
    /// The law's named inner values, in the order in which it reports them.
    pub probes: Vec<(Cow<'static, str>, Vec<f64>)>,
}

impl Samples {
    pub fn len(&self) -> usize {
        self.queue_pkts.len()
    }

    pub fn is_empty(&self) -> bool {
        self.queue_pkts.is_empty()
    }

    /// End of row `i`.
    pub fn time(interval: Span, i: usize) -> Time {
        Time::ZERO + interval * (i as u64 + 1)
    }
}

/// A transfer of a known size that is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// Index into the scenario's traffic.
    pub traffic: u32,
    pub packets: u32,
    /// From its SYN until the sender has the ACK of its last packet.
    pub took: Span,
}

/// What one flow got within the window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowTotals {
    /// Index into the scenario's traffic.
    pub traffic: u32,
    /// In-order bytes handed to the receiving application.
    pub delivered_bytes: u64,
}
