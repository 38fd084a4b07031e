//! A network with one bottleneck. Most scenarios have one, so that its code path is short: a packet
//! goes from its access link to the queue, over the link and through its receiver, and the ACK
//! crosses the shared line back to its sender.

use forebay_scenario::{LinkSetting, Scenario, Setting};
use forebay_units::{Span, Time};

use super::agenda::Agenda;
use super::hosts::{take_acks, FarEnd, Hosts, Returning};
use super::{one_line_each, Topology};
use crate::events::EventQueue;
use crate::network::NetworkState;
use crate::packet::{PackedPacket, HEADER_BYTES};
use crate::port::{PacketOnLink, Port};

use crate::prefetch::prefetch;
use crate::steps::LineBack;

/// The bottleneck, its line back and the ACKs on the way.
pub struct Dumbbell {
    port: Port,
    back: WayBack,
    line_back: LineBack,
    /// ACKs that have crossed the line back, if they may overtake each other on their access links.
    acks: EventQueue<PackedPacket>,
}

/// ACKs on their way from a receiver's access link to the line back.
struct WayBack {
    /// The ACKs, by their arrival at the line back.
    returning: EventQueue<PackedPacket>,
    /// The time from the line back to every sender, if no ACK overtakes another one behind the
    /// line.
    in_order: Option<Span>,
    /// Lookahead: an ACK that arrives at the line back cannot affect any host sooner than this.
    lookahead: Span,
}

impl WayBack {
    /// Schedules the arrival of an ACK at the line back.
    #[inline(always)]
    fn enter(&mut self, agenda: &mut Agenda, ack: Returning) {
        let Returning { at, class, ack, .. } = ack;
        self.returning.push_on(class, at, ack, ());
        if self.in_order.is_none() {
            agenda.line_back_by(at + self.lookahead);
        }
    }

    /// Returns the time at which the line back must catch up with the clock.
    #[inline(always)]
    fn next_deadline(&self) -> Time {
        if self.in_order.is_some() {
            return Time::NEVER;
        }
        let next = self.returning.next_time();
        next + self.lookahead
    }
}

impl Topology for Dumbbell {
    const PROMPT_LINES: usize = 1;
    const ONWARD_LINES: usize = 0;
    const LOOKS_AHEAD: bool = true;

    fn new(
        scenario: &Scenario,
        network: &NetworkState,
        ports: Vec<Port>,
        lines_back: Vec<LineBack>,
    ) -> Dumbbell {
        let mut links = ports.into_iter().zip(lines_back);
        let (port, line_back) = links.next().expect("a scenario has a bottleneck");
        Dumbbell {
            port,
            back: WayBack {
                returning: one_line_each(scenario, network),
                in_order: in_order(scenario, network, &line_back),
                lookahead: Span::ZERO,
            },
            line_back,
            acks: one_line_each(scenario, network),
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

    /// Sets the lookahead of the link and of the line back.
    ///
    /// A packet at the link affects a host only after the delays of the link and of an access link,
    /// and an ACK that enters the line back affects its sender only after similar delays. The link
    /// and the line may therefore lag behind the clock by as much, and many of their events are
    /// processed together, without a search for the next event in between. Senders never schedule
    /// an arrival in the links' past. Before alarms of receivers, samples and changes, the links
    /// catch up with the clock.
    fn set_lookahead(&mut self, hosts: &mut Hosts) {
        let access = hosts.network.least_access_delay();
        hosts.lookahead = self.port.delay + access;
        self.back.lookahead = self.line_back.wire.delay + access;
        hosts.agenda.links = self.next_link_deadline(hosts);
        hosts.agenda.line_back = self.back.next_deadline();
    }

    /// Processes arrivals at the bottleneck and the transmissions between them.
    ///
    /// No packet that leaves the queue makes a host send within the lookahead, so that arrivals are
    /// taken in runs.
    #[inline]
    fn advance(&mut self, hosts: &mut Hosts, links_before: Time, arrivals_before: Time) {
        debug_assert!(arrivals_before <= links_before);
        let Dumbbell { port, back, .. } = self;
        let (mut far_end, arrivals) = hosts.split();
        let arrive = |far_end: &mut FarEnd, now, packet: &PackedPacket| {
            // A departure comes before an arrival of the same time.
            while port.due() <= now {
                send_next(port, back, far_end);
            }
            if port.arrive(now, *packet) {
                send_at_once(port, back, far_end, now);
            }
            arrivals_before
        };
        let end = |_: &mut FarEnd, before| before;
        arrivals.take_before(arrivals_before, &mut far_end, arrive, end, FarEnd::prefetch);
        while port.due() < links_before {
            send_next(port, back, &mut far_end);
        }
        hosts.agenda.links = self.next_link_deadline(hosts);
    }

    fn cross_back(&mut self, hosts: &mut Hosts, before: Time) {
        if self.back.in_order.is_some() {
            return;
        }
        match self.line_back.is_steady() {
            true => self.cross_back_by(hosts, before, LineBack::pass_ack_steadily),
            false => self.cross_back_by(hosts, before, |line, now| line.pass(now, HEADER_BYTES)),
        }
    }

    #[inline(always)]
    fn next_ack(&self) -> Time {
        match self.back.in_order {
            Some(access) => {
                let (mut free, reaches) = (self.line_back.free, self.back.returning.next_time());
                let wire = &self.line_back.wire;
                wire.pass_ack(&mut free, reaches) + access
            }
            None => self.acks.next_time(),
        }
    }

    #[inline(always)]
    fn take_acks(&mut self, hosts: &mut Hosts, most: u32) -> u32 {
        match self.back.in_order {
            Some(access) => self.take_acks_in_order(access, hosts, most),
            None => take_acks(&mut self.acks, hosts, most, Dumbbell::LOOKS_AHEAD),
        }
    }

    fn enter_way_back(&mut self, hosts: &mut Hosts, ack: Returning) {
        self.back.enter(&mut hosts.agenda, ack);
    }
}

impl Dumbbell {
    /// Returns the time at which the link must catch up with the clock.
    #[inline(always)]
    fn next_link_deadline(&self, hosts: &Hosts) -> Time {
        let next = self.port.due().min(hosts.arrivals.next_time());
        next + hosts.lookahead
    }

    /// Moves ACKs that reached the line back before `before` across it. `pass` returns the time at
    /// which an ACK comes out.
    #[inline(always)]
    fn cross_back_by(
        &mut self,
        hosts: &mut Hosts,
        before: Time,
        pass: impl Fn(&mut LineBack, Time) -> Time,
    ) {
        let Dumbbell {
            line_back,
            back: WayBack { returning, .. },
            acks,
            ..
        } = self;
        let cross = |network: &mut NetworkState, now, ack: &PackedPacket| {
            let at = pass(line_back, now);
            let route = network.routes[ack.flow().index()];
            let pair = &mut network.pairs[route.pair.index()];
            let at = pair.wire.pass_ack(&mut pair.ack_down, at);
            acks.push_on(usize::from(pair.class), at, *ack, ());
            before
        };
        let end = |_: &mut NetworkState, before| before;
        returning.take_before(before, &mut hosts.network, cross, end, |network, ack| {
            prefetch(network.pair_of(ack.flow()));
        });
        hosts.agenda.line_back = self.back.next_deadline();
    }

    /// Delivers ACKs to their senders and computes their crossing of the line back on the way: each
    /// reaches its sender `access` after it has left the line.
    #[inline(always)]
    fn take_acks_in_order(&mut self, access: Span, hosts: &mut Hosts, most: u32) -> u32 {
        /// The state that delivered ACKs change.
        struct Delivery<'a> {
            hosts: &'a mut Hosts,
            line_back: &'a mut LineBack,
            /// Number of ACKs that may still be delivered.
            left: u32,
        }
        let Dumbbell {
            line_back, back, ..
        } = self;
        // The time from an ACK's arrival at the line, if the line is free, to its sender.
        let across = line_back.wire.ack + line_back.wire.delay + access;
        let mut delivery = Delivery {
            hosts,
            line_back,
            left: most,
        };
        // ACKs that arrive at the line before this time reach their senders before the first time
        // of the agenda.
        let before = |delivery: &Delivery| {
            let before = delivery.hosts.agenda.first - across;
            match delivery.line_back.free < before && delivery.left > 0 {
                true => before,
                false => Time::ZERO,
            }
        };
        let each = |delivery: &mut Delivery, reaches, ack: &PackedPacket| {
            let now = delivery.line_back.pass_ack_steadily(reaches) + access;
            delivery.hosts.take_ack(now, ack);
            delivery.left -= 1;
            before(delivery)
        };
        let extend = |delivery: &mut Delivery, end| match delivery.left > 0
            && delivery.hosts.take_timer_alarm()
        {
            true => before(delivery),
            false => end,
        };
        let first = before(&delivery);
        back.returning
            .take_before(first, &mut delivery, each, extend, |delivery, ack| {
                delivery.hosts.prefetch_for_ack(ack)
            });
        most - delivery.left
    }
}

/// Starts the next transmission on the link, if its queue releases a packet.
#[inline(always)]
fn send_next(port: &mut Port, back: &mut WayBack, far_end: &mut FarEnd) {
    let Some(sent) = port.send_next(port.due()) else {
        return;
    };
    deliver(back, far_end, sent);
}

/// Starts a transmission on a link that was free when a packet arrived, if its queue releases one.
#[inline(never)]
fn send_at_once(port: &mut Port, back: &mut WayBack, far_end: &mut FarEnd, now: Time) {
    if let Some(sent) = port.send_next(now) {
        deliver(back, far_end, sent);
    }
}

/// Delivers a packet to its receiver and schedules the receiver's ACKs.
#[inline(always)]
fn deliver(back: &mut WayBack, far_end: &mut FarEnd, sent: PacketOnLink) {
    if let Some(ack) = far_end.deliver(sent, |agenda, waited| back.enter(agenda, waited)) {
        back.enter(far_end.agenda, ack);
    }
}

/// Returns the time from the line back to every sender, if ACKs reach senders in the order in which
/// they reach the line.
///
/// That holds if all access links are alike, if none of them delays an ACK behind another one
/// because it is no slower than the line, and if the line does not change during the run. The
/// crossing of the line is then computed when an ACK is delivered, without an event.
fn in_order(scenario: &Scenario, network: &NetworkState, line_back: &LineBack) -> Option<Span> {
    let moves = |what: &Setting| {
        use LinkSetting::{Delay, Rate};
        matches!(what, Setting::Link { what, .. } if matches!(what, Rate(_) | Delay(_)))
    };
    let access = network.only_wire()?;
    let holds_up = access.ack > line_back.wire.ack;
    let stays = !scenario.changes.iter().any(|change| moves(&change.what));
    (stays && !holds_up).then(|| access.ack + access.delay)
}
