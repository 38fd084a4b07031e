//! The receive window of Linux's receivers (`tcp_rcvbuf_grow`, `__tcp_select_window`), computed at
//! the sender from ACKs. It stops a flow that waits for one lost packet from running far ahead of
//! it.

use crate::tcp::connection::Config;

/// Initial size of a receiver's buffer (`tcp_rmem`).
const BUFFER_BYTES: u32 = 131_072;
/// Memory of a packet in the buffer in addition to its data. With 1434 bytes of data the receiver
/// of a guest offers 55 packets.
const OVERHEAD_BYTES: u32 = 930;
/// Number of packets per round trip for which the initial buffer is sized (`TCP_INIT_CWND`).
const FIRST_ROUND_PKTS: u32 = 10;

/// The receive window that the receiver offers.
#[derive(Clone, Debug)]
pub struct ReceiveWindow {
    /// Number of packets that fit into the buffer.
    buffer_pkts: u32,
    /// Largest number of packets to which the buffer may grow.
    most_pkts: u32,
    /// Largest number of packets in a round trip so far (`rcvq_space.space`).
    round_pkts: u32,
    /// The first packet of this round trip.
    round_start: u32,
    /// New packets may be sent below this number. It never decreases, because an offer is not
    /// withdrawn.
    end: u32,
}

impl ReceiveWindow {
    /// Creates the window of a new connection. A receiver that is not Linux's offers its whole
    /// window from the start.
    pub fn new(config: &Config) -> ReceiveWindow {
        let linux = config.acks.quick > 0;
        let first_pkts = BUFFER_BYTES / (u32::from(config.payload_bytes) + OVERHEAD_BYTES);
        let buffer_pkts = match linux {
            true => first_pkts.min(config.window_pkts),
            false => config.window_pkts,
        };
        ReceiveWindow {
            buffer_pkts,
            most_pkts: config.window_pkts,
            round_pkts: FIRST_ROUND_PKTS,
            round_start: 1,
            end: buffer_pkts,
        }
    }

    /// Returns the number below which new packets may be sent.
    #[inline(always)]
    pub fn end(&self) -> u32 {
        self.end
    }

    /// Updates the window when all packets below `una` have arrived, and none out of order.
    #[inline(always)]
    pub fn offer(&mut self, una: u32) {
        self.end = una.saturating_add(self.buffer_pkts);
    }

    /// Updates the window when `held_pkts` packets have arrived out of order, the last one just
    /// below `held_end`. The buffer grows for them (`tcp_data_queue_ofo`), but they also occupy it.
    pub fn offer_behind(&mut self, una: u32, held_pkts: u32, held_end: u32) {
        let span = held_end.saturating_sub(una);
        self.grow_to(self.round_pkts.saturating_mul(2).saturating_add(span));
        let room = self.buffer_pkts.saturating_sub(held_pkts);
        self.end = self.end.max(una.saturating_add(room));
    }

    /// Grows the buffer at the end of a round trip, to twice the packets that arrived in it, and
    /// further while their number increases (`tcp_rcv_space_adjust`).
    pub fn end_round(&mut self, una: u32) {
        let came = una.saturating_sub(self.round_start);
        self.round_start = una;
        if came <= self.round_pkts {
            return;
        }
        let (came_u64, before) = (u64::from(came), u64::from(self.round_pkts));
        let grows = 4 * came_u64 * (came_u64 - before) / before;
        self.round_pkts = came;
        self.grow_to(u32::try_from(2 * came_u64 + grows).unwrap_or(u32::MAX));
    }

    /// Grows the buffer to this many packets, within its limit.
    fn grow_to(&mut self, pkts: u32) {
        self.buffer_pkts = self.buffer_pkts.max(pkts.min(self.most_pkts));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::receiver::AckPolicy;
    use crate::tcp::testing;

    fn window(quick: u8) -> ReceiveWindow {
        let config = testing::config();
        ReceiveWindow::new(&Config {
            payload_bytes: 1434,
            acks: AckPolicy {
                quick,
                ..config.acks
            },
            ..config
        })
    }

    #[test]
    fn what_is_held_takes_room_but_what_was_offered_stays() {
        let mut window = window(16);
        // As in the trace of a guest: packet 11 is lost, and packet 65 is the last one sent before
        // the retransmission arrives.
        window.offer(11);
        assert_eq!(window.end(), 66);
        for held in 1..40 {
            window.offer_behind(11, held, 12 + held);
            assert_eq!(window.end(), 66, "{held}");
        }
        // Once the hole is filled, there is room again.
        window.offer(51);
        assert!(window.end() >= 51 + 55);
    }

    #[test]
    fn the_buffer_is_ahead_of_a_window_that_doubles() {
        let mut window = window(16);
        let (mut una, mut cwnd) = (1, 10);
        for _ in 0..6 {
            una += cwnd;
            cwnd *= 2;
            window.end_round(una);
            window.offer(una);
            assert!(window.end() >= una + cwnd, "{cwnd}");
        }
        // The buffer grows to the window of the scenario.
        assert_eq!(window.buffer_pkts, testing::config().window_pkts);
    }

    #[test]
    fn other_receivers_have_all_room_from_the_start() {
        let mut window = window(0);
        window.offer(1);
        assert_eq!(window.end(), 1 + testing::config().window_pkts);
    }
}
