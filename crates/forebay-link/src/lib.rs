//! A bottleneck for real traffic, without root: two network namespaces, and between them the
//! same disciplines and laws as the simulator's, in real time.
//!
//! [`run`] makes the namespaces, starts the commands, drives the link as [`Settings`] say, and
//! gives a [`forebay_trace::Trace`] per direction.

#![deny(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss
)]

mod apart;
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
mod watch;

pub use apart::Apart;
pub use attend::Attendance;
pub use capture::Capture;
pub use driver::{duplicate, Observed, Outcome, Watchers};
pub use error::Error;
pub use namespace::{enter, End, Sysctl, MOST_HOSTS};
pub use netlink::Queue;
pub use process::{Command, Ended};
pub use queue_capture::QueueCapture;
pub use settings::{Bounds, DelayRange, DeviceKind, DirectionSettings, Path, Settings};

use std::fs;
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use driver::Signals;
use namespace::NamespaceNetwork;
use nix::unistd::Pid;
use process::{Adopted, Foreground, Running};
use real_time::RealTime;

/// How long a server may take until it listens before COMMAND is started all the same.
const SERVER_PATIENCE: Duration = Duration::from_secs(3);

/// The commands at the ends.
#[derive(Clone, Debug, Default)]
pub struct Commands {
    /// The run ends with it; without one, when it is stopped.
    pub client: Option<Command>,
    /// Started first, and ended with the run.
    pub server: Option<Command>,
    /// Programs with hosts of their own.
    pub programs: Vec<Programs>,
}

/// A client, and a server if there is one, each on a host of its own behind an end of the link. They
/// find each other's addresses in `FOREBAY_SERVER` and `FOREBAY_CLIENT`.
#[derive(Clone, Debug)]
pub struct Programs {
    /// The end that the server is behind; the client is behind the other.
    pub server_at: End,
    pub client: Command,
    pub server: Option<Command>,
    /// Settings of both hosts.
    pub sysctls: Vec<Sysctl>,
}

/// Programs under way.
struct RunningPrograms {
    client: Running,
    server: Option<Running>,
}

impl RunningPrograms {
    fn start(number: u8, programs: &Programs, network: &NamespaceNetwork) -> Result<Self, Error> {
        let at = programs.server_at;
        let addresses = [("SERVER", at), ("CLIENT", at.other())].map(|(name, end)| {
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
            server: server.map(|it| start(it, at)).transpose()?,
            client: start(&programs.client, at.other())?,
        })
    }

    fn go(&mut self) {
        let server = self.server.as_mut();
        server
            .into_iter()
            .chain([&mut self.client])
            .for_each(Running::go);
    }

    /// How both ended: client, server.
    fn ended(&mut self) -> [Option<Ended>; 2] {
        let server = self.server.as_mut();
        let ended = |it: &mut Running| it.ended().unwrap_or(Ended::Stopped);
        [Some(ended(&mut self.client)), server.map(ended)]
    }
}

/// Paths through which others can enter the namespaces while the link is up.
#[derive(Clone, Debug)]
pub struct Ready {
    pub pid: u32,
    /// Path of the user namespace, if there is one of its own.
    pub user: Option<String>,
    /// Paths of the network namespaces of client and server.
    pub networks: [String; 2],
    pub ipv6: bool,
    pub environment: Vec<(String, String)>,
}

/// Makes a link, runs `commands` at its ends, and tells what was observed.
///
/// The calling process must have one thread. It enters a user namespace of its own, unless it may
/// make network namespaces without one. `ready` is called once the link is up.
///
/// # Errors
/// Settings that do not fit each other, or a machine that does not allow a link.
pub fn run(
    settings: &Settings,
    commands: &Commands,
    mut watchers: Watchers,
    ready: impl FnOnce(&Ready),
) -> Result<Outcome, Error> {
    let attend = watchers.attend.take();
    one_thread()?;
    // Before anything is made, see that the laws fit.
    direction::both(settings)?;
    let _adopted = Adopted::from_now();
    let _foreground = Foreground::of_this_process();
    // In a user namespace the process would lose this right.
    let mut real_time = RealTime::take();
    let hosts = commands.programs.iter().map(|it| &it.sysctls[..]);
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
    // No more forks: from here on there may be threads.
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

/// The root queue of a device in this process's namespace, with what waits in it now; `None`
/// where the device has none.
///
/// # Errors
/// There is no such device.
pub fn root_queue(device: &str) -> std::io::Result<Option<Queue>> {
    let mut netlink = netlink::Netlink::open()?;
    let index = netlink.index(device)?;
    netlink.root_queue(index)
}

/// The keepers are forks, which take no other thread along: what it held would stay locked.
fn one_thread() -> Result<(), Error> {
    let tasks = "/proc/self/task";
    let threads = fs::read_dir(tasks)
        .map_err(|error| {
            let what = "the number of this process's threads, which a link needs to know";
            Error::machine(what, format!("{tasks}: {error}"))
        })?
        .count();
    if threads == 1 {
        return Ok(());
    }
    Err(Error::Machine(format!(
        "a process with {threads} threads cannot become the link: start it in a process of its own"
    )))
}

/// Waits until something listens in the server's namespace, which had no socket before, or the
/// server has failed.
fn wait_for_listener(server: &mut Running) {
    let start = Instant::now();
    let mut pause = Duration::from_millis(2);
    while start.elapsed() < SERVER_PATIENCE && !listens(server.keeper()) {
        // One that ends well may have left a daemon that is about to listen.
        if server.ended().is_some_and(|it| it != Ended::Status(0)) {
            return;
        }
        // The kernel takes a millisecond to print its tables.
        std::thread::sleep(pause);
        pause = (2 * pause).min(Duration::from_millis(50));
    }
}

fn listens(keeper: Pid) -> bool {
    const LISTEN: &str = "0A";
    ["tcp", "tcp6", "udp", "udp6"].iter().any(|protocol| {
        let table = fs::read_to_string(format!("/proc/{keeper}/net/{protocol}"));
        table.is_ok_and(|table| {
            // A heading, then a line per socket with its state fourth.
            let mut sockets = table.lines().skip(1);
            let listens = |line: &str| {
                protocol.starts_with("udp") || line.split_whitespace().nth(3) == Some(LISTEN)
            };
            sockets.any(listens)
        })
    })
}
