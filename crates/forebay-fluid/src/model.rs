//! The input of the fluid model.

use forebay_scenario::LawChoice;
use forebay_units::{Bytes, ParamError, Rate, Site, Span, Time};

use crate::senders::{feedback_rtts, Equations, Sender, Windows};
use crate::step::Step;

/// Largest number of steps of one run: memory grows with them.
const MOST_STEPS: f64 = 2e7;

/// The input of one run.
#[derive(Clone)]
pub struct Model {
    /// The queues and their links.
    pub bottlenecks: Vec<Bottleneck>,
    /// The classes of flows.
    pub classes: Vec<Class>,
    /// The changes during the run, in order of time.
    pub changes: Vec<Change>,
    /// The simulated time.
    pub duration: Span,
    /// The length of integration steps. A step also ends at a tick of a law's clock, at a change,
    /// and when a change reaches a sender.
    pub step: Step,
    /// The time between two rows of the trace.
    pub sample: Span,
    /// The seed of laws that draw at random; the equations have no random terms.
    pub seed: u64,
}

/// A queue under a law, and its link.
#[derive(Clone)]
pub struct Bottleneck {
    /// The rate of the link.
    pub rate: Rate,
    /// The size of every packet.
    pub packet: Bytes,
    /// The size of the buffer in packets.
    pub buffer_pkts: f64,
    /// The law of the queue.
    pub law: LawChoice,
}

/// A class of identical flows, described by one mean window.
#[derive(Clone, Debug)]
pub struct Class {
    /// The name in reports.
    pub label: String,
    /// The number of flows at the start, which need not be an integer.
    pub flows: f64,
    /// The round-trip time without queueing.
    pub rtt: Span,
    /// The indices of the bottlenecks on the route, in order.
    pub route: Vec<usize>,
    /// The window of a flow that starts, in packets.
    pub initial_window_pkts: f64,
    /// The largest window, in packets.
    pub window_pkts: f64,
    /// The growth of the window in congestion avoidance: 1, or 1/2 with delayed ACKs (RFC 5681
    /// section 3.1).
    pub growth_pkts_per_rtt: f64,
    /// True if a signal marks packets of this class instead of dropping them.
    pub marks: bool,
    /// True if its packets are ECT(1), which a coupled law marks as those of L4S.
    pub l4s: bool,
    /// The senders.
    pub sender: Sender,
    /// The detail in which the windows are described.
    pub windows: Windows,
}

/// A change during the run.
#[derive(Clone, Debug)]
pub struct Change {
    /// The time of the change.
    pub at: Time,
    /// The quantity that changes, and its new value.
    pub what: What,
}

/// A quantity of the model with a new value.
#[derive(Clone, Debug)]
pub enum What {
    /// The rate of a link.
    Rate {
        /// Index of the bottleneck.
        bottleneck: usize,
        /// The new rate.
        rate: Rate,
    },
    /// The buffer of a queue.
    Buffer {
        /// Index of the bottleneck.
        bottleneck: usize,
        /// The new size in packets.
        buffer_pkts: f64,
    },
    /// The round-trip time of a class without queueing.
    Rtt {
        /// Index of the class.
        class: usize,
        /// The new round-trip time.
        rtt: Span,
    },
    /// The number of flows of a class. Flows that start bring the initial window into its mean.
    Flows {
        /// Index of the class.
        class: usize,
        /// The new number.
        flows: f64,
    },
}

impl Bottleneck {
    /// Returns the rate of the link in packets per second.
    pub fn pkts_per_s(&self) -> f64 {
        self.rate.packets_per_sec(self.packet)
    }

    /// Returns the queue as its law sees it.
    pub fn site(&self) -> Site {
        Site {
            rate: self.rate,
            buffer_pkts: self.buffer_pkts,
            packet: self.packet,
        }
    }
}

impl Class {
    /// Returns a class of Reno flows (RFC 5681) over the first bottleneck.
    pub fn new(label: impl Into<String>, flows: f64, rtt: Span) -> Class {
        Class {
            label: label.into(),
            flows,
            rtt,
            route: vec![0],
            initial_window_pkts: 2.0,
            window_pkts: 1e9,
            growth_pkts_per_rtt: 1.0,
            marks: false,
            l4s: false,
            sender: Sender::RENO,
            windows: Windows::Smooth,
        }
    }

    pub(crate) fn equations(&self) -> Equations {
        Equations::of(self.sender.control, self.windows, self.marks)
    }

    /// Returns the time in s from a packet until its signal acts on the packets in flight.
    pub(crate) fn feedback_s(&self, rtt_s: f64) -> f64 {
        feedback_rtts(self.sender, self.windows) * rtt_s
    }
}

fn positive(key: String, value: f64, unit: &str) -> Result<(), ParamError> {
    if value > 0.0 && value.is_finite() {
        return Ok(());
    }
    let expected = format!("a finite number of {unit} above zero");
    Err(ParamError::new(&key, value, expected))
}

fn known(key: String, index: usize, count: usize) -> Result<(), ParamError> {
    if index < count {
        return Ok(());
    }
    Err(ParamError::new(
        &key,
        index,
        format!("the index of a bottleneck or class, below {count}"),
    ))
}

fn flows(key: String, flows: f64) -> Result<(), ParamError> {
    if (0.0..=1e9).contains(&flows) {
        return Ok(());
    }
    Err(ParamError::new(
        &key,
        flows,
        "a number of flows from 0 to 1e9",
    ))
}

impl Model {
    /// # Errors
    /// The first value that makes no sense, or a step that is too long or too short.
    pub fn check(&self) -> Result<(), ParamError> {
        let queues = self.bottlenecks.len();
        if queues == 0 {
            return Err(ParamError::missing(
                "bottlenecks",
                "at least one bottleneck",
            ));
        }
        for (v, bottleneck) in self.bottlenecks.iter().enumerate() {
            let key = |name| format!("bottlenecks.{v}.{name}");
            positive(key("rate"), bottleneck.pkts_per_s(), "packets/s")?;
            positive(key("buffer_pkts"), bottleneck.buffer_pkts, "packets")?;
        }
        for (i, class) in self.classes.iter().enumerate() {
            let key = |name| format!("classes.{i}.{name}");
            flows(key("flows"), class.flows)?;
            positive(
                key("initial_window_pkts"),
                class.initial_window_pkts,
                "packets",
            )?;
            positive(key("window_pkts"), class.window_pkts, "packets")?;
            positive(
                key("growth_pkts_per_rtt"),
                class.growth_pkts_per_rtt,
                "packets",
            )?;
            self.check_rtt(key("rtt"), class.rtt)?;
            if class.route.is_empty() {
                let expected = "at least one bottleneck";
                return Err(ParamError::missing(key("route"), expected));
            }
            (class.route.iter()).try_for_each(|v| known(key("route"), *v, queues))?;
        }
        if self.order().len() < queues {
            let expected = "an order of bottlenecks that every route follows";
            return Err(ParamError::stated(
                "classes",
                "the routes form a cycle",
                expected,
            ));
        }
        for (k, change) in self.changes.iter().enumerate() {
            let key = |name| format!("changes.{k}.{name}");
            if k > 0 && change.at < self.changes[k - 1].at {
                return Err(ParamError::new(
                    key("at"),
                    change.at,
                    "changes in the order of their times",
                ));
            }
            match change.what {
                What::Rate { bottleneck, rate } => {
                    known(key("bottleneck"), bottleneck, queues)?;
                    positive(key("rate"), rate.as_bps() as f64, "bit/s")?;
                }
                What::Buffer {
                    bottleneck,
                    buffer_pkts,
                } => {
                    known(key("bottleneck"), bottleneck, queues)?;
                    positive(key("buffer_pkts"), buffer_pkts, "packets")?;
                }
                What::Rtt { class, rtt } => {
                    known(key("class"), class, self.classes.len())?;
                    self.check_rtt(key("rtt"), rtt)?;
                }
                What::Flows {
                    class,
                    flows: count,
                } => {
                    known(key("class"), class, self.classes.len())?;
                    flows(key("flows"), count)?;
                }
            }
        }
        positive("sample".into(), self.sample.as_secs_f64(), "seconds")?;
        let (shortest, key) = match self.step {
            Step::Longest(step) => {
                positive("step".into(), step.as_secs_f64(), "seconds")?;
                (step, "step")
            }
            // A step is a large part of the shortest round trip, or longer where little changes.
            Step::Auto { .. } => {
                let rtts = self.classes.iter().map(|class| class.rtt);
                (rtts.min().unwrap_or(self.duration), "duration")
            }
        };
        let shortest = shortest.min(self.sample).as_secs_f64();
        let steps = self.duration.as_secs_f64() / shortest;
        if steps > MOST_STEPS {
            return Err(ParamError::stated(
                key,
                format!("{steps:.1e} steps are too many"),
                format!("at most {MOST_STEPS:.0e} steps in a run"),
            ));
        }
        Ok(())
    }

    /// Returns the bottlenecks from first to last on every route; those in a circle are left out.
    pub(crate) fn order(&self) -> Vec<usize> {
        let hops = |class: &Class| -> Vec<(usize, usize)> {
            class.route.windows(2).map(|hop| (hop[0], hop[1])).collect()
        };
        let hops: Vec<_> = self.classes.iter().flat_map(hops).collect();
        let mut order: Vec<usize> = Vec::new();
        let ready = |order: &[usize]| {
            let done = |v| order.contains(&v);
            let free = |v: &usize| hops.iter().all(|(from, to)| to != v || done(*from));
            (0..self.bottlenecks.len()).find(|v| !done(*v) && free(v))
        };
        while let Some(next) = ready(&order) {
            order.push(next);
        }
        order
    }

    /// Returns the longest round trip that a class can have during the run, all queues full.
    pub(crate) fn longest_rtt_s(&self, class: usize) -> f64 {
        let mut rtt_s = self.classes[class].rtt.as_secs_f64();
        let mut links: Vec<(f64, f64)> = self
            .bottlenecks
            .iter()
            .map(|link| (link.pkts_per_s(), link.buffer_pkts))
            .collect();
        for change in &self.changes {
            match change.what {
                What::Rtt { class: of, rtt } if of == class => {
                    rtt_s = rtt_s.max(rtt.as_secs_f64());
                }
                What::Rate {
                    bottleneck: v,
                    rate,
                } => {
                    let packet = self.bottlenecks[v].packet;
                    links[v].0 = links[v].0.min(rate.packets_per_sec(packet));
                }
                What::Buffer {
                    bottleneck: v,
                    buffer_pkts,
                } => {
                    links[v].1 = links[v].1.max(buffer_pkts);
                }
                _ => {}
            }
        }
        let route = self.classes[class].route.iter();
        rtt_s + route.map(|v| links[*v].1 / links[*v].0).sum::<f64>()
    }

    /// A step must not need a value that it has yet to compute.
    fn check_rtt(&self, key: String, rtt: Span) -> Result<(), ParamError> {
        match self.step {
            Step::Longest(step) if rtt < step => {
                let expected = format!("at least \"{step}\", one integration step");
                Err(ParamError::new(&key, format!("\"{rtt}\""), expected))
            }
            _ => positive(key, rtt.as_secs_f64(), "seconds"),
        }
    }
}
