//! Conversion of a guest's record into a trace, with the code that also records simulated runs.

use std::fs;
use std::path::Path;

use forebay_aqm::{DropReason, Ecn, Packet as DisciplinePacket};
use forebay_scenario::{LawChoice, LinkSetting, Scenario, Setting, TrafficKind};
use forebay_trace::{
    mean_propagation_s, Call, FlowTotals, GoodputRecorder, Recorder, RunTrace, Settings,
    TrafficTrace, Transfer, Viewer,
};
use forebay_units::{Rate, Span, Time};

use crate::capture;
use crate::record::{u32_at, u64_at, Fate, PacketRow, RunRecord, OUTCOME, PACKETS, SAMPLES};

/// The packet type of a queue that is built only for the names of its classes, and never holds a
/// packet.
#[derive(Clone, Copy)]
struct NoPacket;

impl DisciplinePacket for NoPacket {
    fn bytes(&self) -> u32 {
        0
    }
    fn flow(&self) -> u64 {
        0
    }
    fn ecn(&self) -> Ecn {
        Ecn::NotEct
    }
    fn dscp(&self) -> u8 {
        0
    }
    fn set_ce(&mut self) {}
}

/// Returns the trace of a run, and its record, from the files that the guest left in `folder`.
///
/// `ours` says that the queue is one of this workspace, whose classes are then recorded, rather
/// than one of the kernel.
///
/// # Errors
/// The guest reported a failure, or a file is missing or incomplete because the guest crashed.
pub fn trace(
    scenario: &Scenario,
    law: &LawChoice,
    seed: u64,
    ours: bool,
    folder: &Path,
) -> Result<(RunTrace, RunRecord), String> {
    let read = |name: &str| {
        fs::read(folder.join(name)).map_err(|error| format!("the guest left no {name}: {error}"))
    };
    let outcome = serde_json::from_slice::<RunRecord>(&read(OUTCOME)?)
        .map_err(|error| format!("the guest's {OUTCOME}: {error}"))?;
    if !outcome.failure.is_empty() {
        return Err(outcome.failure);
    }
    let packets: Vec<PacketRow> = PacketRow::rows(&read(PACKETS)?).collect();
    let samples = read(SAMPLES)?;

    let settings = Settings {
        interval: scenario.sample,
        window: scenario.measure,
    };
    let rate = scenario.tested_link().capacity().steady_rate();
    let mut recorder = Recorder::new(settings, rate);
    if ours {
        let queue = law
            .aqm()
            .build::<NoPacket>(
                &scenario.queue_site(scenario.tested_link()),
                seed,
                "classes",
            )
            .map_err(|error| error.to_string())?;
        recorder.tell_apart(queue.classes());
    }
    let traffics = crate::count(scenario.traffic.len());
    if traffics > 1 {
        recorder.tell_traffic_apart(traffics);
    }
    let mut flows: Vec<FlowTotals> = (outcome.flows.iter())
        .map(|&(traffic, delivered_bytes)| FlowTotals {
            traffic,
            delivered_bytes,
        })
        .collect();
    let end = Time::ZERO + scenario.duration;
    let result = capture::write(folder, &packets, end);
    result.map_err(|error| format!("a capture: {error}"))?;
    count_unseen(scenario, &packets, &mut flows);
    let goodput = goodput(scenario, &outcome, &packets);
    replay(scenario, &mut recorder, packets, &samples, &outcome);
    let link = recorder.finish(&scenario.tested_link().name);
    let traffic = scenario.traffic.iter().zip(&outcome.sent);
    let traffic = traffic.map(|(traffic, &(sent_packets, resent_packets))| TrafficTrace {
        sent_packets,
        resent_packets,
        rtt_s: mean_propagation_s(&traffic.rtts, traffic.flows.max(1)),
        ..TrafficTrace::over(vec![scenario.tested])
    });
    let mut trace = RunTrace::new(vec![link], traffic.collect());
    trace.flows = flows;
    trace.transfers = (outcome.transfers.iter())
        .map(|&(traffic, packets, took_ns)| Transfer {
            traffic,
            packets,
            took: Span::from_nanos(took_ns),
        })
        .collect();
    trace.viewers = (outcome.viewers.iter())
        .map(
            |&(traffic, segments, rates_bps, stalls, stalled_ns)| Viewer {
                traffic,
                segments,
                rates_bps,
                stalls,
                stalled: Span::from_nanos(stalled_ns),
            },
        )
        .collect();
    trace.calls = (outcome.calls.iter())
        .map(|&(traffic, received, lost, delays_ns, changes_ns)| Call {
            traffic,
            received,
            lost,
            delays: Span::from_nanos(delays_ns),
            changes: Span::from_nanos(changes_ns),
        })
        .collect();
    trace.goodput = goodput;
    Ok((trace, outcome))
}

/// Returns the packets that left the queue and whose receiver is not observed: the row of each, and
/// the bytes that count as its data. The data of a program's packet is without headers; that of a
/// recorded packet is the whole packet.
fn unseen<'a>(
    scenario: &'a Scenario,
    packets: &'a [PacketRow],
) -> impl Iterator<Item = (&'a PacketRow, u64)> {
    let left = packets
        .iter()
        .filter(|row| !matches!(row.fate, Fate::Lost(_)));
    left.filter_map(|row| {
        let traffic = scenario.traffic.get(usize::from(row.traffic))?;
        let bytes = u64::from(row.bytes);
        match traffic.kind {
            TrafficKind::Program(_) => Some((row, bytes - u64::from(row.header_bytes))),
            TrafficKind::Arrivals(_) => Some((row, bytes)),
            _ => None,
        }
    })
}

/// Returns the number of the first flow of each traffic, from the traffic of each flow.
fn first_flows(scenario: &Scenario, traffic_of: impl Iterator<Item = u32>) -> Vec<usize> {
    let mut first = vec![usize::MAX; scenario.traffic.len()];
    for (flow, traffic) in traffic_of.enumerate() {
        let at = &mut first[traffic as usize];
        *at = flow.min(*at);
    }
    first
}

/// Adds the data of unobserved flows to their totals: the bytes that left the queue within the
/// window.
fn count_unseen(scenario: &Scenario, packets: &[PacketRow], flows: &mut [FlowTotals]) {
    let (start, end) = scenario.measure;
    let first = first_flows(scenario, flows.iter().map(|flow| flow.traffic));
    for (row, bytes) in unseen(scenario, packets) {
        let at = first[usize::from(row.traffic)].saturating_add(row.flow as usize);
        if let (Some(flow), true) = (flows.get_mut(at), start < row.left && row.left <= end) {
            flow.delivered_bytes += bytes;
        }
    }
}

/// An event of the recorder, besides the samples that close intervals.
enum Event {
    Arrives,
    Marked(u8, u8),
    Leaves(PacketRow),
    Lost(u8, u8, DropReason),
    Rate(Rate),
}

/// Gives the events of a run to the recorder, in the order of their times.
fn replay(
    scenario: &Scenario,
    recorder: &mut Recorder,
    packets: Vec<PacketRow>,
    samples: &[u8],
    outcome: &RunRecord,
) {
    let mut events: Vec<(Time, Event)> = Vec::with_capacity(2 * packets.len());
    for change in &scenario.changes {
        if let Setting::Link {
            link: 0,
            what: LinkSetting::Rate(rate),
        } = change.what
        {
            events.push((change.at, Event::Rate(rate)));
        }
    }
    for row in packets {
        events.push((row.arrived, Event::Arrives));
        match row.fate {
            Fate::Lost(reason) => {
                events.push((row.left, Event::Lost(row.traffic, row.class, reason)));
            }
            Fate::Marked => {
                events.push((row.left, Event::Marked(row.traffic, row.class)));
                events.push((row.left, Event::Leaves(row)));
            }
            Fate::Left => events.push((row.left, Event::Leaves(row))),
        }
    }
    // The sort is stable: events at the same time keep their order.
    events.sort_by_key(|(at, _)| *at);
    let mut events = events.into_iter().peekable();
    let names: Vec<&'static str> = outcome.probes.iter().map(|name| interned(name)).collect();
    let row_bytes = 12 + 8 * names.len();
    for (i, row) in samples.chunks_exact(row_bytes).enumerate() {
        let end = forebay_trace::Samples::time(scenario.sample, i);
        while let Some((at, event)) = events.next_if(|(at, _)| *at <= end) {
            apply(recorder, at, event);
        }
        let probes = names
            .iter()
            .zip(row[12..].chunks_exact(8))
            .map(|(name, value)| (*name, f64::from_le_bytes(value.try_into().expect("eight"))));
        recorder.sample(end, u32_at(row, 0), u64_at(row, 4), |out| {
            probes.for_each(|(name, value)| out(name, value));
        });
    }
}

/// Gives an event to the recorder.
fn apply(recorder: &mut Recorder, at: Time, event: Event) {
    match event {
        Event::Arrives => recorder.arrived(),
        Event::Rate(rate) => recorder.rate_changed(at, rate),
        Event::Marked(traffic, class) => {
            recorder.marked(at, class);
            if let Some(totals) = recorder.traffic(at, Some(traffic)) {
                totals.marked_packets += 1;
            }
        }
        Event::Lost(traffic, class, reason) => {
            recorder.dropped(at, reason, class);
            if let Some(totals) = recorder.traffic(at, Some(traffic)) {
                totals.dropped_packets += 1;
            }
        }
        Event::Leaves(row) => {
            let sojourn = row.left.since(row.arrived);
            recorder.departed(at, row.bytes, sojourn, row.class);
            if let Some(totals) = recorder.traffic(at, Some(row.traffic)) {
                totals.left(sojourn);
            }
        }
    }
}

/// Returns a name that lives as long as the process. Each name is stored once; there are few.
fn interned(name: &str) -> &'static str {
    use std::sync::{Mutex, PoisonError};
    static NAMES: Mutex<Vec<&'static str>> = Mutex::new(Vec::new());
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(stored) = names.iter().find(|stored| **stored == name) {
        return stored;
    }
    names.push(Box::leak(name.to_owned().into_boxed_str()));
    names[names.len() - 1]
}

/// Returns the goodput of the flows over time.
fn goodput(
    scenario: &Scenario,
    outcome: &RunRecord,
    packets: &[PacketRow],
) -> forebay_trace::Goodput {
    let every = goodput_every(scenario);
    let interval = scenario.sample * every;
    let first = first_flows(scenario, outcome.flows.iter().map(|(traffic, _)| *traffic));
    let mut totals = outcome.totals.clone();
    for (row, bytes) in unseen(scenario, packets) {
        let flow = first[usize::from(row.traffic)].saturating_add(row.flow as usize);
        // Each row counts from the start of the run, so the packet belongs to all rows that
        // end
        // after it has left.
        let after = row.left.as_nanos().div_ceil(interval.as_nanos()).max(1) - 1;
        for total in totals
            .iter_mut()
            .skip(usize::try_from(after).unwrap_or(usize::MAX))
        {
            if let Some(total) = total.get_mut(flow) {
                *total += bytes;
            }
        }
    }
    let flows_of = |traffic: usize| {
        outcome
            .flows
            .iter()
            .filter(move |(number, _)| *number as usize == traffic)
    };
    let flows = (0..scenario.traffic.len()).map(|traffic| crate::count(flows_of(traffic).count()));
    let mut recorder = GoodputRecorder::new(interval, flows);
    totals.iter().for_each(|row| recorder.row(row));
    recorder.finish()
}

/// Returns the number of samples in a row of the goodput.
pub fn goodput_every(scenario: &Scenario) -> u64 {
    GoodputRecorder::every(scenario.duration.as_nanos() / scenario.sample.as_nanos())
}
