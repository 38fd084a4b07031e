//! BBR version 3 (draft-ietf-ccwg-bbr-02, to whose sections the comments refer). Like version 1 it
//! paces at the modelled bandwidth of the path, and it also bounds the packets in flight by the
//! losses that it observes.
//!
//! Losses are judged when ACKs report them, by the packet that yields the delivery rate of the ACK;
//! the draft judges each lost packet (section 5.5.10.2). There is no response to ECN.

use forebay_units::cast::{whole_u32, whole_u64};
use forebay_units::{Rate, Rng, Span, Time};

use super::{first_rtt, FullPipe, PriorWindow, Rounds};
use crate::tcp::congestion::{
    CongestionControl, CongestionEvent, DeliveryRate, Established, Growth, RateSample,
    RecoveryState, WholeWindow,
};
use crate::tcp::Config;

/// 4 ln 2, the least pacing gain that doubles the delivered packets in each round (section 2.4).
const STARTUP_PACING: f64 = 2.77;
const DRAIN_PACING: f64 = 0.35;
const CWND_GAIN: f64 = 2.0;
const PROBE_UP_CWND_GAIN: f64 = 2.25;
const PROBE_RTT_CWND_GAIN: f64 = 0.5;
/// Fraction by which the pacing rate is below the model, so that queues drain (section 2.5).
const PACING_MARGIN: f64 = 0.01;
/// Loss rate, as a fraction of the packets in flight, above which losses are too many (section
/// 2.7).
const LOSS_SHARE: f64 = 0.02;
/// Factor by which a loss lowers a bound.
const BETA: f64 = 0.7;
/// Fraction of the long-term bound that is left to other flows while cruising.
const HEADROOM: f64 = 0.15;
const LEAST_CWND_PKTS: f64 = 4.0;
const FULL_BW_GROWTH: f64 = 1.25;
/// Number of loss events in a round that ends Startup (section 5.3.1.3).
const FULL_LOSS_EVENTS: u32 = 6;
const MIN_RTT_WINDOW: Span = Span::from_secs(10);
const PROBE_RTT_INTERVAL: Span = Span::from_secs(5);
const PROBE_RTT: Span = Span::from_millis(200);
/// Interval from which the time between two probes for bandwidth is drawn (section 5.3.3.5.3).
const PROBE_WAIT: [Span; 2] = [Span::from_secs(2), Span::from_secs(3)];
/// Largest number of rounds between two probes, however long Reno would need to regain its window.
const MOST_PROBE_ROUNDS: f64 = 63.0;
/// Number of rounds in one of the two slots of the maximum surplus of ACKs.
const EXTRA_ACKED_ROUNDS: u32 = 10;
/// Number of delivered packets up to which Startup lets the window grow without a bound.
const INITIAL_PKTS: u64 = 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Startup,
    Drain,
    /// The four phases of a probe for bandwidth (section 5.3.3).
    Down,
    Cruise,
    Refill,
    Up,
    ProbeRtt,
}

/// The congestion control BBR, version 3. Rates are in packets per nanosecond, sizes in packets.
#[derive(Clone, Debug)]
pub struct Bbr3 {
    window: WholeWindow,
    payload_bytes: f64,
    rng: Rng,
    mode: Mode,
    pacing_gain: f64,
    cwnd_gain: f64,
    pace: f64,

    rounds: Rounds,

    /// Maximum bandwidth of the last cycle and of the present one (section 5.5.5).
    max_bw: [f64; 2],
    /// Maximum bandwidth of the present round.
    bw_latest: f64,
    delivered_latest: f64,
    /// Short-term bound of the bandwidth after losses (section 5.5.10.3).
    short_bw: f64,
    short_pkts: f64,
    /// Long-term bound of the packets in flight (section 5.5.10.2).
    long_pkts: f64,
    lost_in_round: bool,
    loss_events: u32,

    /// True once Startup has found the bandwidth.
    full: bool,
    full_pipe: FullPipe<f64>,

    min_rtt: Option<Span>,
    min_rtt_at: Time,
    recent_rtt: Span,
    recent_rtt_at: Time,
    probe_rtt_until: Option<Time>,
    probe_rtt_round_done: bool,

    phase_at: Time,
    probe_wait: Span,
    rounds_since_probe: u64,
    probe_up_rounds: u32,
    /// Number of acknowledged packets for which the long-term bound grows by one.
    probe_up_each: f64,
    /// Acknowledged packets that count towards that growth.
    probe_up_acked: f64,
    /// True while losses are caused by a probe for bandwidth.
    probe_samples: bool,

    extra_acked_since: Time,
    extra_acked_epoch_pkts: f64,
    /// Two slots of rounds: their numbers, and the maximum surplus of ACKs in each.
    extra_acked: [(u32, f64); 2],

    prior_window: PriorWindow,
    idle_restart: bool,
}

/// Returns a delivery rate in packets per nanosecond.
fn bandwidth(rate: &DeliveryRate) -> f64 {
    f64::from(rate.pkts) / rate.interval.max(Span::from_nanos(1)).as_nanos_f64()
}

/// Returns true if the loss rate of a sample is above the limit.
fn too_many_lost(rate: &DeliveryRate) -> bool {
    f64::from(rate.lost_since_pkts) > LOSS_SHARE * f64::from(rate.in_flight_then_pkts)
}

impl Bbr3 {
    /// Returns the maximum bandwidth of the last two cycles.
    fn max_bw(&self) -> f64 {
        self.max_bw[0].max(self.max_bw[1])
    }

    /// Returns the bandwidth in use (section 5.5.10.3).
    fn bw(&self) -> f64 {
        self.max_bw().min(self.short_bw)
    }

    /// Returns the bandwidth-delay product times a gain.
    fn bdp_pkts(&self, bw: f64, gain: f64) -> f64 {
        self.min_rtt
            .map_or(10.0, |rtt| gain * bw * rtt.as_nanos_f64())
    }

    /// Returns the number of packets in a segment, a millisecond of the pacing rate (section
    /// 5.6.3).
    fn segment_pkts(&self) -> f64 {
        let least = f64::from(self.least_segment_pkts());
        (self.pace * 1e6)
            .floor()
            .min(65_536.0 / self.payload_bytes)
            .max(least)
    }

    /// Raises a number of packets in flight to at least three segments, and by two packets during a
    /// probe (section 5.6.4.2).
    fn quantize(&self, pkts: f64) -> f64 {
        let room = pkts.max(3.0 * self.segment_pkts()).max(LEAST_CWND_PKTS);
        room + if self.mode == Mode::Up { 2.0 } else { 0.0 }
    }

    /// Returns the target of packets in flight for a gain.
    fn inflight_pkts(&self, gain: f64) -> f64 {
        self.quantize(self.bdp_pkts(self.max_bw(), gain))
    }

    /// Returns the long-term bound less the headroom for other flows.
    fn inflight_with_headroom_pkts(&self) -> f64 {
        let headroom = (HEADROOM * self.long_pkts).max(1.0);
        match self.long_pkts.is_finite() {
            true => (self.long_pkts - headroom).max(LEAST_CWND_PKTS),
            false => f64::INFINITY,
        }
    }

    /// Returns the window by the model: the bandwidth-delay product times the gain, and the surplus
    /// of ACKs.
    fn max_inflight_pkts(&self) -> f64 {
        let extra_pkts = self.extra_acked[0].1.max(self.extra_acked[1].1);
        self.quantize(self.bdp_pkts(self.bw(), self.cwnd_gain) + extra_pkts)
    }

    /// Returns the target of packets in flight, which times β limits how far the loss of a probe
    /// lowers the long-term bound (section 5.5.10.2).
    fn target_pkts(&self) -> f64 {
        self.bdp_pkts(self.bw(), 1.0).min(self.window.cwnd.into())
    }

    /// Removes the short-term bounds.
    fn reset_short_term_bounds(&mut self) {
        (self.short_bw, self.short_pkts) = (f64::INFINITY, f64::INFINITY);
    }

    /// Sets the first pacing rate, from the window and the handshake's round-trip time.
    fn init_pacing_rate(&mut self, srtt: Span) {
        let rtt = first_rtt(srtt);
        self.pace = STARTUP_PACING * f64::from(self.window.cwnd) / rtt.as_nanos_f64();
    }

    /// Sets the pacing rate. Until Startup is over it only increases.
    fn set_pacing_rate(&mut self, gain: f64) {
        let pace = gain * self.bw() * (1.0 - PACING_MARGIN);
        if self.full || pace > self.pace {
            self.pace = pace;
        }
    }

    /// Updates the rounds and the bandwidth with a delivery rate (sections 5.5.4 and 5.5.5).
    fn update_bandwidth(&mut self, rate: &DeliveryRate, sample: &RateSample) {
        if self.rounds.update(rate, sample) {
            self.rounds_since_probe += 1;
        }
        let bw = bandwidth(rate);
        if bw >= self.max_bw() || !rate.app_limited {
            self.max_bw[1] = self.max_bw[1].max(bw);
        }
        self.bw_latest = self.bw_latest.max(bw);
        self.delivered_latest = self.delivered_latest.max(rate.pkts.into());
    }

    /// Lowers the short-term bounds after a round with losses outside of probes, to the latest
    /// delivery or to seven tenths of the bounds, whichever is more (section 5.5.10.3).
    fn adapt_short_term_bounds(&mut self) {
        if !self.rounds.starts {
            return;
        }
        let probes = matches!(self.mode, Mode::Startup | Mode::Refill | Mode::Up);
        if self.lost_in_round && !probes {
            if self.short_bw.is_infinite() {
                self.short_bw = self.max_bw();
                self.short_pkts = self.window.cwnd.into();
            }
            self.short_bw = self.bw_latest.max(BETA * self.short_bw);
            self.short_pkts = self.delivered_latest.max(BETA * self.short_pkts);
        }
        self.lost_in_round = false;
    }

    /// Lowers the long-term bound if a probe causes too many losses, and raises it otherwise
    /// (section 5.5.10.2).
    fn adapt_long_term_bound(&mut self, rate: &DeliveryRate, sample: &RateSample) {
        let then = f64::from(rate.in_flight_then_pkts);
        if too_many_lost(rate) {
            if std::mem::take(&mut self.probe_samples) {
                if !rate.app_limited {
                    self.long_pkts = then.max(BETA * self.target_pkts());
                }
                if self.mode == Mode::Up {
                    self.begin_down(sample);
                }
            }
        } else if self.long_pkts.is_finite() {
            self.long_pkts = self.long_pkts.max(then);
            if self.mode == Mode::Up {
                self.raise_long_term_bound(sample);
            }
        }
    }

    /// Raises the long-term bound while it limits the flow, at a rate that doubles in each round
    /// (section 5.3.3.6).
    fn raise_long_term_bound(&mut self, sample: &RateSample) {
        if f64::from(sample.prior_in_flight_pkts) < self.long_pkts.floor() {
            return;
        }
        self.probe_up_acked += f64::from(sample.acked_pkts);
        if self.probe_up_acked >= self.probe_up_each {
            let more = (self.probe_up_acked / self.probe_up_each).floor();
            self.probe_up_acked -= more * self.probe_up_each;
            self.long_pkts += more;
        }
        if self.rounds.starts {
            self.raise_slope();
        }
    }

    /// Doubles the rate at which the long-term bound grows.
    fn raise_slope(&mut self) {
        let growth = f64::from(1u32 << self.probe_up_rounds);
        self.probe_up_rounds = (self.probe_up_rounds + 1).min(30);
        self.probe_up_each = (f64::from(self.window.cwnd) / growth).max(1.0);
    }

    /// Checks at the end of a round if the pipe is full.
    fn check_full_pipe(&mut self, app_limited: bool) {
        if self.full_pipe.reached || !self.rounds.starts || app_limited {
            return;
        }
        let bw = self.max_bw();
        let grew = |before: &f64| bw >= FULL_BW_GROWTH * before;
        self.full_pipe.update(bw, grew);
        self.full |= self.full_pipe.reached;
    }

    /// Ends Startup if it causes too many losses, and bounds the packets in flight (section
    /// 5.3.1.3).
    fn check_startup_loss(&mut self, sample: &RateSample) {
        self.loss_events += u32::from(sample.lost_pkts > 0);
        let many = sample.rate.as_ref().is_some_and(too_many_lost);
        if self.mode == Mode::Startup
            && many
            && self.loss_events >= FULL_LOSS_EVENTS
            && sample.recovery_state == RecoveryState::Recovery
        {
            self.full = true;
            let bdp = self.bdp_pkts(self.max_bw(), 1.0);
            self.long_pkts = bdp.max(self.delivered_latest);
        }
        if self.rounds.starts {
            self.loss_events = 0;
        }
    }

    /// Changes the mode when the present one is over.
    fn update_mode(&mut self, sample: &RateSample) {
        let in_flight = f64::from(sample.in_flight_pkts);
        match self.mode {
            Mode::Startup if self.full => self.mode = Mode::Drain,
            Mode::Drain if in_flight <= self.inflight_pkts(1.0) => self.begin_down(sample),
            Mode::Down | Mode::Cruise if self.time_to_probe(sample) => self.begin_refill(sample),
            Mode::Down
                if in_flight <= self.inflight_with_headroom_pkts()
                    && in_flight <= self.inflight_pkts(1.0) =>
            {
                self.mode = Mode::Cruise;
            }
            // After one round the pipe is full, and from now on samples belong to the probe.
            Mode::Refill if self.rounds.starts && self.rounds_since_probe > 0 => {
                self.begin_up(sample);
            }
            Mode::Up if self.full_pipe.reached => self.begin_down(sample),
            // While the long-term bound limits the flow, the bandwidth cannot grow.
            Mode::Up if f64::from(sample.prior_in_flight_pkts) >= self.long_pkts => {
                self.full_pipe = FullPipe::from(self.bw_latest);
            }
            _ => {}
        }
    }

    /// Begins the phase in which the queue of a probe drains (section 5.3.3.1).
    fn begin_down(&mut self, sample: &RateSample) {
        self.mode = Mode::Down;
        self.phase_at = sample.now;
        self.rounds_since_probe = u64::from(self.rng.chance(0.5));
        let [least, most] = PROBE_WAIT.map(Span::as_nanos_f64);
        self.probe_wait = Span::from_nanos(whole_u64(self.rng.uniform_in(least, most)));
        // The cycle is over; its maximum bandwidth becomes that of the last cycle.
        if self.max_bw[1] > 0.0 {
            self.max_bw = [self.max_bw[1], 0.0];
        }
        self.rounds.begin(sample);
    }

    /// Begins the phase that fills the pipe before a probe.
    fn begin_refill(&mut self, sample: &RateSample) {
        self.mode = Mode::Refill;
        self.reset_short_term_bounds();
        self.probe_up_rounds = 0;
        self.probe_up_acked = 0.0;
        self.rounds_since_probe = 0;
        self.rounds.begin(sample);
    }

    /// Begins the phase that probes for more bandwidth.
    fn begin_up(&mut self, sample: &RateSample) {
        self.mode = Mode::Up;
        self.probe_samples = true;
        self.full_pipe = FullPipe::from(self.bw_latest);
        self.rounds.begin(sample);
        self.raise_slope();
    }

    /// Returns true if the next probe for bandwidth is due: two to three seconds after the last
    /// one, or when Reno would have regained its window (section 5.3.3.5.3).
    fn time_to_probe(&self, sample: &RateSample) -> bool {
        let reno_rounds = self.target_pkts().min(MOST_PROBE_ROUNDS);
        sample.now >= self.phase_at + self.probe_wait
            || self.rounds_since_probe as f64 >= reno_rounds
    }

    /// Updates the least round-trip time, and begins and runs the probes for it (section 5.3.4).
    fn update_min_rtt(&mut self, sample: &RateSample) {
        let now = sample.now;
        let expired = now > self.recent_rtt_at + PROBE_RTT_INTERVAL;
        if let Some(rtt) = sample.rtt {
            if rtt < self.recent_rtt || expired {
                (self.recent_rtt, self.recent_rtt_at) = (rtt, now);
            }
            let old = now > self.min_rtt_at + MIN_RTT_WINDOW;
            if old || self.min_rtt.is_none_or(|least| self.recent_rtt <= least) {
                self.min_rtt = Some(self.recent_rtt);
                self.min_rtt_at = self.recent_rtt_at;
            }
        }
        if expired && !self.idle_restart && self.mode != Mode::ProbeRtt {
            self.save_window();
            self.mode = Mode::ProbeRtt;
            self.probe_rtt_until = None;
            self.probe_samples = false;
            self.rounds.begin(sample);
        }
        if self.mode == Mode::ProbeRtt {
            self.run_probe_rtt(sample);
        }
        if sample.rate.is_some() {
            self.idle_restart = false;
        }
    }

    /// Returns the window of a probe for the round-trip time.
    fn probe_rtt_pkts(&self) -> f64 {
        self.bdp_pkts(self.bw(), PROBE_RTT_CWND_GAIN)
            .max(LEAST_CWND_PKTS)
    }

    /// Starts the clock of a probe for the round-trip time once the window has drained, and ends
    /// the probe.
    fn run_probe_rtt(&mut self, sample: &RateSample) {
        let Some(until) = self.probe_rtt_until else {
            if f64::from(sample.in_flight_pkts) <= self.probe_rtt_pkts() {
                self.probe_rtt_until = Some(sample.now + PROBE_RTT);
                self.probe_rtt_round_done = false;
                self.rounds.begin(sample);
            }
            return;
        };
        self.probe_rtt_round_done |= self.rounds.starts;
        if !self.probe_rtt_round_done || sample.now <= until {
            return;
        }
        self.recent_rtt_at = sample.now;
        self.window.cwnd = self.prior_window.restore(self.window.cwnd);
        self.reset_short_term_bounds();
        if self.full {
            self.begin_down(sample);
            self.mode = Mode::Cruise;
        } else {
            self.mode = Mode::Startup;
        }
    }

    /// Updates the surplus of ACKs over the bandwidth (section 5.5.9).
    fn update_extra_acked(&mut self, sample: &RateSample) {
        let elapsed = sample.delivered_at - self.extra_acked_since;
        let mut expected = self.bw() * elapsed.as_nanos_f64();
        if self.extra_acked_epoch_pkts <= expected {
            (self.extra_acked_epoch_pkts, expected) = (0.0, 0.0);
            self.extra_acked_since = sample.delivered_at;
        }
        self.extra_acked_epoch_pkts += f64::from(sample.acked_pkts);
        let ahead = (self.extra_acked_epoch_pkts - expected).clamp(0.0, self.window.cwnd.into());
        let slot = self.rounds.count / EXTRA_ACKED_ROUNDS;
        let present = &mut self.extra_acked[usize::from(slot % 2 == 1)];
        if present.0 != slot {
            *present = (slot, 0.0);
        }
        if self.full {
            present.1 = present.1.max(ahead);
        }
    }

    /// Sets the gains of the present mode.
    fn update_gains(&mut self) {
        (self.pacing_gain, self.cwnd_gain) = match self.mode {
            Mode::Startup => (STARTUP_PACING, CWND_GAIN),
            Mode::Drain => (DRAIN_PACING, CWND_GAIN),
            Mode::Down => (0.9, CWND_GAIN),
            Mode::Cruise | Mode::Refill => (1.0, CWND_GAIN),
            Mode::Up => (1.25, PROBE_UP_CWND_GAIN),
            Mode::ProbeRtt => (1.0, PROBE_RTT_CWND_GAIN),
        };
    }

    /// Saves the window before a recovery or a probe for the round-trip time.
    fn save_window(&mut self) {
        self.prior_window
            .save(self.window.cwnd, self.mode == Mode::ProbeRtt);
    }

    /// Updates the window (section 5.6.4.6) within its bounds (section 5.6.4.7).
    fn update_cwnd(&mut self, sample: &RateSample) {
        let before = self.prior_window.update(sample.recovery_state);
        if before != RecoveryState::Open && sample.recovery_state == RecoveryState::Open {
            self.window.cwnd = self.prior_window.restore(self.window.cwnd);
        }
        let acked = sample.acked_pkts;
        if acked > 0 {
            let (most, cwnd) = (self.max_inflight_pkts(), self.window.cwnd);
            self.window.cwnd = if self.full {
                (cwnd + acked).min(whole_u32(most))
            } else if f64::from(cwnd) < most || sample.delivered_pkts < INITIAL_PKTS {
                cwnd + acked
            } else {
                cwnd
            };
        }
        let long = match self.mode {
            Mode::ProbeRtt => self
                .probe_rtt_pkts()
                .min(self.inflight_with_headroom_pkts()),
            Mode::Cruise => self.inflight_with_headroom_pkts(),
            _ => self.long_pkts,
        };
        let bound = whole_u32(long.min(self.short_pkts).max(LEAST_CWND_PKTS));
        self.window.cwnd = self.window.cwnd.max(whole_u32(LEAST_CWND_PKTS)).min(bound);
    }
}

impl CongestionControl for Bbr3 {
    window_in!(window: WholeWindow);

    const RATE_SAMPLES: bool = true;
    const CONTROLS: bool = true;

    fn new(config: &Config) -> Bbr3 {
        Bbr3 {
            window: WholeWindow::new(),
            payload_bytes: f64::from(config.payload_bytes.max(1)),
            rng: Rng::new(0, "bbr3"),
            mode: Mode::Startup,
            pacing_gain: STARTUP_PACING,
            cwnd_gain: CWND_GAIN,
            pace: 0.0,
            rounds: Rounds::default(),
            max_bw: [0.0; 2],
            bw_latest: 0.0,
            delivered_latest: 0.0,
            short_bw: f64::INFINITY,
            short_pkts: f64::INFINITY,
            long_pkts: f64::INFINITY,
            lost_in_round: false,
            loss_events: 0,
            full: false,
            full_pipe: FullPipe::default(),
            min_rtt: None,
            min_rtt_at: Time::ZERO,
            recent_rtt: Span::MAX,
            recent_rtt_at: Time::ZERO,
            probe_rtt_until: None,
            probe_rtt_round_done: false,
            phase_at: Time::ZERO,
            probe_wait: Span::ZERO,
            rounds_since_probe: 0,
            probe_up_rounds: 0,
            probe_up_each: f64::INFINITY,
            probe_up_acked: 0.0,
            probe_samples: false,
            extra_acked_since: Time::ZERO,
            extra_acked_epoch_pkts: 0.0,
            extra_acked: [(0, 0.0); 2],
            prior_window: PriorWindow::new(),
            idle_restart: false,
        }
    }

    fn set_phase(&mut self, phase: f64) {
        self.rng = Rng::new(phase.to_bits(), "bbr3");
    }

    fn on_established(&mut self, start: &Established) {
        self.window.cwnd = start.initial_pkts;
        (self.min_rtt_at, self.recent_rtt_at) = (start.now, start.now);
        self.extra_acked_since = start.now;
        self.init_pacing_rate(start.srtt);
    }

    fn on_sent(&mut self, now: Time, in_flight_pkts: u32, app_limited: bool) {
        if in_flight_pkts > 0 || !app_limited {
            return;
        }
        // After an idle time the flow sends no faster than the model, because the pipe may be
        // empty.
        self.idle_restart = true;
        self.extra_acked_since = now;
        self.extra_acked_epoch_pkts = 0.0;
        if !matches!(self.mode, Mode::Startup | Mode::Drain | Mode::ProbeRtt) {
            self.set_pacing_rate(1.0);
        }
    }

    fn on_rate(&mut self, sample: &RateSample) {
        self.rounds.starts = false;
        self.lost_in_round |= sample.lost_pkts > 0;
        if let Some(rate) = &sample.rate {
            self.update_bandwidth(rate, sample);
            self.adapt_short_term_bounds();
            self.update_extra_acked(sample);
        }
        self.check_full_pipe(sample.rate.is_some_and(|rate| rate.app_limited));
        self.check_startup_loss(sample);
        self.update_mode(sample);
        if let Some(rate) = &sample.rate {
            self.adapt_long_term_bound(rate, sample);
            if self.rounds.starts {
                // Deliveries from now on belong to the next round.
                self.bw_latest = bandwidth(rate);
                self.delivered_latest = rate.pkts.into();
            }
        }
        self.update_min_rtt(sample);
        self.update_gains();
        self.set_pacing_rate(self.pacing_gain);
        self.update_cwnd(sample);
    }

    window_by_rate!();

    fn on_timeout(&mut self, _now: Time, _next: u32) {
        self.prior_window.update(RecoveryState::Loss);
        self.full_pipe = FullPipe::default();
        self.lost_in_round = true;
    }

    fn pacing_rate(&self) -> Option<Rate> {
        let bps = self.pace * 1e9 * 8.0 * self.payload_bytes;
        Some(Rate::from_bps(whole_u64(bps)))
    }

    fn probes_rtt(&self) -> bool {
        self.mode == Mode::ProbeRtt
    }

    /// Returns one packet below 1.2 Mbit/s, else two (section 5.6.3).
    fn least_segment_pkts(&self) -> u32 {
        let bps = self.pace * 1e9 * 8.0 * self.payload_bytes;
        if bps < 1.2e6 {
            1
        } else {
            2
        }
    }

    fn undo(&mut self, _cwnd: f64, _ssthresh: f64) -> bool {
        self.full_pipe = FullPipe::default();
        self.lost_in_round = false;
        self.reset_short_term_bounds();
        false
    }
}
