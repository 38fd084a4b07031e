//! Who gets what: what each traffic of a scenario got of a queue, and what its packets met there.

use forebay_units::Span;
use hdrhistogram::Histogram;

use crate::measures::{traffic_metric, Measure, MBITS, MS, NONE, PERCENT};
use crate::named_numbers::named_numbers;
use crate::recorder::delays;
use crate::Trace;

/// The delays and signals of one traffic's packets at a queue, within the window.
#[derive(Clone, Debug, PartialEq)]
pub struct TrafficTrace {
    /// Index into the scenario's traffic.
    pub traffic: u32,
    /// Packets that left the queue, and how long all of them together waited there.
    pub left_packets: u64,
    pub waited_ns: u64,
    /// Queuing delay in ns of these packets.
    pub delay_ns: Histogram<u64>,
    pub dropped_packets: u64,
    pub marked_packets: u64,
    /// Data packets that senders of TCP sent, and those of them that they sent again.
    pub sent_packets: u64,
    pub resent_packets: u64,
    /// Propagation, the mean over its flows, and the mean wait at every queue that its data crosses;
    /// NaN where nothing left one of them.
    pub rtt_s: f64,
}

/// Round-trip time of a traffic: the mean propagation of its flows, which take `rtts` in turn, and the
/// mean wait at every queue that its data crosses; NaN where it has none.
pub fn mean_rtt_s(rtts: &[Span], flows: u32, waits_s: impl Iterator<Item = f64>) -> f64 {
    if rtts.is_empty() {
        return f64::NAN;
    }
    let propagation = rtts.iter().cycle().take(flows as usize);
    let propagation_s: f64 = propagation.map(|rtt| rtt.as_secs_f64()).sum();
    propagation_s / f64::from(flows) + waits_s.sum::<f64>()
}

impl Default for TrafficTrace {
    fn default() -> TrafficTrace {
        TrafficTrace {
            traffic: 0,
            left_packets: 0,
            waited_ns: 0,
            delay_ns: delays(),
            dropped_packets: 0,
            marked_packets: 0,
            sent_packets: 0,
            resent_packets: 0,
            rtt_s: 0.0,
        }
    }
}

impl TrafficTrace {
    /// Counts a packet that left the queue after this time in it.
    #[inline]
    pub fn left(&mut self, sojourn: Span) {
        self.left_packets += 1;
        self.waited_ns += sojourn.as_nanos();
        self.delay_ns.saturating_record(sojourn.as_nanos());
    }

    /// Returns the queuing delay that 95 % of the packets do not exceed; NaN where no packet left.
    pub fn delay_p95_s(&self) -> f64 {
        match self.delay_ns.len() {
            0 => f64::NAN,
            _ => self.delay_ns.value_at_quantile(0.95) as f64 / 1e9,
        }
    }

    /// NaN where no packet left.
    pub fn delay_mean_s(&self) -> f64 {
        self.waited_ns as f64 / 1e9 / self.left_packets as f64
    }
}

named_numbers! {
    /// Metrics of one traffic. Shares of nothing are NaN.
    pub struct TrafficMetrics[10] {
        /// In-order bits that its receivers handed to their applications, per second.
        goodput_bps,
        /// Of what all traffic of the queue got.
        share,
        /// A flow's, on average.
        flow_goodput_bps,
        /// That, over the least of any traffic of the queue.
        ratio,
        rtt_s,
        delay_mean_s,
        delay_p95_s,
        /// Of the data packets that its senders sent; NaN without TCP.
        resent_rate,
        /// Drops of every cause, of the packets that left or were dropped.
        drop_rate,
        mark_rate,
    }
}

impl TrafficMetrics {
    /// Takes the metrics of `of`, a traffic of `trace`.
    pub fn of(of: &TrafficTrace, trace: &Trace) -> TrafficMetrics {
        let (goodput_bps, flow_goodput_bps) = goodputs_bps(of, trace);
        let all: f64 = trace.goodputs_bps().sum();
        let every = trace.traffic.iter();
        let least = every
            .map(|other| goodputs_bps(other, trace).1)
            .fold(f64::NAN, f64::min);
        let ended = (of.left_packets + of.dropped_packets) as f64;
        let share = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { f64::NAN };
        TrafficMetrics {
            goodput_bps,
            share: share(goodput_bps, all),
            flow_goodput_bps,
            ratio: share(flow_goodput_bps, least),
            rtt_s: of.rtt_s,
            delay_mean_s: of.delay_mean_s(),
            delay_p95_s: of.delay_p95_s(),
            drop_rate: share(of.dropped_packets as f64, ended),
            mark_rate: share(of.marked_packets as f64, ended),
            resent_rate: share(of.resent_packets as f64, of.sent_packets as f64),
        }
    }
}

/// Of all its flows, and of one on average.
fn goodputs_bps(of: &TrafficTrace, trace: &Trace) -> (f64, f64) {
    let flows = trace.flows.iter().zip(trace.goodputs_bps());
    let own = flows.filter(|(flow, _)| flow.traffic == of.traffic);
    let (count, sum) = own.fold((0_u32, 0.0), |(count, sum), (_, bps)| {
        (count + 1, sum + bps)
    });
    (sum, sum / f64::from(count))
}

/// The metrics of every traffic, in the order in which tables show them.
pub const TRAFFIC_METRICS: &[Measure] = &[
    traffic_metric(
        "goodput_bps",
        "Goodput",
        MBITS,
        "in-order data that this traffic's receivers got, of all its flows",
        |m| m.goodput_bps,
    ),
    traffic_metric(
        "share",
        "Share",
        PERCENT,
        "this traffic's goodput, of that of all traffic of the queue",
        |m| m.share,
    ),
    traffic_metric(
        "flow_goodput_bps",
        "A flow",
        MBITS,
        "goodput of a flow of this traffic, on average",
        |m| m.flow_goodput_bps,
    ),
    traffic_metric(
        "ratio",
        "To the least",
        NONE,
        "goodput of a flow, over that of the traffic whose flows get least",
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
        "Sent again",
        PERCENT,
        "data packets that senders of TCP sent again, of those that they sent",
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
        "packets CE-marked, of the same",
        |m| m.mark_rate,
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FlowTotals, Recorder, Settings};
    use forebay_units::{Rate, Span, Time};

    fn trace(delivered: &[(u32, u64)], traffic: &[TrafficTrace]) -> Trace {
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
        Trace {
            traffic: traffic.to_vec(),
            ..Recorder::new(settings, Rate::from_bps(1_000_000)).finish(flows.collect())
        }
    }

    #[test]
    fn metrics_are_those_worked_by_hand() {
        let mut bulk = TrafficTrace {
            dropped_packets: 10,
            marked_packets: 4,
            sent_packets: 50,
            resent_packets: 10,
            rtt_s: 0.042,
            ..TrafficTrace::default()
        };
        // 28 packets wait 1 ms, and two of 30, more than 5 %, wait 16 ms.
        for ms in std::iter::repeat_n(1, 28).chain([16, 16]) {
            bulk.left(Span::from_millis(ms));
        }
        let calls = TrafficTrace {
            traffic: 1,
            ..TrafficTrace::default()
        };
        let both = [bulk.clone(), calls.clone()];
        let trace = trace(&[(0, 2000), (0, 1000), (1, 500)], &both);
        let m = TrafficMetrics::of(&bulk, &trace);
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
        let m = TrafficMetrics::of(&calls, &trace);
        near(m.ratio, 1.0);
        assert!([m.delay_mean_s, m.delay_p95_s, m.drop_rate, m.resent_rate]
            .iter()
            .all(|it| it.is_nan()));
    }

    #[test]
    fn beside_one_that_got_nothing_there_is_no_ratio() {
        let of = |traffic| TrafficTrace {
            traffic,
            ..TrafficTrace::default()
        };
        let trace = trace(&[(0, 2000), (1, 0)], &[of(0), of(1)]);
        assert!(TrafficMetrics::of(&of(0), &trace).ratio.is_nan());
    }

    #[test]
    fn the_registry_names_every_metric_in_order() {
        let taken = TrafficMetrics::of(&TrafficTrace::default(), &trace(&[], &[]));
        let named = TRAFFIC_METRICS.iter().map(|metric| metric.name);
        assert!(named.eq(taken.fields().map(|(name, _)| name)));
    }
}
