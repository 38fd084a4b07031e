//! The network that a scenario describes: a dumbbell. Access links at both ends, private to a
//! flow or shared by a group, around the bottleneck; the way back carries ACKs alone.

use std::collections::HashMap;

use forebay_core::{Rng, Span};
use forebay_scenario::{Change, Recovery, Scenario, Setting, Tcp, Traffic, TrafficKind};

use crate::cc;
use crate::line::Wire;
use crate::receiver::Receiver;
use crate::sender::{Config, Sender};
use crate::traffic::{application, draw, Act, Application};

/// A source and a sink with their access links. Each link is one wire and a time from which
/// it is free.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub struct Pair {
    pub wire: Wire,
    /// Pairs with like wires have the same number.
    pub class: usize,
    /// Source to first router.
    pub data_up: u64,
    /// Second router to sink.
    pub data_down: u64,
    /// Sink to second router.
    pub ack_up: u64,
    /// First router to source.
    pub ack_down: u64,
}

impl Pair {
    fn new(wire: Wire, class: usize) -> Pair {
        Pair {
            wire,
            class,
            data_up: 0,
            data_down: 0,
            ack_up: 0,
            ack_down: 0,
        }
    }
}

/// What all flows of one traffic share.
pub struct Class {
    pub tcp: Option<Config>,
    pub application: Box<dyn Application>,
    pub packet_bytes: u16,
    /// ECT on packets of a source without congestion control.
    pub ect: bool,
    /// Flows of this class are `first..first + count`.
    pub first: u32,
    pub count: u32,
}

/// Where a flow runs: all that a passing packet needs to know of it.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    pub class: u32,
    pub pair: u32,
}

/// What a flow's application does next, and when it stops.
#[derive(Clone, Debug)]
pub struct Flow {
    pub next_act: Option<Act>,
    pub stop: Option<u64>,
}

/// Everything but the bottleneck's queue.
pub struct Network {
    pub pairs: Vec<Pair>,
    /// Each kind of access link once.
    wires: Vec<Wire>,
    pub classes: Vec<Class>,
    pub routes: Vec<Route>,
    pub flows: Vec<Flow>,
    pub senders: Vec<Sender>,
    pub receivers: Vec<Receiver>,
    /// Draws a connection's clock phase.
    pub phases: Rng,
}

impl Network {
    /// Lays out the network of `scenario`; draws come from streams of `seed`.
    pub fn new(scenario: &Scenario, seed: u64) -> Network {
        let mut network = Network {
            pairs: Vec::new(),
            wires: Vec::new(),
            classes: Vec::new(),
            routes: Vec::new(),
            flows: Vec::new(),
            senders: Vec::new(),
            receivers: Vec::new(),
            phases: Rng::new(seed, "phase"),
        };
        let mut groups: HashMap<&str, u32> = HashMap::new();
        for (index, traffic) in scenario.traffic.iter().enumerate() {
            let shared = traffic
                .group
                .as_deref()
                .and_then(|group| groups.get(group).copied());
            let count = most_flows(index, traffic, &scenario.changes);
            let pairs = traffic.pairs.unwrap_or(count);
            let first_pair = shared
                .unwrap_or_else(|| network.add_pairs(traffic, pairs, scenario.bottleneck.delay));
            if let Some(group) = traffic.group.as_deref() {
                groups.insert(group, first_pair);
            }
            network.add_flows(index, traffic, count, first_pair, pairs, seed);
        }
        network
    }

    /// How many delay lines to keep at `each` per kind of pair: none if that is over `most`.
    pub fn delay_lines(&self, each: usize, most: usize) -> usize {
        match each * self.wires.len() {
            lines if lines <= most => lines,
            _ => 0,
        }
    }

    fn add_pairs(&mut self, traffic: &Traffic, pairs: u32, bottleneck: Span) -> u32 {
        let first = self.pairs.len() as u32;
        for i in 0..pairs as usize {
            let rtt = traffic.rtts[i % traffic.rtts.len()];
            // Each of the four access links has the same delay; the scenario checks that the
            // bottleneck's two ways fit into the round trip.
            let delay_ns = (rtt.as_nanos() / 2).saturating_sub(bottleneck.as_nanos()) / 2;
            let wire = Wire::new(traffic.access.as_bps(), delay_ns);
            let class = self.wires.iter().position(|known| *known == wire);
            let class = class.unwrap_or_else(|| {
                self.wires.push(wire);
                self.wires.len() - 1
            });
            self.pairs.push(Pair::new(wire, class));
        }
        first
    }

    fn add_flows(
        &mut self,
        index: usize,
        traffic: &Traffic,
        count: u32,
        first_pair: u32,
        pairs: u32,
        seed: u64,
    ) {
        let stream = |what: &str| Rng::new(seed, &format!("traffic {index} {what}"));
        let (mut starts, mut stops) = (stream("start"), stream("stop"));
        let mut application = application(traffic, stream("application"));
        let tcp = match &traffic.kind {
            TrafficKind::Ftp(tcp) => Some(config(tcp, traffic.packet.0 as u16, false)),
            TrafficKind::Mice { tcp, ns2_reset, .. } => {
                Some(config(tcp, traffic.packet.0 as u16, *ns2_reset))
            }
            TrafficKind::Cbr { .. } => None,
        };
        let first = self.flows.len() as u32;
        for i in 0..count {
            let start = draw(traffic.start, &mut starts);
            let stop = traffic.stop.map(|stop| draw(stop, &mut stops));
            // Flows beyond the declared number wait for a change to start them.
            let declared = i < traffic.flows;
            self.routes.push(Route {
                class: index as u32,
                pair: first_pair + i % pairs,
            });
            self.flows.push(Flow {
                next_act: declared.then(|| application.first(start, stop)).flatten(),
                stop,
            });
            let phase = self.phases.uniform();
            self.senders.push(match &tcp {
                Some(config) => Sender::new(config, phase),
                None => Sender::counter(phase),
            });
            self.receivers.push(Receiver::new());
        }
        self.classes.push(Class {
            tcp,
            application,
            packet_bytes: traffic.packet.0 as u16,
            ect: matches!(traffic.kind, TrafficKind::Cbr { ecn: true, .. }),
            first,
            count,
        });
    }
}

/// How many flows of a traffic are ever active.
fn most_flows(index: usize, traffic: &Traffic, changes: &[Change]) -> u32 {
    changes
        .iter()
        .filter_map(|change| match change.what {
            Setting::Flows { traffic, flows } if traffic == index => Some(flows),
            _ => None,
        })
        .fold(traffic.flows, u32::max)
}

fn config(tcp: &Tcp, packet_bytes: u16, ns2_reset: bool) -> Config {
    Config {
        control: cc::control(tcp.recovery),
        packet_bytes,
        window_pkts: tcp.window_pkts,
        initial_window_pkts: tcp.initial_window_pkts,
        min_rto_ns: tcp.min_rto.as_nanos(),
        ecn: tcp.ecn,
        limited_transmit: tcp.limited_transmit,
        delayed_ack: tcp.delayed_ack,
        sack: tcp.recovery == Recovery::Sack,
        ns2_reset,
    }
}
