//! What an AQM law is: it judges packets, and holds none.

use crate::linear::{LoopFilter, OperatingPoint};
use crate::param::{ParamError, ParamSpec, Params, Value};
use crate::rng::Rng;
use crate::units::{Bytes, Rate, Span, Time};

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing happens to it.
    Pass,
    /// Congestion is signalled: the queue CE-marks it where it may, and drops it otherwise.
    Mark,
    /// It is dropped whatever its ECN field, as RED does above its upper threshold
    /// (RFC 3168 section 7).
    Drop,
}

/// The ECN field of the IP header (RFC 3168 section 5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ecn {
    #[default]
    NotEct,
    Ect0,
    Ect1,
    Ce,
}

/// What a law may know of a packet.
#[derive(Clone, Copy, Debug)]
pub struct PacketMeta {
    pub bytes: u32,
    pub ecn: Ecn,
    /// Whether TCP carries it. UDP takes link capacity away from the flows that answer a signal.
    pub tcp: bool,
    /// How long it waited; zero on arrival.
    pub sojourn: Span,
}

/// What a law may know of its queue. The packet being sent is not in it.
#[derive(Clone, Copy, Debug)]
pub struct QueueView {
    pub packets: u32,
    pub bytes: u64,
    /// Most packets the queue can hold; `u32::MAX` where only bytes bound it.
    pub limit_packets: u32,
    /// Rate of the link that the queue feeds, as it is now.
    pub rate: Rate,
    /// Since when the link has had nothing to send; `None` while it is busy.
    pub idle_since: Option<Time>,
}

/// What a law counts its queue in: packets as they are, or bytes in units of the usual packet
/// (so that ACKs and data can share a queue).
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    packet_bytes: Option<f64>,
}

impl Scale {
    pub fn new(site: &Site, in_bytes: bool) -> Scale {
        Scale {
            packet_bytes: in_bytes.then_some(site.packet.0 as f64),
        }
    }

    /// Length of the queue, in packets.
    pub fn queue_pkts(&self, q: &QueueView) -> f64 {
        match self.packet_bytes {
            Some(unit) => q.bytes as f64 / unit,
            None => f64::from(q.packets),
        }
    }

    /// What one packet of this size counts, in packets.
    pub fn packet_pkts(&self, bytes: u32) -> f64 {
        self.packet_bytes
            .map_or(1.0, |unit| f64::from(bytes) / unit)
    }
}

/// An AQM law. Every method has a default, so that DropTail is an empty one.
///
/// A discipline calls the hooks in order of time. A law is driven either by packets
/// (`on_enqueue`, `on_dequeue`) or by its own clock (`poll_timeout`, `handle_timeout`).
#[allow(unused_variables)]
pub trait Law: Send {
    /// Judges an arrival; `q` is the queue without it.
    fn on_enqueue(&mut self, now: Time, q: &QueueView, p: &PacketMeta, rng: &mut Rng) -> Verdict {
        Verdict::Pass
    }

    /// Judges a departure; `q` is the queue without it.
    fn on_dequeue(&mut self, now: Time, q: &QueueView, p: &PacketMeta, rng: &mut Rng) -> Verdict {
        Verdict::Pass
    }

    /// An arrival found the buffer full; called after `on_enqueue` for the same packet.
    fn on_overflow(&mut self, now: Time, q: &QueueView) {}

    /// The link has run out of packets.
    fn on_idle(&mut self, now: Time, q: &QueueView) {}

    /// When the law wants to be called next, if it keeps a clock.
    fn poll_timeout(&self) -> Option<Time> {
        None
    }

    /// Runs every tick due at `now`: a late call loses none.
    fn handle_timeout(&mut self, now: Time, q: &QueueView) {}

    /// Moves the set-point while traffic runs, and keeps all else; whether the law can.
    fn set_target(&mut self, target_pkts: f64) -> bool {
        false
    }

    /// Expected signals per arriving packet, for the fluid model.
    fn intensity(&self, q: &QueueView) -> Option<f64> {
        None
    }

    /// Reports named inner values ("p", "average", …) for plots; the names never change.
    fn probe(&self, out: &mut dyn FnMut(&'static str, f64)) {}
}

/// Where a law is put: what a check of its parameters, or a design, may need.
#[derive(Clone, Copy, Debug)]
pub struct Site {
    pub rate: Rate,
    /// Buffer in packets; infinite where only bytes bound it.
    pub buffer_pkts: f64,
    /// Usual packet on the link.
    pub packet: Bytes,
}

/// Parameters that a law is built from.
pub trait Recipe: Params + 'static {
    /// Relations between parameters, or to the queue, that ranges cannot say.
    ///
    /// # Errors
    /// The key at fault.
    fn check(&self, _site: &Site) -> Result<(), ParamError> {
        Ok(())
    }

    fn build(&self, site: &Site) -> Box<dyn Law>;

    /// The law near an operating point; `None` where it has no linear model, or no equilibrium.
    fn linear(&self, _point: &OperatingPoint, _site: &Site) -> Option<LoopFilter> {
        None
    }

    /// What the design rule can be asked for besides the law's own parameters.
    const GOALS: &'static [ParamSpec] = &[];

    /// The law's design rule, with what it does not design left as it is in `self`; `None` where
    /// there is no rule.
    ///
    /// # Errors
    /// A goal that is unknown or out of range, or a wish that cannot be met.
    fn design(&self, _wish: &Wish, _goals: &Given) -> Result<Option<Design>, ParamError> {
        Ok(None)
    }
}

/// What a design rule is given.
#[derive(Clone, Copy, Debug)]
pub struct Wish {
    /// The network at the wanted queue length.
    pub point: OperatingPoint,
    /// Queue length to hold.
    pub target_pkts: f64,
    pub site: Site,
}

/// What a design rule gives.
#[derive(Clone, Debug, Default)]
pub struct Design {
    /// The designed numbers under the paper's names, with those on the way to them.
    pub gains: Vec<(&'static str, f64)>,
    /// The law's parameters, as a scenario takes them.
    pub params: Vec<(&'static str, Value)>,
    /// Why these: sentences.
    pub notes: Vec<String>,
}

/// Named parameter values, as a scenario gives them.
pub type Given = [(String, Value)];

type Built = Result<Box<dyn Law>, ParamError>;
type Resolved = Result<Vec<(&'static str, Value)>, ParamError>;
type Linear = Result<Option<LoopFilter>, ParamError>;
type Designed = Result<Option<Design>, ParamError>;

/// A law's entry in the registry.
pub struct LawSpec {
    /// Name in scenarios and on the command line.
    pub kind: &'static str,
    pub title: &'static str,
    pub source: &'static str,
    pub params: &'static [ParamSpec],
    /// What a design can be asked for besides the law's own parameters.
    pub goals: &'static [ParamSpec],
    build: fn(&Given, &Site) -> Built,
    resolve: fn(&Given) -> Resolved,
    linear: fn(&Given, &OperatingPoint, &Site) -> Linear,
    design: fn(&Given, &Wish, &Given) -> Designed,
}

impl LawSpec {
    pub const fn of<R: Recipe>(
        kind: &'static str,
        title: &'static str,
        source: &'static str,
    ) -> LawSpec {
        LawSpec {
            kind,
            title,
            source,
            params: R::SPECS,
            goals: R::GOALS,
            build: |given, site| {
                let recipe = R::read(given)?;
                recipe.check(site)?;
                Ok(recipe.build(site))
            },
            resolve: |given| {
                let recipe = R::read(given)?;
                let value = |spec: &ParamSpec| Some((spec.name, recipe.get(spec.name)?));
                Ok(R::SPECS.iter().filter_map(value).collect())
            },
            linear: |given, point, site| {
                let recipe = R::read(given)?;
                recipe.check(site)?;
                Ok(recipe.linear(point, site))
            },
            design: |given, wish, goals| R::read(given)?.design(wish, goals),
        }
    }

    /// A fresh law with `given` on top of the defaults.
    ///
    /// # Errors
    /// A parameter that is unknown, out of range, or does not fit the others or the queue.
    pub fn build(&self, given: &Given, site: &Site) -> Built {
        (self.build)(given, site)
    }

    /// Every parameter's value with `given` on top of the defaults.
    ///
    /// # Errors
    /// A parameter that is unknown or out of range.
    pub fn resolve(&self, given: &Given) -> Resolved {
        (self.resolve)(given)
    }

    /// The law near an operating point; `None` where it has no linear model, or no equilibrium.
    ///
    /// # Errors
    /// As [`build`](LawSpec::build).
    pub fn linear(&self, given: &Given, point: &OperatingPoint, site: &Site) -> Linear {
        (self.linear)(given, point, site)
    }

    /// Where `flows` with this propagation RTT settle under the law, and its model there.
    ///
    /// The longer the queue, the longer the RTT and the smaller the probability that TCP needs,
    /// so that the queue at which both agree can be found by bisection. It may exceed the buffer.
    ///
    /// # Errors
    /// As [`build`](LawSpec::build).
    pub fn operate(
        &self,
        given: &Given,
        flows: f64,
        propagation_s: f64,
        site: &Site,
    ) -> Result<Option<(OperatingPoint, LoopFilter)>, ParamError> {
        let capacity = site.rate.packets_per_sec(site.packet);
        let at = |queue_pkts: f64| {
            let rtt_s = propagation_s + queue_pkts / capacity;
            let point = OperatingPoint::of_flows(flows, rtt_s, capacity);
            Ok(self
                .linear(given, &point, site)?
                .map(|model| (point, model)))
        };
        // Where the law integrates, its queue does not depend on the network.
        if let Some((_, model)) = at(0.0)? {
            let there = at(model.queue_pkts)?;
            if let Some((_, again)) = &there {
                if again.queue_pkts == model.queue_pkts {
                    return Ok(there);
                }
            }
        }
        let settles_above = |queue_pkts: f64| -> Result<bool, ParamError> {
            // Without an equilibrium the law cannot signal enough: the queue is longer.
            Ok(at(queue_pkts)?.is_none_or(|(_, model)| model.queue_pkts > queue_pkts))
        };
        let (mut low, mut high) = (0.0, 1.0);
        while settles_above(high)? {
            if high > 1e12 {
                return Ok(None);
            }
            high *= 2.0;
        }
        while high - low > 1e-12 * high {
            let middle = 0.5 * (low + high);
            if settles_above(middle)? {
                low = middle;
            } else {
                high = middle;
            }
        }
        at(high)
    }

    /// The law's design rule with `given` for what it does not design, and `goals` of
    /// [`goals`](LawSpec::goals); `None` where there is no rule.
    ///
    /// # Errors
    /// A parameter or a goal that is unknown or out of range, or a wish that cannot be met.
    pub fn design(&self, given: &Given, wish: &Wish, goals: &Given) -> Designed {
        (self.design)(given, wish, goals)
    }
}

impl Design {
    /// `names` of a recipe that carries the designed values.
    pub fn of<R: Params>(
        gains: Vec<(&'static str, f64)>,
        recipe: &R,
        names: &[&'static str],
        notes: Vec<String>,
    ) -> Design {
        let value = |name: &&'static str| Some((*name, rounded(recipe.get(name)?)));
        Design {
            gains,
            params: names.iter().filter_map(value).collect(),
            notes,
        }
    }
}

/// Ten digits are enough for a gain, and bearable in a file.
fn rounded(value: Value) -> Value {
    match value {
        Value::Number(x) => Value::Number(format!("{x:.9e}").parse().unwrap_or(x)),
        other => other,
    }
}

/// Refuses a set-point that the buffer cannot hold.
///
/// # Errors
/// Where `pkts` exceeds the buffer.
pub fn fits_buffer(key: &str, pkts: f64, site: &Site) -> Result<(), ParamError> {
    if pkts <= site.buffer_pkts {
        return Ok(());
    }
    Err(ParamError::new(
        key,
        format!("\"{pkts}p\""),
        format!("at most the buffer, \"{}p\"", site.buffer_pkts),
    ))
}

/// Refuses a buffer that is not bounded in packets, for laws that divide by it.
///
/// # Errors
/// Where the buffer is infinite; the set-point `key` is blamed.
pub fn needs_packet_buffer(key: &str, pkts: f64, site: &Site) -> Result<(), ParamError> {
    if site.buffer_pkts.is_finite() {
        return Ok(());
    }
    Err(ParamError::new(
        key,
        format!("\"{pkts}p\" under a buffer in bytes"),
        "a buffer in packets, since the law relates its error to it",
    ))
}
