//! The access link of a sender, during one step of the sender.

use forebay_aqm::TrafficClass;
use forebay_units::Time;

use crate::events::EventQueue;
use crate::network::Pair;
use crate::packet::{Flags, PackedPacket, Packet, HEADER_BYTES};
use crate::tcp::TcpSegment;

/// Takes the segments of a sender's step onto the access link, and schedules their arrival at the
/// first station.
pub struct Uplink<'a> {
    /// The time of the step.
    now: Time,
    /// A data packet of the flow, with number 0.
    usual: PackedPacket,
    pair: &'a mut Pair,
    arrivals: &'a mut EventQueue<PackedPacket>,
    /// The delay line of packets that wait for the access link, and that of packets that do not.
    late_line: usize,
    prompt_line: usize,
    /// Number of segments sent.
    sent: u32,
}

impl<'a> Uplink<'a> {
    /// Creates the link of `pair` for a step at `now`. `usual` is a data packet of the flow.
    #[inline(always)]
    pub fn new(
        now: Time,
        usual: PackedPacket,
        pair: &'a mut Pair,
        arrivals: &'a mut EventQueue<PackedPacket>,
        [late_line, prompt_line]: [usize; 2],
    ) -> Uplink<'a> {
        Uplink {
            now,
            usual,
            pair,
            arrivals,
            late_line,
            prompt_line,
            sent: 0,
        }
    }

    /// Returns the number of segments sent.
    #[inline(always)]
    pub fn sent(&self) -> u32 {
        self.sent
    }

    /// Sends a segment of the connection with this number.
    #[inline(always)]
    pub fn send(&mut self, connection: u16, segment: &TcpSegment) {
        let usual = self.usual.unpack();
        // The SYN and the ACK that ends the handshake consist of a header only.
        let syn = segment.seq == 0;
        let bytes = match syn || segment.bare {
            true => HEADER_BYTES,
            false => usual.bytes,
        };
        let packet = Packet {
            seq: segment.seq,
            bytes,
            connection,
            traffic_class: TrafficClass::new(usual.traffic_class.dscp(), segment.ecn),
            flags: Flags::of_tcp(segment.cwr)
                .with_push(segment.push)
                .with_bare(segment.bare),
            ..usual
        };
        // A packet whose access link becomes free at this very time counts as one that waited, as
        // in ns-2.
        let waited = self.pair.data_up >= self.now || syn;
        let at = (self.pair.wire).pass(&mut self.pair.data_up, self.now, bytes);
        // A packet that waits for its access link goes to the late line; on the prompt line it
        // would delay other packets.
        let line = if waited { self.late_line } else { self.prompt_line };
        self.arrivals.push_on(line, at, packet.pack());
        self.sent += 1;
    }
}

#[cfg(test)]
pub mod testing {
    use forebay_aqm::Ecn;
    use forebay_units::{Rate, Span};

    use super::*;
    use crate::events::LineCounts;
    use crate::ids::{FlowId, StationId};
    use crate::line::Wire;
    use crate::packet::{BlocksAndHost, NO_BLOCKS};

    /// An access link that keeps the segments of a sender under test.
    pub struct TestLink {
        pair: Pair,
        arrivals: EventQueue<PackedPacket>,
    }

    impl TestLink {
        /// Creates an idle link.
        pub fn new() -> TestLink {
            TestLink {
                pair: Pair {
                    wire: Wire::new(Rate::from_bps(1_000_000_000), Span::ZERO),
                    data_up: Time::ZERO,
                    data_down: Time::ZERO,
                    ack_up: Time::ZERO,
                    ack_down: Time::ZERO,
                    class: 0,
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

        /// Returns the link for a step at `now`.
        pub fn at(&mut self, now: Time) -> Uplink<'_> {
            let usual = Packet {
                flow: FlowId::default(),
                seq: 0,
                blocks_and_host: BlocksAndHost::new(NO_BLOCKS, 0),
                bytes: 1500,
                connection: 0,
                traffic_class: TrafficClass::new(0, Ecn::NotEct),
                flags: Flags::default(),
                station: StationId::default(),
                traffic: 0,
            };
            let (pair, arrivals) = (&mut self.pair, &mut self.arrivals);
            Uplink::new(now, usual.pack(), pair, arrivals, [0, 0])
        }

        /// Returns the segments that were sent since the last call.
        pub fn take(&mut self) -> Vec<TcpSegment> {
            let mut segments = Vec::new();
            self.arrivals.take_before(Time::NEVER, |_, packet, _| {
                let packet = packet.unpack();
                segments.push(TcpSegment {
                    push: packet.flags.push(),
                    bare: packet.flags.bare(),
                    seq: packet.seq,
                    cwr: packet.flags.ecn_signal(),
                    ecn: packet.traffic_class.ecn(),
                });
                Time::NEVER
            });
            segments
        }
    }
}
