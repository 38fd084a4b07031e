//! The retransmission timer: round-trip estimate, timeout and backoff (RFC 6298), in the clock
//! ticks of ns-2 and BSD.

use forebay_units::cast::whole_u32;
use forebay_units::{Span, Time};

/// Resolution of the clock that measures round trips.
const TICK: Span = Span::from_millis(10);
/// Timeout before the first measurement in ticks, which are 3 s, as in ns-2.35 (RFC 2988 section
/// 2.1).
const INITIAL_RTO_TICKS: u32 = 300;
const MAX_RTO: Span = Span::from_secs(60);

/// The smoothed round-trip time and its deviation, as integers in ticks. The first has 3 bits after
/// the binary point, the second has 2.
#[derive(Clone, Debug)]
pub struct RtoEstimator {
    srtt: i32,
    rttvar: i32,
    /// srtt + 4·rttvar in ticks, before the minimum and the backoff. 32 bits, like those of the phase,
    /// keep the sender's state within two cache lines.
    base_ticks: u32,
    backoff: u32,
    /// Phase of this host's clock in ns. A measurement counts ticks, so that the phase decides how
    /// it is rounded.
    phase_nanos: u32,
}

impl RtoEstimator {
    /// Creates an estimator whose clock has this phase, in [0, 1) of a tick.
    pub fn new(phase: f64) -> RtoEstimator {
        RtoEstimator {
            srtt: 0,
            // ns-2's rttvar_init_ of 12 s matters only until the first measurement.
            rttvar: 0,
            base_ticks: INITIAL_RTO_TICKS,
            backoff: 1,
            phase_nanos: whole_u32(phase * TICK.as_nanos() as f64),
        }
    }

    /// Takes the round trip of a packet that was sent only once; the caller applies Karn's
    /// algorithm.
    pub fn update(&mut self, sent_at: Time, now: Time) {
        let into_tick = (sent_at.as_nanos() + u64::from(self.phase_nanos)) % TICK.as_nanos();
        let ticks = ((now - sent_at + Span::from_nanos(into_tick)) / TICK).max(1);
        let ticks = i32::try_from(ticks).expect("a round trip takes less than 200 days");
        if self.srtt == 0 {
            self.srtt = ticks << 3;
            self.rttvar = ticks << 1;
        } else {
            // RFC 6298 section 2.3 with alpha = 1/8, beta = 1/4.
            let delta = ticks - (self.srtt >> 3);
            self.srtt = (self.srtt + delta).max(1);
            self.rttvar = (self.rttvar + delta.abs() - (self.rttvar >> 2)).max(1);
        }
        self.base_ticks = (((self.rttvar << 3) + self.srtt) >> 3).cast_unsigned();
    }

    /// Ends the backoff, after the acknowledgement of new data that had been sent once.
    pub fn reset_backoff(&mut self) {
        self.backoff = 1;
    }

    /// Doubles the timeout (RFC 6298 section 5.5).
    pub fn back_off(&mut self, min_rto: Span) {
        if self.backoff < 64 || self.timeout(min_rto) < MAX_RTO {
            self.backoff = self.backoff.saturating_mul(2);
        }
        if self.backoff > 8 {
            // After so many backoffs the estimate is not trusted and starts again, as in BSD.
            self.rttvar += self.srtt >> 3;
            self.srtt = 0;
        }
    }

    /// Returns the smoothed round-trip time; zero before the first measurement.
    #[inline]
    pub fn srtt(&self) -> Span {
        u64::from(self.srtt.cast_unsigned()) * TICK / 8
    }

    /// Returns the retransmission timeout, with the minimum and the backoff.
    #[inline]
    pub fn timeout(&self, min_rto: Span) -> Span {
        let floored = (u64::from(self.base_ticks) * TICK).max(min_rto);
        (floored * u64::from(self.backoff)).clamp(2 * TICK, MAX_RTO.max(min_rto))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::tcp::testing::MS;

    /// Takes a round trip that begins at time zero.
    fn measure(rto: &mut RtoEstimator, rtt: Span) {
        rto.update(Time::ZERO, Time::ZERO + rtt);
    }

    #[test]
    fn follows_rfc_6298_in_ticks() {
        let mut rto = RtoEstimator::new(0.0);
        assert_eq!(rto.timeout(200 * MS), 3_000 * MS);
        // The first round trip of 100 ms gives srtt 100, rttvar 50 and a timeout of 300 ms.
        measure(&mut rto, 100 * MS);
        assert_eq!(rto.timeout(200 * MS), 300 * MS);
        // A second one gives rttvar 37.5 (in quarter ticks: 20 - 5 = 15) and a timeout of 100 + 150
        // ms.
        measure(&mut rto, 100 * MS);
        assert_eq!(rto.timeout(200 * MS), 250 * MS);
        assert_eq!(rto.timeout(1_000 * MS), 1_000 * MS);
    }

    #[test]
    fn the_phase_of_the_clock_decides_the_rounding() {
        let ticks = |phase: f64| {
            let mut rto = RtoEstimator::new(phase);
            measure(&mut rto, 105 * MS);
            rto.srtt >> 3
        };
        assert_eq!((ticks(0.0), ticks(0.6)), (10, 11));
    }

    #[test]
    fn backoff_doubles_up_to_a_minute() {
        let mut rto = RtoEstimator::new(0.0);
        measure(&mut rto, 100 * MS);
        let mut seen = Vec::new();
        for _ in 0..9 {
            rto.back_off(200 * MS);
            seen.push(rto.timeout(200 * MS) / MS);
        }
        assert_eq!(
            seen,
            [600, 1200, 2400, 4800, 9600, 19200, 38400, 60000, 60000]
        );
        rto.reset_backoff();
        assert_eq!(rto.timeout(200 * MS), 300 * MS);
    }
}
