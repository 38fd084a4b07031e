//! A queue of the kernel's as the bottleneck: taps before and behind it see every packet, and the
//! kernel tells its backlog.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use forebay_aqm::{DropReason, Ecn};
use forebay_units::{Fnv1a, Rate, Span, Time};
use nix::libc;

use super::clock::GuestClock;
use super::rows::{Rows, Start};
use super::tap::Tap;
use super::GroupTraffic;
use crate::record::{Fate, PacketRow, SampleRow};

/// Tells packets apart that are inside: flow by its addresses and both ports, the number of the
/// packet in its IP header, and, since those of UDP that must not be fragmented may all have the
/// number 0 (RFC 6864 section 4.1), what follows the header of UDP.
type FlowKey = (u32, u32, u32, u16, u64);

struct Inside {
    arrived: Time,
    bytes: u32,
    traffic: u8,
    marked: bool,
    header_bytes: u8,
    flow: u32,
    /// Where packets are kept.
    start: Option<Box<Start>>,
}

pub struct Kernels {
    netlink: OwnedFd,
    device: u32,
    /// Where the queue under test is: the root, or a class of the shaper.
    parent: u32,
    near: Tap,
    far: Tap,
    inside: HashMap<FlowKey, Inside>,
    /// Packets that came before one that is inside with the same key: they are lost, and numbers
    /// have come round, or are alike.
    earlier: HashMap<FlowKey, Vec<Inside>>,
    groups: Vec<GroupTraffic>,
    /// What the shaper sends in, where it keeps a packet until it is out.
    holds_at: Option<Rate>,
}

/// What a queue of the kernel tells of itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct Backlog {
    pub packets: u32,
    pub bytes: u32,
}

impl Kernels {
    /// In the router's namespace; `far` is a tap behind it.
    ///
    /// # Errors
    /// As socket(2) says.
    pub fn new(
        device: u32,
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
        })
    }

    pub fn set_rate(&mut self, rate: Rate) {
        self.holds_at = self.holds_at.map(|_| rate);
    }

    /// Takes what the taps have seen.
    ///
    /// # Errors
    /// As write(2) says.
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
            let came = Inside {
                arrived: at,
                bytes: group.wire_bytes(ip),
                traffic: group.traffic,
                marked: ecn(ip) == Ecn::Ce,
                header_bytes: super::header_bytes(ip),
                flow: group.flow_number(ip),
                start: rows.start_of(ip),
            };
            let key = key(ip);
            if let Some(former) = inside.insert(key, came) {
                earlier.entry(key).or_default().push(former);
            }
        });
        let mut failed = Ok(());
        far.drain(clock, |at, ip| {
            let key = key(ip);
            let Some(came) = inside.remove(&key) else {
                return;
            };
            if let Some(former) = earlier.get_mut(&key).and_then(Vec::pop) {
                inside.insert(key, former);
            }
            // A shaper that keeps the packet until its tokens are there lets it go when its last bit
            // is out; it left the queue when its first one was.
            let on_the_wire =
                holds_at.map_or(Span::ZERO, |rate| rate.transmission(came.bytes, 0).0);
            let left = Time::from_nanos(at.as_nanos().saturating_sub(on_the_wire.as_nanos()));
            let row = PacketRow {
                arrived: came.arrived,
                left: left.max(came.arrived),
                bytes: came.bytes,
                traffic: came.traffic,
                class: 0,
                fate: match ecn(ip) == Ecn::Ce && !came.marked {
                    true => Fate::Marked,
                    false => Fate::Left,
                },
                header_bytes: came.header_bytes,
                flow: came.flow,
            };
            if failed.is_ok() {
                failed = rows.write(&row, ip);
            }
        });
        failed
    }

    /// The queue, for a sample.
    ///
    /// # Errors
    /// The kernel's answer to netlink's question.
    pub fn sample(&mut self) -> io::Result<SampleRow> {
        let found = self.backlog()?;
        // The packet that the shaper holds is counted by the queue, and is none of it.
        let held = u32::from(self.holds_at.is_some() && found.packets > 0);
        let bytes_held = found.bytes.checked_div(found.packets).unwrap_or(0) * held;
        Ok(SampleRow {
            queue_pkts: found.packets - held,
            queue_bytes: u64::from(found.bytes - bytes_held),
            probes: Vec::new(),
        })
    }

    /// What has not left by now, long after the end of the run, was lost: at its arrival, as far as
    /// anybody can tell.
    ///
    /// # Errors
    /// As write(2) says.
    pub fn finish(&mut self, rows: &mut Rows) -> io::Result<()> {
        let earlier = self.earlier.drain().flat_map(|(_, it)| it);
        let mut lost: Vec<Inside> = self.inside.drain().map(|(_, it)| it).collect();
        lost.extend(earlier);
        lost.sort_by_key(|it| (it.arrived, it.traffic, it.bytes));
        for came in lost {
            let row = PacketRow {
                arrived: came.arrived,
                left: came.arrived,
                bytes: came.bytes,
                traffic: came.traffic,
                class: 0,
                fate: Fate::Lost(DropReason::Early),
                header_bytes: came.header_bytes,
                flow: came.flow,
            };
            rows.write(&row, came.start.as_deref().map_or(&[], |it| &it[..]))?;
        }
        Ok(())
    }

    /// RTM_GETQDISC for the queue, and its TCA_STATS2 (rtnetlink(7), linux/gen_stats.h).
    fn backlog(&self) -> io::Result<Backlog> {
        const RTM_GETQDISC: u16 = 38;
        const NLM_F_REQUEST_ECHO: u16 = 0x1 | 0x8;
        const TCA_STATS2: u16 = 7;
        const TCA_STATS_QUEUE: u16 = 3;
        let mut question = Vec::with_capacity(36);
        question.extend_from_slice(&36u32.to_ne_bytes());
        question.extend_from_slice(&RTM_GETQDISC.to_ne_bytes());
        question.extend_from_slice(&NLM_F_REQUEST_ECHO.to_ne_bytes());
        question.extend_from_slice(&1u32.to_ne_bytes());
        question.extend_from_slice(&0u32.to_ne_bytes());
        // struct tcmsg: family and padding, device, handle, parent, info.
        for word in [0, self.device, 0, self.parent, 0] {
            question.extend_from_slice(&word.to_ne_bytes());
        }
        super::sys::send(self.netlink.as_fd(), &question)?;
        let mut answer = [0u8; 8192];
        let length = nix::unistd::read(&self.netlink, &mut answer)?;
        let answer = &answer[..length];
        let kind = u16::from_ne_bytes([answer[4], answer[5]]);
        if kind == 2 {
            let code = i32::from_ne_bytes(answer[16..20].try_into().expect("four bytes"));
            return Err(io::Error::from_raw_os_error(-code));
        }
        let mut found = Backlog::default();
        for (kind, value) in attributes(&answer[36..]) {
            if kind != TCA_STATS2 {
                continue;
            }
            for (kind, value) in attributes(value) {
                if kind == TCA_STATS_QUEUE && value.len() >= 8 {
                    let word = |at: usize| {
                        u32::from_ne_bytes(value[at..at + 4].try_into().expect("four bytes"))
                    };
                    // struct gnet_stats_queue: qlen, backlog, drops, requeues, overlimits.
                    found.packets = word(0);
                    found.bytes = word(4);
                }
            }
        }
        Ok(found)
    }
}

/// The attributes of a message: kind and value.
fn attributes(mut rest: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(u16::from_ne_bytes([*rest.first()?, *rest.get(1)?]));
        let kind = u16::from_ne_bytes([*rest.get(2)?, *rest.get(3)?]) & 0x3fff;
        let value = rest.get(4..length)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or(&[]);
        Some((kind, value))
    })
}

fn key(ip: &[u8]) -> FlowKey {
    const UDP: u8 = 17;
    let u32_at = |at: usize| u32::from_be_bytes(ip[at..at + 4].try_into().expect("four bytes"));
    let header = usize::from(ip[0] & 0xf) * 4;
    let ports = match ip.get(header..header + 4) {
        Some(ports) => u32::from_be_bytes(ports.try_into().expect("four bytes")),
        None => 0,
    };
    let number = u16::from_be_bytes([ip[4], ip[5]]);
    // Behind its checksum, which a device may not have filled in yet.
    let mut content = Fnv1a::default();
    if ip[9] == UDP {
        content.write(ip.iter().skip(header + 8).copied());
    }
    (u32_at(12), u32_at(16), ports, number, content.finish())
}

fn ecn(ip: &[u8]) -> Ecn {
    forebay_aqm::TrafficClass(ip[1]).ecn()
}
