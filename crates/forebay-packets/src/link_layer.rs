//! Headers before the IP header in the frames of a capture.

/// EtherTypes of IP.
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
/// EtherTypes of VLAN tags: those of 802.1Q and 802.1ad, and those that providers used before.
const TAGS: [u16; 5] = [0x8100, 0x88a8, 0x9100, 0x9200, 0x9300];
/// EtherTypes of MPLS labels: unicast and multicast (RFC 5332).
const MPLS: [u16; 2] = [0x8847, 0x8848];
/// The smallest EtherType. Smaller values are lengths of frames with an LLC header (IEEE 802.2).
const LEAST_TYPE: u16 = 0x0600;
/// The LLC header of SNAP (RFC 1042), in which the organisations 0 and 0xf8 (bridge tunnel) are
/// followed by an EtherType.
const SNAP: [u8; 3] = [0xaa, 0xaa, 0x03];
const ETHERNET_TYPES: [[u8; 3]; 2] = [[0, 0, 0], [0, 0, 0xf8]];
/// The EtherType of a PPPoE session (RFC 2516), and the PPP protocol numbers of IP.
const PPPOE: u16 = 0x8864;
const PPP_IPV4: u16 = 0x0021;
const PPP_IPV6: u16 = 0x0057;

/// The header before IP, by the link type of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkLayer {
    Ethernet,
    /// Raw IP, without a header before it.
    Raw,
    /// Frames of Linux's device "any" (LINUX_SLL).
    LinuxCooked,
    /// The second version of these frames (LINUX_SLL2).
    LinuxCooked2,
    /// The address family in four bytes (BSD's loopback).
    Loopback,
    /// PPP, with or without the address and control bytes of HDLC.
    Ppp,
    /// PPPoE without an Ethernet header.
    Pppoe,
    /// Cisco's HDLC: an address, a control byte, and an EtherType.
    CiscoHdlc,
}

/// The link types that are read, for error messages.
pub const READ: &str =
    "one of Ethernet, raw IP, Linux cooked (as of tcpdump -i any), loopback, PPP, PPPoE, Cisco HDLC";

impl LinkLayer {
    /// Returns the header for the low 16 bits of a link type (tcpdump.org/linktypes.html).
    ///
    /// 12 and 14 are the system's own numbers of raw IP (DLT_RAW), on most systems and on OpenBSD,
    /// which some files have instead of 101.
    pub fn of(link_type: u32) -> Option<LinkLayer> {
        match link_type & 0xffff {
            1 => Some(LinkLayer::Ethernet),
            12 | 14 | 101 | 228 | 229 => Some(LinkLayer::Raw),
            113 => Some(LinkLayer::LinuxCooked),
            276 => Some(LinkLayer::LinuxCooked2),
            0 | 108 => Some(LinkLayer::Loopback),
            9 | 50 => Some(LinkLayer::Ppp),
            51 => Some(LinkLayer::Pppoe),
            104 => Some(LinkLayer::CiscoHdlc),
            _ => None,
        }
    }

    /// Returns the offset of the IP header in `frame`; `None` where there is none.
    pub fn ip_at(self, frame: &[u8]) -> Option<usize> {
        match self {
            LinkLayer::Raw => Some(0),
            LinkLayer::Loopback => Some(4),
            LinkLayer::Ethernet => above(frame, 12, 14),
            LinkLayer::LinuxCooked => above(frame, 14, 16),
            LinkLayer::LinuxCooked2 => above(frame, 0, 20),
            LinkLayer::Ppp if frame.starts_with(&[0xff, 0x03]) => above_ppp(frame, 2),
            LinkLayer::Ppp => above_ppp(frame, 0),
            LinkLayer::Pppoe => above_ppp(frame, 6),
            LinkLayer::CiscoHdlc => above(frame, 2, 4),
        }
    }
}

/// Returns the offset of the IP header after the EtherType at `at`, whose payload begins at `next`.
fn above(frame: &[u8], mut at: usize, mut next: usize) -> Option<usize> {
    loop {
        match word(frame, at)? {
            IPV4 | IPV6 => return Some(next),
            tag if TAGS.contains(&tag) => (at, next) = (next + 2, next + 4),
            label if MPLS.contains(&label) => return above_mpls(frame, next),
            PPPOE => return above_ppp(frame, next + 6),
            length if length < LEAST_TYPE => {
                let header = frame.get(next..next + 6)?;
                if header[..3] != SNAP || !ETHERNET_TYPES.iter().any(|oui| header[3..] == *oui) {
                    return None;
                }
                (at, next) = (next + 6, next + 8);
            }
            _ => return None,
        }
    }
}

/// Returns the offset of the IP header after the MPLS label at `at`. The last label does not name
/// the protocol, so IP is recognised by its version (RFC 4928).
fn above_mpls(frame: &[u8], mut at: usize) -> Option<usize> {
    loop {
        let label = frame.get(at..at + 4)?;
        at += 4;
        if label[2] & 1 == 1 {
            let version = frame.get(at)? >> 4;
            return matches!(version, 4 | 6).then_some(at);
        }
    }
}

/// Returns the offset of the IP header after the PPP protocol number at `at`.
fn above_ppp(frame: &[u8], at: usize) -> Option<usize> {
    matches!(word(frame, at)?, PPP_IPV4 | PPP_IPV6).then_some(at + 2)
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
    fn ip_is_found_after_tags_labels_and_sessions() {
        let at = |types: &[u8]| LinkLayer::Ethernet.ip_at(&ethernet(types));
        assert_eq!(at(&[8, 0]), Some(14));
        assert_eq!(at(&[0x86, 0xdd]), Some(14));
        assert_eq!(at(&[0x81, 0, 0, 5, 8, 0]), Some(18));
        assert_eq!(at(&[0x88, 0xa8, 0, 1, 0x81, 0, 0, 5, 8, 0]), Some(22));
        assert_eq!(at(&[0x88, 0x64, 0x11, 0, 0, 1, 0, 9, 0, 0x21]), Some(22));
        // Tags of providers, of which some have types of their own.
        assert_eq!(at(&[0x91, 0, 0, 1, 0x81, 0, 0, 5, 8, 0]), Some(22));
        assert_eq!(at(&[0x92, 0, 0, 1, 0x93, 0, 0, 5, 0x86, 0xdd]), Some(22));
        // One label of MPLS, and three; what follows is no IP in a pseudowire.
        assert_eq!(at(&[0x88, 0x47, 0, 6, 0x41, 64]), Some(18));
        let three = [0x88, 0x48, 0, 1, 0, 64, 0, 2, 0, 64, 0, 3, 1, 64];
        assert_eq!(at(&three), Some(26));
        assert_eq!(at(&[0x88, 0x47, 0, 6, 0x41, 64, 0, 0, 0, 0]), None);
        assert_eq!(at(&[0x88, 0x47, 0, 6, 0x40, 64]), None);
        // A length, then LLC and SNAP; also behind a tag.
        assert_eq!(at(&[0, 60, 0xaa, 0xaa, 3, 0, 0, 0, 8, 0]), Some(22));
        let tagged = [0x81, 0, 0, 5, 0, 60, 0xaa, 0xaa, 3, 0, 0, 0xf8, 8, 0];
        assert_eq!(at(&tagged), Some(26));
        // Spanning trees, and an organisation of its own.
        assert_eq!(at(&[0, 60, 0x42, 0x42, 3, 0, 0, 0, 8, 0]), None);
        assert_eq!(at(&[0, 60, 0xaa, 0xaa, 3, 0, 0, 0xc, 8, 0]), None);
        // ARP, and a frame that ends too soon.
        assert_eq!(at(&[8, 6]), None);
        assert_eq!(LinkLayer::Ethernet.ip_at(&[0; 13]), None);
    }

    #[test]
    fn cooked_frames_have_their_type_elsewhere() {
        let mut frame = vec![0; 30];
        frame[14..16].copy_from_slice(&[8, 0]);
        assert_eq!(LinkLayer::LinuxCooked.ip_at(&frame), Some(16));
        frame[0..2].copy_from_slice(&[0x86, 0xdd]);
        assert_eq!(LinkLayer::LinuxCooked2.ip_at(&frame), Some(20));
    }

    #[test]
    fn ppp_and_hdlc_are_read_without_ethernet() {
        let at = |link_type, frame: &[u8]| LinkLayer::of(link_type).unwrap().ip_at(frame);
        assert_eq!(at(9, &[0, 0x21, 0x45]), Some(2));
        assert_eq!(at(50, &[0xff, 3, 0, 0x57, 0x60]), Some(4));
        assert_eq!(at(51, &[0x11, 0, 0, 1, 0, 9, 0, 0x21, 0x45]), Some(8));
        assert_eq!(at(104, &[0x0f, 0, 8, 0, 0x45]), Some(4));
        // Link control is no IP.
        assert_eq!(at(9, &[0xc0, 0x21, 1]), None);
    }

    #[test]
    fn only_the_low_half_of_a_link_type_counts() {
        for raw in [12, 14, 101, 1 << 26 | 2 << 28 | 101] {
            assert_eq!(LinkLayer::of(raw), Some(LinkLayer::Raw));
        }
        assert_eq!(
            LinkLayer::of(1 << 26 | 2 << 28 | 1),
            Some(LinkLayer::Ethernet)
        );
        assert_eq!(LinkLayer::of(105), None);
    }
}
