//! The window that Linux's receivers offer (`tcp_rcvbuf_grow`, `__tcp_select_window`), as far as ACKs tell a
//! sender of it. A flow that waits for one lost packet cannot run ahead of it for long.

use crate::tcp::connection::Config;

/// A receiver's buffer at first (`tcp_rmem`).
const BUFFER_BYTES: u32 = 131_072;
/// What a packet takes of it beside its data. With 1434 bytes of data a guest's receiver offers 55 packets.
const OVERHEAD_BYTES: u32 = 930;
/// The packets of a round trip that the buffer is made for at first (`TCP_INIT_CWND`).
const FIRST_ROUND_PKTS: u32 = 10;

#[derive(Clone, Debug)]
pub struct ReceiveWindow {
    /// Packets that fit into the buffer.
    buffer_pkts: u32,
    /// Most that it may grow to.
    most_pkts: u32,
    /// Most packets in a round trip so far (`rcvq_space.space`).
    round_pkts: u32,
    /// The first packet of this round trip.
    round_start: u32,
    /// New packets may be sent below this number: what was offered is not taken back.
    end: u32,
}

impl ReceiveWindow {
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

    /// New packets may be sent below this number.
    #[inline(always)]
    pub fn end(&self) -> u32 {
        self.end
    }

    /// Packets have arrived up to this one, and none is held behind it.
    #[inline(always)]
    pub fn offer(&mut self, una: u32) {
        self.end = una.saturating_add(self.buffer_pkts);
    }

    /// The same where so many are held, up to that number: the buffer makes room for them
    /// (`tcp_data_queue_ofo`), but they take it, too.
    pub fn offer_behind(&mut self, una: u32, held_pkts: u32, held_end: u32) {
        let span = held_end.saturating_sub(una);
        self.grow_to(self.round_pkts.saturating_mul(2).saturating_add(span));
        let room = self.buffer_pkts.saturating_sub(held_pkts);
        self.end = self.end.max(una.saturating_add(room));
    }

    /// A round trip is over: room for twice what came in it, and more while that grows
    /// (`tcp_rcv_space_adjust`).
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
        // As in a guest's trace: packet 11 is lost, and the last one before it comes again is 65.
        window.offer(11);
        assert_eq!(window.end(), 66);
        for held in 1..40 {
            window.offer_behind(11, held, 12 + held);
            assert_eq!(window.end(), 66, "{held}");
        }
        // Once the hole is filled there is room again.
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
        // Up to what the scenario gives the receiver.
        assert_eq!(window.buffer_pkts, testing::config().window_pkts);
    }

    #[test]
    fn other_receivers_have_all_room_from_the_start() {
        let mut window = window(0);
        window.offer(1);
        assert_eq!(window.end(), 1 + testing::config().window_pkts);
    }
}
