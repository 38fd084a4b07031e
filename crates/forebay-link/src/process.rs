//! Commands at the ends of the link. None of their processes outlives the link.
//!
//! Each command has a keeper: a process that starts the command, and that ends when its socket to
//! the emulator is closed. The kernel closes the socket whenever the emulator ends. The keeper is
//! the first process of a PID namespace, so that the kernel kills all processes of the namespace
//! together with it (pid_namespaces(7)). A command can neither signal the emulator nor kill its
//! keeper. A /proc of the namespace is mounted for the command, so that `ps` shows the same
//! processes that `kill` reaches.
//!
//! Some containers do not allow such a namespace or its /proc. There the keeper adopts the
//! processes that the command leaves behind (PR_SET_CHILD_SUBREAPER) and kills them at the end. If
//! the command kills its keeper, the emulator adopts them instead ([`Adopted`]).

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command as StdCommand, Stdio};
use std::time::{Duration, Instant};

use caps::{CapSet, Capability};
use nix::libc;
use nix::mount::{mount, MsFlags};
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sched::{setns, CloneFlags};
use nix::sys::prctl;
use nix::sys::signal::{kill, killpg, SigSet, SigmaskHow, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{waitpid, WaitPidFlag, WaitStatus};
use nix::unistd::{fork, getpgrp, setpgid, tcgetpgrp, tcsetpgrp, ForkResult, Pid};

use crate::error::{doing, Error};

/// The signals that are passed on to the command.
pub const FORWARDED: [Signal; 6] = [
    Signal::SIGINT,
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
];

/// A command to run at an end of the link.
#[derive(Clone, Debug, Default)]
pub struct Command {
    /// The program and its arguments.
    pub arguments: Vec<OsString>,
    /// Variables that are added to the environment of this process.
    pub environment: Vec<(String, String)>,
    /// A file for standard output and standard error. With it, the command has no standard input
    /// and leads a process group of its own, to which signals go.
    pub output: Option<PathBuf>,
    /// The working directory; `None` is that of this process.
    pub folder: Option<PathBuf>,
    /// The time from [`Running::go`] to the start of the command; `None` starts it at once, without
    /// waiting for `go`.
    pub start: Option<Duration>,
    /// The time from [`Running::go`] to the stop of the command. It applies only where `output` is
    /// set.
    pub stop: Option<Duration>,
}

/// The end of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The command exited with this status, or with 128 + n where signal n killed it, as shells
    /// count.
    Status(i32),
    /// The command could not be started; the number is that of the error (errno(3)).
    NotStarted(i32),
    /// The command was stopped while it ran, or before its start was due.
    Stopped,
}

/// A command with its keeper.
pub struct Running {
    keeper: Pid,
    line: UnixStream,
    ended: Option<Ended>,
}

impl Running {
    /// Starts a keeper for `command` in `namespace`. The calling process must have one thread. With
    /// `give_capabilities`, the command keeps some capabilities of the user namespace.
    ///
    /// # Errors
    /// The keeper cannot be started. Where the command itself cannot be started, [`Self::ended`]
    /// says so.
    pub fn start(
        command: &Command,
        namespace: BorrowedFd,
        give_capabilities: bool,
    ) -> Result<Running, Error> {
        for own_namespace in [true, false] {
            let (mut ours, mut keepers) =
                UnixStream::pair().map_err(|error| Error::machine("a socket pair", error))?;
            let forked = match own_namespace {
                true => fork_into_pid_namespace(),
                // SAFETY: the process has one thread, so the child may do anything.
                false => unsafe { fork() },
            };
            match forked {
                Ok(ForkResult::Parent { child }) => {
                    drop(keepers);
                    if ours.read(&mut [0]).is_ok_and(|bytes| bytes == 1) {
                        ours.set_nonblocking(true)
                            .map_err(|error| Error::machine("a socket pair", error))?;
                        return Ok(Running {
                            keeper: child,
                            line: ours,
                            ended: None,
                        });
                    }
                    // The keeper could not mount a /proc in its new namespace.
                    let _ = waitpid(child, None);
                }
                Ok(ForkResult::Child) => {
                    drop(ours);
                    if (!own_namespace || mount_proc().is_ok()) && keepers.write_all(&[0]).is_ok() {
                        keep(command, namespace, give_capabilities, keepers);
                    }
                    // The child must not run destructors of the parent's values.
                    // SAFETY: ends the process.
                    unsafe { libc::_exit(0) }
                }
                Err(_) if own_namespace => {}
                Err(errno) => return Err(doing("fork")(errno)),
            }
        }
        Err(Error::Machine(
            "a keeper of the command ended at once".into(),
        ))
    }

    /// Returns a process that is in the end's network namespace for as long as the command runs.
    pub fn keeper(&self) -> Pid {
        self.keeper
    }

    /// Returns the descriptor that is readable when the command has ended.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.line.as_fd()
    }

    /// Returns the end of the command; `None` while it runs.
    pub fn ended(&mut self) -> Option<Ended> {
        let mut message = [0; 5];
        let read = if self.ended.is_none() {
            self.line.read(&mut message)
        } else {
            return self.ended;
        };
        self.ended = match read {
            Ok(5) => {
                let value = i32::from_ne_bytes([message[1], message[2], message[3], message[4]]);
                Some(match message[0] {
                    ENDED => Ended::Status(value),
                    NOT_STARTED => Ended::NotStarted(value),
                    _ => Ended::Stopped,
                })
            }
            // The socket was closed without a report: the keeper itself was killed.
            Ok(_) => Some(Ended::Status(128 + libc::SIGKILL)),
            Err(_) => None,
        };
        self.ended
    }

    /// Sends a signal to the command, through its keeper.
    pub fn signal(&self, signal: Signal) {
        let _ = kill(self.keeper, signal);
    }

    /// Takes the present time as time zero of the command's start and stop.
    pub fn go(&mut self) {
        let _ = self.line.write_all(&[0]);
    }

    /// Sends SIGTERM to the command. After its end, but after `patience` at the latest, kills it
    /// and the processes that it left behind.
    pub fn end(mut self, patience: Duration) {
        self.signal(Signal::SIGTERM);
        let start = Instant::now();
        while self.ended().is_none() && start.elapsed() < patience {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Running {
    /// Kills the command and the processes that it left behind.
    fn drop(&mut self) {
        // Keepers that were forked later hold a copy of this socket, so closing it alone would
        // not reach the keeper.
        let _ = self.line.shutdown(Shutdown::Both);
        let _ = waitpid(self.keeper, None);
    }
}

/// The kinds of a keeper's report, each of which is followed by a number.
const ENDED: u8 = 0;
const NOT_STARTED: u8 = 1;
const STOPPED: u8 = 2;

/// Time between SIGTERM and SIGKILL for a command that is stopped.
const PATIENCE: Duration = Duration::from_millis(100);

/// Forks this process, which must have one thread. The child is the first process of a new PID
/// namespace, and has a mount namespace of its own.
fn fork_into_pid_namespace() -> nix::Result<ForkResult> {
    let flags = CloneFlags::CLONE_NEWPID | CloneFlags::CLONE_NEWNS;
    let flags = libc::c_long::from(flags.bits() | libc::SIGCHLD);
    // unshare(2) would move every later child of this process there, and allow it no further
    // threads. SAFETY: without a stack, clone(2) is a fork. The process has one thread, so the
    // child may do anything.
    match unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) } {
        -1 => Err(nix::errno::Errno::last()),
        0 => Ok(ForkResult::Child),
        child => Ok(ForkResult::Parent {
            child: Pid::from_raw(libc::pid_t::try_from(child).unwrap_or(libc::pid_t::MAX)),
        }),
    }
}

/// Mounts the /proc of this process's PID namespace over the machine's, in this mount namespace
/// only. Other mounts stay as they are: where they are shared, mounts that the command makes are
/// visible outside, as without the link.
fn mount_proc() -> nix::Result<()> {
    let nothing = None::<&str>;
    mount(nothing, "/proc", nothing, MsFlags::MS_PRIVATE, nothing)?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(Some("proc"), "/proc", Some("proc"), flags, nothing)
}

/// Runs the keeper: starts the command, passes signals on, reports its end, and returns when the
/// emulator closes the socket.
fn keep(command: &Command, namespace: BorrowedFd, give_capabilities: bool, mut line: UnixStream) {
    let _ = prctl::set_child_subreaper(true);
    // The keeper ends with the emulator also while it is stopped (SIGSTOP).
    let _ = prctl::set_pdeathsig(Signal::SIGKILL);
    let _ = prctl::set_name(c"forebay-keeper");
    let mut signals = SigSet::empty();
    for signal in FORWARDED.into_iter().chain([Signal::SIGCHLD]) {
        signals.add(signal);
    }
    let _ = signals.thread_block();
    let fd = SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK);
    let signals = match fd {
        Ok(signals) => signals,
        Err(errno) => return send_report(&mut line, NOT_STARTED, errno as i32),
    };
    let mut agenda = Agenda::of(command);
    let mut pid = None;
    loop {
        match agenda.due(Instant::now()) {
            Some(Due::Start) => {
                let child_pid = setns(namespace, CloneFlags::CLONE_NEWNET)
                    .map_err(std::io::Error::from)
                    .and_then(|()| spawn(command, give_capabilities));
                match child_pid {
                    Ok(child_pid) => pid = Some(child_pid),
                    Err(error) => {
                        let number = error.raw_os_error().unwrap_or(libc::EIO);
                        return send_report(&mut line, NOT_STARTED, number);
                    }
                }
            }
            Some(Due::Stop(signal)) => {
                if let Some(pid) = pid {
                    let _ = killpg(pid, signal);
                }
            }
            None => {}
        }
        let mut fds = [
            PollFd::new(line.as_fd(), PollFlags::POLLIN),
            PollFd::new(signals.as_fd(), PollFlags::POLLIN),
        ];
        let _ = poll(&mut fds, agenda.timeout(Instant::now()));
        let line_is_ready = fds[0].any() == Some(true);
        while let Ok(Some(signal)) = signals.read_signal() {
            let Some(pid) = pid else { continue };
            if signal.ssi_signo == libc::SIGCHLD as u32 {
                continue;
            }
            if command.output.is_some() {
                // Signals of the terminal do not reach the command's own process group.
                if let Ok(signal) = Signal::try_from(signal.ssi_signo.cast_signed()) {
                    let _ = killpg(pid, signal);
                }
            } else if let Some(signal) = sent_by_a_process(&signal) {
                let _ = kill(pid, signal);
            }
        }
        while let Ok(status) = waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            let status_value = match status {
                WaitStatus::StillAlive => break,
                WaitStatus::Exited(child, code) if Some(child) == pid => code,
                WaitStatus::Signaled(child, signal, _) if Some(child) == pid => 128 + signal as i32,
                _ => continue,
            };
            // The exit status of a command that was stopped says nothing.
            let kind = if agenda.stopping() { STOPPED } else { ENDED };
            send_report(&mut line, kind, status_value);
        }
        if line_is_ready && !matches!(line.read(&mut [0]), Ok(1)) {
            // The end of the first process of a PID namespace kills all others in it.
            if Pid::this() != FIRST {
                kill_descendants(&HashSet::new());
            }
            return;
        }
        if line_is_ready {
            agenda.zero = Some(Instant::now());
        }
    }
}

/// The first process of a PID namespace.
const FIRST: Pid = Pid::from_raw(1);

/// An action of the keeper that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    Start,
    Stop(Signal),
}

/// The times at which a command starts and stops.
struct Agenda {
    /// Time zero of both times; `None` until [`Running::go`].
    zero: Option<Instant>,
    start: Option<Duration>,
    stop: Option<Duration>,
    /// True if the command was started, or must not start any more.
    started: bool,
    /// The last signal that was sent to stop the command.
    stopped: Option<Signal>,
}

impl Agenda {
    /// Returns the agenda of a command that has not started.
    fn of(command: &Command) -> Agenda {
        Agenda {
            zero: None,
            start: command.start,
            stop: command.stop.filter(|_| command.output.is_some()),
            started: false,
            stopped: None,
        }
    }

    /// Returns whether the command was told to stop.
    fn stopping(&self) -> bool {
        self.stopped.is_some()
    }

    /// Returns the next action and its time after zero.
    fn next(&self) -> Option<(Due, Duration)> {
        let stop = match self.stopped {
            None => self.stop.map(|at| (Due::Stop(Signal::SIGTERM), at)),
            Some(Signal::SIGTERM) => self
                .stop
                .map(|at| (Due::Stop(Signal::SIGKILL), at + PATIENCE)),
            Some(_) => None,
        };
        let start = self.start.filter(|_| !self.started);
        let start = start.map(|at| (Due::Start, at));
        [start, stop]
            .into_iter()
            .flatten()
            .min_by_key(|(_, at)| *at)
    }

    /// Returns the action that is due at `now`, and counts it as done.
    fn due(&mut self, now: Instant) -> Option<Due> {
        if self.start.is_none() && !self.started {
            self.started = true;
            return Some(Due::Start);
        }
        let (due, at) = self.next()?;
        if now < self.zero? + at {
            return None;
        }
        match due {
            Due::Start => self.started = true,
            // A command that has not started by the time of its stop never starts.
            Due::Stop(signal) => (self.started, self.stopped) = (true, Some(signal)),
        }
        Some(due)
    }

    /// Returns the time until the next action.
    fn timeout(&self, now: Instant) -> PollTimeout {
        let (Some(zero), Some((_, at))) = (self.zero, self.next()) else {
            return PollTimeout::NONE;
        };
        // The time is rounded up to milliseconds, so that the action is due when the wait ends.
        let remaining = (zero + at).saturating_duration_since(now) + Duration::from_micros(999);
        PollTimeout::try_from(remaining).unwrap_or(PollTimeout::MAX)
    }
}

/// Returns the signal if it must be passed on to the command, and `None` otherwise. Signals of the
/// terminal reach the command directly, except SIGHUP: the kernel sends it only to the leader of
/// the session, which this process may be.
pub fn sent_by_a_process(signal: &nix::sys::signalfd::siginfo) -> Option<Signal> {
    let from_kernel = signal.ssi_code == libc::SI_KERNEL;
    Signal::try_from(signal.ssi_signo.cast_signed())
        .ok()
        .filter(|signal| !from_kernel || *signal == Signal::SIGHUP)
}

/// Sends a report to the emulator: its kind, and a number.
fn send_report(line: &mut UnixStream, kind: u8, value: i32) {
    let value = value.to_ne_bytes();
    let _ = line.write_all(&[kind, value[0], value[1], value[2], value[3]]);
}

/// Starts the command as a child of the keeper.
fn spawn(command: &Command, give_capabilities: bool) -> std::io::Result<Pid> {
    let mut child = StdCommand::new(&command.arguments[0]);
    child.args(&command.arguments[1..]);
    child.envs(
        command
            .environment
            .iter()
            .map(|(name, value)| (name, value)),
    );
    if let Some(folder) = &command.folder {
        child.current_dir(folder);
    }
    if let Some(path) = &command.output {
        let file = File::options().create(true).append(true).open(path)?;
        child.stdin(Stdio::null());
        child.stdout(file.try_clone()?);
        child.stderr(file);
        child.process_group(0);
    }
    let leads_jobs = is_shell_on_terminal(command);
    // SAFETY: the keeper has one thread, so the child may do anything before it becomes the
    // command.
    unsafe {
        child.pre_exec(move || {
            if leads_jobs {
                setpgid(Pid::from_raw(0), Pid::from_raw(0))?;
                take_terminal(Pid::this())?;
            }
            // A Python interpreter that runs this code ignores some signals, which would be
            // inherited.
            for signal in [libc::SIGPIPE, libc::SIGXFSZ, libc::SIGINT, libc::SIGQUIT] {
                libc::signal(signal, libc::SIG_DFL);
            }
            nix::sys::signal::sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)?;
            // The command ends also if the keeper itself is killed.
            prctl::set_pdeathsig(Signal::SIGKILL)?;
            if give_capabilities {
                keep_capabilities();
            }
            Ok(())
        });
    }
    let child = child.spawn()?;
    Ok(Pid::from_raw(child.id().cast_signed()))
}

/// Keeps the capabilities that ping, tcpdump, ip, tc and servers on low ports need within the
/// link's namespaces. Otherwise execve(2) would drop all capabilities of users other than root.
pub fn keep_capabilities() {
    for capability in [
        Capability::CAP_NET_ADMIN,
        Capability::CAP_NET_RAW,
        Capability::CAP_NET_BIND_SERVICE,
    ] {
        let _ = caps::raise(None, CapSet::Inheritable, capability)
            .and_then(|()| caps::raise(None, CapSet::Ambient, capability));
    }
}

/// Kills and reaps every descendant of this process, except the children in `spared` and their
/// descendants. The process must be a subreaper, so that orphans become its children.
fn kill_descendants(spared: &HashSet<Pid>) {
    loop {
        let descendants = descendants(spared);
        if descendants.is_empty() {
            return;
        }
        for process in descendants {
            let _ = kill(process, Signal::SIGKILL);
        }
        // The next round finds processes that were forked before their parents were killed.
        std::thread::sleep(Duration::from_millis(1));
        if spared.is_empty() {
            while matches!(waitpid(None, Some(WaitPidFlag::WNOHANG)), Ok(status) if status != WaitStatus::StillAlive)
            {
            }
        } else {
            // The status of a spared child must be left to the code that started this child.
            for child in children_of(&parents(), Pid::this()) {
                if !spared.contains(&child) {
                    let _ = waitpid(child, Some(WaitPidFlag::WNOHANG));
                }
            }
        }
    }
}

/// Returns the parent of every process that /proc shows.
fn parents() -> HashMap<Pid, Pid> {
    let mut parents = HashMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<i32>() else {
            continue;
        };
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else {
            continue;
        };
        // The name of the process, in brackets, may itself contain spaces and brackets.
        let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        let parent = after_name.split_whitespace().nth(1);
        if let Some(parent) = parent.and_then(|number| number.parse().ok()) {
            parents.insert(Pid::from_raw(pid), Pid::from_raw(parent));
        }
    }
    parents
}

/// Returns the children of a process.
fn children_of(parents: &HashMap<Pid, Pid>, parent: Pid) -> Vec<Pid> {
    let pairs = parents.iter().filter(|(_, pid)| **pid == parent);
    pairs.map(|(child, _)| *child).collect()
}

/// Returns all descendants of this process, except the children in `spared` and their descendants.
fn descendants(spared: &HashSet<Pid>) -> Vec<Pid> {
    let mut by_parent: HashMap<Pid, Vec<Pid>> = HashMap::new();
    for (child, parent) in parents() {
        by_parent.entry(parent).or_default().push(child);
    }
    let mut below = by_parent.remove(&Pid::this()).unwrap_or_default();
    below.retain(|child| !spared.contains(child));
    let mut next = 0;
    while let Some(process) = below.get(next) {
        let children = by_parent.remove(process).unwrap_or_default();
        below.extend(children);
        next += 1;
    }
    below
}

/// A guard that adopts the processes of a killed keeper, and kills them when it is dropped.
pub struct Adopted {
    /// The children that this process had before.
    former: HashSet<Pid>,
    was_subreaper: bool,
}

impl Adopted {
    /// Makes this process a subreaper.
    pub fn from_now() -> Adopted {
        let former = children_of(&parents(), Pid::this());
        let was_subreaper = prctl::get_child_subreaper().unwrap_or(false);
        let _ = prctl::set_child_subreaper(true);
        Adopted {
            former: former.into_iter().collect(),
            was_subreaper,
        }
    }
}

impl Drop for Adopted {
    fn drop(&mut self) {
        kill_descendants(&self.former);
        let _ = prctl::set_child_subreaper(self.was_subreaper);
    }
}

/// A guard that puts this process's group back into the foreground of its terminal when it is
/// dropped, if the group was there before. A shell that ends cannot do this itself, because this
/// group has no number in its PID namespace.
pub struct Foreground(Option<Pid>);

impl Foreground {
    /// Notes whether this process's group is in the foreground of the terminal.
    pub fn of_this_process() -> Foreground {
        let group = getpgrp();
        Foreground(Some(group).filter(|group| tcgetpgrp(std::io::stdin()) == Ok(*group)))
    }
}

impl Drop for Foreground {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            if tcgetpgrp(std::io::stdin()).is_ok_and(|now| now != group) {
                let _ = take_terminal(group);
            }
        }
    }
}

/// Puts a process group into the foreground of the terminal that standard input is.
fn take_terminal(group: Pid) -> nix::Result<()> {
    // A background process that does this is stopped with SIGTTOU, unless the signal is blocked.
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGTTOU);
    let former = signals.thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
    let result = tcsetpgrp(std::io::stdin(), group);
    former.thread_set_mask()?;
    result
}

/// Shells with job control, which they use when they are started without arguments on a terminal.
const SHELLS: [&str; 10] = [
    "ash", "bash", "csh", "dash", "fish", "ksh", "mksh", "sh", "tcsh", "zsh",
];

/// Returns whether the command is a shell that will control jobs on this terminal. Such a shell
/// gets a process group with a number in its PID namespace; otherwise dash prints an error when it
/// ends.
fn is_shell_on_terminal(command: &Command) -> bool {
    let [program] = &command.arguments[..] else {
        return false;
    };
    let name = std::path::Path::new(program).file_name();
    command.output.is_none()
        && name.is_some_and(|name| SHELLS.iter().any(|shell| name == *shell))
        // In the keeper's PID namespace the group of both is 0.
        && tcgetpgrp(std::io::stdin()).is_ok_and(|group| group == getpgrp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_starts_and_stops_at_its_times() {
        let second = Duration::from_secs(1);
        let mut agenda = Agenda::of(&Command {
            output: Some("out".into()),
            start: Some(second),
            stop: Some(2 * second),
            ..Command::default()
        });
        let zero = Instant::now();
        assert_eq!(agenda.due(zero + 9 * second), None, "there is no zero yet");
        assert_eq!(agenda.timeout(zero), PollTimeout::NONE);
        agenda.zero = Some(zero);
        assert_eq!(agenda.due(zero), None);
        assert!(agenda.timeout(zero) > PollTimeout::from(999u16));
        assert_eq!(agenda.due(zero + second), Some(Due::Start));
        assert_eq!(agenda.due(zero + second), None);
        let term = Some(Due::Stop(Signal::SIGTERM));
        assert_eq!(agenda.due(zero + 2 * second), term);
        assert!(agenda.stopping());
        let patient = zero + 2 * second + PATIENCE;
        assert_eq!(agenda.due(patient), Some(Due::Stop(Signal::SIGKILL)));
        assert_eq!(agenda.due(patient), None);
    }

    #[test]
    fn a_command_without_a_start_time_starts_at_once_and_never_after_its_stop() {
        let mut at_once = Agenda::of(&Command::default());
        assert_eq!(at_once.due(Instant::now()), Some(Due::Start));
        let mut late = Agenda::of(&Command {
            output: Some("out".into()),
            start: Some(Duration::from_secs(3)),
            stop: Some(Duration::from_secs(2)),
            ..Command::default()
        });
        let zero = Instant::now();
        late.zero = Some(zero);
        let end = zero + Duration::from_secs(9);
        let stops = [Signal::SIGTERM, Signal::SIGKILL].map(|signal| Some(Due::Stop(signal)));
        assert_eq!([late.due(end), late.due(end)], stops);
        assert_eq!(late.due(end), None);
    }
}
