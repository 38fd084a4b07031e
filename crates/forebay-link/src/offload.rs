//! Super-packets: up to 64 KiB of one TCP flow behind a `struct virtio_net_hdr`, which says how to
//! divide them into segments (generic segmentation offload, GSO).
//!
//! The queue handles every segment by itself, so that its law sees as many packets as on a real
//! link. If the queue drops no segment, and marks all or none, the segments leave as one
//! super-packet. Otherwise its parts leave one by one. Their payload is not copied: it stays in the
//! slot.

use crate::due::Due;
use crate::pool::{Cut, Slot, PREFIX_BYTES};
use forebay_packets::ip::{bytes_u16, bytes_u32, folded, set_ce, Headers};

/// Flags and types of `struct virtio_net_hdr` (linux/virtio_net.h).
const NEEDS_CHECKSUM: u8 = 1;
const GSO_NONE: u8 = 0;
const GSO_TCP_V4: u8 = 1;
const GSO_TCP_V6: u8 = 4;
const GSO_ECN: u8 = 0x80;

/// The largest headers of a part: IP with options or extension headers, and TCP with options.
const MAX_HEADER_BYTES: usize = 256;

/// Returns the 16-bit number at `at`, in the byte order of this machine.
fn native(bytes: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes([bytes[at], bytes[at + 1]])
}

/// Returns the division into segments of the packet in `memory` (prefix and packet); `None` for a
/// packet that is not a super-packet.
pub fn cut(memory: &[u8], packet_bytes: usize) -> Option<Cut> {
    let kind = memory[1] & !GSO_ECN;
    let payload_bytes = u32::from(native(memory, 4));
    if !matches!(kind, GSO_TCP_V4 | GSO_TCP_V6) || payload_bytes == 0 {
        return None;
    }
    let headers = Headers::read(memory.get(PREFIX_BYTES..PREFIX_BYTES + packet_bytes)?)?;
    let tcp = headers.tcp?;
    let header_bytes = u32::from(headers.transport) + u32::from(tcp.header_bytes);
    let segments = u16::try_from(tcp.payload_bytes.div_ceil(payload_bytes)).ok()?;
    let fits = header_bytes as usize <= MAX_HEADER_BYTES && segments >= 2;
    fits.then_some(Cut {
        header_bytes,
        payload_bytes,
        segments,
    })
}

/// The prefix and the headers of a part of a super-packet.
pub struct Part {
    memory: [u8; PREFIX_BYTES + MAX_HEADER_BYTES],
    bytes: usize,
}

impl Part {
    /// Returns the bytes of prefix and headers.
    pub fn bytes(&self) -> &[u8] {
        &self.memory[..self.bytes]
    }
}

/// Returns prefix and headers of the segments in `due`, made from those of the whole super-packet
/// (RFC 791, RFC 9293) as the kernel's own segmentation makes them (`tcp_gso_segment`).
pub fn part(whole: &[u8], slot: &Slot, cut: &Cut, due: &Due) -> Part {
    let header_bytes = cut.header_bytes as usize;
    let bytes = PREFIX_BYTES + header_bytes;
    let mut memory = [0; PREFIX_BYTES + MAX_HEADER_BYTES];
    memory[..bytes].copy_from_slice(&whole[..bytes]);
    let payload_bytes = slot.payload(cut, due.first, due.first + due.segments).len();
    let (prefix, headers) = memory[..bytes].split_at_mut(PREFIX_BYTES);
    if due.segments == 1 {
        prefix[1] = GSO_NONE;
        prefix[2..6].fill(0);
    }
    prefix[0] |= NEEDS_CHECKSUM;

    let transport = usize::from(slot.headers.map_or(0, |headers| headers.transport));
    let total = header_bytes + payload_bytes;
    let tcp_bytes = total - transport;
    let v4 = headers[0] >> 4 == 4;
    if v4 {
        headers[2..4].copy_from_slice(&bytes_u16(total).to_be_bytes());
        let id = u16::from_be_bytes([headers[4], headers[5]]).wrapping_add(due.first);
        headers[4..6].copy_from_slice(&id.to_be_bytes());
        headers[10..12].fill(0);
        let sum = !folded(sum(&headers[..transport]));
        headers[10..12].copy_from_slice(&sum.to_be_bytes());
    } else {
        headers[4..6].copy_from_slice(&bytes_u16(total - 40).to_be_bytes());
    }
    if due.marked {
        mark(headers);
    }

    let addresses = if v4 { 12..20 } else { 8..40 };
    // The checksum field holds the sum of the pseudo-header, and the device adds the rest.
    let pseudo =
        sum(&headers[addresses]) + u32::from(forebay_packets::ip::TCP) + bytes_u32(tcp_bytes);
    let tcp = &mut headers[transport..];
    let seq = u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]);
    let seq = seq.wrapping_add(u32::from(due.first) * cut.payload_bytes);
    tcp[4..8].copy_from_slice(&seq.to_be_bytes());
    const FIN_AND_PSH: u8 = 0x09;
    const CWR: u8 = 0x80;
    if due.first + due.segments < cut.segments {
        tcp[13] &= !FIN_AND_PSH;
    }
    if due.first > 0 {
        tcp[13] &= !CWR;
    }
    tcp[16..18].copy_from_slice(&folded(pseudo).to_be_bytes());
    Part { memory, bytes }
}

/// Sets CE in IP headers without their payload.
fn mark(headers: &mut [u8]) {
    if headers[0] >> 4 == 6 {
        headers[1] |= 0b11 << 4;
        return;
    }
    // `set_ce` checks the length of a whole packet, so the length field must not promise more.
    let length = [headers[2], headers[3]];
    headers[2..4].fill(0);
    set_ce(headers);
    headers[2..4].copy_from_slice(&length);
}

/// Returns the sum of the 16-bit words of `bytes`, as the Internet checksum uses it (RFC 1071).
fn sum(bytes: &[u8]) -> u32 {
    let words = bytes.chunks_exact(2);
    words
        .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])))
        .sum()
}

#[cfg(test)]
#[allow(
    clippy::cast_possible_truncation,
    reason = "a test's numbers are small"
)]
mod tests {
    use super::*;
    use crate::pool::Pool;
    use forebay_aqm::Ecn;
    use forebay_units::Time;
    use proptest::prelude::*;

    /// Returns a super-packet of TCP with ECT(0) and its prefix, as the kernel hands it over.
    fn super_packet(v6: bool, payload: usize, segment: u16) -> Vec<u8> {
        let ip = if v6 { 40 } else { 20 };
        let mut memory = vec![0; PREFIX_BYTES + ip + 32 + payload];
        memory[0] = NEEDS_CHECKSUM;
        memory[1] = if v6 { GSO_TCP_V6 } else { GSO_TCP_V4 };
        memory[2..4].copy_from_slice(&((ip + 32) as u16).to_ne_bytes());
        memory[4..6].copy_from_slice(&segment.to_ne_bytes());
        memory[6..8].copy_from_slice(&(ip as u16).to_ne_bytes());
        memory[8..10].copy_from_slice(&16u16.to_ne_bytes());
        let packet = &mut memory[PREFIX_BYTES..];
        let total = packet.len();
        if v6 {
            packet[0] = 0x60;
            packet[1] = 0b10 << 4;
            packet[4..6].copy_from_slice(&((total - 40) as u16).to_be_bytes());
            packet[6] = 6;
            packet[8..40].copy_from_slice(&[7; 32]);
        } else {
            packet[0] = 0x45;
            packet[1] = 0b10;
            packet[2..4].copy_from_slice(&(total as u16).to_be_bytes());
            packet[4..6].copy_from_slice(&65_530u16.to_be_bytes());
            packet[9] = 6;
            packet[12..20].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
            let check = !folded(sum(&packet[..20]));
            packet[10..12].copy_from_slice(&check.to_be_bytes());
        }
        let tcp = &mut packet[ip..];
        tcp[4..8].copy_from_slice(&0xffff_f000u32.to_be_bytes());
        tcp[12] = 8 << 4;
        tcp[13] = 0x19; // ACK, PSH, FIN
        for (i, byte) in tcp[32..].iter_mut().enumerate() {
            *byte = (i % 251) as u8;
        }
        memory
    }

    /// Divides a super-packet at `ends` and returns each part as a packet.
    fn parts(memory: &[u8], ends: &[u16], marked: impl Fn(u16) -> bool) -> Vec<Vec<u8>> {
        let mut pool = Pool::new(1, 70_000);
        let slot = pool.take().unwrap();
        pool.memory(slot)[..memory.len()].copy_from_slice(memory);
        let bytes = memory.len() - PREFIX_BYTES;
        let cut = cut(pool.memory(slot), bytes).unwrap();
        pool.fill(slot, bytes as u32, Some(cut));
        let mut first = 0;
        let mut out = Vec::new();
        for &end in ends {
            let due = Due {
                at: Time::ZERO,
                slot,
                first,
                segments: end - first,
                marked: marked(first),
                link_bits: 0,
                after_idle: false,
            };
            let head = part(pool.with_prefix(slot), pool.slot(slot), &cut, &due);
            let payload = pool.slot(slot).payload(&cut, first, end);
            let mut packet = head.bytes()[PREFIX_BYTES..].to_vec();
            packet.extend(&pool.packet(slot)[payload]);
            out.push(packet);
            first = end;
        }
        out
    }

    proptest! {
        /// The parts are valid packets, carry every byte once and in order, and only the marked
        /// parts
            /// have CE.
        #[test]
        fn the_parts_of_a_super_packet_carry_all_of_it(v6: bool, payload in 3000usize..60_000, segment in 500u16..1449, cuts in proptest::collection::vec(any::<u16>(), 0..6)) {
            let memory = super_packet(v6, payload, segment);
            let segments = payload.div_ceil(usize::from(segment)) as u16;
            let mut ends: Vec<u16> = cuts.iter().map(|cut| 1 + cut % segments).chain([segments]).collect();
            ends.sort_unstable();
            ends.dedup();
            let out = parts(&memory, &ends, |first| first % 2 == 1);
            let whole = Headers::read(&memory[PREFIX_BYTES..]).unwrap();
            let (mut seq, mut first, mut carried) = (whole.tcp.unwrap().seq, 0, Vec::new());
            for (packet, end) in out.iter().zip(&ends) {
                let headers = Headers::read(packet).unwrap();
                let tcp = headers.tcp.unwrap();
                prop_assert_eq!(headers.bytes as usize, packet.len());
                prop_assert_eq!(headers.flow, whole.flow);
                prop_assert_eq!(headers.class.ecn(), if first % 2 == 1 { Ecn::Ce } else { Ecn::Ect0 });
                prop_assert_eq!(tcp.seq, seq);
                let ip = usize::from(headers.transport);
                if !v6 {
                    prop_assert_eq!(folded(sum(&packet[..ip])), 0xffff);
                    let id = u16::from_be_bytes([packet[4], packet[5]]);
                    prop_assert_eq!(id, 65_530u16.wrapping_add(first));
                }
                let addresses = if v6 { &packet[8..40] } else { &packet[12..20] };
                let pseudo = folded(sum(addresses) + 6 + (packet.len() - ip) as u32);
                prop_assert_eq!(u16::from_be_bytes([packet[ip + 16], packet[ip + 17]]), pseudo);
                let is_last = *end == segments;
                prop_assert_eq!(packet[ip + 13] & 0x09 != 0, is_last);
                let data = &packet[ip + usize::from(tcp.header_bytes)..];
                carried.extend_from_slice(data);
                seq = seq.wrapping_add(data.len() as u32);
                first = *end;
            }
            let at = PREFIX_BYTES + usize::from(whole.transport) + 32;
            prop_assert_eq!(&carried, &memory[at..]);
        }

        #[test]
        fn any_bytes_are_divided_without_a_panic(mut memory in proptest::collection::vec(any::<u8>(), PREFIX_BYTES..300), v6: bool) {
            memory[1] = if v6 { GSO_TCP_V6 } else { GSO_TCP_V4 };
            let bytes = memory.len() - PREFIX_BYTES;
            if let Some(cut) = cut(&memory, bytes) {
                prop_assert!(cut.header_bytes as usize <= bytes);
            }
        }
    }
}
