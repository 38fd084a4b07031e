//! Pacing as in the Linux kernel (`tcp_pacing_check` and
//! `tcp_update_skb_after_send` of net/ipv4/tcp_output.c).

use forebay_units::cast::whole_u64;
use forebay_units::{Span, Time};

/// Number of packets at the start of a connection that are not paced.
const UNPACED_PKTS: u32 = 10;

/// A pacer: the time at which a connection's next segment may leave.
#[derive(Clone, Debug, Default)]
pub struct Pacer {
    next_at: Time,
}

impl Pacer {
    /// Returns true if a segment must wait until [`Self::next_at`].
    pub fn holds(&self, now: Time) -> bool {
        now < self.next_at
    }

    /// Returns the time from which on the next segment may leave.
    pub fn next_at(&self) -> Time {
        self.next_at
    }

    /// Takes note that a segment of this size left at `now`; `last` is the number of its last
    /// packet.
    pub fn sent(&mut self, now: Time, bytes: u32, bytes_per_s: f64, last: u32) {
        if last <= UNPACED_PKTS {
            return;
        }
        let mut gap = Span::from_nanos(whole_u64(f64::from(bytes) * 1e9 / bytes_per_s));
        // A segment that left late shortens the next gap, by at most half.
        gap -= (now - self.next_at).min(gap / 2);
        self.next_at = self.next_at.max(now) + gap;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: u64) -> Time {
        Time::ZERO + Span::from_micros(us)
    }

    #[test]
    fn segments_leave_at_the_rate() {
        let mut pacer = Pacer::default();
        // 1000 bytes at 1 MB/s take 1 ms.
        pacer.sent(Time::ZERO, 1000, 1e6, 11);
        assert!(pacer.holds(at(999)));
        assert!(!pacer.holds(at(1000)));
        // The first segment is late by 0.2 ms, the second by much more than a gap.
        pacer.sent(at(1200), 1000, 1e6, 12);
        assert_eq!(pacer.next_at, at(2000));
        pacer.sent(at(9000), 1000, 1e6, 13);
        assert_eq!(pacer.next_at, at(9500));
    }

    #[test]
    fn the_first_packets_are_not_paced() {
        let mut pacer = Pacer::default();
        pacer.sent(Time::ZERO, 1000, 1e6, 10);
        assert!(!pacer.holds(Time::ZERO));
    }
}
