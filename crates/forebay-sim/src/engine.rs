//! Runs a network: events in order of time, an event only where order can change.
//!
//! With one bottleneck a data packet costs three: its arrival there, its ACK's arrival at the
//! shared way back, and that ACK's arrival at the sender; each further station adds one. The
//! links' ends of transmission, the laws' clocks and the sampler are one pending time each and
//! stay out of the calendar. Everything else is arithmetic: access links and the links
//! themselves are FIFO, so what leaves a queue can be followed to the receiver, through it, and
//! back to the next place where flows meet.

use std::sync::atomic::Ordering;
use std::sync::Arc;

use forebay_core::discipline::Fifo;
use forebay_core::{Ecn, Law, Rate, Rng, Time};
use forebay_scenario::{Change, Link, LinkSetting, Scenario, Setting};
use forebay_trace::{FlowTotals, Recorder, Settings, Trace};

use crate::blocks::BlockStore;
use crate::calendar::Calendar;
use crate::events::{EventQueue, MOST_LINES};
use crate::line::Wire;
use crate::network::{Hop, Network, Pair};
use crate::packet::{Flags, Packet, HEADER_BYTES, NO_BLOCKS};
use crate::port::{Port, Sent};
use crate::prefetch::prefetch;
use crate::receiver::Reply;
use crate::sender::{Ack, Segment, Step, NEVER};
use crate::traffic::{Act, Action};
use crate::Watch;

#[derive(Clone, Copy, Debug)]
enum Event {
    /// A data packet reaches its first port.
    Data(Packet),
    /// An ACK reaches the way back.
    AckReturns(Packet),
    /// A packet that has left a station reaches the next.
    Station(Packet),
    /// An ACK reaches its sender.
    Ack(Packet),
}

/// A flow's own times. They outnumber packets where flows are many, so they are kept apart and
/// small.
#[derive(Clone, Copy, Debug)]
enum Alarm {
    /// The retransmission timer may be due.
    Retransmit(u32),
    /// A delayed ACK may be due.
    DelayedAck(u32),
    /// The application acts.
    Act(u32),
    /// Flows of this traffic may arrive.
    Arrival(u32),
}

/// Packets from pairs of like links arrive in the order in which they were sent: three delay
/// lines for each kind of pair.
const LINES: usize = 3;
const DATA: usize = 0;
const ACK_RETURNS: usize = 1;
const ACK: usize = 2;

/// How many events pass between two looks at the watch.
const WATCH_EVERY: u32 = 1 << 14;

/// With `ONE` there is one link, and the questions which link it is and where a packet goes next
/// have answers that the compiler knows.
pub struct Engine<'a, const ONE: bool> {
    scenario: &'a Scenario,
    network: Network,
    /// By link.
    ports: Vec<Port>,
    /// By link: the way back where no link is, with the same rate and delay, never full.
    backs: Vec<Back>,
    packets: EventQueue<Event>,
    /// A bucket holds many of them.
    alarms: Calendar<Alarm, 16>,
    blocks: BlockStore,
    segments: Vec<Segment>,
    changes: std::slice::Iter<'a, Change>,
    window: (u64, u64),
    end: u64,
    agenda: Agenda,
}

/// A line and when it is next free.
struct Back {
    wire: Wire,
    free: u64,
}

/// The next time of each kind of thing that happens at few places.
struct Agenda {
    /// A link is free again: `link_at`.
    link: u64,
    link_at: usize,
    change: u64,
    tick: u64,
    sample: u64,
    alarm: u64,
}

impl<'a, const ONE: bool> Engine<'a, ONE> {
    /// `laws` are those of the queues that are under test, in order.
    pub fn new(scenario: &'a Scenario, laws: Vec<Box<dyn Law>>, seed: u64) -> Self {
        let settings = Settings {
            interval: scenario.sample,
            window: scenario.measure,
        };
        let ports = ports(scenario, laws, settings, seed);
        let back = |link: &Link| Back {
            wire: Wire::new(link.rate.as_bps(), link.delay.as_nanos()),
            free: 0,
        };
        let network = Network::new(scenario, seed);
        let (start, end) = scenario.measure;
        let mut engine = Engine {
            packets: EventQueue::new(
                packet_calendar(scenario),
                network.delay_lines(LINES, MOST_LINES),
            ),
            // 1 ms wide, past the longest timeout of a minute.
            alarms: Calendar::new(1 << 20, 65_000_000_000),
            backs: scenario.all_links().map(back).collect(),
            blocks: BlockStore::default(),
            segments: Vec::new(),
            changes: scenario.changes.iter(),
            window: (start.as_nanos(), end.as_nanos()),
            end: scenario.duration.as_nanos(),
            agenda: Agenda {
                link: NEVER,
                link_at: 0,
                change: NEVER,
                tick: NEVER,
                sample: scenario.sample.as_nanos(),
                alarm: NEVER,
            },
            scenario,
            network,
            ports,
        };
        engine.agenda.change = engine.next_change();
        engine.agenda.tick = engine.next_tick();
        engine.look_at_links();
        for flow in 0..engine.network.flows.len() as u32 {
            engine.schedule_act(flow);
        }
        for class in 0..engine.network.classes.len() {
            let first = engine.network.classes[class].application.first_arrival();
            engine.schedule_arrival(class as u32, first.unwrap_or(NEVER));
        }
        engine
    }

    /// Runs to the end; `None` if cancelled.
    pub fn run(mut self, watch: &Watch) -> Option<Trace> {
        let mut since_watch = 0;
        loop {
            since_watch += 1;
            let agenda = &self.agenda;
            let single = (agenda.link.min(agenda.tick))
                .min(agenda.sample.min(agenda.change))
                .min(agenda.alarm);
            let network = &self.network;
            let next = self
                .packets
                .pop_before(single.min(self.end + 1), |event| fetch(network, event));
            match next {
                Ok(entry) => self.handle(entry.time, entry.event),
                Err(_) if single > self.end => break,
                Err(_) => self.handle_single(single),
            }
            if since_watch == WATCH_EVERY {
                since_watch = 0;
                watch.now_ns.store(single.min(self.end), Ordering::Relaxed);
                if watch.cancel.load(Ordering::Relaxed) {
                    return None;
                }
            }
        }
        watch.now_ns.store(self.end, Ordering::Relaxed);
        Some(self.finish())
    }

    /// The trace of the bottleneck with those of the other links, each with the flows whose data
    /// crosses it.
    fn finish(self) -> Trace {
        let network = &self.network;
        let mut delivered = vec![0; network.flows.len()];
        for (flow, receiver) in network.flows.iter().zip(&network.receivers) {
            delivered[flow.owner as usize] += receiver.delivered_bytes;
        }
        let crossing = |link: usize| {
            let classes = network.classes.iter().enumerate();
            let crossing = classes.filter(move |(_, class)| class.links.contains(&link));
            crossing.flat_map(|(traffic, class)| {
                let flows = class.first..class.first + class.count;
                flows.map(move |flow| (traffic, flow as usize))
            })
        };
        let traces = self.ports.into_iter().enumerate().map(|(link, port)| {
            let totals = |(traffic, flow): (usize, usize)| FlowTotals {
                traffic: traffic as u32,
                delivered_bytes: delivered[flow],
            };
            port.record
                .recorder
                .finish(crossing(link).map(totals).collect())
        });
        let names = self.scenario.all_links().map(|link| link.name.clone());
        let mut traces = traces
            .zip(names)
            .map(|(trace, name)| Trace { name, ..trace });
        let bottleneck = traces.next().expect("a scenario has a bottleneck");
        Trace {
            others: traces.collect(),
            ..bottleneck
        }
    }

    /// Things of one time happen in the order: change, tick, link, sample, alarm.
    #[inline]
    fn handle_single(&mut self, now: u64) {
        if now == self.agenda.change {
            self.apply_change(now);
        } else if now == self.agenda.tick {
            for port in &mut self.ports {
                if tick_of(port) == now {
                    port.discipline.handle_timeout(Time::from_nanos(now));
                }
            }
            self.agenda.tick = self.next_tick();
        } else if now == self.agenda.link {
            let link = if ONE { 0 } else { self.agenda.link_at };
            if let Some(sent) = self.ports[link].send_next(now) {
                self.leave_port(link, sent);
            }
            self.look_at_links();
        } else if now == self.agenda.sample {
            for port in &mut self.ports {
                port.sample(now);
                for blocks in port.record.lost_blocks.drain(..) {
                    self.blocks.take(blocks);
                }
            }
            self.agenda.sample += self.scenario.sample.as_nanos();
        } else {
            self.handle_alarm(now);
            let senders = &self.network.senders;
            let next = self.alarms.peek_and(|alarms| {
                for entry in alarms {
                    if let Alarm::Retransmit(flow) = entry.event {
                        prefetch(&senders[flow as usize]);
                    }
                }
            });
            self.agenda.alarm = next.unwrap_or(NEVER);
        }
    }

    #[inline]
    fn handle(&mut self, now: u64, event: Event) {
        match event {
            Event::Data(packet) => {
                let link = match ONE {
                    true => 0,
                    false => self.pair_of(&packet).data_enters,
                };
                self.arrive_at_port(now, link, packet);
            }
            Event::AckReturns(ack) if ONE => self.go_back(now, 0, ack),
            Event::AckReturns(ack) => match self.pair_of(&ack).ack_enters {
                Hop::Back(link) => self.go_back(now, link, ack),
                hop => self.reach(now, hop, ack),
            },
            Event::Ack(ack) => self.take_ack(now, ack),
            Event::Station(packet) => {
                let hop = self.network.station(packet.station);
                self.reach(now, hop, packet);
            }
        }
    }

    #[inline]
    fn pair_of(&self, packet: &Packet) -> &Pair {
        let route = self.network.routes[packet.flow as usize];
        &self.network.pairs[route.pair as usize]
    }

    /// A packet reaches a station. Out of line, so that the usual single bottleneck stays fast.
    #[inline(never)]
    fn reach(&mut self, now: u64, hop: Hop, packet: Packet) {
        match hop {
            Hop::Port(link) => self.arrive_at_port(now, link, packet),
            Hop::Back(link) => self.go_back(now, link, packet),
            Hop::Sink | Hop::Source => unreachable!("not a station"),
        }
    }

    #[inline(always)]
    fn arrive_at_port(&mut self, now: u64, link: u16, packet: Packet) {
        let link = usize::from(link);
        let port = &mut self.ports[link];
        let sent = port.arrive(now, packet);
        if let Some(sent) = sent {
            self.look_at_links();
            self.leave_port(link, sent);
        }
    }

    /// Finds the link that is free first.
    #[inline]
    fn look_at_links(&mut self) {
        if ONE {
            self.agenda.link = self.ports[0].done_at;
            return;
        }
        let (mut first, mut at) = (NEVER, 0);
        for (link, port) in self.ports.iter().enumerate() {
            if port.done_at < first {
                (first, at) = (port.done_at, link);
            }
        }
        (self.agenda.link, self.agenda.link_at) = (first, at);
    }

    /// A packet that left a port goes on: to its sink as a rule, and an ACK to its source.
    #[inline]
    fn leave_port(&mut self, link: usize, sent: Sent) {
        if ONE {
            return self.deliver(sent);
        }
        let packet = sent.packet;
        match self.network.after_port(self.pair_of(&packet).path, link) {
            Hop::Sink => self.deliver(sent),
            hop => self.go_on(sent.arrives_at, hop, packet),
        }
    }

    /// An ACK crosses a line back, where flows meet, and its source's access link as a rule.
    #[inline(always)]
    fn go_back(&mut self, now: u64, link: u16, ack: Packet) {
        let link = usize::from(link);
        let back = &mut self.backs[link];
        let at = back.wire.pass(&mut back.free, now, ack.bytes);
        if ONE {
            return self.return_to_source(at, ack);
        }
        match self.network.after_back(self.pair_of(&ack).path, link) {
            Hop::Source => self.return_to_source(at, ack),
            hop => self.go_on(at, hop, ack),
        }
    }

    #[inline(always)]
    fn return_to_source(&mut self, at: u64, ack: Packet) {
        let route = self.network.routes[ack.flow as usize];
        let pair = &mut self.network.pairs[route.pair as usize];
        let at = pair.wire.pass(&mut pair.ack_down, at, ack.bytes);
        let line = LINES * usize::from(pair.class) + ACK;
        self.packets.push_on(line, at, Event::Ack(ack));
    }

    /// A packet that left a station reaches the next one at `at`. Out of line, so that the
    /// usual single bottleneck stays fast.
    #[inline(never)]
    fn go_on(&mut self, at: u64, hop: Hop, packet: Packet) {
        match hop {
            Hop::Port(_) | Hop::Back(_) => {
                let station = self.network.number(hop);
                let packet = Packet { station, ..packet };
                self.packets.push(at, Event::Station(packet));
            }
            Hop::Source => self.return_to_source(at, packet),
            Hop::Sink => unreachable!("data reaches its sink from a port"),
        }
    }

    fn handle_alarm(&mut self, now: u64) {
        match self.alarms.pop().map(|entry| entry.event) {
            Some(Alarm::Retransmit(flow)) => self.check_timer(now, flow),
            Some(Alarm::DelayedAck(flow)) => self.check_delayed_ack(now, flow),
            Some(Alarm::Act(flow)) => self.act(now, flow),
            Some(Alarm::Arrival(class)) => self.arrive(now, class),
            None => {}
        }
    }

    /// Every push of an alarm goes through here, so that the agenda knows the first.
    #[inline]
    fn set_alarm(&mut self, at: u64, alarm: Alarm) {
        self.alarms.push(at, alarm);
        self.agenda.alarm = self.agenda.alarm.min(at);
    }

    /// A packet that left its last port goes to its sink: a FIFO all the way, so the receiver
    /// can be run now, at the time when the packet reaches it.
    #[inline]
    fn deliver(&mut self, sent: Sent) {
        let packet = sent.packet;
        let route = self.network.routes[packet.flow as usize];
        let pair = &mut self.network.pairs[route.pair as usize];
        let now = pair
            .wire
            .pass(&mut pair.data_down, sent.arrives_at, packet.bytes);
        let class = &self.network.classes[route.class as usize];
        let receiver = &mut self.network.receivers[packet.flow as usize];
        let counted = now > self.window.0 && now <= self.window.1;
        let Some(config) = &class.tcp else {
            if counted {
                receiver.delivered_bytes += u64::from(packet.bytes);
            }
            return;
        };
        let (delayed_ack, data_bytes) = (config.delayed_ack, u64::from(config.packet_bytes));
        // A delayed ACK that falls due before this packet goes out first.
        if receiver.ack_due < now {
            let due = std::mem::replace(&mut receiver.ack_due, NEVER);
            self.send_ack(due, packet.flow);
        }
        let receiver = &mut self.network.receivers[packet.flow as usize];
        let (reply, delivered) = receiver.receive(now, &packet, delayed_ack);
        if counted {
            receiver.delivered_bytes += u64::from(delivered) * data_bytes;
        }
        match reply {
            Reply::Now => self.send_ack(now, packet.flow),
            Reply::Later => {
                let due = receiver.ack_due;
                self.set_alarm(due, Alarm::DelayedAck(packet.flow));
            }
            Reply::Stale => {}
        }
    }

    fn check_delayed_ack(&mut self, now: u64, flow: u32) {
        let receiver = &mut self.network.receivers[flow as usize];
        if receiver.ack_due == now {
            receiver.ack_due = NEVER;
            self.send_ack(now, flow);
        }
    }

    /// The receiver sends an ACK at `now`, which may lie ahead of the clock.
    #[inline]
    fn send_ack(&mut self, now: u64, flow: u32) {
        let receiver = &self.network.receivers[flow as usize];
        let route = self.network.routes[flow as usize];
        let pair = &mut self.network.pairs[route.pair as usize];
        let class = &self.network.classes[route.class as usize];
        let blocks = match &class.tcp {
            Some(config) if config.sack => self.blocks.put(receiver.blocks()),
            _ => NO_BLOCKS,
        };
        let ack = Packet {
            flow,
            seq: receiver.next(),
            blocks,
            bytes: HEADER_BYTES,
            connection: receiver.connection(),
            ecn: Ecn::NotEct,
            flags: Flags {
                ecn_signal: receiver.echo(),
                ..Flags::default()
            },
            station: 0,
        };
        let at = pair.wire.pass(&mut pair.ack_up, now, HEADER_BYTES);
        let line = LINES * usize::from(pair.class) + ACK_RETURNS;
        self.packets.push_on(line, at, Event::AckReturns(ack));
    }

    #[inline]
    fn take_ack(&mut self, now: u64, ack: Packet) {
        let (blocks, count) = self.blocks.take(ack.blocks);
        self.with_sender(now, ack.flow, |sender, step| {
            // An ACK of an earlier connection is not this one's.
            if ack.connection == sender.connection {
                let ack = Ack {
                    next: ack.seq,
                    ece: ack.flags.ecn_signal,
                    blocks: &blocks[..count],
                };
                sender.on_ack(&ack, step);
            }
        });
    }

    fn check_timer(&mut self, now: u64, flow: u32) {
        let sender = &mut self.network.senders[flow as usize];
        // The timer is re-armed without touching its event: this one may be early, or stale.
        if sender.timer_event != now {
            return;
        }
        sender.timer_event = NEVER;
        let due = sender.rto_due <= now;
        self.with_sender(now, flow, |sender, step| {
            if due {
                sender.on_timeout(step);
            }
        });
    }

    /// Runs a step of a sender, puts its packets on the access link and its timer in the
    /// calendar.
    #[inline]
    fn with_sender(
        &mut self,
        now: u64,
        flow: u32,
        step: impl FnOnce(&mut crate::sender::Sender, &mut Step),
    ) {
        let at = self.network.routes[flow as usize];
        let class = &self.network.classes[at.class as usize];
        let Some(config) = &class.tcp else { return };
        let sender = &mut self.network.senders[flow as usize];
        step(
            sender,
            &mut Step {
                config,
                now,
                out: &mut self.segments,
            },
        );
        if sender.rto_due < sender.timer_event {
            sender.timer_event = sender.rto_due;
            self.alarms.push(sender.rto_due, Alarm::Retransmit(flow));
            self.agenda.alarm = self.agenda.alarm.min(sender.rto_due);
        }
        if self.segments.is_empty() {
            // Only a closed connection or a transfer has an end.
            if sender.una == sender.limit {
                self.end_transfer(now, flow);
            }
            return;
        }
        let connection = sender.connection;
        let ecn = if config.ecn { Ecn::Ect0 } else { Ecn::NotEct };
        let pair = &mut self.network.pairs[at.pair as usize];
        for segment in self.segments.drain(..) {
            // The SYN is a bare header and not ECN-capable (RFC 3168 section 6.1.1).
            let syn = segment.seq == 0;
            let packet = Packet {
                flow,
                seq: segment.seq,
                blocks: NO_BLOCKS,
                bytes: if syn {
                    HEADER_BYTES
                } else {
                    config.packet_bytes
                },
                connection,
                ecn: if syn { Ecn::NotEct } else { ecn },
                flags: Flags {
                    ecn_signal: segment.cwr,
                    ..Flags::default()
                },
                station: 0,
            };
            let free = pair.data_up <= now && !syn;
            let at = pair.wire.pass(&mut pair.data_up, now, packet.bytes);
            // A packet that waits for its access link would hold up the others' line.
            if free {
                let line = LINES * usize::from(pair.class) + DATA;
                self.packets.push_on(line, at, Event::Data(packet));
            } else {
                self.packets.push(at, Event::Data(packet));
            }
        }
    }

    fn schedule_act(&mut self, flow: u32) {
        if let Some(act) = self.network.flows[flow as usize].next_act {
            self.set_alarm(act.at, Alarm::Act(flow));
        }
    }

    fn act(&mut self, now: u64, flow: u32) {
        let at = &self.network.flows[flow as usize];
        // A change may have replaced the act that this event was for.
        let Some(act) = at.next_act.filter(|act| act.at == now) else {
            return;
        };
        let stop = at.stop;
        self.perform(now, flow, act.action);
        let class = self.network.routes[flow as usize].class as usize;
        let class = &mut self.network.classes[class];
        let next = class.application.next(flow - class.first, act, stop);
        self.network.flows[flow as usize].next_act = next;
        self.schedule_act(flow);
    }

    fn perform(&mut self, now: u64, flow: u32, action: Action) {
        match action {
            Action::Open => self.with_sender(now, flow, |sender, step| sender.open(step)),
            Action::Close => self.network.senders[flow as usize].close(),
            Action::Fresh => {
                let phase = self.network.phases.uniform();
                self.reset_connection(flow, phase);
                self.with_sender(now, flow, |sender, step| sender.open(step));
            }
            Action::Transfer(packets) => self.begin_transfer(now, flow, packets),
            Action::Send => self.send_plain(now, flow),
        }
    }

    fn reset_connection(&mut self, number: u32, phase: f64) {
        let sender = &mut self.network.senders[number as usize];
        let class = &self.network.classes[self.network.routes[number as usize].class as usize];
        if let Some(config) = &class.tcp {
            sender.reset(config, phase);
        }
        let connection = sender.connection;
        self.network.receivers[number as usize].reset(connection);
    }

    fn begin_transfer(&mut self, now: u64, flow: u32, packets: u32) {
        // Drawn also for a request that is lost, so that the others' draws stay as they are.
        let class = self.network.routes[flow as usize].class as usize;
        let phase = self.network.classes[class].phases.uniform();
        let Some(number) = self.network.take_connection(flow) else {
            return;
        };
        self.reset_connection(number, phase);
        self.with_sender(now, number, |sender, step| sender.transfer(packets, step));
    }

    /// All that a connection was offered is acknowledged: its flow may have waited for that.
    #[cold]
    fn end_transfer(&mut self, now: u64, number: u32) {
        let Some(flow) = self.network.release_connection(number) else {
            return;
        };
        let class = self.network.routes[flow as usize].class as usize;
        let class = &mut self.network.classes[class];
        let at = &mut self.network.flows[flow as usize];
        let act = class
            .application
            .transferred(flow - class.first, now, at.stop);
        if act.is_some() && !at.stopped {
            at.next_act = act;
            self.schedule_act(flow);
        }
    }

    fn schedule_arrival(&mut self, class: u32, at: u64) {
        if at != NEVER {
            self.set_alarm(at, Alarm::Arrival(class));
        }
    }

    fn arrive(&mut self, now: u64, class: u32) {
        let arrival = self.network.classes[class as usize].application.arrive(now);
        if let Some((flow, act)) = arrival.begins {
            let flow = self.network.classes[class as usize].first + flow;
            self.network.flows[flow as usize].next_act = Some(act);
            self.schedule_act(flow);
        }
        self.schedule_arrival(class, arrival.next);
    }

    /// One packet of a source without congestion control.
    fn send_plain(&mut self, now: u64, flow: u32) {
        let at = self.network.routes[flow as usize];
        let class = &self.network.classes[at.class as usize];
        let sender = &mut self.network.senders[flow as usize];
        let packet = Packet {
            flow,
            seq: sender.next,
            blocks: NO_BLOCKS,
            bytes: class.packet_bytes,
            connection: sender.connection,
            ecn: if class.ect { Ecn::Ect0 } else { Ecn::NotEct },
            flags: Flags {
                udp: true,
                ..Flags::default()
            },
            station: 0,
        };
        sender.next = sender.next.wrapping_add(1);
        let pair = &mut self.network.pairs[at.pair as usize];
        let arrives = pair.wire.pass(&mut pair.data_up, now, packet.bytes);
        self.packets.push(arrives, Event::Data(packet));
    }

    fn next_tick(&self) -> u64 {
        self.ports.iter().map(tick_of).min().unwrap_or(NEVER)
    }

    fn next_change(&self) -> u64 {
        let next = self.changes.as_slice().first();
        next.map_or(NEVER, |change| change.at.as_nanos())
    }

    fn apply_change(&mut self, now: u64) {
        let Some(change) = self.changes.next() else {
            return;
        };
        match change.what {
            Setting::Link { link, what } => {
                let (port, back) = (&mut self.ports[link], &mut self.backs[link].wire);
                match what {
                    LinkSetting::Rate(rate) => {
                        port.set_rate(now, rate);
                        *back = Wire::new(rate.as_bps(), back.delay_ns);
                    }
                    LinkSetting::Delay(delay) => {
                        port.delay_ns = delay.as_nanos();
                        back.delay_ns = delay.as_nanos();
                    }
                    LinkSetting::Buffer(buffer) => port.discipline.set_buffer(buffer),
                }
            }
            Setting::Flows { traffic, flows } => self.set_active(now, traffic, flows),
        }
        self.agenda.change = self.next_change();
    }

    /// Makes the first `active` flows of a traffic run, and the others stop.
    fn set_active(&mut self, now: u64, traffic: usize, active: u32) {
        let class = &mut self.network.classes[traffic];
        class.application.set_active(active);
        let (first, count) = (class.first, class.count);
        let transfers = class.most_connections > 0;
        for flow in first..first + count {
            let wanted = flow - first < active;
            let was_stopped =
                std::mem::replace(&mut self.network.flows[flow as usize].stopped, !wanted);
            let running = self.network.flows[flow as usize].next_act.is_some()
                || self.network.senders[flow as usize].limit == u32::MAX
                // A session may be waiting for the end of a transfer.
                || transfers && !was_stopped;
            if running && !wanted {
                // A transfer has its end already.
                if !transfers {
                    self.network.senders[flow as usize].close();
                }
                self.network.flows[flow as usize].next_act = None;
            } else if wanted && !running {
                let stop = self.network.flows[flow as usize].stop;
                let class = &mut self.network.classes[traffic];
                let act = class
                    .application
                    .first(flow - first, now, stop)
                    .map(|act| Act {
                        // The flow may have run before: it comes back with a new connection.
                        action: match act.action {
                            Action::Open => Action::Fresh,
                            other => other,
                        },
                        ..act
                    });
                self.network.flows[flow as usize].next_act = act;
                self.schedule_act(flow);
            }
        }
    }
}

/// The port of each link, under its own law or the next of `laws`.
fn ports(scenario: &Scenario, laws: Vec<Box<dyn Law>>, settings: Settings, seed: u64) -> Vec<Port> {
    let mut laws = laws.into_iter();
    let port = |(i, link): (usize, &Link)| {
        let law = match &link.law {
            Some(own) => own
                .build(&scenario.site_of(link))
                .expect("the scenario has built it once"),
            None => laws.next().expect("a law for each queue under test"),
        };
        let stream = match i {
            0 => "law".to_owned(),
            _ => format!("law {i}"),
        };
        let rng = Rng::new(seed, &stream);
        // What a traced link can carry is recorded time by time.
        let steady = match link.trace {
            Some(_) => Rate::from_bps(0),
            None => link.rate,
        };
        let mut port = Port::new(
            Box::new(Fifo::new(law, link.buffer, link.rate, link.ecn, rng)),
            Recorder::new(settings, steady),
            link.rate,
            link.delay.as_nanos(),
        );
        if let Some(trace) = &link.trace {
            port.follow_trace(Arc::clone(trace));
        }
        port
    };
    scenario.all_links().enumerate().map(port).collect()
}

/// When a port's law wants to be called.
fn tick_of(port: &Port) -> u64 {
    let due = port.discipline.poll_timeout();
    due.map_or(NEVER, Time::as_nanos)
}

/// Fetches what the handler of a coming event will read: with many flows their states lie in
/// main memory.
#[inline]
fn fetch(network: &Network, event: &Event) {
    let (Event::Data(packet)
    | Event::AckReturns(packet)
    | Event::Ack(packet)
    | Event::Station(packet)) = event;
    let flow = packet.flow as usize;
    prefetch(&network.pairs[network.routes[flow].pair as usize]);
    match event {
        Event::Data(_) => prefetch(&network.receivers[flow]),
        Event::Ack(_) => prefetch(&network.senders[flow]),
        Event::AckReturns(_) | Event::Station(_) => {}
    }
}

/// A calendar whose buckets hold about one event each and reach past most round trips.
fn packet_calendar(scenario: &Scenario) -> Calendar<Event> {
    let rates = scenario.all_links().map(|link| link.rate);
    let fastest = rates.max().unwrap_or(scenario.bottleneck.rate);
    let packets_per_sec = fastest.packets_per_sec(scenario.packet()).max(1.0);
    let spacing_ns = 1e9 / packets_per_sec;
    Calendar::new(spacing_ns as u64, 500_000_000)
}
