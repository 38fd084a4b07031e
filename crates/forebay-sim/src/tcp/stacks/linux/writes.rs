//! What an application that always has data writes into its send buffer, and where a write ends: the
//! last packet of each has PSH.

/// Packets that the buffer holds for windows of up to ten (`tcp_sndbuf_expand`: two windows of
/// packets with their memory, rounded up to a power of two, are 2.7 of packets as they are queued).
const LEAST_BUFFER_PKTS: u32 = 27;
const LEAST_WINDOW_PKTS: u32 = 10;
/// Writes that are in the buffer at a time: each is a third of it or more.
const MOST_WRITES: usize = 4;

#[derive(Clone, Debug)]
pub struct Writes {
    /// One past the last packet written.
    end: u32,
    buffer_pkts: u32,
    /// Ends of writes that are not sent yet, in order.
    ends: [u32; MOST_WRITES],
    count: u8,
}

impl Default for Writes {
    fn default() -> Writes {
        Writes {
            end: 1,
            buffer_pkts: LEAST_BUFFER_PKTS,
            ends: [0; MOST_WRITES],
            count: 0,
        }
    }
}

impl Writes {
    /// Packets below `una` are out of the buffer. Once a third of it is free the application
    /// fills it (`sk_stream_is_writeable`), at most up to `limit`. The buffer is made larger where it has held up
    /// the window.
    #[inline(always)]
    pub fn fill(&mut self, una: u32, limit: u32, cwnd_pkts: u32) {
        let held = self.end.saturating_sub(una);
        if 3 * held > 2 * self.buffer_pkts || self.end >= limit {
            return;
        }
        if cwnd_pkts > self.buffer_pkts {
            self.buffer_pkts = LEAST_BUFFER_PKTS.saturating_mul(cwnd_pkts) / LEAST_WINDOW_PKTS;
        }
        self.end = una.saturating_add(self.buffer_pkts).min(limit);
        let last = MOST_WRITES - 1;
        self.ends[usize::from(self.count).min(last)] = self.end;
        if usize::from(self.count) <= last {
            self.count += 1;
        }
    }

    /// Whether a packet that is being sent is the last of a write.
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

    /// Last packets of writes, with this window, where ACKs are of so many packets.
    fn pushed(cwnd: u32, acks: u32, limit: u32) -> Vec<u32> {
        let (mut writes, mut una, mut next) = (Writes::default(), 1, 1);
        let mut pushed = Vec::new();
        while next < limit.min(200) {
            writes.fill(una, limit, cwnd);
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
        // Of 27 packets; ACKs of two free ten.
        assert_eq!(pushed(8, 1, u32::MAX)[..4], [27, 36, 45, 54]);
        assert_eq!(pushed(8, 2, u32::MAX)[..4], [27, 37, 47, 57]);
        // A repair frees more at a time.
        assert_eq!(pushed(8, 25, u32::MAX)[..3], [27, 52, 77]);
        // The last packet of all there is.
        assert_eq!(pushed(8, 1, 31), [27, 30]);
    }

    #[test]
    fn the_buffer_grows_with_the_window() {
        // 108 packets for a window of 40, so that writes are of 36.
        assert_eq!(pushed(40, 1, u32::MAX)[..3], [108, 144, 180]);
    }
}
