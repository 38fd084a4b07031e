//! Measures: the metrics of a run, and the measures of part of a run on which a paper's claims rest.
//!
//! One registry has their names, units and descriptions, and one function has each formula.

use std::borrow::Cow;
use std::ops::Range;

use forebay_units::cast::whole_usize;
use forebay_units::{Span, Time};

use crate::{ClassMetrics, LinkTrace, Metrics, Samples, TrafficMetrics};

/// A number that is computed from a run.
pub struct Measure {
    /// The name in metrics.json and in tables; it ends with the unit.
    pub name: &'static str,
    /// The name in a paper's claims; `name` if it is empty.
    pub short: &'static str,
    /// The heading of its column or axis.
    pub title: &'static str,
    /// The unit in which tables show the measure.
    pub unit: &'static str,
    /// The factor from a value to the number in `unit`.
    pub scale: f64,
    /// The description, a noun phrase.
    pub doc: &'static str,
    /// The source.
    pub of: Of,
}

/// The source of a measure.
#[derive(Clone, Copy)]
pub enum Of {
    /// The samples of any window; `None` if a column that it needs is missing.
    Samples(fn(&Part) -> Option<f64>),
    /// The whole window of measurement: only for it are delays and goodputs recorded.
    Run(fn(&Metrics) -> f64),
    /// A class of the discipline over the whole window of measurement.
    Class(fn(&ClassMetrics) -> f64),
    /// A traffic over the whole window of measurement.
    Traffic(fn(&TrafficMetrics) -> f64),
    /// The process that made the run.
    Process,
}

const fn metric(
    (name, short): (&'static str, &'static str),
    title: &'static str,
    (unit, scale): (&'static str, f64),
    doc: &'static str,
    of: Of,
) -> Measure {
    Measure {
        name,
        short,
        title,
        unit,
        scale,
        doc,
        of,
    }
}

/// Returns a metric of a class; see [`CLASS_METRICS`](crate::CLASS_METRICS).
pub(crate) const fn class_metric(
    name: &'static str,
    title: &'static str,
    unit: (&'static str, f64),
    doc: &'static str,
    of: fn(&ClassMetrics) -> f64,
) -> Measure {
    metric((name, ""), title, unit, doc, Of::Class(of))
}

/// Returns a metric of a traffic; see [`TRAFFIC_METRICS`](crate::TRAFFIC_METRICS).
pub(crate) const fn traffic_metric(
    name: &'static str,
    title: &'static str,
    unit: (&'static str, f64),
    doc: &'static str,
    of: fn(&TrafficMetrics) -> f64,
) -> Measure {
    metric((name, ""), title, unit, doc, Of::Traffic(of))
}

const PACKETS: (&str, f64) = ("packets", 1.0);
pub(crate) const PERCENT: (&str, f64) = ("%", 100.0);
pub(crate) const MS: (&str, f64) = ("ms", 1e3);
pub(crate) const MBITS: (&str, f64) = ("Mbit/s", 1e-6);
pub(crate) const NONE: (&str, f64) = ("", 1.0);

/// The metrics of every run, in the order in which tables show them.
pub const METRICS: &[Measure] = &[
    metric(
        ("queue_mean_pkts", "mean"),
        "Queue",
        PACKETS,
        "mean backlog over the samples",
        Of::Samples(queue_mean_pkts),
    ),
    metric(
        ("queue_std_pkts", "std"),
        "Deviation",
        PACKETS,
        "standard deviation of the backlog",
        Of::Samples(queue_std_pkts),
    ),
    metric(
        ("qacd_pkts", "qacd"),
        "QACD",
        PACKETS,
        "quadratic average of control deviation: root mean square distance of the backlog from the set-point",
        Of::Samples(qacd_pkts),
    ),
    metric(
        ("drop_rate", ""),
        "Drops",
        PERCENT,
        "packets dropped, of those that arrived",
        Of::Samples(drop_rate),
    ),
    metric(
        ("early_drop_rate", ""),
        "Early drops",
        PERCENT,
        "packets dropped by the law as a signal",
        Of::Samples(early_drop_rate),
    ),
    metric(
        ("mark_rate", ""),
        "Marks",
        PERCENT,
        "packets CE-marked, of those that arrived",
        Of::Samples(mark_rate),
    ),
    metric(
        ("utilisation", ""),
        "Utilisation",
        PERCENT,
        "bits sent, of those the link could carry",
        Of::Samples(utilisation),
    ),
    metric(
        ("delay_mean_s", ""),
        "Delay, mean",
        MS,
        "mean time a packet waits in the queue",
        Of::Run(|m| m.delay_mean_s),
    ),
    metric(
        ("delay_p95_s", ""),
        "Delay, 95th pct.",
        MS,
        "95 % of the packets wait less",
        Of::Run(|m| m.delay_p95_s),
    ),
    metric(
        ("delay_p99_s", ""),
        "Delay, 99th pct.",
        MS,
        "99 % of the packets wait less",
        Of::Run(|m| m.delay_p99_s),
    ),
    metric(
        ("goodput_bps", ""),
        "Goodput",
        MBITS,
        "data delivered to the receivers in order",
        Of::Run(|m| m.goodput_bps),
    ),
    metric(
        ("jain", ""),
        "Jain",
        NONE,
        "Jain's fairness index of the flows' goodputs; 1 is equal",
        Of::Run(|m| m.jain),
    ),
    metric(
        ("flow_completion_p50_s", ""),
        "Completion, median",
        MS,
        "median completion time of transfers, from the SYN to the last ACK",
        Of::Run(|m| m.flow_completion_p50_s),
    ),
    metric(
        ("flow_completion_p95_s", ""),
        "Completion, 95th pct.",
        MS,
        "95th percentile of the completion time of transfers, from the SYN to the last ACK",
        Of::Run(|m| m.flow_completion_p95_s),
    ),
    metric(
        ("voice_delay_s", ""),
        "Voice delay",
        MS,
        "mean time from source to sink of the packets of calls",
        Of::Run(|m| m.voice_delay_s),
    ),
    metric(
        ("voice_jitter_s", ""),
        "Voice jitter",
        MS,
        "mean change of that time from one packet of a call to the next (RFC 3393)",
        Of::Run(|m| m.voice_jitter_s),
    ),
    metric(
        ("voice_loss", ""),
        "Voice loss",
        PERCENT,
        "packets of calls that were lost, per packet sent",
        Of::Run(|m| m.voice_loss),
    ),
    metric(
        ("video_rate_bps", ""),
        "Video rate",
        MBITS,
        "mean bit rate of the segments of adaptive video that were received",
        Of::Run(|m| m.video_rate_bps),
    ),
    metric(
        ("video_stalled", ""),
        "Video stalled",
        PERCENT,
        "share of the measured time in which playback was stalled",
        Of::Run(|m| m.video_stalled),
    ),
    metric(
        ("forwarded_packets", ""),
        "Forwarded",
        PACKETS,
        "packets sent in the whole run",
        Of::Run(|m| m.forwarded_packets),
    ),
    metric(
        ("user_cpu_s", ""),
        "CPU",
        ("s", 1.0),
        "user CPU time that the run took",
        Of::Process,
    ),
];

/// Measures for claims, besides the metrics.
pub const MEASURES: &[Measure] = &[
    metric(
        ("largest", ""),
        "Longest queue",
        PACKETS,
        "longest backlog of any sample",
        Of::Samples(largest),
    ),
    metric(
        ("below_target", ""),
        "Below the set-point",
        PERCENT,
        "samples with the backlog below the set-point",
        Of::Samples(below_target),
    ),
    metric(
        ("empty", ""),
        "Empty",
        PERCENT,
        "samples with an empty queue",
        Of::Samples(empty),
    ),
    metric(
        ("half_s", ""),
        "Above half",
        ("s", 1.0),
        "time with the backlog above half of the longest in the whole run",
        Of::Samples(half_s),
    ),
    metric(
        ("drop_rate_std", ""),
        "Deviation of the loss rate",
        PERCENT,
        "standard deviation of the loss rates of whole seconds: how bursty loss is",
        Of::Samples(drop_rate_std),
    ),
    metric(
        ("high_loss", ""),
        "Seconds of high loss",
        PERCENT,
        "seconds in which more than 7 % of the packets are lost",
        Of::Samples(high_loss),
    ),
    metric(
        ("throughput", ""),
        "Throughput",
        MBITS,
        "bits per second that left the queue",
        Of::Samples(throughput),
    ),
    metric(
        ("delay_std_ms", ""),
        "Deviation of the delay",
        ("ms", 1.0),
        "standard deviation of an arrival's wait, the backlog over the link's rate",
        Of::Samples(delay_std_ms),
    ),
    metric(
        ("delay_mean_ms", ""),
        "Mean delay",
        ("ms", 1.0),
        "mean of an arrival's wait, the backlog over the link's rate",
        Of::Samples(delay_mean_ms),
    ),
    metric(
        ("backlog_std_ms", ""),
        "Deviation of the backlog",
        ("ms", 1.0),
        "standard deviation of the backlog, as time at the rate that the link starts with",
        Of::Samples(backlog_std_ms),
    ),
    metric(
        ("settling_s", ""),
        "Settling time",
        ("s", 1.0),
        "time from the window's start until the 1 s mean of the backlog stays within a quarter, \
         or 5 packets, of the mean of its last half",
        Of::Samples(settling_s),
    ),
    metric(
        ("probability", ""),
        "Signal probability",
        NONE,
        "mean signal probability that the law reports",
        Of::Samples(|part| mean_known(part, "p")),
    ),
    metric(
        ("probability_std", ""),
        "Deviation of the signal probability",
        NONE,
        "standard deviation of the signal probability that the law reports",
        Of::Samples(|part| deviation_known(part, "p")),
    ),
    metric(
        ("max_p_std", ""),
        "Deviation of max_p",
        NONE,
        "standard deviation of the max_p that the law reports",
        Of::Samples(|part| deviation_known(part, "max_p")),
    ),
    metric(
        ("capacity_pkts_per_s", ""),
        "Estimate of C",
        ("packets/s", 1.0),
        "mean of the law's estimate of the link's rate",
        Of::Samples(|part| mean_known(part, "capacity_pkts_per_s")),
    ),
    metric(
        ("flows", ""),
        "Estimate of N",
        ("flows", 1.0),
        "mean of the law's estimate of the number of flows",
        Of::Samples(|part| mean_known(part, "flows")),
    ),
    metric(
        ("tcp_goodput_bps", ""),
        "TCP's goodput",
        MBITS,
        "goodput of TCP's flows, in the whole measurement",
        Of::Samples(tcp_goodput_bps),
    ),
    metric(
        ("transfer_delay_s", ""),
        "Transfer delay",
        MS,
        "delay from sender to receiver, weighted by the goodput of each flow (Bigdeli et al., equation 9)",
        Of::Samples(transfer_delay_s),
    ),
    metric(
        ("jitter_s3", ""),
        "Jitter",
        ("s³", 1.0),
        "variance of the delay times its mean (Bigdeli et al., equation 10 as printed)",
        Of::Samples(jitter_s3),
    ),
    metric(
        ("jitter", ""),
        "Jitter",
        NONE,
        "coefficient of variation of the delay (Bigdeli et al., equation 10 as their text describes it)",
        Of::Samples(jitter),
    ),
];

/// Returns everything that can be measured.
pub fn all() -> impl Iterator<Item = &'static Measure> {
    METRICS.iter().chain(MEASURES)
}

/// Returns a measure by its name in a claim.
pub fn find(name: &str) -> Option<&'static Measure> {
    all().find(|measure| measure.claim() == name || measure.name == name)
}

impl Measure {
    /// Its name in a paper's claims.
    pub fn claim(&self) -> &'static str {
        match self.short {
            "" => self.name,
            short => short,
        }
    }
}

/// Columns of samples, in memory or stored.
pub trait Columns {
    /// Returns every row of a column as numbers; None where there is no such column.
    fn column(&self, name: &str) -> Option<Cow<'_, [f64]>>;
}

impl Columns for Samples {
    fn column(&self, name: &str) -> Option<Cow<'_, [f64]>> {
        let counts = |column: &[u32]| column.iter().map(|&n| f64::from(n)).collect();
        // Below 2^53, which takes years of 100 Gbit/s.
        let bytes = |column: &[u64]| column.iter().map(|&n| n as f64).collect();
        Some(match name {
            "queue_pkts" => Cow::Owned(counts(&self.queue_pkts)),
            "queue_bytes" => Cow::Owned(bytes(&self.queue_bytes)),
            "arrivals" => Cow::Owned(counts(&self.arrivals)),
            "early_drops" => Cow::Owned(counts(&self.early_drops)),
            "forced_drops" => Cow::Owned(counts(&self.forced_drops)),
            "overflow_drops" => Cow::Owned(counts(&self.overflow_drops)),
            "marks" => Cow::Owned(counts(&self.marks)),
            "departed_bytes" => Cow::Owned(bytes(&self.departed_bytes)),
            "capacity_bits" => Cow::Borrowed(&self.capacity_bits),
            probe => {
                let found = self.probes.iter().find(|(name, _)| *name == probe);
                Cow::Borrowed(&found?.1)
            }
        })
    }
}

/// A flow that crosses the queue.
#[derive(Clone, Copy, Debug)]
pub struct FlowPart {
    /// Goodput over the whole window of measurement, in bit/s.
    pub goodput_bps: f64,
    /// True if the flow is of TCP.
    pub is_tcp: bool,
    /// Propagation time both ways, in s.
    pub rtt_s: f64,
}

/// The facts of a traffic that measures of flows need.
#[derive(Clone, Debug)]
pub struct TrafficPart {
    /// True if its flows are of TCP.
    pub is_tcp: bool,
    /// Propagation times both ways in s, which its flows take in turn.
    pub rtts_s: Vec<f64>,
}

impl FlowPart {
    /// Returns every flow, given the traffic and the goodput of each; `None` if a traffic is not
    /// among `kinds`.
    pub fn of(
        traffic: &[u32],
        goodput_bps: &[f64],
        kinds: &[TrafficPart],
    ) -> Option<Vec<FlowPart>> {
        let mut seen = vec![0; kinds.len()];
        traffic
            .iter()
            .zip(goodput_bps)
            .map(|(&traffic, &goodput_bps)| {
                let kind = kinds.get(traffic as usize)?;
                let turn = &mut seen[traffic as usize];
                let rtt_s = *kind.rtts_s.get(*turn % kind.rtts_s.len().max(1))?;
                *turn += 1;
                Some(FlowPart {
                    goodput_bps,
                    is_tcp: kind.is_tcp,
                    rtt_s,
                })
            })
            .collect()
    }
}

/// The samples of a run in a window, (start, end], with the other inputs of measures.
pub struct Part<'a> {
    /// The columns of the whole run.
    pub columns: &'a dyn Columns,
    /// The rows of the window.
    pub rows: Range<usize>,
    /// Time between two samples.
    pub interval: Span,
    /// The window.
    pub window: (Time, Time),
    /// The set-point in packets, if there is one.
    pub target_pkts: Option<f64>,
    /// The flows; `None` if they are unknown.
    pub flows: Option<&'a [FlowPart]>,
    /// Mean queuing delay over the whole window of measurement, in s.
    pub delay_mean_s: f64,
}

/// Returns the rows of length `interval` that end within (start, end], out of `rows` rows.
pub fn rows_in(interval: Span, rows: usize, (start, end): (Time, Time)) -> Range<usize> {
    let first = (0..rows)
        .find(|&i| Samples::time(interval, i) > start)
        .unwrap_or(rows);
    let last = (0..rows)
        .rfind(|&i| Samples::time(interval, i) <= end)
        .map_or(first, |i| i + 1);
    first..last.max(first)
}

impl<'a> Part<'a> {
    /// Returns the samples of a link in its window of measurement.
    pub fn of(trace: &'a LinkTrace, target_pkts: Option<f64>) -> Part<'a> {
        let crate::Settings { interval, window } = trace.settings;
        Part {
            columns: &trace.samples,
            rows: rows_in(interval, trace.samples.len(), window),
            interval,
            window,
            target_pkts,
            flows: None,
            delay_mean_s: trace.delay_ns.mean() / 1e9,
        }
    }

    fn rows_of(&self, name: &str) -> Option<Cow<'_, [f64]>> {
        Some(match self.columns.column(name)? {
            Cow::Borrowed(all) => Cow::Borrowed(&all[self.rows.clone()]),
            Cow::Owned(mut all) => {
                all.truncate(self.rows.end);
                all.drain(..self.rows.start);
                Cow::Owned(all)
            }
        })
    }

    fn sum(&self, name: &str) -> Option<f64> {
        Some(self.rows_of(name)?.iter().sum())
    }

    fn drops(&self) -> Option<Vec<f64>> {
        let early = self.rows_of("early_drops")?;
        let forced = self.rows_of("forced_drops")?;
        let overflow = self.rows_of("overflow_drops")?;
        let causes = early.iter().zip(forced.iter()).zip(overflow.iter());
        Some(causes.map(|((a, b), c)| a + b + c).collect())
    }

    /// Samples of a second.
    fn per_second(&self) -> usize {
        whole_usize((1.0 / self.interval.as_secs_f64()).round()).max(1)
    }

    /// Loss rate of each whole second in which anything arrived.
    fn loss_by_second(&self) -> Option<Vec<f64>> {
        let (drops, arrivals) = (self.drops()?, self.rows_of("arrivals")?);
        let rows = self.per_second();
        let seconds = drops.chunks_exact(rows).zip(arrivals.chunks_exact(rows));
        Some(
            seconds
                .map(|(drops, arrivals)| (drops.iter().sum::<f64>(), arrivals.iter().sum::<f64>()))
                .filter(|(_, arrivals)| *arrivals > 0.0)
                .map(|(drops, arrivals)| drops / arrivals)
                .collect(),
        )
    }

    /// Returns the wait of an arrival at each sample, in ms.
    fn waits_ms(&self) -> Option<Vec<f64>> {
        let interval_s = self.interval.as_secs_f64();
        let (bytes, capacity) = (self.rows_of("queue_bytes")?, self.rows_of("capacity_bits")?);
        let rows = bytes.iter().zip(capacity.iter());
        Some(
            rows.map(|(bytes, bits)| 8e3 * bytes / (bits / interval_s))
                .collect(),
        )
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Returns the standard deviation of a population.
fn deviation(values: &[f64]) -> f64 {
    let mean = mean(values);
    let squares = values.iter().map(|value| (value - mean).powi(2));
    (squares.sum::<f64>() / values.len() as f64).sqrt()
}

fn share(values: &[f64], holds: impl Fn(f64) -> bool) -> f64 {
    values.iter().filter(|&&value| holds(value)).count() as f64 / values.len() as f64
}

fn known(part: &Part, column: &str) -> Option<Vec<f64>> {
    let rows = part.rows_of(column)?;
    Some(
        rows.iter()
            .copied()
            .filter(|value| !value.is_nan())
            .collect(),
    )
}

fn mean_known(part: &Part, column: &str) -> Option<f64> {
    Some(mean(&known(part, column)?))
}

fn deviation_known(part: &Part, column: &str) -> Option<f64> {
    Some(deviation(&known(part, column)?))
}

pub(crate) fn queue_mean_pkts(part: &Part) -> Option<f64> {
    Some(mean(&part.rows_of("queue_pkts")?))
}

pub(crate) fn queue_std_pkts(part: &Part) -> Option<f64> {
    Some(deviation(&part.rows_of("queue_pkts")?))
}

fn largest(part: &Part) -> Option<f64> {
    let queue = part.rows_of("queue_pkts")?;
    Some(queue.iter().copied().fold(f64::NAN, f64::max))
}

/// S_e = sqrt(Σ (Q_i − Q_ref)² / (N + 1)): equation (17) of the PI-PD paper (Ryu et al.) divides by
/// N + 1, not N. NaN without a set-point.
pub(crate) fn qacd_pkts(part: &Part) -> Option<f64> {
    let queue = part.rows_of("queue_pkts")?;
    Some(part.target_pkts.map_or(f64::NAN, |target| {
        let sum: f64 = queue.iter().map(|q| (q - target).powi(2)).sum();
        (sum / (queue.len() as f64 + 1.0)).sqrt()
    }))
}

/// Returns the share of samples below the set-point; NaN without a set-point.
fn below_target(part: &Part) -> Option<f64> {
    let queue = part.rows_of("queue_pkts")?;
    Some(
        part.target_pkts
            .map_or(f64::NAN, |target| share(&queue, |q| q < target)),
    )
}

fn empty(part: &Part) -> Option<f64> {
    Some(share(&part.rows_of("queue_pkts")?, |q| q == 0.0))
}

fn half_s(part: &Part) -> Option<f64> {
    let all = part.columns.column("queue_pkts")?;
    let half = 0.5 * all.iter().copied().fold(f64::NAN, f64::max);
    let above = all[part.rows.clone()].iter().filter(|&&q| q > half).count();
    Some(above as f64 * part.interval.as_secs_f64())
}

pub(crate) fn drop_rate(part: &Part) -> Option<f64> {
    Some(part.drops()?.iter().sum::<f64>() / part.sum("arrivals")?)
}

pub(crate) fn early_drop_rate(part: &Part) -> Option<f64> {
    Some(part.sum("early_drops")? / part.sum("arrivals")?)
}

pub(crate) fn mark_rate(part: &Part) -> Option<f64> {
    Some(part.sum("marks")? / part.sum("arrivals")?)
}

fn drop_rate_std(part: &Part) -> Option<f64> {
    Some(deviation(&part.loss_by_second()?))
}

fn high_loss(part: &Part) -> Option<f64> {
    Some(share(&part.loss_by_second()?, |rate| rate > 0.07))
}

pub(crate) fn utilisation(part: &Part) -> Option<f64> {
    Some(8.0 * part.sum("departed_bytes")? / part.sum("capacity_bits")?)
}

fn throughput(part: &Part) -> Option<f64> {
    let (start, end) = part.window;
    Some(8.0 * part.sum("departed_bytes")? / end.since(start).as_secs_f64())
}

fn delay_std_ms(part: &Part) -> Option<f64> {
    Some(deviation(&part.waits_ms()?))
}

fn delay_mean_ms(part: &Part) -> Option<f64> {
    Some(mean(&part.waits_ms()?))
}

fn backlog_std_ms(part: &Part) -> Option<f64> {
    let first_bits = *part.columns.column("capacity_bits")?.first()?;
    let rate_bps = first_bits / part.interval.as_secs_f64();
    let bytes = part.rows_of("queue_bytes")?;
    let waits: Vec<f64> = bytes.iter().map(|bytes| 8e3 * bytes / rate_bps).collect();
    Some(deviation(&waits))
}

/// Returns the settling time; NaN for a window of less than a second.
fn settling_s(part: &Part) -> Option<f64> {
    let (queue, rows) = (part.rows_of("queue_pkts")?, part.per_second());
    let smooth: Vec<f64> = queue.windows(rows).map(mean).collect();
    if smooth.is_empty() {
        return Some(f64::NAN);
    }
    let rest = mean(&smooth[smooth.len() / 2..]);
    let near = (rest / 4.0).max(5.0);
    let away = smooth.iter().rposition(|value| (value - rest).abs() > near);
    Some(away.map_or(0, |last| last + 1) as f64 * part.interval.as_secs_f64())
}

fn tcp_goodput_bps(part: &Part) -> Option<f64> {
    let tcp = part.flows?.iter().filter(|flow| flow.is_tcp);
    // The sum of no numbers is -0.0.
    Some(tcp.map(|flow| flow.goodput_bps).sum::<f64>() + 0.0)
}

/// A flow's delay is half its propagation round trip and the mean wait in the queue.
fn transfer_delay_s(part: &Part) -> Option<f64> {
    let flows = part.flows?;
    let weighted: f64 = flows
        .iter()
        .map(|flow| flow.goodput_bps * flow.rtt_s / 2.0)
        .sum();
    let total: f64 = flows.iter().map(|flow| flow.goodput_bps).sum();
    Some(weighted / total + part.delay_mean_s)
}

fn jitter_s3(part: &Part) -> Option<f64> {
    Some((delay_std_ms(part)? / 1e3).powi(2) * transfer_delay_s(part)?)
}

fn jitter(part: &Part) -> Option<f64> {
    Some(delay_std_ms(part)? / 1e3 / transfer_delay_s(part)?)
}
