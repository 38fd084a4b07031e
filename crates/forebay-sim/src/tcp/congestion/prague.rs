//! Prague (draft-briscoe-iccrg-prague-congestion-control-04): DCTCP's response to marks, made
//! suitable for the Internet with L4S (RFC 9330). It is paced, grows also while it responds to
//! marks, and below a round-trip time of 25 ms gets the rate of a flow with 25 ms. Sections that
//! comments name are those of the draft.

use forebay_units::cast::whole_u32;
use forebay_units::{Span, Time};

use super::{
    AckSample, CongestionControl, CongestionEvent, Growth, Indication, RealWindow, LEAST_CWND_PKTS,
};
use crate::tcp::Config;

/// Gain g of the estimated fraction of marked packets (section 2.4.2).
const GAIN: f64 = 1.0 / 16.0;
/// Relative offset of the pacing rate from the window per round trip: positive in the first half of
/// a virtual round trip, negative in the second. A step threshold then marks packets in each
/// virtual round trip, instead of all in one and none in the next (`RATE_OFFSET` of TCP Prague and
/// UDP-Prague).
const PACE_OFFSET: f64 = 0.03;
/// Least pacing rate, 100 kbit/s. Below a window of two packets the pacing alone determines the
/// rate (`MINIMUM_RATE`, `PRAGUE_MINRATE`).
const LEAST_BYTES_PER_S: f64 = 12_500.0;
/// Least virtual round-trip time; flows with shorter round trips grow and fall as one with this
/// time (section 2.4.4).
const REFERENCE_RTT: Span = Span::from_millis(25);

/// The congestion control Prague.
#[derive(Clone, Debug)]
pub struct Prague {
    window: RealWindow,
    /// Estimated fraction of marked packets (section 2.4.2).
    alpha: f64,
    /// Packets that were delivered in this virtual round trip.
    delivered_pkts: u32,
    /// Marked packets among them.
    ce_pkts: u32,
    /// Start of the virtual round trip. It ends at `round_until` at the earliest, and not before
    /// the number `round_end` is acknowledged.
    round_start: Time,
    round_until: Time,
    round_end: u32,
    /// Until this time marks cause no further reduction.
    reduced_until: Time,
    /// Factor of the last reduction for marks, which a loss in the same round trip takes into
    /// account.
    reduced_to: f64,
    /// Marked packets that the present ACK reports, for which the window does not grow.
    ack_ce_pkts: u32,
    /// Ratio of the pacing rate to the window per round trip.
    pace: f64,
    payload_bytes: f64,
}

/// Returns the virtual round-trip time for growth and reductions, which is at least the reference.
fn virtual_rtt(srtt: Span) -> Span {
    srtt.max(REFERENCE_RTT)
}

impl Prague {
    /// Returns true if the window is below the threshold.
    fn in_slow_start(&self) -> bool {
        self.window.cwnd < self.window.ssthresh
    }

    /// Updates the estimate at the end of a virtual round trip, and begins the next one.
    fn end_round(&mut self, sample: &AckSample) {
        if self.delivered_pkts > 0 {
            let share = f64::from(self.ce_pkts) / f64::from(self.delivered_pkts);
            self.alpha += GAIN * (share - self.alpha);
        }
        (self.delivered_pkts, self.ce_pkts) = (0, 0);
        self.round_end = sample.next;
        self.round_start = sample.now;
        self.round_until = sample.now + virtual_rtt(sample.srtt);
    }

    /// Reduces the window by half of the estimated fraction of marks, at most once per virtual
    /// round trip (section 2.4.3).
    fn answer_marks(&mut self, sample: &AckSample) {
        if sample.now < self.reduced_until {
            return;
        }
        self.reduced_until = sample.now + virtual_rtt(sample.srtt);
        let least = LEAST_BYTES_PER_S * sample.srtt.as_nanos_f64() / 1e9 / self.payload_bytes;
        let cwnd = (self.window.cwnd * (1.0 - self.alpha / 2.0)).max(least);
        self.reduced_to = cwnd / self.window.cwnd;
        self.window.cwnd = cwnd;
        self.window.ssthresh = cwnd;
    }
}

impl CongestionControl for Prague {
    window_in!(window: RealWindow);

    const ANSWERS_MARKS: bool = true;

    /// Pacing limits the flow; its window is slightly larger.
    const PACED: bool = true;

    fn new(config: &Config) -> Prague {
        Prague {
            window: RealWindow::new(config.window_pkts),
            // The first mark halves the window.
            alpha: 1.0,
            delivered_pkts: 0,
            ce_pkts: 0,
            round_start: Time::ZERO,
            round_until: Time::ZERO,
            round_end: 0,
            reduced_until: Time::ZERO,
            reduced_to: 1.0,
            ack_ce_pkts: 0,
            pace: 1.0,
            payload_bytes: f64::from(config.payload_bytes),
        }
    }

    /// Returns the window in whole packets: at least two, and at least what the pacing rate needs,
    /// because pacing limits the flow.
    fn cwnd_pkts(&self) -> u32 {
        let cwnd = self.window.cwnd;
        match self.in_slow_start() {
            true => whole_u32(cwnd.max(1.0)),
            false => whole_u32((cwnd * (1.0 + PACE_OFFSET)).ceil().max(LEAST_CWND_PKTS)),
        }
    }

    fn on_ack(&mut self, sample: &AckSample) {
        self.delivered_pkts += sample.delivered_pkts;
        self.ce_pkts += sample.ce_pkts;
        self.ack_ce_pkts = sample.ce_pkts;
        if sample.now >= self.round_until && sample.una >= self.round_end {
            self.end_round(sample);
        }
        if sample.ce_pkts > 0 {
            self.answer_marks(sample);
        }
        let half = virtual_rtt(sample.srtt) / 2;
        self.pace = match sample.now < self.round_start + half {
            true => 1.0 + PACE_OFFSET,
            false => 1.0 / (1.0 + PACE_OFFSET),
        };
    }

    fn ssthresh_pkts(&self) -> u32 {
        whole_u32(self.window.ssthresh.max(LEAST_CWND_PKTS))
    }

    /// Grows the window by one packet per virtual round trip, for packets without a mark (section
    /// 2.4.3). A flow with a short round trip grows by the square of its ratio to the virtual one,
    /// so that its rate has the slope of a flow with the longer round trip.
    fn grow(&mut self, growth: &Growth) {
        let unmarked = f64::from(growth.acked_pkts.saturating_sub(self.ack_ce_pkts));
        if self.in_slow_start() {
            self.window.cwnd = (self.window.cwnd + unmarked).min(self.window.ssthresh);
            return;
        }
        let share = growth.srtt.as_nanos_f64() / virtual_rtt(growth.srtt).as_nanos_f64();
        self.window.cwnd += unmarked * share * share / self.window.cwnd;
    }

    /// Halves the window for a loss. If marks have reduced the window in this round trip, the loss
    /// reduces it only by what is missing to one half (section 2.4.3).
    fn on_congestion_event(&mut self, event: &CongestionEvent) -> f64 {
        let taken = match event.indication {
            Indication::Loss => std::mem::replace(&mut self.reduced_to, 1.0).max(0.5),
            Indication::Mark | Indication::Timeout => 1.0,
        };
        self.window.lower(self.window.cwnd / 2.0 / taken)
    }

    /// Returns the pacing rate in bytes per second: about the window per round trip, or twice as
    /// much in slow start (section 2.4.5).
    fn bytes_per_s(&self, pkts: u32, srtt: Span, payload_bytes: u16) -> f64 {
        let window = match self.in_slow_start() {
            true => 2.0 * self.window.cwnd.max(f64::from(pkts)),
            false => self.pace * self.window.cwnd,
        };
        let rate =
            window * f64::from(payload_bytes) * 1e9 / srtt.max(Span::from_nanos(1)).as_nanos_f64();
        rate.max(LEAST_BYTES_PER_S)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::testing::{ack_sample, at, config, grow, reduced, MS};

    const RTT: Span = Span::from_millis(50);

    fn flow(cwnd: f64) -> Prague {
        let mut flow = Prague::new(&config());
        flow.window.cwnd = cwnd;
        flow.window.ssthresh = cwnd;
        flow.alpha = 0.0;
        flow
    }

    fn ack(flow: &mut Prague, now: Time, rtt: Span, acked_pkts: u32, ce_pkts: u32) {
        let una = now.as_micros() as u32;
        flow.on_ack(&AckSample {
            una,
            next: una,
            ..ack_sample(now, rtt, acked_pkts, ce_pkts)
        });
        grow(flow, now, acked_pkts, rtt);
    }

    #[test]
    fn the_window_falls_by_half_the_share_of_marks() {
        let mut w = flow(100.0);
        let mut now = Time::ZERO;
        // A quarter of the packets is marked for a long time.
        for _ in 0..200 {
            now += RTT;
            w.window.cwnd = 100.0;
            ack(&mut w, now, RTT, 20, 5);
        }
        assert!((w.alpha - 0.25).abs() < 0.01, "{}", w.alpha);
        now += RTT;
        w.window.cwnd = 100.0;
        ack(&mut w, now, RTT, 20, 5);
        assert!((87.0..89.0).contains(&w.window.cwnd), "{}", w.window.cwnd);
        // A second mark in the round trip changes nothing.
        let cwnd = w.window.cwnd;
        ack(&mut w, now + MS, RTT, 1, 1);
        assert_eq!(w.window.cwnd, cwnd);
    }

    #[test]
    fn a_short_round_trip_grows_as_one_of_25_ms() {
        // The rates after a second are windows divided by round trips.
        let rate_gain = |rtt_ms: u64| {
            let mut w = flow(20.0);
            for round in 1..=1000 / rtt_ms {
                let acked = w.window.cwnd as u32;
                ack(&mut w, at(round * rtt_ms * MS), rtt_ms * MS, acked, 0);
            }
            (w.window.cwnd - 20.0) / (rtt_ms as f64 / 1e3)
        };
        let (short, long) = (rate_gain(5), rate_gain(25));
        assert!((short / long - 1.0).abs() < 0.1, "{short} {long}");
    }

    #[test]
    fn a_window_below_two_packets_is_a_pace() {
        let mut w = flow(1.0);
        w.on_ack(&ack_sample(at(MS), RTT, 1, 0));
        assert_eq!((w.cwnd_pkts(), w.ssthresh_pkts()), (2, 2));
        let rate = w.bytes_per_s(2, RTT, 1000);
        assert!((rate / 1.03 - 1000.0 / 0.05).abs() < 1.0, "{rate}");
        // Marks reduce the rate to 100 kbit/s and no further.
        w.alpha = 1.0;
        for now in 1..100 {
            w.on_ack(&ack_sample(at(now * RTT), RTT, 1, 1));
        }
        assert!((w.window.cwnd * 1448.0 / 0.05 - 12_500.0).abs() < 1.0);
    }

    #[test]
    fn the_pace_is_above_the_window_s_for_half_of_a_virtual_round_trip() {
        let mut w = flow(100.0);
        let mut rate = |now: Time| {
            w.on_ack(&ack_sample(now, 5 * MS, 0, 0));
            let una = u32::from(now == Time::ZERO);
            w.round_end = una;
            w.bytes_per_s(100, 5 * MS, 1000) / (100.0 * 1000.0 / 0.005)
        };
        let seen = [0, 5, 12, 13, 20, 24].map(|ms| rate(at(ms * MS)) > 1.0);
        assert_eq!(seen, [true, true, true, false, false, false]);
    }

    #[test]
    fn a_loss_halves_what_was_there_before_the_marks() {
        let mut w = flow(100.0);
        w.alpha = 0.5;
        w.on_ack(&AckSample {
            next: 10,
            rtt: None,
            ..ack_sample(at(MS), RTT, 0, 1)
        });
        assert_eq!(w.window.cwnd, 75.0);
        let to = reduced(&mut w, Indication::Loss);
        assert!((to - 50.0).abs() < 1e-9, "{to}");
    }
}
