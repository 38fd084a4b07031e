//! A packet whose bytes the caller keeps: the queue has the header fields and a handle.

use crate::discipline::Packet;
use crate::law::Ecn;

/// The header fields that a queue needs, and a handle by which the caller finds the packet again.
#[derive(Clone, Copy, Debug)]
pub struct HeldPacket<H> {
    /// The caller's handle, which the queue returns unchanged.
    pub handle: H,
    /// The identifier of the flow: see [`Packet::flow`].
    pub flow: u64,
    /// Identifiers of the source and the destination host: see [`Packet::hosts`].
    pub hosts: (u64, u64),
    /// The size of the packet in bytes.
    pub bytes: u32,
    /// The ECN field.
    pub ecn: Ecn,
    /// The differentiated services code point, 0 to 63.
    pub dscp: u8,
    /// The traffic class under which the packet is recorded at a bottleneck.
    pub traffic: Option<u8>,
    /// True if the packet belongs to TCP.
    pub tcp: bool,
    /// True if this queue has set CE.
    pub marked: bool,
}

impl<H> HeldPacket<H> {
    /// Returns an unmarked packet of a TCP flow with a DSCP of zero. The flow counts as a pair of
    /// hosts of its own.
    pub fn new(handle: H, flow: u64, bytes: u32, ecn: Ecn) -> HeldPacket<H> {
        HeldPacket {
            handle,
            flow,
            hosts: (flow, flow),
            bytes,
            ecn,
            dscp: 0,
            traffic: None,
            tcp: true,
            marked: false,
        }
    }
}

impl<H: Copy> Packet for HeldPacket<H> {
    fn bytes(&self) -> u32 {
        self.bytes
    }
    fn flow(&self) -> u64 {
        self.flow
    }
    fn ecn(&self) -> Ecn {
        self.ecn
    }
    fn dscp(&self) -> u8 {
        self.dscp
    }
    fn hosts(&self) -> (u64, u64) {
        self.hosts
    }
    fn traffic(&self) -> Option<u8> {
        self.traffic
    }
    fn tcp(&self) -> bool {
        self.tcp
    }
    fn clear_dscp(&mut self) {
        self.dscp = 0;
    }
    fn set_ce(&mut self) {
        self.ecn = Ecn::Ce;
        self.marked = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_sees_the_fields_of_the_header() {
        let mut packet = HeldPacket {
            hosts: (3, 4),
            dscp: 46,
            traffic: Some(2),
            tcp: false,
            ..HeldPacket::new("handle", 7, 1500, Ecn::Ect1)
        };
        assert_eq!((packet.flow(), packet.bytes()), (7, 1500));
        assert_eq!((packet.hosts(), packet.traffic()), ((3, 4), Some(2)));
        assert_eq!(
            (packet.dscp(), packet.ecn(), packet.tcp()),
            (46, Ecn::Ect1, false)
        );
        packet.clear_dscp();
        packet.set_ce();
        assert_eq!(
            (packet.dscp(), packet.ecn(), packet.marked),
            (0, Ecn::Ce, true)
        );
        assert_eq!((packet.handle, packet.bytes()), ("handle", 1500));
    }

    #[test]
    fn a_packet_is_unmarked_and_of_a_tcp_flow_with_hosts_of_its_own() {
        let packet = HeldPacket::new((), 7, 40, Ecn::NotEct);
        assert_eq!(
            (packet.hosts(), packet.traffic(), packet.dscp()),
            ((7, 7), None, 0)
        );
        assert!(packet.tcp() && !packet.marked);
    }
}
