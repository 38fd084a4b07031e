//! Senders that follow ns-2.35's one-way agents, so that runs can be compared with ns-2's. All of
//! them share [`Agent`]; each kind of loss recovery has its own file.

mod newreno;
mod reno;
mod rto;
mod sack;

pub use newreno::NewReno;
pub use reno::Reno;
pub use sack::Sack;

use forebay_aqm::Ecn;
use forebay_units::{Span, Time};

use crate::tcp::congestion::{
    AckSample, CongestionControl, CongestionEvent, Established, Growth, Indication,
};
use crate::tcp::connection::{Ack, Config, Connection, SenderStep};
use crate::tcp::senders::TcpSender;
use crate::uplink::TcpSegment;
use rto::RtoEstimator;

/// Duplicate ACKs that trigger fast retransmit (RFC 5681 section 3.2).
const DUP_ACKS: u32 = 3;

/// The number of no packet: that of a measurement that is not under way.
const NOT_TIMED: u32 = u32::MAX;

/// The last event that changed the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WindowAction {
    None,
    FastRetransmit,
    /// A fast retransmit whose recovery has ended.
    Recovered,
    Timeout,
    Ecn,
}

/// The loss recovery of an agent.
pub trait LossRecovery: Default + Send {
    /// Takes an ACK, whose ECN echo has been processed, and sends the packets that it allows.
    fn on_ack<C: CongestionControl>(
        &mut self,
        agent: &mut Agent<C>,
        ack: &Ack,
        step: &mut SenderStep,
    );

    /// Forgets the known losses after a timeout; the agent does the rest.
    fn on_timeout<C: CongestionControl>(&mut self, _agent: &mut Agent<C>) {}

    /// Sends the packets that the window allows.
    fn send<C: CongestionControl>(&mut self, agent: &mut Agent<C>, step: &mut SenderStep) {
        agent.send_window(step, u32::MAX);
    }

    /// Begins a new connection. With `ns2_reset` it keeps the state that ns-2's agents do not
    /// reset.
    fn reset(&mut self, _ns2_reset: bool) {
        *self = Self::default();
    }
}

/// The sending state of a connection; two cache lines if recovery and congestion control are small.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub struct Ns2<L, C> {
    agent: Agent<C>,
    loss: L,
}

/// The state that all of ns-2's agents share.
#[derive(Clone, Debug)]
pub struct Agent<C> {
    connection: Connection,
    congestion: C,
    /// Losses below this number belong to the last recovery (RFC 6582's `recover`, plus one).
    recover: u32,
    dup_acks: u32,
    /// Inflation of the window during fast recovery.
    inflation: u32,
    /// The packet whose round trip is being measured, one at a time, by Karn's algorithm;
    /// [`NOT_TIMED`] if there is none.
    timed: u32,
    /// The time at which that packet was sent.
    timed_at: Time,
    rto: RtoEstimator,
    /// The retransmission timeout of `rto`, which every ACK reads and few change.
    timeout: Span,
    action: WindowAction,
    /// True if a SYN was lost, so that the window after the handshake is 1 (RFC 5681 section 3.1).
    syn_lost: bool,
    /// True if the window was 1 at the last reduction for a mark.
    ecn_at_one: bool,
}

impl<L: LossRecovery, C: CongestionControl> TcpSender for Ns2<L, C> {
    fn new(config: &Config, phase: f64) -> Ns2<L, C> {
        Ns2 {
            agent: Agent::new(Connection::new(), config, phase),
            loss: L::default(),
        }
    }

    fn reset(&mut self, config: &Config, phase: f64) {
        self.loss.reset(config.ns2_reset);
        let old = &self.agent;
        let fresh = Agent::new(old.connection.successor(), config, phase);
        self.agent = if config.ns2_reset {
            // The inflation of an unfinished recovery lets the new connection send before its
            // handshake is complete, and a packet still being timed makes its first round-trip
            // sample far too long.
            Agent {
                inflation: old.inflation,
                syn_lost: old.syn_lost,
                timed: match old.timed {
                    NOT_TIMED => NOT_TIMED,
                    _ => 0,
                },
                timed_at: old.timed_at,
                ..fresh
            }
        } else {
            fresh
        };
    }

    fn connection(&mut self) -> &mut Connection {
        &mut self.agent.connection
    }

    #[inline(always)]
    fn on_ack(&mut self, ack: &Ack, step: &mut SenderStep) {
        if ack.ece && step.config.ecn() {
            self.agent.reduce_for_mark(ack.next, step);
        }
        if ack.next >= self.agent.connection.una {
            self.loss.on_ack(&mut self.agent, ack, step);
        }
    }

    /// The retransmission timer fired.
    fn on_timer(&mut self, step: &mut SenderStep) {
        self.loss.on_timeout(&mut self.agent);
        self.agent.on_timeout_expired(step);
        self.loss.send(&mut self.agent, step);
    }

    fn send(&mut self, step: &mut SenderStep) {
        self.loss.send(&mut self.agent, step);
    }
}

impl<C: CongestionControl> Agent<C> {
    fn new(connection: Connection, config: &Config, phase: f64) -> Agent<C> {
        let rto = RtoEstimator::new(phase);
        Agent {
            connection,
            congestion: C::new(config),
            recover: 1,
            dup_acks: 0,
            inflation: 0,
            timed: NOT_TIMED,
            timed_at: Time::ZERO,
            timeout: rto.timeout(config.min_rto),
            rto,
            action: WindowAction::None,
            syn_lost: false,
            ecn_at_one: false,
        }
    }

    /// Reduces the window after a timeout and goes back to the first unacknowledged packet.
    fn on_timeout_expired(&mut self, step: &mut SenderStep) {
        self.dup_acks = 0;
        self.inflation = 0;
        self.congestion.set_cwnd(self.congestion.cwnd().max(1.0));
        self.recover = self.connection.max_sent;
        if self.connection.una == 0 {
            self.syn_lost = true;
        }
        // If nothing is in flight, nothing was lost: marks had reduced the window below one packet.
        let lost = self.connection.una < self.connection.max_sent;
        if lost {
            // After a reduction for a mark the threshold is not lowered again.
            if self.action != WindowAction::Ecn {
                self.reduce_ssthresh(Indication::Timeout, step.config);
            }
            self.back_off(step.config);
        }
        self.congestion.set_cwnd(1.0);
        self.congestion.on_timeout(step.now, self.connection.next);
        self.connection.cwr_pending = true;
        self.action = WindowAction::Timeout;
        self.arm_timer(step);
        self.timed = NOT_TIMED;
        // Go back to the first packet not acknowledged.
        self.connection.next = self.connection.una;
    }

    /// Reduces the window for a mark, once per window of data (RFC 3168 section 6.1.2).
    fn reduce_for_mark(&mut self, ack_next: u32, step: &mut SenderStep) {
        if ack_next <= self.recover && self.action != WindowAction::Timeout {
            return;
        }
        self.recover = self.connection.max_sent;
        self.action = WindowAction::Ecn;
        if self.congestion.cwnd() <= 1.0 {
            // The window cannot shrink further, so the timeout grows (RFC 3168 section 6.1.2).
            if self.ecn_at_one {
                self.back_off(step.config);
            }
            self.ecn_at_one = true;
        } else {
            self.ecn_at_one = false;
        }
        self.reduce(Indication::Mark, step.config);
    }

    /// Takes an ACK of new data: updates the sequence numbers, the round-trip time and the timer.
    #[inline(always)]
    fn new_ack(&mut self, ack: &Ack, step: &mut SenderStep) {
        self.dup_acks = 0;
        let delivered_pkts = ack.next - self.connection.una;
        self.advance(ack.next);
        let timed = ack.next > self.timed;
        if timed {
            if !(self.ecn_at_one && ack.ece) {
                self.rto.reset_backoff();
                self.ecn_at_one = false;
            }
            self.timed = NOT_TIMED;
            self.rto.update(self.timed_at, step.now);
            self.timeout = self.rto.timeout(step.config.min_rto);
        }
        self.congestion.on_ack(&AckSample {
            now: step.now,
            una: self.connection.una,
            next: self.connection.next,
            rtt: timed.then(|| step.now - self.timed_at),
            srtt: self.rto.srtt(),
            delivered_pkts,
            ce_pkts: ack.ce_pkts,
        });
        self.arm_or_stop_timer(step);
    }

    /// Takes an ACK of new data outside recovery, and lets the window grow.
    #[inline(always)]
    fn new_ack_and_grow(&mut self, ack: &Ack, step: &mut SenderStep) {
        let acked_pkts = ack.next - self.connection.una;
        self.new_ack(ack, step);
        if !(ack.ece && step.config.ecn()) {
            self.congestion.grow(&Growth {
                now: step.now,
                acked_pkts,
                srtt: self.rto.srtt(),
            });
            self.ecn_at_one = false;
        }
        // The handshake ends here.
        if self.connection.una == 1 {
            let srtt = self.rto.srtt();
            let start = Established::of(&self.connection, step, self.syn_lost, srtt);
            self.congestion.on_established(&start);
        }
    }

    /// Returns the pacing rate in bytes per second.
    #[inline(always)]
    fn bytes_per_s(&self, config: &Config) -> f64 {
        let srtt = self.rto.srtt();
        let cwnd = self.congestion.cwnd_pkts();
        self.congestion
            .bytes_per_s(cwnd, srtt, config.payload_bytes)
    }

    /// Moves the first unacknowledged packet to `una`.
    #[inline(always)]
    fn advance(&mut self, una: u32) {
        let connection = &mut self.connection;
        connection.una = una;
        connection.next = connection.next.max(una);
    }

    /// Returns the number of packets that may be in flight.
    #[inline(always)]
    fn usable_pkts(&self, config: &Config) -> u32 {
        (self.congestion.cwnd_pkts() + self.inflation).min(config.window_pkts)
    }

    /// Lowers the slow-start threshold for a loss or a mark; returns the new window.
    fn reduce_ssthresh(&mut self, indication: Indication, config: &Config) -> f64 {
        let inflated = self.congestion.cwnd() + f64::from(self.inflation);
        self.congestion.on_congestion_event(&CongestionEvent {
            indication,
            in_use_pkts: inflated.min(f64::from(config.window_pkts)),
        })
    }

    /// Reduces the window for a loss or a mark (multiplicative decrease).
    fn reduce(&mut self, indication: Indication, config: &Config) {
        let lowered = self.reduce_ssthresh(indication, config);
        self.congestion.set_cwnd(lowered);
        self.connection.cwr_pending = true;
    }

    /// Sends new packets as far as the window and the application allow, at most `burst`.
    #[inline(always)]
    fn send_window(&mut self, step: &mut SenderStep, burst: u32) {
        let connection = &self.connection;
        let end = connection
            .una
            .saturating_add(self.usable_pkts(step.config))
            .min(connection.limit)
            .min(connection.next.saturating_add(burst));
        while self.connection.next < end && !self.connection.held(step) {
            self.transmit(self.connection.next, step);
            self.connection.next += 1;
        }
    }

    /// Sends one new packet on each of the first two duplicate ACKs (limited transmit, RFC 3042).
    #[inline(never)]
    fn send_limited(&mut self, step: &mut SenderStep) {
        let Connection {
            una, next, limit, ..
        } = self.connection;
        let in_flight = next - una;
        let within = in_flight < self.congestion.cwnd_pkts() + self.dup_acks
            && in_flight < step.config.window_pkts;
        let may_send = step.config.limited_transmit && within && next < limit;
        if may_send && !self.connection.held(step) {
            self.transmit(next, step);
            self.connection.next += 1;
        }
    }

    /// Sends one packet for the first time or again.
    #[inline(always)]
    fn transmit(&mut self, seq: u32, step: &mut SenderStep) {
        let connection = &mut self.connection;
        let in_flight_pkts = connection.max_sent - connection.una;
        self.congestion.on_sent(step.now, in_flight_pkts, false);
        let segment = TcpSegment {
            bare: false,
            push: false,
            seq,
            cwr: std::mem::take(&mut connection.cwr_pending),
            // A SYN is not ECN-capable (RFC 3168 section 6.1.1).
            ecn: match seq {
                0 => Ecn::NotEct,
                _ => step.config.ect,
            },
        };
        step.send(connection, segment);
        let nothing_in_flight = connection.una == connection.max_sent;
        if nothing_in_flight || connection.timer_due == Time::NEVER {
            connection.timer_due = step.now + self.timeout;
        }
        if seq >= connection.max_sent {
            connection.max_sent = seq + 1;
            if self.timed == NOT_TIMED {
                self.timed = seq;
                self.timed_at = step.now;
            }
        } else {
            step.resent_pkts += 1;
        }
        if step.config.pacing {
            let bytes_per_s = self.bytes_per_s(step.config);
            let bytes = u32::from(step.config.payload_bytes);
            let pacer = &mut self.connection.pacer;
            pacer.sent(step.now, bytes, bytes_per_s, seq);
        }
    }

    /// Restarts the timer and abandons the current measurement, before a retransmission.
    fn restart_timer(&mut self, step: &SenderStep) {
        self.arm_timer(step);
        self.timed = NOT_TIMED;
    }

    /// Abandons the current measurement if a partial ACK covers the timed packet, and ends the
    /// backoff.
    fn end_measurement(&mut self, ack_next: u32, config: &Config) {
        if ack_next > self.timed {
            self.timed = NOT_TIMED;
            self.end_backoff(config);
        }
    }

    /// Doubles the timeout.
    fn back_off(&mut self, config: &Config) {
        self.rto.back_off(config.min_rto);
        self.timeout = self.rto.timeout(config.min_rto);
    }

    /// Ends the backoff of the timeout.
    fn end_backoff(&mut self, config: &Config) {
        self.rto.reset_backoff();
        self.timeout = self.rto.timeout(config.min_rto);
    }

    /// Restarts the retransmission timer.
    #[inline(always)]
    fn arm_timer(&mut self, step: &SenderStep) {
        self.connection.timer_due = step.now + self.timeout;
    }

    /// Restarts the retransmission timer, or stops it if there is nothing to wait for.
    #[inline(always)]
    fn arm_or_stop_timer(&mut self, step: &SenderStep) {
        let connection = &mut self.connection;
        // The timer stops if nothing is in flight and nothing is to be sent. If marks have reduced
        // the window below one packet, only the timer releases the next packet.
        let nothing = connection.una >= connection.max_sent && connection.next >= connection.limit;
        if nothing && self.congestion.cwnd() >= 1.0 {
            connection.timer_due = Time::NEVER;
        } else {
            self.arm_timer(step);
        }
    }
}
