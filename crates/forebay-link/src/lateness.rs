//! Whether the machine kept time.

use forebay_units::{Span, Time};
use hdrhistogram::Histogram;

use crate::due::Due;
use crate::settings::Bounds;

/// How long the rate must have been observed before it can make a run void, in ns.
const LEAST_BUSY_NS: i64 = 1_000_000_000;

/// How late packets were released, and how long they may have waited to be fetched.
pub struct Lateness {
    histogram: Histogram<u64>,
    fetched: Histogram<u64>,
}

/// What a busy link released, and how long it took.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rate {
    last: Option<(Time, Time)>,
    /// The busy period under way.
    period: SentPackets,
    /// All periods before it that were long enough.
    total: SentPackets,
}

#[derive(Clone, Copy, Debug, Default)]
struct SentPackets {
    bits: u64,
    took_ns: i64,
    planned_ns: i64,
}

/// Shortest busy period that counts for the rate, in ns: over a shorter one, the lateness of the
/// first and the last packet outweighs the rate.
const LEAST_PERIOD_NS: i64 = 100_000_000;

impl Default for Lateness {
    fn default() -> Lateness {
        // 100 ns to 100 s at two digits.
        let histogram = Histogram::new_with_bounds(100, 100_000_000_000, 2)
            .expect("the bounds are constant and valid");
        Lateness {
            fetched: histogram.clone(),
            histogram,
        }
    }
}

impl Lateness {
    pub fn released(&mut self, now: Time, due: &Due) {
        self.histogram
            .saturating_record(now.since(due.at).as_nanos());
    }

    /// The emulator found `packets` when it looked, `late` after it should have. They count as
    /// having come now, which is late by at most that.
    pub fn fetched(&mut self, packets: u64, late: Span) {
        self.fetched.saturating_record_n(late.as_nanos(), packets);
    }

    /// As [`Lateness::quantile_s`], of how late packets may have been fetched.
    pub fn fetched_quantile_s(&self, quantile: f64) -> f64 {
        quantile_s(&self.fetched, quantile)
    }

    /// The lateness that this share of the packets did not exceed, in s; NaN without packets.
    pub fn quantile_s(&self, quantile: f64) -> f64 {
        quantile_s(&self.histogram, quantile)
    }

    pub fn max_s(&self) -> f64 {
        self.quantile_s(1.0)
    }

    /// Upper end of each bin in s, and releases in it.
    pub fn bins(&self) -> Vec<(f64, u64)> {
        self.histogram
            .iter_recorded()
            .map(|bin| (bin.value_iterated_to() as f64 / 1e9, bin.count_at_value()))
            .collect()
    }
}

impl Rate {
    /// Only with one delay for all: otherwise releases are in another order than sendings.
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

    /// While the link was busy, in bit/s; NaN if it never was for long.
    pub fn achieved_bps(&self) -> f64 {
        rate(self.all().bits, self.all().took_ns)
    }

    /// The same for the times at which packets were due.
    pub fn asked_bps(&self) -> f64 {
        rate(self.all().bits, self.all().planned_ns)
    }

    /// How far the achieved rate is off, as a share of the asked one; `None` where the link was
    /// not busy for long enough to say.
    fn off(&self) -> Option<f64> {
        (self.all().planned_ns >= LEAST_BUSY_NS)
            .then(|| (self.achieved_bps() / self.asked_bps() - 1.0).abs())
    }
}

fn quantile_s(histogram: &Histogram<u64>, quantile: f64) -> f64 {
    if histogram.is_empty() {
        return f64::NAN;
    }
    histogram.value_at_quantile(quantile) as f64 / 1e9
}

fn rate(bits: u64, ns: i64) -> f64 {
    if ns <= 0 {
        return f64::NAN;
    }
    bits as f64 / (ns as f64 / 1e9)
}

/// To three significant figures; no two runs agree to more.
fn rounded(seconds: f64) -> Span {
    let unit = 10f64.powf(seconds.log10().floor() - 2.0);
    Span::from_secs_f64((seconds / unit).round() * unit)
}

/// Losses that make a run void.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Dropped by the kernel before the emulator could fetch them.
    pub missed_packets: u64,
    /// Fetched, and no memory left to keep them in.
    pub no_memory_packets: u64,
    /// Due, and refused by the device.
    pub refused_packets: u64,
}

/// Why a run is void; empty where it is sound.
pub fn void(lateness: &Lateness, rates: [&Rate; 2], losses: Losses, bounds: Bounds) -> Vec<String> {
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
        if let Some(off) = rate.off().filter(|&off| off > bounds.rate) {
            reasons.push(format!(
                "the rate {way} was off by {:.2} % (bound {:.2} %)",
                100.0 * off,
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
    fn the_rate_counts_busy_time_alone() {
        let mut rate = Rate::default();
        for start in [0, 1_000_000] {
            for i in 0..200 {
                let due = due(start + 1000 * i, i == 0);
                rate.released(at(start + 1010 * i), &due);
            }
        }
        // A short burst tells nothing.
        rate.released(at(3_000_000), &due(3_000_000, true));
        rate.released(at(3_009_000), &due(3_001_000, false));
        assert!((rate.asked_bps() - 12e6).abs() < 1.0);
        assert!((rate.achieved_bps() - 12e6 / 1.01).abs() < 1.0);
    }

    #[test]
    fn lateness_is_told_to_three_figures() {
        assert_eq!(rounded(0.003620863).to_string(), "3.62ms");
        assert_eq!(rounded(0.9996).to_string(), "1s");
        assert_eq!(rounded(0.000020124).to_string(), "20.1us");
    }

    #[test]
    fn a_run_is_void_for_a_reason() {
        let (mut lateness, mut rate) = (Lateness::default(), Rate::default());
        for i in 0..2000 {
            let due = due(1000 * i, i == 0);
            lateness.released(at(1000 * i + 20), &due);
            rate.released(at(1000 * i + 20), &due);
        }
        let none = Losses::default();
        let idle = Rate::default();
        let bounds = Bounds::default();
        assert_eq!(void(&lateness, [&rate, &idle], none, bounds), [""; 0]);
        lateness.fetched(2, Span::from_millis(3));
        let reasons = void(&lateness, [&rate, &idle], none, bounds);
        assert!(reasons[0].contains("was fetched more than 3."));
        lateness.fetched(20_000, Span::ZERO);
        let strict = Bounds {
            lateness_p999: Span::from_micros(10),
            ..bounds
        };
        assert_eq!(void(&lateness, [&rate, &idle], none, strict).len(), 1);
        rate.released(at(2_010_000), &due(2_000_000, false));
        let some = Losses {
            missed_packets: 3,
            ..none
        };
        let reasons = void(&lateness, [&idle, &rate], some, bounds);
        assert!(reasons[0].contains("rate down") && reasons[1].contains("3 packets"));
        assert_eq!(reasons.len(), 2);
    }
}
