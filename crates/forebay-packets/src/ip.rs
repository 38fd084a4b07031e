//! Headers of IP, TCP and UDP in a packet's bytes, and CE marks.
//!
//! Every function accepts any bytes. Bytes that are not a valid IPv4 or IPv6 packet read as `None`,
//! and are forwarded unmarked.

use std::hash::{Hash, Hasher};

use forebay_aqm::{Ecn, TrafficClass};

/// Protocol numbers (IANA).
const HOP_BY_HOP: u8 = 0;
/// The protocol number of TCP.
pub const TCP: u8 = 6;
/// The protocol number of UDP.
pub const UDP: u8 = 17;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;
const DESTINATION_OPTIONS: u8 = 60;
const SCTP: u8 = 132;
const UDP_LITE: u8 = 136;

/// The largest number of IPv6 extension headers before the transport header.
const MOST_EXTENSIONS: usize = 8;

/// The fields of a packet's headers that queues and the emulator need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headers {
    /// The traffic class: DSCP and ECN field.
    pub class: TrafficClass,
    /// The flow of the packet.
    pub flow: Flow,
    /// The offset of the transport header.
    pub transport: u16,
    /// The length of the packet according to its IP header. The frame may be longer because of
    /// padding.
    pub bytes: u32,
    /// The TCP header; `None` where the packet has no complete one.
    pub tcp: Option<Tcp>,
}

/// The part of a TCP header that goodput and segmentation need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tcp {
    /// The sequence number.
    pub seq: u32,
    /// The acknowledgement number; `None` without the ACK flag.
    pub ack: Option<u32>,
    /// True if the SYN flag is set.
    pub syn: bool,
    /// The size of the TCP header with its options.
    pub header_bytes: u16,
    /// The size of the payload.
    pub payload_bytes: u32,
}

/// One direction of a flow. The ports are zero for protocols without ports, and for fragments, so
/// that all fragments of a packet belong to the same flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// The protocol number (IANA), such as [`TCP`].
    pub protocol: u8,
    /// The source address. An IPv4 address is IPv4-mapped (RFC 4291, section 2.5.5.2).
    pub source: u128,
    /// The destination address, in the same form.
    pub destination: u128,
    /// The source port.
    pub source_port: u16,
    /// The destination port.
    pub destination_port: u16,
}

impl Flow {
    /// Returns the flow of the opposite direction.
    pub fn reversed(self) -> Flow {
        Flow {
            source: self.destination,
            destination: self.source,
            source_port: self.destination_port,
            destination_port: self.source_port,
            ..self
        }
    }

    /// Returns a hash that is the same for both directions.
    pub fn mixed(&self) -> u64 {
        let source = end(self.source, self.source_port);
        let destination = end(self.destination, self.destination_port);
        // The sum does not depend on which of the two is the source.
        scramble(source.wrapping_add(destination) ^ u64::from(self.protocol))
    }

    /// Returns hashes of the sending and of the receiving host.
    pub fn hosts(&self) -> (u64, u64) {
        (end(self.source, 0), end(self.destination, 0))
    }
}

/// Returns a hash of an address and a port.
#[allow(clippy::cast_possible_truncation, reason = "both halves go in")]
fn end(address: u128, port: u16) -> u64 {
    let folded = (address >> 64) as u64 ^ (address as u64).rotate_left(17);
    scramble(folded ^ (u64::from(port) << 48))
}

/// Applies the finaliser of SplitMix64, in which every input bit affects every output bit.
fn scramble(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Hash for Flow {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.mixed());
    }
}

impl Headers {
    /// Reads the headers of a packet; `None` where it is not valid IP.
    pub fn read(packet: &[u8]) -> Option<Headers> {
        Headers::read_start(packet, packet.len())
    }

    /// Reads the headers of a packet of `length` bytes, of which only `start` is known, as in a
    /// capture that keeps the first bytes.
    pub fn read_start(start: &[u8], length: usize) -> Option<Headers> {
        match start.first()? >> 4 {
            4 => v4(start, length),
            6 => v6(start, length),
            _ => None,
        }
    }

    /// Returns the length in the IP header of a packet that begins with `start`; `None` where it is
    /// not an IP packet, or is larger than the field.
    pub fn claimed_length(start: &[u8]) -> Option<usize> {
        let claimed = match start.first()? >> 4 {
            4 => usize::from(u16_at(start, 2)?),
            6 => match usize::from(u16_at(start, 4)?) {
                0 => 0,
                payload => 40 + payload,
            },
            _ => 0,
        };
        (claimed > 0).then_some(claimed)
    }

    /// Returns the size of the IP header and of the TCP or UDP header.
    pub fn header_bytes(&self) -> u32 {
        self.bytes - self.payload_bytes()
    }

    /// Returns whether the packet is TCP.
    pub fn is_tcp(&self) -> bool {
        self.flow.protocol == TCP
    }

    /// Returns the size of the payload: after the transport header for TCP and UDP, after the IP
    /// header for other protocols.
    pub fn payload_bytes(&self) -> u32 {
        let above_ip = self.bytes.saturating_sub(u32::from(self.transport));
        match (self.tcp, self.flow.protocol) {
            (Some(tcp), _) => tcp.payload_bytes,
            (None, TCP) => 0,
            (None, UDP) => above_ip.saturating_sub(8),
            _ => above_ip,
        }
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u128_at(bytes: &[u8], at: usize) -> Option<u128> {
    Some(u128::from_be_bytes(
        bytes.get(at..at + 16)?.try_into().ok()?,
    ))
}

fn v4(packet: &[u8], length: usize) -> Option<Headers> {
    let header = usize::from(packet[0] & 0xf) * 4;
    if header < 20 || packet.len() < header {
        return None;
    }
    // A super-packet of 64 KiB or more has length 0.
    let bytes = match usize::from(u16_at(packet, 2)?) {
        0 => length,
        bytes => bytes,
    };
    if bytes < header || bytes > length {
        return None;
    }
    // More fragments, or an offset.
    let fragment = u16_at(packet, 6)? & 0x3fff != 0;
    let mapped = |address: u32| 0xffff_0000_0000 | u128::from(address);
    Some(above(
        (&packet[..bytes.min(packet.len())], bytes),
        header,
        packet[9],
        fragment,
        TrafficClass(packet[1]),
        (mapped(u32_at(packet, 12)?), mapped(u32_at(packet, 16)?)),
    ))
}

fn v6(packet: &[u8], length: usize) -> Option<Headers> {
    if packet.len() < 40 {
        return None;
    }
    // A jumbogram (RFC 2675), or a super-packet, has length 0.
    let bytes = match usize::from(u16_at(packet, 4)?) {
        0 if length > 40 => length,
        bytes => 40 + bytes,
    };
    if bytes > length {
        return None;
    }
    let packet = &packet[..bytes.min(packet.len())];
    let (protocol, transport, fragment) = transport_of_v6(packet);
    Some(above(
        (packet, bytes),
        transport,
        protocol,
        fragment,
        // The traffic class lies across the first two bytes.
        TrafficClass(packet[0] << 4 | packet[1] >> 4),
        (u128_at(packet, 8)?, u128_at(packet, 24)?),
    ))
}

/// Returns the protocol of the transport header, its offset, and whether the packet is a fragment.
/// A chain of extension headers that is cut off or too long ends early.
fn transport_of_v6(packet: &[u8]) -> (u8, usize, bool) {
    let (mut protocol, mut at) = (packet[6], 40);
    for _ in 0..MOST_EXTENSIONS {
        let Some(&[next, length]) = packet.get(at..at + 2).and_then(|bytes| bytes.first_chunk())
        else {
            break;
        };
        let bytes = match protocol {
            HOP_BY_HOP | ROUTING | DESTINATION_OPTIONS => 8 * (usize::from(length) + 1),
            // The length is in units of four bytes, minus two (RFC 4302, section 2.2).
            AUTHENTICATION => 4 * (usize::from(length) + 2),
            FRAGMENT => {
                // A fragment has an offset or more fragments; an atomic fragment (RFC 6946) has
                // neither.
                let fragment = u16_at(packet, at + 2).is_none_or(|word| word & 0xfff9 != 0);
                if fragment {
                    // Only the first fragment continues with a header.
                    return (next, (at + 8).min(packet.len()), true);
                }
                8
            }
            _ => break,
        };
        if at + bytes > packet.len() {
            break;
        }
        (protocol, at) = (next, at + bytes);
    }
    (protocol, at, false)
}

/// Returns the headers from the fields of IP and from the transport header.
fn above(
    (packet, bytes): (&[u8], usize),
    transport: usize,
    protocol: u8,
    fragment: bool,
    class: TrafficClass,
    (source, destination): (u128, u128),
) -> Headers {
    let payload = packet.get(transport..).unwrap_or(&[]);
    let has_ports = matches!(protocol, TCP | UDP | SCTP | UDP_LITE) && !fragment;
    let port = |at| u16_at(payload, at).filter(|_| has_ports && payload.len() >= 4);
    Headers {
        class,
        flow: Flow {
            protocol,
            source,
            destination,
            source_port: port(0).unwrap_or(0),
            destination_port: port(2).unwrap_or(0),
        },
        transport: bytes_u16(transport),
        bytes: bytes_u32(bytes),
        tcp: tcp(payload, bytes.saturating_sub(transport)).filter(|_| protocol == TCP && !fragment),
    }
}

/// Reads a TCP header. `bytes` is the length of the segment, of which `segment` has at least the
/// start.
fn tcp(segment: &[u8], bytes: usize) -> Option<Tcp> {
    let offset_and_flags = u16_at(segment, 12)?;
    let header_bytes = (offset_and_flags >> 12) * 4;
    let payload_bytes = bytes.checked_sub(usize::from(header_bytes))?;
    if header_bytes < 20 {
        return None;
    }
    let ack = u32_at(segment, 8)?;
    Some(Tcp {
        seq: u32_at(segment, 4)?,
        ack: (offset_and_flags & 0x10 != 0).then_some(ack),
        syn: offset_and_flags & 0x02 != 0,
        header_bytes,
        payload_bytes: bytes_u32(payload_bytes),
    })
}

/// Returns the length of a packet, or of a part of it, as a `u32`; no packet is near the bound.
#[inline]
pub fn bytes_u32(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

/// Returns the length of a packet as the 16 bits of IP's headers, at most 65535.
#[inline]
pub fn bytes_u16(length: usize) -> u16 {
    u16::try_from(length).unwrap_or(u16::MAX)
}

/// Sets CE on an ECN-capable packet, and leaves other packets unchanged (RFC 3168, section 5).
pub fn set_ce(packet: &mut [u8]) {
    let Some(headers) = Headers::read(packet) else {
        return;
    };
    if headers.class.ecn() == Ecn::NotEct {
        return;
    }
    if packet[0] >> 4 == 6 {
        packet[1] |= 0b11 << 4;
        return;
    }
    let old = u16::from_be_bytes([packet[0], packet[1]]);
    packet[1] |= 0b11;
    let new = u16::from_be_bytes([packet[0], packet[1]]);
    let checksum = u16::from_be_bytes([packet[10], packet[11]]);
    packet[10..12].copy_from_slice(&updated(checksum, old, new).to_be_bytes());
}

/// Returns an Internet checksum after one word has changed (RFC 1624, eq. 3).
pub fn updated(checksum: u16, old: u16, new: u16) -> u16 {
    let sum = u32::from(!checksum) + u32::from(!old) + u32::from(new);
    !folded(sum)
}

/// Folds a one's complement sum into 16 bits.
#[allow(clippy::cast_possible_truncation, reason = "the loop leaves 16 bits")]
pub fn folded(mut sum: u32) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
#[allow(
    clippy::cast_possible_truncation,
    reason = "a test's numbers are small"
)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn checksum(header: &[u8]) -> u16 {
        let words = header.chunks(2);
        !folded(
            words
                .map(|w| u32::from(u16::from_be_bytes([w[0], w[1]])))
                .sum(),
        )
    }

    /// A TCP segment from port 5000 to port 80 in IPv4, with these options and this payload.
    fn v4_tcp(tos: u8, options: usize, payload: usize) -> Vec<u8> {
        let header = 20 + options;
        let mut packet = vec![0; header + 20 + payload];
        packet[0] = 0x40 | (header / 4) as u8;
        packet[1] = tos;
        let bytes = packet.len() as u16;
        packet[2..4].copy_from_slice(&bytes.to_be_bytes());
        packet[8] = 64;
        packet[9] = TCP;
        packet[12..16].copy_from_slice(&[10, 0, 0, 1]);
        packet[16..20].copy_from_slice(&[10, 0, 0, 2]);
        let sum = checksum(&packet[..header]);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        tcp_header(&mut packet[header..]);
        packet
    }

    fn tcp_header(segment: &mut [u8]) {
        segment[0..2].copy_from_slice(&5000u16.to_be_bytes());
        segment[2..4].copy_from_slice(&80u16.to_be_bytes());
        segment[4..8].copy_from_slice(&7u32.to_be_bytes());
        segment[8..12].copy_from_slice(&9u32.to_be_bytes());
        segment[12] = 5 << 4;
        segment[13] = 0x10;
    }

    /// The same in IPv6 behind these extension headers: (protocol, bytes).
    fn v6_tcp(class: u8, extensions: &[(u8, Vec<u8>)], payload: usize) -> Vec<u8> {
        let mut packet = vec![0; 40];
        packet[0] = 0x60 | class >> 4;
        packet[1] = class << 4;
        packet[8..24].copy_from_slice(&[1; 16]);
        packet[24..40].copy_from_slice(&[2; 16]);
        let mut next = 6;
        for (protocol, bytes) in extensions {
            packet[next] = *protocol;
            next = packet.len();
            packet.extend(bytes);
        }
        packet[next] = TCP;
        let mut segment = vec![0; 20 + payload];
        tcp_header(&mut segment);
        packet.extend(segment);
        let length = (packet.len() - 40) as u16;
        packet[4..6].copy_from_slice(&length.to_be_bytes());
        packet
    }

    fn ports(packet: &[u8]) -> (u16, u16) {
        let flow = Headers::read(packet).unwrap().flow;
        (flow.source_port, flow.destination_port)
    }

    #[test]
    fn ipv4_and_ipv6_are_read() {
        for packet in [v4_tcp(0b10, 8, 100), v6_tcp(0b10, &[], 100)] {
            let headers = Headers::read(&packet).unwrap();
            assert_eq!(headers.class.ecn(), Ecn::Ect0);
            assert_eq!(ports(&packet), (5000, 80));
            assert_eq!(headers.bytes as usize, packet.len());
            let tcp = headers.tcp.unwrap();
            assert_eq!((tcp.seq, tcp.ack, tcp.payload_bytes), (7, Some(9), 100));
        }
    }

    #[test]
    fn the_transport_header_is_found_after_extension_headers() {
        let hop_by_hop = (HOP_BY_HOP, vec![0; 8]);
        let routing = (ROUTING, [vec![0, 1], vec![0; 14]].concat());
        let options = (DESTINATION_OPTIONS, vec![0; 8]);
        let authentication = (AUTHENTICATION, [vec![0, 4], vec![0; 22]].concat());
        let atomic = (FRAGMENT, vec![0; 8]);
        let packet = v6_tcp(
            1,
            &[hop_by_hop, routing, atomic, authentication, options],
            50,
        );
        assert_eq!(ports(&packet), (5000, 80));
        assert_eq!(Headers::read(&packet).unwrap().payload_bytes(), 50);
    }

    #[test]
    fn flows_of_one_host_have_the_same_host_hash() {
        let flow = |source, port| Flow {
            protocol: TCP,
            source,
            destination: 9,
            source_port: port,
            destination_port: 80,
        };
        let (a, b, c) = (flow(1, 5000), flow(1, 5001), flow(2, 5000));
        assert_eq!(a.hosts(), b.hosts());
        assert_ne!(a.hosts().0, c.hosts().0);
        assert_eq!(a.hosts().1, c.hosts().1);
        // The way back is from the other host to this one.
        let (source, destination) = a.hosts();
        assert_eq!(a.reversed().hosts(), (destination, source));
    }

    #[test]
    fn every_fragment_of_a_packet_belongs_to_the_same_flow() {
        let flow = |packet: &[u8]| Headers::read(packet).unwrap().flow;
        let mut first = v4_tcp(0, 0, 100);
        first[6] = 0x20;
        let mut second = v4_tcp(0, 0, 100);
        second[7] = 10;
        assert_eq!(flow(&first), flow(&second));
        assert_eq!(flow(&first).source_port, 0);
        let piece = |offset: u8| {
            let extension = (FRAGMENT, vec![0, 0, 0, offset, 0, 0, 0, 1]);
            flow(&v6_tcp(0, &[extension], 100))
        };
        assert_eq!(piece(1), piece(8));
        assert_eq!(piece(8).source_port, 0);
    }

    #[test]
    fn padding_is_not_payload() {
        let mut packet = v4_tcp(0, 0, 10);
        packet.extend([0; 30]);
        assert_eq!(Headers::read(&packet).unwrap().payload_bytes(), 10);
    }

    #[test]
    fn a_packet_with_length_zero_has_the_length_of_its_frame() {
        let mut packet = v6_tcp(0, &[], 100);
        packet[4..6].fill(0);
        assert_eq!(Headers::read(&packet).unwrap().bytes as usize, packet.len());
        let mut packet = v4_tcp(0, 0, 100);
        packet[2..4].fill(0);
        assert_eq!(Headers::read(&packet).unwrap().bytes as usize, packet.len());
    }

    #[test]
    fn the_start_of_a_packet_has_the_same_headers() {
        for packet in [v4_tcp(0b01, 8, 1400), v6_tcp(0b01, &[], 1400)] {
            let whole = Headers::read(&packet).unwrap();
            let start = Headers::read_start(&packet[..80], packet.len());
            assert_eq!(start, Some(whole));
            assert_eq!(Headers::read(&packet[..80]), None);
            assert_eq!(whole.header_bytes() + 1400, whole.bytes);
        }
    }

    #[test]
    fn invalid_packets_are_not_read() {
        let v4 = v4_tcp(0, 0, 0);
        let too_long = |at: usize, value: u8| {
            let mut packet = v4.clone();
            packet[at] = value;
            Headers::read(&packet)
        };
        assert_eq!(too_long(0, 0x44), None); // a header of 16 bytes
        assert_eq!(too_long(0, 0x4f), None); // of 60, which are not there
        assert_eq!(too_long(2, 1), None); // 296 bytes, of which 40 are there
        assert_eq!(too_long(0, 0x55), None); // version 5
        assert_eq!(Headers::read(&[]), None);
        assert_eq!(Headers::read(&v6_tcp(0, &[], 0)[..39]), None);
    }

    #[test]
    fn both_directions_have_the_same_hash_and_flows_differ() {
        let flow = Headers::read(&v4_tcp(0, 0, 0)).unwrap().flow;
        assert_eq!(flow.mixed(), flow.reversed().mixed());
        let other = Flow {
            source_port: 5001,
            ..flow
        };
        assert_ne!(flow.mixed(), other.mixed());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let before = Headers::read(&bytes);
            set_ce(&mut bytes);
            let after = Headers::read(&bytes);
            prop_assert_eq!(before.map(|it| it.flow), after.map(|it| it.flow));
        }

        /// The first bytes are valid here, because random ones are mostly refused at once.
        #[test]
        fn any_bytes_of_ipv6_are_read_without_a_panic(mut bytes in proptest::collection::vec(any::<u8>(), 40..200), next in 0u8..61) {
            bytes[0] = 0x60;
            bytes[4..6].fill(0);
            bytes[6] = next;
            prop_assert!(Headers::read(&bytes).is_some());
        }

        #[test]
        fn a_mark_keeps_the_checksum_right(tos: u8, options in 0usize..11, ttl: u8, id: u16) {
            let mut packet = v4_tcp(tos, 4 * options, 5);
            packet[8] = ttl;
            packet[4..6].copy_from_slice(&id.to_be_bytes());
            packet[10..12].fill(0);
            let header = 20 + 4 * options;
            let sum = checksum(&packet[..header]);
            packet[10..12].copy_from_slice(&sum.to_be_bytes());

            let before = packet.clone();
            set_ce(&mut packet);
            prop_assert_eq!(checksum(&packet[..header]), 0);
            let capable = tos & 0b11 != 0;
            prop_assert_eq!(packet[1], if capable { tos | 0b11 } else { tos });
            prop_assert_eq!(packet == before, !capable || tos & 0b11 == 0b11);
        }

        #[test]
        fn a_mark_changes_two_bits_of_ipv6(class: u8, label in 0u8..16) {
            let mut packet = v6_tcp(class, &[], 5);
            packet[1] |= label;
            let mut expected = packet.clone();
            if class & 0b11 != 0 {
                expected[1] |= 0x30;
            }
            set_ce(&mut packet);
            prop_assert_eq!(packet, expected);
        }
    }
}
