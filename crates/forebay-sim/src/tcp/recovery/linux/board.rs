//! What a Linux sender knows of each packet that it has sent and that is not acknowledged yet.

use std::collections::VecDeque;

use crate::number::count;
use crate::tcp::connection::Ack;
use crate::tcp::receiver::{Block, MAX_BLOCKS};

/// A packet under way, or held by the receiver out of order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// When it was last sent.
    pub at_ns: u64,
    /// The receiver has it (SACK).
    pub sacked: bool,
    /// The copy before the last is thought lost, or the last where `resent` is false.
    pub lost: bool,
    /// Sent again since it was thought lost.
    pub resent: bool,
    /// Sent more than once: what it is acknowledged for is ambiguous.
    pub ever_resent: bool,
}

/// What an ACK reports of one packet.
#[derive(Clone, Copy, Debug)]
pub struct Delivery {
    pub seq: u32,
    /// As the packet was before the ACK.
    pub sent: Sent,
    /// By SACK block; else by number.
    pub by_sack: bool,
    /// How far it was behind the highest packet known to have arrived; zero in order.
    pub behind_pkts: u32,
}

/// The packets from the first unacknowledged one to the last sent.
#[derive(Clone, Debug, Default)]
pub struct Board {
    una: u32,
    sent: VecDeque<Sent>,
    /// [start, end) of what has arrived out of order, in order.
    sacked: Vec<Block>,
    sacked_out: u32,
    lost_out: u32,
    resent_out: u32,
    /// Packets ever thought lost, each as often as it was.
    lost_in_all: u64,
    /// No packet below waits to be sent again.
    hint: u32,
    /// RACK is done with first copies below this.
    pub settled: u32,
    /// Later copies, in order of time; some are outdated.
    pub copies: VecDeque<(u64, u32)>,
}

impl Board {
    /// Number of the next new packet.
    pub fn end(&self) -> u32 {
        self.una + count(self.sent.len())
    }

    /// Packets sent and not acknowledged by number.
    pub fn packets_out(&self) -> u32 {
        count(self.sent.len())
    }

    pub fn sacked_out(&self) -> u32 {
        self.sacked_out
    }

    /// Packets thought lost, sent again or not.
    pub fn lost_out(&self) -> u32 {
        self.lost_out
    }

    /// Packets sent again and still thought under way.
    pub fn resent_out(&self) -> u32 {
        self.resent_out
    }

    /// Losses of the connection so far.
    pub fn lost_in_all(&self) -> u64 {
        self.lost_in_all
    }

    /// Packets in the network (RFC 6675's pipe).
    pub fn in_flight(&self) -> u32 {
        self.packets_out() - self.sacked_out - self.lost_out + self.resent_out
    }

    pub fn get(&self, seq: u32) -> Option<&Sent> {
        self.sent.get(seq.checked_sub(self.una)? as usize)
    }

    fn get_mut(&mut self, seq: u32) -> Option<&mut Sent> {
        self.sent.get_mut(seq.checked_sub(self.una)? as usize)
    }

    /// The first packet not acknowledged.
    pub fn head(&self) -> Option<&Sent> {
        self.sent.front()
    }

    /// Highest packet known to have arrived out of order.
    fn highest_sacked(&self) -> Option<u32> {
        self.sacked.last().map(|&(_, end)| end - 1)
    }

    /// A new packet was sent.
    pub fn push(&mut self, now: u64) {
        self.sent.push_back(Sent {
            at_ns: now,
            sacked: false,
            lost: false,
            resent: false,
            ever_resent: false,
        });
    }

    /// Takes an ACK; `deliver` is told of each packet that it reports for the first time, those of
    /// SACK blocks first.
    pub fn take(&mut self, ack: &Ack, mut deliver: impl FnMut(Delivery)) {
        let highest = self.highest_sacked();
        if !ack.blocks.is_empty() {
            let mut blocks = [(0, 0); MAX_BLOCKS];
            let blocks = &mut blocks[..ack.blocks.len()];
            blocks.copy_from_slice(ack.blocks);
            blocks.sort_unstable();
            for &(start, end) in &*blocks {
                self.take_block(start.max(self.una), end.min(self.end()), &mut deliver);
            }
        }
        while self.una < ack.next {
            let Some(sent) = self.sent.pop_front() else {
                self.una = ack.next;
                break;
            };
            let seq = self.una;
            self.una += 1;
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
            self.resent_out -= u32::from(sent.resent);
        }
        let una = self.una;
        self.hint = self.hint.max(una);
        self.settled = self.settled.max(una);
        self.sacked.retain(|&(_, end)| end > una);
        if let Some(first) = self.sacked.first_mut() {
            first.0 = first.0.max(una);
        }
    }

    /// Joins a block with the known ones and marks what was not known, so that work is in
    /// proportion to the news.
    fn take_block(&mut self, start: u32, end: u32, deliver: &mut impl FnMut(Delivery)) {
        if start >= end {
            return;
        }
        let from = self.sacked.partition_point(|&(_, e)| e < start);
        let to = from + self.sacked[from..].partition_point(|&(s, _)| s <= end);
        let mut next = start;
        for i in from..to {
            let (s, e) = self.sacked[i];
            self.mark_sacked(next, s, deliver);
            next = next.max(e);
        }
        self.mark_sacked(next, end, deliver);
        let joined = match &self.sacked[from..to] {
            [] => (start, end),
            [first, ..] => (first.0.min(start), next.max(end)),
        };
        self.sacked.splice(from..to, [joined]);
    }

    fn mark_sacked(&mut self, start: u32, end: u32, deliver: &mut impl FnMut(Delivery)) {
        for seq in start..end {
            let highest = self.highest_sacked();
            let Some(sent) = self.get_mut(seq) else {
                return;
            };
            let before = *sent;
            (sent.sacked, sent.lost, sent.resent) = (true, false, false);
            self.sacked_out += 1;
            self.lost_out -= u32::from(before.lost);
            self.resent_out -= u32::from(before.resent);
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
        let Some(sent) = self.get_mut(seq) else {
            return false;
        };
        if sent.sacked || (sent.lost && !sent.resent) {
            return false;
        }
        let before = *sent;
        (sent.lost, sent.resent) = (true, false);
        self.lost_out += u32::from(!before.lost);
        self.resent_out -= u32::from(before.resent);
        self.lost_in_all += 1;
        self.hint = self.hint.min(seq);
        true
    }

    /// Nothing is lost after all, for a timeout was too early. (The kernel goes on counting
    /// copies that are under way.)
    pub fn unmark_lost(&mut self) {
        for sent in &mut self.sent {
            (sent.lost, sent.resent) = (false, false);
        }
        (self.lost_out, self.resent_out) = (0, 0);
    }

    /// The first packet that is lost and not sent again.
    pub fn next_lost(&mut self) -> Option<u32> {
        if self.resent_out >= self.lost_out {
            return None;
        }
        while let Some(sent) = self.get(self.hint) {
            if sent.lost && !sent.resent {
                return Some(self.hint);
            }
            self.hint += 1;
        }
        None
    }

    /// A packet was sent again; a probe's copy leaves the count of what is in flight alone.
    pub fn resend(&mut self, seq: u32, now: u64, probe: bool) {
        let Some(sent) = self.get_mut(seq) else {
            return;
        };
        sent.at_ns = now;
        sent.ever_resent = true;
        if !probe && !sent.resent {
            sent.resent = true;
            self.resent_out += 1;
        }
        self.copies.push_back((now, seq));
    }
}
