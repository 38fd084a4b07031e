//! The access link of a source, onto which a sender puts its segments.

use forebay_aqm::Ecn;
use forebay_units::Time;

use crate::events::EventQueue;
use crate::ids::StationId;
use crate::packet::{Flags, PackedPacket};
use crate::pair::Pair;

/// A packet to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpSegment {
    /// True for the last packet of a write of the application (PSH).
    pub push: bool,
    /// True for an ACK without data; `seq` is then the number of the data to come.
    pub bare: bool,
    /// Number of the packet.
    pub seq: u32,
    /// True if the segment reports that the congestion window was reduced (CWR).
    pub cwr: bool,
    /// The ECN field of the IP header.
    pub ecn: Ecn,
}

/// The access link of a flow's source.
pub struct Uplink<'a> {
    /// A data packet of the flow with number 0.
    pub usual: PackedPacket,
    /// The hosts of the flow.
    pub pair: &'a mut Pair,
    /// The packets on their way to a station.
    pub arrivals: &'a mut EventQueue<PackedPacket, StationId>,
}

impl Uplink<'_> {
    /// Sends a segment of the connection with this number, and schedules its arrival at the first
    /// station.
    #[inline(always)]
    pub fn send(&mut self, now: Time, connection: u16, segment: TcpSegment) {
        // The SYN and the ACK that ends the handshake consist of a header only.
        let syn = segment.seq == 0;
        let usual = match syn || segment.bare {
            true => self.usual.without_data(),
            false => self.usual,
        };
        let flags = Flags::of_tcp(segment.cwr)
            .with_push(segment.push)
            .with_bare(segment.bare);
        let packet = usual.numbered(segment.seq, connection, segment.ecn, flags);
        // A packet whose access link becomes free at this very time counts as one that waited, as
        // in ns-2. It goes to the late line; on the prompt line it would delay other packets.
        let line = match self.pair.data_up >= now || syn {
            true => self.pair.class,
            false => self.pair.prompt_line,
        };
        let bytes = usual.unpack().bytes;
        let at = (self.pair.wire).pass(&mut self.pair.data_up, now, bytes);
        (self.arrivals).push_on(usize::from(line), at, packet, self.pair.data_enters);
    }
}

#[cfg(test)]
pub mod testing {
    use forebay_aqm::TrafficClass;
    use forebay_units::{Rate, Span};

    use super::*;
    use crate::events::LineCounts;
    use crate::ids::FlowId;
    use crate::line::Wire;
    use crate::packet::Packet;

    /// An access link that keeps the segments of a sender under test.
    pub struct TestLink {
        usual: PackedPacket,
        pair: Pair,
        arrivals: EventQueue<PackedPacket, StationId>,
    }

    impl TestLink {
        /// Creates an idle link.
        pub fn new() -> TestLink {
            let usual = Packet {
                flow: FlowId::default(),
                seq: 0,
                host: 0,
                bytes: 1500,
                connection: 0,
                traffic_class: TrafficClass::new(0, Ecn::NotEct),
                flags: Flags::default(),
                traffic: 0,
            };
            TestLink {
                usual: usual.pack(),
                pair: Pair {
                    wire: Wire::new(Rate::from_bps(1_000_000_000), Span::ZERO),
                    data_up: Time::ZERO,
                    data_down: Time::ZERO,
                    ack_up: Time::ZERO,
                    ack_down: Time::ZERO,
                    class: 0,
                    prompt_line: 0,
                    path: 0,
                    data_enters: StationId::default(),
                    ack_enters: StationId::default(),
                },
                arrivals: EventQueue::new(
                    Span::from_micros(10),
                    Span::from_secs(1),
                    LineCounts::default(),
                    false,
                ),
            }
        }

        /// Returns the link for one step of the sender.
        pub fn uplink(&mut self) -> Uplink<'_> {
            Uplink {
                usual: self.usual,
                pair: &mut self.pair,
                arrivals: &mut self.arrivals,
            }
        }

        /// Returns the segments that were sent since the last call.
        pub fn take(&mut self) -> Vec<TcpSegment> {
            let mut sent = Vec::new();
            let end = Time::ZERO + Span::from_secs(100_000);
            let each = |segments: &mut Vec<TcpSegment>, _, packet: &PackedPacket| {
                let packet = packet.unpack();
                segments.push(TcpSegment {
                    push: packet.flags.push(),
                    bare: packet.flags.bare(),
                    seq: packet.seq,
                    cwr: packet.flags.ecn_signal(),
                    ecn: packet.traffic_class.ecn(),
                });
                end
            };
            self.arrivals
                .take_before(end, &mut sent, each, |_, end| end, |_, _| {});
            sent
        }
    }
}
