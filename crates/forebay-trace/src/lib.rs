//! What a run has observed, and the metrics that are taken from it.
//!
//! Every engine ends here: the packet engine, the fluid model, a guest with the real kernel and a
//! link in real time each give a [`RunTrace`], and everything after it (metrics, tables, figures)
//! is the same code for all of them.
//!
//! A [`RunTrace`] has one [`LinkTrace`] for each link: [`Samples`] over time, a histogram of the
//! queuing delay, and the packets of each class and of each traffic at that queue. What belongs to
//! the run and not to a queue is in the run once: the route of each traffic, the bytes of its
//! flows, its transfers, calls and viewers. [`RunTrace::link`] puts both together as a
//! [`LinkView`]: one queue, and what belongs to the traffic that crosses it. Metrics are taken from
//! that view: [`Metrics`] of the queue, [`TrafficMetrics`] of each traffic, and [`ClassMetrics`] of
//! each class.
//!
//! A [`Recorder`] builds a link's trace while packets pass, and a [`Bottleneck`] feeds it from a
//! discipline and a transmitter.
//!
//! ```
//! use forebay_trace::{FlowTotals, Metrics, Recorder, RunTrace, Settings, TrafficTrace};
//! use forebay_units::{Rate, Span, Time};
//!
//! let end = Time::ZERO + Span::from_millis(20);
//! let settings = Settings { interval: Span::from_millis(10), window: (Time::ZERO, end) };
//! let mut recorder = Recorder::new(settings, Rate::from_bps(1_000_000));
//! for row in 1..=2 {
//!     let now = Time::ZERO + Span::from_millis(10 * row);
//!     recorder.arrived();
//!     recorder.departed(now, 1000, Span::from_millis(4), 0);
//!     recorder.sample(now, 3, 3000, |_| {});
//! }
//! let run = RunTrace {
//!     flows: vec![FlowTotals { traffic: 0, delivered_bytes: 2000 }],
//!     ..RunTrace::new(vec![recorder.finish("bottleneck")], vec![TrafficTrace::over(vec![0])])
//! };
//! let metrics = Metrics::of(run.link(0), None);
//! assert_eq!(metrics.queue_mean_pkts, 3.0);
//! assert_eq!(metrics.utilisation, 0.8); // two packets of 8000 bits in 20 ms of 1 Mbit/s
//! ```
//!
//! Start reading at [`RunTrace`], then `recorder.rs`; [`measures`] is the registry of metrics, and
//! [`LinkView::digest`] is what golden tests compare.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod applications;
mod bottleneck;
mod classes;
mod delay_counts;
mod digest;
mod goodput;
pub mod measures;
mod metrics;
mod named_numbers;
mod recorder;
mod run;
mod traffic;

pub use applications::{Call, Viewer};
pub use bottleneck::{Bottleneck, Record};
pub use classes::{ClassMetrics, ClassTrace, CLASS_METRICS};
pub use digest::FloatSummary;
pub use goodput::{Goodput, GoodputOf, GoodputRecorder};
pub use metrics::Metrics;
pub use recorder::{Recorder, Settings};
pub use run::{LinkTrace, LinkView, RunTrace};
pub use traffic::{
    mean_propagation_s, QueuedTraffic, TrafficMetrics, TrafficTrace, TRAFFIC_METRICS,
};

use std::borrow::Cow;

use forebay_units::{Span, Time};
use hdrhistogram::Histogram;

/// Returns the non-empty bins of a histogram in ns: the upper end in s, and the packets.
fn bins(delay_ns: &Histogram<u64>) -> impl Iterator<Item = (f64, u64)> + '_ {
    let bins = delay_ns.iter_recorded();
    bins.map(|bin| (bin.value_iterated_to() as f64 / 1e9, bin.count_at_value()))
}

/// Columns over time, all of the same length.
///
/// Row i describes (i·interval, (i+1)·interval]: counts are those of this interval; lengths and
/// the law's internal values are taken at its end.
#[derive(Clone, Debug, Default)]
pub struct Samples {
    /// Packets in the queue.
    pub queue_pkts: Vec<u32>,
    /// Bytes in the queue.
    pub queue_bytes: Vec<u64>,
    /// Packets that arrived at the queue.
    pub arrivals: Vec<u32>,
    /// Packets that the law dropped to signal congestion.
    pub early_drops: Vec<u32>,
    /// Packets that the law dropped regardless of ECN.
    pub forced_drops: Vec<u32>,
    /// Packets that found the buffer full.
    pub overflow_drops: Vec<u32>,
    /// Packets that were marked (CE).
    pub marks: Vec<u32>,
    /// Bytes that left the queue for the link.
    pub departed_bytes: Vec<u64>,
    /// Bits that the link could have carried.
    pub capacity_bits: Vec<f64>,
    /// The law's internal values by name, in the order in which the law reports them.
    pub probes: Vec<(Cow<'static, str>, Vec<f64>)>,
}

impl Samples {
    /// Returns the number of rows.
    pub fn len(&self) -> usize {
        self.queue_pkts.len()
    }

    /// Returns true if there is no row.
    pub fn is_empty(&self) -> bool {
        self.queue_pkts.is_empty()
    }

    /// Returns the time at which row `i` ends.
    pub fn time(interval: Span, i: usize) -> Time {
        Time::ZERO + interval * (i as u64 + 1)
    }
}

/// A completed transfer of a known size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// Index into the scenario's traffic.
    pub traffic: u32,
    /// The size of the transfer in packets.
    pub packets: u32,
    /// The time from its SYN until the sender has the ACK of its last packet.
    pub took: Span,
}

/// The bytes that one flow delivered within the window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowTotals {
    /// Index into the scenario's traffic.
    pub traffic: u32,
    /// Bytes handed in order to the receiving application.
    pub delivered_bytes: u64,
}
