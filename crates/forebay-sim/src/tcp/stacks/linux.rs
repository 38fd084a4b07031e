//! The sending side of TCP as in the Linux kernel (net/ipv4/tcp_input.c, tcp_output.c and
//! tcp_timer.c of 6.18): a scoreboard, RACK and tail loss probes (RFC 8985), PRR (RFC 9937), F-RTO
//! (RFC 5682), timeouts with a minimum of the deviation's term, and delivery rates.
//!
//! Not modelled: undoing a reduction because of DSACKs (the receiver sends none), SACK reneging,
//! and the slow-start restart after idle times.

mod prr;
mod rack;
mod rate;
mod receive_window;
mod recovery;
mod rtt;
mod scoreboard;
mod sequence_ring;
pub mod timer_wheel;
mod transmit;
mod writes;

use forebay_aqm::Ecn;
use forebay_units::{Span, Time};

use crate::tcp::congestion::{
    AckSample, CongestionControl, DeliveryRate, Established, RateSample, RecoveryState,
};
use crate::tcp::connection::{Ack, Config, Connection, SenderStep};
use crate::tcp::senders::TcpSender;
use prr::Prr;
use rack::Rack;
use rate::RateSampler;
use receive_window::ReceiveWindow;
use rtt::Rtt;
use scoreboard::Scoreboard;
use writes::Writes;

/// The state of the sender (the kernel's `icsk_ca_state`). Comparisons use the order of the states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
enum CaState {
    Open,
    /// Packets are missing, but may still be under way.
    Disorder,
    /// The window is being reduced for a mark.
    Cwr,
    /// Packets were lost, and the window is being reduced.
    Recovery,
    /// A timeout has occurred.
    Loss,
}

/// The purpose of the sender's only timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Timer {
    None,
    Retransmit,
    /// A tail loss probe.
    Probe,
    /// The end of the reordering window, when packets that are still missing count as lost.
    Reordering,
}

/// The packets that an ACK requires to be sent before other new data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Retransmit {
    Nothing,
    Lost,
    /// New data instead of lost packets, for F-RTO.
    New,
}

/// The sending state of a connection. Its numbers `una`, `next`, `max_sent` and `limit` are in
/// [`Connection`], as for every sender.
#[derive(Clone, Debug)]
pub struct Linux<C> {
    connection: Connection,
    congestion: C,
    state: CaState,
    scoreboard: Scoreboard,
    rack: Rack,
    prr: Prr,
    rtt: Rtt,
    /// Recovery or a reduction ends when this number is acknowledged.
    high_seq: u32,
    timer: Timer,
    /// A probe under way: the next number when it was sent, and true if it repeats a packet.
    probe: Option<(u32, bool)>,
    /// Number of timeouts since new data was acknowledged.
    timeouts: u32,
    syn_timeouts: u32,
    /// The ECN field of its packets: as configured, unless a SYN was lost.
    ect: Ecn,
    /// True while F-RTO examines whether the timeout was spurious.
    frto: bool,
    /// Window and threshold to restore if the timeout was spurious.
    before_timeout: Option<(u32, u32)>,
    /// True if the reduction under way may be undone (`undo_marker`).
    may_undo: bool,
    /// True if the window limited the sender in the last round trip.
    cwnd_limited: bool,
    /// Largest number of unacknowledged packets in that round trip.
    max_packets_out: u32,
    cwnd_usage_seq: u32,
    last_sent_at: Time,
    receive_window: ReceiveWindow,
    writes: Writes,
    /// The sampler of delivery rates, if the congestion control uses them.
    rates: Option<Box<RateSampler>>,
}

/// The news of an ACK, collected during its processing.
#[derive(Clone, Copy, Debug, Default)]
struct AckReport {
    /// Packets newly reported as arrived, by number or by SACK.
    delivered: u32,
    /// True if packets were acknowledged by number.
    una_advanced: bool,
    sacked: bool,
    ece: bool,
    /// True if a packet from before the timeout that was sent only once has arrived.
    first_copy: bool,
    /// True if the first packet was retransmitted so recently that this ACK is for the earlier
    /// copy.
    delayed: bool,
    /// Packets newly marked lost.
    lost: u32,
    /// True if retransmissions are among them.
    lost_copies: bool,
    /// True if the timer is to be set again.
    set_timer: bool,
    /// Packets newly reported as marked.
    ce_pkts: u32,
    rtt: Option<Span>,
    prior_in_flight_pkts: u32,
}

/// Facts about the packets that an ACK reports: the sending times of the first and the last one
/// among those sent only once, and more.
#[derive(Clone, Copy, Debug, Default)]
struct Deliveries {
    /// Sending times of the first and last packet reported by number.
    acked: Option<(Time, Time)>,
    /// Sending times of the first and last packet reported by SACK.
    sacked: Option<(Time, Time)>,
    /// True if a retransmitted packet is acknowledged by number.
    copy_acked: bool,
    /// Largest distance by which packets have arrived behind later ones.
    behind_pkts: u32,
}

impl<C: CongestionControl> TcpSender for Linux<C> {
    fn new(config: &Config, phase: f64) -> Linux<C> {
        let mut sender = Linux::<C>::new(Connection::new(), config);
        sender.congestion.set_phase(phase);
        sender
    }

    fn reset(&mut self, config: &Config, phase: f64) {
        *self = Linux::new(self.connection.successor(), config);
        self.congestion.set_phase(phase);
    }

    fn connection(&mut self) -> &mut Connection {
        &mut self.connection
    }

    fn in_flight_pkts(&mut self) -> u32 {
        self.scoreboard.in_flight()
    }

    fn on_ack(&mut self, ack: &Ack, step: &mut SenderStep) {
        let before = self.connection.una;
        if ack.next < before {
            return;
        }
        if before == 0 {
            return self.end_handshake(ack, step);
        }
        if self.scoreboard.packets_out() == 0 {
            self.send_new(step);
            return;
        }
        let ordinary =
            self.state == CaState::Open && self.probe.is_none() && self.scoreboard.is_in_order();
        let says_no_more = ack.next > before && ack.blocks.is_empty() && !(ack.ece && self.ecn());
        if !(ordinary && says_no_more && self.process_on_fast_path(ack, step)) {
            self.process_on_slow_path(ack, step);
            self.send_new(step);
        } else if !self.send_new(step) {
            // If new data had been sent, its timer would be set already.
            self.set_timer(step);
        }
    }

    fn on_timer(&mut self, step: &mut SenderStep) {
        match self.timer {
            Timer::None => self.connection.timer_due = Time::NEVER,
            Timer::Reordering => self.on_reordering_timer(step),
            Timer::Probe => self.send_tail_loss_probe(step),
            Timer::Retransmit => self.on_retransmission_timeout(step),
        }
    }

    fn send(&mut self, step: &mut SenderStep) {
        self.send_new(step);
    }

    fn on_pace(&mut self, step: &mut SenderStep) {
        self.retransmit_lost(step);
        self.send_new(step);
    }
}

impl<C: CongestionControl> Linux<C> {
    fn new(connection: Connection, config: &Config) -> Linux<C> {
        Linux {
            connection,
            congestion: C::new(config),
            state: CaState::Open,
            scoreboard: Scoreboard::default(),
            rack: Rack::default(),
            prr: Prr::default(),
            rtt: Rtt::default(),
            high_seq: 0,
            timer: Timer::None,
            probe: None,
            timeouts: 0,
            syn_timeouts: 0,
            ect: config.ect,
            frto: false,
            before_timeout: None,
            may_undo: false,
            cwnd_limited: false,
            max_packets_out: 0,
            cwnd_usage_seq: 0,
            last_sent_at: Time::ZERO,
            receive_window: ReceiveWindow::new(config),
            writes: Writes::default(),
            rates: C::RATE_SAMPLES.then(Box::default),
        }
    }

    /// Returns true while the window is being reduced.
    fn reducing(&self) -> bool {
        matches!(self.state, CaState::Cwr | CaState::Recovery)
    }

    /// Returns true if the window limited the sender (`tcp_is_cwnd_limited`).
    #[inline(always)]
    fn is_cwnd_limited(&self) -> bool {
        let cwnd = self.congestion.cwnd_pkts();
        self.cwnd_limited
            || cwnd < self.congestion.ssthresh_pkts() && cwnd < 2 * self.max_packets_out
    }

    /// Takes a sample of the delivery rate and passes it to the congestion control.
    fn sample_rate(&mut self, report: &AckReport, step: &SenderStep) {
        let Some(rates) = &mut self.rates else {
            return;
        };
        let total_lost_pkts = self.scoreboard.total_lost();
        let min_rtt = self.rtt.min_rtt;
        let rate = rates.sample(self.connection.una, step.now, min_rtt, total_lost_pkts);
        let sample = self.rate_sample(rate, report, step.now);
        self.congestion.on_rate(&sample);
        let in_flight_pkts = sample.in_flight_pkts;
        if let (Some(rates), true) = (&mut self.rates, self.congestion.probes_rtt()) {
            rates.set_app_limited(in_flight_pkts);
        }
    }

    /// Builds the sample for the congestion control from a delivery rate and the report of an ACK.
    #[inline(always)]
    fn rate_sample(&self, rate: Option<DeliveryRate>, report: &AckReport, now: Time) -> RateSample {
        let (delivered_pkts, delivered_at) = match &self.rates {
            Some(rates) => rates.delivered(),
            None => (0, Time::ZERO),
        };
        RateSample {
            now,
            rate,
            acked_pkts: report.delivered,
            ce_pkts: report.ce_pkts,
            lost_pkts: report.lost,
            rtt: report.rtt,
            delivered_pkts,
            delivered_at,
            total_lost_pkts: self.scoreboard.total_lost(),
            prior_in_flight_pkts: report.prior_in_flight_pkts,
            in_flight_pkts: self.scoreboard.in_flight(),
            recovery_state: match self.state {
                CaState::Recovery => RecoveryState::Recovery,
                CaState::Loss => RecoveryState::Loss,
                CaState::Open | CaState::Disorder | CaState::Cwr => RecoveryState::Open,
            },
            pace_wait: self.connection.pacer.next_at() - now,
        }
    }

    /// Returns true if packets can be marked.
    #[inline]
    fn ecn(&self) -> bool {
        self.ect != Ecn::NotEct
    }

    /// Ends the handshake when the SYN is acknowledged, and sends the first data.
    fn end_handshake(&mut self, ack: &Ack, step: &mut SenderStep) {
        if ack.next == 0 {
            return;
        }
        self.apply_ack(ack, step);
        if let Some(rates) = &mut self.rates {
            // The SYN yields no delivery rate.
            rates.sample(self.connection.una, step.now, Span::MAX, 0);
        }
        // The kernel keeps the initial window after one lost SYN; RFC 6298 section 5.7 would not.
        let start = Established::of(&self.connection, step, self.syn_timeouts > 1, self.rtt.srtt);
        self.congestion.on_established(&start);
        self.timeouts = 0;
        self.rearm_timeout(step);
        self.acknowledge_syn(step);
        self.send_new(step);
    }

    /// Takes an ACK that only reports packets, each sent once and arrived in order, outside of
    /// recovery.
    ///
    /// The result is that of [`Self::process_on_slow_path`]. Returns false, and does nothing, if
    /// the ACK acknowledges packets that were not sent.
    #[inline(always)]
    fn process_on_fast_path(&mut self, ack: &Ack, step: &mut SenderStep) -> bool {
        let (now, una, next) = (step.now, ack.next, self.connection.next);
        let delivered = una - self.connection.una;
        let prior_in_flight_pkts = self.scoreboard.in_flight();
        let Some((first_sent_at, last_sent_at)) = self.scoreboard.advance_in_order(una) else {
            return false;
        };
        if C::RATE_SAMPLES {
            if let Some(rates) = &mut self.rates {
                rates.on_delivered_in_order(delivered, una - 1);
            }
        }
        self.rack.advance_in_order(una - 1, last_sent_at, now);
        self.connection.una = una;
        self.timeouts = 0;
        let rtt = Some(now - last_sent_at);
        self.rtt.min_rtt = self.rtt.min_rtt.min(now - last_sent_at);
        let round_ends = self
            .rtt
            .update(now - first_sent_at, una, next, step.config.min_rto);
        if round_ends {
            self.receive_window.end_round(una);
        }
        self.receive_window.offer(una);
        self.congestion.on_ack(&AckSample {
            now,
            una,
            next,
            rtt,
            srtt: self.rtt.srtt,
            delivered_pkts: delivered,
            ce_pkts: ack.ce_pkts,
        });
        let report = AckReport {
            delivered,
            una_advanced: true,
            ce_pkts: ack.ce_pkts,
            rtt,
            prior_in_flight_pkts,
            ..AckReport::default()
        };
        if C::RATE_SAMPLES {
            self.sample_rate(&report, step);
        }
        if !C::CONTROLS && self.is_cwnd_limited() {
            self.grow(delivered, step);
        }
        true
    }

    /// Takes an ACK, detects losses and repairs them.
    fn process_on_slow_path(&mut self, ack: &Ack, step: &mut SenderStep) {
        let mut report = self.apply_ack(ack, step);
        self.process_probe_ack(&report);
        let dubious = !report.una_advanced || report.sacked || report.ece;
        let retransmit = match dubious || self.state != CaState::Open {
            true => self.run_state_machine(&mut report, step),
            false => Retransmit::Nothing,
        };
        if report.set_timer {
            self.set_timer(step);
        }
        if C::RATE_SAMPLES {
            self.sample_rate(&report, step);
        }
        self.update_cwnd(&report, step);
        self.send_in_recovery(retransmit, step);
    }

    /// Updates the scoreboard, RACK and the round-trip time with an ACK, and returns its news.
    fn apply_ack(&mut self, ack: &Ack, step: &mut SenderStep) -> AckReport {
        let now = step.now;
        let mut report = AckReport {
            una_advanced: ack.next > self.connection.una,
            ece: ack.ece && self.ecn(),
            ce_pkts: ack.ce_pkts,
            prior_in_flight_pkts: self.scoreboard.in_flight(),
            ..AckReport::default()
        };
        let head = self.scoreboard.head().copied();
        report.delayed = report.una_advanced
            && head.is_some_and(|sent| {
                sent.ever_retransmitted && now - sent.sent_at < self.rtt.min_rtt
            });
        let deliveries = self.take_deliveries(ack, now, &mut report);
        if deliveries.behind_pkts > 0 {
            self.rack.on_reordering(deliveries.behind_pkts);
        }
        if report.una_advanced {
            self.connection.una = ack.next;
            self.timeouts = 0;
        }
        let head_sent_at = head.map(|sent| sent.sent_at);
        self.take_round_trip(&deliveries, head_sent_at, &mut report, step);
        let Connection { una, next, .. } = self.connection;
        self.congestion.on_ack(&AckSample {
            now,
            una,
            next,
            rtt: report.rtt,
            srtt: self.rtt.srtt,
            delivered_pkts: report.delivered,
            ce_pkts: ack.ce_pkts,
        });
        match self.scoreboard.highest_sacked() {
            None => self.receive_window.offer(una),
            Some(highest) => {
                let held_pkts = self.scoreboard.sacked_out();
                self.receive_window
                    .offer_behind(una, held_pkts, highest + 1);
            }
        }
        // A SACK restarts the timer only if its packet was sent before the first unacknowledged
        // packet was last sent. Otherwise the timeout of a lost retransmission would be postponed
        // again and again.
        report.set_timer = report.una_advanced
            || match (deliveries.sacked, self.scoreboard.head()) {
                (Some((first_sent_at, _)), Some(head)) => first_sent_at < head.sent_at,
                _ => false,
            };
        report
    }

    /// Updates the scoreboard, RACK and the rate sampler with each packet that an ACK reports for
    /// the first time.
    fn take_deliveries(&mut self, ack: &Ack, now: Time, report: &mut AckReport) -> Deliveries {
        let mut deliveries = Deliveries::default();
        let (rack, high, min_rtt) = (&mut self.rack, self.high_seq, self.rtt.min_rtt);
        let rates = &mut self.rates;
        self.scoreboard.update(ack, |delivery| {
            report.delivered += 1;
            report.sacked |= delivery.by_sack;
            if let Some(rates) = rates {
                rates.on_delivered(delivery.seq);
            }
            rack.advance(&delivery, now, min_rtt);
            let sent_at = delivery.sent.sent_at;
            if delivery.sent.ever_retransmitted {
                deliveries.copy_acked |= !delivery.by_sack;
                return;
            }
            deliveries.behind_pkts = deliveries.behind_pkts.max(delivery.behind_pkts);
            report.first_copy |= delivery.seq < high;
            let sent = match delivery.by_sack {
                true => &mut deliveries.sacked,
                false => &mut deliveries.acked,
            };
            let (first_sent_at, _) = sent.unwrap_or((sent_at, sent_at));
            *sent = Some((first_sent_at, sent_at));
        });
        deliveries
    }

    /// Updates the round-trip time if the ACK yields a sample.
    fn take_round_trip(
        &mut self,
        deliveries: &Deliveries,
        head_sent_at: Option<Time>,
        report: &mut AckReport,
        step: &SenderStep,
    ) {
        let now = step.now;
        let Connection { una, next, .. } = self.connection;
        // The sample comes from a packet that was sent once, preferably acknowledged by number,
        // else by SACK. Without either, it comes from the timestamp of the first unacknowledged
        // packet, which may be a retransmission.
        let by_number = deliveries.acked.filter(|_| !deliveries.copy_acked);
        let by_stamp = (head_sent_at.filter(|_| report.una_advanced))
            .map(|at| now - rtt::stamped_rtt(at, now))
            .map(|at| (at, at));
        let sacked = deliveries.sacked;
        let Some((first_sent_at, _)) = by_number.or(sacked).or(by_stamp) else {
            return;
        };
        let last = sacked.or(by_number).or(by_stamp);
        let last_sent_at = last.map_or(first_sent_at, |(_, last)| last);
        let rtt = now - last_sent_at;
        self.rtt.min_rtt = self.rtt.min_rtt.min(rtt);
        let floor = step.config.min_rto;
        if self.rtt.update(now - first_sent_at, una, next, floor) {
            self.receive_window.end_round(una);
        }
        report.rtt = Some(rtt);
    }
}

#[cfg(test)]
mod tests;
