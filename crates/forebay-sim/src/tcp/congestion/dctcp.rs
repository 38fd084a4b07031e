//! DCTCP (RFC 8257) as in Linux (net/ipv4/tcp_dctcp.c): marks reduce the window by half of the
//! fraction of marked packets.

use forebay_units::Time;

use super::{AckSample, CongestionControl, CongestionEvent, Growth, Indication, WholeWindow};
use crate::number::share_of;
use crate::tcp::Config;

/// The fraction 1, in the units of `alpha`.
const WHOLE_SHARE: u32 = 1024;
/// The gain g of the estimate, 1/16 (RFC 8257 section 4.2), as a shift.
const GAIN_SHIFT: u32 = 4;

/// The congestion control `dctcp` of Linux.
#[derive(Clone, Debug)]
pub struct Dctcp {
    window: WholeWindow,
    /// Estimated fraction of marked packets, in units of 1/1024 (RFC 8257 section 3.3).
    alpha: u32,
    /// Packets that were delivered in this round trip.
    delivered_pkts: u32,
    /// Marked packets among them.
    ce_pkts: u32,
    /// The round trip ends when this number is acknowledged.
    round_end: u32,
}

impl Dctcp {
    /// Updates the estimate at the end of a round trip.
    fn end_round(&mut self, next: u32) {
        let fall = match self.alpha >> GAIN_SHIFT {
            0 => self.alpha,
            fall => fall,
        };
        let marked = (self.ce_pkts << (10 - GAIN_SHIFT)) / self.delivered_pkts.max(1);
        self.alpha = (self.alpha - fall + marked).min(WHOLE_SHARE);
        (self.delivered_pkts, self.ce_pkts) = (0, 0);
        self.round_end = next;
    }
}

impl CongestionControl for Dctcp {
    window_in!(window: WholeWindow);

    const MARKS_ALL: bool = true;

    fn new(_config: &Config) -> Dctcp {
        Dctcp {
            window: WholeWindow::new(),
            // The first mark halves the window.
            alpha: WHOLE_SHARE,
            delivered_pkts: 0,
            ce_pkts: 0,
            round_end: 0,
        }
    }

    fn on_ack(&mut self, sample: &AckSample) {
        self.delivered_pkts += sample.delivered_pkts;
        self.ce_pkts += sample.ce_pkts;
        if sample.una >= self.round_end {
            self.end_round(sample.next);
        }
    }

    fn grow(&mut self, growth: &Growth) {
        if let Some(acked) = self.window.slow_start(growth.acked_pkts) {
            self.window.avoid_congestion(self.window.cwnd, acked);
        }
    }

    fn on_congestion_event(&mut self, event: &CongestionEvent) -> f64 {
        let cwnd = self.window.cwnd;
        let fall = match event.indication {
            Indication::Mark => share_of(cwnd, u64::from(self.alpha), u64::from(2 * WHOLE_SHARE)),
            // A loss halves the window as with Reno (RFC 8257 section 3.5).
            Indication::Loss | Indication::Timeout => cwnd - cwnd / 2,
        };
        self.window.lower((cwnd - fall).max(2))
    }

    /// Halves the window as with Reno, also after a reduction for a mark (`dctcp_react_to_loss`).
    fn on_recovery(&mut self) {
        self.window.lower((self.window.cwnd / 2).max(2));
    }

    fn on_timeout(&mut self, _now: Time, _next: u32) {
        self.window.credit = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::testing::{ack_sample, reduced};
    use forebay_units::Span;

    /// Acknowledges a round trip of 20 packets, of which this number is marked.
    fn round(flow: &mut Dctcp, ce_pkts: u32) {
        let una = flow.round_end;
        flow.on_ack(&AckSample {
            una,
            next: una + 20,
            ..ack_sample(Time::ZERO, Span::ZERO, 20, ce_pkts)
        });
    }

    fn flow(cwnd: u32) -> Dctcp {
        Dctcp {
            window: WholeWindow {
                cwnd,
                ..WholeWindow::new()
            },
            alpha: WHOLE_SHARE,
            delivered_pkts: 0,
            ce_pkts: 0,
            round_end: 1,
        }
    }

    fn fall(flow: &mut Dctcp, indication: Indication) -> u32 {
        reduced(flow, indication) as u32
    }

    #[test]
    fn the_window_falls_by_half_the_share_of_marks() {
        let mut w = flow(100);
        assert_eq!(fall(&mut w, Indication::Mark), 50);
        // A quarter of the packets is marked for a long time, so that alpha is 256 of 1024.
        for _ in 0..100 {
            round(&mut w, 5);
        }
        assert!((240..=272).contains(&w.alpha), "{}", w.alpha);
        assert!((86..=89).contains(&fall(&mut w, Indication::Mark)));
        assert_eq!(fall(&mut w, Indication::Loss), 50);
        for _ in 0..100 {
            round(&mut w, 0);
        }
        assert_eq!(w.alpha, 0);
        assert_eq!(fall(&mut w, Indication::Mark), 100);
    }
}
