//! Runs a network: events in order of time, an event only where order can change.
//!
//! With one bottleneck a data packet costs two or three: its arrival there, its ACK's arrival at the
//! shared line back where ACKs may leave it in another order, and that ACK's arrival at the sender;
//! each further station adds one. The links' ends of transmission, the laws' clocks and the sampler
//! are one pending time each and stay out of the queues. Everything else is arithmetic: access links
//! and the links themselves are FIFO, so what leaves a queue can be followed to the receiver,
//! through it, and back to the next place where flows meet.
//!
//! Each kind of event has a queue of its own. The clock is the senders'; what happens at the links
//! is caught up with when something at a host may depend on it.

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
use crate::packet::{Packet, NO_TRAFFIC};
use crate::port::Port;
use crate::steps::{LineBack, LinkSteps};
use crate::Watch;

pub use dumbbell::Dumbbell;
pub use mesh::Mesh;

/// Largest number of kinds of access link that have delay lines. With more of them, packets that
/// come at one time keep the order in which they were sent.
const MOST_LINE_KINDS: usize = 4;

/// How many events pass between two looks at the watch.
const WATCH_EVERY: u32 = 1 << 14;

/// The links where flows meet. The engine is compiled for each kind of network, so that with one
/// bottleneck nothing asks which link it is, or where a packet goes next.
pub trait Topology: Sized {
    /// Prompt delay lines of each kind of access link in [`Hosts::arrivals`], whose packets did not
    /// wait for that link.
    const PROMPT_LINES: usize;
    /// Late ones for packets that come from a station.
    const ONWARD_LINES: usize;
    /// Whether the links fall behind the clock, to be brought up to it.
    const LOOKS_AHEAD: bool;

    /// `ports` are those of the links, in order, and `lines_back` the ways back along them.
    fn new(
        scenario: &Scenario,
        network: &NetworkState,
        ports: Vec<Port>,
        lines_back: Vec<LineBack>,
    ) -> Self;

    fn ports(&self) -> &[Port];
    fn ports_mut(&mut self) -> &mut [Port];
    fn into_ports(self) -> Vec<Port>;
    fn link_mut(&mut self, link: usize) -> (&mut Port, &mut LineBack);

    /// Sets how far they may fall behind, and when they must be brought up to the clock.
    fn set_lookahead(&mut self, hosts: &mut Hosts);

    /// Lets pass all that happens at the links before `links_before`, and at packets that reach a
    /// station before `arrivals_before`.
    fn advance(&mut self, hosts: &mut Hosts, links_before: Time, arrivals_before: Time);

    /// Lets ACKs cross that have reached a line back before this time, where nothing meets them
    /// there.
    fn cross_back(&mut self, hosts: &mut Hosts, before: Time);

    /// When the next ACK reaches its sender.
    fn next_ack(&self) -> Time;

    /// Hands ACKs to their senders while they come before the agenda's first time, `most` of them;
    /// there is one. Returns their number.
    fn take_acks(&mut self, hosts: &mut Hosts, most: u32) -> u32;

    /// An ACK reaches the first station of its way back.
    fn enter_way_back(&mut self, hosts: &mut Hosts, returning: Returning);
}

/// A run of a scenario over links of this kind.
pub struct PacketEngine<T> {
    scenario: Arc<Scenario>,
    hosts: Hosts,
    links: T,
    /// How many changes of the scenario have been made.
    changed: usize,
    end: Time,
    goodput: GoodputRecorder,
    /// By flow, for `goodput`.
    totals: Vec<u64>,
    /// Samples of a row of it.
    goodput_every: u64,
}

impl<T: Topology> PacketEngine<T> {
    /// `queues` are those of the links, in order.
    pub fn new(scenario: Arc<Scenario>, queues: Vec<Queue<Packet>>, seed: u64) -> Self {
        let whole = Arc::clone(&scenario);
        let scenario = &*whole;
        let settings = Settings {
            interval: scenario.sample,
            window: scenario.measure,
        };
        let ports = ports(scenario, queues, settings);
        let network = NetworkState::new(scenario, seed);
        let samples = scenario.duration / scenario.sample;
        let goodput_every = GoodputRecorder::every(samples);
        let flows = network.classes.iter().map(|class| class.count);
        let over = Time::ZERO + scenario.duration;
        let kinds = network.pair_classes();
        let lines = LineCounts {
            late: kinds + T::ONWARD_LINES,
            prompt: T::PROMPT_LINES * kinds,
        };
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
                // 1 ms wide, past the longest timeout of a minute.
                alarms: Calendar::new(Span::from_nanos(1 << 20), Span::from_secs(65)),
                agenda: Agenda::new(Time::ZERO + scenario.sample, over),
                blocks: BlockStore::default(),
                window: scenario.measure,
                segments: Vec::new(),
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

    /// Runs to the end; `None` if cancelled.
    pub fn run(mut self, watch: &Watch) -> Option<RunTrace> {
        self.run_until(self.end, watch).then(|| self.finish())
    }

    /// Returns what has been recorded so far at the link under test.
    pub fn tested(&self) -> &Recorder {
        &self.links.ports()[self.scenario.tested]
            .bottleneck
            .record
            .recorder
    }

    /// What all flows have got so far.
    pub fn delivered_bytes(&self) -> u64 {
        let receivers = self.hosts.network.receivers.iter();
        receivers
            .map(|it| it.delivered_bytes + it.outside_bytes)
            .sum()
    }

    /// Runs on until just after `until`, and not past the end; whether nobody cancelled it.
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
                self.handle_single(first);
                self.hosts.agenda.refresh();
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
            let of_class = class.application.viewers(self.hosts.window).into_iter();
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

    /// Things of one time happen in the order: change, tick, link, sample, alarm, packet.
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

    fn sample(&mut self, now: Time) {
        let PacketEngine {
            scenario,
            hosts,
            links,
            ..
        } = self;
        // Of the bottleneck alone.
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

    /// What flows got since the last call. A packet counts when it leaves its last queue.
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

    fn handle_alarm(&mut self, now: Time) {
        let PacketEngine { hosts, links, .. } = self;
        let alarm = hosts.alarms.pop().map(|entry| entry.event);
        // All but a retransmission timer may have to do with a receiver.
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
        let network = &hosts.network;
        let fetches = network.fetches();
        let next = hosts.alarms.peek_and(|alarms| {
            for entry in alarms.iter().filter(|_| fetches) {
                if let Alarm::Retransmit(flow) = entry.event {
                    network.prefetch_sender(flow);
                }
            }
        });
        hosts.agenda.alarm = next.map_or(Time::NEVER, |entry| entry.time);
    }

    fn next_tick(&self) -> Time {
        self.links
            .ports()
            .iter()
            .map(tick_of)
            .min()
            .unwrap_or(Time::NEVER)
    }
}

/// The queue of each link, under its own law or the one under test.
///
/// # Errors
/// The law under test does not fit a queue.
pub fn queues(
    scenario: &Scenario,
    tested: &Aqm,
    seed: u64,
) -> Result<Vec<Queue<Packet>>, ParamError> {
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

/// The port of each link.
fn ports(scenario: &Scenario, queues: Vec<Queue<Packet>>, settings: Settings) -> Vec<Port> {
    let traffic = scenario.traffic.len();
    let told_apart = (2..=usize::from(NO_TRAFFIC)).contains(&traffic);
    let port = |((number, link), queue): ((usize, &Link), Queue<Packet>)| {
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

/// The way back along each link.
fn lines_back(scenario: &Scenario) -> Vec<LineBack> {
    let line_back = |(number, link): (usize, &Link)| {
        let rate = link.rate_back.unwrap_or(link.rate);
        let wire = Wire::new(rate, link.delay);
        let steps = LinkSteps::of(scenario, number);
        LineBack::new(wire, link.rate_back.is_some(), &steps)
    };
    scenario.links.iter().enumerate().map(line_back).collect()
}

/// When a port's law wants to be called.
fn tick_of(port: &Port) -> Time {
    let due = port.bottleneck.discipline.poll_timeout();
    due.unwrap_or(Time::NEVER)
}

/// Returns an empty queue with a prompt delay line for each kind of pair.
fn one_line_each(scenario: &Scenario, network: &NetworkState) -> EventQueue<Packet> {
    let lines = LineCounts {
        late: 0,
        prompt: network.pair_classes(),
    };
    event_queue(scenario, network, lines)
}

/// Returns an empty queue of packets with these lines, or without lines if there are many kinds of
/// pair. A calendar has a fixed cost, and a tournament one that grows with the number of lines.
fn event_queue(
    scenario: &Scenario,
    network: &NetworkState,
    lines: LineCounts,
) -> EventQueue<Packet> {
    let rates = scenario.links.iter().map(|link| link.rate);
    let fastest = rates.max().unwrap_or(scenario.tested_link().rate);
    let packets_per_sec = fastest.packets_per_sec(scenario.packet()).max(1.0);
    let rtts = (scenario.traffic.iter()).flat_map(|traffic| traffic.rtts.iter().copied());
    let lines = match network.pair_classes() <= MOST_LINE_KINDS {
        true => lines,
        false => LineCounts::default(),
    };
    EventQueue::new(
        Span::from_nanos(whole_u64(1e9 / packets_per_sec)),
        rtts.max().unwrap_or_default().max(Span::from_millis(500)),
        lines,
        network.fetches(),
    )
}
