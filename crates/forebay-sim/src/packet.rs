//! Packets of the simulation: small plain values that are copied from queue to queue.

use forebay_aqm::{Ack, Ecn, TrafficClass};

use crate::ids::FlowId;

/// Size of a SYN or an ACK without data on the wire, in bytes: the IP and TCP headers.
pub const HEADER_BYTES: u16 = 40;

/// A data packet or an ACK. Sequence numbers count packets; 0 is the SYN.
#[derive(Clone, Copy, Debug)]
pub struct Packet {
    /// The flow, or the additional connection of a flow.
    pub flow: FlowId,
    /// The number of a data packet, or the number that an ACK expects next.
    ///
    /// A packet of a recorded capture, with [`Flags::hosts`], has the numbers of its source and
    /// destination here, in 16 bits each. A packet of the caller, with [`Flags::external`], has the
    /// caller's number.
    pub seq: u32,
    /// The number of the named host at both ends, from 1 on; 0 if the flow has its own hosts.
    pub host: u8,
    /// Size on the wire.
    pub bytes: u16,
    /// Number of the flow's connection to which the packet belongs; packets of an earlier
    /// connection are ignored. An ACK with options has it among them.
    pub connection: u16,
    /// DSCP and ECN field.
    pub traffic_class: TrafficClass,
    /// Flags of the headers and of the origin.
    pub flags: Flags,
    /// The traffic of a data packet as [`traffic_number`] returns it; [`NO_TRAFFIC`] for an ACK.
    pub traffic: u8,
}

/// The traffic number of packets that count for no traffic.
pub const NO_TRAFFIC: u8 = u8::MAX;

/// Returns the number that packets of a traffic carry; [`NO_TRAFFIC`] if it does not fit into a
/// byte.
#[inline]
pub fn traffic_number(traffic: u32) -> u8 {
    u8::try_from(traffic).unwrap_or(NO_TRAFFIC)
}

/// The flags of a packet's headers and of its origin, one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(u8);

impl Flags {
    const UDP: u8 = 1;
    const ECN_SIGNAL: u8 = 2;
    const HOSTS: u8 = 4;
    const ACK: u8 = 8;
    const PUSH: u8 = 16;
    /// An ACK has options; data never has both of these flags.
    const OPTIONS: u8 = Flags::ACK | Flags::PUSH;
    const EXTERNAL: u8 = 32;
    const FROM_SINK: u8 = 64;
    const BARE: u8 = 128;

    /// Returns the flags of a packet from a source without congestion control.
    pub const fn of_udp() -> Flags {
        Flags(Flags::UDP)
    }

    /// Returns the flags of a TCP data packet. `ecn_signal` is ECN's signal between the ends (RFC
    /// 3168 section 6.1): on data it says that the congestion window was reduced (CWR), on an ACK
    /// that a mark was received (ECE).
    pub const fn of_tcp(ecn_signal: bool) -> Flags {
        Flags(Flags::ECN_SIGNAL * ecn_signal as u8)
    }

    /// Returns the flags of an ACK; `ecn_signal` is ECE.
    pub const fn of_ack(ecn_signal: bool) -> Flags {
        Flags(Flags::of_tcp(ecn_signal).0 | Flags::ACK)
    }

    /// Returns the flags with PSH if `push`: the packet is the last one of a write of the
    /// application (RFC 9293 section 3.9.1.2).
    #[inline]
    pub const fn with_push(self, push: bool) -> Flags {
        Flags(self.0 | if push { Flags::PUSH } else { 0 })
    }

    /// Returns true if the packet is the last one of a write (PSH).
    #[inline]
    pub const fn push(self) -> bool {
        self.0 & Flags::PUSH != 0
    }

    /// Returns the flags with the bit of a bare ACK if `bare`: a sender of data sends it without
    /// data, and [`Packet::seq`] is the number of the data to come.
    #[inline]
    pub const fn with_bare(self, bare: bool) -> Flags {
        Flags(self.0 | if bare { Flags::BARE } else { 0 })
    }

    /// Returns true for an ACK without data from the sender of data.
    #[inline]
    pub const fn bare(self) -> bool {
        self.0 & Flags::BARE != 0
    }

    /// Returns the flags of a packet of a capture whose hosts are known: [`Packet::seq`] holds
    /// their numbers.
    pub const fn with_hosts(self) -> Flags {
        Flags(self.0 | Flags::HOSTS)
    }

    /// Returns true if [`Packet::seq`] holds the numbers of the hosts.
    #[inline]
    pub const fn hosts(self) -> bool {
        self.0 & Flags::HOSTS != 0
    }

    /// Returns the flags of a packet that the caller sends from the sink or from the source of a
    /// flow.
    pub const fn of_external(from_sink: bool) -> Flags {
        Flags(Flags::UDP | Flags::EXTERNAL | if from_sink { Flags::FROM_SINK } else { 0 })
    }

    /// True for an ACK with options.
    #[inline]
    pub const fn options(self) -> bool {
        self.0 & Flags::OPTIONS == Flags::OPTIONS
    }

    /// True if the caller sent the packet.
    #[inline]
    pub const fn external(self) -> bool {
        self.0 & Flags::EXTERNAL != 0
    }

    /// Returns true if the caller sent the packet from the sink of its flow.
    #[inline]
    pub const fn from_sink(self) -> bool {
        self.0 & Flags::FROM_SINK != 0
    }

    /// Returns true if the packet's source has no congestion control.
    #[inline]
    pub const fn udp(self) -> bool {
        self.0 & Flags::UDP != 0
    }

    /// Returns true for CWR on data and for ECE on an ACK.
    #[inline]
    pub const fn ecn_signal(self) -> bool {
        self.0 & Flags::ECN_SIGNAL != 0
    }
}

/// A packet as queues and delay lines hold it. Its fields share two words, so that a packet is
/// passed in registers, and a move from queue to queue copies words and not eight fields.
#[derive(Clone, Copy)]
pub struct PackedPacket {
    /// The flow in the low 32 bits, and the number of the packet.
    flow_and_seq: u64,
    /// From the low end: size in 16 bits, traffic in 8, connection in 16; host, traffic class and
    /// flags in 8 each. An ACK with options has their index in the bits of traffic and connection.
    headers: u64,
}

/// Position of the index of options in the second word.
const OPTIONS_SHIFT: u32 = 16;
/// Largest index of options.
pub const MOST_OPTIONS: u32 = (1 << 24) - 1;

impl Packet {
    /// Returns the packet as queues hold it.
    #[inline(always)]
    pub fn pack(self) -> PackedPacket {
        PackedPacket {
            flow_and_seq: u64::from(self.flow.number()) | u64::from(self.seq) << 32,
            headers: u64::from(self.bytes)
                | u64::from(self.traffic) << 16
                | u64::from(self.connection) << 24
                | u64::from(self.host) << 40
                | u64::from(self.traffic_class.0) << 48
                | u64::from(self.flags.0) << 56,
        }
    }
}

impl PackedPacket {
    /// Returns the flow, or the additional connection of a flow.
    #[inline(always)]
    pub fn flow(self) -> FlowId {
        FlowId::of_number(low_half(self.flow_and_seq))
    }

    /// Returns the packet with its fields.
    #[inline(always)]
    pub fn unpack(self) -> Packet {
        let [bytes_low, bytes_high, traffic, connection_low, connection_high, host, class, flags] =
            self.headers.to_le_bytes();
        let flags = Flags(flags);
        Packet {
            flow: self.flow(),
            seq: low_half(self.flow_and_seq >> 32),
            host,
            bytes: u16::from_le_bytes([bytes_low, bytes_high]),
            connection: u16::from_le_bytes([connection_low, connection_high]),
            traffic_class: TrafficClass(class),
            flags,
            traffic,
        }
    }

    /// Returns true if the packet has flags or a mark.
    #[inline(always)]
    pub fn has_signs(self) -> bool {
        let flags_and_class = self.headers >> 48;
        flags_and_class > u64::from(u8::MAX) || self.unpack().traffic_class.ecn() == Ecn::Ce
    }

    /// Returns this packet as the one of a flow with number 0.
    #[inline(always)]
    pub fn of_flow(self, flow: FlowId) -> PackedPacket {
        PackedPacket {
            flow_and_seq: u64::from(flow.number()),
            ..self
        }
    }

    /// Returns this packet with the number `seq` of a connection, an ECN field and flags. This
    /// packet is the template of a traffic with TCP, which has none of these.
    #[inline(always)]
    pub fn numbered(self, seq: u32, connection: u16, ecn: Ecn, flags: Flags) -> PackedPacket {
        PackedPacket {
            flow_and_seq: self.flow_and_seq | u64::from(seq) << 32,
            headers: self.headers
                | u64::from(connection) << 24
                | u64::from(ecn as u8) << 48
                | u64::from(flags.0) << 56,
        }
    }

    /// Returns this packet without data: it consists of headers.
    #[inline(always)]
    pub fn without_data(self) -> PackedPacket {
        PackedPacket {
            headers: self.headers & !u64::from(u16::MAX) | u64::from(HEADER_BYTES),
            ..self
        }
    }

    /// Returns this packet as one that counts for no traffic.
    #[inline(always)]
    pub fn without_traffic(self) -> PackedPacket {
        PackedPacket {
            headers: self.headers | u64::from(NO_TRAFFIC) << 16,
            ..self
        }
    }

    /// Returns this ACK with the options at `index`, which is at most [`MOST_OPTIONS`].
    pub fn with_options(self, index: u32) -> PackedPacket {
        debug_assert!(index <= MOST_OPTIONS, "the index of options has 24 bits");
        let rest = self.headers & !(u64::from(MOST_OPTIONS) << OPTIONS_SHIFT);
        let headers = rest | u64::from(index) << OPTIONS_SHIFT | u64::from(Flags::OPTIONS) << 56;
        PackedPacket { headers, ..self }
    }

    /// Returns the index of the options of an ACK that has any.
    pub fn options(self) -> Option<u32> {
        let index = low_half(self.headers >> OPTIONS_SHIFT) & MOST_OPTIONS;
        self.unpack().flags.options().then_some(index)
    }
}

/// Returns the low 32 bits.
#[inline(always)]
fn low_half(word: u64) -> u32 {
    let [a, b, c, d, ..] = word.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

impl forebay_aqm::Packet for PackedPacket {
    fn bytes(&self) -> u32 {
        u32::from(self.unpack().bytes)
    }
    fn flow(&self) -> u64 {
        u64::from(self.unpack().flow.number())
    }
    fn ecn(&self) -> Ecn {
        self.unpack().traffic_class.ecn()
    }
    fn dscp(&self) -> u8 {
        self.unpack().traffic_class.dscp()
    }
    fn hosts(&self) -> (u64, u64) {
        // Flows, addresses of a capture and named hosts of a scenario have separate numberings;
        // these bits keep them apart.
        const CAPTURED: u64 = 1 << 32;
        const NAMED: u64 = 2 << 32;
        let packet = self.unpack();
        if packet.flags.hosts() {
            let number = |host: u32| CAPTURED | u64::from(host);
            return (number(packet.seq >> 16), number(packet.seq & 0xffff));
        }
        let host = match packet.host {
            0 => u64::from(packet.flow.number()),
            host => NAMED | u64::from(host),
        };
        (host, host)
    }
    fn traffic(&self) -> Option<u8> {
        let packet = self.unpack();
        let counts = packet.traffic != NO_TRAFFIC && !packet.flags.options();
        counts.then_some(packet.traffic)
    }
    fn tcp(&self) -> bool {
        !self.unpack().flags.udp()
    }
    fn ack(&self) -> Option<Ack> {
        let packet = self.unpack();
        let bare = !packet.flags.options();
        (packet.flags.0 & Flags::ACK != 0).then_some(Ack {
            number: packet.seq,
            bare,
            // The options may be a count of marks without blocks. Such an ACK carries news as well
            // and must not be thinned out.
            sacks: !bare,
            ecn: u8::from(packet.flags.ecn_signal()),
        })
    }
    fn clear_dscp(&mut self) {
        let packet = self.unpack();
        let traffic_class = TrafficClass::new(0, packet.traffic_class.ecn());
        *self = Packet {
            traffic_class,
            ..packet
        }
        .pack();
    }
    fn set_ce(&mut self) {
        let mut packet = self.unpack();
        packet.traffic_class.set_ecn(Ecn::Ce);
        *self = packet.pack();
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn packets_stay_small() {
        assert_eq!(std::mem::size_of::<super::PackedPacket>(), 16);
    }
}
