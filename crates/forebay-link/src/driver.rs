//! The real-time loop: one thread between two devices.
//!
//! It fetches packets, lets both directions advance, and releases the packets that are due. Only
//! releases must be on time: everything else gets its exact time, also when it is done late (see
//! [`crate::direction`]).

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
use crate::lateness::{void, Lateness, Losses, Rate};
use crate::live::{LiveChange, Now, Picture, Shared};
use crate::namespace::NamespaceNetwork;
use crate::pool::Pool;
use crate::process::{sent_by_a_process, Ended, Running, FORWARDED};
use crate::queue_capture::QueueCapture;
use crate::real_time::RealTime;
use crate::settings::Settings;

/// Packets that are fetched, or released, in one direction before the other has its turn.
const BATCH: u64 = 32;
/// Sleep ends this long before a release, and the rest is spent looking at the clock: a sleeper
/// wakes 20 to 50 us late.
const SPIN: Span = Span::from_micros(60);
/// Rate above which looking at the clock would leave the receiver too little of two cores.
const SPIN_BELOW_BPS: u64 = 120_000_000;
/// Super-packets are released no more often than this, so that their segments stay together.
const COARSE: Span = Span::from_micros(50);
/// Time between two looks for signals and for the ends of commands, on a busy link too.
const HOUSEKEEPING: Span = Span::from_millis(10);
/// Pictures for those who watch, at multiples of this.
const PICTURE: Span = Span::from_millis(200);
/// Time that a command has to end after it was asked to, and then the processes that it started.
const PATIENCE: Span = Span::from_secs(2);
const LINGER: Span = Span::from_millis(100);
/// The same for a server, when its command has ended.
const SERVER_PATIENCE: Duration = Duration::from_millis(300);
/// Longest sleep, so that samples are taken from time to time.
const LONGEST_SLEEP: Span = Span::from_millis(100);
/// Flows that a picture shows.
const MOST_SHOWN: usize = 8;

/// Observers of a run, and those who may change or end it.
#[derive(Default)]
pub struct Watchers {
    pub picture: Option<Shared>,
    pub changes: Option<Receiver<LiveChange>>,
    /// The run ends when this becomes readable or is closed.
    pub stop: Option<OwnedFd>,
    /// Called when the commands have been started: the first moment at which there may be
    /// further threads.
    pub attend: Option<Box<dyn FnOnce() + Send>>,
    pub capture: Option<Capture>,
    /// Of the queue up.
    pub queue_capture: Option<QueueCapture>,
}

/// Returns a duplicate of the file with this number, for [`Watchers::stop`].
///
/// # Errors
/// EBADF where no file has this number; a negative one would never be ready.
pub fn duplicate(number: i32) -> std::io::Result<OwnedFd> {
    // SAFETY: no memory is passed, and the number need not be of an open file.
    let copy = Errno::result(unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 0) })?;
    // SAFETY: the descriptor is new and belongs to nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
}

/// Names of the directions in reports.
const NAMES: [&str; 2] = ["up", "down"];

/// The observations of one direction.
pub struct Observed {
    pub trace: RunTrace,
    pub metrics: Metrics,
    pub counts: DirectionCounts,
    pub achieved_bps: f64,
    pub asked_bps: f64,
    /// TCP flows that carried data, by the congestion control of their sender.
    pub congestion_controls: BTreeMap<String, u64>,
    /// TCP flows that carried data, also those whose sender was not seen.
    pub tcp_flows: u64,
}

/// The outcome of a run.
pub struct Outcome {
    /// How COMMAND ended; `None` where there was none, or it still ran.
    pub command: Option<Ended>,
    pub server: Option<Ended>,
    /// How each client and each server of programs ended.
    pub programs: Vec<[Option<Ended>; 2]>,
    /// Up, then down.
    pub ways: [Observed; 2],
    /// Changes that a watcher made, with their times.
    pub changes: Vec<(Time, LiveChange)>,
    pub lateness: Lateness,
    pub losses: Losses,
    /// Why the run is void; empty where it is sound.
    pub void: Vec<String>,
    /// Why the captures are not whole; `None` where they are.
    pub capture_failed: Option<String>,
    pub duration: Span,
    pub user_cpu_s: f64,
}

/// Blocks the signals that are passed on, and makes them readable.
pub struct Signals {
    fd: SignalFd,
    former: SigSet,
}

impl Signals {
    /// # Errors
    /// As signalfd(2) says.
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

struct Driver<'a> {
    clock: Clock,
    settings: &'a Settings,
    network: &'a NamespaceNetwork,
    /// Up, then down.
    ways: [Direction; 2],
    pool: Pool,
    /// Taken when no slot is free, so that devices are emptied all the same.
    scrap: u32,
    lateness: Lateness,
    /// When the devices were looked at last, or were to be.
    looked: Time,
    rates: [Rate; 2],
    losses: Losses,
    changes: Vec<(Time, LiveChange)>,
    capture: Option<Capture>,
    coarse: bool,
    may_spin: bool,
}

/// Runs the link until its command ends, or until it is stopped.
///
/// # Errors
/// A law that does not fit the queue; a device that fails.
pub fn run(
    settings: &Settings,
    network: &mut NamespaceNetwork,
    signals: &Signals,
    mut command: Option<Running>,
    mut server: Option<Running>,
    mut watchers: Watchers,
    real_time: &mut RealTime,
) -> Result<Outcome, Error> {
    // However this ends, those who watch are told.
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
        looked: Time::ZERO,
        rates: [Rate::default(); 2],
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
        // The view may have something to write.
        server.end(SERVER_PATIENCE);
    }
    losses.missed_packets = network.missed_packets();
    let void = void(&lateness, [&rates[0], &rates[1]], losses, settings.bounds);
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

/// What each direction did, until the end.
fn observed(
    settings: &Settings,
    end: Time,
    ways: [Direction; 2],
    changes: &[(Time, LiveChange)],
    rates: [Rate; 2],
    mut congestion_controls: congestion::Seen,
) -> [Observed; 2] {
    let asked = [&settings.up, &settings.down].map(|way| {
        let set_point = way.law.set_point()?;
        Some((set_point, way.site(settings.mtu).pkts(set_point)))
    });
    let mut parts = ways.into_iter().zip(asked).zip(rates);
    std::array::from_fn(|index| {
        let ((way, asked), rate) = parts.next().expect("there are two directions");
        let counts = *way.counts();
        let tcp_flows = way.flows.with_tcp_data();
        // QACD has no meaning where the set-point moved.
        let moved = changes.iter().any(|(_, it)| match (it, asked) {
            (LiveChange::Law(of, law), Some((was, _))) => {
                *of == index && law.set_point() != Some(was)
            }
            // In packets a delay moves with the rate.
            (LiveChange::Rate(of, _), Some((SetPoint::Delay(_), _))) => *of == index,
            _ => false,
        });
        let target_pkts = asked.filter(|_| !moved).map(|(_, pkts)| pkts);
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

struct LastPicture(Option<Shared>);

impl Drop for LastPicture {
    fn drop(&mut self) {
        if let Some(shared) = &self.0 {
            shared.lock().unwrap_or_else(PoisonError::into_inner).ended = true;
        }
    }
}

fn user_cpu_s() -> f64 {
    getrusage(UsageWho::RUSAGE_THREAD).map_or(f64::NAN, |it| {
        it.user_time().num_microseconds() as f64 / 1e6
    })
}

impl Driver<'_> {
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
                    // A packet that comes before ends the sleep.
                    self.looked = wake;
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

    /// Where others want the processor: looks at the clock no more, and then gives priority back.
    fn yield_to_others(&mut self, now: Time, real_time: &mut RealTime) {
        if real_time.hungry(now) {
            if self.may_spin {
                self.may_spin = false;
            } else {
                real_time.give_priority_back();
            }
        }
    }

    /// Fetches packets that want to go either way; whether there were any.
    fn receive_both(&mut self) -> Result<bool, Error> {
        let now = self.clock.now();
        let late = now.since(self.looked);
        self.looked = now;
        let mut any = false;
        for way in 0..2 {
            let packets = self.receive(way)?;
            any |= packets > 0;
            if packets > 0 && self.ways[way].in_window(now) {
                self.lateness.fetched(packets, late);
            }
        }
        Ok(any)
    }

    /// Fetches packets that want to go one way; how many there were.
    fn receive(&mut self, way: usize) -> Result<u64, Error> {
        let network = self.network;
        let from = [&network.client.device, &network.server.device][way];
        for i in 0..BATCH {
            let taken = self.pool.take();
            let slot = taken.unwrap_or(self.scrap);
            let got = from
                .receive(&mut self.pool, slot)
                .map_err(doing("reading a packet"))?;
            if !got || taken.is_none() {
                if let Some(slot) = taken {
                    self.pool.put_back(slot);
                }
                if !got {
                    return Ok(i);
                }
                self.losses.no_memory_packets += 1;
                continue;
            }
            let now = self.clock.now();
            let slot_is = *self.pool.slot(slot);
            if let Some(headers) = &slot_is.headers {
                let other = &mut self.ways[1 - way];
                let in_window = other.in_window(now);
                other.flows.answered(headers, in_window);
            }
            let direction = &mut self.ways[way];
            direction.advance(now, &mut self.pool);
            let before = *direction.counts();
            for index in 0..slot_is.segments() {
                let segment = self.pool.segment(slot, index);
                direction.arrive(now, segment, &mut self.pool);
            }
            if let Some(capture) = &mut self.capture {
                // A dropped packet's slot is free, and not yet used again.
                capture.sent(way, now, &self.pool, slot, &before, direction.counts());
            }
        }
        Ok(BATCH)
    }

    /// Releases the packets that are due one way. Returns whether there were any.
    fn release(&mut self, way: usize) -> Result<bool, Error> {
        for i in 0..BATCH {
            let now = self.clock.now();
            let Some(due) = self.ways[way].release(now) else {
                return Ok(i > 0);
            };
            // Only lateness within the window of the metrics makes a run void.
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

    /// When to look again, unless a packet comes.
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

    /// Makes the changes that watchers ask for. Returns the signal to end with, if one asks for it.
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
                    let mut asked = [&self.settings.up, &self.settings.down][*way].clone();
                    let way = &mut self.ways[*way];
                    asked.law = law.clone();
                    asked.capacity.set_rate(way.rate());
                    let seed = self.settings.seed ^ now.as_nanos();
                    // A law that does not fit the queue is refused.
                    let Ok(discipline) = asked.discipline(self.settings.mtu, seed, "changed law")
                    else {
                        continue;
                    };
                    way.advance(now, &mut self.pool);
                    let set_point = way.law.with_another_target(law);
                    if !set_point.is_some_and(|it| way.set_point(it)) {
                        way.set_discipline(now, discipline, &mut self.pool);
                    }
                    way.law = law.clone();
                }
            }
            self.changes.push((now, change));
        }
        None
    }

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

fn show(way: &mut Direction, packet: Bytes) -> Now {
    let mut probes = Vec::new();
    way.probe(&mut |name, value| probes.push((name, value)));
    Now {
        law: way.law.spec.kind.to_owned(),
        set: way.law.in_words(),
        changed: false,
        rate_bps: way.rate().as_bps() as f64,
        target_pkts: way.law.set_point().map(|it| it.pkts(way.rate(), packet)),
        queue_pkts: way.len_packets(),
        queue_bytes: way.len_bytes(),
        probes,
        counts: *way.counts(),
        delay_s: way.recent_delays_s(),
        classes: way.classes_mut().show(),
        flows: way.flows.recent(MOST_SHOWN),
    }
}

/// COMMAND and the server while they run, and how they are ended.
struct Commands<'a, 'b> {
    has_command: bool,
    running: &'a mut [&'b mut Option<Running>; 2],
    ended: &'a mut [Option<Ended>; 2],
    /// The signal that the command got from a watcher, and when its time to end is over.
    ending: Option<(Signal, Time)>,
}

impl Commands<'_, '_> {
    /// A watcher ends the run: COMMAND gets its signal, and time to end.
    fn ask_to_end(&mut self, signal: Signal, now: Time) {
        match &self.running[0] {
            Some(command) if self.ending.is_none() => {
                command.signal(signal);
                self.ending = Some((signal, now + PATIENCE));
            }
            _ => self.ending = Some((signal, now)),
        }
    }

    /// Whether the time that the command had to end is over.
    fn time_is_over(&mut self, now: Time) -> bool {
        let Some((signal, _)) = self.ending.filter(|(_, end)| now >= *end) else {
            return false;
        };
        if self.has_command {
            // It is killed, for want of an answer to this one.
            self.ended[0].get_or_insert(Ended::Status(128 + signal as i32));
        }
        true
    }

    /// Passes signals on and notes which commands have ended; whether the run is over by that.
    fn are_over(&mut self, polled: &mut Polled, signals: &Signals, now: Time) -> bool {
        while let Ok(Some(signal)) = signals.fd.read_signal() {
            match &self.running[0] {
                // A terminal's signals reach the command without us.
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
        for (place, (running, ended)) in Polled::COMMANDS
            .into_iter()
            .zip(self.running.iter_mut().zip(&mut *self.ended))
        {
            let how = running.as_mut().and_then(Running::ended);
            if how.is_some() {
                *ended = how;
                polled.leave_out(place);
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

/// The files that end a sleep, each at its own place.
struct Polled([libc::pollfd; 6]);

impl Polled {
    /// Before these there are the two devices, and the signals.
    const SIGNALS: usize = 2;
    /// COMMAND and the server, as they end.
    const COMMANDS: [usize; 2] = [3, 4];
    const STOP: usize = 5;

    fn new(
        network: &NamespaceNetwork,
        signals: &Signals,
        running: &[&mut Option<Running>; 2],
        watchers: &Watchers,
    ) -> Polled {
        let [command, server] = running.each_ref().map(|running| {
            let running = running.as_ref();
            running.map(|it| it.fd().as_raw_fd())
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
            // Negative ones are left out.
            fd: fd.unwrap_or(-1),
            events: libc::POLLIN,
            revents: 0,
        }))
    }

    /// Whether one other than the devices was ready at the last wait.
    fn has_control_event(&self) -> bool {
        self.0[Polled::SIGNALS..].iter().any(|it| it.revents != 0)
    }

    fn is_ready(&self, place: usize) -> bool {
        self.0[place].revents != 0
    }

    fn leave_out(&mut self, place: usize) {
        (self.0[place].fd, self.0[place].revents) = (-1, 0);
    }

    /// Sleeps until a file is readable, a signal comes, or `time` has passed.
    fn wait(&mut self, time: Span) {
        let time = time.min(LONGEST_SLEEP);
        let timeout = libc::timespec {
            tv_sec: 0,
            tv_nsec: time.as_nanos().cast_signed(),
        };
        let Polled(fds) = self;
        // SAFETY: the array and the time live through the call. A signal leaves revents as they were.
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
