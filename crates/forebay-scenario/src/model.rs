//! One point of an experiment as types, with every default filled in: the input of every engine.

use std::sync::Arc;

use forebay_aqm::{Capacity, RateTrace};
use forebay_units::{
    Buffer, Bytes, ParamSpec, Params, QueueSite, Rate, SetPoint, Site, Span, Time,
};

use forebay_packets::Arrivals as Packets;

use crate::law_choice::LawChoice;
pub use crate::traffic_keys::{
    Cbr, External, Frames, Mice, OnOff, Pages, Pareto2, Tcp, Video, Voice, Web,
};
pub use crate::types::{EcnChoice, Instant, Offloads, Shaper, Stack};

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
    /// Round-trip propagation times, access links included; flows (or pairs of hosts) take the
    /// values of the list in turn.
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

/// Returns the numbers among the values of keys; keys without a value are left out.
fn numbers<P: Params>(keys: &P) -> Vec<KeyNumber> {
    let number = |spec: &ParamSpec| {
        Some(KeyNumber {
            name: spec.name,
            unit: spec.unit,
            number: keys.base(spec.name)?,
        })
    };
    P::SPECS.iter().filter_map(number).collect()
}

impl Traffic {
    /// Returns the payload of every data packet.
    pub fn payload(&self) -> Bytes {
        Bytes(self.packet.0 - self.header.0)
    }
}

/// The behaviour of the flows of a traffic.
#[derive(Clone, Debug)]
pub enum TrafficKind {
    /// A TCP connection with endless data.
    Ftp(Tcp),
    /// TCP connections with endless data that open and close again and again.
    Mice(Mice, Tcp),
    /// Packets at a constant rate.
    Cbr(Cbr),
    /// Sessions that request objects of random sizes, each over a connection of its own.
    Web(Web, Tcp, Pareto2),
    /// Sessions that load pages of objects, each over a connection of its own.
    Pages(Pages, Tcp, Pareto2),
    /// Bursts of packets.
    OnOff(OnOff),
    /// Calls.
    Voice(Voice),
    /// Periodic frames of several packets.
    Frames(Frames),
    /// Viewers of adaptive video, who fetch each segment over a connection of its own.
    Video(Video, Tcp),
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
            TrafficKind::Mice(..) => "mice",
            TrafficKind::Cbr(_) => "cbr",
            TrafficKind::Web(..) => "web",
            TrafficKind::Pages(..) => "pages",
            TrafficKind::OnOff(_) => "onoff",
            TrafficKind::Voice(_) => "voice",
            TrafficKind::Frames(_) => "frames",
            TrafficKind::Video(..) => "video",
            TrafficKind::Arrivals(_) => "arrivals",
            TrafficKind::External(_) => EXTERNAL,
            TrafficKind::Program(_) => "program",
        }
    }

    /// Returns the ECN capability of its packets.
    pub fn ecn(&self) -> EcnChoice {
        match self {
            TrafficKind::Cbr(Cbr { ecn: true, .. })
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
            TrafficKind::Ftp(tcp)
            | TrafficKind::Mice(_, tcp)
            | TrafficKind::Web(_, tcp, _)
            | TrafficKind::Pages(_, tcp, _)
            | TrafficKind::Video(_, tcp) => Some(tcp),
            TrafficKind::Cbr(_)
            | TrafficKind::OnOff(_)
            | TrafficKind::Voice(_)
            | TrafficKind::Frames(_)
            | TrafficKind::Arrivals(_)
            | TrafficKind::External(_)
            | TrafficKind::Program(_) => None,
        }
    }

    /// Returns the numbers among the keys of the kind itself, and not of its TCP connections.
    pub fn numbers(&self) -> Vec<KeyNumber> {
        match self {
            TrafficKind::Mice(mice, _) => numbers(mice),
            TrafficKind::Cbr(cbr) => numbers(cbr),
            TrafficKind::Web(web, _, size) => [numbers(web), numbers(size)].concat(),
            TrafficKind::Pages(pages, _, size) => [numbers(pages), numbers(size)].concat(),
            TrafficKind::OnOff(onoff) => numbers(onoff),
            TrafficKind::Voice(voice) => numbers(voice),
            TrafficKind::Frames(frames) => numbers(frames),
            TrafficKind::Video(video, _) => numbers(video),
            TrafficKind::Arrivals(recorded) => recorded.numbers(),
            TrafficKind::External(external) => numbers(external),
            TrafficKind::Ftp(_) | TrafficKind::Program(_) => Vec::new(),
        }
    }
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

/// Packets of a capture or a list. Times count from the start of the traffic.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// Its name as the scenario has it.
    pub file: String,
    /// The packets.
    pub packets: Arc<Packets>,
    /// The size into which larger packets are split.
    pub mtu: Bytes,
    /// Factor on times.
    pub scale: f64,
    /// The file starts again at each multiple of it.
    pub period: Option<Span>,
}

impl Recorded {
    /// Returns the time that the packets take, in s.
    pub fn length_s(&self) -> f64 {
        self.packets.length().as_secs_f64() * self.scale
    }

    /// Returns the numbers of the recording and of its keys.
    fn numbers(&self) -> Vec<KeyNumber> {
        let number = |name, unit, number| KeyNumber { name, unit, number };
        let mut numbers = vec![
            number("packets", "", self.packets.packets.len() as f64),
            number("length", "s", self.length_s()),
            number("mtu", "B", self.mtu.0 as f64),
            number("scale", "", self.scale),
        ];
        let period = self.period.map(Span::as_secs_f64);
        numbers.extend(period.map(|period_s| number("period", "s", period_s)));
        numbers
    }
}

/// Name of the kind of traffic whose packets the caller sends.
pub const EXTERNAL: &str = "external";

/// Something that changes while the simulation runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The time of the change.
    pub at: Time,
    /// The quantity that changes, and its new value.
    pub what: Setting,
}

impl Change {
    /// Returns the new number of flows of the traffic with this index, if the change sets it.
    pub fn flows_of(&self, index: usize) -> Option<u32> {
        match self.what {
            Setting::Flows { traffic, flows } if traffic == index => Some(flows),
            _ => None,
        }
    }
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
