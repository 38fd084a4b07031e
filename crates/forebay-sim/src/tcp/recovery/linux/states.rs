//! The state machine of recovery, and what becomes of the window (net/ipv4/tcp_input.c).

use super::prr::{Progress, Prr};
use super::rack::DUP_THRESHOLD;
use super::{Linux, News, Resend, State};
use crate::tcp::connection::Step;
use crate::tcp::window::{Congestion, Growth, Signal, Window};

impl<W: Window> Linux<W> {
    /// A probe that repeated a packet and is acknowledged along with later ones has repaired a
    /// loss, which costs what a loss costs (RFC 8985 section 7.4).
    pub(super) fn see_probe_answered(&mut self, news: &News, step: &Step) {
        let Some((end, repeats)) = self.probe else {
            return;
        };
        let una = self.connection.una;
        if una < end {
            return;
        }
        if !repeats || (una == end && !news.una_advanced && !news.sacked) {
            self.probe = None;
        } else if una > end {
            self.begin_reduction(Signal::Loss, step);
            self.end_reduction();
            self.open_or_disorder();
        }
    }

    /// The state machine (`tcp_fastretrans_alert`).
    pub(super) fn recover(&mut self, news: &mut News, step: &mut Step) -> Resend {
        if news.ece {
            self.before_timeout = None;
        }
        let una = self.connection.una;
        let (state, high) = (self.state, self.high);
        // A reduction for a mark waits for one packet more, which carries CWR.
        if state == State::Reduced && una > high || state == State::Recovery && una >= high {
            self.end_reduction();
            self.state = State::Open;
        }
        let mut resend = Resend::Nothing;
        match self.state {
            State::Recovery => {
                self.find_losses(news, step);
                return Resend::Lost;
            }
            State::Loss => {
                resend = self.after_timeout(news, step);
                self.find_losses(news, step);
                if self.state != State::Open && !news.lost_copies {
                    return resend;
                }
            }
            State::Open | State::Disorder | State::Reduced => {}
        }
        self.find_losses(news, step);
        if self.board.lost_out() > 0 {
            self.enter_recovery(step);
            return Resend::Lost;
        }
        if news.ece && !W::ANSWERS_MARKS && self.state < State::Reduced {
            self.begin_reduction(Signal::Mark, step);
            self.state = State::Reduced;
        }
        if self.state != State::Reduced {
            self.open_or_disorder();
        }
        resend
    }

    /// After a timeout (`tcp_process_loss`): F-RTO (RFC 5682 section 3.1), then slow start.
    fn after_timeout(&mut self, news: &News, step: &Step) -> Resend {
        let (una, next) = (self.connection.una, self.connection.next);
        let recovered = una >= self.high;
        if self.frto {
            if news.first_copy {
                self.undo_timeout();
                return Resend::Nothing;
            }
            if next > self.high {
                // Nothing old arrives behind the new packets: it is lost.
                self.frto = news.una_advanced && !news.sacked;
            } else if news.una_advanced && !recovered {
                self.high = next;
                if self.has_new(step) {
                    return Resend::New;
                }
                self.frto = false;
            }
        }
        if recovered {
            self.state = State::Open;
            return Resend::Nothing;
        }
        Resend::Lost
    }

    fn find_losses(&mut self, news: &mut News, step: &Step) {
        if !std::mem::take(&mut self.rack.advanced) || self.board.packets_out() == 0 {
            return;
        }
        let copies = self.board.resent_out();
        let found = self.detect(step.now);
        news.lost += found.lost_pkts;
        news.lost_copies |= self.board.resent_out() < copies;
        if found.wait_ns > 0 {
            self.wait_for_late(found.wait_ns, step);
            news.set_timer = false;
        }
    }

    pub(super) fn enter_recovery(&mut self, step: &Step) {
        if !self.reducing() {
            self.begin_reduction(Signal::Loss, step);
        }
        self.state = State::Recovery;
    }

    /// A reduction begins (`tcp_init_cwnd_reduction`).
    fn begin_reduction(&mut self, signal: Signal, step: &Step) {
        self.high = self.connection.next;
        self.probe = None;
        self.prr = Prr::begin(self.window.cwnd_pkts());
        self.lower_threshold(signal);
        self.connection.cwr_pending = step.config.ecn();
    }

    pub(super) fn lower_threshold(&mut self, signal: Signal) {
        self.window.on_congestion(&Congestion {
            signal,
            in_use_pkts: self.window.cwnd(),
        });
    }

    fn end_reduction(&mut self) {
        if W::CONTROLS {
            return;
        }
        self.window.set_cwnd(f64::from(self.window.ssthresh_pkts()));
    }

    fn open_or_disorder(&mut self) {
        let board = &self.board;
        let missing = board.sacked_out() + board.lost_out() + board.resent_out() > 0
            || board.head().is_some_and(|sent| sent.ever_resent);
        let state = match missing {
            true => State::Disorder,
            false => State::Open,
        };
        if state != self.state {
            self.state = state;
            self.high = self.connection.next;
        }
    }

    /// Reduces the window, or lets it grow (`tcp_cong_control`).
    pub(super) fn set_window(&mut self, news: &News, step: &Step) {
        if W::CONTROLS {
            return;
        }
        if self.reducing() {
            return self.reduce(Progress {
                delivered: news.delivered,
                lost: news.lost,
                una_advanced: news.una_advanced,
            });
        }
        // Where packets come reordered, what SACKs say counts as well.
        let reordered = self.rack.reordering_pkts > DUP_THRESHOLD && news.delivered > 0;
        if (news.una_advanced || reordered) && self.may_grow() {
            self.window.grow(&Growth {
                now: step.now,
                acked_pkts: news.delivered,
                srtt_ns: self.rtt.srtt_ns,
            });
        }
    }

    /// One step of the proportional reduction.
    pub(super) fn reduce(&mut self, progress: Progress) {
        if W::CONTROLS {
            return;
        }
        let (in_flight, ssthresh) = (self.board.in_flight(), self.window.ssthresh_pkts());
        if let Some(cwnd) = self.prr.window(progress, in_flight, ssthresh) {
            self.window.set_cwnd(f64::from(cwnd));
        }
    }
}
