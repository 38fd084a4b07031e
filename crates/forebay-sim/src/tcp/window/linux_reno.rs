//! Reno's window as Linux counts it: whole packets, by packets acknowledged (`tcp_reno_*` of
//! net/ipv4/tcp_cong.c).

use super::{Congestion, Growth, Whole, Window};
use crate::tcp::Config;

#[derive(Clone, Debug)]
pub struct LinuxReno(Whole);

impl Window for LinuxReno {
    type Size = Whole;

    fn new(_config: &Config) -> LinuxReno {
        LinuxReno(Whole::new())
    }

    fn size(&self) -> &Whole {
        &self.0
    }

    fn size_mut(&mut self) -> &mut Whole {
        &mut self.0
    }

    fn grow(&mut self, growth: &Growth) {
        if let Some(acked) = self.0.slow_start(growth.acked_pkts) {
            self.0.avoid_congestion(self.0.cwnd, acked);
        }
    }

    fn on_congestion(&mut self, _congestion: &Congestion) -> f64 {
        self.0.lower((self.0.cwnd / 2).max(2))
    }

    fn on_timeout(&mut self, _now: u64, _next: u32) {
        self.0.credit = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(cwnd: u32) -> LinuxReno {
        LinuxReno(Whole {
            cwnd,
            ssthresh: 10,
            credit: 0,
        })
    }

    fn grow(window: &mut LinuxReno, acked_pkts: u32) {
        window.grow(&Growth {
            now: 0,
            acked_pkts,
            srtt_ns: 0,
        });
    }

    #[test]
    fn growth_does_not_depend_on_how_packets_are_acknowledged() {
        for per_ack in [1, 2, 5] {
            let mut w = window(10);
            for _ in 0..10 / per_ack {
                grow(&mut w, per_ack);
            }
            assert_eq!((w.0.cwnd, w.0.credit), (11, 0), "{per_ack} packets per ACK");
        }
    }

    #[test]
    fn slow_start_counts_packets_and_ends_at_the_threshold() {
        let mut w = window(4);
        grow(&mut w, 2);
        assert_eq!(w.0.cwnd, 6);
        // Four packets to the threshold, one left for congestion avoidance.
        grow(&mut w, 5);
        assert_eq!((w.0.cwnd, w.0.credit), (10, 1));
    }

    #[test]
    fn reno_halves_whole_packets() {
        let fall = |cwnd: u32| {
            window(cwnd).on_congestion(&Congestion {
                signal: super::super::Signal::Loss,
                in_use_pkts: f64::from(cwnd),
            })
        };
        assert_eq!([fall(13), fall(12), fall(3)], [6.0, 6.0, 2.0]);
    }
}
