//! Reno's window as ns-2 counts it: one packet an ACK in slow start, 1/cwnd an ACK in congestion
//! avoidance (RFC 5681 section 3.1), half of it on congestion.

use super::{Congestion, Growth, Real, Window};
use crate::tcp::Config;

#[derive(Clone, Debug)]
pub struct Reno(Real);

impl Window for Reno {
    type Size = Real;

    fn new(config: &Config) -> Reno {
        Reno(Real::new(config.window_pkts))
    }

    fn size(&self) -> &Real {
        &self.0
    }

    fn size_mut(&mut self) -> &mut Real {
        &mut self.0
    }

    fn grow(&mut self, _growth: &Growth) {
        let Real { cwnd, ssthresh } = &mut self.0;
        *cwnd += if *cwnd < *ssthresh { 1.0 } else { 1.0 / *cwnd };
    }

    fn on_congestion(&mut self, congestion: &Congestion) -> f64 {
        self.0.lower(congestion.in_use_pkts * 0.5)
    }
}
