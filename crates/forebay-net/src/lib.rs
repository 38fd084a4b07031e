//! Simulated network for tests of transports: a complete path in virtual time, without sockets or
//! threads.
//!
//! A scenario describes the links, their queues and laws, and simulated cross traffic. The packets
//! of each `[[traffic]]` with `kind = "external"` come from the caller, at both ends. The caller
//! [sends](Network::send) and [polls](Network::poll). Time passes only while polling. The same
//! scenario, seed and calls give the same results, bit for bit.
//!
//! # Central types
//!
//! - [`Network`] is the network; its [`Event`]s say which packets were delivered or lost.
//! - A [`Payload`] is what the caller sends: bytes, or a [`Handle`] for packets without contents.
//! - [`drive`] is an event loop for transports that implement [`Endpoint`].
//! - [`Report`] has the metrics of a run; [`rfc7928`] has the scenarios of RFC 7928.
//!
//! # Example
//!
//! ```
//! use forebay_net::{Ecn, End, Event, Network, Span, Time};
//!
//! let scenario = r#"
//!     duration = "10s"
//!     [bottleneck]
//!     rate   = "10Mbit/s"
//!     buffer = "100p"
//!     [[traffic]]
//!     kind  = "external"  # one flow: yours
//!     flows = 1
//!     rtt   = "40ms"
//!     [[traffic]]
//!     kind  = "ftp"       # 20 others
//!     flows = 20
//!     rtt   = "40ms"
//!     tcp   = "linux-cubic"
//!     [[law]]
//!     kind = "fq-codel"
//! "#;
//! let mut network = Network::from_toml(scenario, 1)?;
//! let mut now = Time::ZERO + Span::from_secs(1);
//! network.send(0, End::Source, now, b"ping".to_vec(), Ecn::Ect0)?;
//! loop {
//!     match network.poll(now + Span::from_secs(1)) {
//!         Event::Delivered(packet) if packet.to == End::Sink => {
//!             network.send(0, End::Sink, packet.at, b"pong".to_vec(), Ecn::NotEct)?;
//!         }
//!         Event::Delivered(_) => break, // the answer
//!         Event::Lost(packet) => panic!("lost: {:?}", packet.why),
//!         Event::Time(at) => now = at, // here a transport's timers run
//!         Event::End(_) => panic!("no answer in 10 s"),
//!     }
//! }
//! # Ok::<(), forebay_net::Error>(())
//! ```

//!
//! # Where to start reading
//!
//! This file has the whole interface; `recording.rs` writes captures and logs of events. The
//! simulator behind it is [`forebay_sim::Session`]. docs/howto/your-stack.md shows how to test a
//! transport.

#![warn(missing_docs)]
#![forbid(unsafe_code)]

mod drive;
mod escape;
mod recording;
mod report;
pub mod rfc7928;

use std::io;
use std::path::Path;
use std::sync::Arc;

use forebay_scenario::{parse, Point, Scenario, Traffic, TrafficKind};
use forebay_sim::{Outgoing, Session};
use slab::Slab;

pub use drive::{drive, Endpoint, Endpoints};
pub use forebay_aqm::{DropReason, Ecn};
pub use forebay_scenario::{Options, ScenarioError};
pub use forebay_sim::{End, Loss};
pub use forebay_trace::{Metrics, RunTrace, TrafficMetrics};
pub use forebay_units::{ParamError, Span, Time};
pub use report::Report;

use recording::Recording;

/// The name of scenarios in error messages.
const FILE: &str = "scenario";

/// The contents of a packet, of which the network needs only the length.
///
/// Byte strings are payloads. A [`Handle`] stands for bytes that the caller keeps, or that nobody
/// needs.
pub trait Payload {
    /// Returns the length in bytes, without the headers that the scenario adds.
    fn length(&self) -> usize;

    /// Returns the bytes for a [capture](Network::record); the default has none.
    fn bytes(&self) -> &[u8] {
        &[]
    }
}

impl<T: AsRef<[u8]>> Payload for T {
    fn length(&self) -> usize {
        self.as_ref().len()
    }

    fn bytes(&self) -> &[u8] {
        self.as_ref()
    }
}

/// A payload without its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Handle {
    /// A number of the caller, which comes back with the packet.
    pub number: u64,
    /// The length of the payload, in bytes.
    pub length: usize,
}

impl Payload for Handle {
    fn length(&self) -> usize {
        self.length
    }
}

/// A packet that has reached the other end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivered<P> {
    /// The time at which the last byte arrived.
    pub at: Time,
    /// Number of its flow.
    pub flow: u32,
    /// The end that received it.
    pub to: End,
    /// The ECN field on arrival: [`Ecn::Ce`] where a queue has marked the packet.
    pub ecn: Ecn,
    /// The payload as it was sent.
    pub payload: P,
}

/// A packet that was lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost<P> {
    /// The time of the loss.
    pub at: Time,
    /// Number of its flow.
    pub flow: u32,
    /// The end that sent it.
    pub from: End,
    /// The reason of the loss.
    pub why: Loss,
    /// The payload as it was sent.
    pub payload: P,
}

/// The result of [`Network::poll`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event<P> {
    /// A packet was delivered.
    Delivered(Delivered<P>),
    /// A packet was lost. A transport must not use this event; a test may.
    Lost(Lost<P>),
    /// The time that was polled for; no packet was delivered or lost up to it.
    Time(Time),
    /// The scenario has ended at this time. All later polls return this event.
    End(Time),
}

/// An error, whose text is one line.
#[derive(Clone, Debug, PartialEq)]
pub enum Error {
    /// The scenario is wrong; the error has the line.
    Scenario(ScenarioError),
    /// An argument of a call, or the choice of a law, is wrong.
    Call(ParamError),
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match self {
            Error::Scenario(error) => error.fmt(f),
            Error::Call(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {}

impl From<ScenarioError> for Error {
    fn from(error: ScenarioError) -> Error {
        Error::Scenario(error)
    }
}

impl From<ParamError> for Error {
    fn from(error: ParamError) -> Error {
        Error::Call(error)
    }
}

/// The data of an external traffic.
struct External {
    label: String,
    first: u32,
    flows: u32,
    /// The bytes that are added to every payload.
    header_bytes: usize,
    largest_bytes: usize,
}

impl External {
    /// Returns the data of a traffic whose first flow has the number `first`.
    fn of(traffic: &Traffic, first: u32) -> External {
        let whole = |bytes: u64| usize::try_from(bytes).expect("a scenario has small packets");
        External {
            label: traffic.label.clone(),
            first,
            flows: traffic.flows,
            header_bytes: whole(traffic.header.0),
            largest_bytes: whole(traffic.packet.0),
        }
    }
}

/// A simulated network with external flows, whose packets come from the caller.
///
/// The external flows have numbers from 0, in the order of the scenario. A time before the latest
/// one that the network has seen counts as the latest.
pub struct Network<P = Vec<u8>> {
    session: Session,
    scenario: Arc<Scenario>,
    target_pkts: Option<f64>,
    external: Vec<External>,
    under_way: Slab<UnderWay<P>>,
    sent: u64,
    recording: Option<Box<Recording>>,
    now: Time,
}

/// A packet that was sent and is neither delivered nor lost yet.
struct UnderWay<P> {
    /// The number of packets that were sent before it.
    number: u64,
    payload: P,
}

impl<P: Payload> Network<P> {
    /// Makes the network of a scenario in TOML, which has one law and no sweep. `seed` is the seed
    /// of all random numbers.
    ///
    /// # Errors
    /// The scenario is wrong, has several laws or points, or has no external traffic.
    pub fn from_toml(scenario: &str, seed: u64) -> Result<Network<P>, Error> {
        Network::with_options(scenario, &Options::default(), seed)
    }

    /// Makes the network of a scenario with changes as from the command line: another law
    /// ([`Options::laws`]), other values of keys ([`Options::sets`]), and the contents of files
    /// that the scenario names ([`Options::files`]).
    ///
    /// # Errors
    /// Those of [`from_toml`](Network::from_toml).
    pub fn with_options(scenario: &str, options: &Options, seed: u64) -> Result<Network<P>, Error> {
        let options = Options {
            external: true,
            ..options.clone()
        };
        let experiment = parse(scenario.as_bytes(), FILE, &options)?;
        let [point] = experiment.points.as_slice() else {
            let reason = format!("the scenario has {} points", experiment.points.len());
            let expected = "one point, with a value for each swept key in Options::sets";
            return Err(ParamError::stated("sweep", reason, expected).into());
        };
        let [_] = point.laws.as_slice() else {
            let reason = format!("the scenario has the laws {}", experiment.laws.join(", "));
            let expected = "one law, in the scenario or in Options::laws";
            return Err(ParamError::stated("law", reason, expected).into());
        };
        Ok(Network::of_point(point, seed)?)
    }

    /// Makes the network of a point of an experiment, which was read with [`Options::external`],
    /// with the first law of the point.
    ///
    /// # Errors
    /// The point has no law or no external traffic.
    pub fn of_point(point: &Point, seed: u64) -> Result<Network<P>, ParamError> {
        let Some(law) = point.laws.first() else {
            return Err(ParamError::missing("law", "a law"));
        };
        let scenario = Arc::new(point.scenario.clone());
        let mut external = Vec::new();
        let mut first = 0;
        for traffic in &scenario.traffic {
            if matches!(traffic.kind, TrafficKind::External(_)) {
                external.push(External::of(traffic, first));
                first += traffic.flows;
            }
        }
        if external.is_empty() {
            let reason = "the caller has no packets to send";
            let expected = "a [[traffic]] of kind \"external\"";
            return Err(ParamError::stated("traffic", reason, expected));
        }
        let of_law = || law.target_pkts(&scenario.site());
        Ok(Network {
            session: Session::new(&scenario, &law.aqm(), seed)?,
            target_pkts: scenario.target_pkts().or_else(of_law),
            scenario,
            external,
            under_way: Slab::new(),
            sent: 0,
            recording: None,
            now: Time::ZERO,
        })
    }

    /// Returns the number of external flows.
    pub fn flows(&self) -> u32 {
        self.external.iter().map(|traffic| traffic.flows).sum()
    }

    /// Returns the numbers of the flows of the external traffic with this label; `None` where there
    /// is none. The default label is "external".
    pub fn flows_of(&self, label: &str) -> Option<std::ops::Range<u32>> {
        let traffic = self
            .external
            .iter()
            .find(|traffic| traffic.label == label)?;
        Some(traffic.first..traffic.first + traffic.flows)
    }

    /// Returns the largest payload of a flow, in bytes; 0 where there is no such flow.
    pub fn most_bytes(&self, flow: u32) -> usize {
        let traffic = self.of_flow(flow);
        traffic.map_or(0, |traffic| {
            traffic.largest_bytes.saturating_sub(traffic.header_bytes)
        })
    }

    /// Returns the present time: that of the last event, or of the last packet sent after it.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Returns the end of the scenario.
    pub fn end(&self) -> Time {
        Time::ZERO + self.scenario.duration
    }

    /// Returns the number of packets that were sent and are neither delivered nor lost yet.
    pub fn under_way(&self) -> usize {
        self.under_way.len()
    }

    /// Sends a packet from an end of a flow at the time `now`. [`poll`](Network::poll) returns its
    /// fate.
    ///
    /// # Errors
    /// The flow does not exist, the packet has no byte or more than the scenario's `packet`, or the
    /// time is after the end of the scenario.
    pub fn send(
        &mut self,
        flow: u32,
        from: End,
        now: Time,
        payload: P,
        ecn: Ecn,
    ) -> Result<(), ParamError> {
        let Some(traffic) = self.of_flow(flow) else {
            let expected = format!("the number of a flow, below {}", self.flows());
            return Err(ParamError::new("flow", flow, expected));
        };
        let bytes = payload.length().saturating_add(traffic.header_bytes);
        let sent = u16::try_from(bytes).ok();
        let fits = |bytes: &u16| (1..=traffic.largest_bytes).contains(&usize::from(*bytes));
        let Some(bytes) = sent.filter(fits) else {
            let expected = format!(
                "a size from 1 B to {} B, including headers of {} B",
                traffic.largest_bytes, traffic.header_bytes
            );
            return Err(ParamError::new("packet", format!("{bytes} B"), expected));
        };
        if now > self.end() {
            let expected = format!("at most {}, the end of the scenario", self.end());
            return Err(ParamError::new("now", now, expected));
        }
        self.now = self.now.max(now);
        let number = self.sent;
        let number = self.under_way.insert(UnderWay { number, payload });
        self.sent += 1;
        let packet = Outgoing {
            flow,
            from,
            bytes,
            ecn,
            number: u32::try_from(number).expect("fewer than 2^32 packets under way"),
        };
        self.session.send(self.now, &packet);
        Ok(())
    }

    /// Lets time pass until a packet is delivered or lost, and at most until `until`.
    pub fn poll(&mut self, until: Time) -> Event<P> {
        let until = until.max(self.now).min(self.end());
        let outcome = self.session.next_outcome(until);
        self.write_recording();
        let Some(outcome) = outcome else {
            self.now = self.now.max(until);
            return match until == self.end() {
                true => Event::End(until),
                false => Event::Time(until),
            };
        };
        self.now = self.now.max(outcome.at);
        let UnderWay { payload, .. } = self.under_way.remove(outcome.number as usize);
        let (at, flow, from) = (outcome.at, outcome.flow, outcome.from);
        match outcome.fate {
            Ok(ecn) => Event::Delivered(Delivered {
                at,
                flow,
                to: from.other(),
                ecn,
                payload,
            }),
            Err(reason) => Event::Lost(Lost {
                at,
                flow,
                from,
                why: reason,
                payload,
            }),
        }
    }

    /// Records the caller's packets from now on, until the network is [finished](Network::finish)
    /// or [`end_recording`](Network::end_recording) is called.
    ///
    /// `capture` is a pcapng file with each packet at the time at which it left the bottleneck's
    /// queue, or was dropped there, which a comment says. `events` is a file of JSON lines with an
    /// event for each packet that enters a queue, leaves it, is marked or is dropped.
    /// docs/howto/your-stack.md describes both formats.
    ///
    /// # Errors
    /// A file cannot be created. Nothing is recorded then.
    pub fn record(&mut self, capture: Option<&Path>, events: Option<&Path>) -> io::Result<()> {
        self.end_recording()?;
        if capture.is_some() || events.is_some() {
            let links = self.scenario.links.iter();
            let names = links.map(|link| link.name.clone()).collect();
            self.recording = Some(Box::new(Recording::create(capture, events, names)?));
            self.session.log_queues();
            self.session.take_queue_log();
        }
        Ok(())
    }

    /// Returns whether the caller's packets are [recorded](Network::record).
    pub fn is_recording(&self) -> bool {
        self.recording.is_some()
    }

    /// Ends a recording and closes its files.
    ///
    /// # Errors
    /// The first error with which one of the files could not be written.
    pub fn end_recording(&mut self) -> io::Result<()> {
        self.write_recording();
        self.recording
            .take()
            .map_or(Ok(()), |recording| recording.finish())
    }

    /// Writes the events at queues since the last call.
    fn write_recording(&mut self) {
        let Some(recording) = &mut self.recording else {
            return;
        };
        for event in self.session.take_queue_log() {
            let packet = self.under_way.get(event.number as usize);
            let (number, payload) = packet.map_or((0, [].as_slice()), |packet| {
                (packet.number, packet.payload.bytes())
            });
            let header_bytes = (self.external.iter())
                .find(|traffic| {
                    (traffic.first..traffic.first + traffic.flows).contains(&event.flow)
                })
                .map_or(0, |traffic| traffic.header_bytes);
            recording.take(&event, number, payload, header_bytes);
        }
    }

    /// Runs the scenario to its end, in which only its simulated traffic sends, and returns the
    /// metrics. A recording ends too.
    pub fn finish(mut self) -> Report {
        self.session.run_until(self.end());
        let recording = self.end_recording();
        let trace = self.session.finish();
        Report::of(trace, &self.scenario, self.target_pkts, recording)
    }

    /// Returns the external traffic of a flow.
    fn of_flow(&self, flow: u32) -> Option<&External> {
        let mut external = self.external.iter();
        external.find(|traffic| (traffic.first..traffic.first + traffic.flows).contains(&flow))
    }
}
