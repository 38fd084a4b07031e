//! BBR, versions 1 and 3, and what both count alike: round trips, the search for a full pipe, and
//! the window to go back to.

/// [`CongestionControl::on_rate`](super::CongestionControl::on_rate) does all: nothing else grows the
/// window, and a congestion event keeps the threshold and only notes the window, to go back to.
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

/// The pipe is full after this many round trips in which bandwidth has not grown by a quarter.
const FULL_BW_ROUNDS: u32 = 3;
/// What the first pace takes for the round trip where the handshake has told none.
const DEFAULT_RTT: Span = Span::from_millis(1);

/// The round trip of the first pace.
fn first_rtt(srtt: Span) -> Span {
    match srtt {
        Span::ZERO => DEFAULT_RTT,
        srtt => srtt,
    }
}

/// Round trips, counted by packets delivered.
#[derive(Clone, Debug, Default)]
struct Rounds {
    count: u32,
    /// One begins with this ACK.
    starts: bool,
    /// It is over when a packet is acknowledged that was sent at this count.
    end_pkts: u64,
}

impl Rounds {
    /// A round trip begins now, outside the count.
    fn begin(&mut self, sample: &RateSample) {
        self.end_pkts = sample.delivered_pkts;
    }

    /// Whether a packet ends the round trip, and the next one begins.
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

/// Looks for the round trip from which on the bandwidth grows no more (draft-ietf-ccwg-bbr-02
/// section 5.3.1.2).
#[derive(Clone, Debug, Default)]
struct FullPipe<B> {
    /// The bandwidth that is to be exceeded.
    bw: B,
    /// Round trips that did not.
    rounds: u32,
    reached: bool,
}

impl<B> FullPipe<B> {
    /// Begins anew, with a bandwidth that is known.
    fn from(bw: B) -> FullPipe<B> {
        FullPipe {
            bw,
            rounds: 0,
            reached: false,
        }
    }

    /// Takes the bandwidth of a round trip; `grew` compares it with the one to be exceeded.
    fn update(&mut self, bw: B, grew: impl FnOnce(&B) -> bool) {
        if grew(&self.bw) {
            (self.bw, self.rounds) = (bw, 0);
            return;
        }
        self.rounds += 1;
        self.reached = self.rounds >= FULL_BW_ROUNDS;
    }
}

/// The window from before a recovery or a probe for the least round trip.
#[derive(Clone, Debug)]
struct PriorWindow {
    pkts: u32,
    /// As the ACK before this one left it.
    recovery_state: RecoveryState,
}

impl PriorWindow {
    fn new() -> PriorWindow {
        PriorWindow {
            pkts: 0,
            recovery_state: RecoveryState::Open,
        }
    }

    /// Keeps this window; in recovery and while it probes the window says nothing, and the greater
    /// one is kept.
    fn save(&mut self, cwnd: u32, probes_rtt: bool) {
        self.pkts = match self.recovery_state == RecoveryState::Open && !probes_rtt {
            true => cwnd,
            false => self.pkts.max(cwnd),
        };
    }

    /// The window to go on with.
    fn restore(&self, cwnd: u32) -> u32 {
        self.pkts.max(cwnd)
    }

    /// Takes how recovery stands now; returns how it stood.
    fn update(&mut self, now: RecoveryState) -> RecoveryState {
        std::mem::replace(&mut self.recovery_state, now)
    }
}
