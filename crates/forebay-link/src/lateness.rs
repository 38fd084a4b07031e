//! Check that the machine was fast enough: the lateness of packets, and the rate that was achieved.

use forebay_units::{Span, Time};
use hdrhistogram::Histogram;

use crate::due::Due;
use crate::settings::Bounds;

/// The shortest busy time over which the rate can make a run void, in ns.
const LEAST_BUSY_NS: i64 = 1_000_000_000;

/// Histograms of how late packets were released, and of how late they may have been fetched.
pub struct Lateness {
    /// The lateness of releases, in ns.
    histogram: Histogram<u64>,
    /// The upper bound of the lateness of fetching, in ns.
    fetched: Histogram<u64>,
}

/// A comparison of the rate at which a busy link released packets with the rate at which they were
/// due.
#[derive(Clone, Copy, Debug, Default)]
pub struct RateCheck {
    /// The last release: when it happened, and when it was due.
    last: Option<(Time, Time)>,
    /// The present busy period.
    period: SentPackets,
    /// The sum of all former busy periods that were long enough.
    total: SentPackets,
}

/// The bits of a busy period, and the time between its first and its last release: as it was, and
/// as it was planned.
#[derive(Clone, Copy, Debug, Default)]
struct SentPackets {
    bits: u64,
    took_ns: i64,
    planned_ns: i64,
}

/// The shortest busy period that counts for the rate, in ns. In a shorter one, the lateness of the
/// first and of the last packet dominates the result.
const LEAST_PERIOD_NS: i64 = 100_000_000;

impl Default for Lateness {
    fn default() -> Lateness {
        // From 100 ns to 100 s, with two significant digits.
        let histogram = Histogram::new_with_bounds(100, 100_000_000_000, 2)
            .expect("the bounds are constant and valid");
        Lateness {
            fetched: histogram.clone(),
            histogram,
        }
    }
}

impl Lateness {
    /// Records a release that happened at `now`.
    pub fn released(&mut self, now: Time, due: &Due) {
        self.histogram
            .saturating_record(now.since(due.at).as_nanos());
    }

    /// Records `packets` that were fetched at a poll of the device which came `late` after the time
    /// planned. The packets are treated as arriving at the poll, which is late by at most `late`.
    pub fn fetched(&mut self, packets: u64, late: Span) {
        self.fetched.saturating_record_n(late.as_nanos(), packets);
    }

    /// Returns the quantile of the upper bound of the fetching lateness, in s; NaN without packets.
    pub fn fetched_quantile_s(&self, quantile: f64) -> f64 {
        quantile_s(&self.fetched, quantile)
    }

    /// Returns the quantile of the lateness of releases, in s; NaN without packets. `quantile` is
    /// from 0 to 1.
    pub fn quantile_s(&self, quantile: f64) -> f64 {
        quantile_s(&self.histogram, quantile)
    }

    /// Returns the largest lateness of a release, in s; NaN without packets.
    pub fn max_s(&self) -> f64 {
        self.quantile_s(1.0)
    }

    /// Returns the upper end of each bin of the histogram, in s, and the number of releases in the
    /// bin.
    pub fn bins(&self) -> Vec<(f64, u64)> {
        self.histogram
            .iter_recorded()
            .map(|bin| (bin.value_iterated_to() as f64 / 1e9, bin.count_at_value()))
            .collect()
    }
}

impl RateCheck {
    /// Adds a release that happened at `now`. All flows must have the same propagation delay:
    /// otherwise packets are not released in the order in which they were sent.
    pub fn released(&mut self, now: Time, due: &Due) {
        match self.last {
            Some((last_now, last_due)) if !due.after_idle => {
                let period = &mut self.period;
                period.bits += due.link_bits;
                period.took_ns += now.as_nanos().cast_signed() - last_now.as_nanos().cast_signed();
                period.planned_ns +=
                    due.at.as_nanos().cast_signed() - last_due.as_nanos().cast_signed();
            }
            _ => {
                self.total = self.all();
                self.period = SentPackets::default();
            }
        }
        self.last = Some((now, due.at));
    }

    /// Returns the sum of all busy periods that were long enough, including the present one.
    fn all(&self) -> SentPackets {
        let (total, period) = (self.total, self.period);
        if period.planned_ns < LEAST_PERIOD_NS {
            return total;
        }
        SentPackets {
            bits: total.bits + period.bits,
            took_ns: total.took_ns + period.took_ns,
            planned_ns: total.planned_ns + period.planned_ns,
        }
    }

    /// Returns the rate at which packets were released while the link was busy, in bit/s; NaN where
    /// it was never busy for long enough.
    pub fn achieved_bps(&self) -> f64 {
        rate(self.all().bits, self.all().took_ns)
    }

    /// Returns the rate at which packets were due while the link was busy, in bit/s; NaN where it
    /// was never busy for long enough.
    pub fn asked_bps(&self) -> f64 {
        rate(self.all().bits, self.all().planned_ns)
    }

    /// Returns the relative deviation of the achieved rate from the planned one; `None` where the
    /// link was busy for less than [`LEAST_BUSY_NS`].
    fn deviation(&self) -> Option<f64> {
        (self.all().planned_ns >= LEAST_BUSY_NS)
            .then(|| (self.achieved_bps() / self.asked_bps() - 1.0).abs())
    }
}

/// Returns a quantile of a histogram in ns, as a time in s; NaN where the histogram is empty.
fn quantile_s(histogram: &Histogram<u64>, quantile: f64) -> f64 {
    if histogram.is_empty() {
        return f64::NAN;
    }
    histogram.value_at_quantile(quantile) as f64 / 1e9
}

/// Returns a rate in bit/s; NaN over no time.
fn rate(bits: u64, ns: i64) -> f64 {
    if ns <= 0 {
        return f64::NAN;
    }
    bits as f64 / (ns as f64 / 1e9)
}

/// Rounds a time to three significant figures, because repeated runs differ in the fourth.
fn rounded(seconds: f64) -> Span {
    let unit = 10f64.powf(seconds.log10().floor() - 2.0);
    Span::from_secs_f64((seconds / unit).round() * unit)
}

/// Packets that were lost because the machine was too slow. Any such loss makes a run void.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Packets that the kernel dropped before the emulator could fetch them.
    pub missed_packets: u64,
    /// Packets that were fetched while no memory was free.
    pub no_memory_packets: u64,
    /// Packets that the device refused when they were due.
    pub refused_packets: u64,
}

/// Returns the reasons why a run is void: lateness or a rate error beyond `bounds`, or any loss.
/// The result is empty for a valid run. `rates` are those up and down.
pub fn void_reasons(
    lateness: &Lateness,
    rates: [&RateCheck; 2],
    losses: Losses,
    bounds: Bounds,
) -> Vec<String> {
    let mut reasons = Vec::new();
    let late = [
        ("released", lateness.quantile_s(0.999)),
        ("fetched", lateness.fetched_quantile_s(0.999)),
    ];
    for (what, late_s) in late {
        if late_s > bounds.lateness_p999.as_secs_f64() {
            reasons.push(format!(
                "one packet in a thousand was {what} more than {} late (bound {})",
                rounded(late_s),
                bounds.lateness_p999
            ));
        }
    }
    for (way, rate) in ["up", "down"].iter().zip(rates) {
        if let Some(deviation) = rate.deviation().filter(|&value| value > bounds.rate) {
            reasons.push(format!(
                "the rate {way} was off by {:.2} % (bound {:.2} %)",
                100.0 * deviation,
                100.0 * bounds.rate
            ));
        }
    }
    let packets = [
        (
            losses.missed_packets,
            "were dropped by the kernel before the emulator fetched them",
        ),
        (losses.no_memory_packets, "found no memory in the emulator"),
        (
            losses.refused_packets,
            "were refused by the device they were due at",
        ),
    ];
    for (count, what) in packets {
        if count > 0 {
            reasons.push(format!("{count} packets {what}"));
        }
    }
    reasons
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due(at_us: u64, after_idle: bool) -> Due {
        Due {
            at: Time::from_nanos(1000 * at_us),
            slot: 0,
            first: 0,
            segments: 1,
            marked: false,
            link_bits: 12_000,
            after_idle,
        }
    }

    fn at(us: u64) -> Time {
        Time::from_nanos(1000 * us)
    }

    #[test]
    fn only_busy_periods_count_for_the_rate() {
        let mut rate = RateCheck::default();
        for start in [0, 1_000_000] {
            for i in 0..200 {
                let due = due(start + 1000 * i, i == 0);
                rate.released(at(start + 1010 * i), &due);
            }
        }
        // A short burst does not count.
        rate.released(at(3_000_000), &due(3_000_000, true));
        rate.released(at(3_009_000), &due(3_001_000, false));
        assert!((rate.asked_bps() - 12e6).abs() < 1.0);
        assert!((rate.achieved_bps() - 12e6 / 1.01).abs() < 1.0);
    }

    #[test]
    fn lateness_is_rounded_to_three_significant_figures() {
        assert_eq!(rounded(0.003620863).to_string(), "3.62ms");
        assert_eq!(rounded(0.9996).to_string(), "1s");
        assert_eq!(rounded(0.000020124).to_string(), "20.1us");
    }

    #[test]
    fn lateness_a_wrong_rate_and_losses_make_a_run_void() {
        let (mut lateness, mut rate) = (Lateness::default(), RateCheck::default());
        for i in 0..2000 {
            let due = due(1000 * i, i == 0);
            lateness.released(at(1000 * i + 20), &due);
            rate.released(at(1000 * i + 20), &due);
        }
        let none = Losses::default();
        let idle = RateCheck::default();
        let bounds = Bounds::default();
        assert_eq!(
            void_reasons(&lateness, [&rate, &idle], none, bounds),
            [""; 0]
        );
        lateness.fetched(2, Span::from_millis(3));
        let reasons = void_reasons(&lateness, [&rate, &idle], none, bounds);
        assert!(reasons[0].contains("was fetched more than 3."));
        lateness.fetched(20_000, Span::ZERO);
        let strict = Bounds {
            lateness_p999: Span::from_micros(10),
            ..bounds
        };
        assert_eq!(
            void_reasons(&lateness, [&rate, &idle], none, strict).len(),
            1
        );
        rate.released(at(2_010_000), &due(2_000_000, false));
        let losses = Losses {
            missed_packets: 3,
            ..none
        };
        let reasons = void_reasons(&lateness, [&idle, &rate], losses, bounds);
        assert!(reasons[0].contains("rate down") && reasons[1].contains("3 packets"));
        assert_eq!(reasons.len(), 2);
    }
}
