//! BBR, versions 1 and 3, and their common parts: the count of round trips, the detection of a full
//! pipe, and the saved window.

/// Implements the growth and the reduction of a congestion control that sets its window in
/// [`CongestionControl::on_rate`](super::CongestionControl::on_rate): nothing else lets the window
/// grow, and a congestion event only saves the window.
macro_rules! window_by_rate {
    () => {
        fn grow(&mut self, _growth: &Growth) {}

        fn on_congestion_event(&mut self, _event: &CongestionEvent) -> f64 {
            self.save_window();
            self.cwnd()
        }
    };
}

mod v1;
mod v3;
mod windowed_max;

pub use v1::Bbr;
pub use v3::Bbr3;

use forebay_units::Span;

use super::{DeliveryRate, RateSample, RecoveryState};

/// Number of round trips without a growth of the bandwidth by a quarter after which the pipe counts
/// as full.
const FULL_BW_ROUNDS: u32 = 3;
/// Assumed round-trip time of the first pacing rate, if the handshake yielded none.
const DEFAULT_RTT: Span = Span::from_millis(1);

/// Returns the round-trip time for the first pacing rate.
fn first_rtt(srtt: Span) -> Span {
    match srtt {
        Span::ZERO => DEFAULT_RTT,
        srtt => srtt,
    }
}

/// A counter of round trips, based on delivered packets.
#[derive(Clone, Debug, Default)]
struct Rounds {
    count: u32,
    /// True if a round trip begins with the present ACK.
    starts: bool,
    /// The round trip ends when a packet is acknowledged that was sent after this number of packets
    /// was delivered.
    end_pkts: u64,
}

impl Rounds {
    /// Begins a round trip now without counting it.
    fn begin(&mut self, sample: &RateSample) {
        self.end_pkts = sample.delivered_pkts;
    }

    /// Returns true if the packet ends the round trip; the next one then begins and is counted.
    fn update(&mut self, rate: &DeliveryRate, sample: &RateSample) -> bool {
        if rate.prior_delivered_pkts < self.end_pkts {
            return false;
        }
        self.begin(sample);
        self.count += 1;
        self.starts = true;
        true
    }
}

/// A detector of a full pipe, which is reached when the bandwidth stops growing
/// (draft-ietf-ccwg-bbr-02 section 5.3.1.2).
#[derive(Clone, Debug, Default)]
struct FullPipe<B> {
    /// The bandwidth that must be exceeded.
    bw: B,
    /// Number of round trips that did not exceed it.
    rounds: u32,
    reached: bool,
}

impl<B> FullPipe<B> {
    /// Starts the detection with a known bandwidth.
    fn from(bw: B) -> FullPipe<B> {
        FullPipe {
            bw,
            rounds: 0,
            reached: false,
        }
    }

    /// Takes the bandwidth of a round trip; `grew` is true if it exceeds its argument, the
    /// bandwidth to be exceeded.
    fn update(&mut self, bw: B, grew: impl FnOnce(&B) -> bool) {
        if grew(&self.bw) {
            (self.bw, self.rounds) = (bw, 0);
            return;
        }
        self.rounds += 1;
        self.reached = self.rounds >= FULL_BW_ROUNDS;
    }
}

/// The window from before a recovery or a probe for the least round-trip time.
#[derive(Clone, Debug)]
struct PriorWindow {
    pkts: u32,
    /// The state of recovery after the previous ACK.
    recovery_state: RecoveryState,
}

impl PriorWindow {
    fn new() -> PriorWindow {
        PriorWindow {
            pkts: 0,
            recovery_state: RecoveryState::Open,
        }
    }

    /// Saves this window. During recovery and probes the window is small for other reasons, so that
    /// the larger one of the saved and the present window is kept.
    fn save(&mut self, cwnd: u32, probes_rtt: bool) {
        self.pkts = match self.recovery_state == RecoveryState::Open && !probes_rtt {
            true => cwnd,
            false => self.pkts.max(cwnd),
        };
    }

    /// Returns the window to restore, which is not less than the present one.
    fn restore(&self, cwnd: u32) -> u32 {
        self.pkts.max(cwnd)
    }

    /// Sets the state of recovery and returns the previous one.
    fn update(&mut self, now: RecoveryState) -> RecoveryState {
        std::mem::replace(&mut self.recovery_state, now)
    }
}
