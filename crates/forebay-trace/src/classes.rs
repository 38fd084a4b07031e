//! The packets of each class of a queue discipline within the window: a dual queue has two classes,
//! and CAKE has one for each tin. Most disciplines have none.

use hdrhistogram::Histogram;

use crate::delay_counts::delays;
use crate::measures::{class_metric, Measure, MS, PERCENT};
use crate::named_numbers::named_numbers;
use crate::LinkTrace;

/// The packets of one class within the window.
#[derive(Clone, Debug)]
pub struct ClassTrace {
    /// The name of the class.
    pub name: &'static str,
    /// The queuing delay in ns of every packet of this class that left the queue.
    pub delay_ns: Histogram<u64>,
    /// Packets that were dropped, for any reason.
    pub dropped_packets: u64,
    /// Packets that were marked (CE).
    pub marked_packets: u64,
}

impl ClassTrace {
    pub(crate) fn new(name: &'static str) -> ClassTrace {
        ClassTrace {
            name,
            delay_ns: delays(),
            dropped_packets: 0,
            marked_packets: 0,
        }
    }

    /// Returns the non-empty bins of the queuing delay like [`LinkTrace::delay_bins`].
    pub fn delay_bins(&self) -> impl Iterator<Item = (f64, u64)> + '_ {
        crate::bins(&self.delay_ns)
    }
}

named_numbers! {
    /// The metrics of one class. Those of the delay are NaN if no packet of the class left.
    pub struct ClassMetrics[7] {
        /// Fraction of the packets that left the queue.
        packet_share,
        /// Drops, for any reason, per packet of this class that left or was dropped.
        drop_rate,
        /// Marks per packet of this class that left or was dropped.
        mark_rate,
        /// Mean queuing delay in s.
        delay_mean_s,
        /// Median queuing delay in s.
        delay_p50_s,
        /// 95th percentile of the queuing delay in s.
        delay_p95_s,
        /// 99th percentile of the queuing delay in s.
        delay_p99_s,
    }
}

impl ClassMetrics {
    /// Computes the metrics of `class`, a class of the queue of `link`.
    pub fn of(class: &ClassTrace, link: &LinkTrace) -> ClassMetrics {
        let left = class.delay_ns.len();
        let ended = (left + class.dropped_packets) as f64;
        let delay_s = |delay_ns: f64| match left {
            0 => f64::NAN,
            _ => delay_ns / 1e9,
        };
        let quantile = |q| delay_s(class.delay_ns.value_at_quantile(q) as f64);
        ClassMetrics {
            packet_share: left as f64 / link.delay_ns.len() as f64,
            drop_rate: class.dropped_packets as f64 / ended,
            mark_rate: class.marked_packets as f64 / ended,
            delay_mean_s: delay_s(class.delay_ns.mean()),
            delay_p50_s: quantile(0.5),
            delay_p95_s: quantile(0.95),
            delay_p99_s: quantile(0.99),
        }
    }
}

/// The metrics of a class, in the order in which tables show them.
pub const CLASS_METRICS: &[Measure] = &[
    class_metric(
        "packet_share",
        "Packets",
        PERCENT,
        "packets that left the queue in this class, of all that left it",
        |m| m.packet_share,
    ),
    class_metric(
        "drop_rate",
        "Drops",
        PERCENT,
        "packets dropped, of those of this class that left or were dropped",
        |m| m.drop_rate,
    ),
    class_metric(
        "mark_rate",
        "Marks",
        PERCENT,
        "packets CE-marked, of those of this class that left or were dropped",
        |m| m.mark_rate,
    ),
    class_metric(
        "delay_mean_s",
        "Delay, mean",
        MS,
        "mean time a packet of this class waits in the queue",
        |m| m.delay_mean_s,
    ),
    class_metric(
        "delay_p50_s",
        "Delay, median",
        MS,
        "half of the packets of this class wait less",
        |m| m.delay_p50_s,
    ),
    class_metric(
        "delay_p95_s",
        "Delay, 95th pct.",
        MS,
        "95 % of the packets of this class wait less",
        |m| m.delay_p95_s,
    ),
    class_metric(
        "delay_p99_s",
        "Delay, 99th pct.",
        MS,
        "99 % of the packets of this class wait less",
        |m| m.delay_p99_s,
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Recorder, Settings};
    use forebay_aqm::DropReason;
    use forebay_units::{Rate, Span, Time};

    fn at(ms: u64) -> Time {
        Time::ZERO + Span::from_millis(ms)
    }

    fn recorder() -> Recorder {
        let settings = Settings {
            interval: Span::from_millis(10),
            window: (at(10), at(100)),
        };
        Recorder::new(settings, Rate::from_bps(1_000_000))
    }

    #[test]
    fn metrics_are_those_worked_by_hand() {
        let mut recorder = recorder();
        recorder.tell_apart(&["l4s", "classic"]);
        for (ms, sojourn_ms, class) in
            [(5, 90, 0), (20, 1, 0), (30, 3, 0), (40, 20, 1), (200, 9, 1)]
        {
            recorder.departed(at(ms), 1000, Span::from_millis(sojourn_ms), class);
        }
        recorder.dropped(at(50), DropReason::Early, 1);
        recorder.dropped(at(50), DropReason::Overflow, 1);
        recorder.dropped(at(5), DropReason::Forced, 0);
        recorder.marked(at(60), 0);
        recorder.marked(at(101), 0);
        let trace = recorder.finish("link");
        let [low, classic] = trace.classes.as_slice() else {
            panic!("{:?}", trace.classes)
        };
        let near = |got: f64, want: f64| assert!((got - want).abs() < 1e-3 * want, "{got} {want}");
        let m = ClassMetrics::of(low, &trace);
        near(m.packet_share, 2.0 / 3.0);
        near(m.mark_rate, 0.5);
        near(m.delay_mean_s, 0.002);
        near(m.delay_p50_s, 0.001);
        near(m.delay_p99_s, 0.003);
        assert_eq!((low.name, m.drop_rate), ("l4s", 0.0));
        let m = ClassMetrics::of(classic, &trace);
        near(m.packet_share, 1.0 / 3.0);
        near(m.drop_rate, 2.0 / 3.0);
        assert_eq!((classic.name, m.mark_rate), ("classic", 0.0));
    }

    #[test]
    fn a_class_that_nothing_was_in_has_no_delay() {
        let mut recorder = recorder();
        recorder.tell_apart(&["l4s", "classic"]);
        recorder.departed(at(20), 1000, Span::from_millis(1), 1);
        let trace = recorder.finish("link");
        let m = ClassMetrics::of(&trace.classes[0], &trace);
        assert_eq!(m.packet_share, 0.0);
        assert!([m.delay_mean_s, m.delay_p50_s, m.drop_rate]
            .iter()
            .all(|it| it.is_nan()));
    }

    /// Another discipline may take over while packets pass.
    #[test]
    fn a_class_that_comes_back_goes_on() {
        let mut recorder = recorder();
        for names in [
            &["l4s", "classic"] as &[_],
            &[],
            &["sparse", "bulk"],
            &["l4s", "classic"],
        ] {
            recorder.tell_apart(names);
            recorder.departed(at(20), 1000, Span::from_millis(1), 0);
        }
        let trace = recorder.finish("link");
        let seen = trace.classes.iter().map(|it| (it.name, it.delay_ns.len()));
        let want = [("l4s", 2), ("classic", 0), ("sparse", 1), ("bulk", 0)];
        assert_eq!(seen.collect::<Vec<_>>(), want);
        assert_eq!(trace.delay_ns.len(), 4);
    }

    #[test]
    fn the_registry_names_every_metric_in_order() {
        let mut recorder = recorder();
        recorder.tell_apart(&["a", "b"]);
        let trace = recorder.finish("link");
        let taken = ClassMetrics::of(&trace.classes[0], &trace);
        let named = CLASS_METRICS.iter().map(|metric| metric.name);
        assert!(named.eq(taken.fields().map(|(name, _)| name)));
    }
}
