//! The receiving end of a connection: reassembly, cumulative and selective acknowledgement,
//! delayed ACKs, and the echo of ECN marks.

use forebay_core::Ecn;
use smallvec::SmallVec;

use crate::packet::{Flags, Packet};

/// SACK blocks in one ACK (RFC 2018 section 3 with no other option; ns-2 sends 3 too).
pub const MAX_BLOCKS: usize = 3;

/// [start, end) of packets held out of order, most recently changed first.
pub type Block = (u32, u32);

/// When a receiver acknowledges.
#[derive(Clone, Copy, Debug)]
pub struct AckPolicy {
    /// Every second packet, or after `delay_ns` (RFC 5681 section 4.2).
    pub delayed: bool,
    pub delay_ns: u64,
    /// Number of initial ACKs that are not delayed (Linux's quick ACKs).
    pub quick: u8,
    /// ACKs carry the number of marked packets (RFC 9768).
    pub counts_marks: bool,
    /// And leave at once where marks end, too (RFC 8257 section 3.2).
    pub echoes_changes: bool,
}

/// ACKs that are not delayed after a mark, where a receiver has quick ACKs: the sender's window
/// may be small.
const QUICK_AFTER_MARK: u8 = 2;

/// A receiver's state.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub struct Receiver {
    /// In-order bytes delivered within the window of measurement.
    pub delivered_bytes: u64,
    /// Those delivered before and after it.
    pub outside_bytes: u64,
    /// When a delayed ACK is due; `u64::MAX` if none waits.
    pub ack_due: u64,
    /// Out-of-order data, most recently changed first, as SACK wants it (RFC 2018 section 4).
    held: SmallVec<[Block; 2]>,
    next: u32,
    connection: u16,
    /// A mark was seen and the sender has not answered with CWR.
    echo: bool,
    /// ACKs left that are not delayed.
    quick: u8,
    /// Marked packets of this connection.
    ce_pkts: u32,
    /// The last packet was marked.
    last_ce: bool,
}

/// Reply to an arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Send an ACK now.
    Now,
    /// Wait for one more packet, or until `ack_due`.
    Later,
    /// It belongs to an earlier connection.
    Stale,
}

impl Receiver {
    /// Bytes were delivered, within the window of measurement or outside of it.
    #[inline(always)]
    pub fn count(&mut self, bytes: u64, in_window: bool) {
        if in_window {
            self.delivered_bytes += bytes;
        } else {
            self.outside_bytes += bytes;
        }
    }

    pub fn new() -> Receiver {
        Receiver {
            delivered_bytes: 0,
            outside_bytes: 0,
            ack_due: u64::MAX,
            held: SmallVec::new(),
            next: 0,
            connection: 0,
            echo: false,
            quick: 0,
            ce_pkts: 0,
            last_ce: false,
        }
    }

    /// Forgets everything for a new connection, but not what was delivered.
    pub fn reset(&mut self, connection: u16) {
        self.held.clear();
        self.next = 0;
        self.connection = connection;
        self.echo = false;
        self.ack_due = u64::MAX;
        self.ce_pkts = 0;
        self.last_ce = false;
    }

    pub fn connection(&self) -> u16 {
        self.connection
    }

    /// Number of the packet expected next.
    pub fn next(&self) -> u32 {
        self.next
    }

    /// Out-of-order data, for SACK.
    pub fn blocks(&self) -> &[Block] {
        &self.held[..self.held.len().min(MAX_BLOCKS)]
    }

    /// Marked packets of this connection, for an ACK that carries their number. All packets of
    /// a connection are of one size, so the number of bytes follows.
    pub fn ce_pkts(&self) -> u32 {
        self.ce_pkts
    }

    /// ECE for the next ACK.
    pub fn echo(&self) -> bool {
        self.echo
    }

    /// Whether an ACK that waits leaves before this packet is taken: it tells of packets that were
    /// marked, or were not, and the next one of the others (RFC 8257 section 3.2).
    #[inline]
    pub fn ends_run(&self, packet: &Packet, acks: &AckPolicy) -> bool {
        acks.echoes_changes
            && self.ack_due != u64::MAX
            && (packet.traffic_class.ecn() == Ecn::Ce) != self.last_ce
            && packet.connection == self.connection
    }

    /// Takes a data packet at `now`; returns the reply and how many packets of data became
    /// deliverable.
    #[inline(always)]
    pub fn receive(&mut self, now: u64, packet: &Packet, acks: &AckPolicy) -> (Reply, u32) {
        if packet.connection != self.connection {
            return (Reply::Stale, 0);
        }
        if self.is_told_by(packet) {
            let ce = packet.traffic_class.ecn() == Ecn::Ce;
            return self.heed(now, packet.seq, packet.flags, ce, acks);
        }
        self.take(now, packet.seq, true, acks)
    }

    /// Puts a packet of the connection to the others; its ACK may wait where `patient`.
    #[inline(always)]
    fn take(&mut self, now: u64, seq: u32, patient: bool, acks: &AckPolicy) -> (Reply, u32) {
        let fills_gap = !self.held.is_empty();
        let delivered = if seq == self.next && !fills_gap {
            self.next += 1;
            1
        } else {
            self.reassemble(seq)
        };
        // Gaps and every second packet are acknowledged at once (RFC 5681 section 4.2).
        let may_wait = acks.delayed
            && patient
            && seq + 1 == self.next
            && !fills_gap
            && self.ack_due == u64::MAX;
        if may_wait {
            self.ack_due = now + acks.delay_ns;
            return (Reply::Later, delivered);
        }
        self.ack_due = u64::MAX;
        (Reply::Now, delivered)
    }

    /// Whether a packet says more than its number, or what came before it did.
    #[inline(always)]
    fn is_told_by(&self, packet: &Packet) -> bool {
        packet.flags != Flags::default()
            || packet.traffic_class.ecn() == Ecn::Ce
            || self.last_ce
            || self.quick > 0
            || packet.seq == 0
    }

    /// Takes such a packet: its ACK may have to leave at once.
    #[inline(never)]
    fn heed(
        &mut self,
        now: u64,
        seq: u32,
        flags: Flags,
        ce: bool,
        acks: &AckPolicy,
    ) -> (Reply, u32) {
        let syn = seq == 0;
        if syn {
            self.quick = acks.quick;
        } else if ce && !self.echo && acks.quick > 0 && !acks.counts_marks {
            self.quick = self.quick.max(QUICK_AFTER_MARK);
        }
        // A sender that has reduced its window may wait for this very ACK (`tcp_ecn_accept_cwr` of
        // include/net/tcp_ecn.h; a count of marks has no CWR).
        let reduced =
            acks.quick > 0 && flags.ecn_signal() && (!acks.counts_marks || acks.echoes_changes);
        self.update_echo(ce, flags);
        // The first mark behind packets without is reported at once (RFC 9768 section 3.2.2.5.1),
        // and where DCTCP asks for it the first packet behind them (RFC 8257 section 3.2).
        let marks_change = acks.counts_marks && ce != self.last_ce && (ce || acks.echoes_changes);
        self.last_ce = ce;
        // An application that has read all of a write has its ACK sent (`tcp_cleanup_rbuf`).
        let pushed = acks.quick > 0 && flags.push();
        let quick = self.quick > 0;
        self.quick = self.quick.saturating_sub(u8::from(!syn));
        let patient = !(syn || quick || marks_change || reduced || pushed);
        let (reply, delivered) = self.take(now, seq, patient, acks);
        // The SYN carries no data.
        (reply, delivered - u32::from(syn && delivered > 0))
    }

    /// ECE is sent until the sender says CWR; a mark on that same packet counts anew
    /// (RFC 3168 section 6.1.3).
    fn update_echo(&mut self, ce: bool, flags: Flags) {
        if flags.ecn_signal() {
            self.echo = false;
        }
        if ce {
            self.ce_pkts += 1;
            self.echo = true;
        }
    }

    /// Puts a packet to those that are held; returns how many are in order now that were not.
    #[inline(never)]
    fn reassemble(&mut self, seq: u32) -> u32 {
        let before = self.next;
        if seq == self.next {
            self.next += 1;
            let next = self.next;
            if let Some(i) = self.held.iter().position(|&(start, _)| start == next) {
                self.next = self.held.remove(i).1;
            }
        } else if seq > self.next {
            // Behind the only block, as a rule.
            if let [(_, end)] = self.held.as_mut_slice() {
                if *end == seq {
                    *end += 1;
                    return 0;
                }
            }
            let (mut start, mut end) = (seq, seq + 1);
            self.held.retain(|&mut (s, e)| {
                let touches = s <= end && start <= e;
                if touches {
                    start = start.min(s);
                    end = end.max(e);
                }
                !touches
            });
            self.held.insert(0, (start, end));
        }
        self.next - before
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::{BlocksAndHost, NO_BLOCKS};
    use forebay_core::TrafficClass;

    fn data(seq: u32) -> Packet {
        Packet {
            flow: 0,
            seq,
            blocks_and_host: BlocksAndHost::new(NO_BLOCKS, 0),
            bytes: 1000,
            connection: 0,
            traffic_class: TrafficClass::default(),
            flags: Flags::default(),
            station: 0,
            traffic: 0,
        }
    }

    const AT_ONCE: AckPolicy = AckPolicy {
        delayed: false,
        delay_ns: 100_000_000,
        quick: 0,
        counts_marks: false,
        echoes_changes: false,
    };
    const DELAYED: AckPolicy = AckPolicy {
        delayed: true,
        ..AT_ONCE
    };

    fn receive(r: &mut Receiver, seq: u32) -> (Reply, u32) {
        r.receive(0, &data(seq), &AT_ONCE)
    }

    #[test]
    fn gaps_are_held_and_filled() {
        let mut r = Receiver::new();
        assert_eq!(receive(&mut r, 0), (Reply::Now, 0));
        for seq in [2, 5, 3, 7] {
            assert_eq!(receive(&mut r, seq), (Reply::Now, 0));
            assert_eq!(r.next(), 1);
        }
        // Most recently changed first.
        assert_eq!(r.blocks(), [(7, 8), (2, 4), (5, 6)]);
        assert_eq!(receive(&mut r, 1), (Reply::Now, 3));
        assert_eq!(r.next(), 4);
        assert_eq!(receive(&mut r, 4), (Reply::Now, 2));
        // Twice the same: acknowledged, not delivered again.
        assert_eq!(receive(&mut r, 4), (Reply::Now, 0));
        assert_eq!(receive(&mut r, 7), (Reply::Now, 0));
        assert_eq!((r.next(), r.blocks()), (6, &[(7, 8)][..]));
    }

    #[test]
    fn a_block_between_two_joins_them() {
        let mut r = Receiver::new();
        for seq in [2, 4, 3] {
            receive(&mut r, seq);
        }
        assert_eq!(r.blocks(), [(2, 5)]);
    }

    #[test]
    fn every_second_packet_is_acknowledged_when_delaying() {
        let mut r = Receiver::new();
        let replies: Vec<Reply> = [0, 1, 2, 3, 5, 4, 6]
            .iter()
            .map(|&seq| r.receive(0, &data(seq), &DELAYED).0)
            .collect();
        use Reply::{Later, Now};
        // The SYN at once; 1 waits, 2 releases; 3 waits, the gap at 5 releases; filling it too.
        assert_eq!(replies, [Now, Later, Now, Later, Now, Now, Later]);
    }

    #[test]
    fn quick_acks_come_first_after_a_mark_and_after_its_answer() {
        use Reply::{Later, Now};
        let quick = AckPolicy {
            quick: 3,
            ..DELAYED
        };
        let mut r = Receiver::new();
        let mut replies = |seqs: std::ops::Range<u32>| -> Vec<Reply> {
            seqs.map(|seq| {
                let mut packet = data(seq);
                packet
                    .traffic_class
                    .set_ecn(if seq == 7 { Ecn::Ce } else { Ecn::Ect0 });
                r.receive(0, &packet, &quick).0
            })
            .collect()
        };
        assert_eq!(replies(0..7), [Now, Now, Now, Now, Later, Now, Later]);
        // The mark on 7, and one more.
        assert_eq!(replies(7..11), [Now, Now, Later, Now]);
        // The sender says that it has reduced its window.
        let mut answer = data(11);
        answer.flags = Flags::of_tcp(true);
        assert_eq!(r.receive(0, &answer, &quick).0, Now);
        assert_eq!(r.receive(0, &data(12), &quick).0, Later);
    }

    #[test]
    fn the_end_of_a_write_is_acknowledged_at_once() {
        use Reply::{Later, Now};
        let linux = AckPolicy {
            quick: 1,
            ..DELAYED
        };
        let replies = |policy| {
            let mut r = Receiver::new();
            let reply = |seq| {
                let mut packet = data(seq);
                packet.flags = Flags::of_tcp(false).with_push(seq == 4 || seq == 7);
                r.receive(0, &packet, &policy).0
            };
            (0..9).map(reply).collect::<Vec<_>>()
        };
        // 4 would wait; 7 acknowledges 6 as well, and 8 waits as it would have.
        let all = [Now, Now, Later, Now, Now, Later, Now, Now, Later];
        assert_eq!(replies(linux), all);
        // ns-2's receiver does not look at it.
        let all = [Now, Later, Now, Later, Now, Later, Now, Later, Now];
        assert_eq!(replies(DELAYED), all);
    }

    #[test]
    fn an_ack_that_waits_leaves_before_marks_change() {
        let dctcp = AckPolicy {
            counts_marks: true,
            echoes_changes: true,
            ..DELAYED
        };
        let mut r = Receiver::new();
        let mut take = |seq, ecn| {
            let mut packet = data(seq);
            packet.traffic_class = TrafficClass::new(0, ecn);
            let ends = r.ends_run(&packet, &dctcp);
            r.receive(0, &packet, &dctcp);
            ends
        };
        // 1 waits as 2 comes with a mark; 3 waits behind its like; 4 has none.
        let marks = [Ecn::Ect1, Ecn::Ect1, Ecn::Ce, Ecn::Ce, Ecn::Ect1, Ecn::Ce];
        let all: Vec<bool> = (0..6).map(|i| take(i, marks[i as usize])).collect();
        assert_eq!(all, [false, false, true, false, true, false]);
    }

    #[test]
    fn marks_are_echoed_until_the_sender_answers() {
        let mut r = Receiver::new();
        let mut marked = data(0);
        marked.traffic_class.set_ecn(Ecn::Ce);
        r.receive(0, &marked, &AT_ONCE);
        assert!(r.echo());
        receive(&mut r, 1);
        assert!(r.echo());
        let mut answer = data(2);
        answer.flags = Flags::of_tcp(true);
        r.receive(0, &answer, &AT_ONCE);
        assert!(!r.echo());
    }

    #[test]
    fn marks_are_counted_and_the_first_is_not_delayed() {
        use Reply::{Later, Now};
        let counting = AckPolicy {
            counts_marks: true,
            ..DELAYED
        };
        let replies_of = |policy: AckPolicy| {
            let mut r = Receiver::new();
            let reply = |seq| {
                let mut packet = data(seq);
                let ecn = match seq {
                    3..=5 => Ecn::Ce,
                    _ => Ecn::Ect1,
                };
                packet.traffic_class = TrafficClass::new(0, ecn);
                (r.receive(0, &packet, &policy).0, r.ce_pkts())
            };
            (0..8).map(reply).collect::<Vec<_>>()
        };
        let replies = replies_of(counting);
        let want = [
            (Now, 0),
            (Later, 0),
            (Now, 0),
            // The first mark at once, the second with the third.
            (Now, 1),
            (Later, 2),
            (Now, 3),
            (Later, 3),
            (Now, 3),
        ];
        assert_eq!(replies, want);
        // The end of the marks too, where DCTCP asks for it.
        let dctcp = replies_of(AckPolicy {
            echoes_changes: true,
            ..counting
        });
        assert_eq!(dctcp[..6], want[..6]);
        assert_eq!(dctcp[6..], [(Now, 3), (Later, 3)]);
        // A copy is counted like any packet.
        let mut r = Receiver::new();
        let mut copy = data(5);
        copy.traffic_class = TrafficClass::new(0, Ecn::Ce);
        for count in 1..=2 {
            r.receive(0, &copy, &counting);
            assert_eq!(r.ce_pkts(), count);
        }
        r.reset(1);
        assert_eq!(r.ce_pkts(), 0);
    }

    #[test]
    fn packets_of_an_earlier_connection_are_ignored() {
        let mut r = Receiver::new();
        r.reset(1);
        assert_eq!(receive(&mut r, 0), (Reply::Stale, 0));
    }
}
