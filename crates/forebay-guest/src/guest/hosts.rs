//! Hosts at both ends of the network: the simulator's applications, over sockets of the kernel.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

use forebay_scenario::{EcnChoice, Scenario, Setting, Traffic, TrafficKind};
use forebay_sim::calls::Calls;
use forebay_sim::traffic::{Action, Script, Switch};
use forebay_units::Time;
use nix::libc;
use nix::sys::epoll::{Epoll, EpollEvent, EpollFlags};

use super::network::{enter, Group};
use super::programs::{self, Program};
use super::recorded::Recorded;
use super::sys;
use super::syscalls::{CallResult, Syscalls, ZEROS};
use crate::limits::{congestion_control, ETHERNET_BYTES};
use crate::record::RunRecord;

/// The port at which sinks of TCP and of UDP listen, in each namespace of sinks.
const SINK_PORT: u16 = 5000;
/// The first source port of a sender.
const FIRST_PORT: u16 = 10_000;
/// The size of the headers of UDP and IPv4.
const UDP_BYTES: u64 = 28;
/// Unsent data of an endless flow that the kernel may hold (TCP_NOTSENT_LOWAT), in bytes.
const UNSENT_BYTES: i32 = 1 << 17;
/// Unsent data of a flow that will stop, in packets. It is small because a flow of the simulator
/// sends no new data after its stop.
const UNSENT_PKTS: u64 = 2;

/// Time that servers have to start listening, on the guest's clock. Starting a process takes no
/// time there.
const UNTIL_SERVERS_LISTEN: Duration = Duration::from_millis(500);

/// Events which say that the other side of a connection has closed it, or that there is no
/// connection.
const OVER: EpollFlags = EpollFlags::EPOLLRDHUP
    .union(EpollFlags::EPOLLHUP)
    .union(EpollFlags::EPOLLERR);

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

    fn open_sinks(&mut self, group: &Group) -> io::Result<()> {
        let traffic = &self.scenario.traffic[group.traffic];
        if group.only_flow.is_some() || group.recorded {
            // A program has the port itself, and recorded packets have no receiver. The empty
            // entries
            // keep the numbers of sinks equal to those of groups.
            self.listeners.push(None);
            self.datagrams.push(None);
            return Ok(());
        }
        self.enter(group.sink_namespace())?;
        let any = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, SINK_PORT);
        let number = crate::count(self.listeners.len());
        let listener = sys::socket(libc::AF_INET, libc::SOCK_STREAM, 0)?;
        if let Some(tcp) = traffic.kind.tcp() {
            // The receiver echoes marks in DCTCP (RFC 8257, section 3.2), and possibly in a
            // congestion
            // control that the scenario names.
            let name = congestion_control(self.scenario, tcp.sender().name).unwrap_or("cubic");
            let both = name == "dctcp" || self.scenario.kernel.tcp.is_some();
            let name = if both { name } else { "cubic" };
            sys::set_congestion_control(&listener, name)?;
            let clamp = u64::from(tcp.window.0).saturating_mul(payload(traffic));
            if let Ok(clamp) = i32::try_from(clamp) {
                if clamp < 32 << 20 {
                    sys::set_option(&listener, libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP, &clamp)?;
                }
            }
        }
        set_class(&listener, traffic.dscp, false)?;
        sys::set_option(&listener, libc::SOL_SOCKET, libc::SO_REUSEADDR, &1i32)?;
        sys::bind(&listener, any)?;
        sys::listen(&listener)?;
        self.add(&listener, EpollFlags::EPOLLIN, Ready::Listener(number))?;
        self.listeners.push(Some(listener));
        let datagrams = match traffic.kind.tcp() {
            Some(_) => None,
            None => {
                let socket = sys::socket(libc::AF_INET, libc::SOCK_DGRAM, 0)?;
                let room = 1i32 << 26;
                sys::set_option(&socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &room)?;
                sys::bind(&socket, any)?;
                self.add(&socket, EpollFlags::EPOLLIN, Ready::Datagrams(number))?;
                Some(socket)
            }
        };
        self.datagrams.push(datagrams);
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

    /// Opens a new connection of `flow` and returns its number.
    fn connect(
        &mut self,
        flow: u32,
        left: Option<u64>,
        begun: Option<(Time, u32)>,
    ) -> io::Result<u32> {
        let scenario = self.scenario;
        let at = &self.flows[flow as usize];
        let (group, class) = (at.group, at.class as usize);
        let traffic = &scenario.traffic[class];
        let groups = self.groups;
        self.enter(groups[group].source_namespace())?;
        let (from, to) = self.ends(flow);
        let tcp = traffic.kind.tcp();
        let kind = if tcp.is_some() {
            libc::SOCK_STREAM
        } else {
            libc::SOCK_DGRAM
        };
        let socket = sys::socket(libc::AF_INET, kind, 0)?;
        let number = crate::count(self.connections.len());
        if let Some(tcp) = tcp {
            let name = congestion_control(self.scenario, tcp.sender().name).unwrap_or("cubic");
            sys::set_congestion_control(&socket, name)
                .map_err(|error| io::Error::other(format!("congestion control {name}: {error}")))?;
            let ends = left.is_none() && !matches!(traffic.kind, TrafficKind::Ftp(_))
                || traffic.stop.is_some();
            let unsent = match ends {
                true => i32::try_from(UNSENT_PKTS * payload(traffic)).unwrap_or(UNSENT_BYTES),
                false => UNSENT_BYTES,
            };
            sys::set_option(&socket, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, &unsent)?;
            set_class(&socket, traffic.dscp, false)?;
        } else {
            set_class(
                &socket,
                traffic.dscp,
                traffic.kind.ecn() == EcnChoice::Classic,
            )?;
            // With this option, each packet has an identification in its IP header, by which the
            // taps recognise it.
            let discover = libc::IP_PMTUDISC_DO;
            sys::set_option(&socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, &discover)?;
            let room = 1i32 << 24;
            sys::set_option(&socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &room)?;
        }
        sys::set_option(&socket, libc::SOL_SOCKET, libc::SO_REUSEADDR, &1i32)?;
        sys::bind(&socket, from)?;
        sys::connect(&socket, to)?;
        if tcp.is_some() {
            let flags = EpollFlags::EPOLLOUT | EpollFlags::EPOLLRDHUP | EpollFlags::EPOLLET;
            self.add(&socket, flags, Ready::Sender(number))?;
        }
        self.by_address.insert(from, number);
        self.connections.push(Connection {
            socket: Some(socket),
            receiver: None,
            flow,
            left,
            transfer: begun,
            sent: (0, 0),
        });
        Ok(number)
    }

    /// Returns the addresses of a new connection of `flow`: sender, then receiver.
    fn ends(&mut self, flow: u32) -> (SocketAddrV4, SocketAddrV4) {
        let at = &self.flows[flow as usize];
        let (group, number) = (at.group, flow - self.classes[at.class as usize].first);
        let (from, to) = self.groups[group].addresses(number);
        let port = &mut self.next_port[group];
        let from = SocketAddrV4::new(from, *port);
        *port = if *port == 59_999 {
            FIRST_PORT
        } else {
            *port + 1
        };
        (from, SocketAddrV4::new(to, SINK_PORT))
    }

    fn open(&mut self, _now: Time, flow: u32) -> io::Result<()> {
        self.close(flow);
        let number = self.connect(flow, None, None)?;
        self.flows[flow as usize].connection = Some(number);
        Ok(())
    }

    /// Stops a flow from sending new data. Data in flight is still delivered.
    fn close(&mut self, flow: u32) {
        if let Some(number) = self.flows[flow as usize].connection.take() {
            let connection = &mut self.connections[number as usize];
            connection.left = Some(0);
            if let Some(socket) = &connection.socket {
                sys::shut_down(socket.as_fd());
            }
        }
    }

    fn begin_transfer(&mut self, now: Time, flow: u32, packets: u32) -> io::Result<()> {
        let class = self.flows[flow as usize].class as usize;
        let traffic = &self.scenario.traffic[class];
        let class = &mut self.classes[class];
        if class.transfers >= class.script.most_transfers().max(1) {
            return Ok(());
        }
        class.transfers += 1;
        let bytes = u64::from(packets) * payload(traffic);
        self.connect(flow, Some(bytes), Some((now, packets)))?;
        Ok(())
    }

    fn send_datagram(&mut self, now: Time, flow: u32) -> io::Result<()> {
        let number = match self.flows[flow as usize].connection {
            Some(number) => number,
            None => {
                let number = self.connect(flow, None, None)?;
                self.flows[flow as usize].connection = Some(number);
                number
            }
        };
        let class = self.flows[flow as usize].class as usize;
        let traffic = &self.scenario.traffic[class];
        let bytes = traffic.packet.0 - u64::from(ETHERNET_BYTES) - UDP_BYTES;
        let mut datagram = vec![0; usize::try_from(bytes).expect("a packet's size")];
        let class = &mut self.classes[class];
        if let Some(calls) = &mut class.calls {
            let number = calls.sent(flow - class.first, now);
            datagram[..4].copy_from_slice(&number.to_be_bytes());
        }
        let socket = self.connections[number as usize].socket.as_ref();
        match sys::send(socket.expect("it is open").as_fd(), &datagram) {
            // A datagram for which the sender's kernel has no room is lost before the queue.
            Ok(_) => Ok(()),
            Err(error) => match error.raw_os_error() {
                Some(libc::EAGAIN | libc::ENOBUFS | libc::ECONNREFUSED) => Ok(()),
                _ => Err(error),
            },
        }
    }

    /// Requests the system call that an event of a socket needs, if it is a single call whose
    /// result can wait. Returns whether it is.
    pub fn ask(&self, ready: Ready, flags: EpollFlags, syscalls: &mut Syscalls) -> bool {
        let of = |number: u32| &self.connections[number as usize];
        match ready {
            Ready::Receiver(number) => {
                if let Some(receiver) = &of(number).receiver {
                    syscalls.discard(receiver.as_fd(), number);
                }
                true
            }
            Ready::Sender(number) if of(number).left.is_none() && !flags.intersects(OVER) => {
                if let Some(socket) = &of(number).socket {
                    syscalls.fill(socket.as_fd());
                }
                true
            }
            _ => false,
        }
    }

    /// Handles an event of a socket.
    ///
    /// # Errors
    /// The kernel refuses a call.
    pub fn handle(&mut self, now: Time, ready: Ready, flags: EpollFlags) -> io::Result<()> {
        match ready {
            Ready::Listener(number) => self.accept(number),
            Ready::Datagrams(number) => self.receive_datagrams(now, number),
            Ready::Sender(number) => {
                self.send(number);
                if flags.intersects(OVER) {
                    self.end(now, number);
                }
                Ok(())
            }
            Ready::Timer | Ready::Bottleneck | Ready::Receiver(_) => Ok(()),
        }
    }

    fn accept(&mut self, listener: u32) -> io::Result<()> {
        loop {
            let Some(waiting) = &self.listeners[listener as usize] else {
                return Ok(());
            };
            let Ok((socket, from)) = sys::accept(waiting) else {
                return Ok(());
            };
            let Some(number) = self.by_address.get(&from).copied() else {
                continue;
            };
            let flags = EpollFlags::EPOLLIN | EpollFlags::EPOLLET;
            self.add(&socket, flags, Ready::Receiver(number))?;
            self.connections[number as usize].receiver = Some(socket);
        }
    }

    fn send(&mut self, number: u32) {
        let connection = &mut self.connections[number as usize];
        let Some(socket) = &connection.socket else {
            return;
        };
        loop {
            let most = connection.left.unwrap_or(u64::MAX);
            if most == 0 {
                break;
            }
            let chunk = usize::try_from(most).unwrap_or(usize::MAX).min(ZEROS.len());
            match sys::send(socket.as_fd(), &ZEROS[..chunk]) {
                Ok(sent) => {
                    if let Some(left) = &mut connection.left {
                        *left -= sent as u64;
                        if *left == 0 {
                            sys::shut_down(socket.as_fd());
                        }
                    }
                }
                Err(_) => break,
            }
        }
    }

    /// Counts the data that the receiver of a connection has read.
    pub fn received(&mut self, now: Time, number: u32, given: &CallResult) {
        let connection = &mut self.connections[number as usize];
        let flow = &mut self.flows[connection.flow as usize];
        deliver(flow, self.window, now, given.total);
        if given.last == 0 {
            // The sender has closed its side; closing this one sends the last ACK.
            connection.receiver = None;
        }
    }

    fn receive_datagrams(&mut self, now: Time, number: u32) -> io::Result<()> {
        let group = &self.groups[number as usize];
        let payload = self.scenario.traffic[group.traffic].payload().0;
        let Some(socket) = &self.datagrams[number as usize] else {
            return Ok(());
        };
        let fd = socket.as_fd();
        let mut start = [0; 4];
        let counts = now > self.window.0 && now <= self.window.1;
        while let Ok(from) = sys::receive_from(fd, &mut start) {
            let Some(connection) = self.by_address.get(&from) else {
                continue;
            };
            let flow = self.connections[*connection as usize].flow;
            let class = &mut self.classes[self.flows[flow as usize].class as usize];
            if let Some(calls) = &mut class.calls {
                calls.received(flow - class.first, u32::from_be_bytes(start), now, counts);
            }
            deliver(&mut self.flows[flow as usize], self.window, now, payload);
        }
        Ok(())
    }

    /// Handles the end of a connection, which both sides have closed.
    fn end(&mut self, now: Time, number: u32) {
        let connection = &mut self.connections[number as usize];
        let Some(socket) = connection.socket.take() else {
            return;
        };
        let info = sys::tcp_info(socket.as_fd());
        let flow = connection.flow;
        let class_number = self.flows[flow as usize].class;
        let class = &mut self.classes[class_number as usize];
        if now > self.window.0 {
            class.sent.0 += u64::from(info.sent_pkts.saturating_sub(connection.sent.0));
            class.sent.1 += u64::from(info.resent_pkts.saturating_sub(connection.sent.1));
        }
        drop(socket);
        let Some((begun, packets)) = connection.transfer.take() else {
            return;
        };
        class.transfers -= 1;
        if self.window.0 < now && now <= self.window.1 {
            self.outcome
                .transfers
                .push((class_number, packets, (now - begun).as_nanos()));
        }
        if let Some(at) = class.script.transferred(flow - class.first, now) {
            self.schedule(at, Task::Act(flow));
        }
    }

    /// Begins the measurement window.
    pub fn begin_window(&mut self) {
        for connection in &mut self.connections {
            if let Some(socket) = &connection.socket {
                let info = sys::tcp_info(socket.as_fd());
                connection.sent = (info.sent_pkts, info.resent_pkts);
            }
        }
    }

    /// Ends the measurement window.
    pub fn end_window(&mut self) {
        for connection in &self.connections {
            let class = self.flows[connection.flow as usize].class as usize;
            if let (Some(socket), Some(_)) =
                (&connection.socket, self.scenario.traffic[class].kind.tcp())
            {
                let info = sys::tcp_info(socket.as_fd());
                let sent = &mut self.classes[class].sent;
                sent.0 += u64::from(info.sent_pkts.saturating_sub(connection.sent.0));
                sent.1 += u64::from(info.resent_pkts.saturating_sub(connection.sent.1));
            }
        }
        let (start, end) = self.window;
        for (number, class) in (0..).zip(&self.classes) {
            for seen in class.script.viewers((start, end)) {
                let stalled = seen.stalled.as_nanos();
                let row = (number, seen.segments, seen.rates_bps, seen.stalls, stalled);
                self.outcome.viewers.push(row);
            }
        }
        let calls = self.classes.iter().enumerate();
        let calls = calls.filter_map(|(class, it)| Some((class, it.calls.as_ref()?)));
        for (class, calls) in calls {
            for seen in calls.seen() {
                self.outcome.calls.push((
                    crate::count(class),
                    seen.received,
                    seen.lost,
                    seen.delays.as_nanos(),
                    seen.changes.as_nanos(),
                ));
            }
        }
    }

    /// Adds a row to the goodput.
    pub fn row_of_goodput(&mut self) {
        let totals = self.flows.iter().map(|flow| flow.delivered);
        self.outcome.totals.push(totals.collect());
    }

    /// Returns the mean number of packets in flight over all endless flows.
    pub fn mean_in_flight_pkts(&self) -> f64 {
        let endless = self.flows.iter().filter(|flow| {
            matches!(
                self.scenario.traffic[flow.class as usize].kind,
                TrafficKind::Ftp(_)
            )
        });
        let of = |number: u32| -> Option<BorrowedFd> {
            let socket = self.connections[number as usize].socket.as_ref()?;
            Some(socket.as_fd())
        };
        let (mut sum, mut count) = (0.0, 0.0);
        for fd in endless.filter_map(|flow| of(flow.connection?)) {
            sum += f64::from(sys::tcp_info(fd).unacked_pkts);
            count += 1.0;
        }
        sum / count
    }

    /// Ends the programs and returns the record of the run.
    pub fn finish(mut self) -> RunRecord {
        let flows = self.flows.iter();
        self.outcome.flows = flows.map(|flow| (flow.class, flow.within)).collect();
        self.outcome.sent = self.classes.iter().map(|class| class.sent).collect();
        self.outcome.programs = programs::finish(self.programs);
        self.outcome
    }
}

/// Counts bytes that were delivered to a flow's receiver at `now`.
fn deliver(flow: &mut FlowSockets, window: (Time, Time), now: Time, bytes: u64) {
    flow.delivered += bytes;
    if now <= window.0 {
        flow.before += bytes;
    } else if now <= window.1 {
        flow.within += bytes;
    }
}

/// Returns the data of a full TCP segment: the packet without the headers of Ethernet, IPv4, and
/// TCP with timestamps.
fn payload(traffic: &Traffic) -> u64 {
    const IP_AND_TCP_BYTES: u64 = 20 + 32;
    traffic.packet.0 - u64::from(ETHERNET_BYTES) - IP_AND_TCP_BYTES
}

/// Sets the DSCP of a socket's packets, and ECT(0) where `ect` is true. The kernel sets the ECN
/// field of TCP itself.
fn set_class(socket: &OwnedFd, dscp: u8, ect: bool) -> io::Result<()> {
    let tos = i32::from(dscp) << 2 | if ect { 2 } else { 0 };
    sys::set_option(socket, libc::IPPROTO_IP, libc::IP_TOS, &tos)
}
