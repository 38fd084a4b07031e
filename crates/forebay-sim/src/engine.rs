//! Runs a network: events in order of time, an event only where order can change.
//!
//! With one bottleneck a data packet costs three: its arrival there, its ACK's arrival at the
//! shared way back, and that ACK's arrival at the sender; each further station adds one. The
//! links' ends of transmission, the laws' clocks and the sampler are one pending time each and
//! stay out of the queues. Everything else is arithmetic: access links and the links
//! themselves are FIFO, so what leaves a queue can be followed to the receiver, through it, and
//! back to the next place where flows meet.
//!
//! Each of the three kinds of event has a queue of its own. The clock is the senders'; what
//! happens inside the network is caught up with when something outside may depend on it.

mod applications;
mod changes;
mod packets;

use std::sync::atomic::Ordering;
use std::sync::Arc;

use forebay_core::cast::whole_u64;
use forebay_core::{Aqm, Discipline, Ecn, ParamError, Span, Time, TrafficClass};
use forebay_scenario::{Link, LinkSetting, Scenario, Setting, TrafficKind};
use forebay_trace::{
    Call, FlowTotals, GoodputRecorder, Recorder, Settings, Trace, Transfer, Viewer,
};

use crate::blocks::{AckOptions, BlockStore};
use crate::calendar::Calendar;
use crate::calls::Calls;
use crate::events::{EventQueue, Ties};
use crate::line::Wire;
use crate::network::{Begun, Class, Hop, Network, Pair, Tcp};
use crate::number::count;
use crate::packet::{Flags, Packet, HEADER_BYTES, NO_BLOCKS};
use crate::port::{Port, Sent};
use crate::prefetch::prefetch;
use crate::tcp::{Ack, Outcome, Receiver, Reply, Segment, Senders, Step, NEVER};
use crate::traffic::{Act, Action};
use crate::Watch;

/// A flow's own times. They outnumber packets where flows are many, so they are kept apart and
/// small.
#[derive(Clone, Copy, Debug)]
enum Alarm {
    /// The retransmission timer may be due.
    Retransmit(u32),
    /// Pacing lets a flow's next packets go.
    Pace(u32),
    /// A delayed ACK may be due.
    DelayedAck(u32),
    /// The application acts.
    Act(u32),
    /// Flows of this traffic may arrive.
    Arrival(u32),
    /// Packets of this traffic come by themselves.
    Coming(u32),
}

/// Packets from pairs of like links arrive in the order in which they were sent: a delay line for
/// each kind of pair, and inside a network of several links one each for data and ACKs.
const INSIDE_LINES: usize = 2;
const DATA: usize = 0;
const ACK: usize = 1;

/// With more kinds of pair their packets wait in the calendar.
const MOST_CLASSES: usize = 256;

/// With more kinds of pair, packets that come at one time keep the order in which they were sent.
const LINES_FIRST_CLASSES: usize = 4;

/// Fewer flows' state stays in the cache by itself.
const FETCH_FLOWS: usize = 1000;

/// How many events pass between two looks at the watch.
const WATCH_EVERY: u32 = 1 << 14;

/// With `ONE` there is one link, and the questions which link it is and where a packet goes next
/// have answers that the compiler knows.
pub struct Engine<const ONE: bool> {
    scenario: Arc<Scenario>,
    network: Network,
    /// By link.
    ports: Vec<Port>,
    /// The link that is free first, and when; with one link the port says so.
    link_at: usize,
    link_free: u64,
    /// By link: the way back where no link is, with the same rate and delay, never full.
    backs: Vec<Back>,
    /// Packets that reach a station.
    inside: EventQueue<Packet>,
    /// With one link: ACKs that reach the line back.
    returns: EventQueue<Packet>,
    /// ACKs that reach their sender.
    acks: EventQueue<Packet>,
    /// How long after the arrival of a packet at a station nothing outside the network can come
    /// of it; see [`Engine::look_ahead`].
    inside_ahead_ns: u64,
    /// The same for the arrival of an ACK at the line back.
    returns_ahead_ns: u64,
    /// A bucket holds many of them.
    alarms: Calendar<Alarm, 16>,
    blocks: BlockStore,
    segments: Vec<Segment>,
    /// How many changes of the scenario have been made.
    changed: usize,
    window: (u64, u64),
    end: u64,
    agenda: Agenda,
    goodput: GoodputRecorder,
    /// By flow, for `goodput`.
    totals: Vec<u64>,
    /// Samples of a row of it.
    goodput_every: u64,
}

/// A line and when it is next free.
struct Back {
    wire: Wire,
    free: u64,
}

/// The next time of each kind of thing that happens at few places.
struct Agenda {
    /// The first of all below; [`Agenda::look`] finds it anew once one has moved back.
    first: u64,
    change: u64,
    tick: u64,
    /// When the time inside the network has to be brought up to the clock.
    inside: u64,
    /// The same for the line back.
    returns: u64,
    sample: u64,
    alarm: u64,
    /// Just past the end of the run.
    over: u64,
}

impl Agenda {
    fn look(&mut self) {
        self.first = (self.change.min(self.tick))
            .min(self.inside.min(self.returns))
            .min(self.sample.min(self.alarm))
            .min(self.over);
    }

    #[inline(always)]
    fn inside_by(&mut self, at: u64) {
        self.inside = self.inside.min(at);
        self.first = self.first.min(at);
    }

    #[inline(always)]
    fn returns_by(&mut self, at: u64) {
        self.returns = self.returns.min(at);
        self.first = self.first.min(at);
    }

    #[inline(always)]
    fn alarm_by(&mut self, at: u64) {
        self.alarm = self.alarm.min(at);
        self.first = self.first.min(at);
    }
}

impl<const ONE: bool> Engine<ONE> {
    /// `queues` are those of the links, in order.
    pub fn new(scenario: Arc<Scenario>, queues: Vec<Queue>, seed: u64) -> Self {
        let whole = Arc::clone(&scenario);
        let scenario = &*whole;
        let settings = Settings {
            interval: scenario.sample,
            window: scenario.measure,
        };
        let ports = ports(scenario, queues, settings);
        let back = |link: &Link| Back {
            wire: Wire::new(link.rate.as_bps(), link.delay.as_nanos()),
            free: 0,
        };
        let network = Network::new(scenario, seed);
        let inside_lines = if ONE { 1 } else { INSIDE_LINES };
        let (start, end) = scenario.measure;
        let samples = scenario.duration.as_nanos() / scenario.sample.as_nanos();
        let goodput_every = GoodputRecorder::every(samples);
        let classes = network.classes.iter();
        let mut engine = Engine {
            link_at: 0,
            link_free: NEVER,
            inside: event_queue(scenario, &network, inside_lines),
            returns: event_queue(scenario, &network, 1),
            acks: event_queue(scenario, &network, 1),
            inside_ahead_ns: 0,
            returns_ahead_ns: 0,
            // 1 ms wide, past the longest timeout of a minute.
            alarms: Calendar::new(1 << 20, 65_000_000_000),
            backs: scenario.all_links().map(back).collect(),
            blocks: BlockStore::default(),
            segments: Vec::new(),
            changed: 0,
            window: (start.as_nanos(), end.as_nanos()),
            end: scenario.duration.as_nanos(),
            agenda: Agenda {
                first: 0,
                change: NEVER,
                tick: NEVER,
                inside: NEVER,
                returns: NEVER,
                sample: scenario.sample.as_nanos(),
                alarm: NEVER,
                over: scenario.duration.as_nanos() + 1,
            },
            goodput: GoodputRecorder::new(
                scenario.sample * goodput_every,
                classes.map(|class| class.count),
            ),
            totals: Vec::new(),
            goodput_every,
            scenario: Arc::clone(&whole),
            network,
            ports,
        };
        engine.agenda.change = engine.next_change();
        engine.agenda.tick = engine.next_tick();
        engine.look_at_links();
        engine.look_ahead();
        for flow in 0..count(engine.network.flows.len()) {
            engine.schedule_act(flow);
        }
        for class in 0..engine.network.classes.len() {
            let first = engine.network.classes[class].application.first_arrival();
            engine.schedule_arrival(count(class), first.unwrap_or(NEVER));
            let first = engine.network.classes[class].application.first_coming();
            engine.schedule_coming(count(class), first);
        }
        engine.agenda.look();
        engine
    }

    /// Runs to the end; `None` if cancelled.
    pub fn run(mut self, watch: &Watch) -> Option<Trace> {
        self.run_until(self.end, watch).then(|| self.finish())
    }

    /// What has been recorded at the bottleneck so far.
    pub fn bottleneck(&self) -> &Recorder {
        &self.ports[0].record.recorder
    }

    /// What all flows have got so far.
    pub fn delivered_bytes(&self) -> u64 {
        let receivers = self.network.receivers.iter();
        receivers
            .map(|it| it.delivered_bytes + it.outside_bytes)
            .sum()
    }

    /// Runs on until just after `until`, and not past the end; whether nobody cancelled it.
    pub fn run_until(&mut self, until: u64, watch: &Watch) -> bool {
        let until = until.min(self.end);
        self.agenda.over = until + 1;
        self.agenda.look();
        let mut since_watch = 0;
        loop {
            since_watch += 1;
            let single = self.agenda.first;
            if self.acks.next_time() < single {
                self.next_ack();
            } else if single > until {
                break;
            } else {
                self.handle_single(single);
                self.agenda.look();
            }
            if since_watch == WATCH_EVERY {
                since_watch = 0;
                watch.now_ns.store(single.min(until), Ordering::Relaxed);
                if watch.cancel.load(Ordering::Relaxed) {
                    return false;
                }
            }
        }
        if until == self.end {
            self.pass_inside(until + 1, until + 1);
        }
        watch.now_ns.store(until, Ordering::Relaxed);
        true
    }

    /// Sets how far the time inside a network of one link may fall behind the clock: then what
    /// happens inside is done by many at a time, with no search for what comes next.
    ///
    /// What happens to a packet at the link reaches a host after the link's delay and that of an
    /// access link, and an ACK that enters the line back its sender likewise. Senders tell the
    /// inside of nothing that has passed, and receivers' clocks, samples and changes have it
    /// brought up to them. With several links the order in which stations and senders send
    /// decides ties, so there it falls behind nothing.
    fn look_ahead(&mut self) {
        if ONE {
            let access_ns = self.network.least_access_ns();
            self.inside_ahead_ns = self.ports[0].delay_ns + access_ns;
            self.returns_ahead_ns = self.backs[0].wire.delay_ns + access_ns;
        }
        self.agenda.inside = self.next_inside_deadline();
        self.agenda.returns = self.next_returns_deadline();
    }

    /// The trace of the bottleneck with those of the other links, each with the flows whose data
    /// crosses it.
    pub fn finish(self) -> Trace {
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
        let goodput = &self.goodput;
        let traces = self.ports.into_iter().enumerate().map(|(link, port)| {
            let totals = |(traffic, flow): (usize, usize)| FlowTotals {
                traffic: count(traffic),
                delivered_bytes: delivered[flow],
            };
            let recorder = port.record.recorder;
            let crossed_by = || {
                let classes = (0..).zip(&network.classes);
                classes.filter(|(_, class)| class.links.contains(&link))
            };
            Trace {
                goodput: goodput.crossing(|traffic| network.classes[traffic].links.contains(&link)),
                transfers: crossed_by()
                    .flat_map(|(_, class)| class.transfers.iter().copied())
                    .collect(),
                calls: crossed_by()
                    .flat_map(|(traffic, class)| {
                        let seen = class.calls.iter().flat_map(Calls::seen);
                        seen.map(move |call| Call { traffic, ..call })
                    })
                    .collect(),
                viewers: crossed_by()
                    .flat_map(|(traffic, class)| {
                        let seen = class.application.viewers(self.window).into_iter();
                        seen.map(move |viewer| Viewer { traffic, ..viewer })
                    })
                    .collect(),
                ..recorder.finish(crossing(link).map(totals).collect())
            }
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

    /// Things of one time happen in the order: change, tick, link, sample, alarm, packet.
    #[inline(never)]
    fn handle_single(&mut self, now: u64) {
        if now == self.agenda.change {
            self.pass_inside(now, now);
            self.pass_back(now);
            self.apply_change(now);
        } else if now == self.agenda.tick {
            self.pass_inside(now, now);
            for port in &mut self.ports {
                if tick_of(port) == now {
                    port.discipline.handle_timeout(Time::from_nanos(now));
                }
            }
            self.agenda.tick = self.next_tick();
        } else if now == self.agenda.returns {
            self.pass_back(now + 1);
        } else if now == self.agenda.sample {
            self.pass_inside(now + 1, now);
            // Of the bottleneck alone.
            let mut in_flight_pkts = self.mean_in_flight_pkts();
            for port in &mut self.ports {
                port.sample(now, in_flight_pkts.take());
                for blocks in port.record.lost_blocks.drain(..) {
                    self.blocks.take(blocks);
                }
            }
            if (now / self.scenario.sample.as_nanos()).is_multiple_of(self.goodput_every) {
                self.sample_goodput();
            }
            self.agenda.sample += self.scenario.sample.as_nanos();
        } else if now == self.agenda.alarm {
            self.handle_alarm(now);
        } else {
            self.pass_inside(now + 1, now + 1);
        }
    }

    /// Packets in flight of a flow of ftp over the bottleneck that has data, where the scenario
    /// asks; NaN while there is none.
    fn mean_in_flight_pkts(&mut self) -> Option<f64> {
        self.scenario.windows.then(|| {
            let (mut flows, mut pkts) = (0_u32, 0_u64);
            let classes = self.network.classes.iter_mut().zip(&self.scenario.traffic);
            for (class, traffic) in classes {
                let lasting = matches!(traffic.kind, TrafficKind::Ftp(_));
                let (true, Some(tcp)) = (lasting && class.links.contains(&0), &mut class.tcp)
                else {
                    continue;
                };
                for flow in class.first..class.first + class.count {
                    let sender = self.network.routes[flow as usize].sender;
                    if let Some(in_flight) = tcp.senders.endless_in_flight_pkts(sender) {
                        flows += 1;
                        pkts += u64::from(in_flight);
                    }
                }
            }
            pkts as f64 / f64::from(flows)
        })
    }

    /// What flows got since the last call. A packet counts when it leaves its last queue.
    fn sample_goodput(&mut self) {
        let network = &self.network;
        let flows: u32 = network.classes.iter().map(|class| class.count).sum();
        self.totals.clear();
        self.totals.resize(flows as usize, 0);
        for (flow, receiver) in network.flows.iter().zip(&network.receivers) {
            self.totals[flow.owner as usize] += receiver.delivered_bytes + receiver.outside_bytes;
        }
        self.goodput.row(&self.totals);
    }

    fn handle_alarm(&mut self, now: u64) {
        let alarm = self.alarms.pop().map(|entry| entry.event);
        if !ONE || !matches!(alarm, Some(Alarm::Retransmit(_))) {
            // It may have to do with a receiver.
            self.pass_inside(now + 1, now);
        }
        match alarm {
            Some(Alarm::Retransmit(flow)) => self.check_timer(now, flow),
            Some(Alarm::Pace(flow)) => self.pace(now, flow),
            Some(Alarm::DelayedAck(flow)) => self.check_delayed_ack(now, flow),
            Some(Alarm::Act(flow)) => self.act(now, flow),
            Some(Alarm::Arrival(class)) => self.arrive(now, class),
            Some(Alarm::Coming(class)) => self.take_coming(class),
            None => {}
        }
        let network = &self.network;
        let next = self.alarms.peek_and(|alarms| {
            for entry in alarms {
                if let Alarm::Retransmit(flow) = entry.event {
                    network.prefetch_sender(flow);
                }
            }
        });
        self.agenda.alarm = next.map_or(NEVER, |entry| entry.time);
    }

    /// Every push of an alarm goes through here, so that the agenda knows the first.
    #[inline(never)]
    fn set_alarm(&mut self, at: u64, alarm: Alarm) {
        self.alarms.push(at, alarm);
        self.agenda.alarm_by(at);
    }

    fn next_tick(&self) -> u64 {
        self.ports.iter().map(tick_of).min().unwrap_or(NEVER)
    }
}

pub type Queue = Box<dyn Discipline<Packet>>;

/// The queue of each link, under its own law or the one under test.
///
/// # Errors
/// The law under test does not fit a queue.
pub fn queues(scenario: &Scenario, tested: &Aqm, seed: u64) -> Result<Vec<Queue>, ParamError> {
    let queue = |(i, link): (usize, &Link)| {
        let stream = match i {
            0 => "law".to_owned(),
            _ => format!("law {i}"),
        };
        let site = scenario.queue_site(link);
        match &link.law {
            Some(own) => own.aqm().build(&site, seed, &stream),
            None => tested.build(&site, seed, &stream),
        }
    };
    scenario.all_links().enumerate().map(queue).collect()
}

/// The port of each link.
fn ports(scenario: &Scenario, queues: Vec<Queue>, settings: Settings) -> Vec<Port> {
    let port = |(link, queue): (&Link, Queue)| {
        Port::new(queue, settings, link.capacity(), link.delay.as_nanos())
    };
    scenario.all_links().zip(queues).map(port).collect()
}

/// When a port's law wants to be called.
fn tick_of(port: &Port) -> u64 {
    let due = port.discipline.poll_timeout();
    due.map_or(NEVER, Time::as_nanos)
}

/// A queue of packets with `lines` delay lines for each kind of pair; the calendar's buckets
/// hold about one packet each and reach past most round trips.
fn event_queue(scenario: &Scenario, network: &Network, lines: usize) -> EventQueue<Packet> {
    let rates = scenario.all_links().map(|link| link.rate);
    let fastest = rates.max().unwrap_or(scenario.bottleneck.rate);
    let packets_per_sec = fastest.packets_per_sec(scenario.packet()).max(1.0);
    let spacing_ns = 1e9 / packets_per_sec;
    let classes = network.pair_classes();
    EventQueue::new(
        whole_u64(spacing_ns),
        500_000_000,
        if classes <= MOST_CLASSES {
            lines * classes
        } else {
            0
        },
        if classes <= LINES_FIRST_CLASSES {
            Ties::LinesFirst
        } else {
            Ties::PushedFirst
        },
        network.flows.len() >= FETCH_FLOWS,
    )
}
