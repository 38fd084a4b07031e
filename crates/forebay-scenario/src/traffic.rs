//! `[[traffic]]`: sets of like flows.

use forebay_core::param::nearest;
use forebay_core::{params, Bytes, ParamSpec, Params, Rate, Span, Time};

use crate::document::Document;
use crate::error::Fault;
use crate::model::{
    Arrivals, EcnChoice, Instant, KeyNumber, Link, OnOff, Pages, Pareto2, Tcp, Traffic,
    TrafficKind, Web,
};
use crate::path::unique_labels;
use crate::senders::Sender;
use crate::tree::Section;
use crate::types::{Label, Maybe, WholePackets};

params! {
    /// Keys of every kind of traffic.
    pub struct FlowKeys {
        /// Name in reports; by default the kind.
        label: Maybe<Label> = Maybe(None), 0.0 => 0.0;
        /// Number of flows.
        flows: u32 = 100, 1.0 => 5e6, required;
        /// Size on the wire of every data packet, TCP and IP headers of 40 bytes included.
        packet: Bytes = Bytes(1000), 40.0 => 65535.0;
        /// Headers of every data packet, such as the 52 bytes of TCP over IPv4 with timestamps.
        /// Goodput does not count them; with 0 it counts whole packets.
        header: Bytes = Bytes(0), 0.0 => 65534.0;
        /// Nodes that the data passes, such as ["left", "right"]; ACKs come back the same way.
        /// By default the bottleneck's two ends.
        path: Maybe<Vec<Label>> = Maybe(None), 0.0 => 0.0;
        /// Propagation time both ways, access links and bottleneck together; flows (or pairs)
        /// take a list in turn.
        rtt: Vec<Span> = vec![Span::from_millis(100)], 0.0 => 1e3, required;
        /// Differentiated services code point of every packet, ACKs included (RFC 2474).
        dscp: u32 = 0, 0.0 => 63.0;
        /// Rate of the access links at both ends.
        access: Rate = Rate::from_bps(100_000_000), 1.0 => 1e12;
        /// Number of source and sink pairs that the flows share in turn; by default one for each
        /// flow.
        pairs: Maybe<u32> = Maybe(None), 1.0 => 5e6;
        /// Name of a group; traffic of one group shares its pairs.
        group: Maybe<Label> = Maybe(None), 0.0 => 0.0;
        /// Start of each flow, or the interval from which each flow draws its start.
        start: Instant = Instant::At(Time::ZERO), 0.0 => 1e7;
        /// Time at which each flow stops offering data; by default at the end of the run.
        stop: Maybe<Instant> = Maybe(None), 0.0 => 1e7;
    }
}

params! {
    /// Keys of traffic over TCP. The defaults are those of ns-2.35, except the window, which ns-2's
    /// scripts set.
    pub struct TcpKeys {
        /// Sender, a recovery from loss and a window: "reno", "newreno" and "sack" as in
        /// ns-2.35, "cubic" as in RFC 9438 with the recovery of "sack", "linux-reno" and
        /// "linux-cubic" as in the Linux kernel (RACK, tail loss probes, PRR, F-RTO, HyStart; they
        /// count acknowledged packets, and `min_rto` bounds the deviation's term of the RTO),
        /// and with the recovery of Linux "dctcp" (RFC 8257), "bbr" as in Linux, "bbr3"
        /// (draft-ietf-ccwg-bbr), "prague" and "ledbat++" (their drafts).
        tcp: Sender = Sender::default(), 0.0 => 0.0;
        /// Send ECN-capable packets: with true ECT(0), and marks are echoed (RFC 3168); with
        /// "l4s" ECT(1), and ACKs carry counts of marked packets (RFC 9331, RFC 9768). A window
        /// that reads no shares of marks falls once per round trip in either case.
        ecn: EcnChoice = EcnChoice::Off, 0.0 => 0.0;
        /// Send packets spread over the round trip, as Linux paces them: at 2 times the window
        /// per round trip in slow start, and at 1.2 times it afterwards. Without pacing, packets
        /// leave as ACKs come.
        pacing: bool = false, 0.0 => 1.0;
        /// Let the senders of Linux make segments of several packets, about a millisecond's, that
        /// leave together (generic segmentation offload).
        gso: bool = true, 0.0 => 1.0;
        /// Receiver's window, and so the initial slow-start threshold.
        window: WholePackets = WholePackets(10_000), 1.0 => 1e6;
        /// Window after the handshake (RFC 5681, section 3.1).
        initial_window: WholePackets = WholePackets(2), 1.0 => 1e3;
        /// Least retransmission timeout (RFC 6298).
        min_rto: Span = Span::from_millis(200), 1e-3 => 60.0;
        /// Acknowledge every second packet, or after `ack_delay` (RFC 5681, section 4.2).
        delayed_ack: bool = false, 0.0 => 1.0;
        /// Longest wait of a delayed ACK for a second packet; Linux waits 40ms.
        ack_delay: Span = Span::from_millis(100), 1e-3 => 0.5;
        /// Number of initial ACKs sent without delay; Linux sends 16.
        quick_acks: u32 = 0, 0.0 => 255.0;
        /// Send a new packet on each of the first two duplicate ACKs (RFC 3042); the senders of
        /// Linux always do.
        limited_transmit: bool = true, 0.0 => 1.0;
    }
}

params! {
    /// Keys of mice.
    pub struct MiceKeys {
        /// Mean time of sending, exponential.
        on: Span = Span::from_secs(1), 1e-6 => 1e6;
        /// Mean time of silence, exponential.
        off: Span = Span::from_secs(1), 1e-6 => 1e6;
        /// Keep from one connection to the next what ns-2's agents do not reset (window inflation,
        /// the packet being timed), for comparisons with ns-2.
        ns2_reset: bool = false, 0.0 => 1.0;
    }
}

params! {
    /// Keys of web sessions that request at random times.
    pub struct WebKeys {
        /// Requests per second of each session, at Poisson times; each is answered over a new
        /// connection.
        requests: f64 = 10.0, 1e-6 => 1e6;
        /// Most connections at one time, all sessions together; a request beyond them is lost.
        connections: u32 = 100_000, 1.0 => 5e6;
    }
}

params! {
    /// Keys of web sessions of pages, as in ns-2's PagePool/WebTraf.
    pub struct PagesKeys {
        /// Pages that each session loads; by default without end.
        pages: Maybe<u32> = Maybe(None), 1.0 => 1e9;
        /// Mean time from the end of a page to the start of the next, exponential.
        page_gap: Span = Span::from_secs(1), 1e-6 => 1e6;
        /// Objects of each page, each sent over a new connection.
        objects: u32 = 1, 1.0 => 1e4;
        /// Mean time between the starts of a page's objects, exponential.
        object_gap: Span = Span::from_millis(10), 1e-6 => 1e6;
    }
}

params! {
    /// Keys of the sizes of what is sent: Pareto of the second kind (Lomax).
    pub struct SizeKeys {
        /// Shape of the size: P(size > x) = (1 + x/scale)^-shape.
        shape: f64 = 1.2, 0.1 => 100.0;
        /// Scale of the size; the mean is scale/(shape - 1). A transfer has the packets that hold
        /// it.
        scale: Bytes = Bytes(1000), 1.0 => 1e9;
    }
}

params! {
    /// Keys of bursts of packets without congestion control.
    pub struct OnOffKeys {
        /// Rate of a flow during a burst, headers included.
        rate: Rate = Rate::from_bps(20_000_000), 1.0 => 1e12, required;
        /// Mean length of a burst.
        on: Span = Span::from_millis(200), 1e-6 => 1e6;
        /// Shape of the bursts' Pareto lengths; by default exponential.
        on_shape: Maybe<f64> = Maybe(None), 1.001 => 100.0;
        /// Mean time between bursts, exponential.
        off: Span = Span::from_millis(200), 1e-6 => 1e6;
        /// Mean number of bursts of a flow, geometric; by default without end.
        bursts: Maybe<f64> = Maybe(None), 1.0 => 1e9;
        /// Flows that arrive per second, at Poisson times; `flows` then bounds their number at one
        /// time, and arrivals beyond it are lost. By default all flows start at `start`.
        arrivals: Maybe<f64> = Maybe(None), 1e-6 => 1e6;
        /// Amplitude of the cosine swing of the arrival rate, as a share of its mean.
        swing: f64 = 0.0, 0.0 => 1.0;
        /// Period of the swing.
        period: Span = Span::from_secs(400), 1e-3 => 1e7;
        /// A time at which arrivals are most frequent.
        peak: Span = Span::ZERO, 0.0 => 1e7;
        /// Send ECN-capable packets; a mark changes nothing.
        ecn: bool = false, 0.0 => 1.0;
    }
}

params! {
    /// Keys of traffic at a constant rate.
    pub struct CbrKeys {
        /// Rate of each flow, headers included.
        rate: Rate = Rate::from_bps(1_000_000), 1.0 => 1e12, required;
        /// Send ECN-capable packets; a mark changes nothing.
        ecn: bool = false, 0.0 => 1.0;
    }
}

/// Reads the numbers of one part of the keys.
type ReadNumbers = fn(&Section) -> Result<Vec<KeyNumber>, Fault>;

/// A kind of traffic.
pub struct TrafficSpec {
    pub kind: &'static str,
    pub title: &'static str,
    /// Its keys besides `kind`, in the order of tables.
    pub parts: &'static [&'static [ParamSpec]],
    read: fn(&Section) -> Result<TrafficKind, Fault>,
    /// One for each part that belongs to the kind alone.
    numbers: &'static [ReadNumbers],
}

/// Every kind of traffic.
pub const KINDS: &[TrafficSpec] = &[
    TrafficSpec {
        kind: "ftp",
        title: "TCP connections with endless data",
        parts: &[FlowKeys::SPECS, TcpKeys::SPECS],
        numbers: &[],
        read: |section| Ok(TrafficKind::Ftp(tcp(section)?)),
    },
    TrafficSpec {
        kind: "mice",
        title: "TCP connections that open, send for a short time and fall silent, again and again",
        parts: &[FlowKeys::SPECS, MiceKeys::SPECS, TcpKeys::SPECS],
        numbers: &[numbers::<MiceKeys>],
        read: |section| {
            let keys: MiceKeys = section.read()?;
            Ok(TrafficKind::Mice {
                tcp: tcp(section)?,
                on: keys.on,
                off: keys.off,
                ns2_reset: keys.ns2_reset,
            })
        },
    },
    TrafficSpec {
        kind: "cbr",
        title: "Packets at a constant rate, without congestion control",
        parts: &[FlowKeys::SPECS, CbrKeys::SPECS],
        numbers: &[numbers::<CbrKeys>],
        read: |section| {
            let CbrKeys { rate, ecn } = section.read()?;
            Ok(TrafficKind::Cbr { rate, ecn })
        },
    },
    TrafficSpec {
        kind: "web",
        title:
            "Sessions that request objects at Poisson times, each sent over a new TCP connection",
        parts: &[
            FlowKeys::SPECS,
            WebKeys::SPECS,
            SizeKeys::SPECS,
            TcpKeys::SPECS,
        ],
        numbers: &[numbers::<WebKeys>, numbers::<SizeKeys>],
        read: |section| {
            let keys: WebKeys = section.read()?;
            Ok(TrafficKind::Web(Web {
                tcp: tcp(section)?,
                requests_per_s: keys.requests,
                size: size(section)?,
                most_connections: keys.connections,
            }))
        },
    },
    TrafficSpec {
        kind: "pages",
        title: "Sessions that load page after page, each object over a new TCP connection",
        parts: &[
            FlowKeys::SPECS,
            PagesKeys::SPECS,
            SizeKeys::SPECS,
            TcpKeys::SPECS,
        ],
        numbers: &[numbers::<PagesKeys>, numbers::<SizeKeys>],
        read: |section| {
            let keys: PagesKeys = section.read()?;
            Ok(TrafficKind::Pages(Pages {
                tcp: tcp(section)?,
                pages: keys.pages.0,
                page_gap: keys.page_gap,
                objects: keys.objects,
                object_gap: keys.object_gap,
                size: size(section)?,
            }))
        },
    },
    TrafficSpec {
        kind: "onoff",
        title: "Bursts of packets at a constant rate, without congestion control",
        parts: &[FlowKeys::SPECS, OnOffKeys::SPECS],
        numbers: &[numbers::<OnOffKeys>],
        read: |section| {
            let keys: OnOffKeys = section.read()?;
            if keys.arrivals.0.is_some() && keys.bursts.0.is_none() {
                let allowed = "a number: flows that arrive must end";
                return Err(section.fault("bursts", "nothing", allowed));
            }
            if let (None, Some(entry)) = (keys.arrivals.0, section.table.entry("swing")) {
                let allowed = "no swing where there are no arrivals";
                return Err(section.fault("swing", entry.node.to_value(), allowed));
            }
            Ok(TrafficKind::OnOff(OnOff {
                rate: keys.rate,
                on: keys.on,
                on_shape: keys.on_shape.0,
                off: keys.off,
                bursts: keys.bursts.0,
                arrivals: keys.arrivals.0.map(|per_s| Arrivals {
                    per_s,
                    swing: keys.swing,
                    period: keys.period,
                    peak: Time::ZERO + keys.peak,
                }),
                ecn: keys.ecn,
            }))
        },
    },
];

fn numbers<P: Params>(section: &Section) -> Result<Vec<KeyNumber>, Fault> {
    let keys: P = section.read()?;
    let number = |spec: &ParamSpec| {
        Some(KeyNumber {
            name: spec.name,
            unit: spec.unit,
            number: keys.base(spec.name)?,
        })
    };
    Ok(P::SPECS.iter().filter_map(number).collect())
}

fn size(section: &Section) -> Result<Pareto2, Fault> {
    let SizeKeys { shape, scale } = section.read()?;
    Ok(Pareto2 { shape, scale })
}

fn tcp(section: &Section) -> Result<Tcp, Fault> {
    let keys: TcpKeys = section.read()?;
    if keys.initial_window.0 > keys.window.0 {
        return Err(section.fault(
            "initial_window",
            format!("\"{}p\"", keys.initial_window.0),
            format!("at most the window, \"{}p\"", keys.window.0),
        ));
    }
    Ok(Tcp {
        sender: keys.tcp.0,
        ecn: keys.ecn,
        pacing: keys.pacing,
        gso: keys.gso,
        window_pkts: keys.window.0,
        initial_window_pkts: keys.initial_window.0,
        min_rto: keys.min_rto,
        delayed_ack: keys.delayed_ack,
        ack_delay: keys.ack_delay,
        quick_acks: keys.quick_acks as u8,
        limited_transmit: keys.limited_transmit,
    })
}

/// # Errors
/// The first key that is unknown, wrong or missing, or does not fit the others.
pub fn read(document: &Document, links: &[Link]) -> Result<Vec<Traffic>, Fault> {
    let labels = unique_labels(&document.traffic).map_err(|(i, label)| {
        let section = Section {
            table: &document.traffic[i],
            name: &format!("traffic.{i}"),
        };
        let allowed = "a label that no other traffic has";
        section.fault("label", format!("{label:?}"), allowed)
    })?;
    let mut all: Vec<Traffic> = Vec::with_capacity(labels.len());
    for (i, label) in labels.into_iter().enumerate() {
        let section = Section {
            table: &document.traffic[i],
            name: &format!("traffic.{i}"),
        };
        let traffic = one(&section, label, links)?;
        check(&section, &traffic, links)?;
        check_group(&section, &traffic, &all, links)?;
        all.push(traffic);
    }
    Ok(all)
}

fn one(section: &Section, label: String, links: &[Link]) -> Result<Traffic, Fault> {
    let spec = spec(section)?;
    section.only(&["kind"], spec.parts)?;
    let keys: FlowKeys = section.read()?;
    let kind = (spec.read)(section)?;
    let mut numbers = Vec::new();
    for part in spec.numbers {
        numbers.extend(part(section)?);
    }
    Ok(Traffic {
        label,
        flows: keys.flows,
        packet: keys.packet,
        header: keys.header,
        path: path(section, keys.path.0, links)?,
        rtts: keys.rtt,
        access: keys.access,
        dscp: keys.dscp as u8,
        pairs: keys.pairs.0,
        group: keys.group.0.map(|label| label.0),
        start: keys.start,
        stop: keys.stop.0,
        kind,
        numbers,
    })
}

fn spec(section: &Section) -> Result<&'static TrafficSpec, Fault> {
    let kinds: Vec<&str> = KINDS.iter().map(|spec| spec.kind).collect();
    let Some(entry) = section.table.entry("kind") else {
        return Err(section.fault("kind", "nothing", kinds.join(", ")));
    };
    let written = section.table.text("kind");
    KINDS
        .iter()
        .find(|spec| written == Some(spec.kind))
        .ok_or_else(|| {
            let hint = match nearest(written.unwrap_or(""), &kinds) {
                Some(near) => format!(" (did you mean {near:?}?)"),
                None => String::new(),
            };
            let allowed = format!("{}{hint}", kinds.join(", "));
            section.fault("kind", entry.node.to_value(), allowed)
        })
}

/// The links along the nodes that `nodes` names.
fn path(section: &Section, nodes: Option<Vec<Label>>, links: &[Link]) -> Result<Vec<usize>, Fault> {
    let Some(nodes) = nodes else {
        return Ok(vec![0]);
    };
    if nodes.len() < 2 {
        let found = section
            .table
            .entry("path")
            .map(|entry| entry.node.to_value());
        let found = found.map_or(String::new(), |value| value.to_string());
        return Err(section.fault("path", found, "a list of two nodes or more"));
    }
    if let Some(i) = (1..nodes.len()).find(|i| nodes[..*i].contains(&nodes[*i])) {
        let found = format!("{:?} twice", nodes[i].0);
        return Err(section.fault("path", found, "each node once"));
    }
    let hop = |pair: &[Label]| {
        let joins = |link: &Link| (&link.from, &link.to) == (&pair[0].0, &pair[1].0);
        links.iter().position(joins).ok_or_else(|| {
            let known = links
                .iter()
                .map(|link| format!("{:?} to {:?}", link.from, link.to));
            let known: Vec<String> = known.collect();
            section.fault(
                "path",
                format!("{:?} to {:?}, which no link joins", pair[0].0, pair[1].0),
                known.join(", "),
            )
        })
    };
    nodes.windows(2).map(hop).collect()
}

/// Propagation over the links of a path and back: on the way back over the links that there
/// are, else over lines like those of the way there.
fn path_delay(path: &[usize], links: &[Link]) -> Span {
    let back = |link: &Link| {
        let opposite = |other: &&Link| (&other.to, &other.from) == (&link.from, &link.to);
        links.iter().find(opposite).unwrap_or(link).delay
    };
    let both = path.iter().map(|i| links[*i].delay + back(&links[*i]));
    both.fold(Span::ZERO, |sum, delay| sum + delay)
}

fn check(section: &Section, traffic: &Traffic, links: &[Link]) -> Result<(), Fault> {
    if traffic.header >= traffic.packet {
        let allowed = format!("less than the packet, \"{}\"", traffic.packet);
        return Err(section.fault("header", format!("\"{}\"", traffic.header), allowed));
    }
    // The access links share what the path leaves of the round trip.
    let least = path_delay(&traffic.path, links);
    if let Some(short) = traffic.rtts.iter().find(|rtt| **rtt < least) {
        let allowed = match links.len() {
            1 => format!("at least twice the bottleneck's delay, \"{least}\""),
            _ => format!("at least its path's delay both ways, \"{least}\""),
        };
        return Err(section.fault("rtt", format!("\"{short}\""), allowed));
    }
    if let Some(stop) = traffic.stop {
        let (latest_start, earliest_stop) = (traffic.start.bounds().1, stop.bounds().0);
        if earliest_stop <= latest_start {
            return Err(section.fault(
                "stop",
                format!("\"{earliest_stop}\""),
                format!("a time after the last start, \"{latest_start}\""),
            ));
        }
    }
    Ok(())
}

/// Traffic of one group shares its pairs, so it must agree in all that makes a pair.
fn check_group(
    section: &Section,
    traffic: &Traffic,
    before: &[Traffic],
    links: &[Link],
) -> Result<(), Fault> {
    let Some(group) = &traffic.group else {
        return Ok(());
    };
    let Some(pairs) = traffic.pairs else {
        let allowed = "a whole number: the pairs that the group shares";
        return Err(section.fault("pairs", "nothing", allowed));
    };
    let Some(first) = before
        .iter()
        .find(|other| other.group.as_ref() == Some(group))
    else {
        return Ok(());
    };
    let differs = |key: &str, found: String, theirs: String| {
        let allowed = format!("{theirs}, as in {:?} of the same group", first.label);
        Err(section.fault(key, found, allowed))
    };
    let list = |rtts: &[Span]| {
        let rtts: Vec<String> = rtts.iter().map(|rtt| format!("\"{rtt}\"")).collect();
        rtts.join(", ")
    };
    if first.pairs != Some(pairs) {
        let theirs = first.pairs.map_or("none".into(), |pairs| pairs.to_string());
        return differs("pairs", pairs.to_string(), theirs);
    }
    if first.path != traffic.path {
        let hops = |path: &[usize]| {
            let nodes = path.iter().map(|link| format!("{:?}", links[*link].to));
            let first = format!("{:?}", links[path[0]].from);
            let nodes: Vec<String> = std::iter::once(first).chain(nodes).collect();
            format!("[{}]", nodes.join(", "))
        };
        return differs("path", hops(&traffic.path), hops(&first.path));
    }
    if first.rtts != traffic.rtts {
        return differs("rtt", list(&traffic.rtts), list(&first.rtts));
    }
    if first.access != traffic.access {
        let quoted = |rate: Rate| format!("\"{rate}\"");
        return differs("access", quoted(traffic.access), quoted(first.access));
    }
    Ok(())
}
