//! The state machine of recovery, and what becomes of the window (net/ipv4/tcp_input.c).

use super::prr::{Progress, Prr};
use super::rack::DUP_THRESHOLD;
use super::{Connection, News, Resend, State};

impl Connection<'_, '_> {
    /// A probe that repeated a packet and is acknowledged along with later ones has repaired a
    /// loss, which costs what a loss costs (RFC 8985 section 7.4).
    pub(super) fn see_probe_answered(&mut self, news: &News) {
        let Some((end, repeats)) = self.tcp.probe else {
            return;
        };
        let una = self.sender.una;
        if una < end {
            return;
        }
        if !repeats || (una == end && !news.una_advanced && !news.sacked) {
            self.tcp.probe = None;
        } else if una > end {
            self.begin_reduction();
            self.tcp.window.cwnd = self.tcp.window.ssthresh;
            self.open_or_disorder();
        }
    }

    /// The state machine (`tcp_fastretrans_alert`).
    pub(super) fn recover(&mut self, news: &mut News) -> Resend {
        if news.ece {
            self.tcp.before_timeout = None;
        }
        let una = self.sender.una;
        let (state, high) = (self.tcp.state, self.tcp.high);
        // A reduction for a mark waits for one packet more, which carries CWR.
        if state == State::Reduced && una > high || state == State::Recovery && una >= high {
            self.tcp.window.cwnd = self.tcp.window.ssthresh;
            self.tcp.state = State::Open;
        }
        let mut resend = Resend::Nothing;
        match self.tcp.state {
            State::Recovery => {
                self.find_losses(news);
                return Resend::Lost;
            }
            State::Loss => {
                resend = self.after_timeout(news);
                self.find_losses(news);
                if self.tcp.state != State::Open && !news.lost_copies {
                    return resend;
                }
            }
            State::Open | State::Disorder | State::Reduced => {}
        }
        self.find_losses(news);
        if self.tcp.board.lost_out() > 0 {
            self.enter_recovery();
            return Resend::Lost;
        }
        if news.ece && self.tcp.state < State::Reduced {
            self.begin_reduction();
            self.tcp.state = State::Reduced;
        }
        if self.tcp.state != State::Reduced {
            self.open_or_disorder();
        }
        resend
    }

    /// After a timeout (`tcp_process_loss`): F-RTO (RFC 5682 section 3.1), then slow start.
    fn after_timeout(&mut self, news: &News) -> Resend {
        let (una, next) = (self.sender.una, self.sender.next);
        let tcp = &mut *self.tcp;
        let recovered = una >= tcp.high;
        if tcp.frto {
            if news.first_copy {
                tcp.undo_timeout();
                return Resend::Nothing;
            }
            if next > tcp.high {
                // Nothing old arrives behind the new packets: it is lost.
                tcp.frto = news.una_advanced && !news.sacked;
            } else if news.una_advanced && !recovered {
                tcp.high = next;
                if self.has_new() {
                    return Resend::New;
                }
                self.tcp.frto = false;
            }
        }
        if recovered {
            self.tcp.state = State::Open;
            return Resend::Nothing;
        }
        Resend::Lost
    }

    fn find_losses(&mut self, news: &mut News) {
        let tcp = &mut *self.tcp;
        if !std::mem::take(&mut tcp.rack.advanced) || tcp.board.packets_out() == 0 {
            return;
        }
        let copies = tcp.board.resent_out();
        let found = tcp.detect(self.step.now);
        news.lost += found.lost_pkts;
        news.lost_copies |= tcp.board.resent_out() < copies;
        if found.wait_ns > 0 {
            self.wait_for_late(found.wait_ns);
            news.set_timer = false;
        }
    }

    pub(super) fn enter_recovery(&mut self) {
        if !self.tcp.reducing() {
            self.begin_reduction();
        }
        self.tcp.state = State::Recovery;
    }

    /// A reduction begins (`tcp_init_cwnd_reduction`).
    fn begin_reduction(&mut self) {
        let tcp = &mut *self.tcp;
        tcp.high = self.sender.next;
        tcp.probe = None;
        tcp.window.credit = 0;
        tcp.prr = Prr::begin(tcp.window.cwnd);
        tcp.window.ssthresh = tcp.growth.threshold(tcp.window.cwnd);
        tcp.cwr_pending = self.step.config.ecn;
    }

    fn open_or_disorder(&mut self) {
        let board = &self.tcp.board;
        let missing = board.sacked_out() + board.lost_out() + board.resent_out() > 0
            || board.head().is_some_and(|sent| sent.ever_resent);
        let state = match missing {
            true => State::Disorder,
            false => State::Open,
        };
        if state != self.tcp.state {
            self.tcp.state = state;
            self.tcp.high = self.sender.next;
        }
    }

    /// Reduces the window, or lets it grow (`tcp_cong_control`).
    pub(super) fn set_window(&mut self, news: &News) {
        let tcp = &mut *self.tcp;
        if tcp.reducing() {
            let progress = Progress {
                delivered: news.delivered,
                lost: news.lost,
                una_advanced: news.una_advanced,
            };
            let in_flight = tcp.board.in_flight();
            let window = tcp.prr.window(progress, in_flight, tcp.window.ssthresh);
            tcp.window.cwnd = window.unwrap_or(tcp.window.cwnd);
            return;
        }
        // Where packets come reordered, what SACKs say counts as well.
        let reordered = tcp.rack.reordering_pkts > DUP_THRESHOLD && news.delivered > 0;
        if (news.una_advanced || reordered) && tcp.may_grow() {
            let now = self.step.now;
            tcp.growth.grow(&mut tcp.window, news.delivered, now);
        }
    }
}
