//! How a Linux sender's window grows and how far it falls: Reno, or CUBIC in `cubic`.

use super::cubic::Cubic;

/// Threshold before the first loss.
pub const NO_THRESHOLD: u32 = u32::MAX >> 1;

/// A window of whole packets.
#[derive(Clone, Debug)]
pub struct Window {
    pub cwnd: u32,
    pub ssthresh: u32,
    /// Packets acknowledged towards the next one of the window.
    pub credit: u32,
}

impl Window {
    pub fn in_slow_start(&self) -> bool {
        self.cwnd < self.ssthresh
    }

    /// One packet for each acknowledged (RFC 3465 without its limit); returns what is left of
    /// them above the threshold.
    fn slow_start(&mut self, acked: u32) -> u32 {
        let cwnd = self.cwnd.saturating_add(acked).min(self.ssthresh);
        let left = acked - (cwnd - self.cwnd);
        self.cwnd = cwnd;
        left
    }

    /// One packet for every `each` acknowledged.
    fn avoid_congestion(&mut self, each: u32, acked: u32) {
        // Credit from when more were asked for.
        if self.credit >= each {
            self.credit = 0;
            self.cwnd += 1;
        }
        self.credit += acked;
        self.cwnd += self.credit / each;
        self.credit %= each;
    }
}

/// What an ACK tells the scheme, besides how many packets it acknowledges.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    pub now: u64,
    pub rtt_ns: u64,
    pub una: u32,
    pub next: u32,
    /// At which the sender's segments are sized.
    pub bytes_per_s: f64,
}

#[derive(Clone, Debug)]
pub enum Growth {
    Reno,
    Cubic(Cubic),
}

impl Growth {
    /// The threshold after a loss or a mark.
    pub fn threshold(&mut self, cwnd: u32) -> u32 {
        match self {
            Growth::Reno => (cwnd / 2).max(2),
            Growth::Cubic(cubic) => cubic.threshold(cwnd),
        }
    }

    /// Takes a round trip.
    pub fn measured(&mut self, window: &mut Window, sample: &Sample) {
        if let Growth::Cubic(cubic) = self {
            cubic.measured(window, sample);
        }
    }

    /// Grows a window that was in the way: slow start, then congestion avoidance.
    pub fn grow(&mut self, window: &mut Window, acked: u32, now: u64) {
        let mut acked = acked;
        if window.in_slow_start() {
            acked = window.slow_start(acked);
            if acked == 0 {
                return;
            }
        }
        let each = match self {
            Growth::Reno => window.cwnd,
            Growth::Cubic(cubic) => cubic.packets_per_increase(window.cwnd, acked, now),
        };
        window.avoid_congestion(each, acked);
    }

    /// Forgets everything: at the handshake, and at a timeout.
    pub fn restart(&mut self, now: u64, next: u32) {
        if let Growth::Cubic(cubic) = self {
            *cubic = Cubic::new(now, next);
        }
    }

    /// A packet is sent into an empty network, the last one having been sent at `last_ns`.
    pub fn resumes(&mut self, last_ns: u64, now: u64) {
        if let Growth::Cubic(cubic) = self {
            cubic.resumes(last_ns, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(cwnd: u32) -> Window {
        Window {
            cwnd,
            ssthresh: 10,
            credit: 0,
        }
    }

    #[test]
    fn growth_does_not_depend_on_how_packets_are_acknowledged() {
        for per_ack in [1, 2, 5] {
            let mut w = window(10);
            for _ in 0..10 / per_ack {
                Growth::Reno.grow(&mut w, per_ack, 0);
            }
            assert_eq!((w.cwnd, w.credit), (11, 0), "{per_ack} packets per ACK");
        }
    }

    #[test]
    fn slow_start_counts_packets_and_ends_at_the_threshold() {
        let mut w = window(4);
        Growth::Reno.grow(&mut w, 2, 0);
        assert_eq!(w.cwnd, 6);
        // Four packets to the threshold, one left for congestion avoidance.
        Growth::Reno.grow(&mut w, 5, 0);
        assert_eq!((w.cwnd, w.credit), (10, 1));
    }

    #[test]
    fn reno_halves_whole_packets() {
        let fall = |cwnd| Growth::Reno.threshold(cwnd);
        assert_eq!([fall(13), fall(12), fall(3)], [6, 6, 2]);
    }
}
