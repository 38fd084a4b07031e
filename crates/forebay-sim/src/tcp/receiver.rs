//! The receiving end of a connection: reassembly, cumulative and selective acknowledgement,
//! delayed ACKs, and the echo of ECN marks.

use forebay_core::{Ecn, Span, Time};
use smallvec::SmallVec;

use super::stacks::timer_wheel;
use crate::packet::{Flags, Packet};

/// SACK blocks in one ACK (RFC 2018 section 3 with no other option; ns-2 sends 3 too).
pub const MAX_BLOCKS: usize = 3;

/// [start, end) of packets held out of order, most recently changed first.
pub type Block = (u32, u32);

/// When a receiver acknowledges.
#[derive(Clone, Copy, Debug)]
pub struct AckPolicy {
    /// Every second packet, or after `delay` (RFC 5681 section 4.2).
    pub delayed: bool,
    pub delay: Span,
    /// Number of initial ACKs that are not delayed (Linux's quick ACKs).
    pub quick: u8,
    /// ACKs carry the number of marked packets (RFC 9768).
    pub counts_marks: bool,
    /// And leave at once where marks end, too (RFC 8257 section 3.2).
    pub echoes_changes: bool,
}

impl AckPolicy {
    /// The least wait of a receiver that fits it to its packets, as Linux's does; zero where it is
    /// `delay` at all times.
    fn least_wait_ms(&self) -> u8 {
        match u8::try_from(self.delay.as_millis()) {
            Ok(ms) if self.quick > 0 && ms <= MOST_WAIT_MS => ms,
            _ => 0,
        }
    }
}

/// Longest wait of an ACK (`TCP_DELACK_MAX`).
const MOST_WAIT_MS: u8 = 200;
/// Packets as near to each other as this do not wait longer than at least (half of `TCP_ATO_MIN`).
const NEAR_MS: u16 = 20;
/// A receiver's timeout: before a round trip is known, and what it is longer at least.
const INITIAL_RTO_MS: u16 = 1000;
const LEAST_RTO_MARGIN_MS: u16 = 200;
/// The handshake's round trip is kept in so many ms.
const RTT_UNIT_MS: u16 = 8;

/// ACKs that are not delayed after a mark, where a receiver has quick ACKs: the sender's window
/// may be small.
const QUICK_AFTER_MARK: u8 = 2;

/// A mark was seen and the sender has not answered with CWR.
const ECHO: u8 = 1;
/// The last packet was marked.
const LAST_CE: u8 = 2;
/// A packet was ECN-capable.
const CAPABLE: u8 = 4;
/// One ACK for several packets behind a gap waits: `ack_due` is its time.
const COMPRESSED: u8 = 8;
/// ACKs that told of packets behind the gap since the edge moved last: the lowest bit of two.
const DUPLICATE: u8 = 16;
const DUPLICATES: u8 = 3 * DUPLICATE;

/// After so many duplicate ACKs (`TCP_FASTRETRANS_THRESH`) a receiver of Linux joins what they say
/// for a millisecond and the slack of its timer (`__tcp_ack_snd_check`; `tcp_comp_sack_delay_ns` and
/// `_slack`). Left out: below a round trip of 3 ms it is a third of that, and 44 packets end it.
const COMPRESSION: Span = Span::from_micros(1010);
/// A report of more blocks than so many is not joined with what it would push out
/// (`TCP_SACK_BLOCKS_EXPECTED`).
const EXPECTED_BLOCKS: usize = 2;

/// A receiver's state.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub struct Receiver {
    /// In-order bytes delivered within the window of measurement.
    pub delivered_bytes: u64,
    /// Those delivered before and after it.
    pub outside_bytes: u64,
    /// When a delayed ACK is due; [`Time::NEVER`] if none waits.
    pub ack_due: Time,
    /// Out-of-order data, most recently changed first, as SACK wants it (RFC 2018 section 4).
    held: SmallVec<[Block; 2]>,
    next: u32,
    connection: u16,
    /// What it has seen of ECN, and of gaps, as bits: the state is one cache line.
    seen: u8,
    /// ACKs left that are not delayed.
    quick: u8,
    /// Marked packets of this connection.
    ce_pkts: u32,
    /// When the last packet came in order, in ms; it comes round in 65 s.
    last_ms: u16,
    /// The handshake's round trip; zero if it is not known.
    rtt_8ms: u8,
    /// How long an ACK waits (the kernel's `ato`); zero before the first packet of data.
    wait_ms: u8,
}

/// Reply to an arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Send an ACK now.
    Now,
    /// Wait for one more packet, or until `ack_due`.
    Later,
    /// It belongs to an earlier connection, has no data, or the ACK that waits will tell of it.
    Nothing,
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
            ack_due: Time::NEVER,
            held: SmallVec::new(),
            next: 0,
            connection: 0,
            seen: 0,
            quick: 0,
            ce_pkts: 0,
            last_ms: 0,
            rtt_8ms: 0,
            wait_ms: 0,
        }
    }

    /// Forgets everything for a new connection, but not what was delivered.
    pub fn reset(&mut self, connection: u16) {
        self.held.clear();
        self.next = 0;
        self.connection = connection;
        self.seen = 0;
        self.ack_due = Time::NEVER;
        self.ce_pkts = 0;
        self.rtt_8ms = 0;
        self.wait_ms = 0;
    }

    /// The ACK that waits is due: when it was. One that nothing came to join may wait longer the next
    /// time (`tcp_delack_timer_handler`).
    pub fn take_due(&mut self) -> Time {
        if self.seen & COMPRESSED != 0 {
            self.set_seen(COMPRESSED, false);
            return std::mem::replace(&mut self.ack_due, Time::NEVER);
        }
        let longer = u16::from(self.wait_ms) * 2;
        self.wait_ms = self.bounded_wait_ms(longer);
        std::mem::replace(&mut self.ack_due, Time::NEVER)
    }

    /// The receiver's own timeout, which it has from the handshake alone.
    fn rto_ms(&self) -> u16 {
        match u16::from(self.rtt_8ms) * RTT_UNIT_MS {
            0 => INITIAL_RTO_MS,
            rtt_ms => rtt_ms + LEAST_RTO_MARGIN_MS.max(2 * rtt_ms),
        }
    }

    fn bounded_wait_ms(&self, ms: u16) -> u8 {
        u8::try_from(ms.min(self.rto_ms())).map_or(MOST_WAIT_MS, |ms| ms.min(MOST_WAIT_MS))
    }

    /// Takes note of when a packet comes in order (`tcp_event_data_recv`); the first one behind the
    /// SYN, with data or without and in order or not, ends the handshake, whose round trip it tells. After a silence of more than
    /// a timeout the sender's window is small, and ACKs do not wait for a while.
    #[inline(always)]
    fn note_interval(&mut self, now: Time, seq: u32, flags: Flags, acks: &AckPolicy, least_ms: u8) {
        let [low, high, ..] = now.as_millis().to_le_bytes();
        let now_ms = u16::from_le_bytes([low, high]);
        let gap_ms = now_ms.wrapping_sub(self.last_ms);
        self.last_ms = now_ms;
        if gap_ms <= NEAR_MS && self.wait_ms == least_ms {
            return;
        }
        self.fit_wait(gap_ms, seq, flags, acks, least_ms);
    }

    #[inline(never)]
    fn fit_wait(&mut self, gap_ms: u16, seq: u32, flags: Flags, acks: &AckPolicy, least_ms: u8) {
        if seq == 0 {
            return;
        }
        let wait_ms = u16::from(self.wait_ms);
        if wait_ms == 0 {
            if self.rtt_8ms == 0 {
                // A SYN+ACK that is sent again, after a second, tells no round trip.
                let known = gap_ms < INITIAL_RTO_MS;
                let units = (gap_ms + RTT_UNIT_MS / 2) / RTT_UNIT_MS;
                self.rtt_8ms =
                    u8::try_from(units.max(1)).map_or(0, |units| if known { units } else { 0 });
            }
            if seq == self.next && !flags.bare() {
                self.wait_ms = least_ms;
            } else if self.rtt_8ms == 0 {
                // Nor does what follows.
                self.last_ms = self.last_ms.wrapping_sub(gap_ms);
            }
        } else if gap_ms <= NEAR_MS {
            self.wait_ms = self.wait_ms / 2 + least_ms / 2;
        } else if gap_ms < wait_ms {
            self.wait_ms = self.bounded_wait_ms(wait_ms / 2 + gap_ms);
        } else if gap_ms > self.rto_ms() {
            self.quick = self.quick.max(acks.quick);
        }
    }

    /// How long an ACK waits that is held back now (`tcp_send_delayed_ack`).
    fn wait(&self, least_ms: u8) -> Span {
        let mut ms = u16::from(self.wait_ms);
        if self.wait_ms > least_ms && self.rtt_8ms > 0 {
            let rtt_ms = u16::from(self.rtt_8ms) * RTT_UNIT_MS;
            ms = ms.min(rtt_ms.max(least_ms.into()));
        }
        Span::from_millis(ms.into())
    }

    /// ACKs do not wait for a while (`tcp_enter_quickack_mode`).
    fn hurry(&mut self, acks: u8, policy: &AckPolicy) {
        self.quick = self.quick.max(acks);
        self.wait_ms = policy.least_wait_ms();
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
        self.seen & ECHO != 0
    }

    fn set_seen(&mut self, bit: u8, is: bool) {
        match is {
            true => self.seen |= bit,
            false => self.seen &= !bit,
        }
    }

    /// Whether an ACK that waits leaves before this packet is taken: it tells of packets that were
    /// marked, or were not, and the next one of the others (RFC 8257 section 3.2), or of blocks among
    /// which there is no place for it (`tcp_sack_new_ofo_skb`).
    #[inline]
    pub fn ends_run(&self, packet: &Packet, acks: &AckPolicy) -> bool {
        if self.ack_due == Time::NEVER || packet.connection != self.connection {
            return false;
        }
        let changes = acks.echoes_changes
            && (packet.traffic_class.ecn() == Ecn::Ce) != (self.seen & LAST_CE != 0);
        changes || self.seen & COMPRESSED != 0 && self.opens_block(packet.seq)
    }

    /// The ACK that told of several packets leaves now, before another packet is taken.
    pub fn end_compression(&mut self) {
        if self.seen & COMPRESSED != 0 {
            self.set_seen(COMPRESSED, false);
            self.ack_due = Time::NEVER;
        }
    }

    /// Whether a packet behind the gap joins none of the blocks that were changed last, of which there
    /// are some already.
    fn opens_block(&self, seq: u32) -> bool {
        let touches = |&(start, end): &Block| seq + 1 >= start && seq <= end;
        seq > self.next
            && self.held.len() >= EXPECTED_BLOCKS
            && !self.held[..EXPECTED_BLOCKS].iter().any(touches)
    }

    /// Takes a data packet at `now`; returns the reply and how many packets of data became
    /// deliverable.
    #[inline(always)]
    pub fn receive(&mut self, now: Time, packet: &Packet, acks: &AckPolicy) -> (Reply, u32) {
        if packet.connection != self.connection {
            return (Reply::Nothing, 0);
        }
        let least_ms = acks.least_wait_ms();
        if least_ms > 0 && packet.seq == self.next {
            self.note_interval(now, packet.seq, packet.flags, acks, least_ms);
        }
        if self.is_told_by(packet) {
            let ecn = packet.traffic_class.ecn();
            return self.heed(now, packet.seq, packet.flags, ecn, acks);
        }
        self.take(now, packet.seq, true, acks)
    }

    /// Puts a packet of the connection to the others; its ACK may wait where `patient`.
    #[inline(always)]
    fn take(&mut self, now: Time, seq: u32, patient: bool, acks: &AckPolicy) -> (Reply, u32) {
        let fills_gap = !self.held.is_empty();
        let behind_gap = seq > self.next;
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
            && self.ack_due == Time::NEVER;
        if may_wait {
            self.ack_due = match acks.least_wait_ms() {
                0 => now + acks.delay,
                least_ms => timer_wheel::expiry(now, self.wait(least_ms)),
            };
            return (Reply::Later, delivered);
        }
        if (behind_gap || fills_gap) && acks.delayed && acks.quick > 0 {
            if let Some(reply) = self.compress(now, delivered, patient) {
                return (reply, delivered);
            }
        }
        self.ack_due = Time::NEVER;
        (Reply::Now, delivered)
    }

    /// What becomes of the ACK of a packet that comes while others are held: none if it leaves now.
    #[inline(never)]
    fn compress(&mut self, now: Time, delivered: u32, patient: bool) -> Option<Reply> {
        let joins = patient && delivered <= 1 && !self.held.is_empty();
        if delivered > 0 {
            self.set_seen(DUPLICATES, false);
        }
        // One that leaves now tells what waited.
        if !joins {
            self.set_seen(COMPRESSED, false);
            return None;
        }
        if self.seen & COMPRESSED != 0 && delivered == 0 {
            return Some(Reply::Nothing);
        }
        if self.seen & DUPLICATES != DUPLICATES {
            self.set_seen(COMPRESSED, false);
            self.seen += DUPLICATE;
            return None;
        }
        self.set_seen(COMPRESSED, true);
        self.ack_due = now + COMPRESSION;
        Some(Reply::Later)
    }

    /// Whether a packet says more than its number, or what came before it did.
    #[inline(always)]
    fn is_told_by(&self, packet: &Packet) -> bool {
        packet.flags != Flags::default()
            || packet.traffic_class.ecn() == Ecn::Ce
            || self.seen & LAST_CE != 0
            || self.quick > 0
            || packet.seq == 0
            || packet.seq < self.next
            || self.seen & CAPABLE != 0 && packet.traffic_class.ecn() == Ecn::NotEct
    }

    /// Takes such a packet: its ACK may have to leave at once.
    #[inline(never)]
    fn heed(
        &mut self,
        now: Time,
        seq: u32,
        flags: Flags,
        ecn: Ecn,
        acks: &AckPolicy,
    ) -> (Reply, u32) {
        let least_ms = acks.least_wait_ms();
        // Until the first ACKs are sent every packet comes here.
        if least_ms > 0 && self.wait_ms == 0 && seq > self.next {
            self.note_interval(now, seq, flags, acks, least_ms);
        }
        if flags.bare() {
            return (Reply::Nothing, 0);
        }
        let syn = seq == 0;
        // A mark on a SYN is nobody's.
        let ce = ecn == Ecn::Ce && !syn;
        if syn {
            self.quick = acks.quick;
        } else if acks.quick > 0 {
            if seq < self.next {
                self.hurry(acks.quick, acks);
            }
            // One that is not ECN-capable among others that are has been sent again.
            let again = ecn == Ecn::NotEct && self.seen & CAPABLE != 0;
            // The mark on a packet that says CWR is the first of the next ones.
            let first_mark = ce && (!self.echo() || flags.ecn_signal());
            if again || first_mark && !acks.counts_marks {
                self.hurry(QUICK_AFTER_MARK, acks);
            }
        }
        if !syn && ecn != Ecn::NotEct {
            self.seen |= CAPABLE;
        }
        // A sender that has reduced its window may wait for this very ACK (`tcp_ecn_accept_cwr` of
        // include/net/tcp_ecn.h; a count of marks has no CWR).
        let reduced =
            acks.quick > 0 && flags.ecn_signal() && (!acks.counts_marks || acks.echoes_changes);
        self.update_echo(ce, flags);
        // The first mark behind packets without is reported at once (RFC 9768 section 3.2.2.5.1),
        // and where DCTCP asks for it the first packet behind them (RFC 8257 section 3.2).
        let marks_change =
            acks.counts_marks && ce != (self.seen & LAST_CE != 0) && (ce || acks.echoes_changes);
        self.set_seen(LAST_CE, ce);
        // An application that has read all of a write has its ACK sent (`tcp_cleanup_rbuf`).
        let pushed = acks.quick > 0 && flags.push();
        let quick = self.quick > 0;
        self.quick = self.quick.saturating_sub(u8::from(!syn));
        if quick && self.quick == 0 {
            self.wait_ms = acks.least_wait_ms();
        }
        let patient = !(syn || quick || marks_change || reduced || pushed);
        let (reply, delivered) = self.take(now, seq, patient, acks);
        // The SYN carries no data.
        (reply, delivered - u32::from(syn && delivered > 0))
    }

    /// ECE is sent until the sender says CWR; a mark on that same packet counts anew
    /// (RFC 3168 section 6.1.3).
    fn update_echo(&mut self, ce: bool, flags: Flags) {
        if flags.ecn_signal() {
            self.set_seen(ECHO, false);
        }
        if ce {
            self.ce_pkts += 1;
            self.set_seen(ECHO, true);
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
    use crate::tcp::testing::{at, MS};
    use forebay_core::TrafficClass;

    fn us(us: u64) -> Time {
        at(Span::from_micros(us))
    }

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
        delay: Span::from_millis(100),
        quick: 0,
        counts_marks: false,
        echoes_changes: false,
    };
    const DELAYED: AckPolicy = AckPolicy {
        delayed: true,
        ..AT_ONCE
    };

    fn receive(r: &mut Receiver, seq: u32) -> (Reply, u32) {
        r.receive(Time::ZERO, &data(seq), &AT_ONCE)
    }

    /// A receiver of Linux that waits for packet 10, with its quick ACKs used up.
    fn with_a_gap() -> Receiver {
        let mut r = Receiver::new();
        (0..10).for_each(|seq| {
            r.receive(Time::ZERO, &data(seq), &LINUX);
        });
        r
    }

    #[test]
    fn a_receiver_of_linux_joins_what_it_says_of_packets_behind_a_gap() {
        let mut r = with_a_gap();
        let mut take = |at, seq| {
            let (reply, _) = r.receive(at, &data(seq), &LINUX);
            (reply, r.ack_due)
        };
        // Three duplicate ACKs begin a recovery at once.
        for seq in 11..14 {
            assert_eq!(take(Time::ZERO, seq), (Reply::Now, Time::NEVER));
        }
        let due = us(500) + COMPRESSION;
        assert_eq!(take(us(500), 14), (Reply::Later, due));
        assert_eq!(take(us(600), 15), (Reply::Nothing, due));
        assert_eq!(r.take_due(), due);
        assert_eq!(r.blocks(), [(11, 16)]);
        // What fills the gap is told at once, with what waits.
        assert_eq!(r.receive(us(700), &data(17), &LINUX).0, Reply::Later);
        assert_eq!(r.receive(us(800), &data(10), &LINUX).0, Reply::Now);
        assert_eq!((r.ack_due, r.next()), (Time::NEVER, 16));
        // The edge has moved: three more duplicates leave at once.
        assert_eq!(r.receive(us(900), &data(18), &LINUX).0, Reply::Now);
    }

    #[test]
    fn joined_acks_do_not_tell_of_more_blocks_than_they_have_room_for() {
        let mut r = with_a_gap();
        for seq in [11, 13, 11, 13, 14] {
            r.receive(Time::ZERO, &data(seq), &LINUX);
        }
        assert!(r.ack_due < Time::NEVER);
        // One of both blocks goes on; another begins.
        assert!(!r.ends_run(&data(15), &LINUX));
        assert!(r.ends_run(&data(17), &LINUX));
        r.end_compression();
        assert_eq!(r.receive(Time::ZERO, &data(17), &LINUX).0, Reply::Later);
    }

    #[test]
    fn others_than_linux_acknowledge_every_packet_behind_a_gap() {
        let mut r = Receiver::new();
        for seq in (0..10).chain(11..20) {
            let (reply, _) = r.receive(Time::ZERO, &data(seq), &DELAYED);
            assert!(seq < 10 || reply == Reply::Now);
        }
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
            .map(|&seq| r.receive(Time::ZERO, &data(seq), &DELAYED).0)
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
                r.receive(Time::ZERO, &packet, &quick).0
            })
            .collect()
        };
        assert_eq!(replies(0..7), [Now, Now, Now, Now, Later, Now, Later]);
        // The mark on 7, and one more.
        assert_eq!(replies(7..11), [Now, Now, Later, Now]);
        // The sender says that it has reduced its window.
        let mut answer = data(11);
        answer.traffic_class.set_ecn(Ecn::Ect0);
        answer.flags = Flags::of_tcp(true);
        assert_eq!(r.receive(Time::ZERO, &answer, &quick).0, Now);
        let mut next = data(12);
        next.traffic_class.set_ecn(Ecn::Ect0);
        assert_eq!(r.receive(Time::ZERO, &next, &quick).0, Later);
        // One that is not ECN-capable among others is a repetition, and the next one's ACK does
        // not wait either.
        r.receive(Time::ZERO, &data(13), &quick);
        next.seq = 14;
        assert_eq!(r.receive(Time::ZERO, &next, &quick).0, Now);
        next.seq = 15;
        assert_eq!(r.receive(Time::ZERO, &next, &quick).0, Later);
    }

    #[test]
    fn a_mark_on_the_packet_that_answers_one_hurries_again() {
        use Reply::Now;
        let mut r = Receiver::new();
        let mut marked = data(0);
        r.receive(Time::ZERO, &marked, &LINUX);
        marked.traffic_class.set_ecn(Ecn::Ce);
        // As in a guest: two packets in flight, all marked, and CWR on each second one. No ACK waits.
        for seq in 1..9 {
            marked.seq = seq;
            marked.flags = Flags::of_tcp(seq % 2 == 0);
            assert_eq!(r.receive(Time::ZERO, &marked, &LINUX).0, Now, "{seq}");
        }
    }

    const LINUX: AckPolicy = AckPolicy {
        delayed: true,
        delay: Span::from_millis(40),
        quick: 1,
        ..AT_ONCE
    };

    /// A receiver whose handshake has taken so long, at this time, with no quick ACKs left.
    fn linux(rtt_ms: u64) -> Receiver {
        let mut r = Receiver::new();
        r.receive(Time::ZERO, &data(0), &LINUX);
        r.receive(at(rtt_ms * MS), &data(1), &LINUX);
        r
    }

    #[test]
    fn acks_do_not_wait_after_a_silence() {
        use Reply::{Later, Now};
        // A timeout of 60 and 200 ms.
        for (gap_ms, reply) in [(250, Later), (270, Now)] {
            let mut r = linux(60);
            let now = at((60 + gap_ms) * MS);
            assert_eq!(r.receive(now, &data(2), &LINUX).0, reply, "{gap_ms}");
        }
        // Nor after what was here already.
        let mut r = linux(60);
        let two = AckPolicy { quick: 2, ..LINUX };
        let replies = [1, 2, 3].map(|seq| r.receive(at(70 * MS), &data(seq), &two).0);
        assert_eq!(replies, [Now, Now, Later]);
    }

    #[test]
    fn what_ends_the_handshake_tells_its_round_trip_with_data_or_without() {
        let bare = Packet {
            flags: Flags::of_tcp(false).with_bare(true),
            ..data(1)
        };
        // Of 60 ms, and data after a while; of more than a second, which tells nothing.
        for (first, rtt_ms, rto_ms) in [
            (bare, 60, 64 + 200),
            (bare, 1200, 1000),
            // Of a first window of which the last packet alone was not lost.
            (data(9), 60, 64 + 200),
            (data(9), 1200, 1000),
        ] {
            let mut r = Receiver::new();
            r.receive(Time::ZERO, &data(0), &LINUX);
            let (reply, _) = r.receive(at(rtt_ms * MS), &first, &LINUX);
            assert_eq!(reply == Reply::Nothing, first.flags.bare());
            assert_eq!(r.next(), 1);
            r.receive(at((rtt_ms + 240) * MS), &data(1), &LINUX);
            assert_eq!(r.rto_ms(), rto_ms);
            // It waits as one does that has had one packet of data.
            assert_eq!(u64::from(r.wait_ms), LINUX.delay.as_millis());
        }
    }

    #[test]
    fn acks_that_wait_in_vain_wait_longer() {
        let mut r = linux(120);
        let mut waits_ms = |gaps_ms: &[u64]| -> Vec<u64> {
            let mut now_ms = 120;
            let mut seq = 2;
            let mut wait = |gap_ms: &u64| {
                now_ms += gap_ms;
                let now = at(now_ms * MS);
                assert_eq!(r.receive(now, &data(seq), &LINUX).0, Reply::Later);
                seq += 1;
                (r.take_due() - now) / MS
            };
            gaps_ms.iter().map(&mut wait).collect()
        };
        // To the tick after 40, 80 and 120 ms, which is the round trip; a tick is of 8 ms from 63 on.
        // Packets that are near to each other bring it back.
        let waits = waits_ms(&[240, 240, 240, 10, 10, 10]);
        assert!(waits[0] == 41 && (80..=88).contains(&waits[1]), "{waits:?}");
        assert!((120..=128).contains(&waits[2]), "{waits:?}");
        assert!((100..=128).contains(&waits[3]), "{waits:?}");
    }

    #[test]
    fn the_state_is_one_cache_line() {
        assert_eq!(std::mem::size_of::<Receiver>(), 64);
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
                r.receive(Time::ZERO, &packet, &policy).0
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
            r.receive(Time::ZERO, &packet, &dctcp);
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
        // A mark on a SYN is nobody's.
        for (seq, echo) in [(0, false), (1, true)] {
            let mut marked = data(seq);
            marked.traffic_class.set_ecn(Ecn::Ce);
            r.receive(Time::ZERO, &marked, &AT_ONCE);
            assert_eq!(r.echo(), echo);
        }
        receive(&mut r, 2);
        assert!(r.echo());
        let mut answer = data(3);
        answer.flags = Flags::of_tcp(true);
        r.receive(Time::ZERO, &answer, &AT_ONCE);
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
                (r.receive(Time::ZERO, &packet, &policy).0, r.ce_pkts())
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
            r.receive(Time::ZERO, &copy, &counting);
            assert_eq!(r.ce_pkts(), count);
        }
        r.reset(1);
        assert_eq!(r.ce_pkts(), 0);
    }

    #[test]
    fn packets_of_an_earlier_connection_are_ignored() {
        let mut r = Receiver::new();
        r.reset(1);
        assert_eq!(receive(&mut r, 0), (Reply::Nothing, 0));
    }
}
