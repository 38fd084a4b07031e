//! Round-trip time and retransmission timeout as Linux takes them: RFC 6298 with every ACK a
//! sample (timestamps, RFC 7323), a deviation that falls slowly, and a floor on the deviation's
//! term instead of the timeout's.

use forebay_units::{Span, Time};

/// Before the first measurement (RFC 6298 section 2.1).
pub const INITIAL_RTO: Span = Span::from_secs(1);
const MAX_RTO: Span = Span::from_secs(120);
/// Timestamps count milliseconds (`TCP_TS_HZ`).
const STAMP: Span = Span::from_millis(1);

/// The round trip as a timestamp tells it (RFC 7323 section 4), where only packets that were sent
/// again are acknowledged: from one tick to another, so up to a millisecond more or less, and never none
/// (`tcp_rtt_tsopt_us`).
pub fn stamped_rtt(sent_at: Time, now: Time) -> Span {
    let stamp = |at: Time| at.since_start() / STAMP;
    (stamp(now) - stamp(sent_at)).max(1) * STAMP
}

#[derive(Clone, Debug)]
pub struct Rtt {
    /// Smoothed; zero before the first measurement.
    pub srtt: Span,
    /// Least of the connection; the kernel forgets it after five minutes without one as small.
    pub min_rtt: Span,
    /// Four times the mean deviation.
    mdev4: Span,
    /// Its maximum in this round trip, and the floor.
    mdev4_max: Span,
    /// What the timeout takes: it rises at once and falls by a quarter in a round trip.
    rttvar4: Span,
    /// The round trip ends when this number is acknowledged.
    round_end: u32,
    /// Backoff included.
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
    /// Takes a round trip with the numbers acknowledged and sent up to; ends the backoff. True once
    /// in a round trip.
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
            // In ns, and with a sign, which a length of time does not have.
            let signed = |span: Span| span.as_nanos().cast_signed();
            let error = signed(rtt) - signed(self.srtt);
            let srtt = (signed(self.srtt) + error / 8).max(1);
            self.srtt = Span::from_nanos(srtt.unsigned_abs());
            let mut change = error.abs() - signed(self.mdev4 / 4);
            // A round trip that shortens is no reason to wait longer.
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
