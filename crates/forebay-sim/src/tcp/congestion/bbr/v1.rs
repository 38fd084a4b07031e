//! BBR version 1 as in Linux (net/ipv4/tcp_bbr.c; Cardwell et al., "BBR: Congestion-Based
//! Congestion Control", ACM Queue 14(5), 2016). It paces at the maximum delivery rate of ten round
//! trips, keeps two bandwidth-delay products in flight, and responds neither to losses nor to
//! marks.
//!
//! The arithmetic is the kernel's, in its units and with its rounding.

use forebay_units::cast::whole_u32;
use forebay_units::{Rate, Rng, Span, Time};

use super::windowed_max::WindowedMax;
use super::{first_rtt, FullPipe, PriorWindow, Rounds};
use crate::tcp::congestion::{
    CongestionControl, CongestionEvent, DeliveryRate, Established, Growth, RateSample,
    RecoveryState, WholeWindow,
};
use crate::tcp::Config;

/// The gain 1. Gains are in units of 1/256.
const UNIT: u64 = 256;
/// Binary scale of bandwidths, which are in units of 2^-24 packets per microsecond.
const BW_SCALE: u32 = 24;
const BW_UNIT: u64 = 1 << BW_SCALE;

/// 2/ln 2, the least gain that doubles the rate in each round trip.
const HIGH_GAIN: u64 = UNIT * 2885 / 1000 + 1;
const DRAIN_GAIN: u64 = UNIT * 1000 / 2885;
const CWND_GAIN: u64 = UNIT * 2;
/// Pacing gains of a cycle: a probe for more bandwidth, the drain of its queue, and six round trips
/// at the estimate.
const CYCLE: [u64; 8] = [
    UNIT * 5 / 4,
    UNIT * 3 / 4,
    UNIT,
    UNIT,
    UNIT,
    UNIT,
    UNIT,
    UNIT,
];
/// Number of phases in which a cycle may begin: all but the drain.
const FIRST_PHASES: f64 = 7.0;
/// Window of the maximum bandwidth, in round trips: a cycle and two more.
const BW_ROUNDS: u32 = 10;
const MIN_RTT_WINDOW_MS: u64 = 10_000;
const PROBE_RTT_MS: u64 = 200;
const LEAST_CWND_PKTS: u32 = 4;
/// Growth of the bandwidth in a round trip that shows that the pipe is not full.
const FULL_BW_GROWTH: u64 = UNIT * 5 / 4;
/// Rate below which a segment is one packet.
const LEAST_SEGMENTS_BYTES_PER_S: u64 = 1_200_000 / 8;
const LARGEST_SEGMENT_BYTES: u64 = 65_536 - 1 - 320;
const INITIAL_CWND_PKTS: u32 = 10;

/// Half of the window of the maximum surplus of ACKs, in round trips.
const EXTRA_ACKED_ROUNDS: u32 = 5;
/// The surplus is limited to the packets that the bandwidth delivers in this time.
const EXTRA_ACKED_US: u64 = 100_000;
const EXTRA_ACKED_EPOCH_PKTS: u32 = 1 << 20;

/// Least length in round trips of an interval in which a policer is detected; the longest is four
/// times as long.
const POLICED_LEAST_ROUNDS: u32 = 4;
/// Loss rate of such an interval, in units of 1/256: about a fifth.
const POLICED_LOSS: u64 = 50;
/// Two intervals agree if their bandwidths differ by at most an eighth, or by
/// `POLICED_BYTES_PER_S`.
const POLICED_RATIO: u64 = UNIT / 8;
const POLICED_BYTES_PER_S: u64 = 4000 / 8;
/// Number of round trips for which a policer's rate is used.
const POLICED_USE_ROUNDS: u32 = 48;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Startup,
    Drain,
    ProbeBw,
    ProbeRtt,
}

/// The detection of a token-bucket policer (the kernel's `lt_bw`).
#[derive(Clone, Debug, Default)]
struct Policer {
    sampling: bool,
    /// True while `bw` is used as the bandwidth.
    used: bool,
    bw: u64,
    rounds: u32,
    since_ms: u64,
    delivered_pkts: u64,
    lost_pkts: u64,
}

/// The surplus of ACKs over the bandwidth. The window is larger by it, so that the sender can
/// continue while ACKs pause.
#[derive(Clone, Debug, Default)]
struct ExtraAcked {
    epoch_us: u64,
    epoch_pkts: u32,
    most_pkts: [u32; 2],
    slot: usize,
    rounds: u32,
}

/// The congestion control `bbr` of Linux.
#[derive(Clone, Debug)]
pub struct Bbr {
    window: WholeWindow,
    payload_bytes: u64,
    rng: Rng,
    mode: Mode,
    pacing_gain: u64,
    cwnd_gain: u64,
    bytes_per_s: u64,
    bw: WindowedMax,
    rounds: Rounds,
    min_rtt_us: Option<u64>,
    min_rtt_ms: u64,
    cycle: usize,
    cycle_us: u64,
    full_pipe: FullPipe<u64>,
    probe_rtt_until_ms: Option<u64>,
    probe_rtt_round_done: bool,
    idle_restart: bool,
    packet_conservation: bool,
    prior_window: PriorWindow,
    policer: Policer,
    extra_acked: ExtraAcked,
}

/// Converts a number of packets to 32 bits, the kernel's size.
fn whole_pkts(pkts: u128) -> u32 {
    u32::try_from(pkts).unwrap_or(u32::MAX)
}

/// Returns the number of packets that a bandwidth delivers in a time.
fn pkts_in(bw: u64, time_us: u64) -> u32 {
    whole_pkts((u128::from(bw) * u128::from(time_us)) >> BW_SCALE)
}

impl Bbr {
    /// Returns the bandwidth in use.
    fn bandwidth(&self) -> u64 {
        match self.policer.used {
            true => self.policer.bw,
            false => self.bw.get(),
        }
    }

    /// Returns a pacing rate in bytes per second, 1 % below the bandwidth times the gain, so that
    /// queues drain.
    fn bytes_per_s_of(&self, bw: u64, gain: u64) -> u64 {
        let scaled = u128::from((bw * self.payload_bytes * gain) >> 8) * 990_000;
        u64::try_from(scaled >> BW_SCALE).unwrap_or(u64::MAX)
    }

    /// Sets the first pacing rate, from the window and the handshake's round-trip time.
    fn init_pacing_rate(&mut self, srtt: Span) {
        let rtt_us = first_rtt(srtt).as_micros().max(1);
        let bw = u64::from(self.window.cwnd) * BW_UNIT / rtt_us;
        self.bytes_per_s = self.bytes_per_s_of(bw, HIGH_GAIN);
    }

    /// Sets the pacing rate. Until the pipe is full it only increases.
    fn set_pacing_rate(&mut self, bw: u64, gain: u64) {
        let rate = self.bytes_per_s_of(bw, gain);
        if self.full_pipe.reached || rate > self.bytes_per_s {
            self.bytes_per_s = rate;
        }
    }

    /// Returns the number of packets in a segment, about a millisecond of the rate.
    fn segment_pkts(&self) -> u32 {
        let bytes = (self.bytes_per_s >> 10).min(LARGEST_SEGMENT_BYTES);
        let pkts = whole_pkts((bytes / self.payload_bytes.max(1)).into());
        pkts.max(self.least_segment_pkts()).min(127)
    }

    /// Returns the bandwidth-delay product times a gain, rounded up.
    fn bdp_pkts(&self, bw: u64, gain: u64) -> u32 {
        let Some(min_rtt_us) = self.min_rtt_us else {
            return INITIAL_CWND_PKTS;
        };
        let product = u128::from(bw) * u128::from(min_rtt_us) * u128::from(gain);
        whole_pkts((product >> 8).div_ceil(u128::from(BW_UNIT)))
    }

    /// Adds room for three segments that are being processed in the hosts, rounded up to an even
    /// number for delayed ACKs.
    fn with_segments(&self, pkts: u32) -> u32 {
        let even = (pkts + 3 * self.segment_pkts() + 1) & !1;
        match (self.mode, self.cycle) {
            (Mode::ProbeBw, 0) => even + 2,
            _ => even,
        }
    }

    /// Returns the target of packets in flight for a bandwidth and a gain.
    fn inflight_pkts(&self, bw: u64, gain: u64) -> u32 {
        self.with_segments(self.bdp_pkts(bw, gain))
    }

    /// Returns the number of packets that will be in the network when pacing releases the next
    /// segment.
    fn in_network_pkts(&self, in_flight_pkts: u32, sample: &RateSample) -> u32 {
        let delivered = pkts_in(self.bandwidth(), sample.pace_wait.as_micros());
        let mut then = in_flight_pkts;
        if self.pacing_gain > UNIT {
            then += self.segment_pkts();
        }
        then.saturating_sub(delivered)
    }

    /// Saves the window before a recovery or a probe for the round-trip time.
    fn save_window(&mut self) {
        self.prior_window
            .save(self.window.cwnd, self.mode == Mode::ProbeRtt);
    }

    /// Begins a cycle of bandwidth probing in a random phase.
    fn begin_cycle(&mut self, sample: &RateSample) {
        self.mode = Mode::ProbeBw;
        let skipped = whole_u32(self.rng.uniform() * FIRST_PHASES);
        self.cycle = CYCLE.len() - 1 - skipped as usize;
        self.next_phase(sample);
    }

    /// Enters the next phase of the cycle.
    fn next_phase(&mut self, sample: &RateSample) {
        self.cycle = (self.cycle + 1) % CYCLE.len();
        self.cycle_us = sample.delivered_at.as_micros();
    }

    /// Updates the round trips and the maximum bandwidth with a delivery rate.
    fn update_bandwidth(&mut self, rate: &DeliveryRate, sample: &RateSample) {
        if self.rounds.update(rate, sample) {
            self.packet_conservation = false;
        }
        self.detect_policer(sample, sample.lost_pkts > 0, rate.app_limited);
        let bw = u64::from(rate.pkts) * BW_UNIT / rate.interval.as_micros().max(1);
        let bw = bw.min(u32::MAX.into());
        // A rate that the application limited is only a lower bound of the bandwidth.
        if !rate.app_limited || bw >= self.bw.get() {
            self.bw.update(BW_ROUNDS, self.rounds.count, bw);
        }
    }

    /// Begins an interval of the detection of a policer.
    fn begin_policer_interval(&mut self, sample: &RateSample) {
        self.policer.since_ms = sample.delivered_at.as_millis();
        self.policer.delivered_pkts = sample.delivered_pkts;
        self.policer.lost_pkts = sample.total_lost_pkts;
        self.policer.rounds = 0;
    }

    /// Starts the detection of a policer again.
    fn reset_policer(&mut self, sample: &RateSample) {
        self.policer = Policer::default();
        self.begin_policer_interval(sample);
    }

    /// Looks for two consecutive intervals with high loss and equal bandwidth, whose bandwidth is
    /// then that of a policer.
    fn detect_policer(&mut self, sample: &RateSample, lost: bool, app_limited: bool) {
        if self.policer.used {
            if self.mode == Mode::ProbeBw && self.rounds.starts {
                self.policer.rounds += 1;
                if self.policer.rounds >= POLICED_USE_ROUNDS {
                    self.reset_policer(sample);
                    self.begin_cycle(sample);
                }
            }
            return;
        }
        if !self.policer.sampling {
            if !lost {
                return;
            }
            self.begin_policer_interval(sample);
            self.policer.sampling = true;
        }
        if app_limited {
            return self.reset_policer(sample);
        }
        self.policer.rounds += u32::from(self.rounds.starts);
        if self.policer.rounds < POLICED_LEAST_ROUNDS {
            return;
        }
        if self.policer.rounds > 4 * POLICED_LEAST_ROUNDS {
            return self.reset_policer(sample);
        }
        // An interval ends with a loss, when the policer's tokens are used up.
        if !lost {
            return;
        }
        let lost_pkts = sample.total_lost_pkts - self.policer.lost_pkts;
        let delivered_pkts = sample.delivered_pkts - self.policer.delivered_pkts;
        if delivered_pkts == 0 || lost_pkts << 8 < POLICED_LOSS * delivered_pkts {
            return;
        }
        let interval_ms = sample.delivered_at.as_millis() - self.policer.since_ms;
        if interval_ms < 1 {
            return;
        }
        let bw = delivered_pkts * BW_UNIT / (interval_ms * 1000);
        let before = self.policer.bw;
        let apart = bw.abs_diff(before);
        let agree = apart * UNIT <= POLICED_RATIO * before
            || self.bytes_per_s_of(apart, UNIT) <= POLICED_BYTES_PER_S;
        if before > 0 && agree {
            self.policer.bw = (bw + before) / 2;
            self.policer.used = true;
            self.pacing_gain = UNIT;
            self.policer.rounds = 0;
        } else {
            self.policer.bw = bw;
            self.begin_policer_interval(sample);
        }
    }

    /// Updates the surplus of ACKs over the bandwidth.
    fn update_extra_acked(&mut self, sample: &RateSample) {
        let bw = self.bandwidth();
        let cwnd = self.window.cwnd;
        let extra = &mut self.extra_acked;
        if self.rounds.starts {
            extra.rounds += 1;
            if extra.rounds >= EXTRA_ACKED_ROUNDS {
                extra.rounds = 0;
                extra.slot ^= 1;
                extra.most_pkts[extra.slot] = 0;
            }
        }
        let now_us = sample.delivered_at.as_micros();
        let mut expected = pkts_in(bw, now_us.saturating_sub(extra.epoch_us));
        let acked = sample.acked_pkts;
        if extra.epoch_pkts <= expected || extra.epoch_pkts + acked >= EXTRA_ACKED_EPOCH_PKTS {
            extra.epoch_pkts = 0;
            extra.epoch_us = now_us;
            expected = 0;
        }
        extra.epoch_pkts = (extra.epoch_pkts + acked).min(EXTRA_ACKED_EPOCH_PKTS - 1);
        let ahead = (extra.epoch_pkts - expected).min(cwnd);
        let most = &mut extra.most_pkts[extra.slot];
        *most = ahead.max(*most);
    }

    /// Returns the maximum surplus of ACKs, in packets.
    fn extra_acked_pkts(&self) -> u32 {
        if !self.full_pipe.reached {
            return 0;
        }
        let limit = pkts_in(self.bandwidth(), EXTRA_ACKED_US);
        self.extra_acked.most_pkts[0]
            .max(self.extra_acked.most_pkts[1])
            .min(limit)
    }

    /// Enters the next phase of the cycle when the present one is over.
    #[inline(always)]
    fn update_cycle(&mut self, sample: &RateSample) {
        if self.mode != Mode::ProbeBw {
            return;
        }
        let elapsed_us = sample
            .delivered_at
            .as_micros()
            .saturating_sub(self.cycle_us);
        let full_length = self.min_rtt_us.is_some_and(|rtt_us| elapsed_us > rtt_us);
        let bw = self.bw.get();
        let in_network = || self.in_network_pkts(sample.prior_in_flight_pkts, sample);
        let over = match self.pacing_gain.cmp(&UNIT) {
            std::cmp::Ordering::Equal => full_length,
            std::cmp::Ordering::Greater => {
                full_length
                    && (sample.lost_pkts > 0
                        || in_network() >= self.inflight_pkts(bw, self.pacing_gain))
            }
            std::cmp::Ordering::Less => full_length || in_network() <= self.inflight_pkts(bw, UNIT),
        };
        if over {
            self.next_phase(sample);
        }
    }

    /// Checks at the end of a round trip if the pipe is full.
    fn check_full_pipe(&mut self, app_limited: bool) {
        if self.full_pipe.reached || !self.rounds.starts || app_limited {
            return;
        }
        let bw = self.bw.get();
        let grew = |before: &u64| bw >= (before * FULL_BW_GROWTH) >> 8;
        self.full_pipe.update(bw, grew);
    }

    /// Leaves startup when the pipe is full, and drain when its queue is empty.
    fn check_drain(&mut self, sample: &RateSample) {
        let bw = self.bw.get();
        if self.mode == Mode::Startup && self.full_pipe.reached {
            self.mode = Mode::Drain;
            self.window.ssthresh = self.inflight_pkts(bw, UNIT);
        }
        if self.mode == Mode::Drain
            && self.in_network_pkts(sample.in_flight_pkts, sample) <= self.inflight_pkts(bw, UNIT)
        {
            self.begin_cycle(sample);
        }
    }

    /// Updates the least round-trip time, and probes for it if it is old.
    fn update_min_rtt(&mut self, sample: &RateSample) {
        let now_ms = sample.now.as_millis();
        let expired = now_ms > self.min_rtt_ms + MIN_RTT_WINDOW_MS;
        if let Some(rtt_us) = sample.rtt.map(Span::as_micros) {
            if self.min_rtt_us.is_none_or(|least| rtt_us < least) || expired {
                self.min_rtt_us = Some(rtt_us);
                self.min_rtt_ms = now_ms;
            }
        }
        if expired && !self.idle_restart && self.mode != Mode::ProbeRtt {
            self.mode = Mode::ProbeRtt;
            self.save_window();
            self.probe_rtt_until_ms = None;
        }
        if self.mode == Mode::ProbeRtt {
            match self.probe_rtt_until_ms {
                None if sample.in_flight_pkts <= LEAST_CWND_PKTS => {
                    self.probe_rtt_until_ms = Some(now_ms + PROBE_RTT_MS);
                    self.probe_rtt_round_done = false;
                    self.rounds.begin(sample);
                }
                Some(until_ms) => {
                    self.probe_rtt_round_done |= self.rounds.starts;
                    if self.probe_rtt_round_done && now_ms > until_ms {
                        self.end_probe_rtt(sample);
                    }
                }
                None => {}
            }
        }
        if sample.rate.is_some() {
            self.idle_restart = false;
        }
    }

    /// Ends a probe for the least round-trip time and restores the window.
    fn end_probe_rtt(&mut self, sample: &RateSample) {
        self.min_rtt_ms = sample.now.as_millis();
        self.window.cwnd = self.prior_window.restore(self.window.cwnd);
        match self.full_pipe.reached {
            true => self.begin_cycle(sample),
            false => self.mode = Mode::Startup,
        }
    }

    /// Sets the gains of the present mode.
    fn update_gains(&mut self) {
        (self.pacing_gain, self.cwnd_gain) = match self.mode {
            Mode::Startup => (HIGH_GAIN, HIGH_GAIN),
            Mode::Drain => (DRAIN_GAIN, HIGH_GAIN),
            Mode::ProbeBw if self.policer.used => (UNIT, CWND_GAIN),
            Mode::ProbeBw => (CYCLE[self.cycle], CWND_GAIN),
            Mode::ProbeRtt => (UNIT, UNIT),
        };
    }

    /// Updates the window: packet conservation in the first round trip of a recovery, then growth
    /// towards the target, and the window from before at the end of the recovery.
    fn update_cwnd(&mut self, sample: &RateSample) {
        let acked = sample.acked_pkts;
        if acked > 0 {
            let mut cwnd = self.window.cwnd.saturating_sub(sample.lost_pkts).max(1);
            let (before, now) = (
                self.prior_window.update(sample.recovery_state),
                sample.recovery_state,
            );
            if now == RecoveryState::Recovery && before != RecoveryState::Recovery {
                self.packet_conservation = true;
                self.rounds.begin(sample);
                cwnd = sample.in_flight_pkts + acked;
            } else if before != RecoveryState::Open && now == RecoveryState::Open {
                cwnd = self.prior_window.restore(cwnd);
                self.packet_conservation = false;
            }
            if self.packet_conservation {
                self.window.cwnd = cwnd.max(sample.in_flight_pkts + acked);
            } else {
                let bdp = self.bdp_pkts(self.bandwidth(), self.cwnd_gain);
                let target = self.with_segments(bdp + self.extra_acked_pkts());
                if self.full_pipe.reached {
                    cwnd = (cwnd + acked).min(target);
                } else if cwnd < target || sample.delivered_pkts < u64::from(INITIAL_CWND_PKTS) {
                    cwnd += acked;
                }
                self.window.cwnd = cwnd.max(LEAST_CWND_PKTS);
            }
        }
        if self.mode == Mode::ProbeRtt {
            self.window.cwnd = self.window.cwnd.min(LEAST_CWND_PKTS);
        }
    }
}

impl CongestionControl for Bbr {
    window_in!(window: WholeWindow);

    const RATE_SAMPLES: bool = true;
    const CONTROLS: bool = true;
    const BUFFER_WINDOWS: u32 = 3;

    fn new(config: &Config) -> Bbr {
        Bbr {
            window: WholeWindow::new(),
            payload_bytes: u64::from(config.payload_bytes),
            rng: Rng::new(0, "bbr"),
            mode: Mode::Startup,
            pacing_gain: HIGH_GAIN,
            cwnd_gain: HIGH_GAIN,
            bytes_per_s: 0,
            bw: WindowedMax::default(),
            rounds: Rounds::default(),
            min_rtt_us: None,
            min_rtt_ms: 0,
            cycle: 0,
            cycle_us: 0,
            full_pipe: FullPipe::default(),
            probe_rtt_until_ms: None,
            probe_rtt_round_done: false,
            idle_restart: false,
            packet_conservation: false,
            prior_window: PriorWindow::new(),
            policer: Policer::default(),
            extra_acked: ExtraAcked::default(),
        }
    }

    fn set_phase(&mut self, phase: f64) {
        self.rng = Rng::new(phase.to_bits(), "bbr");
    }

    fn on_established(&mut self, start: &Established) {
        self.window.cwnd = start.initial_pkts;
        if !start.srtt.is_zero() {
            self.min_rtt_us = Some(start.srtt.as_micros());
        }
        self.min_rtt_ms = start.now.as_millis();
        self.extra_acked.epoch_us = start.now.as_micros();
        self.init_pacing_rate(start.srtt);
    }

    fn on_sent(&mut self, now: Time, in_flight_pkts: u32, app_limited: bool) {
        if in_flight_pkts > 0 || !app_limited {
            return;
        }
        // After an idle time the flow sends no faster than the estimate, because the pipe may be
        // empty.
        self.idle_restart = true;
        self.extra_acked.epoch_us = now.as_micros();
        self.extra_acked.epoch_pkts = 0;
        if self.mode == Mode::ProbeBw {
            self.set_pacing_rate(self.bandwidth(), UNIT);
        }
    }

    fn on_rate(&mut self, sample: &RateSample) {
        self.rounds.starts = false;
        if let Some(rate) = &sample.rate {
            self.update_bandwidth(rate, sample);
            if sample.acked_pkts > 0 {
                self.update_extra_acked(sample);
            }
        }
        self.update_cycle(sample);
        self.check_full_pipe(sample.rate.is_some_and(|rate| rate.app_limited));
        self.check_drain(sample);
        self.update_min_rtt(sample);
        self.update_gains();
        self.set_pacing_rate(self.bandwidth(), self.pacing_gain);
        self.update_cwnd(sample);
    }

    window_by_rate!();

    fn on_timeout(&mut self, _now: Time, _next: u32) {
        self.prior_window.update(RecoveryState::Loss);
        self.full_pipe.bw = 0;
        self.rounds.starts = true;
    }

    /// Counts a timeout as the end of a round trip with losses (`bbr_set_state`).
    fn on_timeout_rate(&mut self, sample: &RateSample) {
        self.detect_policer(sample, true, false);
    }

    fn pacing_rate(&self) -> Option<Rate> {
        Some(Rate::from_bps(self.bytes_per_s.saturating_mul(8)))
    }

    fn probes_rtt(&self) -> bool {
        self.mode == Mode::ProbeRtt
    }

    fn least_segment_pkts(&self) -> u32 {
        match self.bytes_per_s < LEAST_SEGMENTS_BYTES_PER_S {
            true => 1,
            false => 2,
        }
    }

    fn undo(&mut self, _cwnd: f64, _ssthresh: f64) -> bool {
        (self.full_pipe.bw, self.full_pipe.rounds) = (0, 0);
        self.policer = Policer::default();
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::testing::{at, config, MS};

    #[test]
    fn a_timeout_is_a_loss_with_which_the_search_for_a_policer_begins() {
        let mut flow = Bbr::new(&config());
        flow.on_timeout(at(400 * MS), 20);
        flow.on_timeout_rate(&RateSample {
            now: at(400 * MS),
            rate: None,
            acked_pkts: 0,
            ce_pkts: 0,
            lost_pkts: 1,
            rtt: None,
            delivered_pkts: 12,
            delivered_at: at(100 * MS),
            total_lost_pkts: 8,
            prior_in_flight_pkts: 0,
            in_flight_pkts: 0,
            recovery_state: RecoveryState::Loss,
            pace_wait: Span::ZERO,
        });
        let found = &flow.policer;
        assert!(found.sampling && !found.used);
        assert_eq!((found.delivered_pkts, found.lost_pkts), (12, 8));
        // The timeout counts as the end of a round trip (`round_start`).
        assert_eq!(found.rounds, 1);
    }
}
