//! Hosts at both ends of the network: the simulator's applications, over sockets of the kernel.
//!
//! This file has the agenda, which performs the script of each traffic and starts programs at their
//! times. `connections.rs` has the sockets, and `observations.rs` what is reported of them.

mod connections;
mod observations;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::io;
use std::net::SocketAddrV4;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;

use forebay_scenario::{Scenario, Setting, Traffic, TrafficKind};
use forebay_sim::calls::Calls;
use forebay_sim::traffic::{Action, Script, Switch};
use forebay_units::Time;
use nix::sys::epoll::{Epoll, EpollEvent, EpollFlags};

use super::network::{enter, Group};
use super::programs::{self, Program};
use super::recorded::Recorded;
use crate::record::RunRecord;

/// The first source port of a sender.
const FIRST_PORT: u16 = 10_000;

/// Time that servers have to start listening, on the guest's clock. Starting a process takes no
/// time there.
const UNTIL_SERVERS_LISTEN: Duration = Duration::from_millis(500);

/// The source of an epoll event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ready {
    /// The timer of the clock.
    Timer,
    /// The device before a queue of this workspace.
    Bottleneck,
    /// The TCP sink with this number.
    Listener(u32),
    /// The UDP sink with this number.
    Datagrams(u32),
    /// The sender's socket of the connection with this number.
    Sender(u32),
    /// The receiver's socket of the connection with this number.
    Receiver(u32),
}

impl Ready {
    /// Returns the tag of the source's events.
    pub fn tag(self) -> u64 {
        let (kind, number) = match self {
            Ready::Timer => (0, 0),
            Ready::Bottleneck => (1, 0),
            Ready::Listener(n) => (2, n),
            Ready::Datagrams(n) => (3, n),
            Ready::Sender(n) => (4, n),
            Ready::Receiver(n) => (5, n),
        };
        kind << 32 | u64::from(number)
    }

    /// Returns the source with this tag.
    pub fn of(tag: u64) -> Ready {
        let number = u32::try_from(tag & 0xffff_ffff).unwrap_or(0);
        match tag >> 32 {
            0 => Ready::Timer,
            1 => Ready::Bottleneck,
            2 => Ready::Listener(number),
            3 => Ready::Datagrams(number),
            4 => Ready::Sender(number),
            _ => Ready::Receiver(number),
        }
    }
}

/// All flows of one traffic.
struct TrafficSockets {
    script: Script,
    /// The number of the traffic's first flow.
    first: u32,
    /// The number of transfers under way.
    transfers: u32,
    calls: Option<Calls>,
    /// Data packets that the traffic's senders sent and retransmitted within the window.
    sent: (u64, u64),
    recorded: Option<Recorded>,
}

/// One flow.
struct FlowSockets {
    class: u32,
    group: usize,
    /// The number of the flow's connection with endless data, or of its datagram socket.
    connection: Option<u32>,
    /// Bytes delivered since the start of the run.
    delivered: u64,
    /// Bytes delivered before the window.
    before: u64,
    /// Bytes delivered within the window.
    within: u64,
}

/// A TCP connection, or a UDP socket.
struct Connection {
    socket: Option<OwnedFd>,
    receiver: Option<OwnedFd>,
    flow: u32,
    /// Bytes that are still to be written to the socket; `None` is endless.
    left: Option<u64>,
    transfer: Option<(Time, u32)>,
    /// Packets that were sent and retransmitted before the window.
    sent: (u32, u32),
}

/// Both ends of all traffic.
pub struct Hosts<'a> {
    scenario: &'a Scenario,
    groups: &'a [Group],
    epoll: &'a Epoll,
    classes: Vec<TrafficSockets>,
    flows: Vec<FlowSockets>,
    connections: Vec<Connection>,
    listeners: Vec<Option<OwnedFd>>,
    datagrams: Vec<Option<OwnedFd>>,
    /// The number of the connection with each address and port of a sender.
    by_address: HashMap<SocketAddrV4, u32>,
    next_port: Vec<u16>,
    namespace: String,
    agenda: BinaryHeap<Reverse<(Time, u64, Task)>>,
    tasks: u64,
    window: (Time, Time),
    place: Place,
    programs: Vec<Program>,
    /// The record of the run.
    pub outcome: RunRecord,
}

/// The folders of a run.
pub struct Place {
    /// The folder of the run, whose files the host reads afterwards.
    pub run: PathBuf,
    /// The folder of the scenario.
    pub scenario: PathBuf,
}

/// A task of the agenda.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Task {
    Change(usize),
    Act(u32),
    Arrival(u32),
    Coming(u32),
    Start(usize),
    Stop(usize),
}

impl<'a> Hosts<'a> {
    /// Opens the sinks, and draws the same random numbers as the simulator for the start of each
    /// flow.
    ///
    /// # Errors
    /// The kernel refuses a call.
    pub fn new(
        scenario: &'a Scenario,
        groups: &'a [Group],
        seed: u64,
        epoll: &'a Epoll,
        place: Place,
    ) -> io::Result<Hosts<'a>> {
        let mut hosts = Hosts {
            scenario,
            groups,
            epoll,
            classes: Vec::new(),
            flows: Vec::new(),
            connections: Vec::new(),
            listeners: Vec::new(),
            datagrams: Vec::new(),
            by_address: HashMap::new(),
            next_port: vec![FIRST_PORT; groups.len()],
            namespace: String::new(),
            agenda: BinaryHeap::new(),
            tasks: 0,
            window: scenario.measure,
            place,
            programs: Vec::new(),
            outcome: RunRecord::default(),
        };
        for group in groups {
            hosts.open_sinks(group)?;
        }
        for (index, traffic) in scenario.traffic.iter().enumerate() {
            hosts.add_flows(index, traffic, seed)?;
        }
        for (number, change) in scenario.changes.iter().enumerate() {
            hosts.schedule(change.at, Task::Change(number));
        }
        Ok(hosts)
    }

    fn enter(&mut self, namespace: String) -> io::Result<()> {
        if namespace != self.namespace {
            enter(&namespace)?;
            self.namespace = namespace;
        }
        Ok(())
    }

    fn add(&self, fd: &OwnedFd, flags: EpollFlags, ready: Ready) -> io::Result<()> {
        Ok(self.epoll.add(fd, EpollEvent::new(flags, ready.tag()))?)
    }

    /// Adds the flows of a traffic as the simulator does, with random streams of the same names.
    fn add_flows(&mut self, index: usize, traffic: &Traffic, seed: u64) -> io::Result<()> {
        let mut script = Script::new(seed, index, traffic, &self.scenario.changes);
        let count = script.flows();
        let first = crate::count(self.flows.len());
        let first_group = self.groups.iter().position(|it| it.traffic == index);
        let first_group = first_group.expect("each traffic has a group");
        let rtts = match traffic.kind {
            TrafficKind::Program(_) => count.max(1) as usize,
            _ => traffic.rtts.len().max(1),
        };
        let class = crate::count(index);
        for i in 0..count {
            self.flows.push(FlowSockets {
                class,
                group: first_group + i as usize % rtts,
                connection: None,
                delivered: 0,
                before: 0,
                within: 0,
            });
            if let Some(at) = script.next_at(i) {
                self.schedule(at, Task::Act(first + i));
            }
            let declared = script.declared(i);
            if let (TrafficKind::Program(program), Some((start, stop))) = (&traffic.kind, declared)
            {
                let group = first_group + i as usize;
                self.add_programs(program, group, i, start, stop)?;
            }
        }
        if let Some(at) = script.first_arrival() {
            self.schedule(at, Task::Arrival(class));
        }
        let mut recorded = None;
        if let Some(at) = script.first_coming() {
            self.enter(self.groups[first_group].source_namespace())?;
            recorded = Some(Recorded::new(&self.groups[first_group])?);
            self.schedule(at, Task::Coming(class));
        }
        self.classes.push(TrafficSockets {
            script,
            first,
            transfers: 0,
            calls: matches!(traffic.kind, TrafficKind::Voice(_)).then(|| Calls::new(count)),
            sent: (0, 0),
            recorded,
        });
        Ok(())
    }

    fn add_programs(
        &mut self,
        program: &forebay_scenario::Program,
        group: usize,
        flow: u32,
        start: Time,
        stop: Option<Time>,
    ) -> io::Result<()> {
        let group = &self.groups[group];
        let folder = programs::folder(group.traffic, &self.place.scenario, &program.files)?;
        let ends = [
            (true, program.server.as_deref()),
            (false, Some(program.client.as_str())),
        ];
        for (server, command) in ends {
            let Some(command) = command else { continue };
            let number = self.programs.len();
            let run = &self.place.run;
            let made = Program::new(group, flow, server, command, (run, &folder), number);
            self.programs.push(made);
            if !server {
                self.schedule(start, Task::Start(number));
                if let Some(stop) = stop {
                    self.schedule(stop, Task::Stop(number));
                }
            }
        }
        Ok(())
    }

    /// Starts the servers before the clock of the run starts, and gives them time to listen.
    ///
    /// # Errors
    /// Those of setns(2).
    pub fn start_servers(&mut self) -> io::Result<()> {
        let clients: Vec<usize> = (self.agenda.iter())
            .filter_map(|Reverse((_, _, task))| match task {
                Task::Start(number) => Some(*number),
                _ => None,
            })
            .collect();
        let servers = (0..self.programs.len()).filter(|number| !clients.contains(number));
        let servers: Vec<usize> = servers.collect();
        for number in &servers {
            self.start_program(*number)?;
        }
        if !servers.is_empty() {
            std::thread::sleep(UNTIL_SERVERS_LISTEN);
        }
        Ok(())
    }

    fn start_program(&mut self, number: usize) -> io::Result<()> {
        self.enter(self.programs[number].namespace().to_owned())?;
        self.programs[number].start();
        Ok(())
    }

    /// Notes which programs have ended.
    pub fn look_at_programs(&mut self) {
        self.programs.iter_mut().for_each(Program::reap);
    }

    fn schedule(&mut self, at: Time, task: Task) {
        self.tasks += 1;
        self.agenda.push(Reverse((at, self.tasks, task)));
    }

    fn schedule_act(&mut self, flow: u32) {
        let (script, number) = self.script_of(flow);
        if let Some(at) = script.next_at(number) {
            self.schedule(at, Task::Act(flow));
        }
    }

    /// Returns the script of a flow's traffic, and the flow's number there.
    fn script_of(&mut self, flow: u32) -> (&mut Script, u32) {
        let class = &mut self.classes[self.flows[flow as usize].class as usize];
        (&mut class.script, flow - class.first)
    }

    /// Returns the time of the next task; `Time::NEVER` where there is none.
    pub fn due(&self) -> Time {
        let first = self.agenda.peek();
        first.map_or(Time::NEVER, |Reverse((at, _, _))| *at)
    }

    /// Carries out all tasks that are due. Changes of the bottleneck go to `change`, by their
    /// number.
    ///
    /// # Errors
    /// The kernel refuses a call.
    pub fn advance(
        &mut self,
        now: Time,
        mut change: impl FnMut(usize) -> io::Result<()>,
    ) -> io::Result<()> {
        while let Some(Reverse((at, _, task))) = self.agenda.peek().copied() {
            if at > now {
                break;
            }
            self.agenda.pop();
            match task {
                Task::Act(flow) => self.act(at, flow)?,
                Task::Arrival(class) => self.arrive(at, class),
                Task::Coming(class) => self.come(at, class)?,
                Task::Start(number) => self.start_program(number)?,
                Task::Stop(number) => self.programs[number].ask_to_end(),
                Task::Change(number) => match self.scenario.changes[number].what {
                    Setting::Flows { traffic, flows } => self.set_active(at, traffic, flows),
                    Setting::Link { .. } => change(number)?,
                },
            }
        }
        Ok(())
    }

    fn arrive(&mut self, now: Time, class: u32) {
        let of = &mut self.classes[class as usize];
        let first = of.first;
        let (flow, next) = of.script.arrive(now);
        if let Some(flow) = flow {
            self.schedule_act(first + flow);
        }
        if let Some(next) = next {
            self.schedule(next, Task::Arrival(class));
        }
    }

    /// Sends the recorded packets that are due at `now`.
    fn come(&mut self, now: Time, class: u32) -> io::Result<()> {
        let of = &mut self.classes[class as usize];
        let Some(recorded) = &mut of.recorded else {
            return Ok(());
        };
        let next = loop {
            if recorded.coming.is_empty() {
                let coming = &mut recorded.coming;
                of.script.coming(&mut |it| coming.push_back(it));
            }
            match recorded.coming.front().copied() {
                Some(coming) if coming.at <= now => {
                    recorded.coming.pop_front();
                    recorded.send(coming)?;
                }
                next => break next,
            }
        };
        if let Some(coming) = next {
            self.schedule(coming.at, Task::Coming(class));
        }
        Ok(())
    }

    /// Performs the act that is due at `now` and schedules the next one.
    fn act(&mut self, now: Time, flow: u32) -> io::Result<()> {
        let (script, number) = self.script_of(flow);
        let Some(action) = script.take_due(number, now) else {
            return Ok(());
        };
        match action {
            Action::Open | Action::Fresh => self.open(now, flow)?,
            Action::Close => self.close(flow),
            Action::Transfer(packets) => self.begin_transfer(now, flow, packets)?,
            Action::Send => self.send_datagram(now, flow)?,
        }
        self.schedule_act(flow);
        Ok(())
    }

    /// Lets the first `active` flows of a traffic run, and stops the others.
    fn set_active(&mut self, now: Time, traffic: usize, active: u32) {
        let class = &mut self.classes[traffic];
        let (first, flows) = (class.first, &self.flows);
        let switches = class.script.set_active(now, active, |flow| {
            flows[(first + flow) as usize].connection.is_some()
        });
        for (flow, switch) in switches {
            match switch {
                Switch::Closes => self.close(first + flow),
                Switch::Starts(Some(at)) => self.schedule(at, Task::Act(first + flow)),
                Switch::Starts(None) => {}
            }
        }
    }
}
