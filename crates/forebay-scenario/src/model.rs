//! One point of an experiment as types, with every default filled in: the input of every engine.

use std::sync::Arc;

use forebay_aqm::{Capacity, RateTrace};
use forebay_units::cast::whole_u64;
use forebay_units::{Buffer, Bytes, QueueSite, Rate, SetPoint, Site, Span, Time};

use forebay_packets::Arrivals as Packets;

use crate::law_choice::LawChoice;
use crate::senders::SenderSpec;

/// One point of an experiment, before a law and a seed are chosen.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The title.
    pub title: String,
    /// The publication that the scenario reproduces, or an empty text.
    pub source: String,
    /// The simulated time.
    pub duration: Span,
    /// Metrics are taken over (start, end].
    pub measure: (Time, Time),
    /// Time between two samples of the queue.
    pub sample: Span,
    /// Set-point from which QACD is computed; without it, the `target` of each law.
    pub target: Option<SetPoint>,
    /// Samples have the packets in flight of a mean flow of ftp.
    pub windows: bool,
    /// The links with a queue, by number: `[bottleneck]`, and then each `[[link]]`.
    pub links: Vec<Link>,
    /// The number of the link under test, `[bottleneck]`: a run's metrics are those of its queue.
    pub tested: usize,
    /// The traffic, by index.
    pub traffic: Vec<Traffic>,
    /// The changes during the run, in order of time.
    pub changes: Vec<Change>,
    /// The settings of hosts with a real kernel.
    pub kernel: KernelSettings,
}

/// The devices that split and join segments of several packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Offloads {
    /// Senders make none.
    #[default]
    Off,
    /// The sender's device cuts them, the receiver's joins packets.
    Hosts,
    /// Nothing cuts them on their way.
    All,
}

/// A qdisc that holds a link to its rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shaper {
    /// The token bucket filter tbf.
    #[default]
    Tbf,
    /// The hierarchical token bucket htb.
    Htb,
}

/// The settings of the hosts of a guest (`[kernel]`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelSettings {
    /// True if the scenario has a table `kernel`.
    pub given: bool,
    /// Congestion control of all flows, in place of their own.
    pub tcp: Option<String>,
    /// The segmentation offloads.
    pub offloads: Offloads,
    /// Over a queue of the kernel's.
    pub shaper: Shaper,
    /// By name: "net.ipv4.tcp_rmem".
    pub sysctls: Vec<(String, String)>,
    /// Keeps the packets of the bottleneck.
    pub pcap: bool,
}

/// A link in one direction, and the queue before it. The way back is another link, or, where
/// there is none, a line of the same delay that is never full.
#[derive(Clone, Debug)]
pub struct Link {
    /// Name in reports.
    pub name: String,
    /// Node where the queue is.
    pub from: String,
    /// Node at the far end.
    pub to: String,
    /// The rate of the link; the rate that the law assumes if `trace` drives the link.
    pub rate: Rate,
    /// The size of the token bucket, which may leave back to back after a pause; zero for none.
    pub burst: Bytes,
    /// Rate of the line back; by default that of the link.
    pub rate_back: Option<Rate>,
    /// The trace of times at which the link can send, in place of `rate`.
    pub trace: Option<Arc<RateTrace>>,
    /// One way.
    pub delay: Span,
    /// The size of the buffer.
    pub buffer: Buffer,
    /// True if a signal is a CE mark on ECN-capable packets.
    pub ecn: bool,
    /// The link's own law; without it, the law under test.
    pub law: Option<LawChoice>,
}

impl Link {
    /// The capacity of the link: the trace, or without a trace the rate, which is saved up while
    /// the link is idle if it has a burst.
    pub fn capacity(&self) -> Capacity {
        match &self.trace {
            Some(trace) => Capacity::Recorded(Arc::clone(trace)),
            None => Capacity::of(self.rate, self.burst),
        }
    }
}

/// A set of like flows.
#[derive(Clone, Debug)]
pub struct Traffic {
    /// Name in reports; "ftp" or "mice 2" where the file gives none.
    pub label: String,
    /// The number of flows.
    pub flows: u32,
    /// Size on the wire of every data packet.
    pub packet: Bytes,
    /// Headers of every data packet; goodput does not count them.
    pub header: Bytes,
    /// The links that its data crosses, by number, in order. ACKs take the same way back.
    pub path: Vec<usize>,
    /// Propagation time both ways, access links and path together; flows (or pairs) take the
    /// list in turn.
    pub rtts: Vec<Span>,
    /// Rate of the access links at both ends.
    pub access: Rate,
    /// The DSCP of every packet, ACKs included: 0 to 63.
    pub dscp: u8,
    /// Flow f uses source and sink f mod n of this many; `None` gives each flow its own.
    pub pairs: Option<u32>,
    /// Traffic of one group shares its pairs.
    pub group: Option<String>,
    /// The host at either end of its flows; `None` gives each flow its own.
    pub host: Option<String>,
    /// The time at which its flows start.
    pub start: Instant,
    /// The time at which the application stops sending new data; outstanding data is still
    /// delivered.
    pub stop: Option<Instant>,
    /// The behaviour of its flows.
    pub kind: TrafficKind,
    /// The numbers among the keys of its kind; keys without a value are left out.
    pub numbers: Vec<KeyNumber>,
}

/// A number that a key has, in the key's base unit: "s", "bit/s", "B", "p", or "" for a pure one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KeyNumber {
    /// The name of the key.
    pub name: &'static str,
    /// The base unit.
    pub unit: &'static str,
    /// The value in that unit.
    pub number: f64,
}

impl Traffic {
    /// Returns the payload of every data packet.
    pub fn payload(&self) -> Bytes {
        Bytes(self.packet.0 - self.header.0)
    }
}

/// A time per flow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Instant {
    /// The same time for every flow.
    At(Time),
    /// Drawn for each flow.
    Uniform(Time, Time),
}

/// The behaviour of the flows of a traffic.
#[derive(Clone, Debug)]
pub enum TrafficKind {
    /// A TCP connection with endless data.
    Ftp(Tcp),
    /// TCP connections with endless data for Exp(`on`), then silence for Exp(`off`); each flow
    /// starts silent.
    Mice {
        /// The sender and receiver.
        tcp: Tcp,
        /// The mean duration of a connection.
        on: Span,
        /// The mean pause between connections.
        off: Span,
        /// A new connection keeps what ns-2's agents do not reset.
        ns2_reset: bool,
    },
    /// Packets at a constant rate without congestion control; `rate` is per flow.
    Cbr {
        /// The rate of a flow.
        rate: Rate,
        /// True if the packets are ECN-capable.
        ecn: bool,
    },
    /// Sessions that request objects at Poisson times.
    Web(Web),
    /// Sessions that load pages of objects.
    Pages(Pages),
    /// Bursts of packets without congestion control.
    OnOff(OnOff),
    /// Calls.
    Voice(Voice),
    /// Periodic frames of several packets.
    Frames(Frames),
    /// Viewers of adaptive video.
    Video(Video),
    /// Recorded packets, which arrive directly at the first queue.
    Arrivals(Recorded),
    /// Packets that the caller sends.
    External(External),
    /// Programs of the user's, on a real kernel.
    Program(Program),
}

impl TrafficKind {
    /// Returns the name of the kind in scenarios.
    pub fn name(&self) -> &'static str {
        match self {
            TrafficKind::Ftp(_) => "ftp",
            TrafficKind::Mice { .. } => "mice",
            TrafficKind::Cbr { .. } => "cbr",
            TrafficKind::Web(_) => "web",
            TrafficKind::Pages(_) => "pages",
            TrafficKind::OnOff(_) => "onoff",
            TrafficKind::Voice(_) => "voice",
            TrafficKind::Frames(_) => "frames",
            TrafficKind::Video(_) => "video",
            TrafficKind::Arrivals(_) => "arrivals",
            TrafficKind::External(_) => EXTERNAL,
            TrafficKind::Program(_) => "program",
        }
    }

    /// Returns the ECN capability of its packets.
    pub fn ecn(&self) -> EcnChoice {
        match self {
            TrafficKind::Cbr { ecn: true, .. }
            | TrafficKind::OnOff(OnOff { ecn: true, .. })
            | TrafficKind::Voice(Voice { ecn: true, .. })
            | TrafficKind::Frames(Frames { ecn: true, .. })
            | TrafficKind::Program(Program { ecn: true, .. }) => EcnChoice::Classic,
            _ => self.tcp().map_or(EcnChoice::Off, |tcp| tcp.ecn),
        }
    }

    /// Returns the behaviour of its TCP connections; `None` without TCP.
    pub fn tcp(&self) -> Option<&Tcp> {
        match self {
            TrafficKind::Ftp(tcp) | TrafficKind::Mice { tcp, .. } => Some(tcp),
            TrafficKind::Web(web) => Some(&web.tcp),
            TrafficKind::Pages(pages) => Some(&pages.tcp),
            TrafficKind::Video(video) => Some(&video.tcp),
            TrafficKind::Cbr { .. }
            | TrafficKind::OnOff(_)
            | TrafficKind::Voice(_)
            | TrafficKind::Frames(_)
            | TrafficKind::Arrivals(_)
            | TrafficKind::External(_)
            | TrafficKind::Program(_) => None,
        }
    }
}

/// Each flow is a session that requests objects at Poisson times; each object is sent over a
/// fresh connection (bigdeli's web traffic).
#[derive(Clone, Debug)]
pub struct Web {
    /// The sender and receiver of each connection.
    pub tcp: Tcp,
    /// The mean rate of requests of a session, per second.
    pub requests_per_s: f64,
    /// The distribution of the size of an object.
    pub size: Pareto2,
    /// Most connections at one time; a request beyond them is lost.
    pub most_connections: u32,
}

/// Each flow is a session that loads one page after another, as in ns-2's PagePool/WebTraf with
/// times between pages counted from the end of a page. The request itself is not sent.
#[derive(Clone, Debug)]
pub struct Pages {
    /// The sender and receiver of each connection.
    pub tcp: Tcp,
    /// Pages of a session; no end where absent.
    pub pages: Option<u32>,
    /// Mean of the exponential time from the end of a page to the next.
    pub page_gap: Span,
    /// Objects of each page.
    pub objects: u32,
    /// Mean of the exponential time between the starts of a page's objects.
    pub object_gap: Span,
    /// The distribution of the size of an object.
    pub size: Pareto2,
}

/// Bursts of packets at `rate`, without congestion control (staqm, simulation 1).
#[derive(Clone, Debug)]
pub struct OnOff {
    /// The rate during a burst.
    pub rate: Rate,
    /// Mean length of a burst: Pareto with `on_shape`, exponential where that is absent.
    pub on: Span,
    /// The shape of the Pareto distribution of the length of a burst.
    pub on_shape: Option<f64>,
    /// Mean of the exponential time between bursts.
    pub off: Span,
    /// Mean of the geometric number of bursts of a flow; no end where absent.
    pub bursts: Option<f64>,
    /// The arrival process of flows, of which at most `flows` are active at a time; without it, all
    /// begin at their start.
    pub arrivals: Option<Arrivals>,
    /// True if the packets are ECN-capable.
    pub ecn: bool,
}

/// A call in one direction: a packet each `interval`, or if it has talk spurts, only during these.
#[derive(Clone, Copy, Debug)]
pub struct Voice {
    /// The rate of the coder, without headers.
    pub rate: Rate,
    /// The time between two packets.
    pub interval: Span,
    /// The times of talking and pausing; without them, the call never pauses.
    pub talk: Option<Talk>,
    /// True if the packets are ECN-capable.
    pub ecn: bool,
}

impl Voice {
    /// IPv4, UDP and RTP (RFC 3550).
    pub const HEADER: Bytes = Bytes(40);

    /// Returns the size of a packet, headers included.
    pub fn packet(&self) -> Bytes {
        let bits = self.rate.as_bps() as f64 * self.interval.as_secs_f64();
        Bytes(whole_u64((bits / 8.0).round()).max(1) + Voice::HEADER.0)
    }
}

/// Means of exponential talk spurts and pauses.
#[derive(Clone, Copy, Debug)]
pub struct Talk {
    /// The mean length of a talk spurt.
    pub talk: Span,
    /// The mean length of a pause.
    pub pause: Span,
}

/// Frames of several packets, which are sent at once at every `interval`.
#[derive(Clone, Copy, Debug)]
pub struct Frames {
    /// The number of packets of a frame.
    pub packets: u32,
    /// The time between two frames.
    pub interval: Span,
    /// True if the packets are ECN-capable.
    pub ecn: bool,
}

/// Words of a shell at both ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// The command at the client.
    pub client: String,
    /// The command at the server, if there is one.
    pub server: Option<String>,
    /// True if its packets may be ECN-capable.
    pub ecn: bool,
    /// Files in the programs' folder; if there are none, the programs run in the scenario's folder.
    pub files: Vec<ProgramFile>,
}

/// A file that programs may read, as from the scenario's folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramFile {
    /// The name in the scenario.
    pub name: String,
    /// Digest of the contents, on which a run depends.
    pub digest: String,
}

/// A viewer who fetches segment after segment, each over a fresh connection, at a rate that depends
/// on the level of the viewer's buffer (BBA-0).
#[derive(Clone, Debug)]
pub struct Video {
    /// The sender and receiver of each segment.
    pub tcp: Tcp,
    /// Playing time of a segment.
    pub segment: Span,
    /// The rates of the segments, from the lowest to the highest.
    pub ladder: Vec<Rate>,
    /// Most playing time that is held.
    pub buffer: Span,
    /// Up to this much, the lowest rate.
    pub reservoir: Span,
}

impl Video {
    /// The fraction of the buffer from which on a viewer fetches the highest rate.
    pub const UPPER: f64 = 0.9;
}

/// Packets of a capture or a list. Times count from the start of the traffic.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// Its name as the scenario has it.
    pub file: String,
    /// The packets.
    pub packets: Arc<Packets>,
    /// Factor on times.
    pub scale: f64,
    /// The file starts again at each multiple of it.
    pub period: Option<Span>,
}

/// Name of the kind of traffic whose packets the caller sends.
pub const EXTERNAL: &str = "external";

/// Packets that the caller sends, from either end, with a size and an ECN field of their own.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct External {
    /// Share of these packets that is lost at random behind their last queue, in either direction.
    pub loss: f64,
}

/// Poisson arrivals at the rate `per_s`·(1 + `swing`·cos(2π(t − `peak`)/`period`)).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Arrivals {
    /// The mean rate of arrivals, per second.
    pub per_s: f64,
    /// The relative amplitude of the rate, 0 to 1.
    pub swing: f64,
    /// The period of the rate.
    pub period: Span,
    /// A time at which the rate is highest.
    pub peak: Time,
}

/// A size with P(size > x) = (1 + x/scale)^−shape: Pareto of the second kind.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pareto2 {
    /// The shape.
    pub shape: f64,
    /// The scale.
    pub scale: Bytes,
}

/// ECN of TCP's packets, and how receivers report marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EcnChoice {
    /// Packets cannot be marked.
    Off,
    /// ECT(0); marks are echoed (RFC 3168).
    Classic,
    /// ECT(1); ACKs carry counts of marked packets (RFC 9331, RFC 9768).
    L4s,
}

/// The hosts whose habits are the defaults of a traffic's keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stack {
    /// The hosts of ns-2.
    Ns2,
    /// A present host with Linux.
    Linux,
}

/// A TCP sender and its receiver.
#[derive(Clone, Debug)]
pub struct Tcp {
    /// The congestion control and its stack.
    pub sender: &'static SenderSpec,
    /// The ECN capability.
    pub ecn: EcnChoice,
    /// Packets leave at a rate, instead of as ACKs come.
    pub pacing: bool,
    /// Linux's senders make segments of several packets.
    pub gso: bool,
    /// Receiver's window, and so the initial slow-start threshold, in packets.
    pub window_pkts: u32,
    /// Window after the handshake, in packets (RFC 5681 section 3.1).
    pub initial_window_pkts: u32,
    /// The least retransmission timeout.
    pub min_rto: Span,
    /// Acknowledge every second packet, or after `ack_delay` (RFC 5681 section 4.2).
    pub delayed_ack: bool,
    /// The longest delay of an ACK.
    pub ack_delay: Span,
    /// Number of initial ACKs sent without delay, as Linux's quick ACKs.
    pub quick_acks: u8,
    /// Send a new packet on each of the first two duplicate ACKs (RFC 3042).
    pub limited_transmit: bool,
}

/// Something that changes while the simulation runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The time of the change.
    pub at: Time,
    /// The quantity that changes, and its new value.
    pub what: Setting,
}

/// A quantity of the scenario with a new value.
#[derive(Clone, Debug, PartialEq)]
pub enum Setting {
    /// A property of a link.
    Link {
        /// The number of the link.
        link: usize,
        /// The property.
        what: LinkSetting,
    },
    /// The number of active flows of a traffic; the others have stopped, or not started.
    Flows {
        /// The index of the traffic.
        traffic: usize,
        /// The new number.
        flows: u32,
    },
}

/// A property of a link with a new value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LinkSetting {
    /// The rate.
    Rate(Rate),
    /// The propagation delay, one way.
    Delay(Span),
    /// The size of the buffer.
    Buffer(Buffer),
}

impl Scenario {
    /// Returns the size of the largest packet that any traffic sends.
    pub fn packet(&self) -> Bytes {
        self.traffic
            .iter()
            .map(|traffic| traffic.packet)
            .max()
            .unwrap_or(Bytes(1000))
    }

    /// Returns the link under test.
    pub fn tested_link(&self) -> &Link {
        &self.links[self.tested]
    }

    /// Returns the nodes that the data of `traffic` passes, in order.
    pub fn nodes(&self, traffic: &Traffic) -> Vec<&str> {
        let first = self.links[traffic.path[0]].from.as_str();
        let others = traffic
            .path
            .iter()
            .map(|&link| self.links[link].to.as_str());
        std::iter::once(first).chain(others).collect()
    }

    /// Returns the number of the link in the opposite direction between the same nodes.
    pub fn opposite(&self, link: usize) -> Option<usize> {
        let ends = |link: &Link| (link.from.clone(), link.to.clone());
        let (from, to) = ends(self.links.get(link)?);
        self.links
            .iter()
            .position(|other| other.from == to && other.to == from)
    }

    /// Returns the queues that the law under test acts on, in order of their links: those of the
    /// links without a law of their own.
    pub fn tested_queues(&self) -> Vec<QueueSite> {
        self.links
            .iter()
            .filter(|link| link.law.is_none())
            .map(|link| self.queue_site(link))
            .collect()
    }

    /// Returns the set-point for QACD in packets, if the scenario has one; see
    /// [`LawChoice::target_pkts`].
    pub fn target_pkts(&self) -> Option<f64> {
        self.target.map(|target| self.site().pkts(target))
    }

    /// Returns the queue of the link under test as its law sees it.
    pub fn site(&self) -> Site {
        self.site_of(self.tested_link())
    }

    /// Returns the queue of `link` as a law sees it.
    pub fn site_of(&self, link: &Link) -> Site {
        self.queue_site(link).law_site()
    }

    /// Returns the queue of `link` as a discipline sees it.
    pub fn queue_site(&self, link: &Link) -> QueueSite {
        QueueSite {
            rate: link.rate,
            buffer: link.buffer,
            packet: self.packet(),
            ecn: link.ecn,
        }
    }
}
