//! Packets as they came to a queue once: times, sizes, flows and traffic classes, from a capture or
//! a list.

use std::collections::HashMap;
use std::fmt::Write;
use std::hash::Hash;

use forebay_aqm::TrafficClass;
use forebay_units::Span;

use crate::prefix::Prefix;

/// Most packets that are kept, and most flows: what a run has memory for.
const MOST_PACKETS: usize = 20_000_000;
const MOST_FLOWS: usize = 1_000_000;

/// Packets in order of time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrivals {
    /// At least one.
    pub packets: Vec<Arrival>,
    /// Number of flows; every flow has a packet.
    pub flows: u32,
    /// By flow: numbers of the hosts that it comes from and goes to. Empty where they are not
    /// known. Beyond 65,536 hosts numbers come again.
    pub hosts: Vec<(u16, u16)>,
    /// Size of the largest packet.
    pub largest_bytes: u16,
    /// What of the file was not as it should be.
    pub counts: FrameCounts,
}

/// Frames of a capture by what was made of them. A list of packets has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameCounts {
    /// All frames of the capture.
    pub frames: u64,
    /// Frames that hold no IP packet, and are left out.
    pub not_ip: u64,
    /// Frames of which too little was captured to tell the packet's length and addresses; they are
    /// left out.
    pub too_short: u64,
    /// Frames without a time (simple packet blocks of pcapng); they are left out.
    pub without_time: u64,
    /// Packets that are longer by their IP header than their frames were by the capture's record;
    /// they are taken with the length of the IP header.
    pub longer_than_recorded: u64,
}

/// A packet that comes to a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Since the first packet of the file.
    pub at: Span,
    /// Flows are numbered from 0 as they come.
    pub flow: u32,
    /// Of the IP packet.
    pub bytes: u16,
    pub class: TrafficClass,
    /// Whether TCP carries it.
    pub tcp: bool,
}

/// Which packets of a file are taken, and how.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Selection {
    /// Packets from addresses of one of these; from any address where there are none.
    pub source: Vec<Prefix>,
    /// Likewise for the addresses that they go to.
    pub destination: Vec<Prefix>,
    /// A larger packet counts as several at one time, of this size but for the last. Captures have
    /// such packets where the network card was to cut them (segmentation offload).
    pub mtu: u16,
}

impl Selection {
    /// Whether it has packets from `source` to `destination`.
    pub(crate) fn takes(&self, source: u128, destination: u128) -> bool {
        let one = |of: &[Prefix], address| of.is_empty() || of.iter().any(|it| it.holds(address));
        one(&self.source, source) && one(&self.destination, destination)
    }

    /// "from 10.0.0.0/8 to ::/0"
    pub(crate) fn in_words(&self) -> String {
        let mut words = String::new();
        for (which, prefixes) in [("from", &self.source), ("to", &self.destination)] {
            for (i, prefix) in prefixes.iter().enumerate() {
                let before = if i == 0 { which } else { "or" };
                let space = if words.is_empty() { "" } else { " " };
                // Writing to a text does not fail.
                let _ = write!(words, "{space}{before} {prefix}");
            }
        }
        words
    }
}

/// What is wrong with a file, and what is allowed.
pub(crate) struct Wrong {
    pub found: String,
    pub allowed: &'static str,
}

impl Arrivals {
    /// From the first packet of the file until the last one that is taken.
    pub fn length(&self) -> Span {
        self.packets.last().map_or(Span::ZERO, |packet| packet.at)
    }
}

/// What a file may be.
pub(crate) const FORMATS: &str =
    "a capture (pcap or pcapng), or a list with the first line \"time_s,size_bytes,flow\"";

/// A packet of a file.
pub(crate) struct Found {
    /// Since the first packet of the file.
    pub at_ns: i128,
    pub bytes: u32,
    /// Of its headers, which each piece of a large packet has.
    pub header_bytes: u32,
    pub class: TrafficClass,
    pub tcp: bool,
}

/// Collects packets, and numbers flows and hosts.
pub(crate) struct Builder<K> {
    mtu: u32,
    flows: HashMap<K, u32>,
    addresses: HashMap<u128, u16>,
    hosts: Vec<(u16, u16)>,
    packets: Vec<Arrival>,
    largest_bytes: u16,
    pub counts: FrameCounts,
    /// Addresses of a packet that the selection left out.
    passed_over: Option<(std::net::IpAddr, std::net::IpAddr)>,
}

/// What came of a file.
pub(crate) struct Built {
    flows: u32,
    hosts: Vec<(u16, u16)>,
    pub packets: Vec<Arrival>,
    largest_bytes: u16,
    pub counts: FrameCounts,
    pub passed_over: Option<(std::net::IpAddr, std::net::IpAddr)>,
}

impl Built {
    pub fn finish(mut self) -> Arrivals {
        self.packets.shrink_to_fit();
        Arrivals {
            packets: self.packets,
            flows: self.flows,
            hosts: self.hosts,
            largest_bytes: self.largest_bytes,
            counts: self.counts,
        }
    }
}

impl<K: Hash + Eq> Builder<K> {
    pub fn new(selection: &Selection) -> Builder<K> {
        Builder {
            mtu: u32::from(selection.mtu),
            flows: HashMap::new(),
            addresses: HashMap::new(),
            hosts: Vec::new(),
            packets: Vec::new(),
            largest_bytes: 0,
            counts: FrameCounts::default(),
            passed_over: None,
        }
    }

    /// Notes a packet that the selection leaves out.
    pub fn pass_over(&mut self, source: u128, destination: u128) {
        let address = |mapped: u128| {
            let mapped = std::net::Ipv6Addr::from(mapped);
            std::net::IpAddr::from(mapped).to_canonical()
        };
        self.passed_over
            .get_or_insert((address(source), address(destination)));
    }

    /// The number of a flow; a new one's hosts are given by their addresses, if they are known.
    pub fn flow(&mut self, key: K, hosts: Option<(u128, u128)>) -> Result<u32, Wrong> {
        let next = self.flows.len();
        if let Some(number) = self.flows.get(&key) {
            return Ok(*number);
        }
        if next == MOST_FLOWS {
            return Err(Wrong {
                found: format!("more than {MOST_FLOWS} flows"),
                allowed: "fewer flows: a part of the file, or some of its addresses",
            });
        }
        if let Some((source, destination)) = hosts {
            let hosts = (self.host(source), self.host(destination));
            self.hosts.push(hosts);
        }
        let number = u32::try_from(next).unwrap_or(u32::MAX);
        self.flows.insert(key, number);
        Ok(number)
    }

    fn host(&mut self, address: u128) -> u16 {
        let next = self.addresses.len() % (1 << 16);
        let next = u16::try_from(next).unwrap_or(u16::MAX);
        *self.addresses.entry(address).or_insert(next)
    }

    /// Adds a packet, which must not be before the last one.
    pub fn push(&mut self, flow: u32, found: &Found) -> Result<(), Wrong> {
        let before = self.packets.last().map_or(0, |packet| packet.at.as_nanos());
        let Ok(at_ns) = u64::try_from(found.at_ns) else {
            return Err(unsorted(found.at_ns));
        };
        if at_ns < before {
            return Err(unsorted(found.at_ns - i128::from(before)));
        }
        // A header leaves room for data, in any packet that is cut in earnest.
        let header = found.header_bytes.min(self.mtu / 2);
        let mut left = found.bytes;
        loop {
            let piece = left.min(self.mtu);
            let bytes = u16::try_from(piece).unwrap_or(u16::MAX);
            if self.packets.len() == MOST_PACKETS {
                return Err(Wrong {
                    found: format!("more than {MOST_PACKETS} packets"),
                    allowed: "fewer packets: a part of the file, or some of its addresses",
                });
            }
            self.packets.push(Arrival {
                at: Span::from_nanos(at_ns),
                flow,
                bytes,
                class: found.class,
                tcp: found.tcp,
            });
            self.largest_bytes = self.largest_bytes.max(bytes);
            left -= piece;
            if left == 0 {
                return Ok(());
            }
            left += header;
        }
    }

    pub fn build(self) -> Built {
        Built {
            flows: u32::try_from(self.flows.len()).unwrap_or(u32::MAX),
            hosts: self.hosts,
            packets: self.packets,
            largest_bytes: self.largest_bytes,
            counts: self.counts,
            passed_over: self.passed_over,
        }
    }
}

fn unsorted(back_ns: i128) -> Wrong {
    Wrong {
        found: format!(
            "a packet {} s before the one ahead of it",
            seconds(-back_ns)
        ),
        allowed: "packets in order of time (reordercap sorts a capture)",
    }
}

/// A time in s without trailing zeros.
fn seconds(ns: i128) -> String {
    let text = format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Selection = Selection {
        source: Vec::new(),
        destination: Vec::new(),
        mtu: 1500,
    };

    fn of(bytes: u32, header_bytes: u32) -> Vec<u16> {
        let mut builder: Builder<u8> = Builder::new(&ALL);
        let found = Found {
            at_ns: 7,
            bytes,
            header_bytes,
            class: TrafficClass(0),
            tcp: true,
        };
        assert!(builder.push(0, &found).is_ok());
        let built = builder.build();
        assert!(built
            .packets
            .iter()
            .all(|packet| packet.at == Span::from_nanos(7)));
        built.packets.iter().map(|packet| packet.bytes).collect()
    }

    #[test]
    fn a_large_packet_comes_in_pieces_with_headers_of_their_own() {
        assert_eq!(of(1500, 52), [1500]);
        // 2 x 1448 + 104 bytes of data.
        assert_eq!(of(52 + 3000, 52), [1500, 1500, 52 + 104]);
        // Data that fills its pieces leaves no empty one.
        assert_eq!(of(52 + 2 * 1448, 52), [1500, 1500]);
        assert_eq!(of(4000, 0), [1500, 1500, 1000]);
        // A header as large as a packet does not stop it.
        assert_eq!(of(2000, 1900).len(), 2);
    }

    #[test]
    fn an_arrival_is_two_words() {
        assert_eq!(std::mem::size_of::<Arrival>(), 16);
    }

    #[test]
    fn times_are_told_as_they_are() {
        assert_eq!(seconds(1_500_000_000), "1.5");
        assert_eq!(seconds(12_000), "0.000012");
        assert_eq!(seconds(3_000_000_000), "3");
    }
}
