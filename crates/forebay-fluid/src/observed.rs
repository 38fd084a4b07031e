//! The conversion of a fluid run to whole packets, so that metrics, figures and tables treat it like
//! any other run.
//!
//! The fraction of a packet is carried over to the next row, so means and sums are those of the
//! fluid: a constant queue of 20.3 packets is 20 in most rows and 21 in some. All flows of a class get
//! the same goodput. There are no transfers and no retransmissions.
//!
//! The exact numbers of the equations are recorded like a law's internal values: `fluid_pkts` of each
//! queue, and `window_pkts` and `rtt_s` of each class, by its number in the model.

use std::borrow::Cow;

use forebay_scenario::{Link, Scenario};
use forebay_trace::{
    mean_propagation_s, FlowTotals, Goodput, GoodputRecorder, LinkTrace, QueuedTraffic, Recorder,
    RunTrace, Settings, TrafficTrace,
};
use forebay_units::cast::{whole_u32, whole_u64};
use forebay_units::{Span, Time};

use crate::model::Model;
use crate::scenario::groups;
use crate::trace::Trace;

/// Returns the trace of a run of `scenario` whose `model` gave `trace`.
pub fn observed(scenario: &Scenario, model: &Model, trace: &Trace) -> RunTrace {
    // The classes of the model are those of the first traffic, then those of the second.
    let of_class: Vec<usize> = (0..scenario.traffic.len())
        .flat_map(|traffic| groups(scenario, traffic).into_iter().map(move |_| traffic))
        .collect();
    let links = scenario.links.iter().enumerate();
    let links = links.map(|(v, link)| LinkTrace {
        traffic: met_at(scenario, model, trace, v, &of_class),
        ..at_link(scenario, model, trace, v, link)
    });
    let traffic = scenario.traffic.iter().map(|traffic| TrafficTrace {
        rtt_s: mean_propagation_s(&traffic.rtts, traffic.flows),
        ..TrafficTrace::over(traffic.path.clone())
    });
    let (flows, goodput) = delivered(scenario, trace);
    RunTrace {
        flows,
        goodput,
        ..RunTrace::new(links.collect(), traffic.collect())
    }
}

/// Converts amounts of fluid to whole packets; the fraction is carried over.
#[derive(Default)]
struct Carried(f64);

impl Carried {
    /// Returns the whole packets in `pkts` and the fraction before; a sum is off by less than one.
    fn count(&mut self, pkts: f64) -> u32 {
        self.0 += pkts;
        // A sum of parts that is whole but for rounding is whole.
        let whole = whole_u32(self.0 + 1e-6);
        self.0 -= f64::from(whole);
        whole
    }

    /// Returns the nearest whole length of a queue, corrected by the error of the rows before.
    fn length(&mut self, pkts: f64) -> u32 {
        self.0 += pkts;
        let whole = whole_u32((self.0 + 0.5).max(0.0));
        self.0 -= f64::from(whole);
        whole
    }
}

/// Returns the time at which a row ends; the first is of time zero.
fn end_of(row: usize, interval: Span) -> Time {
    Time::ZERO + interval * row as u64
}

/// Returns the arrival of a packet in the middle of a row, and its queuing delay.
fn passage_of(trace: &Trace, v: usize, row: usize, interval: Span) -> (Time, Span) {
    let came = end_of(row - 1, interval) + Span::from_nanos(interval.as_nanos() / 2);
    let before_pkts = 0.5 * (trace.queue_pkts[v][row - 1] + trace.queue_pkts[v][row]);
    let could_leave = trace.passed[v][row].could_leave;
    let wait_s = before_pkts * interval.as_secs_f64() / could_leave;
    (came, Span::from_secs_f64(wait_s))
}

/// Returns the packets of each traffic at a link within the window.
fn met_at(
    scenario: &Scenario,
    model: &Model,
    trace: &Trace,
    v: usize,
    of_class: &[usize],
) -> Vec<QueuedTraffic> {
    let (start, end) = scenario.measure;
    let within = |at: Time| start < at && at <= end;
    let passing = model.classes.iter().zip(of_class);
    let passing = passing.filter(|(class, _)| class.route.contains(&v));
    // Packets that left, what they waited in all (s), and packets lost and marked.
    let mut sums = vec![[0.0; 4]; scenario.traffic.len()];
    let mut met_by: Vec<QueuedTraffic> = vec![QueuedTraffic::default(); scenario.traffic.len()];
    for ((_, &traffic), column) in passing.zip(&trace.met[v]) {
        let [left, waited_s, lost, marked] = &mut sums[traffic];
        for (row, met) in column.iter().enumerate().skip(1) {
            let (came, wait) = passage_of(trace, v, row, scenario.sample);
            if within(came + wait) {
                *left += met.entered;
                *waited_s += met.entered * wait.as_secs_f64();
                // Packets of a fluid need not be whole; their delays count in thousandths.
                let thousandths = whole_u64(1e3 * met.entered + 0.5);
                (met_by[traffic].delay_ns).saturating_record_n(wait.as_nanos(), thousandths);
            }
            if within(came) {
                *lost += met.lost;
                *marked += met.marked;
            }
        }
    }
    let nearest = |pkts: f64| whole_u64(pkts + 0.5);
    for (traffic, (of, [left, waited_s, lost, marked])) in (0..).zip(met_by.iter_mut().zip(sums)) {
        of.traffic = traffic;
        of.left_packets = nearest(left);
        of.waited_ns = nearest(1e9 * waited_s);
        of.dropped_packets = nearest(lost);
        of.marked_packets = nearest(marked);
    }
    met_by
}

fn at_link(scenario: &Scenario, model: &Model, trace: &Trace, v: usize, link: &Link) -> LinkTrace {
    let settings = Settings {
        interval: scenario.sample,
        window: scenario.measure,
    };
    let (start, end) = settings.window;
    let packet_bytes = model.bottlenecks[v].packet.0;
    let mut found = Recorder::new(settings, link.rate).finish(&link.name);
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
        let (came, wait) = passage_of(trace, v, row, settings.interval);
        let entered = admitted.count(passage.arrived - passage.dropped - passage.overflowed);
        let gone_at = came + wait;
        if start < gone_at && gone_at <= end {
            (found.delay_ns).saturating_record_n(wait.as_nanos(), u64::from(entered));
        }
    }
    let mut probe = |name: Cow<'static, str>, column: &[f64]| {
        samples.probes.push((name, column[1..].to_vec()));
    };
    probe("p".into(), &trace.probability[v]);
    probe("fluid_pkts".into(), &trace.queue_pkts[v]);
    if v == 0 {
        if scenario.windows {
            probe("in_flight_pkts".into(), &trace.in_flight_pkts);
        }
        for (class, (window_pkts, rtt_s)) in trace.window_pkts.iter().zip(&trace.rtt_s).enumerate()
        {
            probe(format!("window_pkts.{class}").into(), window_pkts);
            probe(format!("rtt_s.{class}").into(), rtt_s);
        }
    }
    found
}

/// Returns the bytes that each flow delivered within the window, and the goodput over time.
fn delivered(scenario: &Scenario, trace: &Trace) -> (Vec<FlowTotals>, Goodput) {
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
    let bytes = until.iter().zip(&before);
    let bytes = bytes.map(|(until, before)| until - before);
    let flows = totals.flows.iter().zip(bytes);
    let flows = flows.map(|(flow, delivered_bytes)| FlowTotals {
        traffic: u32::try_from(flow.traffic).unwrap_or(u32::MAX),
        delivered_bytes,
    });
    (flows.collect(), goodput.finish())
}

/// A flow, identified within its class.
struct Flow {
    traffic: usize,
    class: usize,
    /// The number of the flow within its class, and the number of flows of the class.
    place: (u64, u64),
    payload_bytes: u64,
}

/// The packets delivered since the start.
struct Totals {
    flows: Vec<Flow>,
    /// The packets of all flows of each class.
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

    /// Returns the bytes of each flow: the whole packets of a class go to its flows in turn.
    fn bytes(&self) -> Vec<u64> {
        let of = |flow: &Flow| {
            let (place, flows) = flow.place;
            (whole_u64(self.pkts[flow.class]) + place) / flows * flow.payload_bytes
        };
        self.flows.iter().map(of).collect()
    }
}
