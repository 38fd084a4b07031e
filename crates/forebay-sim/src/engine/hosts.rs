//! The hosts of the network: senders, receivers and their timers, and the access links that lead to
//! the stations.

use forebay_aqm::Ecn;
use forebay_scenario::{Scenario, TrafficKind};
use forebay_units::{Span, Time};

use super::agenda::Agenda;
use crate::blocks::BlockStore;
use crate::calendar::{Calendar, Entry};
use crate::events::EventQueue;
use crate::external::PendingOutcomes;
use crate::ids::{FlowId, StationId};
use crate::network::{NetworkState, TcpTraffic, TrafficState};
use crate::number::count;
use crate::packet::{Flags, PackedPacket};
use crate::pair::Pair;
use crate::port::PacketOnLink;
use crate::prefetch::prefetch;
use crate::tcp::{Config, Receiver, Reply, SenderStep, Senders, StepOutcome};
use crate::uplink::Uplink;

/// A timer of a flow or of a traffic. With many flows there are more alarms than packets, so that
/// alarms have their own calendar and are small.
#[derive(Clone, Copy, Debug)]
pub enum Alarm {
    /// The retransmission timer may be due.
    Retransmit(FlowId),
    /// Pacing allows the flow's next packets.
    Pace(FlowId),
    /// A delayed ACK may be due.
    DelayedAck(FlowId),
    /// The application acts.
    Act(FlowId),
    /// Flows of this traffic may arrive.
    Arrival(u32),
    /// Recorded packets of this traffic are due.
    Coming(u32),
}

/// An ACK that has crossed its receiver's access link.
pub struct Returning {
    /// The time at which the ACK reaches the first station of its way back.
    pub at: Time,
    /// The kind of the access link.
    pub class: usize,
    /// The ACK.
    pub ack: PackedPacket,
    /// That station.
    pub enters: StationId,
}

/// The state outside of the shared links: hosts, access links, timers and packets on their way to a
/// station.
pub struct Hosts {
    /// The hosts, routes and flows.
    pub network: NetworkState,
    /// Packets on their way to the next station.
    pub arrivals: EventQueue<PackedPacket, StationId>,
    /// Number of late delay lines in `arrivals`: first one for each kind of access link, then those
    /// of packets that come from a station.
    pub late_lines: usize,
    /// Number of prompt delay lines of each kind of access link, which follow the late lines; the
    /// first of a kind is for data.
    pub prompt_lines: usize,
    /// Lookahead: an arrival at a station cannot affect any host sooner than this.
    pub lookahead: Span,
    /// The alarms. A bucket holds many of them, hence the blocks of 16.
    pub alarms: Calendar<Alarm, 16>,
    /// The next time of each kind of event other than an arrival.
    pub agenda: Agenda,
    /// The options of ACKs under way.
    pub blocks: BlockStore,
    /// Start and end of the window of measurement.
    pub window: (Time, Time),
    /// The outcomes of the caller's packets.
    pub external: PendingOutcomes,
}

/// The parts of [`Hosts`] that a packet meets behind its last link: all but the queue of arrivals.
pub struct FarEnd<'a> {
    network: &'a mut NetworkState,
    alarms: &'a mut Calendar<Alarm, 16>,
    pub agenda: &'a mut Agenda,
    blocks: &'a mut BlockStore,
    external: &'a mut PendingOutcomes,
    window: (Time, Time),
}

impl FarEnd<'_> {
    /// Prefetches the state that the delivery of this packet needs.
    #[inline(always)]
    pub fn prefetch(&self, packet: &PackedPacket) {
        prefetch(self.network.pair_of(packet.flow()));
        prefetch(&self.network.receivers[packet.flow().index()]);
    }

    /// Delivers a packet that left its last link to its sink, over the access link.
    ///
    /// The way from the last link to the sink is FIFO, so that the receiver is run now, with the
    /// time at which the packet gets there. Returns the ACK that the receiver sends. A delayed ACK
    /// that leaves before it is passed to `enter`.
    #[inline(always)]
    pub fn deliver(
        &mut self,
        sent: PacketOnLink,
        mut enter: impl FnMut(&mut Agenda, Returning),
    ) -> Option<Returning> {
        let packet = sent.packet.unpack();
        let NetworkState {
            routes,
            pairs,
            classes,
            receivers,
            ..
        } = &mut *self.network;
        let route = routes[packet.flow.index()];
        let pair = &mut pairs[route.pair.index()];
        let class = &mut classes[route.class as usize];
        let receiver = &mut receivers[packet.flow.index()];

        let now = (pair.wire).pass(&mut pair.data_down, sent.arrives_at, packet.bytes);
        let counted = now > self.window.0 && now <= self.window.1;
        let Some(TcpTraffic { config, .. }) = &class.tcp else {
            take_without_tcp(now, sent.packet, class, receiver, counted, self.external);
            return None;
        };
        let usual = class.packet;
        if receiver.ack_due != Time::NEVER {
            if let Some(at) = receiver.ack_before(now, &packet, &config.acks) {
                let ack = send_ack(at, packet.flow, receiver, config, usual, pair, self.blocks);
                enter(self.agenda, ack);
            }
        }
        let (reply, delivered) = receiver.receive(now, sent.packet, &config.acks);
        let bytes = u64::from(delivered) * u64::from(config.payload_bytes);
        receiver.count(bytes, counted);
        match reply {
            Reply::Now => Some(send_ack(
                now,
                packet.flow,
                receiver,
                config,
                usual,
                pair,
                self.blocks,
            )),
            Reply::Later => {
                let due = receiver.ack_due;
                self.alarms.push(due, Alarm::DelayedAck(packet.flow));
                self.agenda.alarm_by(due);
                None
            }
            Reply::Nothing => None,
        }
    }
}

impl Hosts {
    /// Splits the hosts into the far end, which takes packets behind their last link, and the queue
    /// of arrivals at stations.
    #[inline(always)]
    pub fn split(&mut self) -> (FarEnd<'_>, &mut EventQueue<PackedPacket, StationId>) {
        let far_end = FarEnd {
            network: &mut self.network,
            alarms: &mut self.alarms,
            agenda: &mut self.agenda,
            blocks: &mut self.blocks,
            external: &mut self.external,
            window: self.window,
        };
        (far_end, &mut self.arrivals)
    }

    /// Schedules the first act of every application.
    pub fn start(&mut self) {
        for index in 0..self.network.flows.len() {
            self.schedule_act(FlowId::at(index));
        }
        for class in 0..self.network.classes.len() {
            let first = self.network.classes[class].script.first_arrival();
            self.schedule_arrival(count(class), first);
            let first = self.network.classes[class].script.first_coming();
            self.schedule_coming(count(class), first);
        }
    }

    /// Sets an alarm and notes its time in the agenda.
    #[inline(never)]
    pub fn set_alarm(&mut self, at: Time, alarm: Alarm) {
        self.alarms.push(at, alarm);
        self.agenda.alarm_by(at);
    }

    /// Returns the delayed ACK that is due at `now`, if there is one.
    pub fn delayed_ack(&mut self, now: Time, flow: FlowId) -> Option<Returning> {
        let network = &mut self.network;
        let route = network.routes[flow.index()];
        let pair = &mut network.pairs[route.pair.index()];
        let class = &network.classes[route.class as usize];
        let receiver = &mut network.receivers[flow.index()];
        if receiver.ack_due != now {
            return None;
        }
        let TcpTraffic { config, .. } = class.tcp.as_ref()?;
        receiver.take_due();
        let blocks = &mut self.blocks;
        Some(send_ack(
            now,
            flow,
            receiver,
            config,
            class.packet,
            pair,
            blocks,
        ))
    }

    /// Prefetches the state that the delivery of this ACK to its sender needs.
    #[inline(always)]
    pub fn prefetch_for_ack(&self, ack: &PackedPacket) {
        prefetch(self.network.pair_of(ack.flow()));
        self.network.prefetch_sender(ack.flow());
    }

    /// Delivers an ACK to its sender.
    #[inline(always)]
    pub fn take_ack(&mut self, now: Time, ack: &PackedPacket) {
        if let Some(index) = ack.options() {
            return self.take_ack_with_options(now, ack, index);
        }
        self.step(now, ack.flow(), |senders, index, step| {
            senders.on_ack(index, ack, None, step)
        });
    }

    /// Delivers an ACK with SACK blocks or a count of marks to its sender.
    #[inline(never)]
    fn take_ack_with_options(&mut self, now: Time, ack: &PackedPacket, index: u32) {
        let options = self.blocks.take(index);
        self.step(now, ack.flow(), |senders, index, step| {
            senders.on_ack(index, ack, Some(&options), step)
        });
    }

    /// Handles the first entry of the agenda if it is the alarm of a retransmission timer and nothing
    /// else is due at its time. Returns false for other entries.
    ///
    /// The links need not catch up for such an alarm if they may lag behind the clock.
    #[inline(never)]
    pub fn take_timer_alarm(&mut self) -> bool {
        let now = self.agenda.first;
        let Some(Entry {
            event: Alarm::Retransmit(flow),
            ..
        }) = self.alarms.front().first().copied()
        else {
            return false;
        };
        if self.agenda.first_besides_alarms() <= now {
            return false;
        }
        self.alarms.pop_front(1);
        self.check_timer(now, flow);
        self.find_next_alarm();
        self.agenda.refresh();
        true
    }

    /// Lets the flow's sender check its retransmission timer.
    #[inline]
    pub fn check_timer(&mut self, now: Time, flow: FlowId) {
        let (class, sender) = self.network.class_of(flow);
        let early = (class.tcp.as_mut()).and_then(|tcp| tcp.senders.early_timer(sender, now));
        if let Some(due) = early {
            if due != Time::NEVER {
                self.alarms.push(due, Alarm::Retransmit(flow));
                self.agenda.alarm_by(due);
            }
            return;
        }
        self.step(now, flow, |senders, index, step| {
            senders.on_timer(index, step)
        });
    }

    /// Finds the time of the first alarm.
    #[inline(always)]
    pub fn find_next_alarm(&mut self) {
        let network = &self.network;
        let fetches = network.fetches();
        let next = self.alarms.peek_and(|alarms| {
            for entry in alarms.iter().filter(|_| fetches) {
                if let Alarm::Retransmit(flow) = entry.event {
                    network.prefetch_sender(flow);
                }
            }
        });
        self.agenda.alarm = next.map_or(Time::NEVER, |entry| entry.time);
    }

    /// Lets the flow's sender send packets that pacing held back.
    pub fn pace(&mut self, now: Time, flow: FlowId) {
        self.step(now, flow, |senders, index, step| {
            senders.on_pace(index, step)
        });
    }

    /// Runs the step `act` of a flow's sender, puts its packets onto the access link and its timers
    /// into the calendar.
    #[inline(always)]
    pub fn step(
        &mut self,
        now: Time,
        flow: FlowId,
        act: impl FnOnce(&mut dyn Senders, u32, &mut SenderStep) -> StepOutcome,
    ) {
        let route = self.network.routes[flow.index()];
        let class = &mut self.network.classes[route.class as usize];
        let Some(TcpTraffic { config, senders }) = &mut class.tcp else {
            return;
        };
        let mut step = SenderStep {
            config,
            now,
            link: Uplink {
                usual: class.packet.of_flow(flow),
                pair: &mut self.network.pairs[route.pair.index()],
                arrivals: &mut self.arrivals,
            },
            held: false,
            sent_pkts: 0,
            resent_pkts: 0,
        };
        let outcome = act(&mut **senders, route.sender, &mut step);
        if outcome.timer != Time::NEVER {
            let due = outcome.timer;
            self.alarms.push(due, Alarm::Retransmit(flow));
            self.agenda.alarm_by(due);
        }
        let SenderStep {
            held,
            sent_pkts,
            resent_pkts,
            ..
        } = step;
        if held {
            if let Some(due) = senders.pace_at(route.sender) {
                self.alarms.push(due, Alarm::Pace(flow));
                self.agenda.alarm_by(due);
            }
        }
        if sent_pkts == 0 {
            if outcome.done {
                self.end_transfer(now, flow);
            }
            return;
        }
        if now > self.window.0 && now <= self.window.1 {
            class.sent_packets += u64::from(sent_pkts);
            if resent_pkts > 0 {
                class.resent_packets += u64::from(resent_pkts);
            }
        }
        let next = self.arrivals.next_time();
        self.agenda.links_by(next + self.lookahead);
    }

    /// Returns the mean number of packets in flight of the FTP flows over the bottleneck that have
    /// data; NaN if there is no such flow.
    pub fn mean_in_flight_pkts(&mut self, scenario: &Scenario) -> f64 {
        let (mut flows, mut pkts) = (0_u32, 0_u64);
        let classes = self.network.classes.iter_mut().zip(&scenario.traffic);
        for (class, traffic) in classes {
            let lasting = matches!(traffic.kind, TrafficKind::Ftp(_));
            let flows_of_class = class.flows();
            let (true, Some(tcp)) = (lasting && class.links.contains(&0), &mut class.tcp) else {
                continue;
            };
            for flow in flows_of_class {
                let sender = self.network.routes[flow.index()].sender;
                if let Some(in_flight) = tcp.senders.endless_in_flight_pkts(sender) {
                    flows += 1;
                    pkts += u64::from(in_flight);
                }
            }
        }
        pkts as f64 / f64::from(flows)
    }
}

/// Delivers at most `most` ACKs to their senders, while they arrive before the first time of the
/// agenda. At least one must be due. Returns their number. If `with_timers` is true, it also handles
/// alarms of retransmission timers between ACKs.
pub fn take_acks(
    acks: &mut EventQueue<PackedPacket>,
    hosts: &mut Hosts,
    most: u32,
    with_timers: bool,
) -> u32 {
    let mut left = most;
    let each = |hosts: &mut Hosts, now, ack: &PackedPacket| {
        hosts.take_ack(now, ack);
        left -= 1;
        match left {
            0 => Time::ZERO,
            _ => hosts.agenda.first,
        }
    };
    let extend =
        |hosts: &mut Hosts, end| match with_timers && end != Time::ZERO && hosts.take_timer_alarm()
        {
            true => hosts.agenda.first,
            false => end,
        };
    let first = hosts.agenda.first;
    acks.take_before(first, hosts, each, extend, Hosts::prefetch_for_ack);
    most - left
}

/// Returns the ACK that the receiver sends at `now`, behind its access link. `usual` is the template
/// of the traffic's packets.
#[inline(always)]
fn send_ack(
    now: Time,
    flow: FlowId,
    receiver: &Receiver,
    config: &Config,
    usual: PackedPacket,
    pair: &mut Pair,
    blocks: &mut BlockStore,
) -> Returning {
    let template = usual.of_flow(flow).without_data().without_traffic();
    let flags = Flags::of_ack(receiver.echo());
    let mut ack = template.numbered(receiver.next(), receiver.connection(), Ecn::NotEct, flags);
    if config.sack || config.counts_marks {
        let held = if config.sack { receiver.blocks() } else { &[] };
        let ce_pkts = receiver.ce_pkts() * u32::from(config.counts_marks);
        if let Some(index) = blocks.put(held, ce_pkts, receiver.connection()) {
            ack = ack.with_options(index);
        }
    }
    Returning {
        at: pair.wire.pass_ack(&mut pair.ack_up, now),
        class: usize::from(pair.class),
        ack,
        enters: pair.ack_enters,
    }
}

/// Takes a packet of a traffic without TCP at its sink.
#[inline(never)]
fn take_without_tcp(
    now: Time,
    packet: PackedPacket,
    class: &mut TrafficState,
    receiver: &mut Receiver,
    counted: bool,
    external: &mut PendingOutcomes,
) {
    let packet = packet.unpack();
    if let Some(air) = &mut class.external {
        let fate = air.fate(packet.traffic_class.ecn());
        external.push(now, packet, fate);
        if fate.is_err() {
            return;
        }
    }
    receiver.count(u64::from(packet.bytes - class.header_bytes), counted);
    if let Some(calls) = &mut class.calls {
        let flow = packet.flow.offset_from(class.first);
        calls.received(flow, packet.seq, now, counted);
    }
}
