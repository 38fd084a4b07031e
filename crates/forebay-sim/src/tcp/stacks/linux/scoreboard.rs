//! What a Linux sender knows of each packet that it has sent and that is not acknowledged yet.

use std::collections::VecDeque;

use forebay_units::Time;

use super::sequence_ring::SequenceRing;
use crate::tcp::connection::Ack;
use crate::tcp::receiver::{Block, MAX_BLOCKS};

/// A packet under way, or held by the receiver out of order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SentPacket {
    /// When it was last sent.
    pub sent_at: Time,
    /// The receiver has it (SACK).
    pub sacked: bool,
    /// The copy before the last is thought lost, or the last where `retransmitted` is false.
    pub lost: bool,
    /// Sent again since it was thought lost.
    pub retransmitted: bool,
    /// Sent more than once: what it is acknowledged for is ambiguous.
    pub ever_retransmitted: bool,
}

/// What an ACK reports of one packet.
#[derive(Clone, Copy, Debug)]
pub struct Delivery {
    pub seq: u32,
    /// As the packet was before the ACK.
    pub sent: SentPacket,
    /// By SACK block; else by number.
    pub by_sack: bool,
    /// How far it was behind the highest packet known to have arrived; zero in order.
    pub behind_pkts: u32,
}

/// The packets from the first unacknowledged one to the last sent.
#[derive(Clone, Debug, Default)]
pub struct Scoreboard {
    sent: SequenceRing<SentPacket>,
    /// [start, end) of what has arrived out of order, in order.
    sacked: Vec<Block>,
    sacked_out: u32,
    lost_out: u32,
    retrans_out: u32,
    /// One past the highest packet ever sent again.
    retrans_end: u32,
    /// Packets ever thought lost, each as often as it was.
    total_lost: u64,
    /// No packet below waits to be sent again.
    retransmit_hint: u32,
    /// RACK is done with first copies below this.
    pub rack_done: u32,
    /// Later copies, in order of time; some are outdated.
    pub retransmissions: VecDeque<(Time, u32)>,
}

impl Scoreboard {
    /// The first packet not acknowledged.
    #[inline(always)]
    pub fn una(&self) -> u32 {
        self.sent.una()
    }

    /// Number of the next new packet.
    pub fn end(&self) -> u32 {
        self.sent.next()
    }

    /// Packets sent and not acknowledged by number.
    #[inline(always)]
    pub fn packets_out(&self) -> u32 {
        self.sent.len()
    }

    #[inline(always)]
    pub fn sacked_out(&self) -> u32 {
        self.sacked_out
    }

    /// Packets thought lost, sent again or not.
    #[inline(always)]
    pub fn lost_out(&self) -> u32 {
        self.lost_out
    }

    /// Packets sent again and still thought under way.
    #[inline(always)]
    pub fn retrans_out(&self) -> u32 {
        self.retrans_out
    }

    /// Losses of the connection so far.
    pub fn total_lost(&self) -> u64 {
        self.total_lost
    }

    /// Packets in the network (RFC 6675's pipe).
    #[inline(always)]
    pub fn in_flight(&self) -> u32 {
        self.packets_out() - self.sacked_out - self.lost_out + self.retrans_out
    }

    #[inline(always)]
    pub fn get(&self, seq: u32) -> Option<&SentPacket> {
        self.sent.get(seq)
    }

    /// What is known of the first packet not acknowledged.
    #[inline(always)]
    pub fn head(&self) -> Option<&SentPacket> {
        self.sent.head()
    }

    /// Highest packet known to have arrived out of order.
    pub fn highest_sacked(&self) -> Option<u32> {
        self.sacked.last().map(|&(_, end)| end - 1)
    }

    /// A new packet was sent.
    #[inline(always)]
    pub fn push(&mut self, now: Time) {
        self.sent.push(SentPacket {
            sent_at: now,
            sacked: false,
            lost: false,
            retransmitted: false,
            ever_retransmitted: false,
        });
    }

    /// Whether every packet under way was sent once, and none is known to be lost or to have
    /// arrived out of order.
    #[inline(always)]
    pub fn is_in_order(&self) -> bool {
        self.sacked_out | self.lost_out | self.retrans_out == 0
            && self.retrans_end <= self.sent.una()
    }

    /// Takes an ACK without SACK blocks for packets that [are in order](Self::is_in_order); when
    /// the first and the last of them were sent. None, and nothing taken, where it acknowledges
    /// none that were.
    #[inline(always)]
    pub fn advance_in_order(&mut self, next: u32) -> Option<(Time, Time)> {
        let first_sent_at = self.sent.head()?.sent_at;
        let last_sent_at = self.sent.get(next.checked_sub(1)?)?.sent_at;
        self.sent.advance(next);
        Some((first_sent_at, last_sent_at))
    }

    /// Takes an ACK; `deliver` is told of each packet that it reports for the first time, those of
    /// SACK blocks first.
    pub fn update(&mut self, ack: &Ack, mut deliver: impl FnMut(Delivery)) {
        let highest = self.highest_sacked();
        if !ack.blocks.is_empty() {
            let mut blocks = [(0, 0); MAX_BLOCKS];
            let blocks = &mut blocks[..ack.blocks.len()];
            blocks.copy_from_slice(ack.blocks);
            blocks.sort_unstable();
            for &(start, end) in &*blocks {
                self.mark_block(
                    start.max(self.sent.una()),
                    end.min(self.end()),
                    &mut deliver,
                );
            }
        }
        for seq in self.sent.una()..ack.next {
            let Some(&sent) = self.sent.get(seq) else {
                break;
            };
            if sent.sacked {
                self.sacked_out -= 1;
            } else {
                deliver(Delivery {
                    seq,
                    sent,
                    by_sack: false,
                    behind_pkts: highest.map_or(0, |highest| highest.saturating_sub(seq)),
                });
            }
            self.lost_out -= u32::from(sent.lost);
            self.retrans_out -= u32::from(sent.retransmitted);
        }
        if ack.next > self.sent.una() {
            self.sent.advance(ack.next);
            while let Some(first) = self.sacked.first_mut() {
                if first.1 > ack.next {
                    first.0 = first.0.max(ack.next);
                    break;
                }
                self.sacked.remove(0);
            }
        }
    }

    /// Joins a block with the known ones and marks what was not known, so that work is in
    /// proportion to the report.
    fn mark_block(&mut self, start: u32, end: u32, deliver: &mut impl FnMut(Delivery)) {
        if start >= end {
            return;
        }
        let highest = self.highest_sacked();
        let from = self.sacked.partition_point(|&(_, known)| known < start);
        let (mut to, mut next, mut joined) = (from, start, (start, end));
        while let Some(&(s, e)) = self.sacked.get(to).filter(|&&(s, _)| s <= end) {
            self.mark_sacked(next, s, highest, deliver);
            next = next.max(e);
            joined = (joined.0.min(s), joined.1.max(e));
            to += 1;
        }
        self.mark_sacked(next, end, highest, deliver);
        if from == to {
            self.sacked.insert(from, joined);
        } else {
            self.sacked[from] = joined;
            if to > from + 1 {
                self.sacked.drain(from + 1..to);
            }
        }
    }

    fn mark_sacked(
        &mut self,
        start: u32,
        end: u32,
        highest: Option<u32>,
        deliver: &mut impl FnMut(Delivery),
    ) {
        for seq in start..end {
            let Some(sent) = self.sent.get_mut(seq) else {
                return;
            };
            let before = *sent;
            (sent.sacked, sent.lost, sent.retransmitted) = (true, false, false);
            self.sacked_out += 1;
            self.lost_out -= u32::from(before.lost);
            self.retrans_out -= u32::from(before.retransmitted);
            deliver(Delivery {
                seq,
                sent: before,
                by_sack: true,
                behind_pkts: highest.map_or(0, |highest| highest.saturating_sub(seq)),
            });
        }
    }

    /// Counts a packet as lost, and its copy as well if it was sent again. True if that is new.
    pub fn mark_lost(&mut self, seq: u32) -> bool {
        let Some(sent) = self.sent.get_mut(seq) else {
            return false;
        };
        if sent.sacked || (sent.lost && !sent.retransmitted) {
            return false;
        }
        let before = *sent;
        (sent.lost, sent.retransmitted) = (true, false);
        self.lost_out += u32::from(!before.lost);
        self.retrans_out -= u32::from(before.retransmitted);
        self.total_lost += 1;
        self.retransmit_hint = self.retransmit_hint.min(seq);
        true
    }

    /// Nothing is lost after all, for a timeout was too early. (The kernel goes on counting
    /// copies that are under way.)
    pub fn unmark_lost(&mut self) {
        self.sent
            .for_each(|sent| (sent.lost, sent.retransmitted) = (false, false));
        (self.lost_out, self.retrans_out) = (0, 0);
    }

    /// The first packet that is lost and not sent again.
    pub fn next_to_retransmit(&mut self) -> Option<u32> {
        if self.retrans_out >= self.lost_out {
            return None;
        }
        self.retransmit_hint = self.retransmit_hint.max(self.sent.una());
        while let Some(sent) = self.sent.get(self.retransmit_hint) {
            if sent.lost && !sent.retransmitted {
                return Some(self.retransmit_hint);
            }
            self.retransmit_hint += 1;
        }
        None
    }

    /// A packet was sent again; a probe's copy leaves the count of what is in flight alone.
    pub fn mark_retransmitted(&mut self, seq: u32, now: Time, probe: bool) {
        let Some(sent) = self.sent.get_mut(seq) else {
            return;
        };
        sent.sent_at = now;
        sent.ever_retransmitted = true;
        self.retrans_end = self.retrans_end.max(seq + 1);
        if !probe && !sent.retransmitted {
            sent.retransmitted = true;
            self.retrans_out += 1;
        }
        self.retransmissions.push_back((now, seq));
    }
}
