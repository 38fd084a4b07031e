//! The state that every sender has, its sequence numbers and timer, and the types that it exchanges
//! with the engine.

use forebay_aqm::Ecn;
use forebay_units::{Span, Time};

use super::pacing::Pacer;
use super::receiver::AckPolicy;
use crate::uplink::{TcpSegment, Uplink};

/// The settings of all connections of one traffic.
pub struct Config {
    /// Payload of a packet, without headers, which goodput counts.
    pub payload_bytes: u16,
    /// The receiver's window, which is also the initial slow-start threshold.
    pub window_pkts: u32,
    /// The congestion window after the handshake.
    pub initial_window_pkts: u32,
    /// The least retransmission timeout.
    pub min_rto: Span,
    /// The ECN field of data: ECT(0) or ECT(1) if packets can be marked.
    pub ect: Ecn,
    /// True if ACKs carry counts of marked packets (RFC 9768); otherwise they echo marks (RFC
    /// 3168).
    pub counts_marks: bool,
    /// True if packets are paced.
    pub pacing: bool,
    /// True if Linux's senders build segments of several packets (GSO).
    pub gso: bool,
    /// True if the sender uses limited transmit (RFC 3042).
    pub limited_transmit: bool,
    /// The receiver's policy for ACKs.
    pub acks: AckPolicy,
    /// True if the sender reads SACK blocks.
    pub sack: bool,
    /// True if a new connection keeps the state that ns-2's agents do not reset.
    pub ns2_reset: bool,
}

impl Config {
    /// Returns true if packets can be marked.
    #[inline]
    pub fn ecn(&self) -> bool {
        self.ect != Ecn::NotEct
    }
}

/// The fields of an ACK that a sender reads.
#[derive(Clone, Copy, Debug)]
pub struct Ack<'a> {
    /// The number that the receiver expects next.
    pub next: u32,
    /// True if the ACK echoes an ECN mark, or its count has new marks.
    pub ece: bool,
    /// Number of marked packets that the receiver has counted. [`Connection::count_marks`] reduces
    /// it to the new ones.
    pub ce_pkts: u32,
    /// SACK blocks.
    pub blocks: &'a [(u32, u32)],
}

/// The environment of a step of a sender: its settings, the time, and its access link.
pub struct SenderStep<'a> {
    /// The settings of the traffic.
    pub config: &'a Config,
    /// The time of the step.
    pub now: Time,
    /// The access link, which takes the segments that the step sends.
    pub link: Uplink<'a>,
    /// True if pacing has held packets back.
    pub held: bool,
    /// Number of segments that the step has sent.
    pub sent_pkts: u32,
    /// Number of retransmissions among them.
    pub resent_pkts: u32,
}

impl SenderStep<'_> {
    /// Sends a segment of a connection.
    #[inline(always)]
    pub fn send(&mut self, connection: &Connection, segment: TcpSegment) {
        self.link.send(self.now, connection.number, segment);
        self.sent_pkts += 1;
    }
}

/// The sequence numbers of a connection, and its timers.
#[derive(Clone, Debug)]
pub struct Connection {
    /// The first packet that is not acknowledged.
    pub una: u32,
    /// The next packet to send.
    pub next: u32,
    /// One past the highest packet ever sent.
    pub max_sent: u32,
    /// The application offers packets below this number.
    pub limit: u32,
    /// The time at which the sender's timer is due.
    pub timer_due: Time,
    /// The time of the timer's event in the calendar, which may be before `timer_due`.
    pub timer_event: Time,
    /// The pacer, which says when the next packet may leave.
    pub pacer: Pacer,
    /// Number of marked packets that ACKs have reported.
    ce_seen_pkts: u32,
    /// Number of this connection among the successive connections of the flow; it wraps.
    pub number: u16,
    /// True if an event for the pacer is in the calendar.
    pub pacer_event: bool,
    /// True if the next packet is to report that the window was reduced (CWR).
    pub cwr_pending: bool,
}

impl Connection {
    /// Creates a closed connection.
    pub fn new() -> Connection {
        Connection {
            una: 0,
            next: 0,
            max_sent: 0,
            limit: 0,
            timer_due: Time::NEVER,
            timer_event: Time::NEVER,
            pacer: Pacer::default(),
            ce_seen_pkts: 0,
            number: 0,
            pacer_event: false,
            cwr_pending: false,
        }
    }

    /// Returns the flow's next connection, which takes over the events of this one in the calendar.
    pub fn successor(&self) -> Connection {
        Connection {
            number: self.number.wrapping_add(1),
            timer_event: self.timer_event,
            pacer_event: self.pacer_event,
            ..Connection::new()
        }
    }

    /// Returns the ACK with only those marks that no earlier ACK has reported. An ACK that was
    /// overtaken reports none.
    pub fn count_marks<'a>(&mut self, ack: &Ack<'a>) -> Ack<'a> {
        let ce_pkts = ack.ce_pkts.saturating_sub(self.ce_seen_pkts);
        self.ce_seen_pkts += ce_pkts;
        Ack {
            ece: ce_pkts > 0,
            ce_pkts,
            ..*ack
        }
    }

    /// Returns true if pacing holds the next packet back, which the step then notes.
    #[inline]
    pub fn held(&self, step: &mut SenderStep) -> bool {
        let held = step.config.pacing && self.pacer.holds(step.now);
        step.held |= held;
        held
    }

    /// Ends the application's data. Packets already sent are still delivered.
    pub fn close(&mut self) {
        self.limit = self.max_sent;
        if self.una == self.max_sent {
            self.timer_due = Time::NEVER;
        }
    }
}
