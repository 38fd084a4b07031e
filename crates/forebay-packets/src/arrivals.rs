//! Recorded packets from a capture or a list: times, sizes, flows and traffic classes.

use std::collections::HashMap;
use std::fmt::Write;
use std::hash::Hash;

use forebay_aqm::TrafficClass;
use forebay_units::Span;

use crate::prefix::Prefix;

/// The largest number of packets, which a run has memory for.
const MOST_PACKETS: usize = 20_000_000;
/// The largest number of flows.
const MOST_FLOWS: usize = 1_000_000;

/// The recorded packets of a file, in order of time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrivals {
    /// The packets, at least one.
    pub packets: Vec<Arrival>,
    /// The number of flows, each of which has a packet.
    pub flows: u32,
    /// The numbers of the sending and of the receiving host of each flow; empty where they are
    /// unknown. With more than 65,536 hosts, numbers are used again.
    pub hosts: Vec<(u16, u16)>,
    /// The size of the largest packet.
    pub largest_bytes: u16,
    /// The frames of the capture by kind.
    pub counts: FrameCounts,
}

/// The frames of a capture, counted by the way in which they were read. A list of packets has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameCounts {
    /// All frames of the capture.
    pub frames: u64,
    /// Frames without an IP packet, which are left out.
    pub not_ip: u64,
    /// Frames of which too little was captured to read the packet's length and addresses. They are
    /// left out.
    pub too_short: u64,
    /// Frames without a time (simple packet blocks of pcapng); they are left out.
    pub without_time: u64,
    /// Packets whose IP header has a larger length than the capture's record. They count with the
    /// length of the IP header.
    pub longer_than_recorded: u64,
}

/// A packet that arrives at a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The time since the first packet of the file.
    pub at: Span,
    /// The number of the flow, from 0 in the order of appearance.
    pub flow: u32,
    /// The length of the IP packet.
    pub bytes: u16,
    /// The traffic class: DSCP and ECN field.
    pub class: TrafficClass,
    /// True if TCP carries it.
    pub tcp: bool,
}

/// The choice of packets from a file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Selection {
    /// Prefixes of source addresses; empty allows any address.
    pub source: Vec<Prefix>,
    /// Prefixes of destination addresses; empty allows any address.
    pub destination: Vec<Prefix>,
    /// The largest packet. A larger one counts as several packets at the same time. Captures have
    /// such packets where the network card divided them later (segmentation offload).
    pub mtu: u16,
}

impl Selection {
    /// Returns whether packets from `source` to `destination` are chosen.
    pub(crate) fn takes(&self, source: u128, destination: u128) -> bool {
        let allows = |prefixes: &[Prefix], address| {
            prefixes.is_empty() || prefixes.iter().any(|prefix| prefix.holds(address))
        };
        allows(&self.source, source) && allows(&self.destination, destination)
    }

    /// Returns the choice in words, such as "from 10.0.0.0/8 to ::/0".
    pub(crate) fn in_words(&self) -> String {
        let mut words = String::new();
        for (which, prefixes) in [("from", &self.source), ("to", &self.destination)] {
            for (i, prefix) in prefixes.iter().enumerate() {
                let before = if i == 0 { which } else { "or" };
                let space = if words.is_empty() { "" } else { " " };
                // Writing to a String cannot fail.
                let _ = write!(words, "{space}{before} {prefix}");
            }
        }
        words
    }
}

/// An error in a file.
pub(crate) struct Wrong {
    /// The fault, as a phrase that follows the name of the file.
    pub reason: String,
    /// A description of correct contents.
    pub expected: &'static str,
}

impl Arrivals {
    /// Returns the time from the first packet of the file to the last one that was chosen.
    pub fn length(&self) -> Span {
        self.packets.last().map_or(Span::ZERO, |packet| packet.at)
    }
}

/// The formats of a file, for error messages.
pub(crate) const FORMATS: &str =
    "a capture (pcap or pcapng), or a list with the first line \"time_s,size_bytes,flow\"";

/// A packet of a file.
pub(crate) struct FilePacket {
    /// The time since the first packet of the file, in ns.
    pub at_ns: i128,
    /// The length of the packet.
    pub bytes: u32,
    /// The size of the headers, which each piece of a large packet repeats.
    pub header_bytes: u32,
    /// The traffic class.
    pub class: TrafficClass,
    /// True if the packet is TCP.
    pub tcp: bool,
}

/// A builder that collects packets and gives numbers to flows and hosts.
pub(crate) struct Builder<K> {
    mtu: u32,
    flows: HashMap<K, u32>,
    addresses: HashMap<u128, u16>,
    hosts: Vec<(u16, u16)>,
    packets: Vec<Arrival>,
    largest_bytes: u16,
    pub counts: FrameCounts,
    /// The addresses of the first packet that the selection left out.
    passed_over: Option<(std::net::IpAddr, std::net::IpAddr)>,
}

/// The packets of a file.
pub(crate) struct Built {
    flows: u32,
    hosts: Vec<(u16, u16)>,
    pub packets: Vec<Arrival>,
    largest_bytes: u16,
    pub counts: FrameCounts,
    pub passed_over: Option<(std::net::IpAddr, std::net::IpAddr)>,
}

impl Built {
    /// Returns the packets as arrivals.
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
    /// Returns a builder without packets.
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

    /// Returns the number of a flow. `hosts` are the addresses of its hosts, if they are known.
    ///
    /// # Errors
    /// There are too many flows.
    pub fn flow(&mut self, key: K, hosts: Option<(u128, u128)>) -> Result<u32, Wrong> {
        let next = self.flows.len();
        if let Some(number) = self.flows.get(&key) {
            return Ok(*number);
        }
        if next == MOST_FLOWS {
            return Err(Wrong {
                reason: format!("has more than {MOST_FLOWS} flows"),
                expected: "fewer flows, such as a part of the file or some of its addresses",
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

    /// Returns the number of a host.
    fn host(&mut self, address: u128) -> u16 {
        let next = self.addresses.len() % (1 << 16);
        let next = u16::try_from(next).unwrap_or(u16::MAX);
        *self.addresses.entry(address).or_insert(next)
    }

    /// Adds a packet of a flow, divided into pieces of at most the MTU.
    ///
    /// # Errors
    /// The packet is earlier than the last one, or there are too many packets.
    pub fn push(&mut self, flow: u32, packet: &FilePacket) -> Result<(), Wrong> {
        let before = self.packets.last().map_or(0, |packet| packet.at.as_nanos());
        let Ok(at_ns) = u64::try_from(packet.at_ns) else {
            return Err(unsorted(packet.at_ns));
        };
        if at_ns < before {
            return Err(unsorted(packet.at_ns - i128::from(before)));
        }
        // The bound leaves room for data, whatever the headers are.
        let header = packet.header_bytes.min(self.mtu / 2);
        let mut rest = packet.bytes;
        loop {
            let piece = rest.min(self.mtu);
            let bytes = u16::try_from(piece).unwrap_or(u16::MAX);
            if self.packets.len() == MOST_PACKETS {
                return Err(Wrong {
                    reason: format!("has more than {MOST_PACKETS} packets"),
                    expected: "fewer packets, such as a part of the file or some of its addresses",
                });
            }
            self.packets.push(Arrival {
                at: Span::from_nanos(at_ns),
                flow,
                bytes,
                class: packet.class,
                tcp: packet.tcp,
            });
            self.largest_bytes = self.largest_bytes.max(bytes);
            rest -= piece;
            if rest == 0 {
                return Ok(());
            }
            rest += header;
        }
    }

    /// Returns the packets.
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

/// Returns the error of a packet that is `back_ns` (negative) before its predecessor.
fn unsorted(back_ns: i128) -> Wrong {
    Wrong {
        reason: format!(
            "has a packet that is {} s earlier than the packet before it",
            seconds(-back_ns)
        ),
        expected: "packets in order of time (reordercap sorts a capture)",
    }
}

/// Returns a time in s, without trailing zeros.
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

    /// Returns the sizes of the pieces of a packet.
    fn pieces(bytes: u32, header_bytes: u32) -> Vec<u16> {
        let mut builder: Builder<u8> = Builder::new(&ALL);
        let packet = FilePacket {
            at_ns: 7,
            bytes,
            header_bytes,
            class: TrafficClass(0),
            tcp: true,
        };
        assert!(builder.push(0, &packet).is_ok());
        let built = builder.build();
        assert!(built
            .packets
            .iter()
            .all(|packet| packet.at == Span::from_nanos(7)));
        built.packets.iter().map(|packet| packet.bytes).collect()
    }

    #[test]
    fn a_large_packet_is_divided_into_pieces_with_headers_of_their_own() {
        assert_eq!(pieces(1500, 52), [1500]);
        // 2 x 1448 + 104 bytes pieces data.
        assert_eq!(pieces(52 + 3000, 52), [1500, 1500, 52 + 104]);
        // Data that fills its pieces leaves no empty one.
        assert_eq!(pieces(52 + 2 * 1448, 52), [1500, 1500]);
        assert_eq!(pieces(4000, 0), [1500, 1500, 1000]);
        // A header as large as a packet does not stop it.
        assert_eq!(pieces(2000, 1900).len(), 2);
    }

    #[test]
    fn an_arrival_takes_16_bytes() {
        assert_eq!(std::mem::size_of::<Arrival>(), 16);
    }

    #[test]
    fn times_have_no_trailing_zeros() {
        assert_eq!(seconds(1_500_000_000), "1.5");
        assert_eq!(seconds(12_000), "0.000012");
        assert_eq!(seconds(3_000_000_000), "3");
    }
}
