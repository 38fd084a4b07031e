//! The writes of an application into its send buffer, if it always has data. The last packet of
//! each write has PSH.

use crate::tcp::congestion::CongestionControl;

/// Smallest window for which the buffer is sized (`TCP_INIT_CWND`).
const LEAST_WINDOW_PKTS: u32 = 10;
/// Largest number of writes in the buffer; each is at least a third of it.
const MOST_WRITES: usize = 4;

/// The writes in the send buffer.
#[derive(Clone, Debug)]
pub struct Writes {
    /// One past the last packet written.
    end: u32,
    /// The window for which the buffer is sized.
    window_pkts: u32,
    /// Ends of the writes that are not completely sent, in order.
    ends: [u32; MOST_WRITES],
    count: u8,
}

impl Default for Writes {
    fn default() -> Writes {
        Writes {
            end: 1,
            window_pkts: LEAST_WINDOW_PKTS,
            ends: [0; MOST_WRITES],
            count: 0,
        }
    }
}

impl Writes {
    /// Removes packets below `una` from the buffer, and fills it up to at most `limit` once a third
    /// of it is free (`sk_stream_is_writeable`).
    ///
    /// The buffer holds two or three of the largest windows so far and one more packet, which makes
    /// it full (`tcp_sndbuf_expand`, with the memory of packets of usual size).
    #[inline(always)]
    pub fn fill<C: CongestionControl>(&mut self, una: u32, limit: u32, cwnd_pkts: u32) {
        self.window_pkts = self.window_pkts.max(cwnd_pkts);
        let held = self.end.saturating_sub(una);
        let room = self.window_pkts.saturating_mul(C::BUFFER_WINDOWS);
        if 3 * u64::from(held) > 2 * u64::from(room) || self.end >= limit {
            return;
        }
        let full = room.saturating_add(1);
        self.end = una.saturating_add(full).min(limit);
        let last = MOST_WRITES - 1;
        self.ends[usize::from(self.count).min(last)] = self.end;
        if usize::from(self.count) <= last {
            self.count += 1;
        }
    }

    /// Returns true if the packet that is being sent is the last one of a write.
    #[inline(always)]
    pub fn ends_with(&mut self, seq: u32) -> bool {
        let mut ends = false;
        while self.count > 0 && self.ends[0] <= seq + 1 {
            ends = self.ends[0] == seq + 1;
            self.ends.copy_within(1.., 0);
            self.count -= 1;
        }
        ends
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::congestion::{Bbr, LinuxReno};

    /// Returns the last packets of writes with a window of `cwnd`, if each ACK is for `acks`
    /// packets.
    fn pushed(cwnd: u32, acks: u32, limit: u32) -> Vec<u32> {
        pushed_by::<LinuxReno>(cwnd, acks, limit)
    }

    fn pushed_by<C: CongestionControl>(cwnd: u32, acks: u32, limit: u32) -> Vec<u32> {
        let (mut writes, mut una, mut next) = (Writes::default(), 1, 1);
        let mut pushed = Vec::new();
        while next < limit.min(200) {
            writes.fill::<C>(una, limit, cwnd);
            while next < (una + cwnd).min(limit) {
                if writes.ends_with(next) {
                    pushed.push(next);
                }
                next += 1;
            }
            una += acks;
        }
        pushed
    }

    #[test]
    fn a_third_of_the_buffer_is_written_at_a_time() {
        // The buffer has 21 packets and is filled once 13 are left.
        assert_eq!(pushed(8, 1, u32::MAX)[..4], [21, 29, 37, 45]);
        assert_eq!(pushed(8, 3, u32::MAX)[..4], [21, 30, 39, 48]);
        // The repair of a loss frees more at once.
        assert_eq!(pushed(8, 25, u32::MAX)[..3], [21, 46, 71]);
        // The last packet of all data ends a write.
        assert_eq!(pushed(8, 1, 28), [21, 27]);
    }

    #[test]
    fn the_buffer_of_bbr_holds_three_windows() {
        // The buffer has 142 packets and is filled once 94 are left.
        assert_eq!(pushed_by::<Bbr>(47, 1, u32::MAX)[..2], [142, 190]);
    }

    #[test]
    fn the_buffer_grows_with_the_window() {
        // The buffer has 81 packets for a window of 40 and is filled once 53 are left.
        assert_eq!(pushed(40, 1, u32::MAX)[..3], [81, 109, 137]);
    }
}
