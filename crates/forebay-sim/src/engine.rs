//! The simulation engine: it processes events in order of time, and makes an event only where the
//! order of packets can change.
//!
//! With one bottleneck a data packet needs two or three events: its arrival at the bottleneck, the
//! arrival of its ACK at the shared line back if ACKs may leave that in another order, and the
//! arrival of the ACK at the sender. Each further station adds one event. The links' ends of
//! transmission, the laws' timers and the sampler have one pending time each, outside the queues of
//! events. Everything else is arithmetic. Access links and links are FIFO, so that a packet that
//! leaves a queue is followed at once to the receiver, through the receiver, and back to the next
//! shared station.
//!
//! Each kind of event has its own queue. The clock is the senders': the links are allowed to lag
//! behind it and catch up when something at a host may depend on them.

mod agenda;
mod applications;
mod changes;
mod dumbbell;
mod external;
mod hosts;
mod mesh;

use std::sync::atomic::Ordering;
use std::sync::Arc;

use agenda::Agenda;
use forebay_aqm::{Aqm, Queue};
use forebay_scenario::{Link, Scenario};
use forebay_trace::{
    mean_propagation_s, Call, FlowTotals, GoodputRecorder, Recorder, RunTrace, Settings,
    TrafficTrace, Viewer,
};
use forebay_units::cast::whole_u64;
use forebay_units::{ParamError, Span, Time};
use hosts::{Alarm, Hosts, Returning};

use crate::blocks::BlockStore;
use crate::calendar::Calendar;
use crate::calls::Calls;
use crate::events::{EventQueue, LineCounts};
use crate::external::PendingOutcomes;
use crate::ids::FlowId;
use crate::line::Wire;
use crate::network::NetworkState;
use crate::number::count;
use crate::packet::{PackedPacket, NO_TRAFFIC};
use crate::port::Port;
use crate::steps::{LineBack, LinkSteps};
use crate::Watch;

pub use dumbbell::Dumbbell;
pub use mesh::Mesh;

/// Largest number of kinds of access link with which there are delay lines. With more kinds,
/// packets that arrive at the same time keep the order in which they were sent.
const MOST_LINE_KINDS: usize = 4;

/// Number of events between two checks of the watch.
const WATCH_EVERY: u32 = 1 << 14;

/// The shared links of a network. The engine is compiled for each kind of network, so that with one
/// bottleneck no code selects a link or looks up a packet's next hop.
pub trait Topology: Sized {
    /// Number of prompt delay lines in [`Hosts::arrivals`] for each kind of access link. Packets on
    /// a prompt line did not wait for their access link.
    const PROMPT_LINES: usize;
    /// Number of late delay lines for packets that come from a station.
    const ONWARD_LINES: usize;
    /// True if the links may lag behind the clock and catch up later.
    const LOOKS_AHEAD: bool;

    /// Creates the links from their ports and their lines back, in the order of the scenario.
    fn new(
        scenario: &Scenario,
        network: &NetworkState,
        ports: Vec<Port>,
        lines_back: Vec<LineBack>,
    ) -> Self;

    /// Returns the ports of all links, in order.
    fn ports(&self) -> &[Port];
    /// Returns the ports of all links, in order, to change them.
    fn ports_mut(&mut self) -> &mut [Port];
    /// Ends the network and returns its ports.
    fn into_ports(self) -> Vec<Port>;
    /// Returns the port of a link and the line back along it.
    fn link_mut(&mut self, link: usize) -> (&mut Port, &mut LineBack);

    /// Sets how far the links may lag behind the clock, and the times at which they must catch up.
    fn set_lookahead(&mut self, hosts: &mut Hosts);

    /// Processes the ends of transmission before `links_before` and the arrivals at stations before
    /// `arrivals_before`.
    fn advance(&mut self, hosts: &mut Hosts, links_before: Time, arrivals_before: Time);

    /// Moves ACKs that reached the line back before `before` across it, if ACKs alone use that
    /// line.
    fn cross_back(&mut self, hosts: &mut Hosts, before: Time);

    /// Returns the time at which the next ACK reaches its sender.
    fn next_ack(&self) -> Time;

    /// Delivers ACKs to their senders, as long as each arrives before the earliest event of the
    /// agenda, but at most `most` of them. At least one ACK must be due. Returns the number of ACKs
    /// that were delivered.
    fn take_acks(&mut self, hosts: &mut Hosts, most: u32) -> u32;

    /// Schedules the arrival of an ACK at the first station of its way back.
    fn enter_way_back(&mut self, hosts: &mut Hosts, returning: Returning);
}

/// A run of a scenario on a network of type `T`.
pub struct PacketEngine<T> {
    scenario: Arc<Scenario>,
    hosts: Hosts,
    links: T,
    /// Number of changes of the scenario that have been made.
    changed: usize,
    /// The end of the scenario.
    end: Time,
    /// Goodput of each flow over time.
    goodput: GoodputRecorder,
    /// Bytes delivered so far, by flow; scratch space of `goodput`.
    totals: Vec<u64>,
    /// Number of samples per row of `goodput`.
    goodput_every: u64,
}

impl<T: Topology> PacketEngine<T> {
    /// Creates a run at time zero. `queues` are the queues of the links, in order.
    pub fn new(scenario: Arc<Scenario>, queues: Vec<Queue<PackedPacket>>, seed: u64) -> Self {
        let whole = Arc::clone(&scenario);
        let scenario = &*whole;
        let settings = Settings {
            interval: scenario.sample,
            window: scenario.measure,
        };
        let ports = ports(scenario, queues, settings);
        let mut network = NetworkState::new(scenario, seed);
        let samples = scenario.duration / scenario.sample;
        let goodput_every = GoodputRecorder::every(samples);
        let over = Time::ZERO + scenario.duration;
        let kinds = network.pair_classes();
        let lines = LineCounts {
            late: kinds + T::ONWARD_LINES,
            prompt: T::PROMPT_LINES * kinds,
        };
        network.number_lines(lines.late, T::PROMPT_LINES);
        let flows = network.classes.iter().map(|class| class.count);
        let mut engine = PacketEngine {
            goodput: GoodputRecorder::new(scenario.sample * goodput_every, flows),
            links: T::new(scenario, &network, ports, lines_back(scenario)),
            changed: 0,
            end: over,
            hosts: Hosts {
                arrivals: event_queue(scenario, &network, lines),
                late_lines: lines.late,
                prompt_lines: T::PROMPT_LINES,
                lookahead: Span::ZERO,
                // Buckets are 1 ms wide and reach past the longest timeout of a minute.
                alarms: Calendar::new(Span::from_nanos(1 << 20), Span::from_secs(65)),
                agenda: Agenda::new(Time::ZERO + scenario.sample, over),
                blocks: BlockStore::default(),
                window: scenario.measure,
                external: PendingOutcomes::new(network.external_flows(), network.flows.len()),
                network,
            },
            totals: Vec::new(),
            goodput_every,
            scenario: Arc::clone(&whole),
        };
        engine.hosts.agenda.change = engine.next_change();
        engine.hosts.agenda.tick = engine.next_tick();
        engine.links.set_lookahead(&mut engine.hosts);
        engine.hosts.start();
        engine.hosts.agenda.refresh();
        engine
    }

    /// Runs to the end of the scenario and returns the trace; `None` if cancelled.
    pub fn run(mut self, watch: &Watch) -> Option<RunTrace> {
        self.run_until(self.end, watch).then(|| self.finish())
    }

    /// Returns the recorder of the link under test.
    pub fn tested(&self) -> &Recorder {
        &self.links.ports()[self.scenario.tested]
            .bottleneck
            .record
            .recorder
    }

    /// Returns the bytes delivered to all flows so far.
    pub fn delivered_bytes(&self) -> u64 {
        let receivers = self.hosts.network.receivers.iter();
        receivers
            .map(|it| it.delivered_bytes + it.outside_bytes)
            .sum()
    }

    /// Runs until just after `until`, but not past the end. Returns false if the run was cancelled.
    pub fn run_until(&mut self, until: Time, watch: &Watch) -> bool {
        let until = until.min(self.end);
        self.hosts.agenda.over = until.just_after();
        self.hosts.agenda.refresh();
        let mut since_watch = 0;
        loop {
            let first = self.hosts.agenda.first;
            if self.links.next_ack() < first {
                let most = WATCH_EVERY - since_watch;
                since_watch += self.links.take_acks(&mut self.hosts, most);
            } else if first > until {
                break;
            } else {
                if !(T::LOOKS_AHEAD && self.hosts.take_timer_alarm()) {
                    self.handle_single(first);
                    self.hosts.agenda.refresh();
                }
                since_watch += 1;
            }
            if since_watch == WATCH_EVERY {
                since_watch = 0;
                watch.set_now(first.min(until));
                if watch.cancel.load(Ordering::Relaxed) {
                    return false;
                }
            }
        }
        if until == self.end {
            let end = until.just_after();
            self.links.advance(&mut self.hosts, end, end);
        }
        watch.set_now(until);
        true
    }

    /// Ends the run and returns its trace.
    pub fn finish(self) -> RunTrace {
        let NetworkState {
            classes,
            flows,
            receivers,
            ..
        } = &self.hosts.network;
        let mut delivered = vec![0; flows.len()];
        for (flow, receiver) in flows.iter().zip(receivers) {
            delivered[flow.owner.index()] += receiver.delivered_bytes;
        }
        let of_flow = |traffic, flow: FlowId| FlowTotals {
            traffic,
            delivered_bytes: delivered[flow.index()],
        };
        let flow_totals = (0..).zip(classes);
        let flow_totals = flow_totals
            .flat_map(|(traffic, class)| class.flows().map(move |flow| of_flow(traffic, flow)));
        let calls = (0..).zip(classes).flat_map(|(traffic, class)| {
            let of_class = class.calls.iter().flat_map(Calls::seen);
            of_class.map(move |call| Call { traffic, ..call })
        });
        let viewers = (0..).zip(classes).flat_map(|(traffic, class)| {
            let of_class = class.script.viewers(self.hosts.window).into_iter();
            of_class.map(move |viewer| Viewer { traffic, ..viewer })
        });
        let traffic = classes.iter().zip(&self.scenario.traffic);
        let traffic = traffic.map(|(class, traffic)| TrafficTrace {
            links: class.links.clone(),
            sent_packets: class.sent_packets,
            resent_packets: class.resent_packets,
            rtt_s: mean_propagation_s(&traffic.rtts, class.count),
        });
        let ports = self.links.into_ports().into_iter();
        let links = ports.zip(&self.scenario.links).map(|(port, link)| {
            let recorder = port.bottleneck.record.recorder;
            recorder.finish(&link.name)
        });
        RunTrace {
            flows: flow_totals.collect(),
            goodput: self.goodput.finish(),
            transfers: (classes.iter())
                .flat_map(|class| class.transfers.iter().copied())
                .collect(),
            calls: calls.collect(),
            viewers: viewers.collect(),
            ..RunTrace::new(links.collect(), traffic.collect())
        }
    }

    /// Processes the first entry of the agenda, which is due at `now`.
    ///
    /// Entries of one time are processed in this order: change, tick of a law, link, sample, alarm,
    /// packet.
    #[inline(never)]
    fn handle_single(&mut self, now: Time) {
        let PacketEngine { hosts, links, .. } = self;
        if now == hosts.agenda.change {
            links.advance(hosts, now, now);
            links.cross_back(hosts, now);
            self.apply_change(now);
        } else if now == hosts.agenda.tick {
            links.advance(hosts, now, now);
            for port in links.ports_mut() {
                if tick_of(port) == now {
                    port.bottleneck.discipline.handle_timeout(now);
                }
            }
            self.hosts.agenda.tick = self.next_tick();
        } else if now == hosts.agenda.line_back {
            links.cross_back(hosts, now.just_after());
        } else if now == hosts.agenda.sample {
            links.advance(hosts, now.just_after(), now);
            self.sample(now);
        } else if now == hosts.agenda.alarm {
            self.handle_alarm(now);
        } else {
            links.advance(hosts, now.just_after(), now.just_after());
        }
    }

    /// Records a sample at every port, and goodput if a row is due.
    fn sample(&mut self, now: Time) {
        let PacketEngine {
            scenario,
            hosts,
            links,
            ..
        } = self;
        // Only the bottleneck, which is the first port, records the packets in flight.
        let mut in_flight_pkts = (scenario.windows).then(|| hosts.mean_in_flight_pkts(scenario));
        for port in links.ports_mut() {
            port.sample(now, in_flight_pkts.take());
            for blocks in port.bottleneck.record.sink.blocks.drain(..) {
                hosts.blocks.take(blocks);
            }
        }
        hosts.agenda.sample += scenario.sample;
        let samples = now.since_start() / scenario.sample;
        if samples.is_multiple_of(self.goodput_every) {
            self.sample_goodput();
        }
    }

    /// Records the goodput of each flow since the last call. A packet counts from the time at which
    /// it leaves its last queue.
    fn sample_goodput(&mut self) {
        let network = &self.hosts.network;
        let flows: u32 = network.classes.iter().map(|class| class.count).sum();
        self.totals.clear();
        self.totals.resize(flows as usize, 0);
        for (flow, receiver) in network.flows.iter().zip(&network.receivers) {
            self.totals[flow.owner.index()] += receiver.delivered_bytes + receiver.outside_bytes;
        }
        self.goodput.row(&self.totals);
    }

    /// Processes the first alarm, which is due at `now`.
    fn handle_alarm(&mut self, now: Time) {
        let PacketEngine { hosts, links, .. } = self;
        let alarm = hosts.alarms.pop().map(|entry| entry.event);
        // Alarms other than a retransmission timer may concern a receiver, so that the links must
        // catch up first.
        if !T::LOOKS_AHEAD || !matches!(alarm, Some(Alarm::Retransmit(_))) {
            links.advance(hosts, now.just_after(), now);
        }
        match alarm {
            Some(Alarm::Retransmit(flow)) => hosts.check_timer(now, flow),
            Some(Alarm::Pace(flow)) => hosts.pace(now, flow),
            Some(Alarm::DelayedAck(flow)) => {
                if let Some(ack) = hosts.delayed_ack(now, flow) {
                    links.enter_way_back(hosts, ack);
                }
            }
            Some(Alarm::Act(flow)) => hosts.act(now, flow),
            Some(Alarm::Arrival(class)) => hosts.arrive(now, class),
            Some(Alarm::Coming(class)) => hosts.take_coming(class),
            None => {}
        }
        hosts.find_next_alarm();
    }

    /// Returns the time of the next tick of a law.
    fn next_tick(&self) -> Time {
        self.links
            .ports()
            .iter()
            .map(tick_of)
            .min()
            .unwrap_or(Time::NEVER)
    }
}

/// Builds the queue of each link, under the link's own law or the law under test.
///
/// # Errors
/// The law under test does not fit a queue.
pub fn queues(
    scenario: &Scenario,
    tested: &Aqm,
    seed: u64,
) -> Result<Vec<Queue<PackedPacket>>, ParamError> {
    let queue = |(i, link): (usize, &Link)| {
        let stream = match i {
            0 => crate::LAW_STREAM.to_owned(),
            _ => format!("law {i}"),
        };
        let site = scenario.queue_site(link);
        match &link.law {
            Some(own) => own.aqm().build(&site, seed, &stream),
            None => tested.build(&site, seed, &stream),
        }
    };
    scenario.links.iter().enumerate().map(queue).collect()
}

/// Builds the port of each link.
fn ports(scenario: &Scenario, queues: Vec<Queue<PackedPacket>>, settings: Settings) -> Vec<Port> {
    let traffic = scenario.traffic.len();
    let told_apart = (2..=usize::from(NO_TRAFFIC)).contains(&traffic);
    let port = |((number, link), queue): ((usize, &Link), Queue<PackedPacket>)| {
        let steps = LinkSteps::of(scenario, number);
        let mut port = Port::new(queue, settings, link.capacity(), link.delay, &steps);
        if told_apart {
            port.bottleneck
                .record
                .recorder
                .tell_traffic_apart(count(traffic));
        }
        port
    };
    scenario
        .links
        .iter()
        .enumerate()
        .zip(queues)
        .map(port)
        .collect()
}

/// Builds the line back along each link.
fn lines_back(scenario: &Scenario) -> Vec<LineBack> {
    let line_back = |(number, link): (usize, &Link)| {
        let rate = link.rate_back.unwrap_or(link.rate);
        let wire = Wire::new(rate, link.delay);
        let steps = LinkSteps::of(scenario, number);
        LineBack::new(wire, link.rate_back.is_some(), &steps)
    };
    scenario.links.iter().enumerate().map(line_back).collect()
}

/// Returns the time at which the port's law is to be called; [`Time::NEVER`] if it has no timer.
fn tick_of(port: &Port) -> Time {
    let due = port.bottleneck.discipline.poll_timeout();
    due.unwrap_or(Time::NEVER)
}

/// Returns an empty queue of packets with one prompt delay line for each kind of access link.
fn one_line_each(scenario: &Scenario, network: &NetworkState) -> EventQueue<PackedPacket> {
    let lines = LineCounts {
        late: 0,
        prompt: network.pair_classes(),
    };
    event_queue(scenario, network, lines)
}

/// Returns an empty queue of packets with these delay lines, or without lines if there are many
/// kinds of access link. The cost of a calendar is fixed; that of a tournament between lines grows
/// with their number.
fn event_queue<T: Copy>(
    scenario: &Scenario,
    network: &NetworkState,
    lines: LineCounts,
) -> EventQueue<PackedPacket, T> {
    let rates = scenario.links.iter().map(|link| link.rate);
    let fastest = rates.max().unwrap_or(scenario.tested_link().rate);
    let packets_per_sec = fastest.packets_per_sec(scenario.packet()).max(1.0);
    let rtts = (scenario.traffic.iter()).flat_map(|traffic| traffic.rtts.iter().copied());
    let lines = match network.pair_classes() <= MOST_LINE_KINDS {
        true => lines,
        false => LineCounts::default(),
    };
    // Each link may add an event for each packet; more buckets would reach less far.
    let links = scenario.links.len() as u64;
    EventQueue::new(
        Span::from_nanos(whole_u64(1e9 / packets_per_sec)) / links.clamp(1, 4),
        rtts.max().unwrap_or_default().max(Span::from_millis(500)),
        lines,
        network.fetches(),
    )
}
