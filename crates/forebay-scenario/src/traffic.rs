//! `[[traffic]]`: sets of like flows.

mod applications;
mod arrivals;
mod checks;
mod external;
mod stack;
mod tcp;

use forebay_units::{one_of, Bytes, ParamSpec, Params, Span, Time};

use crate::document::Document;
use crate::error::Fault;
use crate::files::Files;
use crate::model::{Instant, Link, Traffic, TrafficKind, EXTERNAL};
use crate::path::unique_labels;
use crate::traffic_keys::{
    ArrivalsKeys, Cbr, External, FlowKeys, Frames, Mice, OnOff, Pages, Pareto2, ProgramKeys, Tcp,
    Video, Voice, Web,
};
use crate::tree::Section;

use checks::{check, check_group, check_host, path};
use tcp::tcp;

/// A kind of traffic.
pub struct TrafficSpec {
    pub kind: &'static str,
    pub title: &'static str,
    /// Its keys besides `kind`, in the order of tables.
    pub parts: &'static [&'static [ParamSpec]],
    /// Keys whose values are scaled if a scenario is adapted to a link of another rate.
    pub in_proportion: &'static [&'static str],
    /// True if flows without a `start` draw one. Nothing else that such a flow does depends on the
    /// seed, so with one common start all seeds would give the same run.
    draws_start: bool,
    read: Read,
}

impl TrafficSpec {
    /// Returns true if the number of flows is a key that may change; for other kinds it follows
    /// from the file, or the caller uses the flows.
    pub fn counts_flows(&self) -> bool {
        matches!(self.read, Read::Flows(_)) && self.kind != EXTERNAL
    }

    /// Returns the key of this kind with the given name.
    pub fn key(&self, name: &str) -> Option<&'static ParamSpec> {
        let mut keys = self.parts.iter().flat_map(|part| part.iter());
        keys.find(|key| key.name == name)
    }
}

/// The function that reads a traffic from a table.
enum Read {
    /// The table has the keys of flows and those of the kind.
    Flows(fn(&Section) -> Result<TrafficKind, Fault>),
    /// The table has the keys of flows and those of the kind, and names files.
    FlowsOfFiles(fn(&Section, &Files) -> Result<TrafficKind, Fault>),
    /// The table has only keys of the kind.
    Whole(fn(&Section, String, &[Link], &Files) -> Result<Traffic, Fault>),
}

/// Every kind of traffic.
pub const KINDS: &[TrafficSpec] = &[
    TrafficSpec {
        kind: "ftp",
        title: "TCP connections with endless data",
        parts: &[FlowKeys::SPECS, Tcp::SPECS],
        in_proportion: &[],
        draws_start: true,
        read: Read::Flows(|section| Ok(TrafficKind::Ftp(tcp(section)?))),
    },
    TrafficSpec {
        kind: "mice",
        title: "TCP connections that open, send for a short time and fall silent, again and again",
        parts: &[FlowKeys::SPECS, Mice::SPECS, Tcp::SPECS],
        in_proportion: &[],
        draws_start: false,
        read: Read::Flows(|section| Ok(TrafficKind::Mice(section.read()?, tcp(section)?))),
    },
    TrafficSpec {
        kind: "cbr",
        title: "Packets at a constant rate, without congestion control",
        parts: &[FlowKeys::SPECS, Cbr::SPECS],
        in_proportion: &["rate"],
        draws_start: true,
        read: Read::Flows(|section| Ok(TrafficKind::Cbr(section.read()?))),
    },
    TrafficSpec {
        kind: "web",
        title:
            "Sessions that request objects at Poisson times, each sent over a new TCP connection",
        parts: &[
            FlowKeys::SPECS,
            Web::SPECS,
            Pareto2::SPECS,
            Tcp::SPECS,
        ],
        in_proportion: &["requests"],
        draws_start: false,
        read: Read::Flows(|section| {
            Ok(TrafficKind::Web(
                section.read()?,
                tcp(section)?,
                section.read()?,
            ))
        }),
    },
    TrafficSpec {
        kind: "pages",
        title: "Sessions that load page after page, each object over a new TCP connection",
        parts: &[
            FlowKeys::SPECS,
            Pages::SPECS,
            Pareto2::SPECS,
            Tcp::SPECS,
        ],
        in_proportion: &[],
        draws_start: false,
        read: Read::Flows(|section| {
            Ok(TrafficKind::Pages(
                section.read()?,
                tcp(section)?,
                section.read()?,
            ))
        }),
    },
    TrafficSpec {
        kind: "onoff",
        title: "Bursts of packets at a constant rate, without congestion control",
        parts: &[FlowKeys::SPECS, OnOff::SPECS],
        in_proportion: &["rate"],
        draws_start: false,
        read: Read::Flows(applications::onoff),
    },
    TrafficSpec {
        kind: "voice",
        title: "Calls: small packets at a constant rate, with or without pauses, without congestion control",
        parts: &[FlowKeys::SPECS, Voice::SPECS],
        in_proportion: &[],
        draws_start: true,
        read: Read::Flows(applications::voice),
    },
    TrafficSpec {
        kind: "frames",
        title: "Bursts of packets at even distances, such as frames of video, without congestion control",
        parts: &[FlowKeys::SPECS, Frames::SPECS],
        in_proportion: &["frame"],
        draws_start: true,
        read: Read::Flows(|section| Ok(TrafficKind::Frames(section.read()?))),
    },
    TrafficSpec {
        kind: "video",
        title: "Viewers of adaptive video, which fetch segments over TCP at a rate by their buffer",
        parts: &[FlowKeys::SPECS, Video::SPECS, Tcp::SPECS],
        in_proportion: &["ladder"],
        draws_start: true,
        read: Read::Flows(applications::video),
    },
    TrafficSpec {
        kind: "arrivals",
        title: "Packets as they came once, from a capture or a list, without congestion control",
        parts: &[ArrivalsKeys::SPECS],
        in_proportion: &[],
        draws_start: false,
        read: Read::Whole(arrivals::read),
    },
    TrafficSpec {
        kind: "program",
        title: "Programs of yours at both ends, over the sockets of a real kernel",
        parts: &[FlowKeys::SPECS, ProgramKeys::SPECS],
        in_proportion: &[],
        draws_start: false,
        read: Read::FlowsOfFiles(applications::program),
    },
    TrafficSpec {
        kind: EXTERNAL,
        title: "Packets of a program that has the network as a library, both ways",
        parts: &[FlowKeys::SPECS, External::SPECS],
        in_proportion: &[],
        draws_start: false,
        read: Read::Flows(external::external),
    },
];

/// Reads the traffic. `external` traffic is accepted if a caller sends its packets, and `programs`
/// if the engine can run them.
///
/// # Errors
/// The first key that is unknown, wrong or missing, or does not fit the others.
pub fn read(
    document: &Document,
    links: &[Link],
    files: &Files,
    duration: Span,
    (external, programs): (bool, bool),
) -> Result<Vec<Traffic>, Fault> {
    let labels = unique_labels(&document.traffic).map_err(|(i, label)| {
        let section = Section {
            table: &document.traffic[i],
            name: &format!("traffic.{i}"),
        };
        let expected = "a label that no other traffic has";
        section.fault("label", format!("{label:?}"), expected)
    })?;
    let mut all: Vec<Traffic> = Vec::with_capacity(labels.len());
    for (i, label) in labels.into_iter().enumerate() {
        let section = Section {
            table: &document.traffic[i],
            name: &format!("traffic.{i}"),
        };
        let traffic = one(&section, label, links, files, duration)?;
        check(&section, &traffic, links)?;
        check_group(&section, &traffic, &all, links)?;
        check_host(&section, &traffic, &all)?;
        if matches!(traffic.kind, TrafficKind::Program(_)) && !programs {
            let expected = "a kind that the simulator sends, or --engine kernel or link";
            let fault = section.fault("kind", "\"program\"", expected);
            return Err(fault.because("cannot be simulated"));
        }
        if matches!(traffic.kind, TrafficKind::External(_)) && !external {
            let expected =
                "a kind that sends packets by itself, or a program that uses forebay-net, \
                            libforebay or forebay.Network";
            let fault = section.fault("kind", format!("{EXTERNAL:?}"), expected);
            return Err(fault.because("is sent by a program"));
        }
        all.push(traffic);
    }
    Ok(all)
}

fn one(
    section: &Section,
    label: String,
    links: &[Link],
    files: &Files,
    duration: Span,
) -> Result<Traffic, Fault> {
    let spec = spec(section)?;
    section.only(&["kind"], spec.parts)?;
    let expanded = stack::expanded(section, spec)?;
    let section = &Section {
        table: &expanded,
        name: section.name,
    };
    let mut traffic = match spec.read {
        Read::Flows(kind) => flows(section, label, links, kind(section)?)?,
        Read::FlowsOfFiles(kind) => flows(section, label, links, kind(section, files)?)?,
        Read::Whole(read) => read(section, label, links, files)?,
    };
    if spec.draws_start && section.table.entry("start").is_none() {
        traffic.start = drawn_start(duration, traffic.stop);
    }
    Ok(traffic)
}

fn flows(
    section: &Section,
    label: String,
    links: &[Link],
    kind: TrafficKind,
) -> Result<Traffic, Fault> {
    let keys: FlowKeys = section.read()?;
    let (packet, header) = match &kind {
        TrafficKind::Voice(voice) => (voice.packet(), Voice::HEADER),
        kind => (
            match kind {
                TrafficKind::External(_) => external::packet(section, &keys),
                _ => keys.packet,
            },
            keys.header.0.unwrap_or(default_header(kind)),
        ),
    };
    Ok(Traffic {
        label,
        flows: keys.flows,
        packet,
        header,
        path: path(section, keys.path.0, links)?,
        rtts: keys.rtt,
        access: keys.access,
        dscp: u8::try_from(keys.dscp).expect("its range ends at 63"),
        pairs: keys.pairs.0,
        group: keys.group.0.map(|label| label.0),
        host: keys.host.0.map(|label| label.0),
        start: keys.start.0.unwrap_or(Instant::At(Time::ZERO)),
        stop: keys.stop.0,
        kind,
    })
}

/// Returns the interval from which flows draw their starts where the scenario gives none: the first
/// second, or the first tenth of a run, or of the time to an earlier `stop`, shorter than 10 s.
fn drawn_start(duration: Span, stop: Option<Instant>) -> Instant {
    let end = match stop {
        Some(stop) => duration.min(stop.bounds().0.since(Time::ZERO)),
        None => duration,
    };
    let latest = Span::from_secs(1).min(Span::from_nanos(end.as_nanos() / 10));
    Instant::Uniform(Time::ZERO, Time::ZERO + latest)
}

/// Headers of IPv4 and TCP, or of IPv4 and UDP, without options (RFC 791, 9293, 768).
fn default_header(kind: &TrafficKind) -> Bytes {
    Bytes(if kind.tcp().is_some() { 40 } else { 28 })
}

/// Returns the kind that a table has.
///
/// # Errors An unknown kind.
pub fn spec(section: &Section) -> Result<&'static TrafficSpec, Fault> {
    let kinds: Vec<&str> = KINDS.iter().map(|spec| spec.kind).collect();
    let Some(entry) = section.table.entry("kind") else {
        return Err(section.missing("kind", one_of(&kinds, "")));
    };
    let written = section.table.text("kind");
    KINDS
        .iter()
        .find(|spec| written == Some(spec.kind))
        .ok_or_else(|| {
            let expected = one_of(&kinds, written.unwrap_or(""));
            section.fault("kind", entry.node.to_value(), expected)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rates that do not depend on the link: those of the access links, and of a call.
    const OF_THEIR_OWN: &[(&str, &str)] = &[("voice", "rate")];

    #[test]
    fn each_rate_of_traffic_follows_the_link_or_has_a_reason_not_to() {
        for spec in KINDS {
            let keys = spec.parts.iter().flat_map(|part| part.iter());
            for key in keys.filter(|key| key.unit == "bit/s" && key.name != "access") {
                let scaled = spec.in_proportion.contains(&key.name);
                let own = OF_THEIR_OWN.contains(&(spec.kind, key.name));
                assert!(scaled != own, "{} of {}", key.name, spec.kind);
            }
            for name in spec.in_proportion {
                let mut keys = spec.parts.iter().flat_map(|part| part.iter());
                assert!(keys.any(|key| key.name == *name), "{name} of {}", spec.kind);
            }
        }
    }
}
