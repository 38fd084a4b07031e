//! The state machine of recovery, and its effect on the window (net/ipv4/tcp_input.c).

use super::prr::{Progress, Prr};
use super::rack::DUP_THRESHOLD;
use super::{AckReport, CaState, Linux, Retransmit};
use crate::tcp::congestion::{CongestionControl, CongestionEvent, Growth, Indication};
use crate::tcp::connection::SenderStep;

impl<C: CongestionControl> Linux<C> {
    /// Ends a tail loss probe when it is acknowledged. A probe that repeated a packet and is
    /// acknowledged together with later data has repaired a loss, for which the window is reduced
    /// (RFC 8985 section 7.4).
    pub(super) fn process_probe_ack(&mut self, report: &AckReport) {
        let Some((end, repeats)) = self.probe else {
            return;
        };
        let una = self.connection.una;
        if una < end {
            return;
        }
        if !repeats || (una == end && !report.una_advanced && !report.sacked) {
            self.probe = None;
        } else if una > end {
            self.begin_reduction(Indication::Loss);
            self.end_reduction();
            self.try_keep_open();
        }
    }

    /// Runs the state machine on an ACK (`tcp_fastretrans_alert`); returns the packets to be sent
    /// first.
    pub(super) fn run_state_machine(
        &mut self,
        report: &mut AckReport,
        step: &mut SenderStep,
    ) -> Retransmit {
        if report.ece {
            self.before_timeout = None;
        }
        let una = self.connection.una;
        let (state, high) = (self.state, self.high_seq);
        // A reduction for a mark lasts one packet longer, until the packet with CWR is
        // acknowledged.
        if state == CaState::Cwr && una > high || state == CaState::Recovery && una >= high {
            self.end_reduction();
            self.state = CaState::Open;
        }
        let mut retransmit = Retransmit::Nothing;
        match self.state {
            CaState::Recovery => {
                self.detect_losses(report, step);
                return Retransmit::Lost;
            }
            CaState::Loss => {
                retransmit = self.process_loss(report);
                self.detect_losses(report, step);
                if self.state != CaState::Open && !report.lost_copies {
                    return retransmit;
                }
            }
            CaState::Open | CaState::Disorder | CaState::Cwr => {}
        }
        self.detect_losses(report, step);
        if self.scoreboard.lost_out() > 0 {
            self.enter_recovery();
            return Retransmit::Lost;
        }
        if report.ece && !C::ANSWERS_MARKS && self.state < CaState::Cwr {
            self.may_undo = false;
            self.begin_reduction(Indication::Mark);
            self.state = CaState::Cwr;
        }
        if self.state != CaState::Cwr {
            self.try_keep_open();
        }
        retransmit
    }

    /// Processes an ACK after a timeout (`tcp_process_loss`), with F-RTO (RFC 5682 section 3.1) and
    /// then slow start.
    fn process_loss(&mut self, report: &AckReport) -> Retransmit {
        let (una, next) = (self.connection.una, self.connection.next);
        let recovered = una >= self.high_seq;
        // The packet was late, not lost (`tcp_try_undo_loss`; RFC 3522).
        if report.delayed && self.may_undo {
            self.undo_timeout();
            return Retransmit::Nothing;
        }
        if self.frto {
            if report.first_copy {
                self.undo_timeout();
                return Retransmit::Nothing;
            }
            if next > self.high_seq {
                // New packets were sent after the timeout; if no old packet arrives, the old ones
                // are lost.
                self.frto = report.una_advanced && !report.sacked;
            } else if report.una_advanced && !recovered {
                self.high_seq = next;
                if self.has_new_data() {
                    return Retransmit::New;
                }
                self.frto = false;
            }
        }
        if recovered {
            self.state = CaState::Open;
            return Retransmit::Nothing;
        }
        Retransmit::Lost
    }

    /// Detects losses by RACK and enters them into the report.
    fn detect_losses(&mut self, report: &mut AckReport, step: &SenderStep) {
        if !std::mem::take(&mut self.rack.advanced) || self.scoreboard.packets_out() == 0 {
            return;
        }
        let copies = self.scoreboard.retrans_out();
        let losses = self.detect(step.now);
        report.lost += losses.lost_pkts;
        report.lost_copies |= self.scoreboard.retrans_out() < copies;
        if !losses.wait.is_zero() {
            self.start_reordering_timer(losses.wait, step);
            report.set_timer = false;
        }
    }

    /// Enters recovery, and reduces the window unless it is being reduced already.
    pub(super) fn enter_recovery(&mut self) {
        self.may_undo = true;
        if !self.reducing() {
            self.begin_reduction(Indication::Loss);
        }
        self.congestion.on_recovery();
        self.state = CaState::Recovery;
    }

    /// Begins a reduction of the window (`tcp_init_cwnd_reduction`).
    fn begin_reduction(&mut self, indication: Indication) {
        self.high_seq = self.connection.next;
        self.probe = None;
        self.prr = Prr::new(self.congestion.cwnd_pkts());
        self.reduce_ssthresh(indication);
        self.connection.cwr_pending = self.ecn();
    }

    /// Reports congestion to the congestion control, which lowers the threshold.
    pub(super) fn reduce_ssthresh(&mut self, indication: Indication) {
        self.congestion.on_congestion_event(&CongestionEvent {
            indication,
            in_use_pkts: self.congestion.cwnd(),
        });
    }

    /// Sets the window to the threshold at the end of a reduction.
    fn end_reduction(&mut self) {
        if C::CONTROLS {
            return;
        }
        self.congestion
            .set_cwnd(f64::from(self.congestion.ssthresh_pkts()));
    }

    /// Changes to the state open or, if packets are missing, disorder.
    fn try_keep_open(&mut self) {
        let scoreboard = &self.scoreboard;
        let missing = scoreboard.sacked_out() + scoreboard.lost_out() + scoreboard.retrans_out()
            > 0
            || scoreboard
                .head()
                .is_some_and(|sent| sent.ever_retransmitted);
        let state = match missing {
            true => CaState::Disorder,
            false => CaState::Open,
        };
        if state != self.state {
            self.state = state;
            self.high_seq = self.connection.next;
        }
    }

    /// Reduces the window, or lets it grow (`tcp_cong_control`).
    pub(super) fn update_cwnd(&mut self, report: &AckReport, step: &SenderStep) {
        if C::CONTROLS {
            return;
        }
        if self.reducing() {
            return self.reduce(Progress {
                delivered: report.delivered,
                lost: report.lost,
                una_advanced: report.una_advanced,
            });
        }
        // If packets arrive out of order, SACKed packets count as well.
        let reordered = self.rack.reordering_pkts > DUP_THRESHOLD && report.delivered > 0;
        if (report.una_advanced || reordered) && self.is_cwnd_limited() {
            self.grow(report.delivered, step);
        }
    }

    /// Lets the window grow for delivered packets.
    #[inline(always)]
    pub(super) fn grow(&mut self, acked_pkts: u32, step: &SenderStep) {
        self.congestion.grow(&Growth {
            now: step.now,
            acked_pkts,
            srtt: self.rtt.srtt,
        });
    }

    /// Makes one step of the proportional rate reduction.
    pub(super) fn reduce(&mut self, progress: Progress) {
        if C::CONTROLS {
            return;
        }
        let (in_flight, ssthresh) = (self.scoreboard.in_flight(), self.congestion.ssthresh_pkts());
        if let Some(cwnd) = self.prr.cwnd_after(progress, in_flight, ssthresh) {
            self.congestion.set_cwnd(f64::from(cwnd));
        }
    }
}
