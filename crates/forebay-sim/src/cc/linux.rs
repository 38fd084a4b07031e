//! TCP as the Linux kernel sends it (net/ipv4/tcp_input.c, tcp_output.c and tcp_timer.c of 6.18):
//! RACK and tail loss probes (RFC 8985), PRR (RFC 9937), F-RTO (RFC 5682), timeouts with a floor
//! on the deviation, whole-packet windows that grow by packets acknowledged, and Reno's or CUBIC's
//! growth.
//!
//! Left out: undoing a reduction for what DSACKs or timestamps tell (the receiver sends no DSACK),
//! SACK reneging, pacing (off in the kernel too without the `fq` queue), the restart after idle,
//! and auto-tuned receive windows.

mod board;
mod cubic;
mod growth;
mod hystart;
mod prr;
mod rack;
mod recovery;
mod rtt;
mod transmit;

use super::{CongestionControl, Extra};
use crate::sender::{Ack, Sender, Step};
use board::Board;
use cubic::Cubic;
use growth::{Growth, Sample, Window, NO_THRESHOLD};
use prr::Prr;
use rack::Rack;
use rtt::Rtt;

/// The kernel's sender with one of its windows.
pub enum Linux {
    Reno,
    Cubic,
}

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

/// A connection's state. Of [`Sender`] it uses `una`, `next`, `max_sent`, `limit` and the timer;
/// windows are here.
#[derive(Clone, Debug)]
pub struct LinuxState {
    state: State,
    window: Window,
    growth: Growth,
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
    /// The next new packet says that the window was reduced (CWR).
    cwr_pending: bool,
    /// Whether the window was in the way in the last round trip, and how much of it was used.
    cwnd_limited: bool,
    used_pkts: u32,
    used_until: u32,
    last_sent_ns: u64,
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
}

/// A connection in a step.
struct Connection<'a, 'b> {
    sender: &'a mut Sender,
    tcp: &'a mut LinuxState,
    step: &'a mut Step<'b>,
}

impl Linux {
    /// Lends the state out of the sender.
    fn with(sender: &mut Sender, step: &mut Step, act: impl FnOnce(&mut Connection)) {
        let mut extra = sender.extra.take().expect("Linux senders have one");
        let tcp = extra.linux.as_mut().expect("Linux senders have one");
        act(&mut Connection { sender, tcp, step });
        sender.extra = Some(extra);
    }
}

impl CongestionControl for Linux {
    fn on_ack(&self, sender: &mut Sender, ack: &Ack, step: &mut Step) {
        Linux::with(sender, step, |connection| connection.on_ack(ack));
    }

    fn on_timer(&self, sender: &mut Sender, step: &mut Step) {
        Linux::with(sender, step, |connection| connection.on_timer());
    }

    /// A mark is dealt with in `on_ack`, with the ACK's other news.
    fn on_ecn_echo(&self, _sender: &mut Sender, _ack: &Ack, _step: &mut Step) {}

    fn send(&self, sender: &mut Sender, step: &mut Step) {
        Linux::with(sender, step, |connection| connection.push());
    }

    fn extra(&self) -> Option<Box<Extra>> {
        let growth = match self {
            Linux::Reno => Growth::Reno,
            Linux::Cubic => Growth::Cubic(Cubic::new(0, 0)),
        };
        Some(Box::new(Extra {
            linux: Some(Box::new(LinuxState::new(growth))),
            ..Extra::default()
        }))
    }
}

impl LinuxState {
    fn new(growth: Growth) -> LinuxState {
        LinuxState {
            state: State::Open,
            // One packet until the handshake is done: the SYN.
            window: Window {
                cwnd: 1,
                ssthresh: NO_THRESHOLD,
                credit: 0,
            },
            growth,
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
            cwr_pending: false,
            cwnd_limited: false,
            used_pkts: 0,
            used_until: 0,
            last_sent_ns: 0,
        }
    }

    fn reducing(&self) -> bool {
        matches!(self.state, State::Reduced | State::Recovery)
    }

    /// Whether the window was what held the sender back (`tcp_is_cwnd_limited`).
    fn may_grow(&self) -> bool {
        let window = &self.window;
        self.cwnd_limited || window.in_slow_start() && window.cwnd < 2 * self.used_pkts
    }
}

impl Connection<'_, '_> {
    fn on_ack(&mut self, ack: &Ack) {
        let before = self.sender.una;
        if ack.next < before {
            return;
        }
        if before == 0 {
            return self.end_handshake(ack);
        }
        if self.tcp.board.packets_out() > 0 {
            let mut news = self.take(ack);
            self.see_probe_answered(&news);
            let dubious = !news.una_advanced || news.sacked || news.ece;
            let resend = match dubious || self.tcp.state != State::Open {
                true => self.recover(&mut news),
                false => Resend::Nothing,
            };
            if news.set_timer {
                self.set_timer();
            }
            self.set_window(&news);
            self.resend(resend);
        }
        self.push();
    }

    /// The SYN is acknowledged.
    fn end_handshake(&mut self, ack: &Ack) {
        if ack.next == 0 {
            return;
        }
        self.take(ack);
        let initial = self.step.config.initial_window_pkts;
        let tcp = &mut *self.tcp;
        // The kernel forgives one lost SYN, and RFC 6298 section 5.7 none.
        tcp.window.cwnd = if tcp.syn_timeouts > 1 { 1 } else { initial };
        tcp.growth.restart(self.step.now, self.sender.next);
        tcp.timeouts = 0;
        self.rearm_timeout();
        self.push();
    }

    /// Takes what an ACK says: what has arrived, and how long it took.
    fn take(&mut self, ack: &Ack) -> News {
        let (now, floor_ns) = (self.step.now, self.step.config.min_rto_ns);
        let tcp = &mut *self.tcp;
        let mut news = News {
            una_advanced: ack.next > self.sender.una,
            ece: ack.ece && self.step.config.ecn,
            ..News::default()
        };
        let head_ns = tcp.board.head().map(|sent| sent.at_ns);
        // When the first and the last packet were sent that this ACK reports.
        let (mut acked, mut sacked) = (None, None);
        let (mut copy_acked, mut behind_pkts) = (false, 0);
        let (rack, high, min_rtt_ns) = (&mut tcp.rack, tcp.high, tcp.rtt.min_ns);
        tcp.board.take(ack, |delivery| {
            news.delivered += 1;
            news.sacked |= delivery.by_sack;
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
            tcp.rack.saw_reordering(behind_pkts);
        }
        if news.una_advanced {
            self.sender.una = ack.next;
            tcp.timeouts = 0;
        }
        // A packet sent once tells the round trip, first by number, then by SACK; failing both,
        // the timestamp of the packet that moved the edge does, a copy as it may be.
        let by_number = acked.filter(|_| !copy_acked);
        let by_stamp = head_ns.filter(|_| news.una_advanced).map(|at| (at, at));
        if let Some((first_ns, _)) = by_number.or(sacked).or(by_stamp) {
            let last_ns = sacked
                .or(by_number)
                .or(by_stamp)
                .map_or(first_ns, |span| span.1);
            let (una, next) = (self.sender.una, self.sender.next);
            tcp.rtt.min_ns = tcp.rtt.min_ns.min(now - last_ns);
            tcp.rtt.measured(now - first_ns, una, next, floor_ns);
            let sample = Sample {
                now,
                rtt_ns: now - last_ns,
                una,
                next,
                bytes_per_s: tcp.bytes_per_s(self.step.config),
            };
            tcp.growth.measured(&mut tcp.window, &sample);
        }
        // A SACK moves the timer only if its packet was sent before the head was (last) sent:
        // else a lost copy's timeout would be put off on and on.
        news.set_timer = news.una_advanced
            || match (sacked, tcp.board.head()) {
                (Some((first_ns, _)), Some(head)) => first_ns < head.at_ns,
                _ => false,
            };
        news
    }
}

#[cfg(test)]
mod tests;
