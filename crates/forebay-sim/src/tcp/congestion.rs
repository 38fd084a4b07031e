//! Congestion control: how much may be in flight, and at what pace. One algorithm a file, under any
//! stack.

/// The window of a [`CongestionControl`], in this field.
macro_rules! window_in {
    ($field:tt: $window:ty) => {
        type Window = $window;

        fn window(&self) -> &$window {
            &self.$field
        }

        fn window_mut(&mut self) -> &mut $window {
            &mut self.$field
        }
    };
}
#[cfg(test)]
pub(crate) use window_in;

mod bbr;
mod cubic;
mod dctcp;
mod ledbat;
mod linux_cubic;
mod linux_reno;
mod prague;
mod reno;
mod window;

pub use bbr::{Bbr, Bbr3};
pub use cubic::Cubic;
pub use dctcp::Dctcp;
pub use ledbat::Ledbat;
pub use linux_cubic::LinuxCubic;
pub use linux_reno::LinuxReno;
pub use prague::Prague;
pub use reno::Reno;
pub use window::{RealWindow, WholeWindow, Window, NO_THRESHOLD};

use forebay_units::{Rate, Span, Time};

use super::connection::{Config, Connection, SenderStep};

/// The least window of LEDBAT++ and Prague.
const LEAST_CWND_PKTS: f64 = 2.0;

/// A sign that the network is congested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Indication {
    /// Packets are lost.
    Loss,
    /// The receiver echoes a mark.
    Mark,
    /// The retransmission timer fired.
    Timeout,
}

/// Congestion, once in a window of data.
#[derive(Clone, Copy, Debug)]
pub struct CongestionEvent {
    pub indication: Indication,
    /// The window in use, with what recovery has added to it, in packets.
    pub in_use_pkts: f64,
}

/// The end of the handshake.
#[derive(Clone, Copy, Debug)]
pub struct Established {
    pub now: Time,
    /// Next packet to send.
    pub next: u32,
    /// The initial window.
    pub initial_pkts: u32,
    /// The handshake's round trip; zero where it has told none.
    pub srtt: Span,
}

impl Established {
    /// Of a connection whose window begins at one packet, where a lost SYN asks for that.
    pub fn of(connection: &Connection, step: &SenderStep, at_one: bool, srtt: Span) -> Established {
        Established {
            now: step.now,
            next: connection.next,
            initial_pkts: match at_one {
                true => 1,
                false => step.config.initial_window_pkts,
            },
            srtt,
        }
    }
}

/// An ACK, before the stack looks for losses.
#[derive(Clone, Copy, Debug)]
pub struct AckSample {
    pub now: Time,
    /// First packet not acknowledged, and next to send.
    pub una: u32,
    pub next: u32,
    /// Round trip of the packet sent last of those that it reports, if one tells it.
    pub rtt: Option<Span>,
    /// Smoothed, that of this ACK included; zero before the first measurement.
    pub srtt: Span,
    /// Packets that it reports for the first time, by number or by SACK.
    pub delivered_pkts: u32,
    /// Packets that it reports as marked for the first time, where ACKs carry counts.
    pub ce_pkts: u32,
}

/// A delivery rate: packets delivered over an interval of about a round trip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeliveryRate {
    pub pkts: u32,
    pub interval: Span,
    /// The application, and not the window, held the sender back.
    pub app_limited: bool,
    /// What the connection had delivered when the packet was sent that tells the rate.
    pub prior_delivered_pkts: u64,
    /// Packets in flight right after that packet was sent, itself included.
    pub in_flight_then_pkts: u32,
    /// Packets lost between then and now.
    pub lost_since_pkts: u32,
}

/// How loss recovery stands, as a congestion control may need to know it (the kernel's `icsk_ca_state`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
pub enum RecoveryState {
    /// Nothing is being repaired.
    Open,
    /// Lost packets are sent again.
    Recovery,
    /// After a timeout.
    Loss,
}

/// How fast packets are delivered, as an ACK tells it once its losses are known (the kernel's
/// `rate_sample`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateSample {
    pub now: Time,
    /// None where the ACK tells none: it reports nothing new, or an interval shorter than any
    /// round trip.
    pub rate: Option<DeliveryRate>,
    /// Of this ACK: packets delivered, marked and lost, and a round trip.
    pub acked_pkts: u32,
    pub ce_pkts: u32,
    pub lost_pkts: u32,
    pub rtt: Option<Span>,
    /// Of the connection so far: packets delivered, when the last was, and packets lost.
    pub delivered_pkts: u64,
    pub delivered_at: Time,
    pub total_lost_pkts: u64,
    /// Packets in flight before it, and after it.
    pub prior_in_flight_pkts: u32,
    pub in_flight_pkts: u32,
    pub recovery_state: RecoveryState,
    /// How long pacing keeps the next packet back.
    pub pace_wait: Span,
}

/// An ACK outside recovery that lets a window grow, where the window held the sender back.
#[derive(Clone, Copy, Debug)]
pub struct Growth {
    pub now: Time,
    /// Packets that arrived.
    pub acked_pkts: u32,
    /// Smoothed; zero before the first measurement.
    pub srtt: Span,
}

/// A congestion control, with what quinn's `Controller` and Linux's `tcp_congestion_ops` give
/// theirs. A stack calls it; it calls nobody. Sizes are in packets.
pub trait CongestionControl: Send + Sized {
    type Window: Window;

    /// It asks for delivery rates: [`Self::on_rate`].
    const RATE_SAMPLES: bool = false;

    /// It sets its window in recovery too, by [`Self::on_rate`]: the stack never reduces it, and
    /// never lets it grow (the kernel's `cong_control`).
    const CONTROLS: bool = false;

    /// It answers marks in [`Self::on_ack`]: the stack makes no reduction for them.
    const ANSWERS_MARKS: bool = false;

    /// What its pace keeps back is no less a sign that the path holds it back than a full window is.
    const PACED: bool = false;

    /// All of its packets are ECN-capable, a SYN and those that are sent again, too (the kernel's
    /// `TCP_CONG_NEEDS_ECN`); others' are not (RFC 3168 sections 6.1.1 and 6.1.5).
    const MARKS_ALL: bool = false;

    /// A send buffer holds so many windows (the kernel's `sndbuf_expand`).
    const BUFFER_WINDOWS: u32 = 2;

    /// Of a closed connection: one packet, the SYN.
    fn new(config: &Config) -> Self;

    /// Window and threshold, which the stack moves as well: in loss recovery, and after a
    /// timeout.
    fn window(&self) -> &Self::Window;
    fn window_mut(&mut self) -> &mut Self::Window;

    #[inline]
    fn cwnd(&self) -> f64 {
        self.window().cwnd()
    }

    #[inline]
    fn cwnd_pkts(&self) -> u32 {
        self.window().cwnd_pkts()
    }

    #[inline]
    fn set_cwnd(&mut self, pkts: f64) {
        self.window_mut().set_cwnd(pkts);
    }

    #[inline]
    fn ssthresh_pkts(&self) -> u32 {
        self.window().ssthresh_pkts()
    }

    /// The handshake is done: data begins.
    fn on_established(&mut self, start: &Established) {
        self.set_cwnd(f64::from(start.initial_pkts));
    }

    /// A number by which connections can differ, in [0, 1).
    fn set_phase(&mut self, _phase: f64) {}

    /// A packet is sent behind those in flight; `app_limited` where the application and not the
    /// window has held the sender back.
    fn on_sent(&mut self, _now: Time, _in_flight_pkts: u32, _app_limited: bool) {}

    /// An ACK has come, in recovery or not (`pkts_acked`, `in_ack_event`).
    fn on_ack(&mut self, _sample: &AckSample) {}

    /// An ACK has told a delivery rate, in recovery or not (`cong_control`).
    fn on_rate(&mut self, _sample: &RateSample) {}

    /// The window is small on purpose: delivery rates tell nothing of the path for now.
    fn probes_rtt(&self) -> bool {
        false
    }

    /// Least packets of a segment (`min_tso_segs`).
    fn least_segment_pkts(&self) -> u32 {
        2
    }

    /// Grows, in slow start or congestion avoidance (`cong_avoid`).
    fn grow(&mut self, growth: &Growth);

    /// Lowers the threshold (`ssthresh`); returns the window to go on with, at once or as loss
    /// recovery brings it there.
    fn on_congestion_event(&mut self, event: &CongestionEvent) -> f64;

    /// Lost packets are repaired from now on, also where the window is being reduced for a mark
    /// already (`set_state`).
    fn on_recovery(&mut self) {}

    /// The retransmission timer fired; [`Self::on_congestion_event`] came before if packets were lost
    /// (`set_state`).
    fn on_timeout(&mut self, _now: Time, _next: u32) {}

    /// The same, behind [`Self::on_timeout`], for one that asks for delivery rates: what has been delivered
    /// and lost so far.
    fn on_timeout_rate(&mut self, _sample: &RateSample) {}

    /// A pace of its own.
    fn pacing_rate(&self) -> Option<Rate> {
        None
    }

    /// The pace at which packets leave: the window's own, or 2 times these packets in a round
    /// trip in slow start and 1.2 times them afterwards (`tcp_update_pacing_rate`); no limit
    /// before a round trip is measured.
    #[inline(always)]
    fn bytes_per_s(&self, pkts: u32, srtt: Span, payload_bytes: u16) -> f64 {
        if let Some(rate) = self.pacing_rate() {
            return rate.as_bps() as f64 / 8.0;
        }
        let ratio = match self.cwnd_pkts() < self.ssthresh_pkts() / 2 {
            true => 2.0,
            false => 1.2,
        };
        let srtt_s = srtt.max(Span::from_nanos(1)).as_secs_f64();
        ratio * f64::from(pkts) * f64::from(payload_bytes) / srtt_s
    }

    /// The timeout came too early: back to the window and threshold before it (`undo_cwnd`).
    /// True if the threshold rises.
    fn undo(&mut self, cwnd: f64, ssthresh: f64) -> bool {
        let size = self.window_mut();
        size.set_cwnd(size.cwnd().max(cwnd));
        let rises = ssthresh > size.ssthresh();
        if rises {
            size.set_ssthresh(ssthresh);
        }
        rises
    }
}
