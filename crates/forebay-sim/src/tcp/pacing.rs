//! Pacing as in the Linux kernel (`tcp_pacing_check` and
//! `tcp_update_skb_after_send` of net/ipv4/tcp_output.c).

use forebay_units::cast::whole_u64;

/// The first packets of a connection leave at once.
const UNPACED_PKTS: u32 = 10;

/// When a connection's next segment may leave.
#[derive(Clone, Debug, Default)]
pub struct Pacer {
    next_ns: u64,
}

impl Pacer {
    /// Whether a segment must wait, until [`Self::next_ns`].
    pub fn holds(&self, now: u64) -> bool {
        now < self.next_ns
    }

    pub fn next_ns(&self) -> u64 {
        self.next_ns
    }

    /// A segment of this size has left; `last` is its last number.
    pub fn sent(&mut self, now: u64, bytes: u32, bytes_per_s: f64, last: u32) {
        if last <= UNPACED_PKTS {
            return;
        }
        let mut gap_ns = whole_u64(f64::from(bytes) * 1e9 / bytes_per_s);
        // What came late is made up for, by half a gap at most.
        gap_ns -= now.saturating_sub(self.next_ns).min(gap_ns / 2);
        self.next_ns = self.next_ns.max(now) + gap_ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_leave_at_the_rate() {
        let mut pacer = Pacer::default();
        // 1000 bytes at 1 MB/s: 1 ms each.
        pacer.sent(0, 1000, 1e6, 11);
        assert!(pacer.holds(999_999));
        assert!(!pacer.holds(1_000_000));
        // Late by 0.2 ms, then by far too much.
        pacer.sent(1_200_000, 1000, 1e6, 12);
        assert_eq!(pacer.next_ns, 2_000_000);
        pacer.sent(9_000_000, 1000, 1e6, 13);
        assert_eq!(pacer.next_ns, 9_500_000);
    }

    #[test]
    fn the_first_packets_are_not_paced() {
        let mut pacer = Pacer::default();
        pacer.sent(0, 1000, 1e6, 10);
        assert!(!pacer.holds(0));
    }
}
