//! One number that stands for everything in a trace.

use forebay_units::Fnv1a;

use crate::{FlowTotals, Samples, Settings, Trace};

impl Trace {
    /// A hash of every value of this queue's trace, floats by their bits: equal digests mean
    /// equal traces. Names and [`Trace::others`] are left out; each of the others has its own.
    /// So are transfers, calls, viewers, classes, goodput over time and who gets what, which came
    /// later: digests of former versions stay comparable.
    ///
    /// It shows whether a simulator has changed; it is no protection against attacks.
    pub fn digest(&self) -> u64 {
        // Taken apart by name, so that a new column is either hashed or left out on purpose.
        let Trace {
            name: _,
            settings:
                Settings {
                    interval,
                    window: (start, end),
                },
            samples,
            delay_ns,
            classes: _,
            traffic: _,
            flows,
            transfers: _,
            goodput: _,
            calls: _,
            viewers: _,
            forwarded_packets,
            others: _,
        } = self;
        let Samples {
            queue_pkts,
            queue_bytes,
            arrivals,
            early_drops,
            forced_drops,
            overflow_drops,
            marks,
            departed_bytes,
            capacity_bits,
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
        hash.take(capacity_bits.iter().map(|&value| bits(value)));
        for (name, column) in probes {
            hash.take(name.bytes().map(u64::from));
            hash.take(column.iter().map(|&value| bits(value)));
        }
        let counted = delay_ns.iter_recorded();
        hash.take(counted.flat_map(|step| [step.value_iterated_to(), step.count_at_value()]));
        hash.take(flows.iter().flat_map(
            |&FlowTotals {
                 traffic,
                 delivered_bytes,
             }| [u64::from(traffic), delivered_bytes],
        ));
        hash.take([*forwarded_packets]);
        hash.0.finish()
    }
}

/// The bits of a float; those of a NaN differ with how it came about.
fn bits(value: f64) -> u64 {
    match value.is_nan() {
        true => f64::NAN.to_bits(),
        false => value.to_bits(),
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Recorder;
    use forebay_aqm::DropReason;
    use forebay_units::{Rate, Span, Time};

    fn trace(change: impl FnOnce(&mut Trace)) -> u64 {
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
        let mut trace = recorder.finish(vec![FlowTotals::default()]);
        change(&mut trace);
        trace.digest()
    }

    #[test]
    fn any_change_of_a_value_changes_the_digest() {
        let all = [
            trace(|_| {}),
            trace(|t| t.samples.queue_pkts[1] = 4),
            trace(|t| t.samples.queue_bytes[0] = 1),
            trace(|t| t.samples.arrivals[0] += 1),
            trace(|t| t.samples.early_drops[0] += 1),
            trace(|t| t.samples.forced_drops[0] += 1),
            trace(|t| t.samples.overflow_drops[0] += 1),
            trace(|t| t.samples.marks[0] += 1),
            trace(|t| t.samples.departed_bytes[0] += 1),
            trace(|t| t.samples.capacity_bits[0] += 1e-10),
            trace(|t| t.samples.probes[0].1[1] = 0.0),
            trace(|t| t.samples.probes[0].1[1] = -0.0),
            trace(|t| t.samples.probes[0].0 = "q".into()),
            trace(|t| t.delay_ns.record(5).unwrap()),
            trace(|t| t.flows[0].delivered_bytes = 1),
            trace(|t| t.flows[0].traffic = 1),
            trace(|t| t.flows.clear()),
            trace(|t| t.forwarded_packets += 1),
            trace(|t| t.settings.interval = Span::from_millis(11)),
            trace(|t| t.settings.window.0 = Time::ZERO + Span::from_millis(1)),
        ];
        for (i, one) in all.iter().enumerate() {
            assert!(!all[..i].contains(one), "change {i} went unseen");
        }
    }

    #[test]
    fn how_a_nan_came_about_and_what_a_queue_is_called_do_not_count() {
        let same = trace(|_| {});
        assert_eq!(same, trace(|t| t.samples.probes[0].1[0] = -f64::NAN));
        assert_eq!(same, trace(|t| t.name = "other".into()));
    }
}
