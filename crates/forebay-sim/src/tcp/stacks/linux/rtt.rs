//! Round-trip time and retransmission timeout as Linux takes them: RFC 6298 with every ACK a
//! sample (timestamps, RFC 7323), a deviation that falls slowly, and a floor on the deviation's
//! term instead of the timeout's.

/// Before the first measurement (RFC 6298 section 2.1).
pub const INITIAL_RTO_NS: u64 = 1_000_000_000;
const MAX_RTO_NS: u64 = 120_000_000_000;
/// Timestamps count milliseconds (`TCP_TS_HZ`).
const STAMP_NS: u64 = 1_000_000;

/// The round trip as a timestamp tells it (RFC 7323 section 4), where only packets that were sent
/// again are acknowledged: from one tick to another, so up to a millisecond more or less, and never none
/// (`tcp_rtt_tsopt_us`).
pub fn by_stamp_ns(sent_ns: u64, now: u64) -> u64 {
    (now / STAMP_NS - sent_ns / STAMP_NS).max(1) * STAMP_NS
}

#[derive(Clone, Debug)]
pub struct Rtt {
    /// Smoothed; zero before the first measurement.
    pub srtt_ns: u64,
    /// Least of the connection; the kernel forgets it after five minutes without one as small.
    pub min_ns: u64,
    /// Four times the mean deviation.
    mdev4_ns: u64,
    /// Its maximum in this round trip, and the floor.
    mdev4_max_ns: u64,
    /// What the timeout takes: it rises at once and falls by a quarter in a round trip.
    rttvar4_ns: u64,
    /// The round trip ends when this number is acknowledged.
    round_end: u32,
    /// Backoff included.
    pub rto_ns: u64,
}

impl Default for Rtt {
    fn default() -> Rtt {
        Rtt {
            srtt_ns: 0,
            min_ns: u64::MAX,
            mdev4_ns: 0,
            mdev4_max_ns: 0,
            rttvar4_ns: 0,
            round_end: 0,
            rto_ns: INITIAL_RTO_NS,
        }
    }
}

impl Rtt {
    /// Takes a round trip with the numbers acknowledged and sent up to; ends the backoff. True once
    /// in a round trip.
    #[inline(always)]
    pub fn update(&mut self, rtt_ns: u64, una: u32, next: u32, floor_ns: u64) -> bool {
        let mut round_ends = false;
        if self.srtt_ns == 0 {
            self.srtt_ns = rtt_ns;
            self.mdev4_ns = 2 * rtt_ns;
            self.rttvar4_ns = self.mdev4_ns.max(floor_ns);
            self.mdev4_max_ns = self.rttvar4_ns;
            self.round_end = next;
        } else {
            let error = rtt_ns.cast_signed() - self.srtt_ns.cast_signed();
            self.srtt_ns = (self.srtt_ns.cast_signed() + error / 8)
                .max(1)
                .unsigned_abs();
            let mut change = error.abs() - (self.mdev4_ns / 4).cast_signed();
            // A round trip that shortens is no reason to wait longer.
            if error < 0 && change > 0 {
                change /= 8;
            }
            self.mdev4_ns = (self.mdev4_ns.cast_signed() + change).max(0).unsigned_abs();
            self.mdev4_max_ns = self.mdev4_max_ns.max(self.mdev4_ns);
            self.rttvar4_ns = self.rttvar4_ns.max(self.mdev4_max_ns);
            if una > self.round_end {
                self.rttvar4_ns -= (self.rttvar4_ns - self.mdev4_max_ns) / 4;
                self.round_end = next;
                self.mdev4_max_ns = floor_ns;
                round_ends = true;
            }
        }
        self.rto_ns = (self.srtt_ns + self.rttvar4_ns).min(MAX_RTO_NS);
        round_ends
    }

    /// Doubles the timeout (RFC 6298 section 5.5).
    pub fn back_off(&mut self) {
        self.rto_ns = (2 * self.rto_ns).min(MAX_RTO_NS);
    }
}
