//! Reno's window as ns-2 counts it: one packet an ACK in slow start, 1/cwnd an ACK in congestion
//! avoidance (RFC 5681 section 3.1), half of it on congestion.

use super::{CongestionControl, CongestionEvent, Growth, RealWindow};
use crate::tcp::Config;

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
