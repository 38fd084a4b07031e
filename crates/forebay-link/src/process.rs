//! Commands at the ends of the link; no process of theirs outlives the link.
//!
//! Each end has a keeper: a process that starts the command, adopts the processes that the command
//! leaves behind (PR_SET_CHILD_SUBREAPER), and kills all of them when its line to the emulator
//! closes. The kernel closes the line whenever the emulator ends.

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
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sched::{setns, CloneFlags};
use nix::sys::prctl;
use nix::sys::signal::{kill, killpg, SigSet, SigmaskHow, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{waitpid, WaitPidFlag, WaitStatus};
use nix::unistd::{fork, ForkResult, Pid};

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
        let (ours, keepers) =
            UnixStream::pair().map_err(|error| Error::machine("a socket pair", error))?;
        ours.set_nonblocking(true)
            .map_err(|error| Error::machine("a socket pair", error))?;
        // SAFETY: the process has one thread, so the child may do anything.
        match unsafe { fork() }.map_err(doing("fork"))? {
            ForkResult::Parent { child } => Ok(Running {
                keeper: child,
                line: ours,
                ended: None,
            }),
            ForkResult::Child => {
                drop(ours);
                keep(command, namespace, give_capabilities, keepers);
                // The child must not tear down what belongs to the parent.
                // SAFETY: ends the process.
                unsafe { libc::_exit(0) }
            }
        }
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

/// The life of a keeper.
fn keep(command: &Command, namespace: BorrowedFd, give_capabilities: bool, mut line: UnixStream) {
    let _ = prctl::set_child_subreaper(true);
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
            kill_all();
            return;
        }
        if heard {
            agenda.zero = Some(Instant::now());
        }
    }
}

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
    // SAFETY: the keeper has one thread, so the child may do anything before it becomes the
    // command.
    unsafe {
        child.pre_exec(move || {
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

/// Kills every descendant: children die, theirs become ours, and so on until none is left.
fn kill_all() {
    loop {
        for child in children() {
            let _ = kill(child, Signal::SIGKILL);
        }
        // A child that has just forked leaves another; that one becomes ours and is killed next.
        match waitpid(None, None) {
            Ok(_) => {}
            Err(nix::errno::Errno::EINTR) => {}
            Err(_) => return,
        }
    }
}

/// The children of this process, as /proc says.
fn children() -> Vec<Pid> {
    let own = std::process::id();
    let mut found = Vec::new();
    let Ok(entries) = fs::read_dir("/proc") else {
        return found;
    };
    for entry in entries.flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<i32>() else {
            continue;
        };
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else {
            continue;
        };
        // The name, in brackets, may have spaces and brackets in it.
        let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        let parent = after_name.split_whitespace().nth(1);
        if parent.and_then(|it| it.parse::<u32>().ok()) == Some(own) {
            found.push(Pid::from_raw(pid));
        }
    }
    found
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
