//! The network that a scenario describes: hosts, access links, routes, and the state of flows.
//!
//! Flows share *stations*. A station is a port, which is a link with the queue before it, or the
//! line back along a link that has no link in the opposite direction. Access links at both ends
//! lead to the stations; they belong to one flow or to a group of flows.

use std::collections::HashMap;

use forebay_aqm::{Ecn, TrafficClass};
use forebay_scenario::{EcnChoice, Scenario, Traffic, TrafficKind};
use forebay_trace::Transfer;
use forebay_units::{Rng, Span, Time};

use crate::calls::Calls;
use crate::external::Loss;
use crate::ids::{FlowId, PairId, StationId};
use crate::line::Wire;
use crate::number::small;
use crate::packet::{traffic_number, Flags, PackedPacket, Packet};
use crate::pair::Pair;
use crate::tcp::{senders, AckPolicy, Config, Receiver, Senders};
use crate::traffic::{stream, Script};

/// Number of flows from which on their state is prefetched. The state of fewer flows stays in the
/// cache by itself.
const FETCH_FLOWS: usize = 4000;

/// The next place on a packet's path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hop {
    /// The port of the link with this number.
    Port(u16),
    /// The reverse direction of the link with this number, for ACKs and other packets that go back.
    Back(u16),
    /// The sink of the flow, over its access link.
    Sink,
    /// The source of the flow, over its access link.
    Source,
}

/// The TCP connections of one traffic.
pub struct TcpTraffic {
    /// The settings that all of them share.
    pub config: Config,
    /// The senders of all flows.
    pub senders: Box<dyn Senders>,
}

/// The state that all flows of one traffic share.
pub struct TrafficState {
    /// The TCP connections; `None` for sources without congestion control.
    pub tcp: Option<TcpTraffic>,
    /// What the applications of the flows do.
    pub script: Script,
    /// The template of the traffic's packets. Its flags and its ECN field are those of sources
    /// without congestion control; senders of TCP set theirs.
    pub packet: PackedPacket,
    /// Header bytes of each packet, which goodput does not count.
    pub header_bytes: u16,
    /// The first of `count` flows, which have consecutive numbers.
    pub first: FlowId,
    pub count: u32,
    /// The links that the data crosses.
    pub links: Vec<usize>,
    /// The random stream of the clock phases of transfers' connections.
    pub phases: Rng,
    /// Number of connections for transfers in addition to one per flow.
    pub extra_connections: u32,
    /// Data packets that the senders sent within the window of measurement.
    pub sent_packets: u64,
    /// Retransmissions among [`sent_packets`](TrafficState::sent_packets).
    pub resent_packets: u64,
    /// Transfers that were completed within the window of measurement.
    pub transfers: Vec<Transfer>,
    /// The state of voice calls, for voice traffic.
    pub calls: Option<Calls>,
    /// Random loss of the caller's packets, for external traffic.
    pub external: Option<Air>,
}

/// Random loss behind the last queue, as on a wireless link.
pub struct Air {
    loss: f64,
    rng: Rng,
}

impl Air {
    /// Draws the outcome of a packet with this ECN field that has passed its last queue. Returns the
    /// field if the packet gets through.
    pub fn fate(&mut self, ecn: Ecn) -> Result<Ecn, Loss> {
        match self.loss > 0.0 && self.rng.chance(self.loss) {
            true => Err(Loss::Random),
            false => Ok(ecn),
        }
    }
}

/// The pair of hosts, the sender and the traffic of a flow.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    /// The pair of hosts.
    pub pair: PairId,
    /// Index of the flow's sender in its traffic; 0 if the traffic has no senders.
    pub sender: u32,
    /// Number of the traffic.
    pub class: u32,
}

/// The connections of a flow.
#[derive(Clone, Debug)]
pub struct FlowState {
    /// The flow to which this connection belongs.
    ///
    /// An application may send transfers over several connections at a time. The flow then has
    /// additional connections, each with a number like a flow's, and is their owner.
    pub owner: FlowId,
    /// The first free connection of an owner, which starts a linked list.
    pub free: Option<FlowId>,
    /// The next free connection of the same owner.
    pub next_free: Option<FlowId>,
    /// The transfer under way on this connection.
    pub busy: Option<Begun>,
}

/// A transfer under way.
#[derive(Clone, Copy, Debug)]
pub struct Begun {
    /// The time at which it began.
    pub at: Time,
    /// Its size in packets.
    pub packets: u32,
}

/// The whole network except its stations.
pub struct NetworkState {
    /// The pairs of hosts.
    pub pairs: Vec<Pair>,
    /// The kinds of access link, each once.
    wires: Vec<Wire>,
    /// The next hop of a packet that leaves a station, by path and station. Station i is port i,
    /// and station `links` + i is the line back along link i.
    onward: Vec<Hop>,
    links: usize,
    /// The state of each traffic.
    pub classes: Vec<TrafficState>,
    /// The route of each flow and each additional connection.
    pub routes: Vec<Route>,
    /// The state of each flow and each additional connection.
    pub flows: Vec<FlowState>,
    /// The receiver of each flow and each additional connection.
    pub receivers: Vec<Receiver>,
    /// The random stream of connections' clock phases.
    pub phases: Rng,
}

impl TcpTraffic {
    /// Adds a closed connection and returns the index of its sender. `phase` is the phase of its
    /// clock in [0, 1).
    fn add(&mut self, phase: f64) -> u32 {
        self.senders.add(&self.config, phase)
    }
}

impl TrafficState {
    /// Returns the flows of this traffic, in order.
    pub fn flows(&self) -> impl Iterator<Item = FlowId> {
        let first = self.first;
        (0..self.count).map(move |number| first.nth(number))
    }
}

impl NetworkState {
    /// Builds the network of `scenario`. Random draws come from streams of `seed`.
    pub fn new(scenario: &Scenario, seed: u64) -> NetworkState {
        let mut network = NetworkState {
            pairs: Vec::new(),
            wires: Vec::new(),
            onward: Vec::new(),
            links: scenario.links.len(),
            classes: Vec::new(),
            routes: Vec::new(),
            flows: Vec::new(),
            receivers: Vec::new(),
            phases: Rng::new(seed, "phase"),
        };
        let mut groups: HashMap<&str, PairId> = HashMap::new();
        let mut paths: Vec<&[usize]> = Vec::new();
        let mut hosts: Vec<&str> = Vec::new();
        for (index, traffic) in scenario.traffic.iter().enumerate() {
            let shared = traffic
                .group
                .as_deref()
                .and_then(|group| groups.get(group).copied());
            let script = Script::new(seed, index, traffic, &scenario.changes);
            let count = script.flows();
            let pairs = traffic.pairs.unwrap_or(count);
            let path = paths.iter().position(|path| **path == traffic.path);
            let path = path.unwrap_or_else(|| {
                paths.push(&traffic.path);
                network.add_path(scenario, &traffic.path);
                paths.len() - 1
            });
            let first_pair =
                shared.unwrap_or_else(|| network.add_pairs(scenario, traffic, pairs, small(path)));
            if let Some(group) = traffic.group.as_deref() {
                groups.insert(group, first_pair);
            }
            network.add_flows(index, traffic, script, first_pair, pairs, seed);
            if let Some(name) = traffic.host.as_deref() {
                let place = hosts.iter().position(|host| *host == name);
                let place = place.unwrap_or_else(|| {
                    hosts.push(name);
                    hosts.len() - 1
                });
                let packet = &mut network.classes[index].packet;
                *packet = Packet {
                    host: host_number(place),
                    ..packet.unpack()
                }
                .pack();
            }
        }
        network
    }

    /// Numbers the prompt delay lines: `prompt_lines` for each kind of access link, behind the
    /// `late_lines` late ones. The first of a kind is for data.
    pub fn number_lines(&mut self, late_lines: usize, prompt_lines: usize) {
        for pair in &mut self.pairs {
            let line = late_lines + prompt_lines * usize::from(pair.class);
            // There are no lines at all if there are so many kinds.
            pair.prompt_line = small(line.min(usize::from(u16::MAX)));
        }
    }

    /// Returns the pair of hosts of a flow.
    #[inline]
    pub fn pair_of(&self, flow: FlowId) -> &Pair {
        &self.pairs[self.routes[flow.index()].pair.index()]
    }

    /// Returns true if there are so many flows that their state is prefetched ahead of an event.
    #[inline]
    pub fn fetches(&self) -> bool {
        self.flows.len() >= FETCH_FLOWS
    }

    /// Returns the flows whose packets the caller sends.
    pub fn external_flows(&self) -> Vec<FlowId> {
        let classes = self.classes.iter();
        let external = classes.filter(|class| class.external.is_some());
        external.flat_map(TrafficState::flows).collect()
    }

    /// Returns the number of kinds of access link.
    pub fn pair_classes(&self) -> usize {
        self.wires.len()
    }

    /// Returns the kind of all access links, if they are alike.
    pub fn only_wire(&self) -> Option<&Wire> {
        match self.wires.as_slice() {
            [wire] => Some(wire),
            _ => None,
        }
    }

    /// Returns the shortest propagation delay of an access link.
    pub fn least_access_delay(&self) -> Span {
        let delays = self.wires.iter().map(|wire| wire.delay);
        delays.min().unwrap_or_default()
    }

    /// Returns the next hop of a packet on this path that leaves the port of link `link`.
    #[inline]
    pub fn after_port(&self, path: u16, link: usize) -> Hop {
        self.onward[2 * self.links * usize::from(path) + link]
    }

    /// Returns the next hop of a packet on this path that leaves the line back along link `link`.
    #[inline]
    pub fn after_back(&self, path: u16, link: usize) -> Hop {
        self.onward[self.links * (2 * usize::from(path) + 1) + link]
    }

    /// Returns the station with this number.
    pub fn station(&self, number: StationId) -> Hop {
        match number.index().checked_sub(self.links) {
            None => Hop::Port(small(number.index())),
            Some(link) => Hop::Back(small(link)),
        }
    }

    /// Returns the number of a station. The limit on the links of a scenario keeps it below 256.
    pub fn number(&self, station: Hop) -> StationId {
        match station {
            Hop::Port(link) => StationId::at(usize::from(link)),
            Hop::Back(link) => StationId::at(self.links + usize::from(link)),
            Hop::Sink | Hop::Source => unreachable!("not a station"),
        }
    }

    /// Adds the next hops of a path.
    ///
    /// A path visits no node twice, so that each station has one next hop on it: data and ACKs of
    /// one flow never cross the same link.
    fn add_path(&mut self, scenario: &Scenario, path: &[usize]) {
        let first = self.onward.len();
        self.onward.resize(first + 2 * self.links, Hop::Sink);
        for pair in path.windows(2) {
            self.onward[first + pair[0]] = Hop::Port(small(pair[1]));
        }
        let mut onward = Hop::Source;
        for &link in path {
            let (station, here) = back(scenario, link, self.links);
            self.onward[first + station] = onward;
            onward = here;
        }
    }

    /// Adds `pairs` pairs of hosts for a traffic on this path; returns the first.
    fn add_pairs(
        &mut self,
        scenario: &Scenario,
        traffic: &Traffic,
        pairs: u32,
        path: u16,
    ) -> PairId {
        let delays: Vec<Span> = scenario.links.iter().map(|link| link.delay).collect();
        let both_ways =
            |&link: &usize| delays[link] + delays[scenario.opposite(link).unwrap_or(link)];
        let path_delay: Span = traffic.path.iter().map(both_ways).sum();
        let (first_link, last_link) = match traffic.path.as_slice() {
            [first, .., last] => (*first, *last),
            one => (one[0], one[0]),
        };
        let data_enters = self.number(Hop::Port(small(first_link)));
        let ack_enters = self.number(back(scenario, last_link, self.links).1);
        let first = PairId::at(self.pairs.len());
        for i in 0..pairs as usize {
            let rtt = traffic.rtts[i % traffic.rtts.len()];
            // Each of the four access links has the same delay; the scenario checks that the
            // path's two ways fit into the round trip.
            let delay = (rtt - path_delay) / 4;
            let wire = Wire::new(traffic.access, delay);
            let class = self.wires.iter().position(|known| *known == wire);
            let class = class.unwrap_or_else(|| {
                self.wires.push(wire);
                self.wires.len() - 1
            });
            self.pairs.push(Pair {
                wire,
                data_up: Time::ZERO,
                data_down: Time::ZERO,
                ack_up: Time::ZERO,
                ack_down: Time::ZERO,
                // Only the first few kinds have delay lines, so that kinds past u16::MAX may share
                // a number.
                class: small(class.min(usize::from(u16::MAX))),
                prompt_line: u16::MAX,
                path,
                data_enters,
                ack_enters,
            });
        }
        first
    }

    /// Adds the flows of a traffic and its state. Flow i runs between pair i modulo `pairs`.
    fn add_flows(
        &mut self,
        index: usize,
        traffic: &Traffic,
        script: Script,
        first_pair: PairId,
        pairs: u32,
        seed: u64,
    ) {
        let stream = |what: &str| stream(seed, index, what);
        let count = script.flows();
        let ns2_reset = matches!(&traffic.kind, TrafficKind::Mice(mice, _) if mice.ns2_reset);
        let mut tcp = traffic.kind.tcp().map(|tcp| TcpTraffic {
            config: config(tcp, traffic, ns2_reset),
            senders: senders(tcp.sender().name),
        });
        let first = FlowId::at(self.flows.len());
        for i in 0..count {
            let phase = self.phases.uniform();
            let route = Route {
                pair: first_pair.nth(i % pairs),
                sender: tcp.as_mut().map_or(0, |tcp| tcp.add(phase)),
                class: crate::number::count(index),
            };
            self.add_connection(route, None);
        }
        let ecn = match (&tcp, traffic.kind.ecn()) {
            (None, EcnChoice::Classic) => Ecn::Ect0,
            _ => Ecn::NotEct,
        };
        self.classes.push(TrafficState {
            script,
            packet: Packet {
                flow: first,
                seq: 0,
                host: 0,
                bytes: small(traffic.packet.0),
                connection: 0,
                traffic_class: TrafficClass::new(traffic.dscp, ecn),
                flags: match tcp {
                    Some(_) => Flags::default(),
                    None => Flags::of_udp(),
                },
                traffic: traffic_number(crate::number::count(index)),
            }
            .pack(),
            tcp,
            header_bytes: small(traffic.header.0),
            first,
            count,
            links: traffic.path.clone(),
            phases: stream("phase"),
            extra_connections: 0,
            sent_packets: 0,
            resent_packets: 0,
            transfers: Vec::new(),
            calls: matches!(traffic.kind, TrafficKind::Voice(_)).then(|| Calls::new(count)),
            external: match &traffic.kind {
                TrafficKind::External(external) => Some(Air {
                    loss: external.loss.0,
                    rng: stream("loss"),
                }),
                _ => None,
            },
        });
    }

    /// Adds the state of one connection and returns its number. A connection without an owner is a
    /// flow.
    fn add_connection(&mut self, route: Route, owner: Option<FlowId>) -> FlowId {
        let number = FlowId::at(self.flows.len());
        self.routes.push(route);
        self.flows.push(FlowState {
            owner: owner.unwrap_or(number),
            free: owner.is_none().then_some(number),
            next_free: None,
            busy: None,
        });
        self.receivers.push(Receiver::new());
        number
    }

    /// Returns the traffic of a flow, and the index of its sender there.
    #[inline]
    pub fn class_of(&mut self, flow: FlowId) -> (&mut TrafficState, u32) {
        let route = self.routes[flow.index()];
        (&mut self.classes[route.class as usize], route.sender)
    }

    /// Returns the script of a flow's traffic, and the flow's number there.
    pub fn script_of(&mut self, flow: FlowId) -> (&mut Script, u32) {
        let class = self.routes[flow.index()].class;
        let class = &mut self.classes[class as usize];
        (&mut class.script, flow.offset_from(class.first))
    }

    /// Prefetches the state of a flow's sender.
    #[inline]
    pub fn prefetch_sender(&self, flow: FlowId) {
        let route = self.routes[flow.index()];
        if let Some(tcp) = &self.classes[route.class as usize].tcp {
            tcp.senders.prefetch(route.sender);
        }
    }

    /// Returns a free connection for a transfer of `flow`, or adds one; `None` if the traffic has
    /// its largest number of connections already.
    pub fn take_connection(&mut self, flow: FlowId, transfer: Begun) -> Option<FlowId> {
        if let Some(free) = self.flows[flow.index()].free {
            self.flows[flow.index()].free = self.flows[free.index()].next_free;
            self.flows[free.index()].busy = Some(transfer);
            return Some(free);
        }
        let route = self.routes[flow.index()];
        let class = &mut self.classes[route.class as usize];
        if class.count + class.extra_connections >= class.script.most_transfers() {
            return None;
        }
        class.extra_connections += 1;
        let sender = class.tcp.as_mut().map_or(0, |tcp| tcp.add(0.0));
        let number = self.add_connection(Route { sender, ..route }, Some(flow));
        self.flows[number.index()].busy = Some(transfer);
        Some(number)
    }

    /// Frees a connection whose transfer is complete. Returns its owner and the transfer; `None` if
    /// no transfer was under way.
    pub fn release_connection(&mut self, number: FlowId) -> Option<(FlowId, Begun)> {
        let connection = &mut self.flows[number.index()];
        let transfer = connection.busy.take()?;
        let owner = connection.owner;
        let free = self.flows[owner.index()].free.replace(number);
        self.flows[number.index()].next_free = free;
        Some((owner, transfer))
    }
}

/// Returns the station that leads back along a link, with its index in `NetworkState::onward`. The
/// station is the port of the opposite link, or the line back if there is none.
fn back(scenario: &Scenario, link: usize, links: usize) -> (usize, Hop) {
    match scenario.opposite(link) {
        Some(other) => (other, Hop::Port(small(other))),
        None => (links + link, Hop::Back(small(link))),
    }
}

/// Returns the number of the named host at this index of the list of names.
fn host_number(place: usize) -> u8 {
    u8::try_from(place + 1).expect("a scenario has few enough named hosts")
}

/// Returns the settings of a traffic's TCP connections.
fn config(tcp: &forebay_scenario::Tcp, traffic: &Traffic, ns2_reset: bool) -> Config {
    let sender = tcp.sender();
    let counts_marks = tcp.ecn == EcnChoice::L4s || sender.counts_marks;
    Config {
        payload_bytes: small(traffic.payload().0),
        window_pkts: tcp.window.0,
        initial_window_pkts: tcp.initial_window.0,
        min_rto: tcp.min_rto,
        ect: match tcp.ecn {
            EcnChoice::Off => Ecn::NotEct,
            EcnChoice::Classic => Ecn::Ect0,
            EcnChoice::L4s => Ecn::Ect1,
        },
        counts_marks,
        pacing: tcp.pacing || sender.paces,
        gso: tcp.gso,
        limited_transmit: tcp.limited_transmit,
        acks: AckPolicy {
            delayed: tcp.delayed_ack,
            delay: tcp.ack_delay,
            quick: u8::try_from(tcp.quick_acks).expect("its range ends at 255"),
            counts_marks,
            echoes_changes: sender.echoes_changes,
        },
        sack: sender.sack,
        ns2_reset,
    }
}
