//! The receiving end of a connection: reassembly, cumulative and selective acknowledgement, and the
//! echo of ECN marks. The receiver's stack, ns-2's or Linux's, decides when an ACK leaves.

mod linux;
mod ns2;

use forebay_aqm::Ecn;
use forebay_units::{Span, Time};
use smallvec::SmallVec;

use crate::packet::{Flags, PackedPacket, Packet};
use linux::LinuxReceiver;
use ns2::Ns2Receiver;

/// Largest number of SACK blocks in one ACK (RFC 2018 section 3, without other options; ns-2 sends
/// 3, too).
pub const MAX_BLOCKS: usize = 3;

/// A range [start, end) of packets that arrived out of order.
pub type Block = (u32, u32);

/// The policy by which a receiver sends ACKs.
#[derive(Clone, Copy, Debug)]
pub struct AckPolicy {
    /// True if ACKs are delayed: one for every second packet, or after `delay` (RFC 5681 section
    /// 4.2).
    pub delayed: bool,
    /// The longest delay of an ACK. Linux's receiver adapts its delay to the arrivals of packets.
    pub delay: Span,
    /// Number of initial ACKs that are not delayed (Linux's quick ACKs). With 0 the receiver is
    /// ns-2's.
    pub quick: u8,
    /// True if ACKs carry the number of marked packets (RFC 9768).
    pub counts_marks: bool,
    /// True if an ACK leaves at once also when marks end, not only when they begin (RFC 8257
    /// section 3.2).
    pub echoes_changes: bool,
}

/// The decisions of a receiver's stack about the time of ACKs. *Signs* are the properties of a
/// packet besides its number: flags, a mark, or being the SYN.
trait ReceiverStack {
    /// Takes note of a packet that arrives in order.
    fn on_packet_in_order(
        _receiver: &mut Receiver,
        _now: Time,
        _packet: &Packet,
        _acks: &AckPolicy,
    ) {
    }

    /// Takes note of a packet with signs that comes behind a gap.
    fn on_packet_behind_gap(
        _receiver: &mut Receiver,
        _now: Time,
        _packet: &Packet,
        _acks: &AckPolicy,
    ) {
    }

    /// Returns true if this stack must read more of the packet than its number and its mark.
    fn reads_signs(_receiver: &Receiver, _packet: &Packet) -> bool {
        false
    }

    /// Takes the signs of a data packet; true if they make its ACK leave at once.
    fn take_signs(_receiver: &mut Receiver, _packet: &Packet, _acks: &AckPolicy) -> bool {
        false
    }

    /// Returns the time at which an ACK that is delayed now is due.
    fn ack_due(receiver: &Receiver, now: Time, acks: &AckPolicy) -> Time;

    /// Decides on the ACK of a packet that arrived behind a gap, or filled one and made `delivered`
    /// packets deliverable; `None` if the ACK leaves now. The ACK may wait only if `patient`.
    fn reply_at_gap(
        _receiver: &mut Receiver,
        _now: Time,
        _delivered: u32,
        _patient: bool,
    ) -> Option<Reply> {
        None
    }
}

/// The bit that is set while a mark was received and the sender has not answered with CWR.
const ECHO: u8 = 1;
/// The bit that is set if the last packet was marked.
const LAST_CE: u8 = 2;
/// The bit that is set while there is out-of-order data.
const GAP: u8 = 64;

/// The state of a receiver, which is one cache line.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub struct Receiver {
    /// Bytes delivered in order within the measurement window.
    pub delivered_bytes: u64,
    /// Bytes delivered in order before and after that window.
    pub outside_bytes: u64,
    /// The time at which a delayed ACK is due; [`Time::NEVER`] if there is none.
    pub ack_due: Time,
    /// Out-of-order data, most recently changed block first, as SACK requires (RFC 2018 section 4).
    held: SmallVec<[Block; 2]>,
    next: u32,
    connection: u16,
    /// Bits about ECN marks and gaps, such as `ECHO`.
    seen: u8,
    /// Linux: remaining number of ACKs that are not delayed.
    quick: u8,
    /// Number of marked packets of this connection.
    ce_pkts: u32,
    /// Linux: arrival time of the last packet in order, in ms; it wraps after 65 s.
    last_ms: u16,
    /// Linux: round-trip time of the handshake in units of 8 ms; zero if unknown.
    rtt_8ms: u8,
    /// Linux: delay of an ACK in ms (the kernel's `ato`); zero before the first data packet.
    wait_ms: u8,
}

/// The reply to an arriving packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Send an ACK now.
    Now,
    /// Delay the ACK until another packet arrives, or until `ack_due`.
    Later,
    /// Send nothing: the packet belongs to an earlier connection, has no data, or a delayed ACK
    /// will report it.
    Nothing,
}

impl Receiver {
    /// Counts bytes that were delivered within the window of measurement or outside of it.
    #[inline(always)]
    pub fn count(&mut self, bytes: u64, in_window: bool) {
        if in_window {
            self.delivered_bytes += bytes;
        } else {
            self.outside_bytes += bytes;
        }
    }

    /// Creates a receiver that expects the SYN of connection 0.
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

    /// Prepares the receiver for a new connection. The counts of delivered bytes stay.
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

    /// Returns the number of the connection.
    pub fn connection(&self) -> u16 {
        self.connection
    }

    /// Returns the number of the packet expected next.
    pub fn next(&self) -> u32 {
        self.next
    }

    /// Returns the SACK blocks of the next ACK.
    pub fn blocks(&self) -> &[Block] {
        &self.held[..self.held.len().min(MAX_BLOCKS)]
    }

    /// Returns the number of marked packets of this connection, for an ACK that carries it. All
    /// packets of a connection have the same size, so that the number of marked bytes follows.
    pub fn ce_pkts(&self) -> u32 {
        self.ce_pkts
    }

    /// Returns true if the next ACK carries ECE.
    pub fn echo(&self) -> bool {
        self.seen & ECHO != 0
    }

    /// Sets or clears a bit of `seen`.
    fn set_seen(&mut self, bit: u8, is: bool) {
        match is {
            true => self.seen |= bit,
            false => self.seen &= !bit,
        }
    }

    /// Returns the time at which a delayed ACK leaves, if it leaves before this packet is taken.
    #[inline]
    pub fn ack_before(&mut self, now: Time, packet: &Packet, acks: &AckPolicy) -> Option<Time> {
        if self.ack_due < now {
            return Some(self.take_due());
        }
        self.ends_run(packet, acks).then(|| {
            self.end_compression();
            now
        })
    }

    /// Returns true if a delayed ACK must leave before this packet is taken although it is not due.
    ///
    /// That is so if the ACK covers packets with a mark and this packet has none, or the reverse
    /// (RFC 8257 section 3.2), or if this packet would push out a SACK block that the ACK has to
    /// report (`tcp_sack_new_ofo_skb`).
    #[inline]
    fn ends_run(&self, packet: &Packet, acks: &AckPolicy) -> bool {
        if self.ack_due == Time::NEVER || packet.connection != self.connection {
            return false;
        }
        let changes = acks.echoes_changes
            && (packet.traffic_class.ecn() == Ecn::Ce) != (self.seen & LAST_CE != 0);
        changes || self.is_pushed_out_by(packet.seq)
    }

    /// Takes a data packet at `now`. Returns the reply and the number of data packets that became
    /// deliverable.
    #[inline(always)]
    pub fn receive(&mut self, now: Time, packet: PackedPacket, acks: &AckPolicy) -> (Reply, u32) {
        match acks.quick {
            0 => self.receive_as::<Ns2Receiver>(now, packet, acks),
            _ => self.receive_as::<LinuxReceiver>(now, packet, acks),
        }
    }

    /// Takes a data packet as the stack `S` does, like [`receive`](Receiver::receive).
    #[inline(always)]
    fn receive_as<S: ReceiverStack>(
        &mut self,
        now: Time,
        packed: PackedPacket,
        acks: &AckPolicy,
    ) -> (Reply, u32) {
        let packet = &packed.unpack();
        if packet.connection != self.connection {
            return (Reply::Nothing, 0);
        }
        if packet.seq == self.next {
            S::on_packet_in_order(self, now, packet, acks);
        }
        let has_signs = packed.has_signs() || self.seen & LAST_CE != 0 || packet.seq == 0;
        if has_signs || S::reads_signs(self, packet) {
            return self.receive_with_signs::<S>(now, packed, acks);
        }
        self.take::<S>(now, packet.seq, true, acks)
    }

    /// Adds a packet to the received data and decides on its ACK, which may wait only if `patient`.
    #[inline(always)]
    fn take<S: ReceiverStack>(
        &mut self,
        now: Time,
        seq: u32,
        patient: bool,
        acks: &AckPolicy,
    ) -> (Reply, u32) {
        let fills_gap = self.seen & GAP != 0;
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
            self.ack_due = S::ack_due(self, now, acks);
            return (Reply::Later, delivered);
        }
        if (behind_gap || fills_gap) && acks.delayed {
            if let Some(reply) = S::reply_at_gap(self, now, delivered, patient) {
                return (reply, delivered);
            }
        }
        self.ack_due = Time::NEVER;
        (Reply::Now, delivered)
    }

    /// Takes a packet with signs, whose ACK may have to leave at once.
    #[inline(never)]
    fn receive_with_signs<S: ReceiverStack>(
        &mut self,
        now: Time,
        packet: PackedPacket,
        acks: &AckPolicy,
    ) -> (Reply, u32) {
        let packet = &packet.unpack();
        if packet.seq > self.next {
            S::on_packet_behind_gap(self, now, packet, acks);
        }
        if packet.flags.bare() {
            return (Reply::Nothing, 0);
        }
        let hurried = S::take_signs(self, packet, acks);
        let syn = packet.seq == 0;
        let ce = is_marked(packet);
        self.update_echo(ce, packet.flags);
        // The first marked packet after unmarked ones is acknowledged at once (RFC 9768 section
        // 3.2.2.5.1), and with DCTCP's policy also the first unmarked one after marked ones (RFC
        // 8257 section 3.2).
        let marks_change =
            acks.counts_marks && ce != (self.seen & LAST_CE != 0) && (ce || acks.echoes_changes);
        self.set_seen(LAST_CE, ce);
        let patient = !(syn || hurried || marks_change);
        let (reply, delivered) = self.take::<S>(now, packet.seq, patient, acks);
        // The SYN carries no data.
        (reply, delivered - u32::from(syn && delivered > 0))
    }

    /// Updates the echo of marks: ECE is sent until the sender answers with CWR, and a mark on that
    /// same packet starts it again (RFC 3168 section 6.1.3).
    fn update_echo(&mut self, ce: bool, flags: Flags) {
        if flags.ecn_signal() {
            self.set_seen(ECHO, false);
        }
        if ce {
            self.ce_pkts += 1;
            self.set_seen(ECHO, true);
        }
    }

    /// Adds a packet to the out-of-order data. Returns the number of packets that are in order now
    /// and were not before.
    #[inline(never)]
    fn reassemble(&mut self, seq: u32) -> u32 {
        let before = self.next;
        if seq == self.next {
            self.next += 1;
            let next = self.next;
            if let Some(i) = self.held.iter().position(|&(start, _)| start == next) {
                self.next = self.held.remove(i).1;
                self.set_seen(GAP, !self.held.is_empty());
            }
        } else if seq > self.next {
            // The usual case: the packet extends the newest block, and closes no gap.
            if let [(_, end), others @ ..] = self.held.as_mut_slice() {
                if *end == seq && others.iter().all(|(start, _)| *start != seq + 1) {
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
            self.set_seen(GAP, true);
        }
        self.next - before
    }
}

/// Returns true for a marked data packet. A mark on a SYN is ignored.
fn is_marked(packet: &Packet) -> bool {
    packet.traffic_class.ecn() == Ecn::Ce && packet.seq != 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::FlowId;
    use forebay_aqm::TrafficClass;

    pub fn data(seq: u32) -> Packet {
        Packet {
            flow: FlowId::default(),
            seq,
            host: 0,
            bytes: 1000,
            connection: 0,
            traffic_class: TrafficClass::default(),
            flags: Flags::default(),
            traffic: 0,
        }
    }

    pub const AT_ONCE: AckPolicy = AckPolicy {
        delayed: false,
        delay: Span::from_millis(100),
        quick: 0,
        counts_marks: false,
        echoes_changes: false,
    };
    pub const DELAYED: AckPolicy = AckPolicy {
        delayed: true,
        ..AT_ONCE
    };

    fn receive(r: &mut Receiver, seq: u32) -> (Reply, u32) {
        r.receive(Time::ZERO, data(seq).pack(), &AT_ONCE)
    }

    #[test]
    fn others_than_linux_acknowledge_every_packet_behind_a_gap() {
        let mut r = Receiver::new();
        for seq in (0..10).chain(11..20) {
            let (reply, _) = r.receive(Time::ZERO, data(seq).pack(), &DELAYED);
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
        // The most recently changed block is first.
        assert_eq!(r.blocks(), [(7, 8), (2, 4), (5, 6)]);
        assert_eq!(receive(&mut r, 1), (Reply::Now, 3));
        assert_eq!(r.next(), 4);
        assert_eq!(receive(&mut r, 4), (Reply::Now, 2));
        // A second copy is acknowledged but not delivered again.
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
            .map(|&seq| r.receive(Time::ZERO, data(seq).pack(), &DELAYED).0)
            .collect();
        use Reply::{Later, Now};
        // The SYN is acknowledged at once. The ACK of 1 waits until 2 arrives, that of 3 until 5
        // arrives behind a gap. The packet that fills the gap is acknowledged at once.
        assert_eq!(replies, [Now, Later, Now, Later, Now, Now, Later]);
    }

    #[test]
    fn the_state_is_one_cache_line() {
        assert_eq!(std::mem::size_of::<Receiver>(), 64);
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
            r.receive(Time::ZERO, packet.pack(), &dctcp);
            ends
        };
        // The ACK of 1 is waiting when 2 arrives with a mark. The ACK of 3, which is marked like 2,
        // is waiting when 4 arrives without a mark.
        let marks = [Ecn::Ect1, Ecn::Ect1, Ecn::Ce, Ecn::Ce, Ecn::Ect1, Ecn::Ce];
        let all: Vec<bool> = (0..6).map(|i| take(i, marks[i as usize])).collect();
        assert_eq!(all, [false, false, true, false, true, false]);
    }

    #[test]
    fn marks_are_echoed_until_the_sender_answers() {
        let mut r = Receiver::new();
        // A mark on a SYN is ignored.
        for (seq, echo) in [(0, false), (1, true)] {
            let mut marked = data(seq);
            marked.traffic_class.set_ecn(Ecn::Ce);
            r.receive(Time::ZERO, marked.pack(), &AT_ONCE);
            assert_eq!(r.echo(), echo);
        }
        receive(&mut r, 2);
        assert!(r.echo());
        let mut answer = data(3);
        answer.flags = Flags::of_tcp(true);
        r.receive(Time::ZERO, answer.pack(), &AT_ONCE);
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
                (r.receive(Time::ZERO, packet.pack(), &policy).0, r.ce_pkts())
            };
            (0..8).map(reply).collect::<Vec<_>>()
        };
        let replies = replies_of(counting);
        let want = [
            (Now, 0),
            (Later, 0),
            (Now, 0),
            // The first mark is reported at once, the second together with the third.
            (Now, 1),
            (Later, 2),
            (Now, 3),
            (Later, 3),
            (Now, 3),
        ];
        assert_eq!(replies, want);
        // With DCTCP's policy the end of the marks is reported at once, too.
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
            r.receive(Time::ZERO, copy.pack(), &counting);
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
