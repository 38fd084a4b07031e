//! Transmission of a Linux sender: new data, retransmissions, probes, and the actions of its timer.

use forebay_aqm::Ecn;
use forebay_units::cast::whole_u64;
use forebay_units::{Span, Time};

use super::prr::Progress;
use super::rack::DetectedLosses;
use super::rtt::INITIAL_RTO;
use super::timer_wheel;
use super::{AckReport, CaState, Linux, Retransmit, Timer};
use crate::tcp::congestion::{CongestionControl, Indication, NO_THRESHOLD};
use crate::tcp::connection::{Config, SenderStep};
use crate::uplink::TcpSegment;

/// Margin added to the time before a probe and to a reordering window.
const LEAST_WAIT: Span = Span::from_millis(2);
/// Number of timeouts of a SYN before the backoff begins (`tcp_syn_linear_timeouts`).
const EVEN_SYN_TIMEOUTS: u32 = 4;
/// A segment may be deferred only within this time after the last one.
const DEFER: Span = Span::from_millis(1);
/// A segment may be deferred only if the next ACK is expected within this time, by the smoothed
/// round-trip time.
const SOON: Span = Span::from_millis(1);
/// Largest segment before it is cut into packets.
const LARGEST_SEGMENT_BYTES: u64 = 65_536;
/// A segment of 1/n of the window or more is not deferred (`tcp_tso_win_divisor`).
const WINDOW_PARTS: u32 = 3;

impl<C: CongestionControl> Linux<C> {
    /// Returns the rate in bytes per second that determines the size of segments, and at which they
    /// leave if they are paced.
    pub(super) fn bytes_per_s(&self, config: &Config) -> f64 {
        let pkts = self
            .congestion
            .cwnd_pkts()
            .max(self.scoreboard.packets_out());
        self.congestion
            .bytes_per_s(pkts, self.rtt.srtt, config.payload_bytes)
    }

    /// Tells the pacer that a segment of this many packets has left.
    fn pace(&mut self, pkts: u32, last: u32, step: &SenderStep) {
        if step.config.pacing {
            let bytes_per_s = self.bytes_per_s(step.config);
            let bytes = pkts * u32::from(step.config.payload_bytes);
            let pacer = &mut self.connection.pacer;
            pacer.sent(step.now, bytes, bytes_per_s, last);
        }
    }

    /// Marks lost packets by RACK.
    pub(super) fn detect(&mut self, now: Time) -> DetectedLosses {
        let recovering = self.state >= CaState::Recovery;
        let (rtt, sacked_pkts) = (&self.rtt, self.scoreboard.sacked_out());
        let window = self
            .rack
            .reordering_window(recovering, sacked_pkts, rtt.min_rtt, rtt.srtt);
        self.rack.detect(&mut self.scoreboard, window, now)
    }

    /// Undoes a spurious timeout: restores the window and withdraws the losses.
    pub(super) fn undo_timeout(&mut self) {
        self.scoreboard.unmark_lost();
        if let Some((cwnd, ssthresh)) = self.before_timeout.take() {
            if self.congestion.undo(f64::from(cwnd), f64::from(ssthresh)) {
                self.connection.cwr_pending = false;
            }
        }
        self.may_undo = false;
        self.timeouts = 0;
        self.state = CaState::Open;
        self.rack.advanced = true;
    }

    /// Returns true if the application has data for which the receiver has room.
    pub(super) fn has_new_data(&self) -> bool {
        self.connection.next < self.send_limit()
    }

    /// Returns the number below which new packets may be sent.
    #[inline(always)]
    fn send_limit(&self) -> u32 {
        self.connection.limit.min(self.receive_window.end())
    }

    /// Sends new packets as far as the window allows; true if it sent any.
    #[inline(always)]
    pub(super) fn send_new(&mut self, step: &mut SenderStep) -> bool {
        if self.connection.next >= self.connection.limit {
            self.check_app_limited();
            return false;
        }
        let before = self.connection.next;
        let (cwnd, end) = (self.congestion.cwnd_pkts(), self.send_limit());
        self.writes
            .fill::<C>(self.connection.una, self.connection.limit, cwnd);
        let starts_timer = self.scoreboard.packets_out() == 0 || self.timer == Timer::Probe;
        let mut limited = true;
        loop {
            let in_flight = self.scoreboard.in_flight();
            if in_flight >= cwnd {
                break;
            }
            let first = self.connection.next;
            let held = first < end && self.connection.held(step);
            if first >= end || held {
                limited = C::PACED && held;
                break;
            }
            // The packets of a segment are deferred or sent together.
            let quota = cwnd - in_flight;
            let segment = self.segment_pkts(quota, step);
            if quota < segment && self.defers_segment(quota, step) {
                break;
            }
            let next = first + segment.min(quota).min(end - first);
            while self.connection.next < next {
                self.transmit(step);
            }
            self.pace(next - first, next - 1, step);
        }
        let sent = self.connection.next - before;
        if sent > 0 || limited {
            self.validate_cwnd(limited);
        }
        if sent > 0 {
            if self.reducing() {
                self.prr.out += sent;
            }
            if !self.schedule_tail_loss_probe(false, step) && starts_timer {
                self.rearm_timeout(step);
            }
        }
        self.check_app_limited();
        sent > 0
    }

    /// Tells the rate sampler if the application, not the window, limits the sender.
    #[inline(always)]
    fn check_app_limited(&mut self) {
        if !C::RATE_SAMPLES {
            return;
        }
        let in_flight = self.scoreboard.in_flight();
        let waits = self.connection.next < self.connection.limit
            || in_flight >= self.congestion.cwnd_pkts()
            || self.scoreboard.lost_out() > self.scoreboard.retrans_out();
        if let (Some(rates), false) = (&mut self.rates, waits) {
            rates.set_app_limited(in_flight);
        }
    }

    /// Returns the number of packets per segment: about one millisecond of the rate, and more if
    /// the round trip is short (`tcp_tso_autosize`). It is never less than the least segment, even
    /// if the window has no room for that.
    #[inline(always)]
    fn segment_pkts(&self, quota: u32, step: &SenderStep) -> u32 {
        if !step.config.gso {
            return 1;
        }
        let least = self.congestion.least_segment_pkts();
        if quota < least {
            return least;
        }
        let mut bytes = whole_u64(self.bytes_per_s(step.config)) / 1024;
        let halvings = self.rtt.min_rtt.as_micros() / 512;
        if halvings < 32 {
            bytes += LARGEST_SEGMENT_BYTES >> halvings;
        }
        let bytes = bytes.min(LARGEST_SEGMENT_BYTES);
        let pkts = bytes / u64::from(step.config.payload_bytes.max(1));
        u32::try_from(pkts).map_or(u32::MAX, |pkts| pkts.max(least))
    }

    /// Returns true if a segment that the window would cut short is deferred until the next ACK
    /// (`tcp_tso_should_defer`). That happens only outside recovery, directly after another
    /// segment, and if the ACK is near or overdue.
    #[inline(always)]
    fn defers_segment(&self, quota: u32, step: &SenderStep) -> bool {
        let now = step.now;
        if self.state >= CaState::Recovery
            || now > self.last_sent_at + DEFER
            || self.connection.limit - self.connection.next <= quota
            || quota >= self.congestion.cwnd_pkts() / WINDOW_PARTS
        {
            return false;
        }
        let soon = now + SOON.min(self.rtt.srtt / 2);
        let head = self.scoreboard.head();
        head.is_some_and(|head| head.sent_at + self.rtt.srtt <= soon)
    }

    /// Records if the window limited the sender, or how much of it was used in this round trip
    /// (`tcp_cwnd_validate`; RFC 7661).
    #[inline(always)]
    fn validate_cwnd(&mut self, limited: bool) {
        let out = self.scoreboard.packets_out();
        if self.connection.una >= self.cwnd_usage_seq
            || limited
            || !self.cwnd_limited && out > self.max_packets_out
        {
            self.cwnd_limited = limited;
            self.max_packets_out = out;
            self.cwnd_usage_seq = self.connection.next;
        }
    }

    /// Tells the congestion control and the rate sampler that a packet is about to leave.
    #[inline(always)]
    fn record_sent(&mut self, seq: u32, now: Time) {
        let in_flight = self.scoreboard.in_flight();
        let mut app_limited = false;
        if let (true, Some(rates)) = (C::RATE_SAMPLES, &mut self.rates) {
            app_limited = rates.is_app_limited();
            let idle = self.scoreboard.packets_out() == 0;
            rates.on_sent(seq, now, idle, in_flight, self.scoreboard.total_lost());
        }
        self.congestion.on_sent(now, in_flight, app_limited);
    }

    /// Sends the next new packet. The caller sets the timer.
    #[inline(always)]
    fn transmit(&mut self, step: &mut SenderStep) {
        let now = step.now;
        self.record_sent(self.connection.next, now);
        self.scoreboard.push(now);
        self.last_sent_at = now;
        let seq = self.connection.next;
        let push = self.writes.ends_with(seq) || seq + 1 == self.connection.limit;
        let segment = TcpSegment {
            push,
            bare: false,
            seq: self.connection.next,
            cwr: std::mem::take(&mut self.connection.cwr_pending),
            ecn: match seq == 0 && !C::MARKS_ALL {
                true => Ecn::NotEct,
                false => self.ect,
            },
        };
        step.send(&self.connection, segment);
        self.connection.next += 1;
        self.connection.max_sent = self.connection.next;
    }

    /// Sends the ACK that ends the handshake, which has no data because the application writes only
    /// when the connection is established (`tcp_rcv_synsent_state_process`). Like other ACKs it is
    /// not ECN-capable, unless all packets of the congestion control are.
    pub(super) fn acknowledge_syn(&mut self, step: &mut SenderStep) {
        let segment = TcpSegment {
            push: false,
            bare: true,
            seq: self.connection.next,
            cwr: false,
            ecn: match C::MARKS_ALL {
                true => self.ect,
                false => Ecn::NotEct,
            },
        };
        step.send(&self.connection, segment);
    }

    /// Retransmits a packet, usually without ECT (RFC 3168 section 6.1.5).
    fn retransmit(&mut self, seq: u32, probe: bool, step: &mut SenderStep) {
        let now = step.now;
        self.record_sent(seq, now);
        self.scoreboard.mark_retransmitted(seq, now, probe);
        self.last_sent_at = now;
        let segment = TcpSegment {
            // A retransmission fills a gap and is acknowledged at once without PSH.
            push: false,
            bare: false,
            seq,
            cwr: false,
            ecn: match C::MARKS_ALL {
                true if seq == 0 => step.config.ect,
                true => self.ect,
                false => Ecn::NotEct,
            },
        };
        step.send(&self.connection, segment);
        step.resent_pkts += 1;
        self.pace(1, seq, step);
    }

    /// Sends the packets that the state machine requires.
    pub(super) fn send_in_recovery(&mut self, retransmit: Retransmit, step: &mut SenderStep) {
        match retransmit {
            Retransmit::Nothing => {}
            Retransmit::Lost => self.retransmit_lost(step),
            Retransmit::New => {
                self.send_new(step);
                if self.connection.next <= self.high_seq {
                    self.frto = false;
                    self.retransmit_lost(step);
                }
            }
        }
    }

    /// Retransmits lost packets as far as the window allows.
    pub(super) fn retransmit_lost(&mut self, step: &mut SenderStep) {
        let mut rearm = false;
        while self.scoreboard.in_flight() < self.congestion.cwnd_pkts() {
            let Some(seq) = self.scoreboard.next_to_retransmit() else {
                break;
            };
            if self.connection.held(step) {
                break;
            }
            self.retransmit(seq, false, step);
            if self.reducing() {
                self.prr.out += 1;
            }
            rearm |= seq == self.connection.una && self.timer != Timer::Reordering;
        }
        if rearm {
            self.start_timer(Timer::Retransmit, self.rtt.rto, step);
        }
    }

    /// Sets the timer for this purpose.
    fn start_timer(&mut self, timer: Timer, timeout: Span, step: &SenderStep) {
        self.timer = timer;
        self.connection.timer_due = timer_wheel::expiry(step.now, timeout);
    }

    /// Sets the timer of a tail loss probe if the state allows one, else the retransmission timer.
    pub(super) fn set_timer(&mut self, step: &mut SenderStep) {
        if !self.schedule_tail_loss_probe(true, step) {
            self.rearm_timeout(step);
        }
    }

    /// Sets the retransmission timer. The timeout counts from now or, if a probe or a reordering
    /// timer was running, from the time at which the first unacknowledged packet was sent.
    pub(super) fn rearm_timeout(&mut self, step: &mut SenderStep) {
        let Some(head) = self.scoreboard.head() else {
            self.timer = Timer::None;
            self.connection.timer_due = Time::NEVER;
            return;
        };
        let rto = self.rtt.rto;
        let timeout = match self.timer {
            Timer::Probe | Timer::Reordering => {
                (head.sent_at + rto - step.now).max(Span::from_micros(1))
            }
            Timer::None | Timer::Retransmit => rto,
        };
        self.start_timer(Timer::Retransmit, timeout, step);
    }

    /// Sets the timer for the end of the reordering window.
    pub(super) fn start_reordering_timer(&mut self, wait: Span, step: &SenderStep) {
        let timeout = (wait + LEAST_WAIT).min(self.rtt.rto);
        self.start_timer(Timer::Reordering, timeout, step);
    }

    /// Sets the timer of a tail loss probe (RFC 8985 section 7.2) and returns true, if the state
    /// allows one. `advancing` is true if the retransmission timeout starts again now.
    #[inline(always)]
    fn schedule_tail_loss_probe(&mut self, advancing: bool, step: &SenderStep) -> bool {
        let Some(head) = self.scoreboard.head() else {
            return false;
        };
        if !matches!(self.state, CaState::Open | CaState::Cwr) || self.connection.una == 0 {
            return false;
        }
        let mut timeout = match self.rtt.srtt {
            Span::ZERO => INITIAL_RTO,
            // The ACK of a single packet may be delayed.
            srtt if self.scoreboard.packets_out() == 1 => 2 * srtt + step.config.min_rto,
            srtt => 2 * srtt + LEAST_WAIT,
        };
        let rto_left = match advancing {
            true => self.rtt.rto,
            false => head.sent_at + self.rtt.rto - step.now,
        };
        if !rto_left.is_zero() {
            timeout = timeout.min(rto_left);
        }
        self.start_timer(Timer::Probe, timeout, step);
        true
    }

    /// Handles the end of the reordering window: packets still missing are lost
    /// (`tcp_rack_reo_timeout`).
    pub(super) fn on_reordering_timer(&mut self, step: &mut SenderStep) {
        let losses = self.detect(step.now);
        if losses.lost_pkts > 0 {
            if self.state != CaState::Recovery {
                self.enter_recovery();
                self.reduce(Progress {
                    delivered: 1,
                    lost: losses.lost_pkts,
                    una_advanced: false,
                });
            }
            self.retransmit_lost(step);
        }
        if self.timer != Timer::Retransmit {
            self.rearm_timeout(step);
        }
    }

    /// Sends a tail loss probe, which is a new packet or the last one again (RFC 8985 section 7.3).
    pub(super) fn send_tail_loss_probe(&mut self, step: &mut SenderStep) {
        if self.probe.is_none() && self.scoreboard.packets_out() > 0 {
            let new = self.has_new_data();
            if new {
                self.transmit(step);
                self.pace(1, self.connection.next - 1, step);
                self.prr.out += u32::from(self.reducing());
                let limited = self.scoreboard.in_flight() >= self.congestion.cwnd_pkts();
                self.validate_cwnd(limited);
            } else {
                self.retransmit(self.scoreboard.end() - 1, true, step);
            }
            self.probe = Some((self.connection.next, !new));
            self.timer = Timer::None;
        }
        self.rearm_timeout(step);
    }

    /// Handles the retransmission timeout (`tcp_retransmit_timer`, `tcp_enter_loss`).
    pub(super) fn on_retransmission_timeout(&mut self, step: &mut SenderStep) {
        let now = step.now;
        if self.scoreboard.packets_out() == 0 {
            return self.rearm_timeout(step);
        }
        if self.connection.una == 0 {
            self.syn_timeouts += 1;
            // A retransmitted SYN does not request ECN (RFC 3168 section 6.1.1.1,
            // `tcp_ecn_clear_syn`).
            self.ect = Ecn::NotEct;
            self.retransmit(0, true, step);
            if self.syn_timeouts > EVEN_SYN_TIMEOUTS {
                self.rtt.back_off();
            }
            return self.start_timer(Timer::Retransmit, self.rtt.rto, step);
        }
        let (una, next) = (self.connection.una, self.connection.next);
        let fresh = self.state < CaState::Recovery;
        for seq in una..next {
            let sent_at = self
                .scoreboard
                .get(seq)
                .map_or(Time::ZERO, |sent| sent.sent_at);
            if seq == una || !self.rack.is_recent(sent_at, now) {
                self.scoreboard.mark_lost(seq);
            }
        }
        // The threshold is lowered once per window of data.
        let again = self.state == CaState::Loss && self.timeouts == 0;
        if self.state <= CaState::Disorder || self.high_seq <= una || again {
            let (cwnd, ssthresh) = (self.congestion.cwnd_pkts(), self.congestion.ssthresh_pkts());
            let threshold = match ssthresh {
                NO_THRESHOLD => NO_THRESHOLD,
                ssthresh => ssthresh.max(cwnd / 2 + cwnd / 4),
            };
            self.before_timeout = Some((cwnd, threshold));
            self.may_undo = true;
            self.reduce_ssthresh(Indication::Timeout);
        }
        let cwnd = self.scoreboard.in_flight() + 1;
        self.congestion.set_cwnd(f64::from(cwnd));
        self.congestion.on_timeout(now, next);
        if C::RATE_SAMPLES {
            let losses = AckReport {
                lost: 1,
                ..AckReport::default()
            };
            let sample = self.rate_sample(None, &losses, now);
            self.congestion.on_timeout_rate(&sample);
        }
        self.state = CaState::Loss;
        self.high_seq = next;
        self.probe = None;
        self.connection.cwr_pending = self.ecn();
        self.frto = fresh || self.timeouts > 0;
        self.timeouts += 1;
        self.retransmit(una, false, step);
        self.rtt.back_off();
        self.start_timer(Timer::Retransmit, self.rtt.rto, step);
    }
}
