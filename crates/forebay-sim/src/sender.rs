//! The sending end of a TCP connection: what every recovery scheme shares. Windows count
//! packets; sequence numbers are those of packets, 0 being the SYN.
//!
//! The behaviour is that of ns-2.35's one-way agents, so that runs can be laid beside its.

use crate::cc::{CongestionControl, Extra};
use crate::receiver::AckPolicy;
use crate::rto::RtoEstimator;

/// Duplicate ACKs that trigger fast retransmit (RFC 5681 section 3.2).
pub const DUP_ACKS: u32 = 3;

/// No deadline.
pub const NEVER: u64 = u64::MAX;

/// What all connections of one traffic share.
pub struct Config {
    pub control: &'static dyn CongestionControl,
    pub packet_bytes: u16,
    /// Of a packet, without headers: what goodput counts.
    pub payload_bytes: u16,
    /// Receiver's window, and initial slow-start threshold.
    pub window_pkts: u32,
    pub initial_window_pkts: u32,
    pub min_rto_ns: u64,
    pub ecn: bool,
    pub limited_transmit: bool,
    pub acks: AckPolicy,
    /// The sender reads SACK blocks.
    pub sack: bool,
    /// A new connection keeps what ns-2's agents do not reset.
    pub ns2_reset: bool,
}

/// The last thing that changed the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowAction {
    None,
    FastRetransmit,
    /// A fast retransmit whose recovery has ended.
    Recovered,
    Timeout,
    Ecn,
}

/// A packet to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    pub seq: u32,
    /// Congestion window reduced.
    pub cwr: bool,
    /// ECN-capable, where the connection is.
    pub ect: bool,
}

/// An ACK as the sender sees it.
#[derive(Clone, Copy, Debug)]
pub struct Ack<'a> {
    /// Number expected next.
    pub next: u32,
    /// Echo of an ECN mark.
    pub ece: bool,
    /// SACK blocks.
    pub blocks: &'a [(u32, u32)],
}

/// What a step of a sender may use: its configuration, the time, and where packets go.
pub struct Step<'a> {
    pub config: &'a Config,
    pub now: u64,
    pub out: &'a mut Vec<Segment>,
}

/// A connection's sending state, in two cache lines.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub struct Sender {
    pub cwnd: f64,
    pub ssthresh: f64,
    /// First packet not acknowledged.
    pub una: u32,
    /// Next packet to send.
    pub next: u32,
    /// One past the highest packet ever sent.
    pub max_sent: u32,
    /// The application offers packets below this number.
    pub limit: u32,
    /// Loss below this number belongs to the last recovery (RFC 6582's `recover`, plus one).
    pub recover: u32,
    pub dup_acks: u32,
    /// Window inflation during fast recovery.
    pub inflation: u32,
    /// When the retransmission timer fires.
    pub rto_due: u64,
    /// When an event for the timer is in the calendar; it may be before `rto_due`.
    pub timer_event: u64,
    /// The packet being timed, if any, and when it was sent (one per round trip, Karn).
    timed: Option<u32>,
    timed_at: u64,
    pub rto: RtoEstimator,
    pub action: WindowAction,
    pub connection: u16,
    /// A SYN was lost: the window after the handshake is 1 (RFC 5681 section 3.1).
    syn_lost: bool,
    /// Whether the window was 1 at the last ECN reduction.
    ecn_at_one: bool,
    cwr_pending: bool,
    /// NewReno: a partial ACK has been seen in this recovery.
    pub partial_ack_seen: bool,
    /// State of the schemes that need more.
    pub extra: Option<Box<Extra>>,
}

impl Sender {
    /// A closed connection; `phase` of its clock in [0, 1).
    pub fn new(config: &Config, phase: f64) -> Sender {
        Sender {
            ssthresh: f64::from(config.window_pkts),
            extra: config.control.extra(),
            ..Sender::counter(phase)
        }
    }

    /// A source without congestion control: it only numbers its packets.
    pub fn counter(phase: f64) -> Sender {
        Sender {
            cwnd: 1.0,
            ssthresh: 0.0,
            una: 0,
            next: 0,
            max_sent: 0,
            limit: 0,
            recover: 1,
            dup_acks: 0,
            inflation: 0,
            rto_due: NEVER,
            timer_event: NEVER,
            timed: None,
            timed_at: 0,
            rto: RtoEstimator::new(phase),
            action: WindowAction::None,
            connection: 0,
            syn_lost: false,
            ecn_at_one: false,
            cwr_pending: false,
            partial_ack_seen: false,
            extra: None,
        }
    }

    /// Forgets everything and becomes the flow's next connection.
    pub fn reset(&mut self, config: &Config, phase: f64) {
        let fresh = Sender {
            connection: self.connection.wrapping_add(1),
            timer_event: self.timer_event,
            ..Sender::new(config, phase)
        };
        *self = if config.ns2_reset {
            // An unfinished recovery's inflation lets the new connection send before its
            // handshake, and a packet still being timed makes its first round trip far too long.
            Sender {
                inflation: self.inflation,
                partial_ack_seen: self.partial_ack_seen,
                syn_lost: self.syn_lost,
                timed: self.timed.map(|_| 0),
                timed_at: self.timed_at,
                ..fresh
            }
        } else {
            fresh
        };
    }

    /// The application has endless data from now on.
    pub fn open(&mut self, step: &mut Step) {
        self.limit = u32::MAX;
        step.config.control.send(self, step);
    }

    /// The application has this many packets of data, behind the SYN.
    pub fn transfer(&mut self, packets: u32, step: &mut Step) {
        self.limit = 1 + packets;
        step.config.control.send(self, step);
    }

    /// The application offers nothing new; what was sent is still delivered.
    pub fn close(&mut self) {
        self.limit = self.max_sent;
        if self.una == self.max_sent {
            self.rto_due = NEVER;
        }
    }

    #[inline(always)]
    pub fn on_ack(&mut self, ack: &Ack, step: &mut Step) {
        if step.config.ecn && ack.ece {
            step.config.control.on_ecn_echo(self, ack, step);
        }
        step.config.control.on_ack(self, ack, step);
    }

    /// The timer is due.
    pub fn on_timer(&mut self, step: &mut Step) {
        step.config.control.on_timer(self, step);
    }

    /// The retransmission timer fired.
    pub fn on_timeout(&mut self, step: &mut Step) {
        step.config.control.on_timeout(self);
        self.dup_acks = 0;
        self.inflation = 0;
        self.cwnd = self.cwnd.max(1.0);
        self.recover = self.max_sent;
        if self.una == 0 {
            self.syn_lost = true;
        }
        // Nothing in flight means nothing was lost: the window was below one packet (ECN).
        let lost = self.una < self.max_sent;
        if lost {
            // On top of a reduction for ECN the threshold is not lowered again.
            if self.action != WindowAction::Ecn {
                self.lower_threshold(step.config);
            }
            self.rto.back_off(step.config.min_rto_ns);
        }
        self.cwnd = 1.0;
        self.cwr_pending = true;
        self.action = WindowAction::Timeout;
        self.arm_timer(step);
        self.timed = None;
        // Go back to the first packet not acknowledged.
        self.next = self.una;
        step.config.control.send(self, step);
    }

    /// Reduces the window once per window of data (RFC 3168 section 6.1.2).
    pub fn reduce_for_mark(&mut self, ack_next: u32, step: &mut Step) {
        if ack_next <= self.recover && self.action != WindowAction::Timeout {
            return;
        }
        self.recover = self.max_sent;
        self.action = WindowAction::Ecn;
        if self.cwnd <= 1.0 {
            // The window cannot shrink further: the timer does (RFC 3168 section 6.1.2).
            if self.ecn_at_one {
                self.rto.back_off(step.config.min_rto_ns);
            }
            self.ecn_at_one = true;
        } else {
            self.ecn_at_one = false;
        }
        self.reduce(step.config);
    }

    /// Takes an ACK of new data: sequence, round trip, timer.
    pub fn new_ack(&mut self, ack: &Ack, step: &mut Step) {
        self.dup_acks = 0;
        self.una = ack.next;
        self.next = self.next.max(self.una);
        if let Some(timed) = self.timed {
            if ack.next > timed {
                if !(self.ecn_at_one && ack.ece) {
                    self.rto.reset_backoff();
                    self.ecn_at_one = false;
                }
                self.timed = None;
                self.rto.measured(self.timed_at, step.now);
            }
        }
        self.arm_or_stop_timer(step);
    }

    /// Takes an ACK of new data outside recovery, and lets the window grow.
    pub fn new_ack_and_grow(&mut self, ack: &Ack, step: &mut Step) {
        let acked = ack.next - self.una;
        self.new_ack(ack, step);
        if !(step.config.ecn && ack.ece) {
            if self.cwnd < self.ssthresh {
                // Slow start, per ACK (RFC 5681 section 3.1).
                self.cwnd += 1.0;
            } else {
                step.config.control.grow(self, acked, step.now);
            }
            self.ecn_at_one = false;
        }
        // The handshake ends here.
        if self.una == 1 {
            self.cwnd = match self.syn_lost {
                true => 1.0,
                false => f64::from(step.config.initial_window_pkts),
            };
        }
    }

    /// Packets that may be in flight.
    pub fn window(&self, config: &Config) -> u32 {
        (self.cwnd as u32 + self.inflation).min(config.window_pkts)
    }

    fn real_window(&self, config: &Config) -> f64 {
        (self.cwnd + f64::from(self.inflation)).min(f64::from(config.window_pkts))
    }

    /// Lowers the slow-start threshold for a loss or a mark; returns the window to go on with.
    fn lower_threshold(&mut self, config: &Config) -> f64 {
        let lowered = self.real_window(config) * config.control.decrease(self);
        self.ssthresh = lowered.floor().max(2.0);
        lowered
    }

    /// Multiplicative decrease.
    pub fn reduce(&mut self, config: &Config) {
        self.cwnd = self.lower_threshold(config);
        self.cwr_pending = true;
    }

    /// Sends new packets as far as window and application allow, at most `burst`.
    pub fn send_window(&mut self, step: &mut Step, burst: u32) {
        let end = self
            .una
            .saturating_add(self.window(step.config))
            .min(self.limit);
        for _ in 0..burst {
            if self.next >= end {
                break;
            }
            self.transmit(self.next, step);
            self.next += 1;
        }
    }

    /// Limited transmit: one new packet on each of the first two duplicate ACKs (RFC 3042).
    pub fn send_limited(&mut self, step: &mut Step) {
        let in_flight = self.next - self.una;
        let within = f64::from(in_flight + 1) <= self.cwnd + f64::from(self.dup_acks)
            && in_flight < step.config.window_pkts;
        if step.config.limited_transmit && within && self.next < self.limit {
            self.transmit(self.next, step);
            self.next += 1;
        }
    }

    /// Sends one packet, new or again.
    pub fn transmit(&mut self, seq: u32, step: &mut Step) {
        let nothing_in_flight = self.una == self.max_sent;
        step.out.push(Segment {
            seq,
            cwr: std::mem::take(&mut self.cwr_pending),
            ect: true,
        });
        if seq >= self.max_sent {
            self.max_sent = seq + 1;
            if self.timed.is_none() {
                self.timed = Some(seq);
                self.timed_at = step.now;
            }
        }
        if nothing_in_flight || self.rto_due == NEVER {
            self.arm_timer(step);
        }
    }

    /// Restarts the timer and gives up the current measurement: a retransmission follows.
    pub fn restart_timer(&mut self, step: &Step) {
        self.arm_timer(step);
        self.timed = None;
    }

    /// A partial ACK covers the packet being timed: it is not measured, but ends the backoff.
    pub fn end_measurement(&mut self, ack_next: u32) {
        if self.timed.is_some_and(|timed| ack_next > timed) {
            self.timed = None;
            self.rto.reset_backoff();
        }
    }

    pub fn arm_timer(&mut self, step: &Step) {
        self.rto_due = step.now + self.rto.timeout_ns(step.config.min_rto_ns);
    }

    pub fn arm_or_stop_timer(&mut self, step: &Step) {
        // With nothing in flight and nothing to send there is nothing to time; with the window
        // below one packet (ECN) only the timer lets the next one out.
        if self.una < self.max_sent || self.next < self.limit || self.cwnd < 1.0 {
            self.arm_timer(step);
        } else {
            self.rto_due = NEVER;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_of_a_sender_stays_small() {
        assert_eq!(std::mem::size_of::<Sender>(), 128);
    }
}
