//! CUBIC as in Linux: RFC 9438's curve in whole packets, its Reno-friendly window always with α =
//! 8/15, and HyStart, which ends slow start before the first loss.

mod hystart;

use forebay_units::cast::whole_u64;
use forebay_units::{Span, Time};

use super::{AckSample, CongestionControl, CongestionEvent, Established, Growth, WholeWindow};
use crate::number::share_of;
use crate::tcp::Config;
use hystart::HyStart;

/// Multiplicative decrease factor, in units of 1/1024 (0.7 in RFC 9438 section 4.6).
const BETA: u64 = 717;
/// C of RFC 9438 section 5.1, in units of 1/1024 packets per cubed second.
const C: u64 = 410;
/// Ticks per second of the curve's clock.
const TICKS_PER_S: u64 = 1024;
/// Least time between two evaluations of the curve while the window does not change.
const REFRESH: Span = Span::from_nanos(1_000_000_000 / 32);
/// Time after the start of an epoch in which round-trip times are ignored, because the queue from
/// before the recovery may still be there.
const REST: Span = Span::from_secs(1);

/// The congestion control `cubic` of Linux.
#[derive(Clone, Debug)]
pub struct LinuxCubic {
    window: WholeWindow,
    curve: Curve,
    last_sent_at: Time,
    payload_bytes: u16,
}

/// The state of the cubic curve.
#[derive(Clone, Debug)]
struct Curve {
    /// Number of acknowledged packets for which the window grows by one.
    pkts_per_increase: u32,
    /// Window before the last reduction, or less with fast convergence; zero before the first
    /// reduction.
    last_max: u32,
    last_cwnd: u32,
    updated_at: Time,
    /// The window at the plateau.
    origin: u32,
    /// Time from the epoch to the plateau, in ticks.
    k_ticks: u64,
    epoch: Option<Time>,
    /// The window that Reno would have.
    reno: u32,
    /// Acknowledged packets that count towards the next increase of `reno`.
    reno_credit: u32,
    /// Least round-trip time; zero before the first sample.
    delay_min: Span,
    hystart: HyStart,
}

/// Converts a time to ticks, rounded down.
fn ticks(span: Span) -> u64 {
    let ticks = u128::from(span.as_nanos()) * u128::from(TICKS_PER_S) / 1_000_000_000;
    u64::try_from(ticks).expect("there are fewer ticks than nanoseconds")
}

impl Curve {
    fn new(now: Time, next: u32) -> Curve {
        Curve {
            pkts_per_increase: 0,
            last_max: 0,
            last_cwnd: 0,
            updated_at: Time::ZERO,
            origin: 0,
            k_ticks: 0,
            epoch: None,
            reno: 0,
            reno_credit: 0,
            delay_min: Span::ZERO,
            hystart: HyStart::round(now, next),
        }
    }

    /// Ends the epoch at a reduction of this window, and returns the new threshold.
    fn threshold(&mut self, cwnd: u32) -> u32 {
        self.epoch = None;
        // Fast convergence (RFC 9438 section 4.7).
        self.last_max = match cwnd < self.last_max {
            true => share_of(cwnd, 1024 + BETA, 2048),
            false => cwnd,
        };
        share_of(cwnd, BETA, 1024).max(2)
    }

    /// Returns the number of acknowledged packets for which the window grows by one; `acked` have
    /// just been acknowledged.
    #[inline(always)]
    fn packets_per_increase(&mut self, cwnd: u32, acked: u32, now: Time) -> u32 {
        self.reno_credit += acked;
        if self.last_cwnd == cwnd && now - self.updated_at <= REFRESH {
            return self.pkts_per_increase;
        }
        self.update_increase(cwnd, acked, now);
        self.pkts_per_increase
    }

    /// Updates the number of acknowledged packets for which the window grows by one.
    #[inline(never)]
    fn update_increase(&mut self, cwnd: u32, acked: u32, now: Time) {
        // The curve is evaluated at most once per tick of the kernel's clock (HZ = 1000).
        if self.epoch.is_none() || now.as_millis() != self.updated_at.as_millis() {
            self.last_cwnd = cwnd;
            self.updated_at = now;
            self.update_from_curve(cwnd, acked, now);
        }
        // The Reno-friendly window (RFC 9438 section 4.3) grows by one packet for every 15/8
        // windows, above the last maximum as well as below it.
        let reno_pkts_per_increase = (15 * cwnd / 8).max(1);
        while self.reno_credit > reno_pkts_per_increase {
            self.reno_credit -= reno_pkts_per_increase;
            self.reno += 1;
        }
        if self.reno > cwnd {
            self.pkts_per_increase = self.pkts_per_increase.min(cwnd / (self.reno - cwnd));
        }
        // The window grows by at most half in a round trip (section 4.4).
        self.pkts_per_increase = self.pkts_per_increase.max(2);
    }

    /// Sets the number of acknowledged packets per increase so that the window reaches the curve in
    /// a round trip. Begins an epoch if there is none.
    fn update_from_curve(&mut self, cwnd: u32, acked: u32, now: Time) {
        let epoch = *self.epoch.get_or_insert_with(|| {
            self.reno_credit = acked;
            self.reno = cwnd;
            self.origin = self.last_max.max(cwnd);
            let below = f64::from(self.origin - cwnd);
            // K, figure 2 of section 4.2.
            self.k_ticks = whole_u64((below * 1024.0 / C as f64).cbrt() * TICKS_PER_S as f64);
            now
        });
        // The value of the curve one round trip ahead, figure 1 of section 4.2.
        let at = ticks(now - epoch + self.delay_min);
        let off = u128::from(at.abs_diff(self.k_ticks)).pow(3) * u128::from(C);
        let change = u32::try_from(off >> 40).map_or(u32::MAX >> 2, |off| off.min(u32::MAX >> 2));
        let target = match at < self.k_ticks {
            true => self.origin - change.min(self.origin),
            false => self.origin.saturating_add(change),
        };
        self.pkts_per_increase = match target > cwnd {
            true => cwnd / (target - cwnd),
            false => 100 * cwnd,
        };
        // Before the first loss nothing is known about the path, so that the window grows by at
        // least 5 % in a round trip.
        if self.last_max == 0 {
            self.pkts_per_increase = self.pkts_per_increase.min(20);
        }
    }
}

impl LinuxCubic {
    /// Ends slow start if HyStart requires it.
    #[inline(never)]
    fn watch_slow_start(&mut self, rtt: Span, sample: &AckSample) {
        let cwnd = self.window.cwnd;
        let pkts = cwnd.max(sample.next - sample.una);
        let bytes_per_s = self.bytes_per_s(pkts, sample.srtt, self.payload_bytes);
        let curve = &mut self.curve;
        if curve
            .hystart
            .ends_slow_start(curve.delay_min, cwnd, rtt, bytes_per_s, sample)
        {
            self.window.ssthresh = cwnd;
        }
    }
}

impl CongestionControl for LinuxCubic {
    window_in!(window: WholeWindow);

    fn new(config: &Config) -> LinuxCubic {
        LinuxCubic {
            payload_bytes: config.payload_bytes,
            window: WholeWindow::new(),
            curve: Curve::new(Time::ZERO, 0),
            last_sent_at: Time::ZERO,
        }
    }

    fn on_established(&mut self, start: &Established) {
        self.window.cwnd = start.initial_pkts;
        self.curve = Curve::new(start.now, start.next);
    }

    fn on_sent(&mut self, now: Time, in_flight_pkts: u32, _app_limited: bool) {
        // The curve does not advance while nothing is sent.
        if let (0, Some(epoch)) = (in_flight_pkts, &mut self.curve.epoch) {
            *epoch = (*epoch + (now - self.last_sent_at)).min(now);
        }
        self.last_sent_at = now;
    }

    #[inline(always)]
    fn on_ack(&mut self, sample: &AckSample) {
        let (size, curve) = (&self.window, &mut self.curve);
        let Some(rtt) = sample.rtt else { return };
        if curve.epoch.is_some_and(|epoch| sample.now < epoch + REST) {
            return;
        }
        if curve.delay_min.is_zero() || rtt < curve.delay_min {
            curve.delay_min = rtt;
        }
        if !curve.hystart.done && size.in_slow_start() {
            self.watch_slow_start(rtt, sample);
        }
    }

    #[inline(always)]
    fn grow(&mut self, growth: &Growth) {
        if let Some(acked) = self.window.slow_start(growth.acked_pkts) {
            let cwnd = self.window.cwnd;
            let each = self.curve.packets_per_increase(cwnd, acked, growth.now);
            self.window.avoid_congestion(each, acked);
        }
    }

    fn on_congestion_event(&mut self, _event: &CongestionEvent) -> f64 {
        let threshold = self.curve.threshold(self.window.cwnd);
        self.window.lower(threshold)
    }

    fn on_timeout(&mut self, now: Time, next: u32) {
        self.window.credit = 0;
        self.curve = Curve::new(now, next);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Indication, NO_THRESHOLD};
    use super::*;
    use crate::tcp::testing::{self, ack_sample, at, MS};

    fn fall(flow: &mut LinuxCubic) -> u32 {
        testing::reduced(flow, Indication::Loss) as u32
    }

    /// Returns a window whose least round trip is 60 ms.
    fn flow(cwnd: u32) -> LinuxCubic {
        let mut curve = Curve::new(Time::ZERO, 0);
        curve.delay_min = 60 * MS;
        LinuxCubic {
            window: WholeWindow {
                cwnd,
                ..WholeWindow::new()
            },
            curve,
            last_sent_at: Time::ZERO,
            payload_bytes: 1448,
        }
    }

    /// Returns a window after a reduction from `prior`.
    fn reduced(prior: u32) -> LinuxCubic {
        let mut flow = flow(prior);
        flow.window.cwnd = fall(&mut flow);
        flow
    }

    /// Returns the number of round trips until the window has grown to `to`, with two packets per
    /// ACK.
    fn rounds_to(to: u32, flow: &mut LinuxCubic, rtt: Span) -> u64 {
        let (mut now, mut rounds) = (Time::ZERO, 0);
        while flow.window.cwnd < to {
            rounds += 1;
            let acks = u64::from(flow.window.cwnd / 2);
            for _ in 0..acks {
                now += rtt / acks;
                testing::grow(flow, now, 2, rtt);
            }
        }
        rounds
    }

    #[test]
    fn a_window_falls_to_717_of_1024_and_converges_fast() {
        let mut flow = flow(100);
        assert_eq!((fall(&mut flow), flow.curve.last_max), (70, 100));
        flow.window.cwnd = 70;
        assert_eq!((fall(&mut flow), flow.curve.last_max), (49, 59));
    }

    #[test]
    fn alpha_stays_below_reno_s_above_the_last_maximum() {
        // From 14 packets: 20, the old maximum, is 6 windows of 15/8 round trips away, and the
        // next 6 as many again; RFC 9438's α = 1 would take 6 round trips for those. The cubic
        // itself needs 2.4 s to come back.
        let mut flow = reduced(20);
        let to_maximum = rounds_to(20, &mut flow, 60 * MS);
        assert!((10..=13).contains(&to_maximum), "{to_maximum}");
        let mut flow = reduced(20);
        let beyond = rounds_to(26, &mut flow, 60 * MS) - to_maximum;
        assert!((10..=13).contains(&beyond), "{beyond}");
    }

    #[test]
    fn a_large_window_follows_the_cubic() {
        // From 1000 packets the plateau is 9.09 s away; Reno's line would take longer.
        let mut flow = reduced(1000);
        let rounds = rounds_to(995, &mut flow, 100 * MS);
        let at_s = rounds as f64 / 10.0;
        // The last five packets of the rise take cbrt(5/C) = 2.3 s.
        assert!((at_s - 6.8).abs() < 0.7, "{at_s}");
    }

    #[test]
    fn slow_start_ends_when_the_round_trip_rises() {
        let slow_start = |rtt_ms: u64| {
            let mut flow = flow(40);
            for ack in 0..9 {
                // Too far apart for a train.
                flow.on_ack(&ack_sample(at(ack * 3 * MS), rtt_ms * MS, 1, 0));
            }
            flow.window.ssthresh
        };
        // An eighth of 60 ms is 7.5 ms.
        assert_eq!(slow_start(67), NO_THRESHOLD);
        assert_eq!(slow_start(68), 40);
    }

    #[test]
    fn the_curve_waits_while_nothing_is_sent() {
        let mut flow = reduced(100);
        flow.curve.packets_per_increase(70, 1, at(5 * MS));
        flow.on_sent(at(10 * MS), 1, false);
        flow.on_sent(at(400 * MS), 0, false);
        assert_eq!(flow.curve.epoch, Some(at(395 * MS)));
    }
}
