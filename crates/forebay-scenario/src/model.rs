//! What a simulation needs to know: one point of an experiment, with every default filled in.

use forebay_core::discipline::Buffer;
use forebay_core::{Bytes, LawSpec, ParamError, Rate, Site, Span, Time, Value};

/// One point of an experiment, before a law and a seed are chosen.
#[derive(Clone, Debug)]
pub struct Scenario {
    pub title: String,
    pub source: String,
    pub duration: Span,
    /// Metrics are taken over (start, end].
    pub measure: (Time, Time),
    /// Time between two samples of the queue.
    pub sample: Span,
    /// Set-point that QACD is taken against; a law's own `target` where absent.
    pub target_pkts: Option<f64>,
    pub bottleneck: Bottleneck,
    pub traffic: Vec<Traffic>,
    /// In order of time.
    pub changes: Vec<Change>,
}

/// The queue under test and its link.
#[derive(Clone, Debug)]
pub struct Bottleneck {
    pub rate: Rate,
    /// One way.
    pub delay: Span,
    pub buffer: Buffer,
    /// Whether a signal may be a CE mark on an ECN-capable packet.
    pub ecn: bool,
}

/// A set of like flows.
#[derive(Clone, Debug)]
pub struct Traffic {
    /// Name in reports; "ftp" or "mice 2" where the file gives none.
    pub label: String,
    pub flows: u32,
    /// Size on the wire of every data packet.
    pub packet: Bytes,
    /// Propagation time both ways, access links and bottleneck together; flows (or pairs) take
    /// the list in turn.
    pub rtts: Vec<Span>,
    /// Rate of the access links at both ends.
    pub access: Rate,
    /// Flow f uses source and sink f mod n of this many; `None` gives each flow its own.
    pub pairs: Option<u32>,
    /// Traffic of one group shares its pairs.
    pub group: Option<String>,
    pub start: Instant,
    /// When the application stops offering new data; what is outstanding is still delivered.
    pub stop: Option<Instant>,
    pub kind: TrafficKind,
}

/// A time per flow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Instant {
    At(Time),
    /// Drawn for each flow.
    Uniform(Time, Time),
}

/// How a flow behaves.
#[derive(Clone, Debug)]
pub enum TrafficKind {
    /// A TCP connection with endless data.
    Ftp(Tcp),
    /// TCP connections with endless data for Exp(`on`), then silence for Exp(`off`); each flow
    /// starts silent.
    Mice {
        tcp: Tcp,
        on: Span,
        off: Span,
        /// A new connection keeps what ns-2's agents do not reset.
        ns2_reset: bool,
    },
    /// Packets at a constant rate without congestion control; `rate` is per flow.
    Cbr { rate: Rate, ecn: bool },
}

/// A TCP sender and its receiver.
#[derive(Clone, Debug)]
pub struct Tcp {
    pub recovery: Recovery,
    pub ecn: bool,
    /// Receiver's window, and so the initial slow-start threshold, in packets.
    pub window_pkts: u32,
    /// Window after the handshake, in packets (RFC 5681 section 3.1).
    pub initial_window_pkts: u32,
    pub min_rto: Span,
    /// Acknowledge every second packet, or after 100 ms (RFC 5681 section 4.2).
    pub delayed_ack: bool,
    /// Send a new packet on each of the first two duplicate ACKs (RFC 3042).
    pub limited_transmit: bool,
}

/// How a sender recovers from loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovery {
    Reno,
    NewReno,
    Sack,
}

/// Something that changes while the simulation runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    pub at: Time,
    pub what: Setting,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Setting {
    Rate(Rate),
    Delay(Span),
    Buffer(Buffer),
    /// How many flows of `traffic[index]` are active; the rest have stopped, or not started.
    Flows {
        traffic: usize,
        flows: u32,
    },
}

/// A law with the parameters given for it.
#[derive(Clone)]
pub struct LawChoice {
    /// Name in reports; the kind where the file gives none, with a number if it stands twice.
    pub label: String,
    pub spec: &'static LawSpec,
    pub given: Vec<(String, Value)>,
}

impl LawChoice {
    /// The set-point of this law in packets, if it has one.
    pub fn target_pkts(&self) -> Option<f64> {
        let resolved = self.spec.resolve(&self.given).ok()?;
        let (_, value) = resolved.into_iter().find(|(name, _)| *name == "target")?;
        let packets: forebay_core::Packets =
            forebay_core::param::ParamType::from_value(&value).ok()?;
        Some(packets.0)
    }

    /// A fresh law.
    ///
    /// # Errors
    /// A parameter that does not fit the others or the queue.
    pub fn build(&self, site: &Site) -> Result<Box<dyn forebay_core::Law>, ParamError> {
        self.spec.build(&self.given, site)
    }
}

impl Scenario {
    /// The usual packet is the largest that any traffic sends.
    pub fn packet(&self) -> Bytes {
        self.traffic
            .iter()
            .map(|traffic| traffic.packet)
            .max()
            .unwrap_or(Bytes(1000))
    }

    /// Where the law is put.
    pub fn site(&self) -> Site {
        let packet = self.packet();
        Site {
            rate: self.bottleneck.rate,
            buffer_pkts: match self.bottleneck.buffer {
                Buffer::Packets(packets) => f64::from(packets),
                Buffer::Bytes(bytes) => bytes as f64 / packet.0 as f64,
            },
            packet,
        }
    }
}
