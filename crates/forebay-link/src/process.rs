//! Commands at the ends of the link; no process of theirs outlives the link.
//!
//! Each command has a keeper: a process that starts it and ends when its line to the emulator
//! closes, which the kernel does whenever the emulator ends. The keeper is the first process of a
//! PID namespace, so the kernel kills all processes of that namespace with it, in one go and
//! whatever they have done; and a command can neither signal the emulator nor kill its keeper.
//! A /proc of the namespace is mounted for the command, so that `ps` and `kill` agree.
//!
//! Where the machine does not allow such a namespace or its /proc, as in some containers, the
//! keeper adopts the processes that the command leaves behind (PR_SET_CHILD_SUBREAPER) and kills
//! them at the end. A command that kills its keeper there leaves them to the emulator, which
//! adopts them in turn ([`Adopted`]).

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

/// Signals that are passed on to the command.
pub const FORWARDED: [Signal; 6] = [
    Signal::SIGINT,
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
];

/// What to run at an end.
#[derive(Clone, Debug, Default)]
pub struct Command {
    /// Program and arguments.
    pub arguments: Vec<OsString>,
    /// On top of the environment of this process.
    pub environment: Vec<(String, String)>,
    /// File for its output and errors. With one, the command has no input, and leads a process
    /// group of its own that gets its signals.
    pub output: Option<PathBuf>,
    /// Where it runs, if not in this process's folder.
    pub folder: Option<PathBuf>,
    /// How long after [`Running::go`] it starts; `None` is at once, without it.
    pub start: Option<Duration>,
    /// How long after [`Running::go`] it is stopped, if it has an output of its own.
    pub stop: Option<Duration>,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// With this exit status; 128 + n where signal n killed it, as shells say.
    Status(i32),
    /// It could not be started: the number of the error.
    NotStarted(i32),
    /// It was still running when it was to stop, or was to start later.
    Stopped,
}

/// A command under way.
pub struct Running {
    keeper: Pid,
    line: UnixStream,
    ended: Option<Ended>,
}

impl Running {
    /// Starts `command` in `namespace`. The process must have one thread.
    ///
    /// # Errors
    /// A keeper that cannot be started. [`Self::ended`] tells of a command that cannot be started.
    pub fn start(
        command: &Command,
        namespace: BorrowedFd,
        give_capabilities: bool,
    ) -> Result<Running, Error> {
        for apart in [true, false] {
            let (mut ours, mut keepers) =
                UnixStream::pair().map_err(|error| Error::machine("a socket pair", error))?;
            let forked = match apart {
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
                    // The new namespace got no /proc of its own.
                    let _ = waitpid(child, None);
                }
                Ok(ForkResult::Child) => {
                    drop(ours);
                    if (!apart || mount_proc().is_ok()) && keepers.write_all(&[0]).is_ok() {
                        keep(command, namespace, give_capabilities, keepers);
                    }
                    // The child must not tear down what belongs to the parent.
                    // SAFETY: ends the process.
                    unsafe { libc::_exit(0) }
                }
                Err(_) if apart => {}
                Err(errno) => return Err(doing("fork")(errno)),
            }
        }
        Err(Error::Machine(
            "a keeper of the command ended at once".into(),
        ))
    }

    /// A process that lives in the end's namespace for as long as the command does.
    pub fn keeper(&self) -> Pid {
        self.keeper
    }

    /// Readable when the command has ended.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.line.as_fd()
    }

    /// How the command ended; `None` while it runs.
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
            // The keeper itself was killed.
            Ok(_) => Some(Ended::Status(128 + libc::SIGKILL)),
            Err(_) => None,
        };
        self.ended
    }

    pub fn signal(&self, signal: Signal) {
        let _ = kill(self.keeper, signal);
    }

    /// The time zero of its start and its stop is now.
    pub fn go(&mut self) {
        let _ = self.line.write_all(&[0]);
    }

    /// Asks the command to end; after `patience`, kills it and the processes that it left behind.
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
        // A later keeper holds a copy of this line's end: closing ours would not end it.
        let _ = self.line.shutdown(Shutdown::Both);
        let _ = waitpid(self.keeper, None);
    }
}

/// What a keeper reports, before a number.
const ENDED: u8 = 0;
const NOT_STARTED: u8 = 1;
const STOPPED: u8 = 2;

/// Time that a command has to end after it was asked to, before it is killed.
const PATIENCE: Duration = Duration::from_millis(100);

/// Forks; the child is the first process of a new PID namespace, and in a mount namespace of its
/// own. The process must have one thread.
fn fork_into_pid_namespace() -> nix::Result<ForkResult> {
    let flags = CloneFlags::CLONE_NEWPID | CloneFlags::CLONE_NEWNS;
    let flags = libc::c_long::from(flags.bits() | libc::SIGCHLD);
    // unshare(2) would put every later child of this process there, and forbid it further threads.
    // SAFETY: without a stack it is a fork; the process has one thread, so the child may do anything.
    match unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) } {
        -1 => Err(nix::errno::Errno::last()),
        0 => Ok(ForkResult::Child),
        child => Ok(ForkResult::Parent {
            child: Pid::from_raw(libc::pid_t::try_from(child).unwrap_or(libc::pid_t::MAX)),
        }),
    }
}

/// Mounts the /proc of this process's PID namespace over the machine's, in this mount namespace
/// alone. Other mounts stay as they are: where they are shared, mounts of the command reach the
/// machine as before.
fn mount_proc() -> nix::Result<()> {
    let nothing = None::<&str>;
    mount(nothing, "/proc", nothing, MsFlags::MS_PRIVATE, nothing)?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(Some("proc"), "/proc", Some("proc"), flags, nothing)
}

/// The life of a keeper.
fn keep(command: &Command, namespace: BorrowedFd, give_capabilities: bool, mut line: UnixStream) {
    let _ = prctl::set_child_subreaper(true);
    // Where the emulator dies while this process is stopped.
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
                let started = setns(namespace, CloneFlags::CLONE_NEWNET)
                    .map_err(std::io::Error::from)
                    .and_then(|()| spawn(command, give_capabilities));
                match started {
                    Ok(started) => pid = Some(started),
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
        let heard = fds[0].any() == Some(true);
        while let Ok(Some(signal)) = signals.read_signal() {
            let Some(pid) = pid else { continue };
            if signal.ssi_signo == libc::SIGCHLD as u32 {
                continue;
            }
            if command.output.is_some() {
                // A terminal's signals do not reach its group.
                if let Ok(signal) = Signal::try_from(signal.ssi_signo.cast_signed()) {
                    let _ = killpg(pid, signal);
                }
            } else if let Some(signal) = sent_by_a_process(&signal) {
                let _ = kill(pid, signal);
            }
        }
        while let Ok(status) = waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            let value = match status {
                WaitStatus::StillAlive => break,
                WaitStatus::Exited(who, code) if Some(who) == pid => code,
                WaitStatus::Signaled(who, signal, _) if Some(who) == pid => 128 + signal as i32,
                _ => continue,
            };
            // How it ended says nothing where it was asked to.
            let what = if agenda.stopping() { STOPPED } else { ENDED };
            send_report(&mut line, what, value);
        }
        if heard && !matches!(line.read(&mut [0]), Ok(1)) {
            // The first process of a PID namespace takes all others along.
            if Pid::this() != FIRST {
                kill_descendants(&HashSet::new());
            }
            return;
        }
        if heard {
            agenda.zero = Some(Instant::now());
        }
    }
}

/// The first process of a PID namespace.
const FIRST: Pid = Pid::from_raw(1);

/// What of a command is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    Start,
    Stop(Signal),
}

/// When a command is to start and to stop.
struct Agenda {
    /// The time zero of both, once it is known.
    zero: Option<Instant>,
    start: Option<Duration>,
    stop: Option<Duration>,
    /// What was done.
    started: bool,
    stopped: Option<Signal>,
}

impl Agenda {
    fn of(command: &Command) -> Agenda {
        Agenda {
            zero: None,
            start: command.start,
            stop: command.stop.filter(|_| command.output.is_some()),
            started: false,
            stopped: None,
        }
    }

    fn stopping(&self) -> bool {
        self.stopped.is_some()
    }

    /// What comes next, and how long after zero.
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

    /// What is due now, which is then done.
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
            // What has not started by then does not start any more.
            Due::Stop(signal) => (self.started, self.stopped) = (true, Some(signal)),
        }
        Some(due)
    }

    /// How long nothing will be due.
    fn timeout(&self, now: Instant) -> PollTimeout {
        let (Some(zero), Some((_, at))) = (self.zero, self.next()) else {
            return PollTimeout::NONE;
        };
        // Rounded up, so that it is due when the wait is over.
        let left = (zero + at).saturating_duration_since(now) + Duration::from_micros(999);
        PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
    }
}

/// The signal, if a process sent it. A terminal's signals reach the command without us, except
/// SIGHUP: the kernel sends it to the leader of the session alone, which this process may be.
pub fn sent_by_a_process(signal: &nix::sys::signalfd::siginfo) -> Option<Signal> {
    let from_kernel = signal.ssi_code == libc::SI_KERNEL;
    Signal::try_from(signal.ssi_signo.cast_signed())
        .ok()
        .filter(|it| !from_kernel || *it == Signal::SIGHUP)
}

fn send_report(line: &mut UnixStream, what: u8, value: i32) {
    let value = value.to_ne_bytes();
    let _ = line.write_all(&[what, value[0], value[1], value[2], value[3]]);
}

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
            // An interpreter that embeds this ignores some signals, which would be inherited.
            for signal in [libc::SIGPIPE, libc::SIGXFSZ, libc::SIGINT, libc::SIGQUIT] {
                libc::signal(signal, libc::SIG_DFL);
            }
            nix::sys::signal::sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)?;
            // If the keeper itself is killed.
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

/// Capabilities that ping, tcpdump, ip, tc and servers on low ports need within the link's
/// namespaces. Without this step, exec takes all capabilities from users other than root.
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

/// Kills every descendant of this process, except those below `spared` children, and reaps them.
/// Processes that are left behind become its children: it must be a subreaper.
fn kill_descendants(spared: &HashSet<Pid>) {
    loop {
        let descendants = descendants(spared);
        if descendants.is_empty() {
            return;
        }
        for process in descendants {
            let _ = kill(process, Signal::SIGKILL);
        }
        // Another round finds what a process forked before it was killed.
        std::thread::sleep(Duration::from_millis(1));
        if spared.is_empty() {
            while matches!(waitpid(None, Some(WaitPidFlag::WNOHANG)), Ok(status) if status != WaitStatus::StillAlive)
            {
            }
        } else {
            // A spared child's status is not this function's to take.
            for child in children_of(&parents(), Pid::this()) {
                if !spared.contains(&child) {
                    let _ = waitpid(child, Some(WaitPidFlag::WNOHANG));
                }
            }
        }
    }
}

/// The parent of every process that /proc shows.
fn parents() -> HashMap<Pid, Pid> {
    let mut parents = HashMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<i32>() else {
            continue;
        };
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else {
            continue;
        };
        // The name, in brackets, may have spaces and brackets in it.
        let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        let parent = after_name.split_whitespace().nth(1);
        if let Some(parent) = parent.and_then(|number| number.parse().ok()) {
            parents.insert(Pid::from_raw(pid), Pid::from_raw(parent));
        }
    }
    parents
}

fn children_of(parents: &HashMap<Pid, Pid>, parent: Pid) -> Vec<Pid> {
    let pairs = parents.iter().filter(|(_, of)| **of == parent);
    pairs.map(|(child, _)| *child).collect()
}

/// Every process below this one, except those below `spared` children.
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

/// Adopts what a killed keeper leaves behind, and kills it when this value is dropped.
pub struct Adopted {
    /// Children that this process had before.
    former: HashSet<Pid>,
    was_subreaper: bool,
}

impl Adopted {
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

/// The terminal of this process, if its process group is in the foreground there; it is again when
/// this value is dropped. A shell that ends cannot give the terminal back by itself: in its PID
/// namespace this process's group has no number.
pub struct Foreground(Option<Pid>);

impl Foreground {
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
    // From the background that is a reason to stop, unless the signal is blocked.
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGTTOU);
    let former = signals.thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
    let taken = tcsetpgrp(std::io::stdin(), group);
    former.thread_set_mask()?;
    taken
}

/// Shells that control jobs where they are started without arguments on a terminal.
const SHELLS: [&str; 10] = [
    "ash", "bash", "csh", "dash", "fish", "ksh", "mksh", "sh", "tcsh", "zsh",
];

/// True for a shell that leads its jobs on this terminal. It gets a process group with a number in
/// its PID namespace: dash complains at its end where it began in one without.
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
    fn a_command_starts_and_stops_when_it_is_due() {
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
    fn without_a_start_it_starts_at_once_and_after_its_stop_never() {
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
        let stops = [Signal::SIGTERM, Signal::SIGKILL].map(|it| Some(Due::Stop(it)));
        assert_eq!([late.due(end), late.due(end)], stops);
        assert_eq!(late.due(end), None);
    }
}
