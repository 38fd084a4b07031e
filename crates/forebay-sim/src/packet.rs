//! Packets: small plain values.

use forebay_aqm::{Ack, Ecn, TrafficClass};

use crate::ids::{FlowId, StationId};

/// Bytes of a SYN or an ACK on the wire: the IP and TCP headers.
pub const HEADER_BYTES: u16 = 40;

/// No SACK blocks with this ACK.
pub const NO_BLOCKS: u32 = 0x00ff_ffff;

/// A data packet or an ACK. Sequence numbers count packets; 0 is the SYN.
#[derive(Clone, Copy, Debug)]
pub struct Packet {
    pub flow: FlowId,
    /// Of data: its number. Of an ACK: the number expected next. Of packets that came once, with
    /// [`Flags::hosts`]: the numbers of source and destination in 16 bits each. Of the caller's, with
    /// [`Flags::external`]: the number that the caller has for it.
    pub seq: u32,
    pub blocks_and_host: BlocksAndHost,
    pub bytes: u16,
    /// Which connection of the flow it belongs to; packets of an earlier one are stale.
    pub connection: u16,
    pub traffic_class: TrafficClass,
    pub flags: Flags,
    /// The station that it reaches next.
    pub station: StationId,
    /// Of data, the number of its traffic where [`traffic_number`] has one.
    pub traffic: u8,
}

/// Where an ACK's SACK blocks are kept, and the host at either end: a byte more would be four.
#[derive(Clone, Copy, Debug)]
pub struct BlocksAndHost(u32);

impl BlocksAndHost {
    /// blocks: below [`NO_BLOCKS`], or that. host: from 1 on; 0 where its flow has hosts of its own.
    #[inline]
    pub fn new(blocks: u32, host: u8) -> BlocksAndHost {
        BlocksAndHost(blocks | u32::from(host) << 24)
    }

    #[inline]
    pub fn with_blocks(self, blocks: u32) -> BlocksAndHost {
        BlocksAndHost(blocks | self.0 & !NO_BLOCKS)
    }

    #[inline]
    pub fn blocks(self) -> u32 {
        self.0 & NO_BLOCKS
    }

    #[inline]
    pub fn host(self) -> u8 {
        self.0.to_be_bytes()[0]
    }
}

/// Of packets that are counted for no traffic.
pub const NO_TRAFFIC: u8 = u8::MAX;

/// A traffic's number on packets.
#[inline]
pub fn traffic_number(traffic: u32) -> u8 {
    u8::try_from(traffic).unwrap_or(NO_TRAFFIC)
}

/// What a packet's headers say besides numbers, in the bits of a byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(u8);

impl Flags {
    const UDP: u8 = 1;
    const ECN_SIGNAL: u8 = 2;
    const HOSTS: u8 = 4;
    const ACK: u8 = 8;
    const PUSH: u8 = 16;
    const EXTERNAL: u8 = 32;
    const FROM_SINK: u8 = 64;
    const BARE: u8 = 128;

    /// Of a source without congestion control.
    pub const fn of_udp() -> Flags {
        Flags(Flags::UDP)
    }

    /// ECN between the ends (RFC 3168 section 6.1): on an ACK the echo of a mark (ECE), on data
    /// that the congestion window was reduced (CWR).
    pub const fn of_tcp(ecn_signal: bool) -> Flags {
        Flags(if ecn_signal { Flags::ECN_SIGNAL } else { 0 })
    }

    /// Of an ACK.
    pub const fn of_ack(ecn_signal: bool) -> Flags {
        Flags(Flags::of_tcp(ecn_signal).0 | Flags::ACK)
    }

    /// Of the last packet of what an application has written (PSH; RFC 9293 section 3.9.1.2).
    #[inline]
    pub const fn with_push(self, push: bool) -> Flags {
        Flags(self.0 | if push { Flags::PUSH } else { 0 })
    }

    #[inline]
    pub const fn push(self) -> bool {
        self.0 & Flags::PUSH != 0
    }

    /// Of an ACK without data that a sender of data sends; [`Packet::seq`] is that of the data to come.
    #[inline]
    pub const fn with_bare(self, bare: bool) -> Flags {
        Flags(self.0 | if bare { Flags::BARE } else { 0 })
    }

    #[inline]
    pub const fn bare(self) -> bool {
        self.0 & Flags::BARE != 0
    }

    /// Of a packet whose hosts are known: [`Packet::seq`] holds their numbers.
    pub const fn with_hosts(self) -> Flags {
        Flags(self.0 | Flags::HOSTS)
    }

    #[inline]
    pub const fn hosts(self) -> bool {
        self.0 & Flags::HOSTS != 0
    }

    /// Of the caller's, from either end of its flow.
    pub const fn of_external(from_sink: bool) -> Flags {
        Flags(Flags::UDP | Flags::EXTERNAL | if from_sink { Flags::FROM_SINK } else { 0 })
    }

    #[inline]
    pub const fn external(self) -> bool {
        self.0 & Flags::EXTERNAL != 0
    }

    #[inline]
    pub const fn from_sink(self) -> bool {
        self.0 & Flags::FROM_SINK != 0
    }

    #[inline]
    pub const fn udp(self) -> bool {
        self.0 & Flags::UDP != 0
    }

    #[inline]
    pub const fn ecn_signal(self) -> bool {
        self.0 & Flags::ECN_SIGNAL != 0
    }
}

impl forebay_aqm::Packet for Packet {
    fn bytes(&self) -> u32 {
        u32::from(self.bytes)
    }
    fn flow(&self) -> u64 {
        u64::from(self.flow.number())
    }
    fn ecn(&self) -> Ecn {
        self.traffic_class.ecn()
    }
    fn dscp(&self) -> u8 {
        self.traffic_class.dscp()
    }
    fn hosts(&self) -> (u64, u64) {
        // Flows, addresses of a capture and names of a scenario are numbered each by themselves.
        const CAPTURED: u64 = 1 << 32;
        const NAMED: u64 = 2 << 32;
        if self.flags.hosts() {
            let number = |host: u32| CAPTURED | u64::from(host);
            return (number(self.seq >> 16), number(self.seq & 0xffff));
        }
        let host = match self.blocks_and_host.host() {
            0 => self.flow(),
            host => NAMED | u64::from(host),
        };
        (host, host)
    }
    fn traffic(&self) -> Option<u8> {
        (self.traffic != NO_TRAFFIC).then_some(self.traffic)
    }
    fn tcp(&self) -> bool {
        !self.flags.udp()
    }
    fn ack(&self) -> Option<Ack> {
        let bare = self.blocks_and_host.blocks() == NO_BLOCKS;
        (self.flags.0 & Flags::ACK != 0).then_some(Ack {
            number: self.seq,
            bare,
            // Or counts of marks, which say as much.
            sacks: !bare,
            ecn: u8::from(self.flags.ecn_signal()),
        })
    }
    fn clear_dscp(&mut self) {
        self.traffic_class = TrafficClass::new(0, self.ecn());
    }
    fn set_ce(&mut self) {
        self.traffic_class.set_ecn(Ecn::Ce);
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn packets_stay_small() {
        assert_eq!(std::mem::size_of::<super::Packet>(), 20);
    }
}
