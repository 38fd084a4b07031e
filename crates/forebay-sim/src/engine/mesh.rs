//! A network of several links. All events at stations and senders are processed in order of time,
//! so that no link lags behind the clock: the order in which packets are sent decides between
//! arrivals of one time.

use forebay_scenario::Scenario;
use forebay_units::Time;

use super::agenda::Agenda;
use super::hosts::{take_acks, Hosts, Returning};
use super::{one_line_each, Topology};
use crate::events::EventQueue;
use crate::ids::StationId;
use crate::network::{Hop, NetworkState};
use crate::packet::PackedPacket;
use crate::port::{PacketOnLink, Port};
use crate::prefetch::prefetch;
use crate::steps::LineBack;

/// The index of the prompt line for ACKs within a kind of access link. Line 0 is for data.
const ACK_LINE: usize = 1;

/// Several links, and the lines back along those without a link in the opposite direction.
pub struct Mesh {
    /// The ports, by link.
    ports: Vec<Port>,
    /// The link that becomes free first.
    next_link: usize,
    /// The time at which `next_link` becomes free.
    next_free: Time,
    /// The lines back, by link, with the rate and delay of the link unless the scenario sets a
    /// rate; used where there is no opposite link.
    lines_back: Vec<LineBack>,
    /// ACKs on their sender's access link.
    acks: EventQueue<PackedPacket>,
}

impl Topology for Mesh {
    const PROMPT_LINES: usize = 2;
    /// There is one line for data and one for ACKs, because most links of a chain have the same
    /// delay.
    const ONWARD_LINES: usize = 2;
    const LOOKS_AHEAD: bool = false;

    fn new(
        scenario: &Scenario,
        network: &NetworkState,
        ports: Vec<Port>,
        lines_back: Vec<LineBack>,
    ) -> Mesh {
        let mut mesh = Mesh {
            ports,
            next_link: 0,
            next_free: Time::NEVER,
            lines_back,
            acks: one_line_each(scenario, network),
        };
        mesh.find_next_link();
        mesh
    }

    fn ports(&self) -> &[Port] {
        &self.ports
    }

    fn ports_mut(&mut self) -> &mut [Port] {
        &mut self.ports
    }

    fn link_mut(&mut self, link: usize) -> (&mut Port, &mut LineBack) {
        (&mut self.ports[link], &mut self.lines_back[link])
    }

    fn into_ports(self) -> Vec<Port> {
        self.ports
    }

    fn set_lookahead(&mut self, hosts: &mut Hosts) {
        hosts.agenda.links = self.next_deadline(hosts);
    }

    /// Processes also later events at stations, as long as nothing else is due before them.
    fn advance(&mut self, hosts: &mut Hosts, links_before: Time, arrivals_before: Time) {
        loop {
            let (free, arrival) = (self.next_free, hosts.arrivals.next_time());
            let others = hosts.agenda.first_besides_the_links();
            let is_first = free.min(arrival) < others.min(self.acks.next_time());
            if free <= arrival {
                if free >= links_before && !is_first {
                    break;
                }
                let link = self.next_link;
                if let Some(sent) = self.ports[link].send_next_logged(free) {
                    self.leave_port(hosts, link, sent);
                }
                self.find_next_link();
            } else {
                if arrival >= arrivals_before && !is_first {
                    break;
                }
                self.arrive(hosts);
            }
        }
        hosts.agenda.links = self.next_deadline(hosts);
    }

    /// Does nothing: ACKs arrive at stations like data, in [`advance`](Topology::advance).
    fn cross_back(&mut self, _hosts: &mut Hosts, _before: Time) {}

    #[inline]
    fn next_ack(&self) -> Time {
        self.acks.next_time()
    }

    fn take_acks(&mut self, hosts: &mut Hosts, most: u32) -> u32 {
        take_acks(&mut self.acks, hosts, most, Mesh::LOOKS_AHEAD)
    }

    fn enter_way_back(&mut self, hosts: &mut Hosts, returning: Returning) {
        let late_lines = hosts.late_lines;
        enter_way_back(
            late_lines,
            &mut hosts.arrivals,
            &mut hosts.agenda,
            returning,
        );
    }
}

/// Schedules the arrival of an ACK at the first station of its way back. Its delay line is behind
/// the `late_lines` late lines.
fn enter_way_back(
    late_lines: usize,
    arrivals: &mut EventQueue<PackedPacket, StationId>,
    agenda: &mut Agenda,
    returning: Returning,
) {
    let Returning {
        at,
        class,
        ack,
        enters,
    } = returning;
    let line = late_lines + Mesh::PROMPT_LINES * class + ACK_LINE;
    arrivals.push_on(line, at, ack, enters);
    agenda.links_by(at);
}

impl Mesh {
    /// Returns the time of the next event at a station.
    fn next_deadline(&self, hosts: &Hosts) -> Time {
        self.next_free.min(hosts.arrivals.next_time())
    }

    /// Processes the next arrival of a packet at a station.
    fn arrive(&mut self, hosts: &mut Hosts) {
        let Hosts {
            arrivals, network, ..
        } = hosts;
        let Some((now, &packed, station)) = arrivals.peek() else {
            return;
        };
        arrivals.pop(|packet| {
            prefetch(network.pair_of(packet.flow()));
            prefetch(&network.receivers[packet.flow().index()]);
        });
        match network.station(station) {
            Hop::Port(link) => {
                let link = usize::from(link);
                if self.ports[link].arrive_logged(now, packed) {
                    self.send_at_once(hosts, now, link);
                } else if self.ports[link].bottleneck.transmitter.is_free() {
                    self.find_next_link();
                }
            }
            Hop::Back(link) => self.cross_line_back(hosts, now, usize::from(link), packed),
            Hop::Sink | Hop::Source => unreachable!("not a station"),
        }
    }

    /// Starts the transmission on a link that was free when a packet arrived, if its queue releases
    /// one.
    fn send_at_once(&mut self, hosts: &mut Hosts, now: Time, link: usize) {
        let sent = self.ports[link].send_next_logged(now);
        self.find_next_link();
        if let Some(sent) = sent {
            self.leave_port(hosts, link, sent);
        }
    }

    /// Finds the link that becomes free first.
    fn find_next_link(&mut self) {
        (self.next_free, self.next_link) = (Time::NEVER, 0);
        for (link, port) in self.ports.iter().enumerate() {
            // Of two links that become free at the same time, the one with the lower number is
            // first.
            if port.due() < self.next_free {
                (self.next_free, self.next_link) = (port.due(), link);
            }
        }
    }

    /// Moves a packet that left a port on to its sink, its source or the next station.
    fn leave_port(&mut self, hosts: &mut Hosts, link: usize, sent: PacketOnLink) {
        let path = hosts.network.pair_of(sent.packet.flow()).path;
        match hosts.network.after_port(path, link) {
            Hop::Sink => {
                let late_lines = hosts.late_lines;
                let (mut far_end, arrivals) = hosts.split();
                let ack = far_end.deliver(sent, |agenda, waited| {
                    enter_way_back(late_lines, arrivals, agenda, waited);
                });
                if let Some(ack) = ack {
                    enter_way_back(late_lines, arrivals, far_end.agenda, ack);
                }
            }
            hop => self.forward(hosts, sent.arrives_at, hop, sent.packet),
        }
    }

    /// Moves an ACK across a line back and on to its next hop.
    fn cross_line_back(&mut self, hosts: &mut Hosts, now: Time, link: usize, ack: PackedPacket) {
        let at = self.lines_back[link].pass(now, ack.unpack().bytes);
        let path = hosts.network.pair_of(ack.flow()).path;
        let hop = hosts.network.after_back(path, link);
        self.forward(hosts, at, hop, ack);
    }

    /// Moves a packet that reaches the next station, or the access link of its source, at `at`.
    fn forward(&mut self, hosts: &mut Hosts, at: Time, hop: Hop, packet: PackedPacket) {
        let network = &mut hosts.network;
        match hop {
            Hop::Port(_) | Hop::Back(_) => {
                let station = network.number(hop);
                // These lines are the last of the late ones. Without delay lines the number wraps
                // past all lines, and the packet goes to the calendar.
                let back = usize::from(matches!(hop, Hop::Back(_)));
                let line = hosts.late_lines.wrapping_sub(Mesh::ONWARD_LINES) + back;
                hosts.arrivals.push_on(line, at, packet, station);
            }
            Hop::Source => {
                let route = network.routes[packet.flow().index()];
                let pair = &mut network.pairs[route.pair.index()];
                let at = pair
                    .wire
                    .pass(&mut pair.ack_down, at, packet.unpack().bytes);
                if let Some(air) = &mut network.classes[route.class as usize].external {
                    let packet = packet.unpack();
                    let fate = air.fate(packet.traffic_class.ecn());
                    hosts.external.push(at, packet, fate);
                    return;
                }
                self.acks.push_on(usize::from(pair.class), at, packet, ());
            }
            Hop::Sink => unreachable!("data reaches its sink from a port"),
        }
    }
}
