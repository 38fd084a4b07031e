//! The traffic of a run: the route and the senders of each, its packets at each queue, and its
//! metrics.

use forebay_units::Span;
use hdrhistogram::Histogram;

use crate::delay_counts::delays;
use crate::measures::{traffic_metric, Measure, MBITS, MS, NONE, PERCENT};
use crate::named_numbers::named_numbers;
use crate::LinkView;

/// The route, the senders and the round trips of one traffic of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct TrafficTrace {
    /// The numbers of the links that its data crosses, in order.
    pub links: Vec<usize>,
    /// Data packets that TCP senders sent within the window.
    pub sent_packets: u64,
    /// Retransmissions among these packets.
    pub resent_packets: u64,
    /// The round-trip time in s: the mean propagation time over the flows, and the mean wait at
    /// every queue on the route. NaN if no packet left one of these queues.
    pub rtt_s: f64,
}

impl TrafficTrace {
    /// Returns a traffic without TCP senders whose data crosses these links; its round trip is NaN.
    pub fn over(links: Vec<usize>) -> TrafficTrace {
        TrafficTrace {
            links,
            sent_packets: 0,
            resent_packets: 0,
            rtt_s: f64::NAN,
        }
    }
}

/// The packets of one traffic at one queue within the window.
#[derive(Clone, Debug, PartialEq)]
pub struct QueuedTraffic {
    /// Index into the scenario's traffic.
    pub traffic: u32,
    /// Packets that left the queue.
    pub left_packets: u64,
    /// The sum of their queuing delays in ns.
    pub waited_ns: u64,
    /// The queuing delay in ns of each of them.
    pub delay_ns: Histogram<u64>,
    /// Packets that were dropped, for any reason.
    pub dropped_packets: u64,
    /// Packets that were marked (CE).
    pub marked_packets: u64,
}

/// Returns the mean propagation time in s, both ways, of flows that take `rtts` in turn; NaN if
/// there is none.
pub fn mean_propagation_s(rtts: &[Span], flows: u32) -> f64 {
    if rtts.is_empty() {
        return f64::NAN;
    }
    let propagation = rtts.iter().cycle().take(flows as usize);
    let propagation_s: f64 = propagation.map(|rtt| rtt.as_secs_f64()).sum();
    propagation_s / f64::from(flows)
}

impl Default for QueuedTraffic {
    fn default() -> QueuedTraffic {
        QueuedTraffic {
            traffic: 0,
            left_packets: 0,
            waited_ns: 0,
            delay_ns: delays(),
            dropped_packets: 0,
            marked_packets: 0,
        }
    }
}

impl QueuedTraffic {
    /// Counts a packet that left the queue after this time in it.
    #[inline]
    pub fn left(&mut self, sojourn: Span) {
        self.left_packets += 1;
        self.waited_ns += sojourn.as_nanos();
        self.delay_ns.saturating_record(sojourn.as_nanos());
    }

    /// Returns the queuing delay in s that 95 % of the packets do not exceed; NaN if no packet left.
    pub fn delay_p95_s(&self) -> f64 {
        match self.delay_ns.len() {
            0 => f64::NAN,
            _ => self.delay_ns.value_at_quantile(0.95) as f64 / 1e9,
        }
    }

    /// Returns the mean queuing delay in s; NaN if no packet left.
    pub fn delay_mean_s(&self) -> f64 {
        self.waited_ns as f64 / 1e9 / self.left_packets as f64
    }
}

named_numbers! {
    /// The metrics of one traffic at a queue. A ratio with a denominator of zero is NaN.
    pub struct TrafficMetrics[10] {
        /// Bits that its receivers handed in order to their applications per second.
        goodput_bps,
        /// Fraction of the goodput of all traffic at the queue.
        share,
        /// Mean goodput of a flow in bit/s.
        flow_goodput_bps,
        /// Mean goodput of a flow relative to that of the traffic whose flows have the least.
        ratio,
        /// Mean round-trip time in s: propagation and the waits at all queues on the route.
        rtt_s,
        /// Mean queuing delay in s.
        delay_mean_s,
        /// 95th percentile of the queuing delay in s.
        delay_p95_s,
        /// Retransmissions per data packet sent; NaN without TCP.
        resent_rate,
        /// Drops, for any reason, per packet that left or was dropped.
        drop_rate,
        /// Marks per packet that left or was dropped.
        mark_rate,
    }
}

impl TrafficMetrics {
    /// Computes the metrics of `of`, a traffic at the queue of `link`.
    pub fn of(of: &QueuedTraffic, link: LinkView<'_>) -> TrafficMetrics {
        let in_run = link.traffic_of_run(of.traffic);
        let (goodput_bps, flow_goodput_bps) = goodputs_bps(of, link);
        let all: f64 = link.goodputs_bps().sum();
        let every = link.traffic.iter();
        let least = every
            .map(|other| goodputs_bps(other, link).1)
            .fold(f64::NAN, f64::min);
        let ended = (of.left_packets + of.dropped_packets) as f64;
        let share = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { f64::NAN };
        TrafficMetrics {
            goodput_bps,
            share: share(goodput_bps, all),
            flow_goodput_bps,
            ratio: share(flow_goodput_bps, least),
            rtt_s: in_run.rtt_s,
            delay_mean_s: of.delay_mean_s(),
            delay_p95_s: of.delay_p95_s(),
            drop_rate: share(of.dropped_packets as f64, ended),
            mark_rate: share(of.marked_packets as f64, ended),
            resent_rate: share(in_run.resent_packets as f64, in_run.sent_packets as f64),
        }
    }
}

/// Returns the goodput in bit/s of all flows of a traffic, and of one of them on average.
fn goodputs_bps(of: &QueuedTraffic, link: LinkView<'_>) -> (f64, f64) {
    let flows = link.flows().zip(link.goodputs_bps());
    let own = flows.filter(|(flow, _)| flow.traffic == of.traffic);
    let (count, sum) = own.fold((0_u32, 0.0), |(count, sum), (_, bps)| {
        (count + 1, sum + bps)
    });
    (sum, sum / f64::from(count))
}

/// The metrics of a traffic, in the order in which tables show them.
pub const TRAFFIC_METRICS: &[Measure] = &[
    traffic_metric(
        "goodput_bps",
        "Goodput",
        MBITS,
        "in-order data that the receivers of all flows of this traffic got",
        |m| m.goodput_bps,
    ),
    traffic_metric(
        "share",
        "Share",
        PERCENT,
        "goodput of this traffic as a share of that of all traffic of the queue",
        |m| m.share,
    ),
    traffic_metric(
        "flow_goodput_bps",
        "Per flow",
        MBITS,
        "mean goodput of a flow of this traffic",
        |m| m.flow_goodput_bps,
    ),
    traffic_metric(
        "ratio",
        "Ratio to least",
        NONE,
        "mean goodput of a flow, divided by that of the traffic whose flows get the least",
        |m| m.ratio,
    ),
    traffic_metric(
        "rtt_s",
        "RTT",
        MS,
        "round-trip time: propagation, the mean over the flows, and the mean wait at every queue \
         that their data crosses",
        |m| m.rtt_s,
    ),
    traffic_metric(
        "delay_mean_s",
        "Delay, mean",
        MS,
        "mean time a packet of this traffic waits in the queue",
        |m| m.delay_mean_s,
    ),
    traffic_metric(
        "delay_p95_s",
        "Delay, 95th pct.",
        MS,
        "95 % of the packets of this traffic wait less",
        |m| m.delay_p95_s,
    ),
    traffic_metric(
        "resent_rate",
        "Retransmitted",
        PERCENT,
        "data packets that TCP senders retransmitted, of those that they sent",
        |m| m.resent_rate,
    ),
    traffic_metric(
        "drop_rate",
        "Drops",
        PERCENT,
        "packets dropped, of those of this traffic that left or were dropped",
        |m| m.drop_rate,
    ),
    traffic_metric(
        "mark_rate",
        "Marks",
        PERCENT,
        "packets CE-marked, of those of this traffic that left or were dropped",
        |m| m.mark_rate,
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FlowTotals, Recorder, RunTrace, Settings};
    use forebay_units::{Rate, Span, Time};

    /// A run over one link of 1 s, with `traffic` at its queue.
    fn run(delivered: &[(u32, u64)], traffic: &[QueuedTraffic]) -> RunTrace {
        let at = |ms| Time::ZERO + Span::from_millis(ms);
        let settings = Settings {
            interval: Span::from_millis(10),
            window: (at(0), at(1000)),
        };
        let flows = delivered
            .iter()
            .map(|&(traffic, delivered_bytes)| FlowTotals {
                traffic,
                delivered_bytes,
            });
        let mut link = Recorder::new(settings, Rate::from_bps(1_000_000)).finish("link");
        link.traffic = traffic.to_vec();
        let whole = TrafficTrace {
            sent_packets: 50,
            resent_packets: 10,
            rtt_s: 0.042 - 0.002,
            ..TrafficTrace::over(vec![0])
        };
        RunTrace {
            flows: flows.collect(),
            ..RunTrace::new(vec![link], vec![whole, TrafficTrace::over(vec![0])])
        }
    }

    #[test]
    fn metrics_are_those_worked_by_hand() {
        let mut bulk = QueuedTraffic {
            dropped_packets: 10,
            marked_packets: 4,
            ..QueuedTraffic::default()
        };
        // 28 packets wait 1 ms, and two of 30, more than 5 %, wait 16 ms.
        for ms in std::iter::repeat_n(1, 28).chain([16, 16]) {
            bulk.left(Span::from_millis(ms));
        }
        let calls = QueuedTraffic {
            traffic: 1,
            ..QueuedTraffic::default()
        };
        let both = [bulk.clone(), calls.clone()];
        let run = run(&[(0, 2000), (0, 1000), (1, 500)], &both);
        let m = TrafficMetrics::of(&bulk, run.link(0));
        let near = |got: f64, want: f64| assert!((got - want).abs() < 1e-9, "{got} {want}");
        near(m.goodput_bps, 24_000.0);
        near(m.share, 3000.0 / 3500.0);
        near(m.flow_goodput_bps, 12_000.0);
        near(m.ratio, 3.0);
        near(m.rtt_s, 0.042);
        near(m.delay_mean_s, 0.002);
        assert!(
            (m.delay_p95_s - 0.016).abs() < 1e-3 * 0.016,
            "{}",
            m.delay_p95_s
        );
        near(m.drop_rate, 0.25);
        near(m.mark_rate, 0.1);
        near(m.resent_rate, 0.2);
        let m = TrafficMetrics::of(&calls, run.link(0));
        near(m.ratio, 1.0);
        assert!([m.delay_mean_s, m.delay_p95_s, m.drop_rate, m.resent_rate]
            .iter()
            .all(|it| it.is_nan()));
    }

    #[test]
    fn beside_one_that_got_nothing_there_is_no_ratio() {
        let of = |traffic| QueuedTraffic {
            traffic,
            ..QueuedTraffic::default()
        };
        let run = run(&[(0, 2000), (1, 0)], &[of(0), of(1)]);
        assert!(TrafficMetrics::of(&of(0), run.link(0)).ratio.is_nan());
    }

    #[test]
    fn the_registry_names_every_metric_in_order() {
        let run = run(&[], &[]);
        let taken = TrafficMetrics::of(&QueuedTraffic::default(), run.link(0));
        let named = TRAFFIC_METRICS.iter().map(|metric| metric.name);
        assert!(named.eq(taken.fields().map(|(name, _)| name)));
    }
}
