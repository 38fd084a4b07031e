//! Round-trip time and retransmission timeout as in Linux: RFC 6298 with a sample from every ACK
//! (timestamps, RFC 7323), a deviation that decreases slowly, and a minimum of the deviation's term
//! instead of the timeout.

use forebay_units::{Span, Time};

/// The timeout before the first measurement (RFC 6298 section 2.1).
pub const INITIAL_RTO: Span = Span::from_secs(1);
const MAX_RTO: Span = Span::from_secs(120);
/// Timestamps count milliseconds (`TCP_TS_HZ`).
const STAMP: Span = Span::from_millis(1);

/// Returns the round-trip time as a timestamp measures it (RFC 7323 section 4), which is used if
/// only retransmitted packets are acknowledged. It counts ticks of 1 ms, so that it can be up to 1
/// ms too long or too short, and it is never zero (`tcp_rtt_tsopt_us`).
pub fn stamped_rtt(sent_at: Time, now: Time) -> Span {
    let stamp = |at: Time| at.since_start() / STAMP;
    (stamp(now) - stamp(sent_at)).max(1) * STAMP
}

/// The estimator of the round-trip time and the timeout.
#[derive(Clone, Debug)]
pub struct Rtt {
    /// Smoothed round-trip time; zero before the first measurement.
    pub srtt: Span,
    /// Least round-trip time of the connection. (The kernel forgets it after five minutes without
    /// one as small.)
    pub min_rtt: Span,
    /// Four times the mean deviation.
    mdev4: Span,
    /// Maximum of `mdev4` in this round trip, at least the floor.
    mdev4_max: Span,
    /// The deviation's term of the timeout. It rises at once, and falls by a quarter of the
    /// difference per round trip.
    rttvar4: Span,
    /// The round trip ends when a number above this one is acknowledged.
    round_end: u32,
    /// The retransmission timeout, with backoff.
    pub rto: Span,
}

impl Default for Rtt {
    fn default() -> Rtt {
        Rtt {
            srtt: Span::ZERO,
            min_rtt: Span::MAX,
            mdev4: Span::ZERO,
            mdev4_max: Span::ZERO,
            rttvar4: Span::ZERO,
            round_end: 0,
            rto: INITIAL_RTO,
        }
    }
}

impl Rtt {
    /// Takes a round-trip time and ends the backoff. Packets below `una` are acknowledged, packets
    /// below `next` are sent, and `floor` is the minimum of the deviation's term. True once per
    /// round trip.
    #[inline(always)]
    pub fn update(&mut self, rtt: Span, una: u32, next: u32, floor: Span) -> bool {
        let mut round_ends = false;
        if self.srtt.is_zero() {
            self.srtt = rtt;
            self.mdev4 = 2 * rtt;
            self.rttvar4 = self.mdev4.max(floor);
            self.mdev4_max = self.rttvar4;
            self.round_end = next;
        } else {
            // The error is computed in ns with a sign, which a `Span` does not have.
            let signed = |span: Span| span.as_nanos().cast_signed();
            let error = signed(rtt) - signed(self.srtt);
            let srtt = (signed(self.srtt) + error / 8).max(1);
            self.srtt = Span::from_nanos(srtt.unsigned_abs());
            let mut change = error.abs() - signed(self.mdev4 / 4);
            // A shorter round trip hardly raises the deviation, because it is no reason to wait
            // longer.
            if error < 0 && change > 0 {
                change /= 8;
            }
            let mdev4 = (signed(self.mdev4) + change).max(0);
            self.mdev4 = Span::from_nanos(mdev4.unsigned_abs());
            self.mdev4_max = self.mdev4_max.max(self.mdev4);
            self.rttvar4 = self.rttvar4.max(self.mdev4_max);
            if una > self.round_end {
                self.rttvar4 -= (self.rttvar4 - self.mdev4_max) / 4;
                self.round_end = next;
                self.mdev4_max = floor;
                round_ends = true;
            }
        }
        self.rto = (self.srtt + self.rttvar4).min(MAX_RTO);
        round_ends
    }

    /// Doubles the timeout (RFC 6298 section 5.5).
    pub fn back_off(&mut self) {
        self.rto = (2 * self.rto).min(MAX_RTO);
    }
}
