//! Congestion control: how much may be in flight, and at what pace. Each algorithm has its own file
//! and works with either stack.

/// Implements the accessors of a [`CongestionControl`] whose window is in this field.
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

/// The smallest window of LEDBAT++ and Prague.
const LEAST_CWND_PKTS: f64 = 2.0;

/// An indication that the network is congested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Indication {
    /// Packets were lost.
    Loss,
    /// The receiver reported a mark.
    Mark,
    /// The retransmission timer fired.
    Timeout,
}

/// A congestion event, of which there is at most one per window of data.
#[derive(Clone, Copy, Debug)]
pub struct CongestionEvent {
    /// The indication of congestion.
    pub indication: Indication,
    /// The window in use, including packets that recovery has added to it.
    pub in_use_pkts: f64,
}

/// The end of the handshake.
#[derive(Clone, Copy, Debug)]
pub struct Established {
    pub now: Time,
    /// Next packet to send.
    pub next: u32,
    /// The initial congestion window.
    pub initial_pkts: u32,
    /// Round-trip time of the handshake; zero if it was not measured.
    pub srtt: Span,
}

impl Established {
    /// Describes a connection whose handshake is complete. Its window begins at one packet if
    /// `at_one`, which a lost SYN requires.
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

/// An ACK, before the stack detects losses.
#[derive(Clone, Copy, Debug)]
pub struct AckSample {
    pub now: Time,
    /// The first packet that is not acknowledged.
    pub una: u32,
    /// The next packet to send.
    pub next: u32,
    /// Round-trip time of the last sent packet among those that the ACK reports, if it can be
    /// measured.
    pub rtt: Option<Span>,
    /// Smoothed round-trip time, this ACK included; zero before the first measurement.
    pub srtt: Span,
    /// Packets that the ACK reports for the first time, by number or by SACK.
    pub delivered_pkts: u32,
    /// Packets that the ACK reports as marked for the first time, if ACKs carry counts.
    pub ce_pkts: u32,
}

/// A delivery rate: packets delivered over an interval of about a round trip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeliveryRate {
    /// Packets delivered.
    pub pkts: u32,
    /// The interval in which they were delivered.
    pub interval: Span,
    /// True if the application, not the window, limited the sender.
    pub app_limited: bool,
    /// Packets that the connection had delivered when it sent the packet from which the rate is
    /// measured.
    pub prior_delivered_pkts: u64,
    /// Packets in flight right after that packet was sent, itself included.
    pub in_flight_then_pkts: u32,
    /// Packets lost since then.
    pub lost_since_pkts: u32,
}

/// The state of loss recovery (the kernel's `icsk_ca_state`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
pub enum RecoveryState {
    /// No loss is being repaired.
    Open,
    /// Lost packets are being retransmitted.
    Recovery,
    /// Recovery after a timeout.
    Loss,
}

/// The delivery rate that an ACK yields, after losses have been detected (the kernel's
/// `rate_sample`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateSample {
    pub now: Time,
    /// The delivery rate; `None` if the ACK reports nothing new, or an interval shorter than any
    /// round trip.
    pub rate: Option<DeliveryRate>,
    /// Packets that this ACK reports as delivered.
    pub acked_pkts: u32,
    /// Packets that this ACK reports as marked.
    pub ce_pkts: u32,
    /// Packets detected as lost with this ACK.
    pub lost_pkts: u32,
    /// Round-trip time that this ACK yields, if any.
    pub rtt: Option<Span>,
    /// Packets that the connection has delivered so far.
    pub delivered_pkts: u64,
    /// The time of the last delivery.
    pub delivered_at: Time,
    /// Packets that the connection has lost so far.
    pub total_lost_pkts: u64,
    /// Packets in flight before the ACK.
    pub prior_in_flight_pkts: u32,
    /// Packets in flight after the ACK.
    pub in_flight_pkts: u32,
    /// The state of loss recovery.
    pub recovery_state: RecoveryState,
    /// Time for which pacing holds the next packet back.
    pub pace_wait: Span,
}

/// An ACK outside recovery that lets the window grow, because the window limits the sender.
#[derive(Clone, Copy, Debug)]
pub struct Growth {
    pub now: Time,
    /// Packets that the ACK reports as delivered.
    pub acked_pkts: u32,
    /// Smoothed round-trip time; zero before the first measurement.
    pub srtt: Span,
}

/// A congestion control, with about the operations of quinn's `Controller` and Linux's
/// `tcp_congestion_ops`. A stack calls it, and it calls nobody. Sizes are in packets.
pub trait CongestionControl: Send + Sized {
    /// The type of the window: real numbers or whole packets.
    type Window: Window;

    /// True if it uses delivery rates, in [`Self::on_rate`].
    const RATE_SAMPLES: bool = false;

    /// True if it sets its window itself in [`Self::on_rate`], also in recovery: the stack neither
    /// reduces the window nor lets it grow (the kernel's `cong_control`).
    const CONTROLS: bool = false;

    /// True if it responds to marks in [`Self::on_ack`], so that the stack makes no reduction for
    /// them.
    const ANSWERS_MARKS: bool = false;

    /// True if a packet that pacing holds back shows that the path limits the sender, as a full
    /// window does.
    const PACED: bool = false;

    /// True if all of its packets are ECN-capable, including SYNs and retransmissions (the kernel's
    /// `TCP_CONG_NEEDS_ECN`). Otherwise these are not (RFC 3168 sections 6.1.1 and 6.1.5).
    const MARKS_ALL: bool = false;

    /// Size of the send buffer in windows (the kernel's `sndbuf_expand`).
    const BUFFER_WINDOWS: u32 = 2;

    /// Creates the congestion control of a closed connection, whose window is one packet, the SYN.
    fn new(config: &Config) -> Self;

    /// Returns the window and the threshold, which the stack changes as well in loss recovery and
    /// after a timeout.
    fn window(&self) -> &Self::Window;
    /// Returns the window and the threshold, to change them.
    fn window_mut(&mut self) -> &mut Self::Window;

    /// Returns the congestion window.
    #[inline]
    fn cwnd(&self) -> f64 {
        self.window().cwnd()
    }

    /// Returns the congestion window in whole packets.
    #[inline]
    fn cwnd_pkts(&self) -> u32 {
        self.window().cwnd_pkts()
    }

    /// Sets the congestion window.
    #[inline]
    fn set_cwnd(&mut self, pkts: f64) {
        self.window_mut().set_cwnd(pkts);
    }

    /// Returns the slow-start threshold in whole packets.
    #[inline]
    fn ssthresh_pkts(&self) -> u32 {
        self.window().ssthresh_pkts()
    }

    /// Takes note that the handshake is complete and data begins.
    fn on_established(&mut self, start: &Established) {
        self.set_cwnd(f64::from(start.initial_pkts));
    }

    /// Takes a number in [0, 1) by which connections can differ.
    fn set_phase(&mut self, _phase: f64) {}

    /// Takes note that a packet is sent while `in_flight_pkts` are in flight. `app_limited` is true
    /// if the application, not the window, has limited the sender.
    fn on_sent(&mut self, _now: Time, _in_flight_pkts: u32, _app_limited: bool) {}

    /// Takes an ACK, in recovery or not (`pkts_acked`, `in_ack_event`).
    fn on_ack(&mut self, _sample: &AckSample) {}

    /// Takes a delivery rate, in recovery or not (`cong_control`).
    fn on_rate(&mut self, _sample: &RateSample) {}

    /// True while the window is kept small to measure the round-trip time, so that delivery rates
    /// do not reflect the path.
    fn probes_rtt(&self) -> bool {
        false
    }

    /// Returns the smallest number of packets in a segment (`min_tso_segs`).
    fn least_segment_pkts(&self) -> u32 {
        2
    }

    /// Lets the window grow, in slow start or congestion avoidance (`cong_avoid`).
    fn grow(&mut self, growth: &Growth);

    /// Lowers the threshold (`ssthresh`). Returns the new window, which takes effect at once or by
    /// the end of loss recovery.
    fn on_congestion_event(&mut self, event: &CongestionEvent) -> f64;

    /// Takes note that the repair of losses begins, also if the window is being reduced for a mark
    /// already (`set_state`).
    fn on_recovery(&mut self) {}

    /// Takes note that the retransmission timer fired (`set_state`). If packets were lost,
    /// [`Self::on_congestion_event`] was called before.
    fn on_timeout(&mut self, _now: Time, _next: u32) {}

    /// Takes the counts of delivered and lost packets after a timeout, if delivery rates are used;
    /// follows [`Self::on_timeout`].
    fn on_timeout_rate(&mut self, _sample: &RateSample) {}

    /// Returns the pacing rate, if the congestion control sets its own.
    fn pacing_rate(&self) -> Option<Rate> {
        None
    }

    /// Returns the pacing rate in bytes per second.
    ///
    /// It is the congestion control's own, or in slow start 2 times `pkts` per round trip and 1.2
    /// times afterwards (`tcp_update_pacing_rate`). Before the first measurement of a round trip it
    /// is practically unlimited.
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

    /// Restores the window and the threshold from before a spurious timeout (`undo_cwnd`). True if
    /// the threshold rises.
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
