//! A network for tests of transports: a whole path in virtual time, without sockets or threads.
//!
//! A scenario has the links, their queues and laws, and the simulated traffic beside; one
//! `[[traffic]]` of it, or several, has `kind = "external"`: its packets are the caller's, from both
//! ends. The caller [sends](Network::send) and [polls](Network::poll), and no time passes but by
//! polling. The same scenario, seed and calls give the same answers, bit for bit.
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

/// What scenarios are called in errors.
const FILE: &str = "scenario";

/// What a caller sends: something with a length.
///
/// Bytes have theirs. [`Handle`] stands for bytes that the caller keeps, or that nobody needs.
pub trait Payload {
    /// Its length in bytes, without the headers that the scenario adds.
    fn length(&self) -> usize;

    /// Its bytes, for a [capture](Network::record); none where nobody has them.
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
    /// The caller's; comes back with the packet.
    pub number: u64,
    /// In bytes.
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
    /// When its last byte is there.
    pub at: Time,
    /// Number of its flow.
    pub flow: u32,
    /// The end that it has reached.
    pub to: End,
    /// As it is now: [`Ecn::Ce`] where a queue has marked it.
    pub ecn: Ecn,
    /// As it was sent.
    pub payload: P,
}

/// A packet that does not reach the other end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost<P> {
    /// When it was lost.
    pub at: Time,
    /// Number of its flow.
    pub flow: u32,
    /// The end that has sent it.
    pub from: End,
    /// Who lost it.
    pub why: Loss,
    /// As it was sent.
    pub payload: P,
}

/// What [`Network::poll`] finds first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event<P> {
    /// A packet reaches the other end.
    Delivered(Delivered<P>),
    /// A packet is lost. No transport may learn of it so; tests may.
    Lost(Lost<P>),
    /// Nothing has happened up to this time, the one that was asked for.
    Time(Time),
    /// The scenario is over, at this time; so it is from now on.
    End(Time),
}

/// What is wrong, in one line.
#[derive(Clone, Debug, PartialEq)]
pub enum Error {
    /// A fault of the scenario, with its line.
    Scenario(ScenarioError),
    /// A fault of a call, or of the choice of a law.
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

/// What the caller's flows have in common.
struct External {
    label: String,
    first: u32,
    flows: u32,
    /// Added to every payload.
    header_bytes: usize,
    largest_bytes: usize,
}

impl External {
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

/// A simulated network, whose external flows are the caller's.
///
/// Flows have numbers from 0, over all external traffic in the order of the scenario. Time never
/// goes back: an earlier time counts as the latest that the network has seen.
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

/// A packet that was sent and has not come out yet.
struct UnderWay<P> {
    /// How many were sent before it.
    number: u64,
    payload: P,
}

impl<P: Payload> Network<P> {
    /// The network of a scenario with one law and one point. `seed` is that of all random draws.
    ///
    /// # Errors
    /// A fault of the scenario; one with several laws or points; one without external traffic.
    pub fn from_toml(scenario: &str, seed: u64) -> Result<Network<P>, Error> {
        Network::with_options(scenario, &Options::default(), seed)
    }

    /// As [`from_toml`](Network::from_toml), with changes as from the command line: another law
    /// ([`Options::laws`]), other values of keys ([`Options::sets`]), the contents of files that it
    /// names ([`Options::files`]).
    ///
    /// # Errors
    /// As [`from_toml`](Network::from_toml).
    pub fn with_options(scenario: &str, options: &Options, seed: u64) -> Result<Network<P>, Error> {
        let options = Options {
            external: true,
            ..options.clone()
        };
        let experiment = parse(scenario.as_bytes(), FILE, &options)?;
        let [point] = experiment.points.as_slice() else {
            let found = format!("{} points", experiment.points.len());
            let allowed = "one: what is swept has a value in Options::sets";
            return Err(ParamError::new("sweep", found, allowed).into());
        };
        let [_] = point.laws.as_slice() else {
            let found = experiment.laws.join(", ");
            let allowed = "one law, in the scenario or in Options::laws";
            return Err(ParamError::new("law", found, allowed).into());
        };
        Ok(Network::of_point(point, seed)?)
    }

    /// The network of a scenario that was read elsewhere, with [`Options::external`], under the first
    /// law of this point.
    ///
    /// # Errors
    /// No law, or no external traffic.
    pub fn of_point(point: &Point, seed: u64) -> Result<Network<P>, ParamError> {
        let Some(law) = point.laws.first() else {
            return Err(ParamError::new("law", "nothing", "a law"));
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
            let found = "nothing for the caller to send";
            let allowed = "a [[traffic]] of kind \"external\"";
            return Err(ParamError::new("traffic", found, allowed));
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

    /// How many flows the caller has.
    pub fn flows(&self) -> u32 {
        self.external.iter().map(|traffic| traffic.flows).sum()
    }

    /// Numbers of the flows of the external traffic with this label; by default the label is
    /// "external".
    pub fn flows_of(&self, label: &str) -> Option<std::ops::Range<u32>> {
        let traffic = self.external.iter().find(|it| it.label == label)?;
        Some(traffic.first..traffic.first + traffic.flows)
    }

    /// The longest payload of this flow, in bytes; 0 where there is no such flow.
    pub fn most_bytes(&self, flow: u32) -> usize {
        let traffic = self.of_flow(flow);
        traffic.map_or(0, |it| it.largest_bytes.saturating_sub(it.header_bytes))
    }

    /// The time: of the last event, or of the last packet that was sent after it.
    pub fn now(&self) -> Time {
        self.now
    }

    /// When the scenario ends.
    pub fn end(&self) -> Time {
        Time::ZERO + self.scenario.duration
    }

    /// Packets that were sent and have not come out yet.
    pub fn under_way(&self) -> usize {
        self.under_way.len()
    }

    /// Sends a packet from an end of a flow. What comes of it, [`poll`](Network::poll) tells.
    ///
    /// # Errors
    /// No such flow; a packet that has no byte, or more than the scenario's `packet`; a time after the
    /// end of the scenario.
    pub fn send(
        &mut self,
        flow: u32,
        from: End,
        now: Time,
        payload: P,
        ecn: Ecn,
    ) -> Result<(), ParamError> {
        let Some(traffic) = self.of_flow(flow) else {
            let allowed = format!("a number below {}", self.flows());
            return Err(ParamError::new("flow", flow, allowed));
        };
        let bytes = payload.length().saturating_add(traffic.header_bytes);
        let sent = u16::try_from(bytes).ok();
        let fits = |bytes: &u16| (1..=traffic.largest_bytes).contains(&usize::from(*bytes));
        let Some(bytes) = sent.filter(fits) else {
            let allowed = format!(
                "1 B to {} B, headers of {} B included",
                traffic.largest_bytes, traffic.header_bytes
            );
            return Err(ParamError::new("packet", format!("{bytes} B"), allowed));
        };
        if now > self.end() {
            let allowed = format!("at most {}, the end of the scenario", self.end());
            return Err(ParamError::new("now", now, allowed));
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

    /// Lets time pass until a packet arrives or is lost, and no further than `until`.
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
            Err(why) => Event::Lost(Lost {
                at,
                flow,
                from,
                why,
                payload,
            }),
        }
    }

    /// Records what becomes of the caller's packets from now on, until the network is
    /// [finished](Network::finish) or [`end_recording`](Network::end_recording) is called: `capture` is a
    /// file of pcapng that takes each of them as it leaves the bottleneck's queue, with its ECN field, or
    /// is dropped there, with a comment; `events` is a file of lines of JSON, one for each packet that
    /// joins a queue, leaves one, is marked or dropped. The page docs/howto/your-stack.md has both formats.
    /// Without this call nothing is kept, and it costs nothing.
    ///
    /// # Errors
    /// A file that cannot be made. Nothing is recorded then.
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

    /// True if what becomes of the caller's packets is [recorded](Network::record).
    pub fn is_recording(&self) -> bool {
        self.recording.is_some()
    }

    /// Ends a recording and closes its files.
    ///
    /// # Errors
    /// The first error with which one of the files could not be written.
    pub fn end_recording(&mut self) -> io::Result<()> {
        self.write_recording();
        self.recording.take().map_or(Ok(()), |it| it.finish())
    }

    /// Writes what has happened at queues since the last call.
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
                .find(|it| (it.first..it.first + it.flows).contains(&event.flow))
                .map_or(0, |it| it.header_bytes);
            recording.take(&event, number, payload, header_bytes);
        }
    }

    /// Runs to the end of the scenario, where nothing more is sent but by its own traffic, and says
    /// what was measured. A recording ends as well.
    pub fn finish(mut self) -> Report {
        self.session.run_until(self.end());
        let recording = self.end_recording();
        let trace = self.session.finish();
        Report::of(trace, &self.scenario, self.target_pkts, recording)
    }

    fn of_flow(&self, flow: u32) -> Option<&External> {
        let mut all = self.external.iter();
        all.find(|it| (it.first..it.first + it.flows).contains(&flow))
    }
}
