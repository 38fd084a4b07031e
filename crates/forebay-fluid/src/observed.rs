//! A fluid run as what is observed at its queues, in whole packets, so that metrics, figures and
//! tables see it as they see any other run.
//!
//! What remains of a packet is carried on to the next row, so that means and sums are those of the
//! fluid; a settled queue of 20.3 packets is 20 in most rows and 21 in some. All flows of a class
//! get the same. There is nobody's share of the queue, and no transfer.

use forebay_core::cast::{whole_u32, whole_u64};
use forebay_core::{Span, Time};
use forebay_scenario::{Link, Scenario};
use forebay_trace::{FlowTotals, GoodputRecorder, Recorder, Settings, Trace as Observed};

use crate::model::Model;
use crate::scenario::groups;
use crate::trace::{Passage, Trace};

/// The trace of `scenario`, whose `model` gave `trace`: of the bottleneck, with those of the other
/// links.
pub fn observed(scenario: &Scenario, model: &Model, trace: &Trace) -> Observed {
    let flows = Flows::new(scenario, trace);
    let links = scenario.all_links().enumerate();
    let mut all = links.map(|(v, link)| at_link(scenario, model, trace, &flows, v, link));
    let mut bottleneck = all.next().expect("a scenario has a bottleneck");
    bottleneck.others = all.collect();
    bottleneck
}

/// Whole packets of a fluid; what remains is carried on.
#[derive(Default)]
struct Carried(f64);

impl Carried {
    /// Whole packets out of these parts and those that were left; a sum is less than one off.
    fn count(&mut self, pkts: f64) -> u32 {
        self.0 += pkts;
        // A sum of parts that is whole but for rounding is whole.
        let whole = whole_u32(self.0 + 1e-6);
        self.0 -= f64::from(whole);
        whole
    }

    /// The nearest whole length of a queue, with what the rows before owe.
    fn length(&mut self, pkts: f64) -> u32 {
        self.0 += pkts;
        let whole = whole_u32((self.0 + 0.5).max(0.0));
        self.0 -= f64::from(whole);
        whole
    }
}

/// At the end of a row; the first is of time zero.
fn end_of(row: usize, interval: Span) -> Time {
    Time::ZERO + interval * row as u64
}

/// How long a packet waits behind `pkts` others.
fn waiting(pkts: f64, passage: &Passage, interval: Span) -> Span {
    Span::from_secs_f64(pkts * interval.as_secs_f64() / passage.could_leave)
}

fn at_link(
    scenario: &Scenario,
    model: &Model,
    trace: &Trace,
    flows: &Flows,
    v: usize,
    link: &Link,
) -> Observed {
    let settings = Settings {
        interval: scenario.sample,
        window: scenario.measure,
    };
    let (start, end) = settings.window;
    let half = Span::from_nanos(settings.interval.as_nanos() / 2);
    let packet_bytes = model.bottlenecks[v].packet.0;
    let crosses = |traffic: usize| scenario.traffic[traffic].path.contains(&v);
    let mut found = Recorder::new(settings, link.rate).finish(flows.totals(crosses));
    found.name.clone_from(&link.name);
    found.goodput = flows.goodput.crossing(crosses);
    let mut queued = Carried::default();
    let [mut arrived, mut dropped, mut marked, mut overflowed, mut left, mut admitted] =
        std::array::from_fn(|_| Carried::default());
    let samples = &mut found.samples;
    for (row, passage) in trace.passed[v].iter().enumerate().skip(1) {
        let queue_pkts = queued.length(trace.queue_pkts[v][row]);
        let gone = u64::from(left.count(passage.left));
        samples.queue_pkts.push(queue_pkts);
        (samples.queue_bytes).push(u64::from(queue_pkts) * packet_bytes);
        samples.arrivals.push(arrived.count(passage.arrived));
        samples.early_drops.push(dropped.count(passage.dropped));
        samples.forced_drops.push(0);
        (samples.overflow_drops).push(overflowed.count(passage.overflowed));
        samples.marks.push(marked.count(passage.marked));
        samples.departed_bytes.push(gone * packet_bytes);
        (samples.capacity_bits).push(passage.could_leave * 8.0 * packet_bytes as f64);
        found.forwarded_packets += gone;
        // A packet that comes in the middle of the row waits until those before it are gone.
        let before_pkts = 0.5 * (trace.queue_pkts[v][row - 1] + trace.queue_pkts[v][row]);
        let wait = waiting(before_pkts, passage, settings.interval);
        let came = end_of(row - 1, settings.interval) + half;
        let entered = admitted.count(passage.arrived - passage.dropped - passage.overflowed);
        let gone_at = came + wait;
        if start < gone_at && gone_at <= end {
            (found.delay_ns).saturating_record_n(wait.as_nanos(), u64::from(entered));
        }
    }
    (samples.probes).push(("p", trace.probability[v][1..].to_vec()));
    if v == 0 && scenario.windows {
        (samples.probes).push(("in_flight_pkts", trace.in_flight_pkts[1..].to_vec()));
    }
    found
}

/// What the flows of every traffic got.
struct Flows {
    /// By flow: its traffic, and in-order bytes within the window.
    within: Vec<(usize, u64)>,
    goodput: GoodputRecorder,
}

impl Flows {
    fn new(scenario: &Scenario, trace: &Trace) -> Flows {
        let numbers = scenario.traffic.iter().map(|traffic| traffic.flows);
        let rows = trace.time_s.len() as u64 - 1;
        let every = GoodputRecorder::every(rows);
        let mut goodput = GoodputRecorder::new(scenario.sample * every, numbers);
        let mut totals = Totals::new(scenario, trace.delivered_pkts.len());
        let (start, end) = scenario.measure;
        let (mut before, mut until) = (Vec::new(), Vec::new());
        for row in 0..trace.time_s.len() {
            totals.add(trace.delivered_pkts.iter().map(|class| class[row]));
            let now = end_of(row, scenario.sample);
            if now <= start {
                before = totals.bytes();
            }
            if now <= end {
                until = totals.bytes();
            }
            if row > 0 && (row as u64).is_multiple_of(every) {
                goodput.row(&totals.bytes());
            }
        }
        let got = until
            .iter()
            .zip(&before)
            .map(|(until, before)| until - before);
        let traffic = totals.flows.iter().map(|flow| flow.traffic);
        Flows {
            within: traffic.zip(got).collect(),
            goodput,
        }
    }

    fn totals(&self, crosses: impl Fn(usize) -> bool) -> Vec<FlowTotals> {
        let flows = self.within.iter().filter(|(traffic, _)| crosses(*traffic));
        flows
            .map(|&(traffic, delivered_bytes)| FlowTotals {
                traffic: u32::try_from(traffic).unwrap_or(u32::MAX),
                delivered_bytes,
            })
            .collect()
    }
}

/// A flow as one of its class.
struct Flow {
    traffic: usize,
    class: usize,
    /// Its number among the flows of the class, and how many those are.
    place: (u64, u64),
    payload_bytes: u64,
}

/// What has been delivered since the start.
struct Totals {
    flows: Vec<Flow>,
    /// Of all flows of a class.
    pkts: Vec<f64>,
}

impl Totals {
    fn new(scenario: &Scenario, classes: usize) -> Totals {
        let mut flows = Vec::new();
        let mut class = 0;
        for (traffic, kind) in scenario.traffic.iter().enumerate() {
            let mut own: Vec<(u32, Flow)> = Vec::new();
            for group in groups(scenario, traffic) {
                let of = group.flows.len() as u64;
                own.extend((0..).zip(&group.flows).map(|(place, number)| {
                    let flow = Flow {
                        traffic,
                        class,
                        place: (place, of),
                        payload_bytes: kind.payload().0,
                    };
                    (*number, flow)
                }));
                class += 1;
            }
            own.sort_by_key(|(number, _)| *number);
            flows.extend(own.into_iter().map(|(_, flow)| flow));
        }
        Totals {
            flows,
            pkts: vec![0.0; classes],
        }
    }

    fn add(&mut self, pkts: impl Iterator<Item = f64>) {
        for (total, more) in self.pkts.iter_mut().zip(pkts) {
            *total += more;
        }
    }

    /// By flow: whole packets of a class go round its flows.
    fn bytes(&self) -> Vec<u64> {
        let of = |flow: &Flow| {
            let (place, flows) = flow.place;
            (whole_u64(self.pkts[flow.class]) + place) / flows * flow.payload_bytes
        };
        self.flows.iter().map(of).collect()
    }
}
