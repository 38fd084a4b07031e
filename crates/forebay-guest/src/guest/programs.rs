//! Programs of the user as endpoints: processes in the hosts' namespaces, which end with the run.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::symlink;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use forebay_scenario::ProgramFile;
use nix::mount::{mount, umount2, MntFlags, MsFlags};
use nix::sched::{unshare, CloneFlags};
use nix::sys::signal::{killpg, Signal};
use nix::unistd::Pid;

use super::network::Group;
use super::sys;
use crate::record::ProgramOutcome;

/// The number of bytes at the end of a program's output that are kept.
const LAST_BYTES: u64 = 4000;
/// Time that programs have to end after SIGTERM.
const PATIENCE: Duration = Duration::from_millis(100);

/// A program at one end of a flow.
pub struct Program {
    traffic: u32,
    end: &'static str,
    command: String,
    namespace: String,
    addresses: [(&'static str, String); 2],
    output: PathBuf,
    folder: PathBuf,
    child: Option<Child>,
    status: Option<i32>,
    /// True if the program was told to end, so its exit status says nothing.
    told_to_end: bool,
    failure: Option<String>,
}

impl Program {
    /// Describes a program that has not started. `run` and `folder` are the folder of the run and
    /// the program's working directory; `number` gives its output file a name. The environment
    /// variables with the addresses have the same names as in `forebay link`.
    pub fn new(
        group: &Group,
        flow: u32,
        server: bool,
        command: &str,
        (run, folder): (&Path, &Path),
        number: usize,
    ) -> Program {
        // The data of the server crosses the queue under test.
        let (source, client) = group.addresses(flow);
        Program {
            traffic: crate::count(group.traffic),
            end: if server { "server" } else { "client" },
            command: command.to_owned(),
            namespace: match server {
                true => group.source_namespace(),
                false => group.sink_namespace(),
            },
            addresses: [
                ("FOREBAY_CLIENT", client.to_string()),
                ("FOREBAY_SERVER", source.to_string()),
            ],
            output: run.join(format!("program-{number}")),
            folder: folder.to_owned(),
            child: None,
            status: None,
            told_to_end: false,
            failure: None,
        }
    }

    /// Returns the namespace of the program's host.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Starts the program in the namespace of this thread. A failure is kept for its outcome.
    pub fn start(&mut self) {
        let result = File::create(&self.output).and_then(|output| {
            let errors = output.try_clone()?;
            let mut program = Command::new("/bin/sh");
            confine(&mut program);
            program
                .args(["-c", &self.command])
                .envs(self.addresses.iter().cloned())
                .current_dir(&self.folder)
                .stdin(Stdio::null())
                .stdout(output)
                .stderr(errors)
                .process_group(0)
                .spawn()
        });
        match result {
            Ok(child) => self.child = Some(child),
            Err(error) => self.failure = Some(format!("did not start: {error}")),
        }
    }

    /// Notes whether the program has ended.
    pub fn reap(&mut self) {
        let Some(child) = &mut self.child else { return };
        if let Ok(Some(status)) = child.try_wait() {
            let status = status.code().unwrap_or(128 + status.signal().unwrap_or(0));
            self.status = Some(status).filter(|_| !self.told_to_end);
            self.child = None;
        }
    }

    /// Sends a signal to the program's process group.
    fn signal(&self, signal: Signal) {
        if let Some(child) = &self.child {
            if let Ok(pid) = i32::try_from(child.id()) {
                let _ = killpg(Pid::from_raw(pid), signal);
            }
        }
    }

    /// Tells the program to end (SIGTERM).
    pub fn ask_to_end(&mut self) {
        self.reap();
        self.told_to_end = true;
        self.signal(Signal::SIGTERM);
    }

    /// Kills the program and returns its outcome.
    fn outcome(mut self) -> ProgramOutcome {
        self.reap();
        self.signal(Signal::SIGKILL);
        let output = self.failure.clone().unwrap_or_else(|| last(&self.output));
        ProgramOutcome {
            traffic: self.traffic,
            end: self.end.to_owned(),
            command: self.command,
            status: self.status,
            output,
        }
    }
}

/// Confines a program, which is root in the guest, so that it cannot write to files of the host: it
/// may mount nothing, does not see the folder of the run, and cannot name a helper that the kernel
/// would start for it.
#[allow(unsafe_code, reason = "system calls between fork and exec")]
fn confine(program: &mut Command) {
    let steps = || {
        let none = None::<&str>;
        let bind = |at: &str, flags| mount(Some(at), at, none, MsFlags::MS_BIND | flags, none);
        let change = |at: &str, flags| {
            let flags = MsFlags::MS_REMOUNT | MsFlags::MS_BIND | flags;
            mount(none, at, none, flags, none)
        };
        unshare(CloneFlags::CLONE_NEWNS)?;
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)?;
        umount2(super::RUN, MntFlags::MNT_DETACH)?;
        // Core dumps, module requests and device events start helpers with all capabilities.
        change("/sys", MsFlags::MS_RDONLY)?;
        bind("/proc/sys", MsFlags::empty())?;
        change("/proc/sys", MsFlags::MS_RDONLY)?;
        bind("/proc/sys/net", MsFlags::empty())?;
        change("/proc/sys/net", MsFlags::empty())?;
        sys::drop_capabilities()
    };
    // SAFETY: the guest's first process has one thread, so its child may do anything.
    unsafe {
        program.pre_exec(steps);
    }
}

/// Returns the working directory of a traffic's programs: the folder of the scenario, or a new
/// folder that has only links to `files`.
///
/// # Errors
/// Those of mkdir(2) and symlink(2).
pub fn folder(traffic: usize, scenario: &Path, files: &[ProgramFile]) -> io::Result<PathBuf> {
    if files.is_empty() {
        return Ok(scenario.to_owned());
    }
    let folder = PathBuf::from(format!("/run/programs-{traffic}"));
    for file in files {
        let link = folder.join(&file.name);
        if let Some(parent) = link.parent() {
            fs::create_dir_all(parent)?;
        }
        match symlink(scenario.join(&file.name), link) {
            // Another flow has made the link, or the file is named twice.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            result => result?,
        }
    }
    Ok(folder)
}

/// Ends all programs and returns their outcomes.
pub fn finish(mut programs: Vec<Program>) -> Vec<ProgramOutcome> {
    if programs.is_empty() {
        return Vec::new();
    }
    programs.iter_mut().for_each(Program::ask_to_end);
    std::thread::sleep(PATIENCE);
    programs.into_iter().map(Program::outcome).collect()
}

/// Returns the end of a program's output.
fn last(output: &Path) -> String {
    let read = || {
        let mut file = File::open(output)?;
        let length = fs::metadata(output)?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(LAST_BYTES)))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        std::io::Result::Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    read().unwrap_or_default()
}
