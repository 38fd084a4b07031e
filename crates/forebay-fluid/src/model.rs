//! The input of the fluid model.

use forebay_scenario::LawChoice;
use forebay_units::{Bytes, ParamError, Rate, Site, Span, Time};

use crate::senders::{feedback_rtts, Equations, Sender, Windows};
use crate::step::Step;

/// Most steps of one run: memory grows with them.
const MOST_STEPS: f64 = 2e7;

/// Everything about one run.
#[derive(Clone)]
pub struct Model {
    pub bottlenecks: Vec<Bottleneck>,
    pub classes: Vec<Class>,
    /// In order of time.
    pub changes: Vec<Change>,
    pub duration: Span,
    /// Length of integration steps. They also end where a law's clock ticks, where something
    /// changes, and where a change reaches a sender.
    pub step: Step,
    /// Time between two rows of the trace.
    pub sample: Span,
    /// For laws that draw at random; nothing else does.
    pub seed: u64,
}

/// A queue under a law, and its link.
#[derive(Clone)]
pub struct Bottleneck {
    pub rate: Rate,
    /// Size of every packet.
    pub packet: Bytes,
    pub buffer_pkts: f64,
    pub law: LawChoice,
}

/// Like flows: one window stands for all of them.
#[derive(Clone, Debug)]
pub struct Class {
    pub label: String,
    /// At the start; need not be whole.
    pub flows: f64,
    /// Round-trip time without queueing.
    pub rtt: Span,
    /// Bottlenecks on the way, by index, the first first.
    pub route: Vec<usize>,
    /// Window of a flow that starts.
    pub initial_window_pkts: f64,
    /// Largest window.
    pub window_pkts: f64,
    /// 1, or 1/2 with delayed ACKs (RFC 5681 section 3.1).
    pub growth_pkts_per_rtt: f64,
    /// Whether a law's signal marks packets of this class instead of dropping them.
    pub marks: bool,
    /// Whether its packets are ECT(1): a coupled law marks them as those of L4S.
    pub l4s: bool,
    pub sender: Sender,
    pub windows: Windows,
}

/// Something that changes while the model runs.
#[derive(Clone, Debug)]
pub struct Change {
    pub at: Time,
    pub what: What,
}

#[derive(Clone, Debug)]
pub enum What {
    Rate {
        bottleneck: usize,
        rate: Rate,
    },
    Buffer {
        bottleneck: usize,
        buffer_pkts: f64,
    },
    Rtt {
        class: usize,
        rtt: Span,
    },
    /// Flows that come bring the initial window into the class's mean.
    Flows {
        class: usize,
        flows: f64,
    },
}

impl Bottleneck {
    pub fn pkts_per_s(&self) -> f64 {
        self.rate.packets_per_sec(self.packet)
    }

    pub fn site(&self) -> Site {
        Site {
            rate: self.rate,
            buffer_pkts: self.buffer_pkts,
            packet: self.packet,
        }
    }
}

impl Class {
    /// Flows of Reno as RFC 5681 has it, over the first bottleneck.
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

    /// Time from a packet to what its signal does to the packets in flight.
    pub(crate) fn feedback_s(&self, rtt_s: f64) -> f64 {
        feedback_rtts(self.sender, self.windows) * rtt_s
    }
}

fn positive(key: String, value: f64, unit: &str) -> Result<(), ParamError> {
    if value > 0.0 && value.is_finite() {
        return Ok(());
    }
    let allowed = format!("a finite number of {unit} above 0");
    Err(ParamError::new(&key, value, allowed))
}

fn known(key: String, index: usize, count: usize) -> Result<(), ParamError> {
    if index < count {
        return Ok(());
    }
    Err(ParamError::new(&key, index, format!("less than {count}")))
}

fn flows(key: String, flows: f64) -> Result<(), ParamError> {
    if (0.0..=1e9).contains(&flows) {
        return Ok(());
    }
    Err(ParamError::new(&key, flows, "0 to 1e9 flows"))
}

impl Model {
    /// # Errors
    /// The first value that makes no sense, or a step that is too long or too short.
    pub fn check(&self) -> Result<(), ParamError> {
        let queues = self.bottlenecks.len();
        if queues == 0 {
            return Err(ParamError::new("bottlenecks", "none", "at least one"));
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
                let allowed = "at least one bottleneck";
                return Err(ParamError::new(key("route"), "none", allowed));
            }
            (class.route.iter()).try_for_each(|v| known(key("route"), *v, queues))?;
        }
        if self.order().len() < queues {
            let allowed = "routes that no bottleneck both follows and precedes";
            return Err(ParamError::new("classes", "routes in a circle", allowed));
        }
        for (k, change) in self.changes.iter().enumerate() {
            let key = |name| format!("changes.{k}.{name}");
            if k > 0 && change.at < self.changes[k - 1].at {
                return Err(ParamError::new(
                    key("at"),
                    change.at,
                    "changes in order of time",
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
            // A step is a good part of the shortest round trip, or more where little happens.
            Step::Auto { .. } => {
                let rtts = self.classes.iter().map(|class| class.rtt);
                (rtts.min().unwrap_or(self.duration), "duration")
            }
        };
        let shortest = shortest.min(self.sample).as_secs_f64();
        let steps = self.duration.as_secs_f64() / shortest;
        if steps > MOST_STEPS {
            return Err(ParamError::new(
                key,
                format!("{steps:.1e} steps"),
                format!("at most {MOST_STEPS:.0e} steps in a run"),
            ));
        }
        Ok(())
    }

    /// The bottlenecks from first to last on every route; those in a circle are left out.
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

    /// Longest round trip that a class can have during the run, all queues full.
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
                let allowed = format!("at least one integration step, \"{step}\"");
                Err(ParamError::new(&key, format!("\"{rtt}\""), allowed))
            }
            _ => positive(key, rtt.as_secs_f64(), "seconds"),
        }
    }
}
