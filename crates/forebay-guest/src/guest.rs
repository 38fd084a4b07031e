//! First process of the guest: it boots, runs the scenario, and switches the guest off.

mod clock;
mod hosts;
mod kernels;
mod network;
mod ours;
mod programs;
mod recorded;
mod rows;
#[allow(unsafe_code, reason = "system calls")]
mod sys;
#[allow(unsafe_code, reason = "system calls")]
mod syscalls;
#[allow(unsafe_code, reason = "a ring that the kernel shares")]
mod tap;

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::fd::BorrowedFd;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};

use forebay_aqm::Capacity;
use forebay_linux_tc::Tc;
use forebay_scenario::{LawChoice, LinkSetting, Scenario, Setting, Shaper};
use forebay_units::{Rate, Span, Time};
use nix::mount::{mount, MsFlags};
use nix::net::if_::if_nametoindex;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::reboot::{reboot, RebootMode};
use nix::sys::resource::{setrlimit, Resource};
use nix::unistd::{chdir, chroot};

use clock::GuestClock;
use hosts::{Hosts, Place, Ready};
use kernels::Kernels;
use network::{groups, Group, Tools};
use ours::Ours;
use rows::Rows;
use syscalls::{Purpose, Syscalls};
use tap::Tap;

use crate::limits::{ETHERNET_BYTES, MOST_FLOWS};
use crate::record::{RunRecord, SampleRow, OUTCOME, PROGRESS, SAMPLES};
use crate::trace::goodput_every;
use crate::{Orders, Qdisc};

/// The folder of the run, which the host shares with the guest.
const RUN: &str = "/run/forebay";
/// The number of files that a process may have open.
const DESCRIPTORS: u64 = 4 * MOST_FLOWS as u64;
/// The folder of iproute2's programs, which the host shares with the guest.
const TOOLS: &str = "/run/tools";
/// Time after the end of the run in which packets can still leave the kernel's queue.
const DRAIN: Span = Span::from_millis(3000);
/// The default burst of the shaper, in full packets.
const BURST_PKTS: u64 = 2;

/// Carries out the run that the host ordered, and switches the guest off. An error goes into
/// [`RunRecord::failure`], or to the console where that cannot be written.
pub fn init() -> ! {
    let result = catch_unwind(|| {
        let folder = boot()?;
        let outcome = run(&folder).unwrap_or_else(|error| RunRecord {
            failure: error.to_string(),
            ..RunRecord::default()
        });
        let json = serde_json::to_vec(&outcome)?;
        fs::write(folder.join(OUTCOME), json)
    });
    match result {
        Ok(Ok(())) => {}
        Ok(Err(error)) => println!("the guest failed: {error}"),
        Err(_) => println!("the guest's first process panicked"),
    }
    let _ = io::stdout().flush();
    let _ = reboot(RebootMode::RB_POWER_OFF);
    std::process::exit(1)
}

/// Makes the guest's root: a file system in memory over that of the host, which stays unchanged.
/// Mounts the folders that the host shares, and returns the folder of the run.
fn boot() -> io::Result<PathBuf> {
    let variable = |name: &str| {
        std::env::var(name).map_err(|_| io::Error::other(format!("the guest was not told {name}")))
    };
    let (run, tools) = (variable("FOREBAY_RUN")?, variable("FOREBAY_TOOLS")?);
    // Linux starts with 1024 (INR_OPEN_CUR), and each flow has two sockets.
    setrlimit(Resource::RLIMIT_NOFILE, DESCRIPTORS, DESCRIPTORS)?;
    let none = None::<&str>;
    let plain = |kind: &str, at: &str| {
        mount(Some("none"), at, Some(kind), MsFlags::empty(), none)
            .map_err(|error| io::Error::other(format!("mounting {at}: {error}")))
    };
    plain("tmpfs", "/run")?;
    for folder in ["upper", "work", "root"] {
        fs::create_dir(format!("/run/{folder}"))?;
    }
    let layers = "lowerdir=/,upperdir=/run/upper,workdir=/run/work";
    mount(
        Some("none"),
        "/run/root",
        Some("overlay"),
        MsFlags::empty(),
        Some(layers),
    )
    .map_err(|error| io::Error::other(format!("an overlay: {error}")))?;
    chroot("/run/root")?;
    chdir("/")?;
    plain("proc", "/proc")?;
    plain("sysfs", "/sys")?;
    plain("tmpfs", "/run")?;
    plain("devtmpfs", "/dev")?;
    let host = |folder: &str, at: &str, flags: MsFlags| {
        fs::create_dir_all(at)?;
        mount(Some("none"), at, Some("hostfs"), flags, Some(folder))
            .map_err(|error| io::Error::other(format!("mounting the host's {folder}: {error}")))
    };
    // A program in a new user namespace would have all capabilities again. A kernel without user
    // namespaces does not have this file.
    let _ = fs::write("/proc/sys/user/max_user_namespaces", "0");
    host(&run, RUN, MsFlags::empty())?;
    // Other runs use the same tools, so programs of this run must not change them.
    host(&tools, TOOLS, MsFlags::MS_RDONLY)?;
    Ok(PathBuf::from(RUN))
}

/// Carries out the run that the orders in `folder` describe.
fn run(folder: &Path) -> io::Result<RunRecord> {
    let orders: Orders = serde_json::from_slice(&fs::read(folder.join("orders.json"))?)?;
    let contents = |number: usize| fs::read(folder.join(number.to_string())).unwrap_or_default();
    let (scenario, law) = orders
        .read(contents)
        .map_err(|error| io::Error::other(error.to_string()))?;
    let groups = groups(&scenario);
    let tools = Tools::new(PathBuf::from(TOOLS));
    network::make(&scenario, &groups, &tools)?;
    if let Some(name) = &scenario.kernel.tcp {
        network::check_congestion_control(name)?;
    }
    let traffic = groups.iter().map(|group| {
        u8::try_from(group.traffic).map(|traffic| GroupTraffic {
            traffic,
            recorded: group.recorded,
            mtu: u32::try_from(network::mtu(scenario.traffic[group.traffic].packet.0))
                .unwrap_or(u32::MAX),
        })
    });
    let traffic: Vec<GroupTraffic> = traffic
        .collect::<Result<_, _>>()
        .map_err(|_| io::Error::other("too much traffic"))?;
    let bottleneck = match &orders.qdisc {
        Some(qdisc) => {
            let queue = kernels_queue(qdisc, (&scenario, &law), &tools, traffic)?;
            GuestBottleneck::Kernels(Box::new(queue))
        }
        None => {
            let queue = our_queue(&scenario, &law, orders.seed, &tools, traffic)?;
            GuestBottleneck::Ours(Box::new(queue))
        }
    };
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
    let place = Place {
        run: folder.to_owned(),
        scenario: PathBuf::from(&orders.folder),
    };
    let mut hosts = Hosts::new(&scenario, &groups, orders.seed, &epoll, place)?;
    hosts.start_servers()?;
    let run = Run {
        scenario: &scenario,
        law: &law,
        groups: &groups,
        qdisc: orders.qdisc.clone(),
        rate: scenario.tested_link().rate,
        tools: &tools,
        folder,
        epoll: &epoll,
        clock: GuestClock::start()?,
        bottleneck,
        syscalls: Syscalls::new(orders.several_calls),
        events: 0,
        packets: Rows::create(folder, scenario.kernel.pcap)?,
        samples: BufWriter::new(File::create(folder.join(SAMPLES))?),
    };
    let mut outcome = run.drive(hosts)?;
    let release = fs::read_to_string("/proc/sys/kernel/osrelease")?;
    release.trim().clone_into(&mut outcome.kernel);
    if orders.qdisc.is_some() {
        let (router, device) = (network::ROUTER, network::NEAR_DEVICE);
        let words = ["-n", router, "-s", "-d", "qdisc", "show", "dev", device];
        outcome.qdisc = tools.output("tc", &words);
    }
    Ok(outcome)
}

/// The queue under test: one of this workspace, or one of the kernel.
enum GuestBottleneck {
    Ours(Box<Ours>),
    Kernels(Box<Kernels>),
}

/// Returns the MTU of the two TUN devices around a queue of this workspace.
fn our_mtu(scenario: &Scenario) -> u64 {
    scenario.packet().0.max(crate::limits::LEAST_PACKET_BYTES)
}

/// Makes a queue of this workspace between two TUN devices.
fn our_queue(
    scenario: &Scenario,
    law: &LawChoice,
    seed: u64,
    tools: &Tools,
    traffic: Vec<GroupTraffic>,
) -> io::Result<Ours> {
    let mtu = our_mtu(scenario);
    let mut ends = Vec::new();
    for (namespace, device) in [
        (network::ROUTER, network::IN_DEVICE),
        (network::FAR, network::OUT_DEVICE),
    ] {
        network::enter(namespace)?;
        ends.push(sys::tun(device)?);
        let mut up = format!("link set {device} mtu {mtu} txqueuelen 10000 up\n");
        if namespace == network::ROUTER {
            up += &format!("route add 10.128.0.0/9 dev {device}\n");
        }
        tools.batch("ip", Some(namespace), &up)?;
    }
    let far = ends.pop().expect("there are two");
    let near = ends.pop().expect("there are two");
    Ours::new(scenario, law, seed, [near, far], traffic)
        .map_err(|error| io::Error::other(error.to_string()))
}

/// Makes a queue of the kernel under a token bucket (tbf or htb), or one that shapes by itself.
fn kernels_queue(
    qdisc: &Qdisc,
    (scenario, law): (&Scenario, &LawChoice),
    tools: &Tools,
    traffic: Vec<GroupTraffic>,
) -> io::Result<Kernels> {
    let device = network::NEAR_DEVICE;
    network::enter(network::ROUTER)?;
    tools.batch(
        "ip",
        Some(network::ROUTER),
        &format!("route add 10.128.0.0/9 dev {device}\n"),
    )?;
    let rate = scenario.tested_link().rate;
    let shaper = shaper(qdisc, "add", rate, scenario);
    let (parent, held, queue) = match qdisc.shapes {
        true => (TC_ROOT, None, String::new()),
        false => (
            TC_CLASS,
            Some(rate).filter(|_| scenario.kernel.shaper == Shaper::Tbf),
            format!(
                "qdisc add dev {device} parent 1:1 handle 10: {}\n",
                qdisc.words
            ),
        ),
    };
    tools.batch("tc", Some(network::ROUTER), &(shaper + &queue))?;
    let near = Tap::new()?;
    let index = if_nametoindex(device)?;
    network::enter(network::FAR)?;
    let far = Tap::new()?;
    network::enter(network::ROUTER)?;
    let tc = crate::tc(scenario, law, scenario.tested_link().buffer);
    let state = tc.map_or(&[][..], |tc| tc.state);
    Kernels::new((index, state), parent, near, far, traffic, held)
}

/// TC_H_ROOT (linux/pkt_sched.h).
const TC_ROOT: u32 = 0xffff_ffff;
/// The class 1:1 of the token bucket.
const TC_CLASS: u32 = 0x0001_0001;

/// Returns the tc commands that set the rate. `verb` is "add" or "change".
fn shaper(qdisc: &Qdisc, verb: &str, rate: Rate, scenario: &Scenario) -> String {
    let (capacity, packet_bytes) = (scenario.tested_link().capacity(), scenario.packet().0);
    let (device, bps) = (network::NEAR_DEVICE, rate.as_bps());
    if qdisc.shapes {
        // Only a qdisc without a rate of its own gets the link's rate.
        let bandwidth = format!("bandwidth {bps}bit");
        let words = qdisc.words.replace(Tc::UNLIMITED, &bandwidth);
        return format!("qdisc {verb} dev {device} root handle 10: {words}\n");
    }
    let burst = match capacity {
        Capacity::Bucket { burst, .. } => burst.0,
        _ => BURST_PKTS * packet_bytes,
    };
    match scenario.kernel.shaper {
        Shaper::Tbf => format!(
            "qdisc {verb} dev {device} root handle 1: tbf rate {bps}bit burst {burst} limit \
             100000000\n"
        ),
        Shaper::Htb => {
            let class = format!(
                "class {verb} dev {device} parent 1: classid 1:1 htb rate {bps}bit burst {burst} \
                 cburst {burst} quantum {packet_bytes}\n"
            );
            match verb {
                "add" => format!("qdisc add dev {device} root handle 1: htb default 1\n{class}"),
                _ => class,
            }
        }
    }
}

/// The state of a run.
struct Run<'a> {
    scenario: &'a Scenario,
    law: &'a LawChoice,
    groups: &'a [Group],
    /// The present qdisc where the queue is the kernel's.
    qdisc: Option<Qdisc>,
    /// The present rate of the bottleneck.
    rate: Rate,
    tools: &'a Tools,
    folder: &'a Path,
    epoll: &'a Epoll,
    clock: GuestClock,
    bottleneck: GuestBottleneck,
    syscalls: Syscalls,
    /// The number of events of the last wait.
    events: usize,
    packets: Rows,
    samples: BufWriter<File>,
}

impl Run<'_> {
    /// Adds a file to epoll. Its events have the tag of `ready`.
    fn watch(&self, fd: BorrowedFd, ready: Ready) -> io::Result<()> {
        let event = EpollEvent::new(EpollFlags::EPOLLIN, ready.tag());
        Ok(self.epoll.add(fd, event)?)
    }

    /// Runs the main loop until the end of the scenario.
    fn drive(mut self, mut hosts: Hosts) -> io::Result<RunRecord> {
        let scenario = self.scenario;
        self.watch(self.clock.timer(), Ready::Timer)?;
        match &self.bottleneck {
            GuestBottleneck::Ours(ours) => {
                self.watch(ours.device(), Ready::Bottleneck)?;
                hosts.outcome.probes = ours.probes();
            }
            GuestBottleneck::Kernels(kernels) => hosts.outcome.probes = kernels.probes(),
        }
        hosts.outcome.started_ns = self.clock.start_ns();
        if scenario.windows {
            hosts.outcome.probes.push("in_flight_pkts".to_owned());
        }
        let end = Time::ZERO + scenario.duration;
        let over = match self.bottleneck {
            GuestBottleneck::Ours(_) => end,
            GuestBottleneck::Kernels(_) => end + DRAIN,
        };
        let every = goodput_every(scenario);
        let (window_start, window_end) = scenario.measure;
        let mut progress = File::create(self.folder.join(PROGRESS))?;
        let (mut next_sample, mut rows) = (Time::ZERO + scenario.sample, 0u64);
        let (mut window_began, mut window_ended) = (false, false);
        let (mut now, mut arrivals) = (self.clock.now(), false);
        loop {
            // The calls that were requested come before the actions below.
            let due = hosts.due().min(over);
            let due = due.min(if window_began {
                Time::MAX
            } else {
                window_start
            });
            let due = due.min(if window_ended { Time::MAX } else { window_end });
            if due.min(next_sample) <= now {
                self.settle(now, &mut hosts)?;
            }
            if !window_began && now >= window_start {
                window_began = true;
                hosts.begin_window();
            }
            hosts.advance(now, |number| self.change(now, number))?;
            if let GuestBottleneck::Ours(ours) = &mut self.bottleneck {
                ours.advance(now, &mut self.packets, &mut self.syscalls)?;
            }
            while arrivals {
                if let GuestBottleneck::Ours(ours) = &mut self.bottleneck {
                    ours.ask(&mut self.syscalls);
                }
                arrivals = self.settle(now, &mut hosts)?;
            }
            if !window_ended && now >= window_end {
                window_ended = true;
                self.settle(now, &mut hosts)?;
                hosts.end_window();
            }
            while next_sample <= now && next_sample <= end {
                self.settle(now, &mut hosts)?;
                self.sample(&hosts)?;
                rows += 1;
                if rows.is_multiple_of(every) {
                    hosts.row_of_goodput();
                }
                hosts.look_at_programs();
                if rows.is_multiple_of(100) {
                    progress.write_all(format!("{}\n", next_sample.as_nanos()).as_bytes())?;
                }
                next_sample += scenario.sample;
            }
            if now >= over {
                break;
            }
            let mut due = hosts.due().min(over);
            if next_sample <= end {
                due = due.min(next_sample);
            }
            if let GuestBottleneck::Ours(ours) = &self.bottleneck {
                due = due.min(ours.due());
            }
            self.syscalls.wait(&self.epoll.0, &mut self.clock, due);
            self.settle(now, &mut hosts)?;
            let (monotonic, events) = self.syscalls.woken(self.events);
            now = self.clock.at(monotonic);
            for (tag, flags) in events {
                match Ready::of(tag) {
                    Ready::Timer => self.clock.rang(),
                    Ready::Bottleneck => arrivals = true,
                    ready => {
                        if !hosts.ask(ready, flags, &mut self.syscalls) {
                            self.settle(now, &mut hosts)?;
                            hosts.handle(now, ready, flags)?;
                        }
                    }
                }
            }
        }
        if let GuestBottleneck::Kernels(kernels) = &mut self.bottleneck {
            kernels.fetch(&self.clock, &mut self.packets)?;
            kernels.finish(&mut self.packets)?;
        }
        self.packets.flush()?;
        self.samples.flush()?;
        Ok(hosts.finish())
    }

    /// Makes the calls that were requested and handles their results. Returns whether more packets
    /// may wait at the device of the bottleneck.
    fn settle(&mut self, now: Time, hosts: &mut Hosts) -> io::Result<bool> {
        let mut more = false;
        while !self.syscalls.is_empty() {
            let mut device_is_empty = false;
            for (purpose, result) in self.syscalls.make()? {
                match (purpose, &mut self.bottleneck) {
                    (Purpose::Discard(number), _) => hosts.received(now, number, &result),
                    (Purpose::HandOn(slot, memory), GuestBottleneck::Ours(ours)) => {
                        ours.handed_on(slot, memory, &result)?;
                    }
                    (Purpose::Fetch(slot, memory), GuestBottleneck::Ours(ours)) => {
                        let packet = (slot, memory);
                        more = ours.fetched(now, packet, &result, &mut self.packets)?;
                        device_is_empty = !more;
                    }
                    (Purpose::Wait, _) => {
                        self.events = match result.last == -i64::from(nix::libc::EINTR) {
                            true => 0,
                            false => usize::try_from(result.checked()?).unwrap_or(0),
                        };
                    }
                    (Purpose::Timer | Purpose::Now, _) => drop(result.checked()?),
                    (Purpose::Fill | Purpose::HandOn(..) | Purpose::Fetch(..), _) => {}
                }
            }
            if let (GuestBottleneck::Ours(ours), true) = (&mut self.bottleneck, device_is_empty) {
                // Only further fetches can be requested after a fetch.
                for (slot, memory) in self.syscalls.take_back() {
                    ours.unused(slot, memory);
                }
            }
        }
        Ok(more)
    }

    /// Writes the row of a sample.
    fn sample(&mut self, hosts: &Hosts) -> io::Result<()> {
        let mut row: SampleRow = match &mut self.bottleneck {
            GuestBottleneck::Ours(ours) => ours.sample(),
            GuestBottleneck::Kernels(kernels) => {
                kernels.fetch(&self.clock, &mut self.packets)?;
                kernels.sample()?
            }
        };
        if self.scenario.windows {
            row.probes.push(hosts.mean_in_flight_pkts());
        }
        row.write(&mut self.samples)
    }

    /// Carries out the change of the bottleneck with this number.
    fn change(&mut self, now: Time, number: usize) -> io::Result<()> {
        let Setting::Link { what, .. } = self.scenario.changes[number].what else {
            return Ok(());
        };
        match what {
            LinkSetting::Delay(delay) => {
                network::set_delay(
                    self.groups,
                    self.tools,
                    self.scenario.tested_link().delay,
                    delay,
                )?;
            }
            LinkSetting::Rate(rate) => {
                self.rate = rate;
                match &mut self.bottleneck {
                    GuestBottleneck::Ours(ours) => ours.set_rate(now, rate),
                    GuestBottleneck::Kernels(kernels) => kernels.set_rate(rate),
                }
                if let Some(qdisc) = &self.qdisc {
                    let mut change = shaper(qdisc, "change", rate, self.scenario);
                    // A FIFO gets the limit of the tbf that changes (tbf_change in sch_tbf.c).
                    if qdisc.words.starts_with("pfifo") || qdisc.words.starts_with("bfifo") {
                        change += &queue_change(qdisc);
                    }
                    self.tools.batch("tc", Some(network::ROUTER), &change)?;
                }
            }
            LinkSetting::Buffer(buffer) => {
                if let GuestBottleneck::Ours(ours) = &mut self.bottleneck {
                    ours.set_buffer(buffer);
                }
                if self.qdisc.is_some() {
                    self.qdisc = crate::qdisc_with(self.scenario, self.law, buffer);
                }
                if let Some(qdisc) = &self.qdisc {
                    let change = match qdisc.shapes {
                        true => shaper(qdisc, "change", self.rate, self.scenario),
                        false => queue_change(qdisc),
                    };
                    self.tools.batch("tc", Some(network::ROUTER), &change)?;
                }
            }
        }
        Ok(())
    }
}

/// Returns the tc command that changes the parameters of a queue under a shaper.
fn queue_change(qdisc: &Qdisc) -> String {
    let words = changeable(&qdisc.words);
    format!(
        "qdisc change dev {} parent 1:1 handle 10: {words}\n",
        network::NEAR_DEVICE
    )
}

/// Returns the words of a qdisc without the parameters that it accepts only when it is made.
fn changeable(words: &str) -> String {
    let mut kept = Vec::new();
    let mut words = words.split_whitespace();
    while let Some(word) = words.next() {
        match word {
            "flows" => {
                words.next();
            }
            word => kept.push(word),
        }
    }
    kept.join(" ")
}

/// The traffic that the packets of a group belong to.
#[derive(Clone, Copy)]
struct GroupTraffic {
    traffic: u8,
    /// True if the packets are those of a recorded file, with many flows between many hosts.
    recorded: bool,
    /// The MTU of the sender's device, in bytes.
    mtu: u32,
}

impl GroupTraffic {
    /// Returns the bytes of a packet on the wire. A segment that no device has divided yet (GSO)
    /// counts as the packets that it will become, each with its headers.
    fn wire_bytes(self, ip: &[u8]) -> u32 {
        let bytes = u32::from(u16::from_be_bytes([ip[2], ip[3]]));
        let headers = u32::from(header_bytes(ip));
        let more = match bytes > self.mtu {
            true => {
                let data = (bytes + ETHERNET_BYTES).saturating_sub(headers);
                let room = (self.mtu + ETHERNET_BYTES).saturating_sub(headers).max(1);
                data.div_ceil(room) - 1
            }
            false => 0,
        };
        bytes + ETHERNET_BYTES + more * headers
    }

    /// Returns the number of a packet's flow in its traffic, from its source address, or from its
    /// source port where packets are recorded.
    fn flow_number(self, ip: &[u8]) -> u32 {
        let word = |at: usize| {
            ip.get(at..at + 2)
                .map_or(0, |bytes| u16::from_be_bytes([bytes[0], bytes[1]]))
        };
        match self.recorded {
            true => u32::from(word(20)),
            false => u32::from(word(14)).saturating_sub(1),
        }
    }
}

/// Returns the size of a packet's headers: Ethernet, IPv4, and TCP or UDP.
fn header_bytes(ip: &[u8]) -> u8 {
    let internet = usize::from(ip[0] & 0xf) * 4;
    let transport = match ip[9] {
        6 => ip
            .get(internet + 12)
            .map_or(20, |byte| usize::from(byte >> 4) * 4),
        17 => 8,
        _ => 0,
    };
    u8::try_from(internet + transport + 14).unwrap_or(u8::MAX)
}
