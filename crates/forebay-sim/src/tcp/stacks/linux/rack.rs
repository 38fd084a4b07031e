//! RACK loss detection (RFC 8985): a packet is lost if one sent later has arrived and the time
//! that reordering may take has passed.

use super::scoreboard::{Delivery, Scoreboard};

/// Duplicate ACKs that say "lost" without waiting, where no reordering was seen (section 7.1).
pub const DUP_THRESHOLD: u32 = 3;
/// Most that reordering can raise the threshold to, Linux's `tcp_max_reordering`.
const MOST_REORDERING: u32 = 300;

/// The packet sent last of those that have arrived.
#[derive(Clone, Debug)]
pub struct Rack {
    sent_ns: u64,
    seq: u32,
    /// Round trip of the packet that was reported last.
    pub rtt_ns: u64,
    /// Something has arrived since losses were looked for.
    pub advanced: bool,
    pub reordering_seen: bool,
    /// How far packets are thought to be reordered.
    pub reordering_pkts: u32,
}

impl Default for Rack {
    fn default() -> Rack {
        Rack {
            sent_ns: 0,
            seq: 0,
            rtt_ns: 0,
            advanced: false,
            reordering_seen: false,
            reordering_pkts: DUP_THRESHOLD,
        }
    }
}

/// Losses that were detected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DetectedLosses {
    pub lost_pkts: u32,
    /// When to look again; zero if nothing waits.
    pub wait_ns: u64,
}

impl Rack {
    /// A packet has arrived (section 6.2, step 2).
    pub fn advance(&mut self, delivery: &Delivery, now: u64, min_rtt_ns: u64) {
        let rtt_ns = now - delivery.sent.sent_ns;
        // So fast an answer to a copy is one to the packet before it.
        if delivery.sent.ever_retransmitted && rtt_ns < min_rtt_ns {
            return;
        }
        self.advanced = true;
        self.rtt_ns = rtt_ns;
        if (delivery.sent.sent_ns, delivery.seq) > (self.sent_ns, self.seq) {
            (self.sent_ns, self.seq) = (delivery.sent.sent_ns, delivery.seq);
        }
    }

    /// Packets that were sent once have arrived in their order, this one the last.
    #[inline(always)]
    pub fn advance_in_order(&mut self, seq: u32, sent_ns: u64, now: u64) {
        self.advanced = true;
        self.rtt_ns = now - sent_ns;
        let sent_last = sent_ns > self.sent_ns || sent_ns == self.sent_ns && seq > self.seq;
        if sent_last {
            (self.sent_ns, self.seq) = (sent_ns, seq);
        }
    }

    /// A packet sent once has arrived behind later ones (section 6.2, step 3).
    pub fn on_reordering(&mut self, distance_pkts: u32) {
        self.reordering_seen = true;
        self.reordering_pkts = self.reordering_pkts.max(distance_pkts).min(MOST_REORDERING);
    }

    /// How long a packet may be behind later ones (section 6.2, step 4). The multiples of it that
    /// a receiver's DSACKs ask for are left out.
    pub fn window_ns(
        &self,
        recovering: bool,
        sacked_pkts: u32,
        min_rtt_ns: u64,
        srtt_ns: u64,
    ) -> u64 {
        if !self.reordering_seen && (recovering || sacked_pkts >= self.reordering_pkts) {
            return 0;
        }
        (min_rtt_ns / 4).min(srtt_ns)
    }

    /// Time left until a packet sent at `sent_ns` is late; none if it is.
    fn remaining_ns(&self, sent_ns: u64, window_ns: u64, now: u64) -> Option<u64> {
        let due = sent_ns + self.rtt_ns + window_ns;
        (due > now).then(|| due - now)
    }

    /// Whether a timeout leaves this packet alone: it was sent less than a round trip ago.
    pub fn is_recent(&self, sent_ns: u64, now: u64) -> bool {
        self.remaining_ns(sent_ns, 0, now).is_some()
    }

    /// Marks what is lost (section 6.2, step 5), first copies and later ones.
    pub fn detect(&self, scoreboard: &mut Scoreboard, window_ns: u64, now: u64) -> DetectedLosses {
        let mut losses = DetectedLosses::default();
        let before = |sent_ns: u64, seq: u32| (sent_ns, seq) < (self.sent_ns, self.seq);
        let mut waits = false;
        let mut seq = scoreboard.rack_done.max(scoreboard.una());
        while let Some(&sent) = scoreboard.get(seq) {
            if !(sent.sacked || sent.lost || sent.ever_retransmitted) {
                if !before(sent.sent_ns, seq) {
                    break;
                }
                match self.remaining_ns(sent.sent_ns, window_ns, now) {
                    None => losses.lost_pkts += u32::from(scoreboard.mark_lost(seq)),
                    Some(left) => {
                        waits = true;
                        losses.wait_ns = losses.wait_ns.max(left);
                    }
                }
            }
            seq += 1;
            if !waits {
                scoreboard.rack_done = seq;
            }
        }
        let mut at = 0;
        while let Some(&(sent_ns, seq)) = scoreboard.retransmissions.get(at) {
            let current = scoreboard.get(seq).is_some_and(|sent| {
                sent.sent_ns == sent_ns && !sent.sacked && (sent.retransmitted || !sent.lost)
            });
            if current {
                if !before(sent_ns, seq) {
                    break;
                }
                match self.remaining_ns(sent_ns, window_ns, now) {
                    None => losses.lost_pkts += u32::from(scoreboard.mark_lost(seq)),
                    Some(left) => {
                        losses.wait_ns = losses.wait_ns.max(left);
                        at += 1;
                        continue;
                    }
                }
            }
            scoreboard.retransmissions.remove(at);
        }
        losses
    }
}
