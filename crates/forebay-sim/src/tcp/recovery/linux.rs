//! TCP as the Linux kernel sends it (net/ipv4/tcp_input.c, tcp_output.c and tcp_timer.c of 6.18):
//! RACK and tail loss probes (RFC 8985), PRR (RFC 9937), F-RTO (RFC 5682), timeouts with a floor
//! on the deviation, whole-packet windows that grow by packets acknowledged, and Reno's or CUBIC's
//! growth.
//!
//! Left out: undoing a reduction for what DSACKs or timestamps tell (the receiver sends no DSACK),
//! SACK reneging, pacing (off in the kernel too without the `fq` queue), the restart after idle,
//! and auto-tuned receive windows.

mod board;
mod prr;
mod rack;
mod rate;
mod rtt;
mod states;
mod transmit;

use crate::tcp::connection::{Ack, Config, Connection, Step, NEVER};
use crate::tcp::senders::Sender;
use crate::tcp::window::{AckSample, RateSample, Repair, Window};
use board::Board;
use prr::Prr;
use rack::Rack;
use rate::RateSampler;
use rtt::Rtt;

/// Where the sender stands (the kernel's `icsk_ca_state`). The order matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
enum State {
    Open,
    /// Something is missing, but may be on its way.
    Disorder,
    /// The window is being reduced for a mark.
    Reduced,
    /// Packets are lost, and the window is being reduced.
    Recovery,
    /// After a timeout.
    Loss,
}

/// What the one timer stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Timer {
    None,
    Retransmit,
    /// Tail loss probe.
    Probe,
    /// What is late now is lost then.
    Reordering,
}

/// What an ACK asks to send before new data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Resend {
    Nothing,
    Lost,
    /// F-RTO sends new data instead.
    New,
}

/// A connection's sending state. Of its numbers `una`, `next`, `max_sent` and `limit` are those
/// of every sender.
#[derive(Clone, Debug)]
pub struct Linux<W> {
    connection: Connection,
    window: W,
    state: State,
    board: Board,
    rack: Rack,
    prr: Prr,
    rtt: Rtt,
    /// Recovery, or a reduction, is over when this number is acknowledged.
    high: u32,
    timer: Timer,
    /// A probe is out: the next number when it was sent, and whether it repeats a packet.
    probe: Option<(u32, bool)>,
    /// Timeouts since anything new was acknowledged.
    timeouts: u32,
    syn_timeouts: u32,
    /// F-RTO is looking whether the timeout came too early.
    frto: bool,
    /// Window and threshold to go back to if it did.
    before_timeout: Option<(u32, u32)>,
    /// Whether the window was in the way in the last round trip, and how much of it was used.
    cwnd_limited: bool,
    used_pkts: u32,
    used_until: u32,
    last_sent_ns: u64,
    /// Where the window asks for rates.
    rates: Option<Box<RateSampler>>,
}

/// What an ACK has said so far.
#[derive(Clone, Copy, Debug, Default)]
struct News {
    /// Packets that have arrived, by number or by SACK.
    delivered: u32,
    /// The first unacknowledged packet moved on.
    una_advanced: bool,
    sacked: bool,
    ece: bool,
    /// A packet from before the timeout that was sent once has arrived.
    first_copy: bool,
    /// Packets newly marked lost, and whether some of them had been sent again.
    lost: u32,
    lost_copies: bool,
    set_timer: bool,
    /// Newly reported as marked.
    ce_pkts: u32,
    rtt_ns: Option<u64>,
    prior_in_flight_pkts: u32,
}

impl<W: Window> Sender for Linux<W> {
    fn new(config: &Config, phase: f64) -> Linux<W> {
        let mut sender = Linux::<W>::new(Connection::new(), config);
        sender.window.set_phase(phase);
        sender
    }

    fn reset(&mut self, config: &Config, phase: f64) {
        *self = Linux::new(self.connection.successor(), config);
        self.window.set_phase(phase);
    }

    fn connection(&mut self) -> &mut Connection {
        &mut self.connection
    }

    fn in_flight_pkts(&mut self) -> u32 {
        self.board.in_flight()
    }

    fn on_ack(&mut self, ack: &Ack, step: &mut Step) {
        let before = self.connection.una;
        if ack.next < before {
            return;
        }
        if before == 0 {
            return self.end_handshake(ack, step);
        }
        if self.board.packets_out() > 0 {
            let mut news = self.take(ack, step);
            self.see_probe_answered(&news, step);
            let dubious = !news.una_advanced || news.sacked || news.ece;
            let resend = match dubious || self.state != State::Open {
                true => self.recover(&mut news, step),
                false => Resend::Nothing,
            };
            if news.set_timer {
                self.set_timer(step);
            }
            self.tell_rate(&news, step);
            self.set_window(&news, step);
            self.resend(resend, step);
        }
        self.send(step);
    }

    fn on_timer(&mut self, step: &mut Step) {
        match self.timer {
            Timer::None => self.connection.timer_due = NEVER,
            Timer::Reordering => self.lose_late(step),
            Timer::Probe => self.send_probe(step),
            Timer::Retransmit => self.time_out(step),
        }
    }

    fn send(&mut self, step: &mut Step) {
        self.push(step);
    }

    fn on_pace(&mut self, step: &mut Step) {
        self.resend_lost(step);
        self.push(step);
    }
}

impl<W: Window> Linux<W> {
    fn new(connection: Connection, config: &Config) -> Linux<W> {
        Linux {
            connection,
            window: W::new(config),
            state: State::Open,
            board: Board::default(),
            rack: Rack::default(),
            prr: Prr::default(),
            rtt: Rtt::default(),
            high: 0,
            timer: Timer::None,
            probe: None,
            timeouts: 0,
            syn_timeouts: 0,
            frto: false,
            before_timeout: None,
            cwnd_limited: false,
            used_pkts: 0,
            used_until: 0,
            last_sent_ns: 0,
            rates: W::RATE_SAMPLES.then(Box::default),
        }
    }

    fn reducing(&self) -> bool {
        matches!(self.state, State::Reduced | State::Recovery)
    }

    /// Whether the window was what held the sender back (`tcp_is_cwnd_limited`).
    fn may_grow(&self) -> bool {
        let cwnd = self.window.cwnd_pkts();
        self.cwnd_limited || cwnd < self.window.ssthresh_pkts() && cwnd < 2 * self.used_pkts
    }

    /// Tells the window how fast packets are delivered.
    fn tell_rate(&mut self, news: &News, step: &Step) {
        let Some(rates) = &mut self.rates else {
            return;
        };
        let total_lost_pkts = self.board.lost_in_all();
        let min_rtt_ns = self.rtt.min_ns;
        let rate = rates.sample(self.connection.una, step.now, min_rtt_ns, total_lost_pkts);
        let (delivered_pkts, delivered_ns) = rates.delivered();
        let in_flight_pkts = self.board.in_flight();
        self.window.on_rate(&RateSample {
            now: step.now,
            rate,
            acked_pkts: news.delivered,
            ce_pkts: news.ce_pkts,
            lost_pkts: news.lost,
            rtt_ns: news.rtt_ns,
            delivered_pkts,
            delivered_ns,
            total_lost_pkts,
            prior_in_flight_pkts: news.prior_in_flight_pkts,
            in_flight_pkts,
            repair: match self.state {
                State::Recovery => Repair::Recovery,
                State::Loss => Repair::Timeout,
                State::Open | State::Disorder | State::Reduced => Repair::None,
            },
            pace_wait_ns: self.connection.pacer.next_ns().saturating_sub(step.now),
        });
        if self.window.probes_rtt() {
            rates.app_limited(in_flight_pkts);
        }
    }

    /// The SYN is acknowledged.
    fn end_handshake(&mut self, ack: &Ack, step: &mut Step) {
        if ack.next == 0 {
            return;
        }
        self.take(ack, step);
        if let Some(rates) = &mut self.rates {
            // The SYN tells no rate.
            rates.sample(self.connection.una, step.now, u64::MAX, 0);
        }
        // The kernel forgives one lost SYN, and RFC 6298 section 5.7 none.
        let initial_pkts = match self.syn_timeouts > 1 {
            true => 1,
            false => step.config.initial_window_pkts,
        };
        let next = self.connection.next;
        self.window.on_established(initial_pkts, step.now, next);
        self.timeouts = 0;
        self.rearm_timeout(step);
        self.push(step);
    }

    /// Takes what an ACK says: what has arrived, and how long it took.
    fn take(&mut self, ack: &Ack, step: &mut Step) -> News {
        let (now, floor_ns) = (step.now, step.config.min_rto_ns);
        let mut news = News {
            una_advanced: ack.next > self.connection.una,
            ece: ack.ece && step.config.ecn(),
            ce_pkts: ack.ce_pkts,
            prior_in_flight_pkts: self.board.in_flight(),
            ..News::default()
        };
        let head_ns = self.board.head().map(|sent| sent.at_ns);
        // When the first and the last packet were sent that this ACK reports.
        let (mut acked, mut sacked) = (None, None);
        let (mut copy_acked, mut behind_pkts) = (false, 0);
        let (rack, high, min_rtt_ns) = (&mut self.rack, self.high, self.rtt.min_ns);
        let rates = &mut self.rates;
        self.board.take(ack, |delivery| {
            news.delivered += 1;
            news.sacked |= delivery.by_sack;
            if let Some(rates) = rates {
                rates.on_delivered(delivery.seq);
            }
            rack.advance(&delivery, now, min_rtt_ns);
            let at_ns = delivery.sent.at_ns;
            if delivery.sent.ever_resent {
                copy_acked |= !delivery.by_sack;
                return;
            }
            behind_pkts = behind_pkts.max(delivery.behind_pkts);
            news.first_copy |= delivery.seq < high;
            let span = if delivery.by_sack {
                &mut sacked
            } else {
                &mut acked
            };
            let (first_ns, _) = span.unwrap_or((at_ns, at_ns));
            *span = Some((first_ns, at_ns));
        });
        if behind_pkts > 0 {
            self.rack.saw_reordering(behind_pkts);
        }
        if news.una_advanced {
            self.connection.una = ack.next;
            self.timeouts = 0;
        }
        let Connection { una, next, .. } = self.connection;
        // A packet sent once tells the round trip, first by number, then by SACK; failing both,
        // the timestamp of the packet that moved the edge does, a copy as it may be.
        let by_number = acked.filter(|_| !copy_acked);
        let by_stamp = head_ns.filter(|_| news.una_advanced).map(|at| (at, at));
        if let Some((first_ns, _)) = by_number.or(sacked).or(by_stamp) {
            let last_ns = sacked
                .or(by_number)
                .or(by_stamp)
                .map_or(first_ns, |span| span.1);
            self.rtt.min_ns = self.rtt.min_ns.min(now - last_ns);
            self.rtt.measured(now - first_ns, una, next, floor_ns);
            news.rtt_ns = Some(now - last_ns);
        }
        self.window.on_ack(&AckSample {
            now,
            una,
            next,
            rtt_ns: news.rtt_ns,
            bytes_per_s: self.bytes_per_s(step.config),
            delivered_pkts: news.delivered,
            ce_pkts: ack.ce_pkts,
        });
        // A SACK moves the timer only if its packet was sent before the head was (last) sent:
        // else a lost copy's timeout would be put off on and on.
        news.set_timer = news.una_advanced
            || match (sacked, self.board.head()) {
                (Some((first_ns, _)), Some(head)) => first_ns < head.at_ns,
                _ => false,
            };
        news
    }
}

#[cfg(test)]
mod tests;
