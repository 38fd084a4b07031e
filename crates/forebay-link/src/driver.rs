//! Real-time loop of the link: one thread between two devices.
//!
//! The loop fetches packets, advances both directions, and releases the packets that are due. Only
//! releases must be on time: all other events are computed at their exact times, also where they
//! are handled late (see [`crate::direction`]).

use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::mpsc::Receiver;
use std::sync::PoisonError;
use std::time::Duration;

use forebay_trace::{Metrics, RunTrace};
use forebay_units::{Bytes, SetPoint, Span, Time};
use nix::errno::Errno;
use nix::libc;
use nix::sys::resource::{getrusage, UsageWho};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::time::TimeValLike;

use crate::capture::Capture;
use crate::clock::Clock;
use crate::congestion;
use crate::direction::{self, Direction, DirectionCounts};
use crate::error::{doing, Error};
use crate::lateness::{void_reasons, Lateness, Losses, RateCheck};
use crate::live::{DirectionNow, LiveChange, Picture, Shared};
use crate::namespace::NamespaceNetwork;
use crate::pool::Pool;
use crate::process::{sent_by_a_process, Ended, Running, FORWARDED};
use crate::queue_capture::QueueCapture;
use crate::real_time::RealTime;
use crate::settings::Settings;

/// The number of packets that are fetched or released in one direction before the other one has its
/// turn.
const BATCH: u64 = 32;
/// A sleep ends this long before a release, and the loop polls the clock for the rest of the time:
/// a sleeping thread wakes 20 to 50 µs late.
const SPIN: Span = Span::from_micros(60);
/// The rate above which the loop does not poll the clock: polling would leave too little of two
/// cores to the receiver.
const SPIN_BELOW_BPS: u64 = 120_000_000;
/// The shortest interval between two rounds of releases with super-packets, so that their segments
/// stay together.
const COARSE: Span = Span::from_micros(50);
/// Interval at which signals and the ends of commands are looked for, also on a busy link.
const HOUSEKEEPING: Span = Span::from_millis(10);
/// Interval at which pictures are published for watchers.
const PICTURE: Span = Span::from_millis(200);
/// Time that a command has to end after a signal told it to.
const PATIENCE: Span = Span::from_secs(2);
/// Time that the processes which a command started have to end after it.
const LINGER: Span = Span::from_millis(100);
/// Time that a server has to end after the client's command has ended.
const SERVER_PATIENCE: Duration = Duration::from_millis(300);
/// The longest sleep, so that samples are taken from time to time on an idle link.
const LONGEST_SLEEP: Span = Span::from_millis(100);
/// The largest number of flows that a picture shows.
const MAX_SHOWN_FLOWS: usize = 8;

/// Observers of a run, and the channels through which it can be changed or ended. The default has
/// none.
#[derive(Default)]
pub struct Watchers {
    /// The place where the driver publishes pictures of the run.
    pub picture: Option<Shared>,
    /// Changes that the driver carries out.
    pub changes: Option<Receiver<LiveChange>>,
    /// The run ends when this becomes readable or is closed.
    pub stop: Option<OwnedFd>,
    /// A function that is called after the commands have been forked, the first moment at which
    /// this process may have further threads.
    pub attend: Option<Box<dyn FnOnce() + Send>>,
    /// The capture of both ends.
    pub capture: Option<Capture>,
    /// The capture of the upstream queue.
    pub queue_capture: Option<QueueCapture>,
}

/// Returns a duplicate of the file with this number, for [`Watchers::stop`].
///
/// # Errors
/// EBADF where no open file has this number. (poll(2) would ignore a negative number silently.)
pub fn duplicate(number: i32) -> std::io::Result<OwnedFd> {
    // SAFETY: no memory is passed, and the number need not be of an open file.
    let copy = Errno::result(unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 0) })?;
    // SAFETY: the descriptor is new and belongs to nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
}

/// The names of the directions in reports.
const NAMES: [&str; 2] = ["up", "down"];

/// The observations of one direction.
pub struct Observed {
    /// The trace.
    pub trace: RunTrace,
    /// The metrics of the trace.
    pub metrics: Metrics,
    /// The totals since the start of the run.
    pub counts: DirectionCounts,
    /// The rate at which packets were released while the link was busy, in bit/s; NaN where it was
    /// never busy for long enough.
    pub achieved_bps: f64,
    /// The rate at which packets were due for release while the link was busy, in bit/s; NaN where
    /// it was never busy for long enough.
    pub asked_bps: f64,
    /// The number of TCP flows that carried data, by the congestion control of their sender.
    pub congestion_controls: BTreeMap<String, u64>,
    /// The number of TCP flows that carried data, also those whose sender is unknown.
    pub tcp_flows: u64,
}

/// The outcome of a run.
pub struct Outcome {
    /// The end of the client's command; `None` where there was none, or it still ran.
    pub command: Option<Ended>,
    /// The end of the server's command; `None` where there was none, or it still ran.
    pub server: Option<Ended>,
    /// The ends of the client and of the server of each pair of programs.
    pub programs: Vec<[Option<Ended>; 2]>,
    /// The observations of each direction, up first.
    pub ways: [Observed; 2],
    /// The changes that watchers made, with their times.
    pub changes: Vec<(Time, LiveChange)>,
    /// The lateness of releases and of fetching.
    pub lateness: Lateness,
    /// Packets that were lost because the machine was too slow.
    pub losses: Losses,
    /// The reasons why the run is void; empty for a valid run.
    pub void: Vec<String>,
    /// The error with which the captures are incomplete; `None` where there was none.
    pub capture_failed: Option<String>,
    /// The duration of the run.
    pub duration: Span,
    /// The CPU time in user mode of the driver's thread, in s.
    pub user_cpu_s: f64,
}

/// A file from which the signals that are passed on to commands are read (signalfd(2)). The signals
/// are blocked while it lives.
pub struct Signals {
    fd: SignalFd,
    former: SigSet,
}

impl Signals {
    /// Blocks the signals and opens the file.
    ///
    /// # Errors
    /// Those of sigprocmask(2) and signalfd(2).
    pub fn take() -> Result<Signals, Error> {
        let mut set = SigSet::empty();
        for signal in FORWARDED {
            set.add(signal);
        }
        let former = SigSet::thread_get_mask().map_err(doing("the signal mask"))?;
        set.thread_block().map_err(doing("the signal mask"))?;
        let fd = SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)
            .map_err(doing("signalfd"))?;
        Ok(Signals { fd, former })
    }
}

impl std::ops::Drop for Signals {
    fn drop(&mut self) {
        let _ = self.former.thread_set_mask();
    }
}

/// The state of the real-time loop.
struct Driver<'a> {
    clock: Clock,
    settings: &'a Settings,
    network: &'a NamespaceNetwork,
    /// The directions, up first.
    ways: [Direction; 2],
    pool: Pool,
    /// A slot into which packets are read and discarded when no slot is free, so that the devices
    /// are still emptied.
    scrap: u32,
    lateness: Lateness,
    /// The time at which the devices were last polled, or at which the present sleep was to end.
    last_poll: Time,
    rates: [RateCheck; 2],
    losses: Losses,
    changes: Vec<(Time, LiveChange)>,
    capture: Option<Capture>,
    /// True if releases happen at most once in [`COARSE`].
    coarse: bool,
    /// True if the loop may poll the clock before a release.
    may_spin: bool,
}

/// Runs the link until the client's command ends, or until it is stopped.
///
/// # Errors
/// A law does not fit its queue, or a device fails.
pub fn run(
    settings: &Settings,
    network: &mut NamespaceNetwork,
    signals: &Signals,
    mut command: Option<Running>,
    mut server: Option<Running>,
    mut watchers: Watchers,
    real_time: &mut RealTime,
) -> Result<Outcome, Error> {
    // Watchers learn that the run has ended, whether it succeeds or fails.
    let _last = LastPicture(watchers.picture.clone());
    let mut ways = direction::both(settings)?;
    if let Some(capture) = watchers.queue_capture.take() {
        ways[0].set_capture(capture);
    }
    let mut pool = Pool::new(settings.slots() + 1, settings.slot_bytes());
    let scrap = pool.take().expect("a new pool has room");
    let cpu_s = user_cpu_s();
    let mut driver = Driver {
        clock: Clock::start(),
        settings,
        network,
        ways,
        pool,
        scrap,
        lateness: Lateness::default(),
        last_poll: Time::ZERO,
        rates: [RateCheck::default(); 2],
        losses: Losses::default(),
        changes: Vec::new(),
        capture: watchers.capture.take(),
        coarse: settings.super_packets,
        may_spin: !settings.super_packets,
    };
    if let Some(capture) = &mut driver.capture {
        capture.begin();
    }
    let senders = congestion::Watch::start(network);
    let mut ended = [None, None];
    let running = &mut [&mut command, &mut server];
    driver.run(signals, running, &mut ended, &watchers, real_time)?;

    let end = driver.clock.now();
    let Driver {
        mut ways,
        mut pool,
        lateness,
        rates,
        mut losses,
        changes,
        capture,
        ..
    } = driver;
    let congestion_controls = senders.finish();
    for way in &mut ways {
        way.advance(end, &mut pool);
    }
    let queue_capture = ways[0].take_capture();
    let capture_failed = (capture.and_then(Capture::finish))
        .or_else(|| queue_capture.and_then(QueueCapture::finish));
    drop(command);
    if let Some(server) = server {
        // The time lets the live view write its last picture.
        server.end(SERVER_PATIENCE);
    }
    losses.missed_packets = network.missed_packets();
    let void = void_reasons(&lateness, [&rates[0], &rates[1]], losses, settings.bounds);
    let ways = observed(settings, end, ways, &changes, rates, congestion_controls);
    let [command, server] = ended;
    Ok(Outcome {
        command,
        server,
        programs: Vec::new(),
        ways,
        changes,
        lateness,
        losses,
        void,
        capture_failed,
        duration: end.since(Time::ZERO),
        user_cpu_s: user_cpu_s() - cpu_s,
    })
}

/// Returns the observations of each direction until `end`.
fn observed(
    settings: &Settings,
    end: Time,
    ways: [Direction; 2],
    changes: &[(Time, LiveChange)],
    rates: [RateCheck; 2],
    mut congestion_controls: congestion::FlowsByCongestionControl,
) -> [Observed; 2] {
    let set_points = [&settings.up, &settings.down].map(|way| {
        let set_point = way.law.set_point()?;
        Some((set_point, way.site(settings.mtu).pkts(set_point)))
    });
    let mut parts = ways.into_iter().zip(set_points).zip(rates);
    std::array::from_fn(|index| {
        let ((way, set_point), rate) = parts.next().expect("there are two directions");
        let counts = *way.counts();
        let tcp_flows = way.flows.with_tcp_data();
        // The queue's deviation from the set-point (QACD) has no meaning where the set-point
        // changed.
        let set_point_changed = changes.iter().any(|(_, change)| match (change, set_point) {
            (LiveChange::Law(way, law), Some((former, _))) => {
                *way == index && law.set_point() != Some(former)
            }
            // A delay is another number of packets at another rate.
            (LiveChange::Rate(way, _), Some((SetPoint::Delay(_), _))) => *way == index,
            _ => false,
        });
        let target_pkts = set_point
            .filter(|_| !set_point_changed)
            .map(|(_, pkts)| pkts);
        let trace = way.finish(NAMES[index], end);
        Observed {
            metrics: Metrics::of(trace.link(0), target_pkts),
            trace,
            counts,
            achieved_bps: rate.achieved_bps(),
            asked_bps: rate.asked_bps(),
            congestion_controls: std::mem::take(&mut congestion_controls[index]),
            tcp_flows,
        }
    })
}

/// A guard that tells watchers the end of the run when it is dropped.
struct LastPicture(Option<Shared>);

impl Drop for LastPicture {
    fn drop(&mut self) {
        if let Some(shared) = &self.0 {
            shared.lock().unwrap_or_else(PoisonError::into_inner).ended = true;
        }
    }
}

/// Returns the CPU time of this thread in user mode, in s; NaN where the kernel does not report it.
fn user_cpu_s() -> f64 {
    getrusage(UsageWho::RUSAGE_THREAD).map_or(f64::NAN, |usage| {
        usage.user_time().num_microseconds() as f64 / 1e6
    })
}

impl Driver<'_> {
    /// Runs the loop until the run is over.
    fn run(
        &mut self,
        signals: &Signals,
        running: &mut [&mut Option<Running>; 2],
        ended: &mut [Option<Ended>; 2],
        watchers: &Watchers,
        real_time: &mut RealTime,
    ) -> Result<(), Error> {
        let mut polled = Polled::new(self.network, signals, running, watchers);
        let mut commands = Commands {
            has_command: running[0].is_some(),
            running,
            ended,
            ending: None,
        };
        let mut next_housekeeping = Time::ZERO;
        let mut next_picture = Time::ZERO;
        let mut last_release = Time::ZERO;
        loop {
            let mut worked = self.receive_both()?;
            let now = self.clock.now();
            for way in &mut self.ways {
                way.advance(now, &mut self.pool);
            }
            if !self.coarse || now >= last_release + COARSE {
                last_release = now;
                for way in 0..2 {
                    worked |= self.release(way)?;
                }
            }
            if now >= next_housekeeping {
                next_housekeeping = now + HOUSEKEEPING;
                polled.wait(Span::ZERO);
                self.yield_to_others(now, real_time);
                if let Some(signal) = self.changed(watchers) {
                    commands.ask_to_end(signal, now);
                }
                if commands.time_is_over(now) {
                    return Ok(());
                }
                if now >= next_picture {
                    while next_picture <= now {
                        next_picture += PICTURE;
                    }
                    self.publish(now, watchers);
                }
            } else if !worked {
                let wake = self.wake(last_release, next_housekeeping);
                let gap = wake.since(self.clock.now());
                if gap > Span::ZERO {
                    // A packet that arrives before ends the sleep early.
                    self.last_poll = wake;
                    polled.wait(gap);
                }
            }
            if polled.has_control_event()
                && commands.are_over(&mut polled, signals, self.clock.now())
            {
                return Ok(());
            }
        }
    }

    /// Uses less CPU where the loop takes nearly a whole core: it first stops polling the clock,
    /// and then gives up its real-time priority.
    fn yield_to_others(&mut self, now: Time, real_time: &mut RealTime) {
        if real_time.hungry(now) {
            if self.may_spin {
                self.may_spin = false;
            } else {
                real_time.give_priority_back();
            }
        }
    }

    /// Fetches packets of both directions. Returns whether there were any.
    fn receive_both(&mut self) -> Result<bool, Error> {
        let now = self.clock.now();
        let late = now.since(self.last_poll);
        self.last_poll = now;
        let mut received = false;
        for way in 0..2 {
            let packets = self.receive(way)?;
            received |= packets > 0;
            if packets > 0 && self.ways[way].in_window(now) {
                self.lateness.fetched(packets, late);
            }
        }
        Ok(received)
    }

    /// Fetches up to [`BATCH`] packets of one direction. Returns their number.
    fn receive(&mut self, way: usize) -> Result<u64, Error> {
        let network = self.network;
        let from = [&network.client.device, &network.server.device][way];
        for i in 0..BATCH {
            let free_slot = self.pool.take();
            let slot = free_slot.unwrap_or(self.scrap);
            let received = from
                .receive(&mut self.pool, slot)
                .map_err(doing("reading a packet"))?;
            if !received || free_slot.is_none() {
                if let Some(slot) = free_slot {
                    self.pool.put_back(slot);
                }
                if !received {
                    return Ok(i);
                }
                self.losses.no_memory_packets += 1;
                continue;
            }
            let now = self.clock.now();
            let packet = *self.pool.slot(slot);
            if let Some(headers) = &packet.headers {
                let opposite = &mut self.ways[1 - way];
                let in_window = opposite.in_window(now);
                opposite.flows.answered(headers, in_window);
            }
            let direction = &mut self.ways[way];
            direction.advance(now, &mut self.pool);
            let before = *direction.counts();
            for index in 0..packet.segments() {
                let segment = self.pool.segment(slot, index);
                direction.arrive(now, segment, &mut self.pool);
            }
            if let Some(capture) = &mut self.capture {
                // Where the packet was dropped, its slot is free but still holds it.
                capture.sent(way, now, &self.pool, slot, &before, direction.counts());
            }
        }
        Ok(BATCH)
    }

    /// Releases up to [`BATCH`] packets that are due in one direction. Returns whether there were
    /// any.
    fn release(&mut self, way: usize) -> Result<bool, Error> {
        for i in 0..BATCH {
            let now = self.clock.now();
            let Some(due) = self.ways[way].release(now) else {
                return Ok(i > 0);
            };
            // Only lateness within the measurement window makes a run void.
            if self.ways[way].in_window(due.at) {
                self.lateness.released(now, &due);
                if !self.ways[way].spreads_delays() {
                    self.rates[way].released(now, &due);
                }
            }
            let network = self.network;
            let to = [&network.server.device, &network.client.device][way];
            match to.send(&mut self.pool, &due) {
                Ok(()) => {
                    if let Some(capture) = &mut self.capture {
                        capture.delivered(way, now, &self.pool, &due);
                    }
                }
                Err(
                    Errno::EAGAIN | Errno::ENOBUFS | Errno::ENETDOWN | Errno::EIO | Errno::EMSGSIZE,
                ) => {
                    self.losses.refused_packets += u64::from(due.segments);
                }
                Err(errno) => return Err(Error::machine("writing a packet", errno.desc())),
            }
            self.pool.left(due.slot, due.segments);
        }
        Ok(true)
    }

    /// Returns the time at which the loop must run again, at most `latest`, unless a packet arrives
    /// before.
    fn wake(&self, last_release: Time, latest: Time) -> Time {
        let mut wake = latest;
        for way in &self.ways {
            if let Some(release) = way.next_release() {
                let spins = self.may_spin && way.rate().as_bps() <= SPIN_BELOW_BPS;
                let early = if spins { SPIN } else { Span::ZERO };
                wake = wake.min(Time::from_nanos(
                    release.as_nanos().saturating_sub(early.as_nanos()),
                ));
            }
        }
        if self.coarse {
            wake = wake.max(last_release + COARSE);
        }
        wake
    }

    /// Carries out the changes that watchers asked for. Returns the signal to end the command with,
    /// if a watcher asked for the end of the run.
    fn changed(&mut self, watchers: &Watchers) -> Option<Signal> {
        while let Ok(change) = watchers.changes.as_ref()?.try_recv() {
            let now = self.clock.now();
            match &change {
                LiveChange::Stop(signal) => return Some(*signal),
                LiveChange::Rate(way, rate) => {
                    let way = &mut self.ways[*way];
                    way.advance(now, &mut self.pool);
                    way.set_rate(now, *rate);
                }
                LiveChange::Law(way, law) => {
                    let mut changed = [&self.settings.up, &self.settings.down][*way].clone();
                    let way = &mut self.ways[*way];
                    changed.law = law.clone();
                    changed.capacity.set_rate(way.rate());
                    let seed = self.settings.seed ^ now.as_nanos();
                    // A law that does not fit the queue is ignored.
                    let Ok(discipline) = changed.discipline(self.settings.mtu, seed, "changed law")
                    else {
                        continue;
                    };
                    way.advance(now, &mut self.pool);
                    let set_point = way.law.with_another_target(law);
                    if !set_point.is_some_and(|set_point| way.set_point(set_point)) {
                        way.set_discipline(now, discipline, &mut self.pool);
                    }
                    way.law = law.clone();
                }
            }
            self.changes.push((now, change));
        }
        None
    }

    /// Publishes a picture of the run, unless a watcher holds the lock.
    fn publish(&mut self, now: Time, watchers: &Watchers) {
        let Some(shared) = &watchers.picture else {
            return;
        };
        let Ok(mut picture) = shared.try_lock() else {
            return;
        };
        let packet = Bytes(u64::from(self.settings.mtu));
        let mut ways = self.ways.each_mut().map(|way| show(way, packet));
        for (_, change) in &self.changes {
            if let LiveChange::Rate(way, _) | LiveChange::Law(way, _) = change {
                ways[*way].changed = true;
            }
        }
        *picture = Picture {
            time: now,
            ways,
            lateness_p99_s: self.lateness.quantile_s(0.99),
            ended: false,
        };
    }
}

/// Returns the present state of a direction. `packet` is the size in which its target is expressed.
fn show(way: &mut Direction, packet: Bytes) -> DirectionNow {
    let mut probes = Vec::new();
    way.probe(&mut |name, value| probes.push((name, value)));
    DirectionNow {
        law: way.law.spec.kind.to_owned(),
        set: way.law.in_words(),
        changed: false,
        rate_bps: way.rate().as_bps() as f64,
        target_pkts: (way.law.set_point()).map(|set_point| set_point.pkts(way.rate(), packet)),
        queue_pkts: way.len_packets(),
        queue_bytes: way.len_bytes(),
        probes,
        counts: *way.counts(),
        delay_s: way.recent_delays_s(),
        classes: way.classes_mut().take_statistics(),
        flows: way.flows.recent(MAX_SHOWN_FLOWS),
    }
}

/// The client's command and the server, and the way in which the run ends.
struct Commands<'a, 'b> {
    has_command: bool,
    running: &'a mut [&'b mut Option<Running>; 2],
    ended: &'a mut [Option<Ended>; 2],
    /// The signal that a watcher sent to the command, and the end of the time that it has to end.
    ending: Option<(Signal, Time)>,
}

impl Commands<'_, '_> {
    /// Passes a watcher's signal to the command, which has [`PATIENCE`] to end. Without a command,
    /// or at a second signal, the run ends at once.
    fn ask_to_end(&mut self, signal: Signal, now: Time) {
        match &self.running[0] {
            Some(command) if self.ending.is_none() => {
                command.signal(signal);
                self.ending = Some((signal, now + PATIENCE));
            }
            _ => self.ending = Some((signal, now)),
        }
    }

    /// Returns whether the time that the command had to end is over.
    fn time_is_over(&mut self, now: Time) -> bool {
        let Some((signal, _)) = self.ending.filter(|(_, end)| now >= *end) else {
            return false;
        };
        if self.has_command {
            // The command did not end by this signal, and is killed.
            self.ended[0].get_or_insert(Ended::Status(128 + signal as i32));
        }
        true
    }

    /// Passes signals on to the command and notes which commands have ended. Returns whether the
    /// run is over.
    fn are_over(&mut self, polled: &mut Polled, signals: &Signals, now: Time) -> bool {
        while let Ok(Some(signal)) = signals.fd.read_signal() {
            match &self.running[0] {
                // Signals of the terminal reach the command directly.
                Some(command) => {
                    if let Some(signal) = sent_by_a_process(&signal) {
                        command.signal(signal);
                    }
                }
                None if signal.ssi_signo != Signal::SIGUSR1 as u32
                    && signal.ssi_signo != Signal::SIGUSR2 as u32 =>
                {
                    return true;
                }
                None => {}
            }
        }
        for (index, (running, ended)) in Polled::COMMANDS
            .into_iter()
            .zip(self.running.iter_mut().zip(&mut *self.ended))
        {
            let how = running.as_mut().and_then(Running::ended);
            if how.is_some() {
                *ended = how;
                polled.leave_out(index);
            }
        }
        if polled.is_ready(Polled::STOP) {
            return true;
        }
        if self.has_command && self.ended[0].is_some() {
            let Some((_, end)) = &mut self.ending else {
                return true;
            };
            *end = (*end).min(now + LINGER);
        }
        false
    }
}

/// The descriptors that end a sleep, each at a fixed index.
struct Polled([libc::pollfd; 6]);

impl Polled {
    /// The index of the signals' descriptor; the two devices come before it.
    const SIGNALS: usize = 2;
    /// The indices of the client's and the server's processes, whose descriptors become readable
    /// when they end.
    const COMMANDS: [usize; 2] = [3, 4];
    /// The index of [`Watchers::stop`].
    const STOP: usize = 5;

    fn new(
        network: &NamespaceNetwork,
        signals: &Signals,
        running: &[&mut Option<Running>; 2],
        watchers: &Watchers,
    ) -> Polled {
        let [command, server] = running.each_ref().map(|running| {
            let running = running.as_ref();
            running.map(|command| command.fd().as_raw_fd())
        });
        let fds = [
            Some(network.client.device.fd().as_raw_fd()),
            Some(network.server.device.fd().as_raw_fd()),
            Some(signals.fd.as_fd().as_raw_fd()),
            command,
            server,
            watchers.stop.as_ref().map(AsRawFd::as_raw_fd),
        ];
        Polled(fds.map(|fd| libc::pollfd {
            // ppoll(2) ignores negative descriptors.
            fd: fd.unwrap_or(-1),
            events: libc::POLLIN,
            revents: 0,
        }))
    }

    /// Returns whether a file other than the devices was ready at the last wait.
    fn has_control_event(&self) -> bool {
        self.0[Polled::SIGNALS..]
            .iter()
            .any(|entry| entry.revents != 0)
    }

    /// Returns whether the descriptor at `index` was ready at the last wait.
    fn is_ready(&self, index: usize) -> bool {
        self.0[index].revents != 0
    }

    /// Ignores the descriptor at `index` from now on.
    fn leave_out(&mut self, index: usize) {
        (self.0[index].fd, self.0[index].revents) = (-1, 0);
    }

    /// Sleeps until a file is readable, a signal comes, or `time` has passed.
    fn wait(&mut self, time: Span) {
        let time = time.min(LONGEST_SLEEP);
        let timeout = libc::timespec {
            tv_sec: 0,
            tv_nsec: time.as_nanos().cast_signed(),
        };
        let Polled(fds) = self;
        // SAFETY: the array and the time live through the call. A call that fails does not write
        // revents.
        let ready = unsafe {
            libc::ppoll(
                fds.as_mut_ptr(),
                fds.len() as libc::nfds_t,
                &timeout,
                std::ptr::null(),
            )
        };
        if ready < 0 {
            for fd in fds {
                fd.revents = 0;
            }
        }
    }
}
