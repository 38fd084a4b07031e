//! Runs a network: events in order of time, an event only where order can change.
//!
//! A data packet costs three: its arrival at the bottleneck, its ACK's arrival at the shared
//! way back, and that ACK's arrival at the sender. The link's end of transmission, the law's
//! clock and the sampler are one pending time each and stay out of the calendar. Everything
//! else is arithmetic: access links and the link itself are FIFO, so what leaves a queue can
//! be followed to the receiver, through it, and back to the next place where flows meet.

use std::sync::atomic::Ordering;

use forebay_core::discipline::Fifo;
use forebay_core::{Ecn, Law, Rng, Time};
use forebay_scenario::{Change, Scenario, Setting};
use forebay_trace::{FlowTotals, Recorder, Settings, Trace};

use crate::blocks::BlockStore;
use crate::calendar::Calendar;
use crate::events::{EventQueue, MOST_LINES};
use crate::line::Wire;
use crate::network::Network;
use crate::packet::{Flags, Packet, HEADER_BYTES, NO_BLOCKS};
use crate::port::{Port, Sent};
use crate::prefetch::prefetch;
use crate::receiver::Reply;
use crate::sender::{Ack, Segment, Step, NEVER};
use crate::traffic::{Act, Action};
use crate::Watch;

#[derive(Clone, Copy, Debug)]
enum Event {
    /// A data packet reaches the bottleneck.
    Data(Packet),
    /// An ACK reaches the way back.
    AckReturns(Packet),
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
}

/// Packets from pairs of like links arrive in the order in which they were sent: three delay
/// lines for each kind of pair.
const LINES: usize = 3;
const DATA: usize = 0;
const ACK_RETURNS: usize = 1;
const ACK: usize = 2;

/// How many events pass between two looks at the watch.
const WATCH_EVERY: u32 = 1 << 14;

pub struct Engine<'a> {
    scenario: &'a Scenario,
    network: Network,
    port: Port,
    /// The way back: the bottleneck's rate and delay, never full.
    back: Wire,
    back_free: u64,
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

/// The next time of each thing that has only one.
struct Agenda {
    change: u64,
    tick: u64,
    sample: u64,
    alarm: u64,
}

impl<'a> Engine<'a> {
    pub fn new(scenario: &'a Scenario, law: Box<dyn Law>, seed: u64) -> Engine<'a> {
        let bottleneck = &scenario.bottleneck;
        let settings = Settings {
            interval: scenario.sample,
            window: scenario.measure,
        };
        let port = Port::new(
            Box::new(Fifo::new(
                law,
                bottleneck.buffer,
                bottleneck.rate,
                bottleneck.ecn,
                Rng::new(seed, "law"),
            )),
            Recorder::new(settings, bottleneck.rate),
            bottleneck.rate,
            bottleneck.delay.as_nanos(),
        );
        let network = Network::new(scenario, seed);
        let (start, end) = scenario.measure;
        let mut engine = Engine {
            packets: EventQueue::new(
                packet_calendar(scenario),
                network.delay_lines(LINES, MOST_LINES),
            ),
            // 1 ms wide, past the longest timeout of a minute.
            alarms: Calendar::new(1 << 20, 65_000_000_000),
            back: Wire::new(bottleneck.rate.as_bps(), bottleneck.delay.as_nanos()),
            back_free: 0,
            blocks: BlockStore::default(),
            segments: Vec::new(),
            changes: scenario.changes.iter(),
            window: (start.as_nanos(), end.as_nanos()),
            end: scenario.duration.as_nanos(),
            agenda: Agenda {
                change: NEVER,
                tick: NEVER,
                sample: scenario.sample.as_nanos(),
                alarm: NEVER,
            },
            scenario,
            network,
            port,
        };
        engine.agenda.change = engine.next_change();
        engine.agenda.tick = engine.next_tick();
        for flow in 0..engine.network.flows.len() as u32 {
            engine.schedule_act(flow);
        }
        engine
    }

    /// Runs to the end; `None` if cancelled.
    pub fn run(mut self, watch: &Watch) -> Option<Trace> {
        let mut since_watch = 0;
        loop {
            since_watch += 1;
            let agenda = &self.agenda;
            let single = (self.port.done_at.min(agenda.tick))
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

    fn finish(self) -> Trace {
        let flows = self
            .network
            .routes
            .iter()
            .zip(&self.network.receivers)
            .map(|(route, receiver)| FlowTotals {
                traffic: route.class,
                delivered_bytes: receiver.delivered_bytes,
            })
            .collect();
        self.port.recorder.finish(flows)
    }

    /// Things of one time happen in the order: change, tick, link, sample, alarm.
    #[inline]
    fn handle_single(&mut self, now: u64) {
        if now == self.agenda.change {
            self.apply_change(now);
        } else if now == self.agenda.tick {
            self.port.discipline.handle_timeout(Time::from_nanos(now));
            self.agenda.tick = self.next_tick();
        } else if now == self.port.done_at {
            if let Some(sent) = self.port.send_next(now) {
                self.follow(sent);
            }
        } else if now == self.agenda.sample {
            self.port.sample(now);
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
                if let Some(sent) = self.port.arrive(now, packet) {
                    self.follow(sent);
                }
            }
            Event::AckReturns(ack) => self.return_ack(now, ack),
            Event::Ack(ack) => self.take_ack(now, ack),
        }
    }

    fn handle_alarm(&mut self, now: u64) {
        match self.alarms.pop().map(|entry| entry.event) {
            Some(Alarm::Retransmit(flow)) => self.check_timer(now, flow),
            Some(Alarm::DelayedAck(flow)) => self.check_delayed_ack(now, flow),
            Some(Alarm::Act(flow)) => self.act(now, flow),
            None => {}
        }
    }

    /// Every push of an alarm goes through here, so that the agenda knows the first.
    #[inline]
    fn set_alarm(&mut self, at: u64, alarm: Alarm) {
        self.alarms.push(at, alarm);
        self.agenda.alarm = self.agenda.alarm.min(at);
    }

    /// A packet that left the bottleneck goes to its sink: a FIFO all the way, so the receiver
    /// can be run now, at the time when the packet reaches it.
    #[inline]
    fn follow(&mut self, sent: Sent) {
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
                ece: receiver.echo(),
                ..Flags::default()
            },
        };
        let at = pair.wire.pass(&mut pair.ack_up, now, HEADER_BYTES);
        self.packets
            .push_on(LINES * pair.class + ACK_RETURNS, at, Event::AckReturns(ack));
    }

    /// An ACK crosses the way back, where all flows meet, and its source's access link.
    #[inline]
    fn return_ack(&mut self, now: u64, ack: Packet) {
        let at = self.back.pass(&mut self.back_free, now, ack.bytes);
        let pair = &mut self.network.pairs[self.network.routes[ack.flow as usize].pair as usize];
        let at = pair.wire.pass(&mut pair.ack_down, at, ack.bytes);
        self.packets
            .push_on(LINES * pair.class + ACK, at, Event::Ack(ack));
    }

    #[inline]
    fn take_ack(&mut self, now: u64, ack: Packet) {
        let (blocks, count) = self.blocks.take(ack.blocks);
        self.with_sender(now, ack.flow, |sender, step| {
            // An ACK of an earlier connection is not this one's.
            if ack.connection == sender.connection {
                let ack = Ack {
                    next: ack.seq,
                    ece: ack.flags.ece,
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
                    cwr: segment.cwr,
                    ..Flags::default()
                },
            };
            let free = pair.data_up <= now && !syn;
            let at = pair.wire.pass(&mut pair.data_up, now, packet.bytes);
            // A packet that waits for its access link would hold up the others' line.
            if free {
                self.packets
                    .push_on(LINES * pair.class + DATA, at, Event::Data(packet));
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
        let next = self.network.classes[class].application.next(act, stop);
        self.network.flows[flow as usize].next_act = next;
        self.schedule_act(flow);
    }

    fn perform(&mut self, now: u64, flow: u32, action: Action) {
        match action {
            Action::Open => self.with_sender(now, flow, |sender, step| sender.open(step)),
            Action::Close => self.network.senders[flow as usize].close(),
            Action::Fresh => {
                let phase = self.network.phases.uniform();
                let sender = &mut self.network.senders[flow as usize];
                let class =
                    &self.network.classes[self.network.routes[flow as usize].class as usize];
                if let Some(config) = &class.tcp {
                    sender.reset(config, phase);
                }
                let connection = sender.connection;
                self.network.receivers[flow as usize].reset(connection);
                self.with_sender(now, flow, |sender, step| sender.open(step));
            }
            Action::Send => self.send_plain(now, flow),
        }
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
        };
        sender.next = sender.next.wrapping_add(1);
        let pair = &mut self.network.pairs[at.pair as usize];
        let arrives = pair.wire.pass(&mut pair.data_up, now, packet.bytes);
        self.packets.push(arrives, Event::Data(packet));
    }

    fn next_tick(&self) -> u64 {
        self.port
            .discipline
            .poll_timeout()
            .map_or(NEVER, Time::as_nanos)
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
            Setting::Rate(rate) => {
                self.port.set_rate(now, rate);
                self.back = Wire::new(rate.as_bps(), self.back.delay_ns);
            }
            Setting::Delay(delay) => {
                self.port.delay_ns = delay.as_nanos();
                self.back.delay_ns = delay.as_nanos();
            }
            Setting::Buffer(buffer) => self.port.discipline.set_buffer(buffer),
            Setting::Flows { traffic, flows } => self.set_active(now, traffic, flows),
        }
        self.agenda.change = self.next_change();
    }

    /// Makes the first `active` flows of a traffic run, and the others stop.
    fn set_active(&mut self, now: u64, traffic: usize, active: u32) {
        let class = &self.network.classes[traffic];
        let (first, count) = (class.first, class.count);
        for flow in first..first + count {
            let running = self.network.flows[flow as usize].next_act.is_some()
                || self.network.senders[flow as usize].limit == u32::MAX;
            let wanted = flow - first < active;
            if running && !wanted {
                self.network.senders[flow as usize].close();
                self.network.flows[flow as usize].next_act = None;
            } else if wanted && !running {
                let stop = self.network.flows[flow as usize].stop;
                let class = &mut self.network.classes[traffic];
                let act = class.application.first(now, stop).map(|act| Act {
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

/// Fetches what the handler of a coming event will read: with many flows their states lie in
/// main memory.
#[inline]
fn fetch(network: &Network, event: &Event) {
    let (Event::Data(packet) | Event::AckReturns(packet) | Event::Ack(packet)) = event;
    let flow = packet.flow as usize;
    prefetch(&network.pairs[network.routes[flow].pair as usize]);
    match event {
        Event::Data(_) => prefetch(&network.receivers[flow]),
        Event::Ack(_) => prefetch(&network.senders[flow]),
        Event::AckReturns(_) => {}
    }
}

/// A calendar whose buckets hold about one event each and reach past most round trips.
fn packet_calendar(scenario: &Scenario) -> Calendar<Event> {
    let packets_per_sec = scenario
        .bottleneck
        .rate
        .packets_per_sec(scenario.packet())
        .max(1.0);
    let spacing_ns = 1e9 / packets_per_sec;
    Calendar::new(spacing_ns as u64, 500_000_000)
}
