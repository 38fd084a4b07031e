//! The metrics of a queue over the window of measurement.

use forebay_units::cast::whole_usize;

use crate::applications::{self, Call, Viewer};
use crate::measures::{self, Part};
use crate::named_numbers::named_numbers;
use crate::LinkView;

named_numbers! {
    /// The metrics of the queue of one link. Rates of drops and marks are per arriving packet.
    pub struct Metrics[20] {
        /// Mean queue length in packets.
        queue_mean_pkts,
        /// Standard deviation of the queue length in packets, of the samples as a population.
        queue_std_pkts,
        /// Quadratic average of control deviation in packets, equation (17) of the PI-PD paper (Ryu
        /// et al.); NaN without a target.
        qacd_pkts,
        /// Drops, for any reason.
        drop_rate,
        /// Drops with which the law signalled congestion.
        early_drop_rate,
        /// Marks.
        mark_rate,
        /// Bits sent per bit that the link could have carried.
        utilisation,
        /// Mean queuing delay in s.
        delay_mean_s,
        /// 95th percentile of the queuing delay in s.
        delay_p95_s,
        /// 99th percentile of the queuing delay in s.
        delay_p99_s,
        /// Bits handed in order to the receiving applications per second.
        goodput_bps,
        /// Jain's fairness index of the flows' goodputs; NaN when nothing was delivered.
        jain,
        /// Median duration in s of the transfers completed within the window; NaN if there are none.
        flow_completion_p50_s,
        /// 95th percentile of these durations in s.
        flow_completion_p95_s,
        /// Mean one-way delay in s of the packets of calls; NaN without calls.
        voice_delay_s,
        /// Mean absolute change in s of the one-way delay from packet to packet.
        voice_jitter_s,
        /// Fraction of the packets of calls that were lost.
        voice_loss,
        /// Mean bit rate of the segments of video in bit/s; NaN without segments.
        video_rate_bps,
        /// Fraction of the window for which playback was stalled.
        video_stalled,
        /// Packets forwarded in the whole run, not only in the window.
        forwarded_packets,
    }
}

impl Metrics {
    /// Computes the metrics of the queue of `link` over its window, with QACD against
    /// `target_pkts`.
    pub fn of(link: LinkView<'_>, target_pkts: Option<f64>) -> Metrics {
        let part = Part::of(&link, target_pkts);
        // A trace has every column that these metrics need.
        let take = |of: fn(&Part) -> Option<f64>| of(&part).unwrap_or(f64::NAN);
        let delivered: Vec<f64> = link
            .flows()
            .map(|flow| flow.delivered_bytes as f64)
            .collect();
        // The sum of no numbers is -0.0.
        let total: f64 = delivered.iter().sum::<f64>() + 0.0;
        let squares: f64 = delivered.iter().map(|x| x * x).sum();
        let window_s = link.window_s();
        let seconds = |ns: f64| ns / 1e9;
        let mut took_s: Vec<f64> = link
            .transfers()
            .map(|transfer| transfer.took.as_secs_f64())
            .collect();
        took_s.sort_by(f64::total_cmp);
        let calls: Vec<Call> = link.calls().copied().collect();
        let viewers: Vec<Viewer> = link.viewers().copied().collect();

        Metrics {
            queue_mean_pkts: take(measures::queue_mean_pkts),
            queue_std_pkts: take(measures::queue_std_pkts),
            qacd_pkts: take(measures::qacd_pkts),
            drop_rate: take(measures::drop_rate),
            early_drop_rate: take(measures::early_drop_rate),
            mark_rate: take(measures::mark_rate),
            utilisation: take(measures::utilisation),
            delay_mean_s: part.delay_mean_s,
            delay_p95_s: seconds(link.delay_ns.value_at_quantile(0.95) as f64),
            delay_p99_s: seconds(link.delay_ns.value_at_quantile(0.99) as f64),
            goodput_bps: 8.0 * total / window_s,
            jain: total * total / (delivered.len() as f64 * squares),
            flow_completion_p50_s: nearest_rank(&took_s, 0.5).unwrap_or(f64::NAN),
            flow_completion_p95_s: nearest_rank(&took_s, 0.95).unwrap_or(f64::NAN),
            voice_delay_s: applications::voice_delay_s(&calls),
            voice_jitter_s: applications::voice_jitter_s(&calls),
            voice_loss: applications::voice_loss(&calls),
            video_rate_bps: applications::video_rate_bps(&viewers),
            video_stalled: applications::video_stalled(&viewers, window_s),
            forwarded_packets: link.forwarded_packets as f64,
        }
    }
}

/// Returns the quantile `p` of sorted values by the nearest-rank method; `None` without values.
pub(crate) fn nearest_rank<T: Copy>(sorted: &[T], p: f64) -> Option<T> {
    let rank = whole_usize((p * sorted.len() as f64).ceil());
    sorted.get(rank.saturating_sub(1)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FlowTotals, Recorder, RunTrace, Settings, TrafficTrace, Transfer};
    use forebay_aqm::DropReason;
    use forebay_units::{Rate, Span, Time};

    fn at(ms: u64) -> Time {
        Time::ZERO + Span::from_millis(ms)
    }

    /// Four rows of 10 ms on a 1 Mbit/s link; the window has the last two rows.
    fn run() -> RunTrace {
        let settings = Settings {
            interval: Span::from_millis(10),
            window: (at(20), at(40)),
        };
        let mut recorder = Recorder::new(settings, Rate::from_bps(1_000_000));
        for (i, queue) in [90, 90, 10, 30].into_iter().enumerate() {
            for _ in 0..10 {
                recorder.arrived();
            }
            let end = at(10 * (i as u64 + 1));
            recorder.dropped(end, DropReason::Early, 0);
            recorder.dropped(end, DropReason::Overflow, 0);
            recorder.marked(end, 0);
            recorder.departed(end, 1000, Span::from_millis(5 * (i as u64 + 1)), 0);
            recorder.sample(end, queue, 0, |out| out("p", i as f64));
        }
        let flows = [3000, 1000].map(|delivered_bytes| FlowTotals {
            traffic: 0,
            delivered_bytes,
        });
        let traffic = vec![TrafficTrace::over(vec![0])];
        RunTrace {
            flows: flows.to_vec(),
            ..RunTrace::new(vec![recorder.finish("link")], traffic)
        }
    }

    #[test]
    fn metrics_are_those_worked_by_hand() {
        let m = Metrics::of(run().link(0), Some(25.0));
        let near =
            |got: f64, want: f64| assert!((got - want).abs() < 1e-3 * want.abs(), "{got} {want}");
        near(m.queue_mean_pkts, 20.0);
        near(m.queue_std_pkts, 10.0);
        near(
            m.qacd_pkts,
            ((15.0f64.powi(2) + 5.0f64.powi(2)) / 3.0).sqrt(),
        );
        near(m.drop_rate, 0.2);
        near(m.early_drop_rate, 0.1);
        near(m.mark_rate, 0.1);
        // 2 x 8000 bits in 20 ms of 1 Mbit/s
        near(m.utilisation, 0.8);
        near(m.delay_mean_s, 0.0175);
        near(m.delay_p99_s, 0.020);
        near(m.goodput_bps, 4000.0 * 8.0 / 0.02);
        near(m.jain, 16.0 / (2.0 * 10.0));
        assert_eq!(m.forwarded_packets, 4.0);
    }

    #[test]
    fn completion_times_are_nearest_ranks() {
        assert!(Metrics::of(run().link(0), None)
            .flow_completion_p50_s
            .is_nan());
        let transfers = (1..=20).rev().map(|i| Transfer {
            traffic: 0,
            packets: 10,
            took: Span::from_millis(100 * i),
        });
        let run = RunTrace {
            transfers: transfers.collect(),
            ..run()
        };
        let m = Metrics::of(run.link(0), None);
        assert_eq!(
            (m.flow_completion_p50_s, m.flow_completion_p95_s),
            (1.0, 1.9)
        );
    }

    #[test]
    fn the_registry_names_every_metric_in_order() {
        let named = measures::METRICS.iter().map(|metric| metric.name);
        let taken = Metrics::of(run().link(0), None);
        let taken = taken.fields().map(|(name, _)| name);
        assert_eq!(
            named.collect::<Vec<_>>(),
            taken.into_iter().chain(["user_cpu_s"]).collect::<Vec<_>>(),
            "`METRICS` of measures.rs (left) and the fields of `Metrics` (right) must have the \
             same names in the same order"
        );
    }

    #[test]
    fn names_in_claims_differ() {
        let mut names: Vec<_> = measures::all().map(|measure| measure.claim()).collect();
        names.sort_unstable();
        let all = names.len();
        names.dedup();
        assert_eq!(names.len(), all);
    }

    #[test]
    fn measures_are_those_worked_by_hand() {
        let run = run();
        let part = Part::of(&run.links[0], Some(25.0));
        let near = |name: &str, want: f64| {
            let found = measures::find(name).expect("a measure of this name");
            let measures::Of::Samples(of) = found.of else {
                panic!("{name} is of no window")
            };
            let got = of(&part).expect("its columns are there");
            assert!((got - want).abs() < 1e-9, "{name}: {got} {want}");
        };
        near("mean", 20.0);
        near("largest", 30.0);
        near("below_target", 0.5);
        near("empty", 0.0);
        // Half of 90, the longest in the whole run, is above both.
        near("half_s", 0.0);
        near("throughput", 2.0 * 8000.0 / 0.02);
        // What the law reports: 2 and 3.
        near("probability", 2.5);
        near("probability_std", 0.5);
    }

    #[test]
    fn a_column_that_is_missing_is_not_guessed() {
        let run = run();
        let found = measures::find("max_p_std").expect("a measure of this name");
        let measures::Of::Samples(of) = found.of else {
            panic!("of no window")
        };
        assert_eq!(of(&Part::of(&run.links[0], None)), None);
    }

    #[test]
    fn without_a_target_there_is_no_qacd() {
        assert!(Metrics::of(run().link(0), None).qacd_pkts.is_nan());
    }

    #[test]
    fn capacity_follows_the_rate() {
        let settings = Settings {
            interval: Span::from_millis(10),
            window: (at(0), at(10)),
        };
        let mut recorder = Recorder::new(settings, Rate::from_bps(1_000_000));
        recorder.rate_changed(at(5), Rate::from_bps(3_000_000));
        recorder.sample(at(10), 0, 0, |_| {});
        let capacity = recorder.finish("link").samples.capacity_bits[0];
        assert!((capacity - 20_000.0).abs() < 1e-6);
    }
}
