//! The trace of a run: its links and its traffic, and the view of one link.

use std::ops::Deref;

use hdrhistogram::Histogram;

use crate::traffic::{QueuedTraffic, TrafficTrace};
use crate::{
    Call, ClassTrace, FlowTotals, Goodput, GoodputOf, Samples, Settings, Transfer, Viewer,
};

/// All observations of one run.
#[derive(Clone, Debug)]
pub struct RunTrace {
    /// The observations at each link's queue, in the order of the scenario's links.
    pub links: Vec<LinkTrace>,
    /// The routes, senders and round trips of the traffic, in the order of the scenario.
    pub traffic: Vec<TrafficTrace>,
    /// The bytes that each flow delivered, traffic by traffic.
    pub flows: Vec<FlowTotals>,
    /// The goodput of the flows over time.
    pub goodput: Goodput,
    /// The transfers that were completed within the window: traffic by traffic, and in order of
    /// time within each.
    pub transfers: Vec<Transfer>,
    /// The calls, traffic by traffic.
    pub calls: Vec<Call>,
    /// The viewers of adaptive video, traffic by traffic.
    pub viewers: Vec<Viewer>,
}

/// The observations at the queue of one link.
#[derive(Clone, Debug)]
pub struct LinkTrace {
    /// The name of the link that the queue feeds.
    pub name: String,
    /// The sampling interval and the window of measurement.
    pub settings: Settings,
    /// One row per interval.
    pub samples: Samples,
    /// The queuing delay in ns of every packet that left the queue within the window.
    pub delay_ns: Histogram<u64>,
    /// The packets of each class of the discipline; empty if it has no classes.
    pub classes: Vec<ClassTrace>,
    /// The packets of each traffic whose data crosses the queue; empty if only one does.
    pub traffic: Vec<QueuedTraffic>,
    /// The packets forwarded in the whole run.
    pub forwarded_packets: u64,
}

/// The queue of one link, with the observations of the traffic that crosses it.
#[derive(Clone, Copy)]
pub struct LinkView<'a> {
    run: &'a RunTrace,
    number: usize,
}

impl RunTrace {
    /// Joins the traces of a run's links and of its traffic; flows and applications are empty.
    ///
    /// [`TrafficTrace::rtt_s`] of `traffic` is the propagation time alone, to which the mean wait
    /// at every queue on the route is added here. Each of `links` has the packets of all traffic
    /// or of none; only those are kept whose data crosses the link, and none if that is a single
    /// traffic, since its packets are then all packets of the queue.
    pub fn new(mut links: Vec<LinkTrace>, mut traffic: Vec<TrafficTrace>) -> RunTrace {
        for (number, of) in traffic.iter_mut().enumerate() {
            let at = |&link: &usize| links[link].traffic.get(number);
            let waits_s = of.links.iter().map(at);
            let waits_s = waits_s.map(|of| of.map_or(f64::NAN, QueuedTraffic::delay_mean_s));
            of.rtt_s += waits_s.sum::<f64>();
        }
        for (number, link) in links.iter_mut().enumerate() {
            let crosses = |of: &QueuedTraffic| traffic[of.traffic as usize].links.contains(&number);
            link.traffic.retain(crosses);
            if link.traffic.len() < 2 {
                link.traffic.clear();
            }
        }
        RunTrace {
            links,
            traffic,
            flows: Vec::new(),
            goodput: Goodput::default(),
            transfers: Vec::new(),
            calls: Vec::new(),
            viewers: Vec::new(),
        }
    }

    /// Returns the view of the link with this number.
    ///
    /// # Panics
    /// If there is no such link.
    pub fn link(&self, number: usize) -> LinkView<'_> {
        assert!(number < self.links.len(), "no link {number}");
        LinkView { run: self, number }
    }

    /// Returns the views of all links, in order.
    pub fn views(&self) -> impl Iterator<Item = LinkView<'_>> {
        (0..self.links.len()).map(|number| self.link(number))
    }
}

impl LinkTrace {
    /// Returns the non-empty bins of the queuing delay: the upper end in s, and the packets.
    pub fn delay_bins(&self) -> impl Iterator<Item = (f64, u64)> + '_ {
        crate::bins(&self.delay_ns)
    }

    /// Returns the length of the window of measurement in s.
    pub fn window_s(&self) -> f64 {
        let (start, end) = self.settings.window;
        end.since(start).as_secs_f64()
    }
}

impl Deref for LinkView<'_> {
    type Target = LinkTrace;

    fn deref(&self) -> &LinkTrace {
        &self.run.links[self.number]
    }
}

impl<'a> LinkView<'a> {
    /// Returns the observations of the run at the traffic with this number.
    pub fn traffic_of_run(self, traffic: u32) -> &'a TrafficTrace {
        &self.run.traffic[traffic as usize]
    }

    /// Returns true if the data of this traffic crosses the link.
    fn crosses(self, traffic: u32) -> bool {
        self.traffic_of_run(traffic).links.contains(&self.number)
    }

    /// Returns the flows that send data through the queue.
    pub fn flows(self) -> impl Iterator<Item = &'a FlowTotals> {
        self.run
            .flows
            .iter()
            .filter(move |flow| self.crosses(flow.traffic))
    }

    /// Returns the goodput of each of these flows over the window, in bit/s.
    pub fn goodputs_bps(self) -> impl Iterator<Item = f64> + 'a {
        let window_s = self.window_s();
        self.flows()
            .map(move |flow| 8.0 * flow.delivered_bytes as f64 / window_s)
    }

    /// Returns the goodput over time of the flows of each traffic that crosses the link.
    pub fn goodput(self) -> impl Iterator<Item = &'a GoodputOf> {
        self.run
            .goodput
            .of
            .iter()
            .filter(move |of| self.crosses(of.traffic))
    }

    /// Returns the time between two rows of [`goodput`](LinkView::goodput).
    pub fn goodput_interval(self) -> forebay_units::Span {
        self.run.goodput.interval
    }

    /// Returns the completed transfers that crossed the link.
    pub fn transfers(self) -> impl Iterator<Item = &'a Transfer> {
        self.run
            .transfers
            .iter()
            .filter(move |transfer| self.crosses(transfer.traffic))
    }

    /// Returns the calls whose packets cross the link.
    pub fn calls(self) -> impl Iterator<Item = &'a Call> {
        self.run
            .calls
            .iter()
            .filter(move |call| self.crosses(call.traffic))
    }

    /// Returns the viewers whose video crosses the link.
    pub fn viewers(self) -> impl Iterator<Item = &'a Viewer> {
        self.run
            .viewers
            .iter()
            .filter(move |viewer| self.crosses(viewer.traffic))
    }
}
