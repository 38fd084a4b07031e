//! What every sender has: its numbers and its timer, and what passes between it and the engine.

use forebay_aqm::Ecn;
use forebay_units::{Span, Time};

use super::pacing::Pacer;
use super::receiver::AckPolicy;

/// What all connections of one traffic share.
pub struct Config {
    /// Of a packet, without headers: what goodput counts.
    pub payload_bytes: u16,
    /// Receiver's window, and initial slow-start threshold.
    pub window_pkts: u32,
    pub initial_window_pkts: u32,
    pub min_rto: Span,
    /// ECT(0) or ECT(1), where packets can be marked.
    pub ect: Ecn,
    /// ACKs carry counts of marked packets (RFC 9768); else they echo marks (RFC 3168).
    pub counts_marks: bool,
    /// Packets leave at a rate.
    pub pacing: bool,
    /// Linux's senders make segments of several packets.
    pub gso: bool,
    pub limited_transmit: bool,
    pub acks: AckPolicy,
    /// The sender reads SACK blocks.
    pub sack: bool,
    /// A new connection keeps what ns-2's agents do not reset.
    pub ns2_reset: bool,
}

impl Config {
    /// Packets can be marked.
    #[inline]
    pub fn ecn(&self) -> bool {
        self.ect != Ecn::NotEct
    }
}

/// A packet to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpSegment {
    /// The end of a write: a receiver's application has all that there is.
    pub push: bool,
    /// An ACK without data; `seq` is that of the data to come.
    pub bare: bool,
    pub seq: u32,
    /// Congestion window reduced.
    pub cwr: bool,
    /// Of its IP header.
    pub ecn: Ecn,
}

/// An ACK as the sender sees it.
#[derive(Clone, Copy, Debug)]
pub struct Ack<'a> {
    /// Number expected next.
    pub next: u32,
    /// Echo of an ECN mark, or new marks in the count.
    pub ece: bool,
    /// Marked packets that the receiver has counted; for the sender those that are new.
    pub ce_pkts: u32,
    /// SACK blocks.
    pub blocks: &'a [(u32, u32)],
}

/// What a step of a sender may use: its configuration, the time, and where packets go.
pub struct SenderStep<'a> {
    pub config: &'a Config,
    pub now: Time,
    pub out: &'a mut Vec<TcpSegment>,
    /// Pacing has kept packets back.
    pub held: bool,
    /// Packets of `out` that were sent before.
    pub resent_pkts: u32,
}

/// The numbers of a connection, and its timer.
#[derive(Clone, Debug)]
pub struct Connection {
    /// First packet not acknowledged.
    pub una: u32,
    /// Next packet to send.
    pub next: u32,
    /// One past the highest packet ever sent.
    pub max_sent: u32,
    /// The application offers packets below this number.
    pub limit: u32,
    /// When the sender's timer is due.
    pub timer_due: Time,
    /// When an event for the timer is in the calendar; it may be before `timer_due`.
    pub timer_event: Time,
    /// When the next packet may leave, where they are paced.
    pub pacer: Pacer,
    /// Marked packets that ACKs have reported.
    ce_seen_pkts: u32,
    /// Of the flow's connections, one after another.
    pub number: u16,
    /// An event for the pacer is in the calendar.
    pub pacer_event: bool,
    /// The next new packet says that the window was reduced (CWR).
    pub cwr_pending: bool,
}

impl Connection {
    /// A closed connection.
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

    /// The flow's next connection; the calendar still holds this one's events.
    pub fn successor(&self) -> Connection {
        Connection {
            number: self.number.wrapping_add(1),
            timer_event: self.timer_event,
            pacer_event: self.pacer_event,
            ..Connection::new()
        }
    }

    /// The ACK with those marks that no ACK has reported before; one that was overtaken reports
    /// none.
    pub fn count_marks<'a>(&mut self, ack: &Ack<'a>) -> Ack<'a> {
        let ce_pkts = ack.ce_pkts.saturating_sub(self.ce_seen_pkts);
        self.ce_seen_pkts += ce_pkts;
        Ack {
            ece: ce_pkts > 0,
            ce_pkts,
            ..*ack
        }
    }

    /// Whether pacing keeps the next packet back.
    #[inline]
    pub fn held(&self, step: &mut SenderStep) -> bool {
        let held = step.config.pacing && self.pacer.holds(step.now);
        step.held |= held;
        held
    }

    /// The application offers nothing new; what was sent is still delivered.
    pub fn close(&mut self) {
        self.limit = self.max_sent;
        if self.una == self.max_sent {
            self.timer_due = Time::NEVER;
        }
    }
}
