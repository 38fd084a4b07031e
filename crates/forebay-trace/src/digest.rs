//! Digests of a run, which show whether an engine has changed.
//!
//! Counts, orders and integer times are exact, so one hash stands for all of them
//! ([`LinkView::digest`]). Floats are not: an algebraic simplification moves their last bits. They
//! are summarised instead ([`LinkView::float_summaries`]), for a comparison with a tolerance.

use forebay_units::Fnv1a;
use hdrhistogram::Histogram;

use crate::{
    Call, ClassTrace, FlowTotals, GoodputOf, LinkTrace, LinkView, QueuedTraffic, Samples, Settings,
    TrafficTrace, Transfer, Viewer,
};

/// A column of floats in three numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct FloatSummary {
    /// The name of the column.
    pub name: String,
    /// The mean of the values that are numbers.
    pub mean: f64,
    /// The root of their mean square.
    pub root_mean_square: f64,
    /// Number of values that are not numbers.
    pub nans: u64,
}

impl FloatSummary {
    fn new(name: impl Into<String>, values: impl IntoIterator<Item = f64>) -> FloatSummary {
        let (mut sum, mut squares, mut numbers, mut nans) = (0.0, 0.0, 0.0, 0);
        for value in values {
            if value.is_nan() {
                nans += 1;
                continue;
            }
            sum += value;
            squares += value * value;
            numbers += 1.0;
        }
        FloatSummary {
            name: name.into(),
            mean: sum / f64::max(numbers, 1.0),
            root_mean_square: f64::sqrt(squares / f64::max(numbers, 1.0)),
            nans,
        }
    }
}

impl LinkView<'_> {
    /// Returns a hash of every count, order and integer time at this queue, and of the traffic that
    /// crosses it.
    ///
    /// Equal digests mean equal counts and times. Floats and the name of the link are left out. The
    /// hash is no protection against attacks.
    pub fn digest(self) -> u64 {
        // The columns are listed by name, so that a new column is either hashed or left out on
        // purpose.
        let LinkTrace {
            name: _,
            settings:
                Settings {
                    interval,
                    window: (start, end),
                },
            samples,
            delay_ns,
            classes,
            traffic,
            forwarded_packets,
        } = &*self;
        let Samples {
            queue_pkts,
            queue_bytes,
            arrivals,
            early_drops,
            forced_drops,
            overflow_drops,
            marks,
            departed_bytes,
            capacity_bits: _,
            probes,
        } = samples;

        let mut hash = Columns::default();
        hash.take([interval.as_nanos(), start.as_nanos(), end.as_nanos()]);
        for column in [
            queue_pkts,
            arrivals,
            early_drops,
            forced_drops,
            overflow_drops,
            marks,
        ] {
            hash.take(column.iter().map(|&count| u64::from(count)));
        }
        for column in [queue_bytes, departed_bytes] {
            hash.take(column.iter().copied());
        }
        for (name, column) in probes {
            hash.name(name);
            hash.take([column.len() as u64]);
        }
        hash.histogram(delay_ns);
        hash.take(self.flows().flat_map(
            |&FlowTotals {
                 traffic,
                 delivered_bytes,
             }| [u64::from(traffic), delivered_bytes],
        ));
        hash.take([*forwarded_packets]);
        for class in classes {
            hash.class(class);
        }
        for traffic in traffic {
            hash.traffic(traffic, self.traffic_of_run(traffic.traffic));
        }
        hash.take(self.transfers().flat_map(
            |&Transfer {
                 traffic,
                 packets,
                 took,
             }| [u64::from(traffic), u64::from(packets), took.as_nanos()],
        ));
        hash.take([self.goodput_interval().as_nanos()]);
        self.goodput().for_each(|of| hash.goodput(of));
        hash.take(self.calls().flat_map(
            |&Call {
                 traffic,
                 received,
                 lost,
                 delays,
                 changes,
             }| {
                let times = [delays.as_nanos(), changes.as_nanos()];
                [u64::from(traffic), received, lost, times[0], times[1]]
            },
        ));
        hash.take(self.viewers().flat_map(
            |&Viewer {
                 traffic,
                 segments,
                 rates_bps: _,
                 stalls,
                 stalled,
             }| {
                let counts = [traffic, segments, stalls].map(u64::from);
                [counts[0], counts[1], counts[2], stalled.as_nanos()]
            },
        ));
        hash.0.finish()
    }

    /// Returns every column of floats that [`LinkView::digest`] leaves out, each in three numbers.
    pub fn float_summaries(self) -> Vec<FloatSummary> {
        let Samples {
            capacity_bits,
            probes,
            ..
        } = &self.samples;
        let mut all = vec![FloatSummary::new(
            "capacity_bits",
            capacity_bits.iter().copied(),
        )];
        for (name, column) in probes {
            all.push(FloatSummary::new(name.as_ref(), column.iter().copied()));
        }
        if !self.traffic.is_empty() {
            let traffic = self.traffic.iter();
            let rtts = traffic.map(|of| self.traffic_of_run(of.traffic).rtt_s);
            all.push(FloatSummary::new("rtt_s", rtts));
        }
        if self.viewers().next().is_some() {
            let rates = self.viewers().map(|viewer| viewer.rates_bps);
            all.push(FloatSummary::new("rates_bps", rates));
        }
        for of in self.goodput() {
            let values = of.columns.iter().flatten().map(|&rate| f64::from(rate));
            let name = format!("goodput of traffic {}", of.traffic);
            all.push(FloatSummary::new(name, values));
        }
        all
    }
}

/// A hash over columns.
#[derive(Default)]
struct Columns(Fnv1a);

impl Columns {
    /// Takes in a column, and then its length, so that no value can pass into the next column.
    fn take(&mut self, words: impl IntoIterator<Item = u64>) {
        let mut length = 0;
        for word in words {
            self.0.write(word.to_le_bytes());
            length += 1;
        }
        self.0.write(u64::to_le_bytes(length));
    }

    fn name(&mut self, name: &str) {
        self.take(name.bytes().map(u64::from));
    }

    fn histogram(&mut self, histogram: &Histogram<u64>) {
        let bins = histogram.iter_recorded();
        self.take(bins.flat_map(|bin| [bin.value_iterated_to(), bin.count_at_value()]));
    }

    fn class(&mut self, class: &ClassTrace) {
        let ClassTrace {
            name,
            delay_ns,
            dropped_packets,
            marked_packets,
        } = class;
        self.name(name);
        self.histogram(delay_ns);
        self.take([*dropped_packets, *marked_packets]);
    }

    fn traffic(&mut self, traffic: &QueuedTraffic, in_run: &TrafficTrace) {
        let QueuedTraffic {
            traffic,
            left_packets,
            waited_ns,
            delay_ns,
            dropped_packets,
            marked_packets,
        } = traffic;
        let TrafficTrace {
            links: _,
            sent_packets,
            resent_packets,
            rtt_s: _,
        } = in_run;
        self.histogram(delay_ns);
        self.take([
            u64::from(*traffic),
            *left_packets,
            *waited_ns,
            *dropped_packets,
            *marked_packets,
            *sent_packets,
            *resent_packets,
        ]);
    }

    /// Takes in the shape of a traffic's goodput over time; its values are floats.
    fn goodput(&mut self, of: &GoodputOf) {
        let GoodputOf {
            traffic,
            flows,
            quantiles,
            columns,
        } = of;
        self.take([*traffic, *flows].map(u64::from));
        self.take([quantiles.len() as u64]);
        self.take(columns.iter().map(|column| column.len() as u64));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Recorder, RunTrace};
    use forebay_aqm::DropReason;
    use forebay_units::{Rate, Span, Time};

    fn digest(change: impl FnOnce(&mut RunTrace)) -> u64 {
        let end = Time::ZERO + Span::from_millis(20);
        let settings = Settings {
            interval: Span::from_millis(10),
            window: (Time::ZERO, end),
        };
        let mut recorder = Recorder::new(settings, Rate::from_bps(1_000_000));
        for i in 1..=2 {
            let now = Time::ZERO + Span::from_millis(10 * i);
            recorder.arrived();
            recorder.dropped(now, DropReason::Early, 0);
            recorder.departed(now, 1000, Span::from_millis(i), 0);
            recorder.sample(now, 3, 3000, |out| out("p", f64::NAN));
        }
        let traffic = vec![TrafficTrace::over(vec![0]); 2];
        let mut run = RunTrace::new(vec![recorder.finish("link")], traffic);
        run.flows.push(FlowTotals::default());
        change(&mut run);
        run.link(0).digest()
    }

    fn class() -> ClassTrace {
        ClassTrace::new("bulk")
    }

    fn transfer(packets: u32) -> Transfer {
        Transfer {
            traffic: 0,
            packets,
            took: Span::from_millis(1),
        }
    }

    #[test]
    fn any_change_of_a_value_changes_the_digest() {
        let all = [
            digest(|_| {}),
            digest(|t| t.links[0].samples.queue_pkts[1] = 4),
            digest(|t| t.links[0].samples.queue_bytes[0] = 1),
            digest(|t| t.links[0].samples.arrivals[0] += 1),
            digest(|t| t.links[0].samples.early_drops[0] += 1),
            digest(|t| t.links[0].samples.forced_drops[0] += 1),
            digest(|t| t.links[0].samples.overflow_drops[0] += 1),
            digest(|t| t.links[0].samples.marks[0] += 1),
            digest(|t| t.links[0].samples.departed_bytes[0] += 1),
            digest(|t| t.links[0].samples.probes[0].0 = "q".into()),
            digest(|t| t.links[0].samples.probes[0].1.truncate(1)),
            digest(|t| t.links[0].delay_ns.record(5).unwrap()),
            digest(|t| t.flows[0].delivered_bytes = 1),
            digest(|t| t.flows[0].traffic = 1),
            digest(|t| t.flows.clear()),
            digest(|t| t.links[0].forwarded_packets += 1),
            digest(|t| t.links[0].settings.interval = Span::from_millis(11)),
            digest(|t| t.links[0].settings.window.0 = Time::ZERO + Span::from_millis(1)),
            digest(|t| t.links[0].classes.push(class())),
            digest(|t| {
                t.links[0].classes.push(class());
                t.links[0].classes[0].marked_packets = 1;
            }),
            digest(|t| t.links[0].traffic.push(QueuedTraffic::default())),
            digest(|t| {
                t.links[0].traffic.push(QueuedTraffic::default());
                t.traffic[0].resent_packets = 1;
            }),
            digest(|t| t.transfers.push(transfer(1))),
            digest(|t| t.transfers.push(transfer(2))),
            digest(|t| t.calls.push(Call::default())),
            digest(|t| t.viewers.push(Viewer::default())),
            digest(|t| {
                t.viewers.push(Viewer::default());
                t.viewers[0].stalls = 1;
            }),
            digest(|t| t.goodput.interval = Span::from_millis(1)),
        ];
        for (i, digest) in all.iter().enumerate() {
            assert!(!all[..i].contains(digest), "change {i} went unseen");
        }
    }

    #[test]
    fn floats_and_the_name_of_the_link_do_not_count() {
        let same = digest(|_| {});
        assert_eq!(
            same,
            digest(|t| t.links[0].samples.capacity_bits[0] += 1e-10)
        );
        assert_eq!(same, digest(|t| t.links[0].samples.probes[0].1[1] = 0.5));
        assert_eq!(same, digest(|t| t.links[0].name = "other".into()));
    }

    #[test]
    fn a_summary_has_the_mean_and_the_size_of_numbers_and_counts_the_rest() {
        let summary = FloatSummary::new("p", [3.0, f64::NAN, -4.0]);
        assert_eq!((summary.mean, summary.nans), (-0.5, 1));
        assert!((summary.root_mean_square - 12.5_f64.sqrt()).abs() < 1e-15);
        assert_eq!(FloatSummary::new("p", [f64::NAN]).mean, 0.0);
    }
}
