//! Proportional rate reduction (RFC 9937, formerly RFC 6937): after a loss or a mark the window
//! falls to the threshold within a round trip, in proportion to the packets that leave the network.

/// The state of one reduction.
#[derive(Clone, Debug, Default)]
pub struct Prr {
    /// Window before the reduction.
    prior_cwnd: u32,
    /// Packets that have been delivered since.
    delivered: u32,
    /// Packets sent since.
    pub out: u32,
}

/// The progress that an ACK reports.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Packets newly reported, by number or SACK.
    pub delivered: u32,
    /// Packets newly marked lost.
    pub lost: u32,
    /// True if the ACK acknowledges packets by number.
    pub una_advanced: bool,
}

impl Prr {
    /// Begins a reduction of this window.
    pub fn new(cwnd: u32) -> Prr {
        Prr {
            prior_cwnd: cwnd,
            ..Prr::default()
        }
    }

    /// Returns the window after an ACK; `None` if nothing was delivered.
    pub fn cwnd_after(&mut self, progress: Progress, in_flight: u32, ssthresh: u32) -> Option<u32> {
        if progress.delivered == 0 || self.prior_cwnd == 0 {
            return None;
        }
        self.delivered += progress.delivered;
        let out = i64::from(self.out);
        let may_send = if in_flight > ssthresh {
            let share = u64::from(ssthresh) * u64::from(self.delivered);
            share.div_ceil(u64::from(self.prior_cwnd)).cast_signed() - out
        } else {
            // Below the threshold, the window may grow by the delivered packets and one more while
            // recovery makes progress (the slow-start bound), otherwise by the delivered packets
            // (the conservative bound).
            let mut most = (i64::from(self.delivered) - out).max(i64::from(progress.delivered));
            if progress.una_advanced && progress.lost == 0 {
                most += 1;
            }
            most.min(i64::from(ssthresh - in_flight))
        };
        // The first lost packet is retransmitted at once.
        let least = i64::from(self.out == 0);
        u32::try_from(i64::from(in_flight) + may_send.max(least)).ok()
    }
}
