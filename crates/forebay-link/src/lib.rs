//! Bottleneck link for real traffic, without root.
//!
//! This crate is the engine of `forebay link`. It makes two network namespaces and puts an
//! emulated link between them: real programs run at both ends, and their packets pass through the
//! same queues and AQM laws ([`forebay_aqm`]) as in the simulator, but in real time.
//!
//! # Central types
//!
//! - [`Settings`] describe the link: a [`DirectionSettings`] for each direction (capacity,
//!   propagation delay, loss, buffer, law), the MTU, and the kind of device.
//! - [`Commands`] are the programs at the two ends.
//! - [`run`] sets everything up, forwards packets until the client's command ends, and returns an
//!   [`Outcome`] with a [`forebay_trace::RunTrace`] for each direction.
//! - [`Watchers`] look at a run and change it: the live view, the metrics endpoint
//!   ([`prometheus`]), the control socket ([`control`]), and the captures ([`Capture`]).
//!
//! # Example
//!
//! PI on a link of 15 Mbit/s around `ping`. The example is not run here, because it needs the right
//! to make user namespaces.
//!
//! ```no_run
//! use forebay_link::{run, Command, Commands, Settings, Watchers};
//! use forebay_scenario::LinkOptions;
//! use forebay_units::Value;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let text = |key: &str, value: &str| (key.to_owned(), Value::Text(value.to_owned()));
//! let options = [text("rate", "15Mbit/s"), text("buffer", "150p"), text("aqm", "pi")];
//! let settings = Settings::of(&LinkOptions::read(&options, &[])?)?;
//! let ping = Command {
//!     arguments: ["ping", "-c", "3", "198.18.0.2"].map(Into::into).to_vec(),
//!     ..Command::default()
//! };
//! let commands = Commands { client: Some(ping), ..Commands::default() };
//! let outcome = run(&settings, &commands, Watchers::default(), |_| {})?;
//! for direction in &outcome.ways {
//!     println!("{:?}", direction.counts);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Where to start reading
//!
//! [`run`] in this file shows the order of a run. [`direction`] holds one direction: queue,
//! transmitter, and propagation delay; it works at exact times and never looks at a clock.
//! `driver` is the real-time loop around it, and [`lateness`] judges whether the machine kept up.
//! `namespace`, `netlink`, `process` and `device` make the namespaces, addresses, programs and
//! devices with Linux's system calls. `examples/link.rs` is a complete program.

#![warn(missing_docs)]
#![deny(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss
)]

mod attend;
mod capture;
pub mod classes;
mod clock;
#[allow(unsafe_code, reason = "system calls")]
mod congestion;
mod connections;
pub mod control;
#[allow(unsafe_code, reason = "system calls")]
mod device;
pub mod direction;
#[allow(unsafe_code, reason = "system calls")]
mod driver;
mod due;
mod error;
pub mod flows;
pub mod lateness;
pub mod live;
mod namespace;
mod netlink;
mod offload;
pub mod pool;
#[allow(unsafe_code, reason = "system calls")]
mod process;
pub mod prometheus;
mod queue_capture;
#[allow(unsafe_code, reason = "system calls")]
mod real_time;
mod recent;
mod settings;
mod started_late;
mod traffic_map;
mod watch;

pub use attend::Attendance;
pub use capture::Capture;
pub use driver::{duplicate, Observed, Outcome, Watchers};
pub use error::Error;
pub use namespace::{enter, End, Sysctl, MOST_HOSTS};
pub use netlink::Queue;
pub use process::{Command, Ended};
pub use queue_capture::QueueCapture;
pub use settings::{Bounds, DelayRange, DeviceKind, DirectionSettings, Path, Settings};
pub use traffic_map::TrafficMap;

use std::fs;
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use driver::Signals;
use namespace::NamespaceNetwork;
use nix::unistd::Pid;
use process::{Adopted, Foreground, Running};
use real_time::RealTime;

/// Time that a server has to start listening. After it, the client's command starts anyway.
const SERVER_PATIENCE: Duration = Duration::from_secs(3);

/// The programs that run at the ends of the link.
#[derive(Clone, Debug, Default)]
pub struct Commands {
    /// The client's command. The run ends when this command ends; without a command, the run goes
    /// on until it is stopped.
    pub client: Option<Command>,
    /// The server's command. It is started first, and is ended when the run ends.
    pub server: Option<Command>,
    /// Pairs of programs that each have hosts of their own, at most [`MOST_HOSTS`].
    pub programs: Vec<Programs>,
}

/// A client program and an optional server program, each on a host of its own behind an end of the
/// link. The environment variables `FOREBAY_SERVER` and `FOREBAY_CLIENT` hold the addresses of the
/// two hosts.
#[derive(Clone, Debug)]
pub struct Programs {
    /// The end that the server is behind; the client is behind the other end.
    pub server_at: End,
    /// The program on the client's host.
    pub client: Command,
    /// The program on the server's host.
    pub server: Option<Command>,
    /// Kernel settings (sysctl) of both hosts.
    pub sysctls: Vec<Sysctl>,
}

/// A running pair of programs.
struct RunningPrograms {
    client: Running,
    server: Option<Running>,
}

impl RunningPrograms {
    /// Forks the processes of `programs` on the hosts with this number, which counts from 1. They
    /// wait for [`RunningPrograms::go`] before they run their commands.
    fn start(number: u8, programs: &Programs, network: &NamespaceNetwork) -> Result<Self, Error> {
        let server_end = programs.server_at;
        let addresses =
            [("SERVER", server_end), ("CLIENT", server_end.other())].map(|(name, end)| {
                let address = end.host_v4(number).to_string();
                (format!("FOREBAY_{name}"), address)
            });
        let start = |command: &Command, end: End| {
            let mut command = command.clone();
            command.environment.extend(addresses.iter().cloned());
            let namespace = &network.host(end).behind[usize::from(number) - 1];
            Running::start(&command, namespace.as_fd(), network.own_user)
        };
        let server = programs.server.as_ref();
        Ok(RunningPrograms {
            server: server
                .map(|command| start(command, server_end))
                .transpose()?,
            client: start(&programs.client, server_end.other())?,
        })
    }

    /// Lets both programs run.
    fn go(&mut self) {
        let server = self.server.as_mut();
        server
            .into_iter()
            .chain([&mut self.client])
            .for_each(Running::go);
    }

    /// Returns how the client and the server ended, in this order. A program that still runs counts
    /// as stopped.
    fn ended(&mut self) -> [Option<Ended>; 2] {
        let server = self.server.as_mut();
        let ended = |program: &mut Running| program.ended().unwrap_or(Ended::Stopped);
        [Some(ended(&mut self.client)), server.map(ended)]
    }
}

/// A description of a link that is up, with which other processes can enter its namespaces.
#[derive(Clone, Debug)]
pub struct Ready {
    /// The process that drives the link.
    pub pid: u32,
    /// Path of the link's user namespace; `None` where the link needed none of its own.
    pub user: Option<String>,
    /// Paths of the network namespaces of the client and of the server.
    pub networks: [String; 2],
    /// True if the ends have IPv6 addresses.
    pub ipv6: bool,
    /// Environment variables that the commands at the ends get, with the ends' addresses.
    pub environment: Vec<(String, String)>,
}

/// Makes a link, runs `commands` at its ends, and returns the observations.
///
/// The calling process must have one thread. It enters a user namespace of its own, unless it may
/// make network namespaces without one. `ready` is called once, when the link is up.
///
/// # Errors
/// [`Error::Input`] where a law does not fit its queue; [`Error::Machine`] where the calling
/// process has several threads, the machine does not allow a link, or a device fails.
pub fn run(
    settings: &Settings,
    commands: &Commands,
    mut watchers: Watchers,
    ready: impl FnOnce(&Ready),
) -> Result<Outcome, Error> {
    let attend = watchers.attend.take();
    one_thread()?;
    // The laws are checked before anything is made.
    direction::both(settings)?;
    let _adopted = Adopted::from_now();
    let _foreground = Foreground::of_this_process();
    // This must come first: inside a user namespace the process has no right to real-time priority.
    let mut real_time = RealTime::take();
    let hosts = commands
        .programs
        .iter()
        .map(|programs| &programs.sysctls[..]);
    let hosts: Vec<&[Sysctl]> = hosts.take(MOST_HOSTS.into()).collect();
    let mut network = NamespaceNetwork::new(
        settings.device,
        settings.mtu,
        settings.super_packets,
        &hosts,
    )?;
    let signals = Signals::take()?;
    let environment = network.environment();
    let start = |command: &Option<Command>, end: End| {
        let command = command.as_ref()?;
        let mut command = command.clone();
        command.environment.extend(environment.iter().cloned());
        let namespace = network.host(end).namespace.as_fd();
        Some(Running::start(&command, namespace, network.own_user))
    };
    let mut server = start(&commands.server, End::Server).transpose()?;
    if let Some(server) = &mut server {
        wait_for_listener(server);
    }
    let namespaces = End::BOTH.map(|end| {
        let fd = network.host(end).namespace.as_raw_fd();
        format!("/proc/{}/fd/{fd}", std::process::id())
    });
    ready(&Ready {
        pid: std::process::id(),
        user: network
            .own_user
            .then(|| format!("/proc/{}/ns/user", std::process::id())),
        networks: namespaces,
        ipv6: network.ipv6,
        environment: environment.clone(),
    });
    let mut programs = (1..)
        .zip(&commands.programs[..hosts.len()])
        .map(|(number, programs)| RunningPrograms::start(number, programs, &network))
        .collect::<Result<Vec<_>, Error>>()?;
    programs.iter_mut().for_each(RunningPrograms::go);
    let client = start(&commands.client, End::Client).transpose()?;
    // No process is forked from here on, so the watchers may start threads.
    if let Some(attend) = attend {
        attend();
    }
    let mut outcome = driver::run(
        settings,
        &mut network,
        &signals,
        client,
        server,
        watchers,
        &mut real_time,
    );
    if let Ok(outcome) = &mut outcome {
        outcome.programs = programs.iter_mut().map(RunningPrograms::ended).collect();
    }
    drop(programs);
    network.leave();
    outcome
}

/// Returns the root qdisc of a device in this process's network namespace, with its present
/// backlog; `None` where the device has no qdisc.
///
/// # Errors
/// No device has this name, or the kernel does not answer.
pub fn root_queue(device: &str) -> std::io::Result<Option<Queue>> {
    let mut netlink = netlink::Netlink::open()?;
    let index = netlink.index(device)?;
    netlink.root_queue(index)
}

/// Fails if this process has several threads. The keepers are forked from it, and a lock that
/// another thread holds during a fork would stay locked in the child.
fn one_thread() -> Result<(), Error> {
    let tasks = "/proc/self/task";
    let threads = fs::read_dir(tasks)
        .map_err(|error| {
            let step = "the number of this process's threads, which a link needs to know";
            Error::machine(step, format!("{tasks}: {error}"))
        })?
        .count();
    if threads == 1 {
        return Ok(());
    }
    Err(Error::Machine(format!(
        "a process with {threads} threads cannot become the link: start it in a process of its own"
    )))
}

/// Waits until a socket listens in the server's namespace, which had none before, or until the
/// server has failed, at most [`SERVER_PATIENCE`].
fn wait_for_listener(server: &mut Running) {
    let start = Instant::now();
    let mut pause = Duration::from_millis(2);
    while start.elapsed() < SERVER_PATIENCE && !listens(server.keeper()) {
        // A server that ends with status 0 may have left a daemon that is about to listen.
        if server
            .ended()
            .is_some_and(|ending| ending != Ended::Status(0))
        {
            return;
        }
        // Reading the tables in /proc/net takes the kernel about a millisecond.
        std::thread::sleep(pause);
        pause = (2 * pause).min(Duration::from_millis(50));
    }
}

/// Returns whether a TCP socket listens, or any UDP socket exists, in the network namespace of
/// `keeper`.
fn listens(keeper: Pid) -> bool {
    const LISTEN: &str = "0A";
    ["tcp", "tcp6", "udp", "udp6"].iter().any(|protocol| {
        let table = fs::read_to_string(format!("/proc/{keeper}/net/{protocol}"));
        table.is_ok_and(|table| {
            // A heading is followed by a line for each socket, whose fourth word is its state.
            let mut sockets = table.lines().skip(1);
            let listens = |line: &str| {
                protocol.starts_with("udp") || line.split_whitespace().nth(3) == Some(LISTEN)
            };
            sockets.any(listens)
        })
    })
}
