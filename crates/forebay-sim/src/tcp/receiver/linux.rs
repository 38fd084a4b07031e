//! The ACK policy of Linux's receiver: quick ACKs at the start, after marks and after idle times; a
//! delay that adapts to the intervals between packets; and compression, which sends one ACK for
//! several packets behind a gap.

use forebay_aqm::Ecn;
use forebay_units::{Span, Time};

use super::{is_marked, AckPolicy, Block, Receiver, ReceiverStack, Reply};
use crate::packet::{Flags, Packet};
use crate::tcp::stacks::timer_wheel;

/// Longest delay of an ACK (`TCP_DELACK_MAX`).
const MOST_WAIT_MS: u8 = 200;
/// Interval between packets up to which their ACKs' delay moves towards the least one (half of
/// `TCP_ATO_MIN`).
const NEAR_MS: u16 = 20;
/// The receiver's own timeout before a round trip is known.
const INITIAL_RTO_MS: u16 = 1000;
/// The least difference between the receiver's timeout and the round-trip time.
const LEAST_RTO_MARGIN_MS: u16 = 200;
/// Unit in which the round-trip time of the handshake is stored.
const RTT_UNIT_MS: u16 = 8;

/// Number of ACKs that are not delayed after a mark, because the sender's window may be small.
const QUICK_AFTER_MARK: u8 = 2;

/// The bit that is set once a packet was ECN-capable.
const CAPABLE: u8 = 4;
/// The bit that is set while one ACK for several packets behind a gap waits until `ack_due`.
const COMPRESSED: u8 = 8;
/// The lower of two bits that count duplicate ACKs since data last became deliverable.
const DUPLICATE: u8 = 16;
/// The two bits of that count.
const DUPLICATES: u8 = 3 * DUPLICATE;

/// Time for which a compressed ACK waits: a millisecond and the slack of its timer. Linux
/// compresses ACKs after three duplicate ACKs (`TCP_FASTRETRANS_THRESH`, `__tcp_ack_snd_check`,
/// `net.ipv4.tcp_comp_sack_*`).
///
/// Not modelled: below a round-trip time of 3 ms the kernel waits for a third of it, and 44 packets
/// end the wait.
const COMPRESSION: Span = Span::from_micros(1010);
/// Number of SACK blocks from which on a packet that opens another block ends the compression,
/// because it would push out a block (`TCP_SACK_BLOCKS_EXPECTED`).
const EXPECTED_BLOCKS: usize = 2;

/// The receiver stack of Linux, which has quick ACKs.
pub struct LinuxReceiver;

impl ReceiverStack for LinuxReceiver {
    #[inline(always)]
    fn on_packet_in_order(receiver: &mut Receiver, now: Time, packet: &Packet, acks: &AckPolicy) {
        if let Some(least_ms) = least_wait_ms(acks) {
            receiver.note_interval(now, packet.seq, packet.flags, acks, least_ms);
        }
    }

    /// Takes note of a packet behind a gap before the first data packet in order has arrived.
    fn on_packet_behind_gap(receiver: &mut Receiver, now: Time, packet: &Packet, acks: &AckPolicy) {
        if let (Some(least_ms), 0) = (least_wait_ms(acks), receiver.wait_ms) {
            receiver.note_interval(now, packet.seq, packet.flags, acks, least_ms);
        }
    }

    #[inline(always)]
    fn reads_signs(receiver: &Receiver, packet: &Packet) -> bool {
        receiver.quick > 0
            || packet.seq < receiver.next
            || receiver.seen & CAPABLE != 0 && packet.traffic_class.ecn() == Ecn::NotEct
    }

    fn take_signs(receiver: &mut Receiver, packet: &Packet, acks: &AckPolicy) -> bool {
        let (syn, ecn) = (packet.seq == 0, packet.traffic_class.ecn());
        if syn {
            receiver.quick = acks.quick;
        } else {
            if packet.seq < receiver.next {
                receiver.hurry(acks.quick, acks);
            }
            // A packet without ECT in an ECN-capable connection is a retransmission.
            let again = ecn == Ecn::NotEct && receiver.seen & CAPABLE != 0;
            // A mark on a packet with CWR is the first mark of the next round of echoes.
            let first_mark = is_marked(packet) && (!receiver.echo() || packet.flags.ecn_signal());
            if again || first_mark && !acks.counts_marks {
                receiver.hurry(QUICK_AFTER_MARK, acks);
            }
            if ecn != Ecn::NotEct {
                receiver.seen |= CAPABLE;
            }
        }
        // A sender that has reduced its window may be waiting for exactly this ACK
        // (`tcp_ecn_accept_cwr` of include/net/tcp_ecn.h; ACKs with counts of marks have no CWR).
        let reduced = packet.flags.ecn_signal() && (!acks.counts_marks || acks.echoes_changes);
        // When an application has read a complete write, the ACK is sent (`tcp_cleanup_rbuf`).
        let pushed = packet.flags.push();
        let quick = receiver.quick > 0;
        receiver.quick = receiver.quick.saturating_sub(u8::from(!syn));
        if quick && receiver.quick == 0 {
            receiver.wait_ms = least_wait_ms(acks).unwrap_or(0);
        }
        quick || reduced || pushed
    }

    #[inline(always)]
    fn ack_due(receiver: &Receiver, now: Time, acks: &AckPolicy) -> Time {
        match least_wait_ms(acks) {
            None => now + acks.delay,
            Some(least_ms) => timer_wheel::expiry(now, receiver.wait(least_ms)),
        }
    }

    fn reply_at_gap(
        receiver: &mut Receiver,
        now: Time,
        delivered: u32,
        patient: bool,
    ) -> Option<Reply> {
        receiver.compress(now, delivered, patient)
    }
}

/// Returns the least delay of an ACK in ms. `None` means that every delay is `delay`, because the
/// kernel allows none so long or so short.
fn least_wait_ms(acks: &AckPolicy) -> Option<u8> {
    let ms = u8::try_from(acks.delay.as_millis()).ok()?;
    (1..=MOST_WAIT_MS).contains(&ms).then_some(ms)
}

impl Receiver {
    /// Ends the delay of an ACK and returns the time at which it was due. The next delay may be
    /// longer if no further packet arrived in time (`tcp_delack_timer_handler`).
    pub fn take_due(&mut self) -> Time {
        match self.seen & COMPRESSED {
            0 => self.wait_ms = self.bounded_wait_ms(u16::from(self.wait_ms) * 2),
            _ => self.set_seen(COMPRESSED, false),
        }
        std::mem::replace(&mut self.ack_due, Time::NEVER)
    }

    /// Returns the receiver's own timeout, for which only the handshake's round trip is known.
    fn rto_ms(&self) -> u16 {
        match u16::from(self.rtt_8ms) * RTT_UNIT_MS {
            0 => INITIAL_RTO_MS,
            rtt_ms => rtt_ms + LEAST_RTO_MARGIN_MS.max(2 * rtt_ms),
        }
    }

    /// Returns this delay, limited by the receiver's timeout and the longest delay.
    fn bounded_wait_ms(&self, ms: u16) -> u8 {
        u8::try_from(ms.min(self.rto_ms())).map_or(MOST_WAIT_MS, |ms| ms.min(MOST_WAIT_MS))
    }

    /// Takes note of the arrival time of a packet in order (`tcp_event_data_recv`).
    ///
    /// The first packet behind the SYN ends the handshake and yields its round-trip time, with or
    /// without data and even out of order. After an idle time longer than a timeout the sender's
    /// window is small, so that some ACKs are not delayed.
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

    /// Adapts the delay of ACKs to the time `gap_ms` since the last packet in order.
    #[inline(never)]
    fn fit_wait(&mut self, gap_ms: u16, seq: u32, flags: Flags, acks: &AckPolicy, least_ms: u8) {
        if seq == 0 {
            return;
        }
        let wait_ms = u16::from(self.wait_ms);
        if wait_ms == 0 {
            if self.rtt_8ms == 0 {
                // A retransmitted SYN+ACK, which leaves after a second, yields no round-trip time.
                let known = gap_ms < INITIAL_RTO_MS;
                let units = (gap_ms + RTT_UNIT_MS / 2) / RTT_UNIT_MS;
                self.rtt_8ms =
                    u8::try_from(units.max(1)).map_or(0, |units| if known { units } else { 0 });
            }
            if seq == self.next && !flags.bare() {
                self.wait_ms = least_ms;
            } else if self.rtt_8ms == 0 {
                // Then the next packet yields none, either: it must not count from this one.
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

    /// Returns the delay of an ACK that is delayed now (`tcp_send_delayed_ack`).
    fn wait(&self, least_ms: u8) -> Span {
        let mut ms = u16::from(self.wait_ms);
        if self.wait_ms > least_ms && self.rtt_8ms > 0 {
            let rtt_ms = u16::from(self.rtt_8ms) * RTT_UNIT_MS;
            ms = ms.min(rtt_ms.max(least_ms.into()));
        }
        Span::from_millis(ms.into())
    }

    /// Sends at least the next `acks` ACKs without delay (`tcp_enter_quickack_mode`).
    fn hurry(&mut self, acks: u8, policy: &AckPolicy) {
        self.quick = self.quick.max(acks);
        self.wait_ms = least_wait_ms(policy).unwrap_or(0);
    }

    /// Ends the wait of a compressed ACK, which leaves now, before another packet is taken.
    pub fn end_compression(&mut self) {
        if self.seen & COMPRESSED != 0 {
            self.set_seen(COMPRESSED, false);
            self.ack_due = Time::NEVER;
        }
    }

    /// Returns true if a compressed ACK waits and this packet would push one of its blocks out
    /// (`tcp_sack_new_ofo_skb`).
    #[inline]
    pub(super) fn is_pushed_out_by(&self, seq: u32) -> bool {
        self.seen & COMPRESSED != 0 && self.opens_block(seq)
    }

    /// Returns true if a packet behind a gap joins none of the `EXPECTED_BLOCKS` most recently
    /// changed blocks, and there are that many.
    fn opens_block(&self, seq: u32) -> bool {
        let touches = |&(start, end): &Block| seq + 1 >= start && seq <= end;
        seq > self.next
            && self.held.len() >= EXPECTED_BLOCKS
            && !self.held[..EXPECTED_BLOCKS].iter().any(touches)
    }

    /// Decides on the ACK of a packet that arrives at a gap; `None` if the ACK leaves now.
    #[inline(never)]
    fn compress(&mut self, now: Time, delivered: u32, patient: bool) -> Option<Reply> {
        let joins = patient && delivered <= 1 && !self.held.is_empty();
        if delivered > 0 {
            self.set_seen(DUPLICATES, false);
        }
        // An ACK that leaves now also reports the packets of the one that waited.
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
}

#[cfg(test)]
mod tests {
    use super::super::tests::{data, AT_ONCE, DELAYED};
    use super::*;
    use crate::tcp::testing::{at, MS};

    fn us(us: u64) -> Time {
        at(Span::from_micros(us))
    }

    /// Returns a Linux receiver that expects packet 10 and has no quick ACKs left.
    fn with_a_gap() -> Receiver {
        let mut r = Receiver::new();
        (0..10).for_each(|seq| {
            r.receive(Time::ZERO, data(seq).pack(), &LINUX);
        });
        r
    }

    #[test]
    fn a_receiver_of_linux_joins_what_it_says_of_packets_behind_a_gap() {
        let mut r = with_a_gap();
        let mut take = |at, seq| {
            let (reply, _) = r.receive(at, data(seq).pack(), &LINUX);
            (reply, r.ack_due)
        };
        // Three duplicate ACKs leave at once, so that the sender begins its recovery.
        for seq in 11..14 {
            assert_eq!(take(Time::ZERO, seq), (Reply::Now, Time::NEVER));
        }
        let due = us(500) + COMPRESSION;
        assert_eq!(take(us(500), 14), (Reply::Later, due));
        assert_eq!(take(us(600), 15), (Reply::Nothing, due));
        assert_eq!(r.take_due(), due);
        assert_eq!(r.blocks(), [(11, 16)]);
        // The packet that fills the gap is acknowledged at once, together with those whose ACK
        // waits.
        assert_eq!(r.receive(us(700), data(17).pack(), &LINUX).0, Reply::Later);
        assert_eq!(r.receive(us(800), data(10).pack(), &LINUX).0, Reply::Now);
        assert_eq!((r.ack_due, r.next()), (Time::NEVER, 16));
        // Data has become deliverable, so that three more duplicate ACKs leave at once.
        assert_eq!(r.receive(us(900), data(18).pack(), &LINUX).0, Reply::Now);
    }

    #[test]
    fn joined_acks_do_not_tell_of_more_blocks_than_they_have_room_for() {
        let mut r = with_a_gap();
        for seq in [11, 13, 11, 13, 14] {
            r.receive(Time::ZERO, data(seq).pack(), &LINUX);
        }
        assert!(r.ack_due < Time::NEVER);
        // The first packet extends one of both blocks; the second begins another block.
        assert!(!r.ends_run(&data(15), &LINUX));
        assert!(r.ends_run(&data(17), &LINUX));
        r.end_compression();
        assert_eq!(
            r.receive(Time::ZERO, data(17).pack(), &LINUX).0,
            Reply::Later
        );
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
                r.receive(Time::ZERO, packet.pack(), &quick).0
            })
            .collect()
        };
        assert_eq!(replies(0..7), [Now, Now, Now, Now, Later, Now, Later]);
        // ACKs leave at once for the mark on packet 7, and for one more packet.
        assert_eq!(replies(7..11), [Now, Now, Later, Now]);
        // The sender says that it has reduced its window.
        let mut answer = data(11);
        answer.traffic_class.set_ecn(Ecn::Ect0);
        answer.flags = Flags::of_tcp(true);
        assert_eq!(r.receive(Time::ZERO, answer.pack(), &quick).0, Now);
        let mut next = data(12);
        next.traffic_class.set_ecn(Ecn::Ect0);
        assert_eq!(r.receive(Time::ZERO, next.pack(), &quick).0, Later);
        // A packet that is not ECN-capable among others that are is a retransmission. The ACK of
        // the next packet is not delayed, either.
        r.receive(Time::ZERO, data(13).pack(), &quick);
        next.seq = 14;
        assert_eq!(r.receive(Time::ZERO, next.pack(), &quick).0, Now);
        next.seq = 15;
        assert_eq!(r.receive(Time::ZERO, next.pack(), &quick).0, Later);
    }

    #[test]
    fn a_mark_on_the_packet_that_answers_one_hurries_again() {
        use Reply::Now;
        let mut r = Receiver::new();
        let mut marked = data(0);
        r.receive(Time::ZERO, marked.pack(), &LINUX);
        marked.traffic_class.set_ecn(Ecn::Ce);
        // As in a guest: two packets are in flight, all are marked, and each second one has CWR. No
        // ACK is delayed.
        for seq in 1..9 {
            marked.seq = seq;
            marked.flags = Flags::of_tcp(seq % 2 == 0);
            assert_eq!(r.receive(Time::ZERO, marked.pack(), &LINUX).0, Now, "{seq}");
        }
    }

    const LINUX: AckPolicy = AckPolicy {
        delayed: true,
        delay: Span::from_millis(40),
        quick: 1,
        ..AT_ONCE
    };

    /// Returns a receiver whose handshake has taken `rtt_ms` and that has no quick ACKs left.
    fn linux(rtt_ms: u64) -> Receiver {
        let mut r = Receiver::new();
        r.receive(Time::ZERO, data(0).pack(), &LINUX);
        r.receive(at(rtt_ms * MS), data(1).pack(), &LINUX);
        r
    }

    #[test]
    fn acks_do_not_wait_after_a_silence() {
        use Reply::{Later, Now};
        // The timeout is 60 + 200 ms.
        for (gap_ms, reply) in [(250, Later), (270, Now)] {
            let mut r = linux(60);
            let now = at((60 + gap_ms) * MS);
            assert_eq!(r.receive(now, data(2).pack(), &LINUX).0, reply, "{gap_ms}");
        }
        // ACKs are not delayed after a packet that had arrived before, either.
        let mut r = linux(60);
        let two = AckPolicy { quick: 2, ..LINUX };
        let replies = [1, 2, 3].map(|seq| r.receive(at(70 * MS), data(seq).pack(), &two).0);
        assert_eq!(replies, [Now, Now, Later]);
    }

    #[test]
    fn what_ends_the_handshake_tells_its_round_trip_with_data_or_without() {
        let bare = Packet {
            flags: Flags::of_tcp(false).with_bare(true),
            ..data(1)
        };
        // One handshake takes 60 ms and data follows after a while; the other takes more than a
        // second and yields no round-trip time.
        for (first, rtt_ms, rto_ms) in [
            (bare, 60, 64 + 200),
            (bare, 1200, 1000),
            // All packets of the first window except the last one were lost.
            (data(9), 60, 64 + 200),
            (data(9), 1200, 1000),
        ] {
            let mut r = Receiver::new();
            r.receive(Time::ZERO, data(0).pack(), &LINUX);
            let (reply, _) = r.receive(at(rtt_ms * MS), first.pack(), &LINUX);
            assert_eq!(reply == Reply::Nothing, first.flags.bare());
            assert_eq!(r.next(), 1);
            r.receive(at((rtt_ms + 240) * MS), data(1).pack(), &LINUX);
            assert_eq!(r.rto_ms(), rto_ms);
            // Its ACKs are delayed like those of a receiver that has had one data packet.
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
                assert_eq!(r.receive(now, data(seq).pack(), &LINUX).0, Reply::Later);
                seq += 1;
                (r.take_due() - now) / MS
            };
            gaps_ms.iter().map(&mut wait).collect()
        };
        // The delays end at the tick after 40, 80 and 120 ms, of which the last is the round trip;
        // ticks have 8 ms from 63 ms on. Packets at short intervals reduce the delay again.
        let waits = waits_ms(&[240, 240, 240, 10, 10, 10]);
        assert!(waits[0] == 41 && (80..=88).contains(&waits[1]), "{waits:?}");
        assert!((120..=128).contains(&waits[2]), "{waits:?}");
        assert!((100..=128).contains(&waits[3]), "{waits:?}");
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
                r.receive(Time::ZERO, packet.pack(), &policy).0
            };
            (0..9).map(reply).collect::<Vec<_>>()
        };
        // The ACK of 4 would be delayed without PSH. The ACK of 7 covers 6 as well, and that of 8
        // is delayed as usual.
        let all = [Now, Now, Later, Now, Now, Later, Now, Now, Later];
        assert_eq!(replies(linux), all);
        // ns-2's receiver ignores PSH.
        let all = [Now, Later, Now, Later, Now, Later, Now, Later, Now];
        assert_eq!(replies(DELAYED), all);
    }
}
