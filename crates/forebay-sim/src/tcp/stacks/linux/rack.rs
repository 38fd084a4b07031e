//! RACK loss detection (RFC 8985): a packet is lost if one sent later has arrived and the time
//! that reordering may take has passed.

use forebay_units::{Span, Time};

use super::scoreboard::{Delivery, Scoreboard};

/// Duplicate ACKs that say "lost" without waiting, where no reordering was seen (section 7.1).
pub const DUP_THRESHOLD: u32 = 3;
/// Most that reordering can raise the threshold to, Linux's `tcp_max_reordering`.
const MOST_REORDERING: u32 = 300;

/// The packet sent last of those that have arrived.
#[derive(Clone, Debug)]
pub struct Rack {
    sent_at: Time,
    seq: u32,
    /// Round trip of the packet that was reported last.
    pub rtt: Span,
    /// Something has arrived since losses were looked for.
    pub advanced: bool,
    pub reordering_seen: bool,
    /// How far packets are thought to be reordered.
    pub reordering_pkts: u32,
}

impl Default for Rack {
    fn default() -> Rack {
        Rack {
            sent_at: Time::ZERO,
            seq: 0,
            rtt: Span::ZERO,
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
    pub wait: Span,
}

impl Rack {
    /// A packet has arrived (section 6.2, step 2).
    pub fn advance(&mut self, delivery: &Delivery, now: Time, min_rtt: Span) {
        let rtt = now - delivery.sent.sent_at;
        // So fast an answer to a copy is one to the packet before it.
        if delivery.sent.ever_retransmitted && rtt < min_rtt {
            return;
        }
        self.advanced = true;
        self.rtt = rtt;
        if (delivery.sent.sent_at, delivery.seq) > (self.sent_at, self.seq) {
            (self.sent_at, self.seq) = (delivery.sent.sent_at, delivery.seq);
        }
    }

    /// Packets that were sent once have arrived in their order, this one the last.
    #[inline(always)]
    pub fn advance_in_order(&mut self, seq: u32, sent_at: Time, now: Time) {
        self.advanced = true;
        self.rtt = now - sent_at;
        let sent_last = sent_at > self.sent_at || sent_at == self.sent_at && seq > self.seq;
        if sent_last {
            (self.sent_at, self.seq) = (sent_at, seq);
        }
    }

    /// A packet sent once has arrived behind later ones (section 6.2, step 3).
    pub fn on_reordering(&mut self, distance_pkts: u32) {
        self.reordering_seen = true;
        self.reordering_pkts = self.reordering_pkts.max(distance_pkts).min(MOST_REORDERING);
    }

    /// How long a packet may be behind later ones (section 6.2, step 4). The multiples of it that
    /// a receiver's DSACKs ask for are left out.
    pub fn reordering_window(
        &self,
        recovering: bool,
        sacked_pkts: u32,
        min_rtt: Span,
        srtt: Span,
    ) -> Span {
        if !self.reordering_seen && (recovering || sacked_pkts >= self.reordering_pkts) {
            return Span::ZERO;
        }
        (min_rtt / 4).min(srtt)
    }

    /// Time left until a packet sent at `sent_at` is late; none if it is.
    fn remaining(&self, sent_at: Time, window: Span, now: Time) -> Option<Span> {
        let due = sent_at + self.rtt + window;
        (due > now).then(|| due - now)
    }

    /// Whether a timeout leaves this packet alone: it was sent less than a round trip ago.
    pub fn is_recent(&self, sent_at: Time, now: Time) -> bool {
        self.remaining(sent_at, Span::ZERO, now).is_some()
    }

    /// Marks what is lost (section 6.2, step 5), first copies and later ones.
    pub fn detect(&self, scoreboard: &mut Scoreboard, window: Span, now: Time) -> DetectedLosses {
        let mut losses = DetectedLosses::default();
        let before = |sent_at: Time, seq: u32| (sent_at, seq) < (self.sent_at, self.seq);
        let mut waits = false;
        let mut seq = scoreboard.rack_done.max(scoreboard.una());
        while let Some(&sent) = scoreboard.get(seq) {
            if !(sent.sacked || sent.lost || sent.ever_retransmitted) {
                if !before(sent.sent_at, seq) {
                    break;
                }
                match self.remaining(sent.sent_at, window, now) {
                    None => losses.lost_pkts += u32::from(scoreboard.mark_lost(seq)),
                    Some(left) => {
                        waits = true;
                        losses.wait = losses.wait.max(left);
                    }
                }
            }
            seq += 1;
            if !waits {
                scoreboard.rack_done = seq;
            }
        }
        let mut at = 0;
        while let Some(&(sent_at, seq)) = scoreboard.retransmissions.get(at) {
            let current = scoreboard.get(seq).is_some_and(|sent| {
                sent.sent_at == sent_at && !sent.sacked && (sent.retransmitted || !sent.lost)
            });
            if current {
                if !before(sent_at, seq) {
                    break;
                }
                match self.remaining(sent_at, window, now) {
                    None => losses.lost_pkts += u32::from(scoreboard.mark_lost(seq)),
                    Some(left) => {
                        losses.wait = losses.wait.max(left);
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
