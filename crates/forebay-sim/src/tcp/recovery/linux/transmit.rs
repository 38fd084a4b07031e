//! What a Linux sender sends and when: new data, lost packets, probes, and what its timer does.

use forebay_core::cast::whole_u64;
use forebay_core::Ecn;

use super::prr::Progress;
use super::rack::Detected;
use super::rtt::INITIAL_RTO_NS;
use super::{Linux, Resend, State, Timer};
use crate::tcp::connection::{Config, Segment, Step, NEVER};
use crate::tcp::window::{Signal, Window, NO_THRESHOLD};

/// Least time to wait for a probe or for a late packet.
const LEAST_WAIT_NS: u64 = 2_000_000;
/// The first timeouts of a SYN come at an even pace (`tcp_syn_linear_timeouts`).
const EVEN_SYN_TIMEOUTS: u32 = 4;
/// A segment is kept back only so soon after the last one.
const DEFER_NS: u64 = 1_000_000;
/// And only if the next ACK is this near, as the smoothed round trip says.
const SOON_NS: u64 = 1_000_000;
/// Largest segment before it is cut into packets.
const LARGEST_SEGMENT_BYTES: u64 = 65_536;
/// Part of the window that need not wait, as 1/n (`tcp_tso_win_divisor`).
const WINDOW_PARTS: u32 = 3;

impl<W: Window> Linux<W> {
    /// The rate at which segments are sized, and leave where they are paced.
    pub(super) fn bytes_per_s(&self, config: &Config) -> f64 {
        let pkts = self.window.cwnd_pkts().max(self.board.packets_out());
        self.window.bytes_per_s(pkts, self.rtt.srtt_ns, config)
    }

    /// A segment of this many packets has left.
    fn pace(&mut self, pkts: u32, last: u32, step: &Step) {
        if step.config.pacing {
            let bytes_per_s = self.bytes_per_s(step.config);
            let bytes = pkts * u32::from(step.config.payload_bytes);
            let pacer = &mut self.connection.pacer;
            pacer.sent(step.now, bytes, bytes_per_s, last);
        }
    }

    pub(super) fn detect(&mut self, now: u64) -> Detected {
        let recovering = self.state >= State::Recovery;
        let (rtt, sacked_pkts) = (&self.rtt, self.board.sacked_out());
        let window_ns = self
            .rack
            .window_ns(recovering, sacked_pkts, rtt.min_ns, rtt.srtt_ns);
        self.rack.detect(&mut self.board, window_ns, now)
    }

    /// The timeout was too early: back to the window before it.
    pub(super) fn undo_timeout(&mut self) {
        self.board.unmark_lost();
        if let Some((cwnd, ssthresh)) = self.before_timeout.take() {
            if self.window.undo(f64::from(cwnd), f64::from(ssthresh)) {
                self.connection.cwr_pending = false;
            }
        }
        self.timeouts = 0;
        self.state = State::Open;
        self.rack.advanced = true;
    }

    /// The application has data that the receiver has room for.
    pub(super) fn has_new(&self, step: &Step) -> bool {
        let room = self.connection.una.saturating_add(step.config.window_pkts);
        self.connection.next < self.connection.limit.min(room)
    }

    /// Sends new packets as far as the window lets it.
    pub(super) fn push(&mut self, step: &mut Step) {
        if self.connection.next >= self.connection.limit {
            return self.note_idle();
        }
        let (mut sent, mut limited) = (0, false);
        while self.board.in_flight() < self.window.cwnd_pkts() && self.has_new(step) {
            if self.connection.held(step) {
                break;
            }
            // A segment of several packets waits or goes as one.
            let quota = self.window.cwnd_pkts() - self.board.in_flight();
            let segment = self.segment_pkts(step);
            if quota < segment && self.defers(quota, step) {
                limited = true;
                break;
            }
            let first = self.connection.next;
            for _ in 0..segment.min(quota) {
                if !self.has_new(step) {
                    break;
                }
                self.transmit(step);
            }
            let next = self.connection.next;
            sent += next - first;
            self.pace(next - first, next - 1, step);
        }
        limited |= self.board.in_flight() >= self.window.cwnd_pkts();
        if sent > 0 || limited {
            self.note_use(limited);
        }
        if sent > 0 {
            if self.reducing() {
                self.prr.out += sent;
            }
            self.schedule_probe(false, step);
        }
        self.note_idle();
    }

    /// Says where the application has nothing more to send, and not the window is in the way.
    fn note_idle(&mut self) {
        let in_flight = self.board.in_flight();
        let waits = self.connection.next < self.connection.limit
            || in_flight >= self.window.cwnd_pkts()
            || self.board.lost_out() > self.board.resent_out();
        if let (Some(rates), false) = (&mut self.rates, waits) {
            rates.app_limited(in_flight);
        }
    }

    /// Packets in the segments that the stack makes: what the rate gives in about a millisecond,
    /// more where the round trip is short (`tcp_tso_autosize`).
    fn segment_pkts(&self, step: &Step) -> u32 {
        if !step.config.gso {
            return 1;
        }
        let mut bytes = whole_u64(self.bytes_per_s(step.config)) / 1024;
        let halvings = self.rtt.min_ns / 1000 / 512;
        if halvings < 32 {
            bytes += LARGEST_SEGMENT_BYTES >> halvings;
        }
        let bytes = bytes.min(LARGEST_SEGMENT_BYTES);
        let pkts = bytes / u64::from(step.config.payload_bytes.max(1));
        u32::try_from(pkts).map_or(u32::MAX, |pkts| pkts.max(self.window.least_segment_pkts()))
    }

    /// Whether a segment cut short by the window waits for the next ACK, to go out whole
    /// (`tcp_tso_should_defer`): not in recovery, only right behind another segment, and only if
    /// that ACK is near or overdue.
    fn defers(&self, quota: u32, step: &Step) -> bool {
        let now = step.now;
        if self.state >= State::Recovery
            || now > self.last_sent_ns + DEFER_NS
            || self.connection.limit - self.connection.next <= quota
            || quota >= self.window.cwnd_pkts() / WINDOW_PARTS
        {
            return false;
        }
        let soon_ns = now + SOON_NS.min(self.rtt.srtt_ns / 2);
        let head = self.board.head();
        head.is_some_and(|head| head.at_ns + self.rtt.srtt_ns <= soon_ns)
    }

    /// Notes whether the window was in the way, or how much of it was used in this round trip
    /// (`tcp_cwnd_validate`; RFC 7661).
    fn note_use(&mut self, limited: bool) {
        let out = self.board.packets_out();
        if self.connection.una >= self.used_until
            || limited
            || !self.cwnd_limited && out > self.used_pkts
        {
            self.cwnd_limited = limited;
            self.used_pkts = out;
            self.used_until = self.connection.next;
        }
    }

    /// Tells the window, and the sampler of rates, of a packet that is about to leave.
    fn tell_sent(&mut self, seq: u32, now: u64) {
        let in_flight = self.board.in_flight();
        let mut app_limited = false;
        if let Some(rates) = &mut self.rates {
            app_limited = rates.is_app_limited();
            let idle = self.board.packets_out() == 0;
            rates.on_sent(seq, now, idle, in_flight, self.board.lost_in_all());
        }
        self.window.on_sent(now, in_flight, app_limited);
    }

    /// Sends the next new packet.
    fn transmit(&mut self, step: &mut Step) {
        let now = step.now;
        self.tell_sent(self.connection.next, now);
        let first = self.board.packets_out() == 0;
        self.board.push(now);
        self.last_sent_ns = now;
        step.out.push(Segment {
            seq: self.connection.next,
            cwr: std::mem::take(&mut self.connection.cwr_pending),
            ecn: step.config.ect,
        });
        self.connection.next += 1;
        self.connection.max_sent = self.connection.next;
        if first || self.timer == Timer::Probe {
            self.rearm_timeout(step);
        }
    }

    /// Sends a packet again, as one that is not ECN-capable (RFC 3168 section 6.1.5).
    fn transmit_again(&mut self, seq: u32, probe: bool, step: &mut Step) {
        let now = step.now;
        self.tell_sent(seq, now);
        self.board.resend(seq, now, probe);
        self.last_sent_ns = now;
        step.out.push(Segment {
            seq,
            cwr: false,
            ecn: Ecn::NotEct,
        });
        self.pace(1, seq, step);
    }

    pub(super) fn resend(&mut self, resend: Resend, step: &mut Step) {
        match resend {
            Resend::Nothing => {}
            Resend::Lost => self.resend_lost(step),
            Resend::New => {
                self.push(step);
                if self.connection.next <= self.high {
                    self.frto = false;
                    self.resend_lost(step);
                }
            }
        }
    }

    /// Sends lost packets again as far as the window lets it.
    pub(super) fn resend_lost(&mut self, step: &mut Step) {
        let mut rearm = false;
        while self.board.in_flight() < self.window.cwnd_pkts() {
            let Some(seq) = self.board.next_lost() else {
                break;
            };
            if self.connection.held(step) {
                break;
            }
            self.transmit_again(seq, false, step);
            if self.reducing() {
                self.prr.out += 1;
            }
            rearm |= seq == self.connection.una && self.timer != Timer::Reordering;
        }
        if rearm {
            self.start(Timer::Retransmit, self.rtt.rto_ns, step);
        }
    }

    fn start(&mut self, timer: Timer, after_ns: u64, step: &Step) {
        self.timer = timer;
        self.connection.timer_due = step.now + after_ns;
    }

    /// The probe's timer if there is to be one, else the timeout's.
    pub(super) fn set_timer(&mut self, step: &mut Step) {
        if !self.schedule_probe(true, step) {
            self.rearm_timeout(step);
        }
    }

    /// The timeout counts from now, or from when the head was sent where another timer ran.
    pub(super) fn rearm_timeout(&mut self, step: &mut Step) {
        let Some(head) = self.board.head() else {
            self.timer = Timer::None;
            self.connection.timer_due = NEVER;
            return;
        };
        let rto_ns = self.rtt.rto_ns;
        let after_ns = match self.timer {
            Timer::Probe | Timer::Reordering => {
                (head.at_ns + rto_ns).saturating_sub(step.now).max(1000)
            }
            Timer::None | Timer::Retransmit => rto_ns,
        };
        self.start(Timer::Retransmit, after_ns, step);
    }

    pub(super) fn wait_for_late(&mut self, wait_ns: u64, step: &Step) {
        let after_ns = (wait_ns + LEAST_WAIT_NS).min(self.rtt.rto_ns);
        self.start(Timer::Reordering, after_ns, step);
    }

    /// Sets the timer of a tail loss probe (RFC 8985 section 7.2), if the state allows one;
    /// `advancing` says that the timeout starts anew.
    fn schedule_probe(&mut self, advancing: bool, step: &Step) -> bool {
        let Some(head) = self.board.head() else {
            return false;
        };
        if !matches!(self.state, State::Open | State::Reduced) || self.connection.una == 0 {
            return false;
        }
        let mut after_ns = match self.rtt.srtt_ns {
            0 => INITIAL_RTO_NS,
            // One packet's ACK may be delayed.
            srtt_ns if self.board.packets_out() == 1 => 2 * srtt_ns + step.config.min_rto_ns,
            srtt_ns => 2 * srtt_ns + LEAST_WAIT_NS,
        };
        let timeout_ns = match advancing {
            true => self.rtt.rto_ns,
            false => (head.at_ns + self.rtt.rto_ns).saturating_sub(step.now),
        };
        if timeout_ns > 0 {
            after_ns = after_ns.min(timeout_ns);
        }
        self.start(Timer::Probe, after_ns, step);
        true
    }

    /// What is late has been given its time (`tcp_rack_reo_timeout`).
    pub(super) fn lose_late(&mut self, step: &mut Step) {
        let found = self.detect(step.now);
        if found.lost_pkts > 0 {
            if self.state != State::Recovery {
                self.enter_recovery(step);
                self.reduce(Progress {
                    delivered: 1,
                    lost: found.lost_pkts,
                    una_advanced: false,
                });
            }
            self.resend_lost(step);
        }
        if self.timer != Timer::Retransmit {
            self.rearm_timeout(step);
        }
    }

    /// A tail loss probe: a new packet, or the last one again (RFC 8985 section 7.3).
    pub(super) fn send_probe(&mut self, step: &mut Step) {
        if self.probe.is_none() && self.board.packets_out() > 0 {
            let new = self.has_new(step);
            if new {
                self.transmit(step);
                self.pace(1, self.connection.next - 1, step);
                self.prr.out += u32::from(self.reducing());
                let limited = self.board.in_flight() >= self.window.cwnd_pkts();
                self.note_use(limited);
            } else {
                self.transmit_again(self.board.end() - 1, true, step);
            }
            self.probe = Some((self.connection.next, !new));
            self.timer = Timer::None;
        }
        self.rearm_timeout(step);
    }

    /// The retransmission timeout (`tcp_retransmit_timer`, `tcp_enter_loss`).
    pub(super) fn time_out(&mut self, step: &mut Step) {
        let now = step.now;
        if self.board.packets_out() == 0 {
            return self.rearm_timeout(step);
        }
        if self.connection.una == 0 {
            self.syn_timeouts += 1;
            self.transmit_again(0, true, step);
            if self.syn_timeouts > EVEN_SYN_TIMEOUTS {
                self.rtt.back_off();
            }
            return self.start(Timer::Retransmit, self.rtt.rto_ns, step);
        }
        let (una, next) = (self.connection.una, self.connection.next);
        let fresh = self.state < State::Recovery;
        for seq in una..next {
            let sent_ns = self.board.get(seq).map_or(0, |sent| sent.at_ns);
            if seq == una || !self.rack.recent(sent_ns, now) {
                self.board.mark_lost(seq);
            }
        }
        // Once for a window of data.
        let again = self.state == State::Loss && self.timeouts == 0;
        if self.state <= State::Disorder || self.high <= una || again {
            let (cwnd, ssthresh) = (self.window.cwnd_pkts(), self.window.ssthresh_pkts());
            let threshold = match ssthresh {
                NO_THRESHOLD => NO_THRESHOLD,
                ssthresh => ssthresh.max(cwnd / 2 + cwnd / 4),
            };
            self.before_timeout = Some((cwnd, threshold));
            self.lower_threshold(Signal::Timeout);
        }
        let cwnd = self.board.in_flight() + 1;
        self.window.set_cwnd(f64::from(cwnd));
        self.window.on_timeout(now, next);
        self.state = State::Loss;
        self.high = next;
        self.probe = None;
        self.connection.cwr_pending = step.config.ecn();
        self.frto = fresh || self.timeouts > 0;
        self.timeouts += 1;
        self.transmit_again(una, false, step);
        self.rtt.back_off();
        self.start(Timer::Retransmit, self.rtt.rto_ns, step);
    }
}
