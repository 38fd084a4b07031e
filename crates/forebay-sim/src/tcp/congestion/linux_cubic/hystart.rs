//! HyStart ends CUBIC's slow start before the first loss, when a train of ACKs lasts for half a
//! round trip or when the round-trip time increases.

use forebay_units::cast::whole_u64;
use forebay_units::{Span, Time};

use crate::tcp::congestion::AckSample;

/// Smallest window, in packets, at which HyStart ends slow start.
const HYSTART_LEAST_CWND: u32 = 16;
/// Largest interval between two ACKs of one train.
const TRAIN_GAP: Span = Span::from_millis(2);
/// Number of samples of the round-trip time whose least is compared.
const DELAY_SAMPLES: u32 = 8;
/// Bounds of the increase of the round-trip time that ends slow start, which is an eighth of the
/// least.
const DELAY_RISE: (Span, Span) = (Span::from_millis(4), Span::from_millis(16));
/// Largest segment before it is cut into packets.
const LARGEST_SEGMENT_BYTES: f64 = 65_536.0;

/// The state of HyStart in the present round of slow start.
#[derive(Clone, Debug)]
pub struct HyStart {
    /// True once slow start has ended.
    pub done: bool,
    start: Time,
    /// Time of the last ACK of the train that began with the round.
    last_ack_at: Time,
    /// The round ends when more than this is acknowledged.
    end: u32,
    least_rtt: Span,
    samples: u32,
}

impl HyStart {
    /// Begins a round at `now`, when `next` is the next packet to send.
    pub fn round(now: Time, next: u32) -> HyStart {
        HyStart {
            done: false,
            start: now,
            last_ack_at: now,
            end: next,
            least_rtt: Span::MAX,
            samples: 0,
        }
    }

    /// Returns true if slow start should end, because ACKs have arrived in one train for half a
    /// round trip or the round-trip time has increased. `bytes_per_s` is the rate that determines
    /// the size of segments.
    pub fn ends_slow_start(
        &mut self,
        delay_min: Span,
        cwnd: u32,
        rtt: Span,
        bytes_per_s: f64,
        sample: &AckSample,
    ) -> bool {
        let now = sample.now;
        if sample.una > self.end {
            *self = HyStart::round(now, sample.next);
        }
        if cwnd < HYSTART_LEAST_CWND {
            return false;
        }
        let mut ends = false;
        if now - self.last_ack_at <= TRAIN_GAP {
            self.last_ack_at = now;
            // Time that large segments add to the train, at most 1 ms.
            let segments_time = (4e9 * LARGEST_SEGMENT_BYTES / bytes_per_s).min(1e6);
            let segments_time = Span::from_nanos(whole_u64(segments_time));
            ends = now - self.start > (delay_min + segments_time) / 2;
        }
        self.least_rtt = self.least_rtt.min(rtt);
        if self.samples < DELAY_SAMPLES {
            self.samples += 1;
        } else {
            let rise = (delay_min / 8).clamp(DELAY_RISE.0, DELAY_RISE.1);
            ends |= self.least_rtt > delay_min + rise;
        }
        self.done = ends;
        ends
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::testing::{ack_sample, at, MS};

    #[test]
    fn slow_start_ends_after_a_train_of_half_a_round_trip() {
        let mut hystart = HyStart::round(Time::ZERO, 100);
        let mut ended_at = None;
        for ms in 1..60 {
            let sample = AckSample {
                una: 50,
                next: 120,
                ..ack_sample(at(ms * MS), 60 * MS, 1, 0)
            };
            if hystart.ends_slow_start(60 * MS, 20, 60 * MS, 1e6, &sample) {
                ended_at = Some(ms);
                break;
            }
        }
        // (60 ms + 1 ms) / 2.
        assert_eq!(ended_at, Some(31));
    }
}
