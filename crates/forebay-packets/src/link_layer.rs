//! What stands before the IP header in a capture.

use pcap_file::DataLink;

/// Types of Ethernet frames (IEEE 802).
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
/// VLAN tags: customer, provider.
const TAGS: [u16; 2] = [0x8100, 0x88a8];
/// A session of PPPoE (RFC 2516), and the numbers of IP in PPP.
const PPPOE: u16 = 0x8864;
const PPP_IPV4: u16 = 0x0021;
const PPP_IPV6: u16 = 0x0057;

/// Link types that the crate for captures has no name for.
const LINUX_SLL2: u32 = 276;

/// A link type that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkLayer {
    Ethernet,
    /// IP without a header before it.
    Raw,
    /// Linux's "any" device, and its second version.
    LinuxCooked,
    LinuxCooked2,
    /// Four bytes of an address family (BSD's loopback).
    Loopback,
}

/// The link types that are read, in words.
pub const READ: &str = "Ethernet, raw IP, Linux cooked or loopback";

impl LinkLayer {
    pub fn of(link: DataLink) -> Option<LinkLayer> {
        match link {
            DataLink::ETHERNET => Some(LinkLayer::Ethernet),
            DataLink::RAW | DataLink::IPV4 | DataLink::IPV6 => Some(LinkLayer::Raw),
            DataLink::LINUX_SLL => Some(LinkLayer::LinuxCooked),
            DataLink::NULL | DataLink::LOOP => Some(LinkLayer::Loopback),
            _ if u32::from(link) == LINUX_SLL2 => Some(LinkLayer::LinuxCooked2),
            _ => None,
        }
    }

    /// Where the IP header begins in `frame`; `None` where there is none.
    pub fn ip_at(self, frame: &[u8]) -> Option<usize> {
        match self {
            LinkLayer::Raw => Some(0),
            LinkLayer::Loopback => Some(4),
            LinkLayer::Ethernet => above(frame, 12, 14),
            LinkLayer::LinuxCooked => above(frame, 14, 16),
            LinkLayer::LinuxCooked2 => above(frame, 0, 20),
        }
    }
}

/// Goes from the Ethernet type at `at`, whose payload begins at `next`, up to IP.
fn above(frame: &[u8], mut at: usize, mut next: usize) -> Option<usize> {
    loop {
        match word(frame, at)? {
            IPV4 | IPV6 => return Some(next),
            tag if TAGS.contains(&tag) => (at, next) = (next + 2, next + 4),
            PPPOE => {
                let ip = matches!(word(frame, next + 6)?, PPP_IPV4 | PPP_IPV6);
                return ip.then_some(next + 8);
            }
            _ => return None,
        }
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ethernet(types: &[u8]) -> Vec<u8> {
        [&[0; 12], types, &[0x45]].concat()
    }

    #[test]
    fn ip_is_found_behind_tags_and_sessions() {
        let at = |types: &[u8]| LinkLayer::Ethernet.ip_at(&ethernet(types));
        assert_eq!(at(&[8, 0]), Some(14));
        assert_eq!(at(&[0x86, 0xdd]), Some(14));
        assert_eq!(at(&[0x81, 0, 0, 5, 8, 0]), Some(18));
        assert_eq!(at(&[0x88, 0xa8, 0, 1, 0x81, 0, 0, 5, 8, 0]), Some(22));
        assert_eq!(at(&[0x88, 0x64, 0x11, 0, 0, 1, 0, 9, 0, 0x21]), Some(22));
        // ARP, and a frame that ends too soon.
        assert_eq!(at(&[8, 6]), None);
        assert_eq!(LinkLayer::Ethernet.ip_at(&[0; 13]), None);
    }

    #[test]
    fn cooked_frames_tell_their_type_elsewhere() {
        let mut frame = vec![0; 30];
        frame[14..16].copy_from_slice(&[8, 0]);
        assert_eq!(LinkLayer::LinuxCooked.ip_at(&frame), Some(16));
        frame[0..2].copy_from_slice(&[0x86, 0xdd]);
        assert_eq!(LinkLayer::LinuxCooked2.ip_at(&frame), Some(20));
    }
}
