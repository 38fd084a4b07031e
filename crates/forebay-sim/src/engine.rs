//! Runs a network: events in order of time, an event only where order can change.
//!
//! With one bottleneck a data packet costs three: its arrival there, its ACK's arrival at the
//! shared way back, and that ACK's arrival at the sender; each further station adds one. The
//! links' ends of transmission, the laws' clocks and the sampler are one pending time each and
//! stay out of the calendar. Everything else is arithmetic: access links and the links
//! themselves are FIFO, so what leaves a queue can be followed to the receiver, through it, and
//! back to the next place where flows meet.

mod applications;
mod changes;
mod packets;

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

    fn next_tick(&self) -> u64 {
        self.ports.iter().map(tick_of).min().unwrap_or(NEVER)
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
