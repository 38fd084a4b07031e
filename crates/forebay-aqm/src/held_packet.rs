//! A packet that somebody else holds: a queue has what its headers say.

use crate::discipline::Packet;
use crate::law::Ecn;

/// What a queue needs of a packet, and what its holder finds it by.
#[derive(Clone, Copy, Debug)]
pub struct HeldPacket<H> {
    /// Means nothing to the queue; it comes back with the packet.
    pub handle: H,
    /// Tells flows apart.
    pub flow: u64,
    /// Of the hosts it comes from and goes to.
    pub hosts: (u64, u64),
    /// Size of the packet.
    pub bytes: u32,
    /// The ECN field.
    pub ecn: Ecn,
    /// The differentiated services code point, 0 to 63.
    pub dscp: u8,
    /// Its number in the record of the bottleneck.
    pub traffic: Option<u8>,
    /// True if TCP carries it.
    pub tcp: bool,
    /// Whether this queue has set CE.
    pub marked: bool,
}

impl<H> HeldPacket<H> {
    /// Returns a packet of a TCP flow that this queue has not marked, with a DSCP of zero and hosts
    /// of the flow's own.
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
