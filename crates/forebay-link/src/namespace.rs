//! The two network namespaces of a link, made without root. Only the emulator connects them.

use std::fs::{self, File};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use caps::{CapSet, Capability};
use forebay_scenario::DeviceKind;
use nix::errno::Errno;
use nix::sched::{setns, unshare, CloneFlags};
use nix::unistd::{getegid, geteuid};

use crate::device::{self, Device, NAME};
use crate::error::{doing, Error};
use crate::netlink::{end_attributes, quiet, set_up_end, Netlink};
use crate::process::keep_capabilities;

/// An end of the link. Its addresses are from the blocks reserved for benchmarking (RFC 2544,
/// section C.2.2; RFC 5180, section 8), which no real host has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The end at which the client's command runs.
    Client,
    /// The end at which the server's command runs.
    Server,
}

impl End {
    /// Both ends, the client first.
    pub const BOTH: [End; 2] = [End::Client, End::Server];

    /// Returns the IPv4 address of this end.
    pub const fn v4(self) -> Ipv4Addr {
        match self {
            End::Client => Ipv4Addr::new(198, 18, 0, 1),
            End::Server => Ipv4Addr::new(198, 18, 0, 2),
        }
    }

    /// Returns the IPv6 address of this end.
    pub const fn v6(self) -> Ipv6Addr {
        Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, self as u16 + 1)
    }

    /// Returns "client" or "server".
    pub const fn name(self) -> &'static str {
        match self {
            End::Client => "client",
            End::Server => "server",
        }
    }

    /// Returns the opposite end.
    pub const fn other(self) -> End {
        match self {
            End::Client => End::Server,
            End::Server => End::Client,
        }
    }

    /// Returns the address of the host behind this end with this number, which counts from 1.
    pub const fn host_v4(self, number: u8) -> Ipv4Addr {
        Ipv4Addr::new(198, 18, self as u8 + 1, number)
    }
}

/// The largest number of hosts behind each end.
pub const MOST_HOSTS: u8 = 250;

/// The Ethernet address of both devices of the veth pair between an end and a host behind it.
const HOST_ETHERNET: [u8; 6] = [0x02, 0, 0, 0, 0, 0x01];

/// A kernel setting of a host: name and value, such as ("net.ipv4.tcp_ecn", "1").
pub type Sysctl = (String, String);

/// The number of packets that a device queues while the emulator does not run.
const KERNEL_QUEUE_PKTS: u32 = 10_000;

/// The capabilities that are needed to make a link. Every user has them in a user namespace of its
/// own.
const NEEDED: [Capability; 3] = [
    Capability::CAP_SYS_ADMIN,
    Capability::CAP_NET_ADMIN,
    Capability::CAP_NET_RAW,
];

/// One end of the link, set up.
pub struct Host {
    /// The network namespace of the end.
    pub namespace: OwnedFd,
    /// The device through which the emulator exchanges packets with the end.
    pub device: Device,
    /// The network namespaces of the hosts behind the end.
    pub behind: Vec<OwnedFd>,
    netlink: Netlink,
}

/// Both ends of the link.
pub struct NamespaceNetwork {
    /// The client's end.
    pub client: Host,
    /// The server's end.
    pub server: Host,
    /// True if the ends have IPv6 addresses.
    pub ipv6: bool,
    /// True if the link made a user namespace of its own. Commands then need capabilities in it.
    pub own_user: bool,
    /// The former network namespace of this thread; `None` where the thread may not return there.
    former: Option<File>,
}

/// Opens the network namespace of this thread.
fn here() -> Result<File, Error> {
    File::open("/proc/thread-self/ns/net")
        .map_err(|error| Error::machine("/proc/thread-self/ns/net", error))
}

/// Moves this thread into a network namespace.
fn go_to(namespace: BorrowedFd) -> Result<(), Error> {
    setns(namespace, CloneFlags::CLONE_NEWNET).map_err(doing("entering a network namespace"))
}

impl NamespaceNetwork {
    /// Makes both namespaces, and behind each end one host for each element of `hosts`, which holds
    /// the host's kernel settings. The process must have one thread. It enters a user namespace of
    /// its own, unless it may make network namespaces without one.
    ///
    /// # Errors
    /// The machine does not allow a step; the error says what to do.
    pub fn new(
        kind: DeviceKind,
        mtu: u32,
        super_packets: bool,
        hosts: &[&[Sysctl]],
    ) -> Result<NamespaceNetwork, Error> {
        let former = here()?;
        // Some containers grant only a part of the capabilities, with which the set-up would fail
        // half-way.
        let may = NEEDED.iter().all(|&capability| {
            caps::has_cap(None, CapSet::Effective, capability).is_ok_and(|has| has)
        });
        let own_user = !may || unshare(CloneFlags::CLONE_NEWNET).is_err();
        if own_user {
            with_own_user()?;
        }
        let outer = here()?;
        let mut outer_netlink =
            Netlink::open().map_err(|error| Error::machine("netlink", error))?;
        let mut ipv6 = true;
        let mut host = |end: End| -> Result<Host, Error> {
            unshare(CloneFlags::CLONE_NEWNET).map_err(doing("a network namespace"))?;
            let namespace = OwnedFd::from(here()?);
            let mut netlink = Netlink::open().map_err(|error| Error::machine("netlink", error))?;
            let tun = match kind {
                DeviceKind::Packets => None,
                DeviceKind::Tun | DeviceKind::Any => match Device::tun(super_packets) {
                    Ok(device) => Some(device),
                    Err(_) if kind == DeviceKind::Any && !super_packets => None,
                    Err(errno) => return Err(no_tun(errno)),
                },
            };
            let device = match tun {
                Some(device) => device,
                None => {
                    go_to(outer.as_fd())?;
                    let device = ethernet(&mut outer_netlink, end, namespace.as_fd(), mtu)?;
                    go_to(namespace.as_fd())?;
                    device::plain_packets(NAME).map_err(doing("turning offloads off"))?;
                    device
                }
            };
            let arp = matches!(device, Device::Tun { .. });
            let attributes = end_attributes(mtu, KERNEL_QUEUE_PKTS);
            let v6 = Some(end.v6());
            ipv6 &= set_up_end(&mut netlink, NAME, arp, attributes, (end.v4(), 30), v6)
                .map_err(|error| Error::machine("setting up the link's device", error))?;
            let behind = hosts_behind(end, &namespace, &mut netlink, mtu, hosts)?;
            go_to(outer.as_fd())?;
            Ok(Host {
                namespace,
                device,
                behind,
                netlink,
            })
        };
        let client = host(End::Client)?;
        let server = host(End::Server)?;
        Ok(NamespaceNetwork {
            client,
            server,
            ipv6,
            own_user,
            former: (!own_user).then_some(former),
        })
    }

    /// Returns an end.
    pub fn host(&self, end: End) -> &Host {
        match end {
            End::Client => &self.client,
            End::Server => &self.server,
        }
    }

    /// Returns the environment variables that tell a command the addresses of both ends.
    pub fn environment(&self) -> Vec<(String, String)> {
        let mut variables = Vec::new();
        for end in End::BOTH {
            let name = format!("FOREBAY_{}", end.name().to_uppercase());
            if self.ipv6 {
                variables.push((format!("{name}6"), end.v6().to_string()));
            }
            variables.push((name, end.v4().to_string()));
        }
        variables
    }

    /// Returns the packets that the kernel dropped because the emulator did not fetch them in time.
    pub fn missed_packets(&mut self) -> u64 {
        let ends = [&mut self.client, &mut self.server];
        let missed = ends.map(|host| {
            let device_counts = host.netlink.counts(NAME);
            device_counts.map_or(0, |counters| counters.tx_dropped) + host.device.missed_packets()
        });
        missed.iter().sum()
    }

    /// Moves the thread back to its former network namespace, if it may return there.
    pub fn leave(&self) {
        if let Some(former) = &self.former {
            let _ = go_to(former.as_fd());
        }
    }
}

/// Moves this process, which must have one thread, into the namespaces with these paths. The
/// programs that it executes then have the same capabilities as a link's own commands.
///
/// # Errors
/// The link has ended, or belongs to another user.
pub fn enter(network: &str, user: Option<&str>) -> Result<(), Error> {
    let open = |path: &str| File::open(path).map_err(|error| Error::machine(path, error));
    let (network, user) = (open(network)?, user.map(open).transpose()?);
    if let Some(user) = &user {
        setns(user, CloneFlags::CLONE_NEWUSER).map_err(doing("entering a user namespace"))?;
    }
    go_to(network.as_fd())?;
    if user.is_some() {
        keep_capabilities();
    }
    Ok(())
}

/// Makes the hosts behind an end, in whose namespace this thread is. Each host has a network
/// namespace of its own, and its packets are forwarded by the end. The hosts have IPv4 only.
fn hosts_behind(
    end: End,
    namespace: &OwnedFd,
    netlink: &mut Netlink,
    mtu: u32,
    hosts: &[&[Sysctl]],
) -> Result<Vec<OwnedFd>, Error> {
    let failed = |error| Error::machine("a host behind the link", error);
    let mut behind = Vec::with_capacity(hosts.len());
    if hosts.is_empty() {
        return Ok(behind);
    }
    set_sysctl("net.ipv4.ip_forward", "1")?;
    for (number, sysctls) in (1..=MOST_HOSTS).zip(hosts) {
        unshare(CloneFlags::CLONE_NEWNET).map_err(doing("a network namespace"))?;
        let host = OwnedFd::from(here()?);
        for (name, value) in *sysctls {
            set_sysctl(name, value)?;
        }
        go_to(namespace.as_fd())?;
        let (device, address) = (format!("host{number}"), end.host_v4(number));
        netlink
            .add_veth(&device, NAME, host.as_fd(), HOST_ETHERNET, true)
            .map_err(failed)?;
        let index = netlink.index(&device).map_err(failed)?;
        quiet(netlink, index);
        let attributes = end_attributes(mtu, KERNEL_QUEUE_PKTS);
        netlink
            .up(index, false, attributes.clone())
            .map_err(failed)?;
        netlink.add_route_to(index, address).map_err(failed)?;
        device::plain_packets(&device).map_err(doing("turning offloads off"))?;
        go_to(host.as_fd())?;
        device::plain_packets(NAME).map_err(doing("turning offloads off"))?;
        let mut own = Netlink::open().map_err(|error| Error::machine("netlink", error))?;
        set_up_end(&mut own, NAME, false, attributes, (address, 32), None).map_err(failed)?;
        go_to(namespace.as_fd())?;
        behind.push(host);
    }
    Ok(behind)
}

/// Writes a kernel setting of this thread's network namespace.
fn set_sysctl(name: &str, value: &str) -> Result<(), Error> {
    let file = format!("/proc/sys/{}", name.replace('.', "/"));
    fs::write(&file, value).map_err(|error| Error::machine(file, error))
}

/// Makes a veth pair into `namespace`, and a packet socket on the device of the pair that stays
/// here.
fn ethernet(
    netlink: &mut Netlink,
    end: End,
    namespace: BorrowedFd,
    mtu: u32,
) -> Result<Device, Error> {
    let failed = |error| Error::machine("an Ethernet pair for packet sockets", error);
    netlink
        .add_veth(end.name(), NAME, namespace, device::ETHERNET, false)
        .map_err(failed)?;
    let index = netlink.index(end.name()).map_err(failed)?;
    let attributes = end_attributes(mtu, KERNEL_QUEUE_PKTS);
    netlink.up(index, false, attributes).map_err(failed)?;
    Device::packets(index).map_err(doing("a packet socket"))
}

/// Returns the error of a TUN device that cannot be made, with advice.
fn no_tun(errno: Errno) -> Error {
    let advice = match errno {
        Errno::ENOENT => "`modprobe tun`, or in a container --device /dev/net/tun, or leave --device out for packet sockets",
        Errno::EACCES | Errno::EPERM => "let this user read and write /dev/net/tun, or leave --device out for packet sockets",
        _ => "leave --device out for packet sockets",
    };
    Error::machine(
        "/dev/net/tun",
        format!("{}; {advice}", errno.desc().to_lowercase()),
    )
}

/// Enters a new user namespace and a new network namespace. The user and the group keep their
/// numbers there.
fn with_own_user() -> Result<(), Error> {
    let (user, group) = (geteuid(), getegid());
    match unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET) {
        Ok(()) => {}
        Err(errno) => return Err(no_user_namespace(errno)),
    }
    // An unprivileged process may map a group only after it denies setgroups(2)
    // (user_namespaces(7)).
    let write = |file: &str, text: String| {
        fs::write(format!("/proc/self/{file}"), text)
            .map_err(|error| Error::machine(format!("/proc/self/{file}"), error))
    };
    let _ = fs::write("/proc/self/setgroups", "deny");
    write("uid_map", format!("{user} {user} 1")).map_err(|error| match error {
        // Linux 5.12 and later require CAP_SETFCAP to map user 0 (user_namespaces(7)).
        Error::Machine(line) if user.is_root() => Error::Machine(format!(
            "{line}; root may map itself with CAP_SETFCAP alone: run it as another user, or add \
             that capability"
        )),
        error => error,
    })?;
    write("gid_map", format!("{group} {group} 1"))
}

/// Returns the error of a user namespace that cannot be made, with advice from the machine's
/// settings.
fn no_user_namespace(errno: Errno) -> Error {
    let limit = |file: &str| {
        let text = fs::read_to_string(format!("/proc/sys/{file}")).ok()?;
        text.trim().parse::<u64>().ok()
    };
    let advice = if limit("user/max_user_namespaces") == Some(0) {
        "`sysctl user.max_user_namespaces=10000` allows them"
    } else if limit("user/max_net_namespaces") == Some(0) {
        "`sysctl user.max_net_namespaces=10000` allows the network namespaces in it"
    } else if limit("kernel/unprivileged_userns_clone") == Some(0) {
        "`sysctl kernel.unprivileged_userns_clone=1` allows them"
    } else if limit("kernel/apparmor_restrict_unprivileged_userns") == Some(1) {
        "`sysctl kernel.apparmor_restrict_unprivileged_userns=0`, or an AppArmor profile with \
         `userns,`, allows them"
    } else if filtered() {
        "in a container its seccomp profile forbids them: run it with \
         `--security-opt seccomp=unconfined`, or with a profile that allows unshare"
    } else {
        "a process in a chroot may make none, nor a user without a mapping in its user namespace"
    };
    Error::machine(
        "a user namespace",
        format!(
            "{}; {advice}; `forebay doctor` says more",
            errno.desc().to_lowercase()
        ),
    )
}

/// Returns whether a seccomp filter applies to this process (proc(5), status).
fn filtered() -> bool {
    fs::read_to_string("/proc/self/status")
        .is_ok_and(|status| status.lines().any(|line| line == "Seccomp:\t2"))
}
