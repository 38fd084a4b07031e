//! What a Linux sender sends and when: new data, lost packets, probes, and what its timer does.

use super::growth::NO_THRESHOLD;
use super::prr::Progress;
use super::rack::Detected;
use super::rtt::INITIAL_RTO_NS;
use super::{Connection, LinuxState, Resend, State, Timer};
use crate::sender::{Config, Segment, NEVER};

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
/// Least packets in a segment that need not wait (`tcp_min_tso_segs`).
const LEAST_SEGMENT_PKTS: u32 = 2;
/// Part of the window that need not wait, as 1/n (`tcp_tso_win_divisor`).
const WINDOW_PARTS: u32 = 3;

impl LinuxState {
    /// The rate at which segments are sized: twice what the window gives in slow start, 1.2
    /// times otherwise (`tcp_update_pacing_rate`).
    pub(super) fn bytes_per_s(&self, config: &Config) -> f64 {
        let ratio = match self.window.cwnd < self.window.ssthresh / 2 {
            true => 2.0,
            false => 1.2,
        };
        let pkts = self.window.cwnd.max(self.board.packets_out());
        let srtt_s = self.rtt.srtt_ns.max(1) as f64 / 1e9;
        ratio * f64::from(pkts) * f64::from(config.payload_bytes) / srtt_s
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
            self.window.cwnd = self.window.cwnd.max(cwnd);
            if ssthresh > self.window.ssthresh {
                self.window.ssthresh = ssthresh;
                self.cwr_pending = false;
            }
        }
        self.timeouts = 0;
        self.state = State::Open;
        self.rack.advanced = true;
    }
}

impl Connection<'_, '_> {
    /// The application has data that the receiver has room for.
    pub(super) fn has_new(&self) -> bool {
        let room = self.sender.una.saturating_add(self.step.config.window_pkts);
        self.sender.next < self.sender.limit.min(room)
    }

    /// Sends new packets as far as the window lets it.
    pub(super) fn push(&mut self) {
        if self.sender.next >= self.sender.limit {
            return;
        }
        let (mut sent, mut limited) = (0, false);
        while self.tcp.board.in_flight() < self.tcp.window.cwnd && self.has_new() {
            // A segment of several packets waits or goes as one.
            let quota = self.tcp.window.cwnd - self.tcp.board.in_flight();
            let segment = self.segment_pkts();
            if quota < segment && self.defers(quota) {
                limited = true;
                break;
            }
            for _ in 0..segment.min(quota) {
                if !self.has_new() {
                    break;
                }
                self.transmit();
                sent += 1;
            }
        }
        limited |= self.tcp.board.in_flight() >= self.tcp.window.cwnd;
        if sent > 0 || limited {
            self.note_use(limited);
        }
        if sent > 0 {
            if self.tcp.reducing() {
                self.tcp.prr.out += sent;
            }
            self.schedule_probe(false);
        }
    }

    /// Packets in the segments that the stack makes: what the rate gives in about a millisecond,
    /// more where the round trip is short (`tcp_tso_autosize`).
    fn segment_pkts(&self) -> u32 {
        let mut bytes = self.tcp.bytes_per_s(self.step.config) as u64 / 1024;
        let halvings = self.tcp.rtt.min_ns / 1000 / 512;
        if halvings < 32 {
            bytes += LARGEST_SEGMENT_BYTES >> halvings;
        }
        let bytes = bytes.min(LARGEST_SEGMENT_BYTES);
        let pkts = bytes / u64::from(self.step.config.payload_bytes.max(1));
        (pkts as u32).max(LEAST_SEGMENT_PKTS)
    }

    /// Whether a segment cut short by the window waits for the next ACK, to go out whole
    /// (`tcp_tso_should_defer`): not in recovery, only right behind another segment, and only if
    /// that ACK is near or overdue.
    fn defers(&self, quota: u32) -> bool {
        let (tcp, now) = (&self.tcp, self.step.now);
        if tcp.state >= State::Recovery
            || now > tcp.last_sent_ns + DEFER_NS
            || self.sender.limit - self.sender.next <= quota
            || quota >= tcp.window.cwnd / WINDOW_PARTS
        {
            return false;
        }
        let soon_ns = now + SOON_NS.min(tcp.rtt.srtt_ns / 2);
        let head = tcp.board.head();
        head.is_some_and(|head| head.at_ns + tcp.rtt.srtt_ns <= soon_ns)
    }

    /// Notes whether the window was in the way, or how much of it was used in this round trip
    /// (`tcp_cwnd_validate`; RFC 7661).
    fn note_use(&mut self, limited: bool) {
        let tcp = &mut *self.tcp;
        let out = tcp.board.packets_out();
        if self.sender.una >= tcp.used_until || limited || !tcp.cwnd_limited && out > tcp.used_pkts
        {
            tcp.cwnd_limited = limited;
            tcp.used_pkts = out;
            tcp.used_until = self.sender.next;
        }
    }

    /// Sends the next new packet.
    fn transmit(&mut self) {
        let now = self.step.now;
        let tcp = &mut *self.tcp;
        if tcp.board.in_flight() == 0 {
            tcp.growth.resumes(tcp.last_sent_ns, now);
        }
        let first = tcp.board.packets_out() == 0;
        tcp.board.push(now);
        tcp.last_sent_ns = now;
        self.step.out.push(Segment {
            seq: self.sender.next,
            cwr: std::mem::take(&mut tcp.cwr_pending),
            ect: true,
        });
        self.sender.next += 1;
        self.sender.max_sent = self.sender.next;
        if first || self.tcp.timer == Timer::Probe {
            self.rearm_timeout();
        }
    }

    /// Sends a packet again, as one that is not ECN-capable (RFC 3168 section 6.1.5).
    fn transmit_again(&mut self, seq: u32, probe: bool) {
        let now = self.step.now;
        let tcp = &mut *self.tcp;
        if tcp.board.in_flight() == 0 {
            tcp.growth.resumes(tcp.last_sent_ns, now);
        }
        tcp.board.resend(seq, now, probe);
        tcp.last_sent_ns = now;
        self.step.out.push(Segment {
            seq,
            cwr: false,
            ect: false,
        });
    }

    pub(super) fn resend(&mut self, resend: Resend) {
        match resend {
            Resend::Nothing => {}
            Resend::Lost => self.resend_lost(),
            Resend::New => {
                self.push();
                if self.sender.next <= self.tcp.high {
                    self.tcp.frto = false;
                    self.resend_lost();
                }
            }
        }
    }

    /// Sends lost packets again as far as the window lets it.
    fn resend_lost(&mut self) {
        let mut rearm = false;
        while self.tcp.board.in_flight() < self.tcp.window.cwnd {
            let Some(seq) = self.tcp.board.next_lost() else {
                break;
            };
            self.transmit_again(seq, false);
            if self.tcp.reducing() {
                self.tcp.prr.out += 1;
            }
            rearm |= seq == self.sender.una && self.tcp.timer != Timer::Reordering;
        }
        if rearm {
            self.start(Timer::Retransmit, self.tcp.rtt.rto_ns);
        }
    }

    fn start(&mut self, timer: Timer, after_ns: u64) {
        self.tcp.timer = timer;
        self.sender.rto_due = self.step.now + after_ns;
    }

    /// The probe's timer if there is to be one, else the timeout's.
    pub(super) fn set_timer(&mut self) {
        if !self.schedule_probe(true) {
            self.rearm_timeout();
        }
    }

    /// The timeout counts from now, or from when the head was sent where another timer ran.
    pub(super) fn rearm_timeout(&mut self) {
        let Some(head) = self.tcp.board.head() else {
            self.tcp.timer = Timer::None;
            self.sender.rto_due = NEVER;
            return;
        };
        let rto_ns = self.tcp.rtt.rto_ns;
        let after_ns = match self.tcp.timer {
            Timer::Probe | Timer::Reordering => (head.at_ns + rto_ns)
                .saturating_sub(self.step.now)
                .max(1000),
            Timer::None | Timer::Retransmit => rto_ns,
        };
        self.start(Timer::Retransmit, after_ns);
    }

    pub(super) fn wait_for_late(&mut self, wait_ns: u64) {
        let after_ns = (wait_ns + LEAST_WAIT_NS).min(self.tcp.rtt.rto_ns);
        self.start(Timer::Reordering, after_ns);
    }

    /// Sets the timer of a tail loss probe (RFC 8985 section 7.2), if the state allows one;
    /// `advancing` says that the timeout starts anew.
    fn schedule_probe(&mut self, advancing: bool) -> bool {
        let tcp = &self.tcp;
        let Some(head) = tcp.board.head() else {
            return false;
        };
        if !matches!(tcp.state, State::Open | State::Reduced) || self.sender.una == 0 {
            return false;
        }
        let mut after_ns = match tcp.rtt.srtt_ns {
            0 => INITIAL_RTO_NS,
            // One packet's ACK may be delayed.
            srtt_ns if tcp.board.packets_out() == 1 => 2 * srtt_ns + self.step.config.min_rto_ns,
            srtt_ns => 2 * srtt_ns + LEAST_WAIT_NS,
        };
        let timeout_ns = match advancing {
            true => tcp.rtt.rto_ns,
            false => (head.at_ns + tcp.rtt.rto_ns).saturating_sub(self.step.now),
        };
        if timeout_ns > 0 {
            after_ns = after_ns.min(timeout_ns);
        }
        self.start(Timer::Probe, after_ns);
        true
    }

    pub(super) fn on_timer(&mut self) {
        match self.tcp.timer {
            Timer::None => self.sender.rto_due = NEVER,
            Timer::Reordering => self.lose_late(),
            Timer::Probe => self.send_probe(),
            Timer::Retransmit => self.time_out(),
        }
    }

    /// What is late has been given its time (`tcp_rack_reo_timeout`).
    fn lose_late(&mut self) {
        let found = self.tcp.detect(self.step.now);
        if found.lost_pkts > 0 {
            if self.tcp.state != State::Recovery {
                self.enter_recovery();
                let progress = Progress {
                    delivered: 1,
                    lost: found.lost_pkts,
                    una_advanced: false,
                };
                let tcp = &mut *self.tcp;
                let in_flight = tcp.board.in_flight();
                let window = tcp.prr.window(progress, in_flight, tcp.window.ssthresh);
                tcp.window.cwnd = window.unwrap_or(tcp.window.cwnd);
            }
            self.resend_lost();
        }
        if self.tcp.timer != Timer::Retransmit {
            self.rearm_timeout();
        }
    }

    /// A tail loss probe: a new packet, or the last one again (RFC 8985 section 7.3).
    fn send_probe(&mut self) {
        if self.tcp.probe.is_none() && self.tcp.board.packets_out() > 0 {
            let new = self.has_new();
            if new {
                self.transmit();
                self.tcp.prr.out += u32::from(self.tcp.reducing());
                let limited = self.tcp.board.in_flight() >= self.tcp.window.cwnd;
                self.note_use(limited);
            } else {
                self.transmit_again(self.tcp.board.end() - 1, true);
            }
            self.tcp.probe = Some((self.sender.next, !new));
            self.tcp.timer = Timer::None;
        }
        self.rearm_timeout();
    }

    /// The retransmission timeout (`tcp_retransmit_timer`, `tcp_enter_loss`).
    fn time_out(&mut self) {
        let now = self.step.now;
        if self.tcp.board.packets_out() == 0 {
            return self.rearm_timeout();
        }
        if self.sender.una == 0 {
            self.tcp.syn_timeouts += 1;
            self.transmit_again(0, true);
            if self.tcp.syn_timeouts > EVEN_SYN_TIMEOUTS {
                self.tcp.rtt.back_off();
            }
            return self.start(Timer::Retransmit, self.tcp.rtt.rto_ns);
        }
        let (una, next) = (self.sender.una, self.sender.next);
        let tcp = &mut *self.tcp;
        let fresh = tcp.state < State::Recovery;
        for seq in una..next {
            let sent_ns = tcp.board.get(seq).map_or(0, |sent| sent.at_ns);
            if seq == una || !tcp.rack.recent(sent_ns, now) {
                tcp.board.mark_lost(seq);
            }
        }
        // Once for a window of data.
        let again = tcp.state == State::Loss && tcp.timeouts == 0;
        if tcp.state <= State::Disorder || tcp.high <= una || again {
            let window = &mut tcp.window;
            let threshold = match window.ssthresh {
                NO_THRESHOLD => NO_THRESHOLD,
                ssthresh => ssthresh.max(window.cwnd / 2 + window.cwnd / 4),
            };
            tcp.before_timeout = Some((window.cwnd, threshold));
            window.ssthresh = tcp.growth.threshold(window.cwnd);
        }
        tcp.window.cwnd = tcp.board.in_flight() + 1;
        tcp.window.credit = 0;
        tcp.growth.restart(now, next);
        tcp.state = State::Loss;
        tcp.high = next;
        tcp.probe = None;
        tcp.cwr_pending = self.step.config.ecn;
        tcp.frto = fresh || tcp.timeouts > 0;
        tcp.timeouts += 1;
        self.transmit_again(una, false);
        self.tcp.rtt.back_off();
        self.start(Timer::Retransmit, self.tcp.rtt.rto_ns);
    }
}
