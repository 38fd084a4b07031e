//! The scoreboard of a Linux sender: the state of each packet that was sent and is not
//! acknowledged.

use std::collections::VecDeque;

use forebay_units::Time;

use super::sequence_ring::SequenceRing;
use crate::tcp::connection::Ack;
use crate::tcp::receiver::{Block, MAX_BLOCKS};

/// The state of a packet that is under way or that the receiver holds out of order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SentPacket {
    /// The time at which it was last sent.
    pub sent_at: Time,
    /// True if a SACK block has reported it.
    pub sacked: bool,
    /// True if it was marked lost: the last copy, or with `retransmitted` the copy before the last.
    pub lost: bool,
    /// True if it was sent again since it was marked lost.
    pub retransmitted: bool,
    /// True if it was sent more than once, so that an ACK may be for either copy.
    pub ever_retransmitted: bool,
}

/// A packet that an ACK reports for the first time.
#[derive(Clone, Copy, Debug)]
pub struct Delivery {
    /// The number of the packet.
    pub seq: u32,
    /// The state of the packet before the ACK.
    pub sent: SentPacket,
    /// True if a SACK block reports it, false if the ACK's number does.
    pub by_sack: bool,
    /// Distance in packets to the highest packet that had arrived before; zero in order.
    pub behind_pkts: u32,
}

/// The packets from the first unacknowledged one to the last sent.
#[derive(Clone, Debug, Default)]
pub struct Scoreboard {
    sent: SequenceRing<SentPacket>,
    /// Ranges [start, end) of packets that have arrived out of order, sorted.
    sacked: Vec<Block>,
    /// Number of packets that have arrived out of order.
    sacked_out: u32,
    /// Number of packets marked lost, retransmitted or not.
    lost_out: u32,
    /// Number of retransmissions thought to be under way.
    retrans_out: u32,
    /// One past the highest packet that was ever retransmitted.
    retrans_end: u32,
    /// Number of losses so far; a packet counts each time that it was marked lost.
    total_lost: u64,
    /// No packet below this number waits for its retransmission.
    retransmit_hint: u32,
    /// RACK has judged the first copies of all packets below this number.
    pub rack_done: u32,
    /// Retransmissions in order of time; some entries are outdated.
    pub retransmissions: VecDeque<(Time, u32)>,
}

impl Scoreboard {
    /// Returns the first packet that is not acknowledged.
    #[inline(always)]
    pub fn una(&self) -> u32 {
        self.sent.una()
    }

    /// Returns the number of the next new packet.
    pub fn end(&self) -> u32 {
        self.sent.next()
    }

    /// Returns the number of packets that were sent and are not acknowledged by number.
    #[inline(always)]
    pub fn packets_out(&self) -> u32 {
        self.sent.len()
    }

    /// Returns the number of packets that have arrived out of order.
    #[inline(always)]
    pub fn sacked_out(&self) -> u32 {
        self.sacked_out
    }

    /// Returns the number of packets marked lost, retransmitted or not.
    #[inline(always)]
    pub fn lost_out(&self) -> u32 {
        self.lost_out
    }

    /// Returns the number of retransmissions thought to be under way.
    #[inline(always)]
    pub fn retrans_out(&self) -> u32 {
        self.retrans_out
    }

    /// Returns the number of losses of the connection so far.
    pub fn total_lost(&self) -> u64 {
        self.total_lost
    }

    /// Returns the estimated number of packets in the network (RFC 6675's pipe).
    #[inline(always)]
    pub fn in_flight(&self) -> u32 {
        self.packets_out() - self.sacked_out - self.lost_out + self.retrans_out
    }

    /// Returns the state of a packet that is not acknowledged by number.
    #[inline(always)]
    pub fn get(&self, seq: u32) -> Option<&SentPacket> {
        self.sent.get(seq)
    }

    /// Returns the state of the first packet that is not acknowledged.
    #[inline(always)]
    pub fn head(&self) -> Option<&SentPacket> {
        self.sent.head()
    }

    /// Returns the highest packet that has arrived out of order.
    pub fn highest_sacked(&self) -> Option<u32> {
        self.sacked.last().map(|&(_, end)| end - 1)
    }

    /// Adds a new packet that is sent at `now`.
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

    /// Returns true if every packet under way was sent once, and none is marked lost or has arrived
    /// out of order.
    #[inline(always)]
    pub fn is_in_order(&self) -> bool {
        self.sacked_out | self.lost_out | self.retrans_out == 0
            && self.retrans_end <= self.sent.una()
    }

    /// Takes an ACK without SACK blocks for packets that [are in order](Self::is_in_order).
    ///
    /// Returns the times at which the first and the last acknowledged packet were sent. `None`, and
    /// no change, if the ACK acknowledges no packet that was sent.
    #[inline(always)]
    pub fn advance_in_order(&mut self, next: u32) -> Option<(Time, Time)> {
        let first_sent_at = self.sent.head()?.sent_at;
        let last_sent_at = self.sent.get(next.checked_sub(1)?)?.sent_at;
        self.sent.advance(next);
        Some((first_sent_at, last_sent_at))
    }

    /// Takes an ACK. Calls `deliver` for each packet that it reports for the first time, beginning
    /// with those of SACK blocks.
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

    /// Merges a block into the known ones and marks the packets that are new in it. The work is
    /// proportional to the block's news.
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

    /// Marks the packets in [start, end) as arrived out of order and reports them to `deliver`.
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

    /// Marks a packet as lost, or its retransmission if there was one. True if that is new.
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

    /// Withdraws all marks of loss after a spurious timeout. (The kernel keeps counting
    /// retransmissions under way.)
    pub fn unmark_lost(&mut self) {
        self.sent
            .for_each(|sent| (sent.lost, sent.retransmitted) = (false, false));
        (self.lost_out, self.retrans_out) = (0, 0);
    }

    /// Returns the first packet that is marked lost and not retransmitted.
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

    /// Takes note that a packet was retransmitted at `now`. A probe does not enter the number in
    /// flight.
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
