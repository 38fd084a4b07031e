//! Reno with ns-2's counting: the window grows by one packet per ACK in slow start and by 1/cwnd
//! per ACK in congestion avoidance (RFC 5681 section 3.1), and congestion halves it.

use super::{CongestionControl, CongestionEvent, Growth, RealWindow};
use crate::tcp::Config;

/// The congestion control of ns-2's Reno agents.
#[derive(Clone, Debug)]
pub struct Reno(RealWindow);

impl CongestionControl for Reno {
    window_in!(0: RealWindow);

    fn new(config: &Config) -> Reno {
        Reno(RealWindow::new(config.window_pkts))
    }

    fn grow(&mut self, _growth: &Growth) {
        let RealWindow { cwnd, ssthresh } = &mut self.0;
        *cwnd += if *cwnd < *ssthresh { 1.0 } else { 1.0 / *cwnd };
    }

    fn on_congestion_event(&mut self, event: &CongestionEvent) -> f64 {
        self.0.lower(event.in_use_pkts * 0.5)
    }
}
