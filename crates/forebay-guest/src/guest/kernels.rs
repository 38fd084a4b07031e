//! Bottleneck with a queue of the kernel. Taps before and after the queue see every packet, and the
//! kernel reports the backlog and the law's state.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use forebay_aqm::{DropReason, Ecn};
use forebay_linux_tc::StateVariable;
use forebay_units::{Fnv1a, Rate, Span, Time};
use nix::libc;

use super::clock::GuestClock;
use super::rows::{Rows, Start};
use super::tap::Tap;
use super::GroupTraffic;
use crate::record::{Fate, PacketRow, SampleRow};

/// The key of a packet inside the queue: source address, destination address, both ports, the
/// identification of the IP header, and a hash of UDP's content. The content is needed because all
/// UDP packets that must not be fragmented may have the identification 0 (RFC 6864, section 4.1).
type PacketKey = (u32, u32, u32, u16, u64);

/// A packet inside the queue.
struct Inside {
    arrived: Time,
    bytes: u32,
    traffic: u8,
    marked: bool,
    header_bytes: u8,
    flow: u32,
    /// The headers of the packet, where the run keeps them.
    start: Option<Box<Start>>,
}

/// A queue of the kernel with its two taps.
pub struct Kernels {
    netlink: OwnedFd,
    device: u32,
    /// The parent of the queue under test: the root, or a class of the shaper.
    parent: u32,
    near: Tap,
    far: Tap,
    inside: HashMap<PacketKey, Inside>,
    /// Packets that arrived before a packet of `inside` with the same key. They were lost, or the
    /// identification has wrapped around.
    earlier: HashMap<PacketKey, Vec<Inside>>,
    groups: Vec<GroupTraffic>,
    /// The rate of the shaper, where it holds a packet until all its tokens are there (tbf).
    holds_at: Option<Rate>,
    /// The state variables that the queue under test reports.
    state: &'static [StateVariable],
}

/// The statistics of a queue of the kernel.
#[derive(Clone, Debug, Default)]
struct Statistics {
    /// Packets in the queue.
    packets: u32,
    /// Bytes in the queue.
    bytes: u32,
    /// The state variables of the law, in the order of [`Kernels::probes`].
    state: Vec<f64>,
}

impl Kernels {
    /// Watches the queue of the device with the number `device`, whose qdisc reports these state
    /// variables. The thread must be in the router's namespace; `near` is a tap before the queue,
    /// `far` a tap after it.
    ///
    /// # Errors
    /// Those of socket(2).
    pub fn new(
        (device, state): (u32, &'static [StateVariable]),
        parent: u32,
        near: Tap,
        far: Tap,
        groups: Vec<GroupTraffic>,
        holds_at: Option<Rate>,
    ) -> io::Result<Kernels> {
        let netlink = super::sys::socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_ROUTE)?;
        Ok(Kernels {
            netlink,
            device,
            parent,
            near,
            far,
            inside: HashMap::new(),
            earlier: HashMap::new(),
            groups,
            holds_at,
            state,
        })
    }

    /// Returns the names of the law's state variables in the rows of samples.
    pub fn probes(&self) -> Vec<String> {
        (self.state.iter())
            .map(|variable| variable.name.to_owned())
            .collect()
    }

    /// Notes that the shaper has another rate.
    pub fn set_rate(&mut self, rate: Rate) {
        self.holds_at = self.holds_at.map(|_| rate);
    }

    /// Reads the packets that the taps have seen, and writes the rows of those that left the queue.
    ///
    /// # Errors
    /// Those of write(2).
    pub fn fetch(&mut self, clock: &GuestClock, rows: &mut Rows) -> io::Result<()> {
        let Kernels {
            near,
            far,
            inside,
            earlier,
            groups,
            holds_at,
            ..
        } = self;
        near.drain(clock, |at, ip| {
            let Some(group) = groups.get(usize::from(ip[13])) else {
                return;
            };
            let packet = Inside {
                arrived: at,
                bytes: group.wire_bytes(ip),
                traffic: group.traffic,
                marked: ecn(ip) == Ecn::Ce,
                header_bytes: super::header_bytes(ip),
                flow: group.flow_number(ip),
                start: rows.start_of(ip),
            };
            let key = key(ip);
            if let Some(former) = inside.insert(key, packet) {
                earlier.entry(key).or_default().push(former);
            }
        });
        let mut failed = Ok(());
        far.drain(clock, |at, ip| {
            let key = key(ip);
            let Some(packet) = inside.remove(&key) else {
                return;
            };
            if let Some(former) = earlier.get_mut(&key).and_then(Vec::pop) {
                inside.insert(key, former);
            }
            // tbf releases a packet when its tokens are complete, that is when its last bit would
            // be
            // sent. The packet left the queue when its first bit was sent.
            let on_the_wire =
                holds_at.map_or(Span::ZERO, |rate| rate.transmission(packet.bytes, 0).0);
            let left = Time::from_nanos(at.as_nanos().saturating_sub(on_the_wire.as_nanos()));
            let row = PacketRow {
                arrived: packet.arrived,
                left: left.max(packet.arrived),
                bytes: packet.bytes,
                traffic: packet.traffic,
                class: 0,
                fate: match ecn(ip) == Ecn::Ce && !packet.marked {
                    true => Fate::Marked,
                    false => Fate::Left,
                },
                header_bytes: packet.header_bytes,
                flow: packet.flow,
            };
            if failed.is_ok() {
                failed = rows.write(&row, ip);
            }
        });
        failed
    }

    /// Returns the row of a sample.
    ///
    /// # Errors
    /// The kernel does not answer the request.
    pub fn sample(&mut self) -> io::Result<SampleRow> {
        let statistics = self.statistics()?;
        let (packets, bytes) = (statistics.packets, statistics.bytes);
        // The queue counts the packet that the shaper holds, which is no longer in the queue.
        let held = u32::from(self.holds_at.is_some() && packets > 0);
        let bytes_held = bytes.checked_div(packets).unwrap_or(0) * held;
        Ok(SampleRow {
            queue_pkts: packets - held,
            queue_bytes: u64::from(bytes - bytes_held),
            probes: statistics.state,
        })
    }

    /// Writes the rows of all packets that have not left the queue long after the end of the run.
    /// They count as dropped at their arrival, because their real time is unknown.
    ///
    /// # Errors
    /// Those of write(2).
    pub fn finish(&mut self, rows: &mut Rows) -> io::Result<()> {
        let earlier = self.earlier.drain().flat_map(|(_, packets)| packets);
        let mut lost: Vec<Inside> = self.inside.drain().map(|(_, packet)| packet).collect();
        lost.extend(earlier);
        lost.sort_by_key(|packet| (packet.arrived, packet.traffic, packet.bytes));
        for packet in lost {
            let row = PacketRow {
                arrived: packet.arrived,
                left: packet.arrived,
                bytes: packet.bytes,
                traffic: packet.traffic,
                class: 0,
                fate: Fate::Lost(DropReason::Early),
                header_bytes: packet.header_bytes,
                flow: packet.flow,
            };
            rows.write(
                &row,
                packet.start.as_deref().map_or(&[], |start| &start[..]),
            )?;
        }
        Ok(())
    }

    /// Asks the kernel for the queue's statistics: RTM_GETQDISC, whose answer has TCA_STATS2
    /// (rtnetlink(7), linux/gen_stats.h).
    fn statistics(&self) -> io::Result<Statistics> {
        const RTM_GETQDISC: u16 = 38;
        const NLM_F_REQUEST_ECHO: u16 = 0x1 | 0x8;
        const TCA_STATS2: u16 = 7;
        const TCA_STATS_QUEUE: u16 = 3;
        const TCA_STATS_APP: u16 = 4;
        let mut request = Vec::with_capacity(36);
        request.extend_from_slice(&36u32.to_ne_bytes());
        request.extend_from_slice(&RTM_GETQDISC.to_ne_bytes());
        request.extend_from_slice(&NLM_F_REQUEST_ECHO.to_ne_bytes());
        request.extend_from_slice(&1u32.to_ne_bytes());
        request.extend_from_slice(&0u32.to_ne_bytes());
        // struct tcmsg: family with padding, device, handle, parent, info.
        for word in [0, self.device, 0, self.parent, 0] {
            request.extend_from_slice(&word.to_ne_bytes());
        }
        super::sys::send(self.netlink.as_fd(), &request)?;
        let mut answer = [0u8; 8192];
        let length = nix::unistd::read(&self.netlink, &mut answer)?;
        let answer = &answer[..length];
        let kind = u16::from_ne_bytes([answer[4], answer[5]]);
        if kind == 2 {
            let code = i32::from_ne_bytes(answer[16..20].try_into().expect("four bytes"));
            return Err(io::Error::from_raw_os_error(-code));
        }
        let mut statistics = Statistics {
            state: vec![f64::NAN; self.state.len()],
            ..Statistics::default()
        };
        let nested = attributes(&answer[36..]).filter(|(kind, _)| *kind == TCA_STATS2);
        for (kind, value) in nested.flat_map(|(_, value)| attributes(value)) {
            match kind {
                TCA_STATS_QUEUE if value.len() >= 8 => {
                    let word = |at: usize| {
                        u32::from_ne_bytes(value[at..at + 4].try_into().expect("four bytes"))
                    };
                    // struct gnet_stats_queue: qlen, backlog, drops, requeues, overlimits.
                    statistics.packets = word(0);
                    statistics.bytes = word(4);
                }
                TCA_STATS_APP => {
                    let values = self.state.iter().map(|variable| variable.value(value));
                    statistics.state = values.collect();
                }
                _ => {}
            }
        }
        Ok(statistics)
    }
}

/// Returns the attributes of a message: the kind and the value of each.
fn attributes(mut rest: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(u16::from_ne_bytes([*rest.first()?, *rest.get(1)?]));
        let kind = u16::from_ne_bytes([*rest.get(2)?, *rest.get(3)?]) & 0x3fff;
        let value = rest.get(4..length)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or(&[]);
        Some((kind, value))
    })
}

/// Returns the key of a packet.
fn key(ip: &[u8]) -> PacketKey {
    const UDP: u8 = 17;
    let u32_at = |at: usize| u32::from_be_bytes(ip[at..at + 4].try_into().expect("four bytes"));
    let header = usize::from(ip[0] & 0xf) * 4;
    let ports = match ip.get(header..header + 4) {
        Some(ports) => u32::from_be_bytes(ports.try_into().expect("four bytes")),
        None => 0,
    };
    let number = u16::from_be_bytes([ip[4], ip[5]]);
    // The content starts after UDP's checksum, which a device may not have filled in yet.
    let mut content = Fnv1a::default();
    if ip[9] == UDP {
        content.write(ip.iter().skip(header + 8).copied());
    }
    (u32_at(12), u32_at(16), ports, number, content.finish())
}

/// Returns the ECN field of a packet.
fn ecn(ip: &[u8]) -> Ecn {
    forebay_aqm::TrafficClass(ip[1]).ecn()
}
