//! Network of a guest: for each traffic and each of its round-trip times a namespace of senders and
//! one of receivers, with the bottleneck between them.
//!
//! ```text
//! s0..sN ── rtr ══ bottleneck ══ far ── d0..dN
//!            netem: half of the round trip on the way to the senders, half to the receivers
//! ```
//! Senders are not in the router's namespace: otherwise TCP small queues would limit the data that
//! a sender has in the queue under test. There is no ARP: both devices of a pair have the same
//! address.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use forebay_scenario::{EcnChoice, Offloads, Scenario, TrafficKind};
use forebay_units::Span;
use nix::sched::{setns, CloneFlags};

use super::sys;
use crate::limits::{ETHERNET_BYTES, LEAST_PACKET_BYTES};

/// The namespace of the router before the bottleneck.
pub const ROUTER: &str = "rtr";
/// The namespace of the router after the bottleneck.
pub const FAR: &str = "far";
/// The device at which the router sends packets into the bottleneck.
pub const NEAR_DEVICE: &str = "r1";
/// The device at which packets come out of the bottleneck.
pub const FAR_DEVICE: &str = "x0";
/// The TUN device from which a queue of this workspace reads packets.
pub const IN_DEVICE: &str = "fb0";
/// The TUN device to which a queue of this workspace writes packets.
pub const OUT_DEVICE: &str = "fb1";

/// The flows of one traffic with the same round-trip time, which share two namespaces.
#[derive(Clone, Debug)]
pub struct Group {
    /// The number of the group.
    pub number: u8,
    /// The number of the traffic.
    pub traffic: usize,
    /// The round-trip time of the paths, without queues.
    pub rtt: Span,
    /// True if all flows belong to one host.
    pub one_host: bool,
    /// The number of the only flow, where the traffic is a program: programs have hosts of their
    /// own.
    pub only_flow: Option<u32>,
    /// True if packets, flows and hosts are those of a recorded file.
    pub recorded: bool,
}

impl Group {
    /// Returns the name of the senders' namespace.
    pub fn source_namespace(&self) -> String {
        format!("s{}", self.number)
    }

    /// Returns the name of the receivers' namespace.
    pub fn sink_namespace(&self) -> String {
        format!("d{}", self.number)
    }

    /// Returns the addresses of a flow: sender, then receiver.
    pub fn addresses(&self, flow: u32) -> (Ipv4Addr, Ipv4Addr) {
        let host = if self.one_host { 1 } else { flow + 1 };
        self.addresses_of_hosts(u16::try_from(host & 0xffff).expect("it has 16 bits"))
    }

    /// Returns the addresses of the sender and of the receiver with this number.
    pub fn addresses_of_hosts(&self, host: u16) -> (Ipv4Addr, Ipv4Addr) {
        let base = 10 << 24 | u32::from(self.number) << 16 | u32::from(host);
        (base.into(), (base | SINKS << 16).into())
    }
}

/// The addresses of sinks are 10.(128 + group).x.y.
const SINKS: u32 = 128;

/// Returns the groups of a scenario, in the order of its traffics.
pub fn groups(scenario: &Scenario) -> Vec<Group> {
    let mut groups = Vec::new();
    for (number, traffic) in scenario.traffic.iter().enumerate() {
        let no_delay = [Span::ZERO];
        let rtts = if traffic.rtts.is_empty() {
            &no_delay[..]
        } else {
            &traffic.rtts
        };
        let programs = matches!(traffic.kind, TrafficKind::Program(_));
        let count = if programs {
            traffic.flows as usize
        } else {
            rtts.len()
        };
        for (flow, rtt) in (0..).zip(rtts.iter().cycle().take(count)) {
            groups.push(Group {
                number: u8::try_from(groups.len()).expect("the scenario was checked"),
                traffic: number,
                rtt: *rtt,
                one_host: traffic.host.is_some(),
                only_flow: programs.then_some(flow),
                recorded: matches!(traffic.kind, TrafficKind::Arrivals(_)),
            });
        }
    }
    groups
}

/// The programs of iproute2 in a folder that has their libraries too.
pub struct Tools {
    folder: PathBuf,
}

impl Tools {
    /// Returns the tools in `folder`.
    pub fn new(folder: PathBuf) -> Tools {
        Tools { folder }
    }

    /// Returns the command that runs `program` with the libraries of the folder.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.folder.join("lib/ld-linux-x86-64.so.2"));
        command
            .arg("--library-path")
            .arg(self.folder.join("lib"))
            .arg(self.folder.join("bin").join(program));
        command
    }

    /// Runs the commands of `program`, one a line, in a namespace and in one process.
    ///
    /// # Errors
    /// A command fails; the error has the text of the program.
    pub fn batch(&self, program: &str, namespace: Option<&str>, commands: &str) -> io::Result<()> {
        if commands.is_empty() {
            return Ok(());
        }
        let mut command = self.command(program);
        if let Some(namespace) = namespace {
            command.args(["-n", namespace]);
        }
        let mut child = command
            .args(["-batch", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        if let Some(input) = &mut child.stdin {
            input.write_all(commands.as_bytes())?;
        }
        let output = child.wait_with_output()?;
        if output.status.success() {
            return Ok(());
        }
        let errors = String::from_utf8_lossy(&output.stderr);
        let errors: Vec<&str> = errors.lines().map(str::trim).collect();
        Err(io::Error::other(format!(
            "{program}: {}",
            errors.join(" | ")
        )))
    }

    /// Runs `program` and returns its standard output, or the error where it cannot be started.
    pub fn output(&self, program: &str, words: &[&str]) -> String {
        let result = self.command(program).args(words).output();
        result.map_or_else(
            |error| error.to_string(),
            |output| String::from_utf8_lossy(&output.stdout).into_owned(),
        )
    }
}

/// Moves this thread into a namespace.
///
/// # Errors
/// Those of open(2) and setns(2).
pub fn enter(namespace: &str) -> io::Result<()> {
    let file = File::open(format!("/run/netns/{namespace}"))?;
    setns(file.as_fd(), CloneFlags::CLONE_NEWNET)?;
    Ok(())
}

/// Returns the MTU of a device whose largest packet has this size on the wire.
pub fn mtu(packet_bytes: u64) -> u64 {
    packet_bytes.max(LEAST_PACKET_BYTES) - u64::from(ETHERNET_BYTES)
}

/// Returns the tc command that sets the delay of a device, for one direction of a round trip.
fn netem(device: &str, delay: Span) -> String {
    let delay_ns = delay.as_nanos();
    format!("qdisc replace dev {device} root netem delay {delay_ns}ns limit 1000000\n")
}

/// Changes the delay of the bottleneck's path from `former` to `delay`, in both directions.
///
/// # Errors
/// A command of a tool fails.
pub fn set_delay(groups: &[Group], tools: &Tools, former: Span, delay: Span) -> io::Result<()> {
    let (mut back, mut forth) = (String::new(), String::new());
    for group in groups {
        let half_ns =
            (group.rtt.as_nanos() / 2 + delay.as_nanos()).saturating_sub(former.as_nanos());
        back += &netem(&format!("a{}", group.number), Span::from_nanos(half_ns));
        forth += &netem(&format!("b{}", group.number), Span::from_nanos(half_ns));
    }
    tools.batch("tc", Some(ROUTER), &back)?;
    tools.batch("tc", Some(FAR), &forth)
}

/// Writes a kernel setting of this thread's namespace. The error names the setting.
fn set_sysctl(name: &str, value: &str) -> Result<(), String> {
    let file = format!("/proc/sys/{}", name.replace('.', "/"));
    fs::write(&file, value).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            format!("{name}: unknown sysctl; expected a sysctl of a namespace in this kernel")
        }
        io::ErrorKind::InvalidInput => {
            format!("{name}: {value:?} is not valid; expected a value that the kernel accepts")
        }
        _ => format!("{name}: {value:?} cannot be set: {error}"),
    })
}

/// Checks that the kernel has a congestion control.
///
/// # Errors
/// The kernel does not have it; the error lists those that it has.
pub fn check_congestion_control(name: &str) -> io::Result<()> {
    let available = fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control")?;
    let available: Vec<&str> = available.split_whitespace().collect();
    if available.contains(&name) {
        return Ok(());
    }
    let expected = available.join(", ");
    Err(io::Error::other(format!(
        "kernel.tcp: {name:?} is not valid; expected one of {expected} (`forebay guest setup \
         --source DIR` builds a kernel with others)"
    )))
}

/// Sets up the network without the queue under test.
///
/// # Errors
/// A command of a tool fails, or the kernel refuses a call.
pub fn make(scenario: &Scenario, groups: &[Group], tools: &Tools) -> io::Result<()> {
    fs::create_dir_all("/run/netns")?;
    make_wires(scenario, groups, tools)?;
    make_routes(scenario.kernel.offloads, groups, tools)?;
    forward(scenario.kernel.offloads, groups)?;
    for group in groups {
        set_up_ends(scenario, group, tools)?;
    }
    Ok(())
}

/// Makes the namespaces, and the veth pairs between them.
fn make_wires(scenario: &Scenario, groups: &[Group], tools: &Tools) -> io::Result<()> {
    let largest = mtu(scenario.packet().0);
    let mut links = format!("netns add {ROUTER}\nnetns add {FAR}\n");
    for group in groups {
        let (source, sink) = (group.source_namespace(), group.sink_namespace());
        let _ = writeln!(links, "netns add {source}\nnetns add {sink}");
    }
    let mut pair = {
        let mut pairs = 0;
        move |links: &mut String, near: (&str, &str), far: (&str, &str), mtu: u64| {
            pairs += 1;
            let mac = format!("02:00:00:00:{:02x}:{:02x}", pairs >> 8, pairs & 0xff);
            let _ = writeln!(
                links,
                "link add {} netns {} address {mac} mtu {mtu} type veth peer name {} netns {} \
                 address {mac} mtu {mtu}",
                near.1, near.0, far.1, far.0
            );
        }
    };
    pair(
        &mut links,
        (ROUTER, NEAR_DEVICE),
        (FAR, FAR_DEVICE),
        largest,
    );
    for group in groups {
        let n = group.number;
        let mtu = mtu(scenario.traffic[group.traffic].packet.0);
        let (source, sink) = (group.source_namespace(), group.sink_namespace());
        pair(&mut links, (&source, "e0"), (ROUTER, &format!("a{n}")), mtu);
        pair(&mut links, (FAR, &format!("b{n}")), (&sink, "e0"), mtu);
    }
    tools.batch("ip", None, &links)
}

/// Sets up addresses, routes, and the delays of the access links.
fn make_routes(offloads: Offloads, groups: &[Group], tools: &Tools) -> io::Result<()> {
    let up = |device: &str, whole: bool| match whole {
        true => format!("link set {device} arp off up\n"),
        false => format!("link set {device} arp off gso_max_segs 1 up\n"),
    };
    let up_host = up("e0", offloads != Offloads::Off);
    let up = |device: &str| up(device, offloads == Offloads::All);
    let (mut router, mut far) = (up(NEAR_DEVICE), up(FAR_DEVICE));
    far += &format!("route add default dev {FAR_DEVICE}\n");
    let (mut back, mut forth) = (String::new(), String::new());
    for group in groups {
        let n = group.number;
        let sinks = SINKS + u32::from(n);
        router += &up(&format!("a{n}"));
        far += &up(&format!("b{n}"));
        let _ = writeln!(router, "route add 10.{n}.0.0/16 dev a{n}");
        // Recorded packets have no receiver.
        let _ = match group.recorded {
            true => writeln!(far, "route add blackhole 10.{sinks}.0.0/16"),
            false => writeln!(far, "route add 10.{sinks}.0.0/16 dev b{n}"),
        };
        let half = Span::from_nanos(group.rtt.as_nanos() / 2);
        if half > Span::ZERO {
            back += &netem(&format!("a{n}"), half);
            forth += &netem(&format!("b{n}"), half);
        }
        for (namespace, addresses) in [
            (group.source_namespace(), u32::from(n)),
            (group.sink_namespace(), sinks),
        ] {
            let mut end = String::from("link set lo up\n");
            end += &up_host;
            // Every address of the block belongs to the host.
            let _ = writeln!(end, "route add local 10.{addresses}.0.0/16 dev lo");
            let source = group.only_flow.map(|flow| {
                let (from, to) = group.addresses(flow);
                if addresses < SINKS {
                    from
                } else {
                    to
                }
            });
            end += &match source {
                // The sockets of a program have the source address of their route.
                Some(address) => format!(
                    "addr add {address}/32 dev e0\nroute add default dev e0 src {address}\n"
                ),
                None => "route add default dev e0\n".to_owned(),
            };
            tools.batch("ip", Some(&namespace), &end)?;
        }
    }
    tools.batch("ip", Some(ROUTER), &router)?;
    tools.batch("ip", Some(FAR), &far)?;
    tools.batch("tc", Some(ROUTER), &back)?;
    tools.batch("tc", Some(FAR), &forth)
}

/// Lets both routers forward packets, without dividing or joining them.
fn forward(offloads: Offloads, groups: &[Group]) -> io::Result<()> {
    for (namespace, devices) in [(ROUTER, 'a'), (FAR, 'b')] {
        enter(namespace)?;
        fs::write("/proc/sys/net/ipv4/ip_forward", "1")?;
        let own = if namespace == ROUTER {
            NEAR_DEVICE
        } else {
            FAR_DEVICE
        };
        // With all offloads, no router divides segments.
        if offloads == Offloads::All {
            continue;
        }
        sys::set_offloads(own, false)?;
        for group in groups {
            sys::set_offloads(&format!("{devices}{}", group.number), false)?;
        }
    }
    Ok(())
}

/// Sets up TCP at the ends of a group.
fn set_up_ends(scenario: &Scenario, group: &Group, tools: &Tools) -> io::Result<()> {
    let settings = &scenario.kernel;
    let ecn = scenario.traffic[group.traffic].kind.ecn();
    let l4s = ecn == EcnChoice::L4s;
    for (namespace, requests_ecn) in [
        (group.source_namespace(), ecn != EcnChoice::Off),
        (
            group.sink_namespace(),
            group.only_flow.is_some() && ecn != EcnChoice::Off,
        ),
    ] {
        enter(&namespace)?;
        if settings.offloads != Offloads::All {
            sys::set_offloads("e0", settings.offloads == Offloads::Hosts)?;
        }
        let set = |name: &str, value: &str| {
            set_sysctl(&format!("net.ipv4.{name}"), value).map_err(io::Error::other)
        };
        // Passive ends accept ECN (2); active ends request it (1) or not (0) (tcp_ecn in Linux's
        // ip-sysctl). Either end of a program may be the active one.
        let passive = namespace.starts_with('d') && group.only_flow.is_none();
        set(
            "tcp_ecn",
            if passive {
                "2"
            } else if requests_ecn {
                "1"
            } else {
                "0"
            },
        )?;
        // Connections must not inherit metrics of earlier ones.
        set("tcp_no_metrics_save", "1")?;
        // A real router identifies flows by their headers. Over veth, a packet keeps its sender's
        // hash,
        // which Linux would draw again after each timeout.
        set_sysctl("net.core.txrehash", "0").map_err(io::Error::other)?;
        set("tcp_rmem", "4096 131072 67108864")?;
        set("tcp_wmem", "4096 16384 67108864")?;
        for (name, value) in &settings.sysctls {
            set_sysctl(name, value)
                .map_err(|error| io::Error::other(format!("kernel.sysctls.{error}")))?;
        }
    }
    if l4s && settings.tcp.is_none() {
        // DCTCP sends ECT(0), but an L4S sender must send ECT(1) (RFC 9331, section 4.1).
        let rewrite = "qdisc add dev e0 clsact\nfilter add dev e0 egress protocol ip u32 match \
                       ip tos 2 0x3 action pedit ex munge ip dsfield set 1 retain 0x3 pipe \
                       action csum ip\n";
        tools.batch("tc", Some(&group.source_namespace()), rewrite)?;
    }
    Ok(())
}
