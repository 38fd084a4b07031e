//! The sockets of the hosts: sinks, connections and datagram sockets, and the data that crosses them.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd, OwnedFd};

use forebay_scenario::{EcnChoice, Traffic, TrafficKind};
use forebay_units::Time;
use nix::libc;
use nix::sys::epoll::EpollFlags;

use super::super::network::Group;
use super::super::sys;
use super::super::syscalls::{CallResult, Syscalls, ZEROS};
use super::{Connection, FlowSockets, Hosts, Ready, Task, FIRST_PORT};
use crate::limits::{congestion_control, ETHERNET_BYTES};

/// The port at which sinks of TCP and of UDP listen, in each namespace of sinks.
const SINK_PORT: u16 = 5000;
/// The size of the headers of UDP and IPv4.
const UDP_BYTES: u64 = 28;
/// Unsent data of an endless flow that the kernel may hold (TCP_NOTSENT_LOWAT), in bytes.
const UNSENT_BYTES: i32 = 1 << 17;
/// Unsent data of a flow that will stop, in packets. It is small because a flow of the simulator
/// sends no new data after its stop.
const UNSENT_PKTS: u64 = 2;

/// Events which say that the other side of a connection has closed it, or that there is no
/// connection.
const OVER: EpollFlags = EpollFlags::EPOLLRDHUP
    .union(EpollFlags::EPOLLHUP)
    .union(EpollFlags::EPOLLERR);

impl Hosts<'_> {
    pub(super) fn open_sinks(&mut self, group: &Group) -> io::Result<()> {
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

    pub(super) fn open(&mut self, _now: Time, flow: u32) -> io::Result<()> {
        self.close(flow);
        let number = self.connect(flow, None, None)?;
        self.flows[flow as usize].connection = Some(number);
        Ok(())
    }

    /// Stops a flow from sending new data. Data in flight is still delivered.
    pub(super) fn close(&mut self, flow: u32) {
        if let Some(number) = self.flows[flow as usize].connection.take() {
            let connection = &mut self.connections[number as usize];
            connection.left = Some(0);
            if let Some(socket) = &connection.socket {
                sys::shut_down(socket.as_fd());
            }
        }
    }

    pub(super) fn begin_transfer(&mut self, now: Time, flow: u32, packets: u32) -> io::Result<()> {
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

    pub(super) fn send_datagram(&mut self, now: Time, flow: u32) -> io::Result<()> {
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
