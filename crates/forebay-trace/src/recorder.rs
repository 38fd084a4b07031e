//! The recorder, which builds a link's trace while packets pass.

use forebay_aqm::DropReason;
use forebay_units::{Rate, Span, Time};

use crate::delay_counts::DelayCounts;
use crate::{ClassTrace, LinkTrace, QueuedTraffic, Samples};

/// The times at which a run is sampled and measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Time between two samples.
    pub interval: Span,
    /// Window of measurement, (start, end]: delays and the totals of flows are taken over it.
    pub window: (Time, Time),
}

/// Records events at one queue, in order of time, as a [`LinkTrace`].
pub struct Recorder {
    settings: Settings,
    samples: Samples,
    delay_ns: DelayCounts,
    classes: Vec<ClassTrace>,
    /// Index in `classes` of the first class of the current discipline.
    first_class: usize,
    traffic: Vec<QueuedTraffic>,
    /// Packets forwarded up to the last sample.
    forwarded_packets: u64,
    counts: Counts,
    rate: Rate,
    /// Time up to which `counts.capacity_bits` has been accounted.
    rate_since: Time,
}

/// The counts of the row that is being recorded.
#[derive(Default)]
struct Counts {
    arrivals: u32,
    early: u32,
    forced: u32,
    overflow: u32,
    marks: u32,
    departures: u32,
    departed_bytes: u64,
    capacity_bits: f64,
}

impl Recorder {
    /// Returns a recorder of the queue of a link with this rate.
    pub fn new(settings: Settings, rate: Rate) -> Recorder {
        Recorder {
            settings,
            samples: Samples::default(),
            delay_ns: DelayCounts::new(),
            classes: Vec::new(),
            first_class: 0,
            traffic: Vec::new(),
            forwarded_packets: 0,
            counts: Counts::default(),
            rate,
            rate_since: Time::ZERO,
        }
    }

    /// Sets the names of the classes, by whose index packets are counted from now on; without
    /// names, packets have no class.
    pub fn tell_apart(&mut self, names: &[&'static str]) {
        let mut recorded = self.classes.windows(names.len().max(1));
        let same = |classes: &[ClassTrace]| {
            let of_classes = classes.iter().map(|class| class.name);
            of_classes.eq(names.iter().copied())
        };
        self.first_class = recorded.position(same).unwrap_or(self.classes.len());
        if self.first_class == self.classes.len() {
            let new = names.iter().map(|name| ClassTrace::new(name));
            self.classes.extend(new);
        }
    }

    /// Counts the packets of `count` traffics separately.
    pub fn tell_traffic_apart(&mut self, count: u32) {
        self.traffic = (0..count)
            .map(|traffic| QueuedTraffic {
                traffic,
                ..QueuedTraffic::default()
            })
            .collect();
    }

    /// Returns the counts of the traffic with this number; `None` outside the window, and if traffic
    /// is not counted separately.
    #[inline]
    pub fn traffic(&mut self, now: Time, number: Option<u8>) -> Option<&mut QueuedTraffic> {
        if self.traffic.is_empty() || !self.in_window(now) {
            return None;
        }
        self.traffic.get_mut(usize::from(number?))
    }

    #[inline]
    fn class(&mut self, number: u8) -> Option<&mut ClassTrace> {
        self.classes.get_mut(self.first_class + usize::from(number))
    }

    #[inline]
    fn in_window(&self, now: Time) -> bool {
        let (start, end) = self.settings.window;
        start < now && now <= end
    }

    /// Counts an arrival.
    #[inline]
    pub fn arrived(&mut self) {
        self.counts.arrivals += 1;
    }

    /// Counts a dropped packet of a class.
    pub fn dropped(&mut self, now: Time, why: DropReason, class: u8) {
        match why {
            DropReason::Early => self.counts.early += 1,
            DropReason::Forced => self.counts.forced += 1,
            DropReason::Overflow => self.counts.overflow += 1,
        }
        if self.in_window(now) {
            if let Some(class) = self.class(class) {
                class.dropped_packets += 1;
            }
        }
    }

    /// Counts a marked packet of a class.
    pub fn marked(&mut self, now: Time, class: u8) {
        self.counts.marks += 1;
        if self.in_window(now) {
            if let Some(class) = self.class(class) {
                class.marked_packets += 1;
            }
        }
    }

    /// Counts a packet of a class that leaves the queue for the link after `sojourn`.
    #[inline]
    pub fn departed(&mut self, now: Time, bytes: u32, sojourn: Span, class: u8) {
        self.counts.departed_bytes += u64::from(bytes);
        self.counts.departures += 1;
        if self.in_window(now) {
            self.delay_ns.count(sojourn.as_nanos());
            if let Some(class) = self.class(class) {
                class.delay_ns.saturating_record(sojourn.as_nanos());
            }
        }
    }

    /// Sets the rate of the link from `now` on.
    pub fn rate_changed(&mut self, now: Time, rate: Rate) {
        self.account_capacity(now);
        self.rate = rate;
    }

    /// Adds bits that a link without a steady rate could have carried.
    pub fn could_carry(&mut self, bits: f64) {
        self.counts.capacity_bits += bits;
    }

    fn account_capacity(&mut self, now: Time) {
        let span_s = now.since(self.rate_since).as_secs_f64();
        self.counts.capacity_bits += self.rate.as_bps() as f64 * span_s;
        self.rate_since = now;
    }

    /// Ends a row at `now` with the backlog and the internal values that `probe` reports.
    pub fn sample(
        &mut self,
        now: Time,
        queue_pkts: u32,
        queue_bytes: u64,
        probe: impl FnOnce(&mut dyn FnMut(&'static str, f64)),
    ) {
        self.account_capacity(now);
        let counts = std::mem::take(&mut self.counts);
        self.forwarded_packets += u64::from(counts.departures);
        let samples = &mut self.samples;
        samples.queue_pkts.push(queue_pkts);
        samples.queue_bytes.push(queue_bytes);
        samples.arrivals.push(counts.arrivals);
        samples.early_drops.push(counts.early);
        samples.forced_drops.push(counts.forced);
        samples.overflow_drops.push(counts.overflow);
        samples.marks.push(counts.marks);
        samples.departed_bytes.push(counts.departed_bytes);
        samples.capacity_bits.push(counts.capacity_bits);
        let rows = samples.queue_pkts.len();
        let probes = &mut samples.probes;
        let mut at = 0;
        probe(&mut |name, value| {
            // A law reports the same names in the same order every time. A name that first
            // appears later is NaN in the rows before.
            if probes.get(at).is_none_or(|(column, _)| *column != name) {
                at = probes
                    .iter()
                    .position(|(column, _)| *column == name)
                    .unwrap_or_else(|| {
                        probes.push((name.into(), vec![f64::NAN; rows - 1]));
                        probes.len() - 1
                    });
            }
            probes[at].1.push(value);
            at += 1;
        });
        for (_, column) in probes {
            column.resize(rows, f64::NAN);
        }
    }

    /// Returns the rows recorded so far.
    pub fn samples(&self) -> &Samples {
        &self.samples
    }

    /// Returns the trace of the queue that feeds the link of this name.
    pub fn finish(self, name: impl Into<String>) -> LinkTrace {
        LinkTrace {
            name: name.into(),
            settings: self.settings,
            samples: self.samples,
            delay_ns: self.delay_ns.histogram(),
            classes: self.classes,
            traffic: self.traffic,
            forwarded_packets: self.forwarded_packets + u64::from(self.counts.departures),
        }
    }
}
