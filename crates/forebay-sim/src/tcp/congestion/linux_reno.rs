//! Reno with Linux's counting: the window has whole packets and grows with the number of
//! acknowledged packets (`tcp_reno_*` of net/ipv4/tcp_cong.c).

use forebay_units::Time;

use super::{CongestionControl, CongestionEvent, Growth, WholeWindow};
use crate::tcp::Config;

/// The congestion control `reno` of Linux.
#[derive(Clone, Debug)]
pub struct LinuxReno(WholeWindow);

impl CongestionControl for LinuxReno {
    window_in!(0: WholeWindow);

    fn new(_config: &Config) -> LinuxReno {
        LinuxReno(WholeWindow::new())
    }

    fn grow(&mut self, growth: &Growth) {
        if let Some(acked) = self.0.slow_start(growth.acked_pkts) {
            self.0.avoid_congestion(self.0.cwnd, acked);
        }
    }

    fn on_congestion_event(&mut self, _event: &CongestionEvent) -> f64 {
        self.0.lower((self.0.cwnd / 2).max(2))
    }

    fn on_timeout(&mut self, _now: Time, _next: u32) {
        self.0.credit = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::super::Indication;
    use super::*;
    use crate::tcp::testing::{grow, reduced};
    use forebay_units::Span;

    fn window(cwnd: u32) -> LinuxReno {
        LinuxReno(WholeWindow {
            cwnd,
            ssthresh: 10,
            credit: 0,
        })
    }

    #[test]
    fn growth_does_not_depend_on_how_packets_are_acknowledged() {
        for per_ack in [1, 2, 5] {
            let mut w = window(10);
            for _ in 0..10 / per_ack {
                grow(&mut w, Time::ZERO, per_ack, Span::ZERO);
            }
            assert_eq!((w.0.cwnd, w.0.credit), (11, 0), "{per_ack} packets per ACK");
        }
    }

    #[test]
    fn slow_start_counts_packets_and_ends_at_the_threshold() {
        let mut w = window(4);
        grow(&mut w, Time::ZERO, 2, Span::ZERO);
        assert_eq!(w.0.cwnd, 6);
        // Four packets reach the threshold, and one remains for congestion avoidance.
        grow(&mut w, Time::ZERO, 5, Span::ZERO);
        assert_eq!((w.0.cwnd, w.0.credit), (10, 1));
    }

    #[test]
    fn reno_halves_whole_packets() {
        let fall = |cwnd: u32| reduced(&mut window(cwnd), Indication::Loss);
        assert_eq!([fall(13), fall(12), fall(3)], [6.0, 6.0, 2.0]);
    }
}
