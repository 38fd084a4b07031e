//! The congestion window and its slow-start threshold, as real numbers like in ns-2 or as whole
//! packets like in the Linux kernel.

use forebay_units::cast::whole_u32;

/// A congestion window and its slow-start threshold, in packets.
pub trait Window {
    /// Returns the congestion window.
    fn cwnd(&self) -> f64;

    /// Sets the congestion window.
    fn set_cwnd(&mut self, pkts: f64);

    /// Returns the slow-start threshold.
    fn ssthresh(&self) -> f64;

    /// Sets the slow-start threshold.
    fn set_ssthresh(&mut self, pkts: f64);

    /// Returns the congestion window in whole packets.
    #[inline]
    fn cwnd_pkts(&self) -> u32 {
        whole_u32(self.cwnd())
    }

    /// Returns the slow-start threshold in whole packets.
    #[inline]
    fn ssthresh_pkts(&self) -> u32 {
        whole_u32(self.ssthresh())
    }
}

/// A window in real numbers, as in ns-2.
#[derive(Clone, Debug)]
pub struct RealWindow {
    /// The congestion window.
    pub cwnd: f64,
    /// The slow-start threshold.
    pub ssthresh: f64,
}

impl RealWindow {
    /// Creates the window of a connection before its handshake, which is one packet, the SYN.
    pub fn new(ssthresh_pkts: u32) -> RealWindow {
        RealWindow {
            cwnd: 1.0,
            ssthresh: f64::from(ssthresh_pkts),
        }
    }

    /// Lowers the threshold to `lowered_pkts` in whole packets, at least 2; returns `lowered_pkts`
    /// as the new window.
    pub fn lower(&mut self, lowered_pkts: f64) -> f64 {
        self.ssthresh = lowered_pkts.floor().max(2.0);
        lowered_pkts
    }
}

impl Window for RealWindow {
    #[inline]
    fn cwnd(&self) -> f64 {
        self.cwnd
    }

    #[inline]
    fn set_cwnd(&mut self, pkts: f64) {
        self.cwnd = pkts;
    }

    #[inline]
    fn ssthresh(&self) -> f64 {
        self.ssthresh
    }

    #[inline]
    fn set_ssthresh(&mut self, pkts: f64) {
        self.ssthresh = pkts;
    }
}

/// The threshold of a [`WholeWindow`] before the first loss.
pub const NO_THRESHOLD: u32 = u32::MAX >> 1;

/// A window in whole packets, as in the Linux kernel.
#[derive(Clone, Debug)]
pub struct WholeWindow {
    /// The congestion window.
    pub cwnd: u32,
    /// The slow-start threshold.
    pub ssthresh: u32,
    /// Acknowledged packets that count towards the next increase of the window.
    pub credit: u32,
}

impl WholeWindow {
    /// Creates the window of a connection before its handshake, which is one packet, the SYN.
    pub fn new() -> WholeWindow {
        WholeWindow {
            cwnd: 1,
            ssthresh: NO_THRESHOLD,
            credit: 0,
        }
    }

    /// Returns true if the window is below the threshold.
    pub fn in_slow_start(&self) -> bool {
        self.cwnd < self.ssthresh
    }

    /// Grows the window by the acknowledged packets in slow start (RFC 3465 without its limit).
    /// Returns the number of packets that remain for congestion avoidance, if it follows.
    #[inline(always)]
    pub fn slow_start(&mut self, acked: u32) -> Option<u32> {
        if !self.in_slow_start() {
            return Some(acked);
        }
        let cwnd = self.cwnd.saturating_add(acked).min(self.ssthresh);
        let left = acked - (cwnd - self.cwnd);
        self.cwnd = cwnd;
        (left > 0).then_some(left)
    }

    /// Grows the window by one packet for every `each` acknowledged packets.
    #[inline(always)]
    pub fn avoid_congestion(&mut self, each: u32, acked: u32) {
        // The credit may be from a time when more packets were required.
        if self.credit >= each {
            self.credit = 0;
            self.cwnd += 1;
        }
        self.credit += acked;
        self.cwnd += self.credit / each;
        self.credit %= each;
    }

    /// Lowers the threshold; returns it as the new window.
    pub fn lower(&mut self, ssthresh: u32) -> f64 {
        self.credit = 0;
        self.ssthresh = ssthresh;
        f64::from(ssthresh)
    }
}

impl Window for WholeWindow {
    #[inline]
    fn cwnd(&self) -> f64 {
        f64::from(self.cwnd)
    }

    #[inline]
    fn set_cwnd(&mut self, pkts: f64) {
        self.cwnd = whole_u32(pkts);
    }

    #[inline]
    fn ssthresh(&self) -> f64 {
        f64::from(self.ssthresh)
    }

    #[inline]
    fn set_ssthresh(&mut self, pkts: f64) {
        self.ssthresh = whole_u32(pkts);
    }

    #[inline]
    fn cwnd_pkts(&self) -> u32 {
        self.cwnd
    }

    #[inline]
    fn ssthresh_pkts(&self) -> u32 {
        self.ssthresh
    }
}
