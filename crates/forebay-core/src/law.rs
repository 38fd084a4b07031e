//! What an AQM law is: it judges packets, and holds none.

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
}

/// Named parameter values, as a scenario gives them.
pub type Given = [(String, Value)];

type Built = Result<Box<dyn Law>, ParamError>;
type Resolved = Result<Vec<(&'static str, Value)>, ParamError>;

/// A law's entry in the registry.
pub struct LawSpec {
    /// Name in scenarios and on the command line.
    pub kind: &'static str,
    pub title: &'static str,
    pub source: &'static str,
    pub params: &'static [ParamSpec],
    build: fn(&Given, &Site) -> Built,
    resolve: fn(&Given) -> Resolved,
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
}

/// Refuses a set-point that the buffer cannot hold.
///
/// # Errors
/// Where `target_pkts` exceeds the buffer.
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
