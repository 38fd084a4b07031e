//! A network with one bottleneck: most scenarios, and the way of a packet that has to be short. A
//! packet goes from its access link to the queue, over the link and through its receiver; the ACK
//! crosses a line back, where flows meet, to its sender.

use forebay_scenario::{LinkSetting, Scenario, Setting};

use super::agenda::Agenda;
use super::hosts::{Hosts, Returning};
use super::{event_queue, LineBack, Topology};
use crate::events::EventQueue;
use crate::network::Network;
use crate::packet::{Packet, HEADER_BYTES};
use crate::port::{Port, Sent};
use crate::prefetch::prefetch;
use crate::tcp::NEVER;

/// The bottleneck and the line back.
pub struct Dumbbell {
    port: Port,
    line_back: LineBack,
    /// ACKs that reach the line back.
    returning: EventQueue<Packet>,
    /// ACKs that have crossed it, where they overtake each other behind it.
    acks: EventQueue<Packet>,
    /// Time from the line back to any sender, where they do not.
    in_order_ns: Option<u64>,
    /// How long after an ACK's arrival at the line back nothing at a host can come of it.
    lookahead_ns: u64,
}

impl Topology for Dumbbell {
    const LINES: usize = 1;
    const LOOKS_AHEAD: bool = true;

    fn new(
        scenario: &Scenario,
        network: &Network,
        ports: Vec<Port>,
        lines_back: Vec<LineBack>,
    ) -> Dumbbell {
        let mut links = ports.into_iter().zip(lines_back);
        let (port, line_back) = links.next().expect("a scenario has a bottleneck");
        Dumbbell {
            port,
            in_order_ns: in_order_ns(scenario, network, &line_back),
            line_back,
            returning: event_queue(scenario, network, 1),
            acks: event_queue(scenario, network, 1),
            lookahead_ns: 0,
        }
    }

    fn ports(&self) -> &[Port] {
        std::slice::from_ref(&self.port)
    }

    fn ports_mut(&mut self) -> &mut [Port] {
        std::slice::from_mut(&mut self.port)
    }

    fn link_mut(&mut self, _link: usize) -> (&mut Port, &mut LineBack) {
        (&mut self.port, &mut self.line_back)
    }

    fn into_ports(self) -> Vec<Port> {
        vec![self.port]
    }

    /// What happens to a packet at the link reaches a host after the link's delay and that of an
    /// access link, and an ACK that enters the line back its sender likewise. So links and line
    /// may fall behind the clock by as much, and what happens there is done by many at a time,
    /// with no search for what comes next. Senders tell the links of nothing that has passed, and
    /// receivers' clocks, samples and changes have them brought up to the clock.
    fn set_lookahead(&mut self, hosts: &mut Hosts) {
        let access_ns = hosts.network.least_access_ns();
        hosts.lookahead_ns = self.port.delay_ns + access_ns;
        self.lookahead_ns = self.line_back.wire.delay_ns + access_ns;
        hosts.agenda.links = self.next_link_deadline(hosts);
        hosts.agenda.line_back = self.next_line_back_deadline();
    }

    #[inline]
    fn advance(&mut self, hosts: &mut Hosts, links_before: u64, arrivals_before: u64) {
        loop {
            let (free, arrival) = (self.port.due(), hosts.arrivals.next_time());
            if free <= arrival {
                if free >= links_before {
                    break;
                }
                if let Some(sent) = self.port.send_next(free) {
                    self.deliver(hosts, sent);
                }
            } else {
                if arrival >= arrivals_before {
                    break;
                }
                self.arrive(hosts);
            }
        }
        hosts.agenda.links = self.next_link_deadline(hosts);
    }

    fn cross_back(&mut self, hosts: &mut Hosts, before: u64) {
        if self.in_order_ns.is_some() {
            return;
        }
        let Dumbbell {
            line_back,
            returning,
            acks,
            ..
        } = self;
        let Network { routes, pairs, .. } = &mut hosts.network;
        returning.take_before(before, |now, ack, coming| {
            let at = line_back.pass(now, HEADER_BYTES);
            let route = routes[ack.flow as usize];
            let pair = &mut pairs[route.pair as usize];
            let at = pair.wire.pass(&mut pair.ack_down, at, HEADER_BYTES);
            acks.push_on(usize::from(pair.class), at, ack);
            if let Some(coming) = coming {
                prefetch(&pairs[routes[coming.flow as usize].pair as usize]);
            }
            before
        });
        hosts.agenda.line_back = self.next_line_back_deadline();
    }

    #[inline(always)]
    fn next_ack(&self) -> u64 {
        match self.in_order_ns {
            Some(access_ns) => {
                let (mut free, reaches) = (self.line_back.free, self.returning.next_time());
                let wire = &self.line_back.wire;
                wire.pass(&mut free, reaches, HEADER_BYTES) + access_ns
            }
            None => self.acks.next_time(),
        }
    }

    #[inline(always)]
    fn take_acks(&mut self, hosts: &mut Hosts, most: u32) -> u32 {
        let Dumbbell {
            line_back,
            returning,
            acks,
            in_order_ns,
            ..
        } = self;
        let mut taken = 0;
        let mut take = |hosts: &mut Hosts, now: u64, ack: Packet, coming: Option<&Packet>| {
            if let Some(coming) = coming {
                prefetch(hosts.network.pair_of(coming));
                hosts.network.prefetch_sender(coming.flow);
            }
            hosts.take_ack(now, ack);
            taken += 1;
            match taken < most {
                true => hosts.agenda.first,
                false => 0,
            }
        };
        match *in_order_ns {
            Some(access_ns) => {
                // An ACK is at its sender this long after it reaches the line and finds it free.
                let across_ns = line_back.wire.pass(&mut 0, 0, HEADER_BYTES) + access_ns;
                let reaching_before = |line_back: &LineBack, before: u64| {
                    let before = before.saturating_sub(across_ns);
                    match line_back.free < before {
                        true => before,
                        false => 0,
                    }
                };
                let before = reaching_before(line_back, hosts.agenda.first);
                returning.take_before(before, |reaches, ack, coming| {
                    let now = line_back.pass(reaches, HEADER_BYTES) + access_ns;
                    let before = take(hosts, now, ack, coming);
                    reaching_before(line_back, before)
                });
            }
            None => {
                acks.take_before(hosts.agenda.first, |now, ack, coming| {
                    take(hosts, now, ack, coming)
                });
            }
        }
        taken
    }

    #[inline(always)]
    fn enter_way_back(
        &mut self,
        _arrivals: &mut EventQueue<Packet>,
        agenda: &mut Agenda,
        returning: Returning,
    ) {
        let Returning { at, class, ack } = returning;
        self.returning.push_on(class, at, ack);
        if self.in_order_ns.is_none() {
            agenda.line_back_by(at + self.lookahead_ns);
        }
    }
}

impl Dumbbell {
    #[inline(always)]
    fn next_link_deadline(&self, hosts: &Hosts) -> u64 {
        let next = self.port.due().min(hosts.arrivals.next_time());
        next.saturating_add(hosts.lookahead_ns)
    }

    #[inline(always)]
    fn next_line_back_deadline(&self) -> u64 {
        if self.in_order_ns.is_some() {
            return NEVER;
        }
        let next = self.returning.next_time();
        next.saturating_add(self.lookahead_ns)
    }

    /// A packet reaches the queue.
    #[inline(always)]
    fn arrive(&mut self, hosts: &mut Hosts) {
        let Hosts {
            arrivals, network, ..
        } = hosts;
        let Some((now, packet)) = arrivals.peek() else {
            return;
        };
        let sends = self.port.arrive(now, *packet);
        arrivals.pop(|packet| {
            prefetch(network.pair_of(packet));
            prefetch(&network.receivers[packet.flow as usize]);
        });
        if sends {
            self.send_at_once(hosts, now);
        }
    }

    /// The link was free and takes the packet that has just come, if its queue lets one go.
    #[inline(never)]
    fn send_at_once(&mut self, hosts: &mut Hosts, now: u64) {
        if let Some(sent) = self.port.send_next(now) {
            self.deliver(hosts, sent);
        }
    }

    #[inline(always)]
    fn deliver(&mut self, hosts: &mut Hosts, sent: Sent) {
        hosts.deliver(sent, |arrivals, agenda, returning| {
            self.enter_way_back(arrivals, agenda, returning);
        });
    }
}

/// Time from the line back to any sender, if ACKs get there in the order in which they reach the
/// line: all access links are alike, none holds an ACK up since it is no slower than the line, and
/// the line stays as it is. Then crossing is arithmetic too, done when an ACK is taken, and not an
/// event.
fn in_order_ns(scenario: &Scenario, network: &Network, line_back: &LineBack) -> Option<u64> {
    let moves = |what: &Setting| {
        use LinkSetting::{Delay, Rate};
        matches!(what, Setting::Link { what, .. } if matches!(what, Rate(_) | Delay(_)))
    };
    let access = network.only_wire()?;
    let holds_up =
        access.serialisation_ns(HEADER_BYTES) > line_back.wire.serialisation_ns(HEADER_BYTES);
    let stays = !scenario.changes.iter().any(|change| moves(&change.what));
    (stays && !holds_up).then(|| access.pass(&mut 0, 0, HEADER_BYTES))
}
