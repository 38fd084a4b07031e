//! RACK loss detection (RFC 8985): a packet is lost if a later sent one has arrived and the
//! reordering window has passed.

use forebay_units::{Span, Time};

use super::scoreboard::{Delivery, Scoreboard};

/// Number of SACKed packets that indicate a loss without a reordering window, if no reordering was
/// seen (section 7.1).
pub const DUP_THRESHOLD: u32 = 3;
/// Largest value to which reordering can raise the threshold (Linux's `tcp_max_reordering`).
const MOST_REORDERING: u32 = 300;

/// The state of RACK, above all the most recently sent packet that has arrived.
#[derive(Clone, Debug)]
pub struct Rack {
    sent_at: Time,
    seq: u32,
    /// Round-trip time of the packet that was reported last.
    pub rtt: Span,
    /// True if a packet has arrived since the last detection of losses.
    pub advanced: bool,
    /// True if packets have arrived out of order.
    pub reordering_seen: bool,
    /// Assumed largest distance of reordered packets.
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

/// The result of a detection of losses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DetectedLosses {
    /// Number of packets newly marked lost.
    pub lost_pkts: u32,
    /// Time until the next detection; zero if no packet is waiting for its reordering window.
    pub wait: Span,
}

impl Rack {
    /// Takes note of a packet that has arrived (section 6.2, step 2).
    pub fn advance(&mut self, delivery: &Delivery, now: Time, min_rtt: Span) {
        let rtt = now - delivery.sent.sent_at;
        // An ACK that comes sooner than any round trip after a retransmission is for the earlier
        // copy.
        if delivery.sent.ever_retransmitted && rtt < min_rtt {
            return;
        }
        self.advanced = true;
        self.rtt = rtt;
        if (delivery.sent.sent_at, delivery.seq) > (self.sent_at, self.seq) {
            (self.sent_at, self.seq) = (delivery.sent.sent_at, delivery.seq);
        }
    }

    /// Takes note of packets that were sent once and arrived in order, of which `seq` is the last.
    #[inline(always)]
    pub fn advance_in_order(&mut self, seq: u32, sent_at: Time, now: Time) {
        self.advanced = true;
        self.rtt = now - sent_at;
        let sent_last = sent_at > self.sent_at || sent_at == self.sent_at && seq > self.seq;
        if sent_last {
            (self.sent_at, self.seq) = (sent_at, seq);
        }
    }

    /// Takes note of a packet that was sent once and arrived behind later ones (section 6.2, step
    /// 3).
    pub fn on_reordering(&mut self, distance_pkts: u32) {
        self.reordering_seen = true;
        self.reordering_pkts = self.reordering_pkts.max(distance_pkts).min(MOST_REORDERING);
    }

    /// Returns the reordering window: the time by which a packet may arrive after later ones
    /// (section 6.2, step 4). The multiples that a receiver's DSACKs would cause are not modelled.
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

    /// Returns the remaining time until a packet sent at `sent_at` counts as lost; `None` if it
    /// does already.
    fn remaining(&self, sent_at: Time, window: Span, now: Time) -> Option<Span> {
        let due = sent_at + self.rtt + window;
        (due > now).then(|| due - now)
    }

    /// Returns true if the packet was sent less than a round trip ago, so that a timeout does not
    /// mark it lost.
    pub fn is_recent(&self, sent_at: Time, now: Time) -> bool {
        self.remaining(sent_at, Span::ZERO, now).is_some()
    }

    /// Marks lost packets (section 6.2, step 5), both first copies and retransmissions.
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
