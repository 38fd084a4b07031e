//! `[[traffic]]`: sets of like flows.

use forebay_core::param::nearest;
use forebay_core::{params, Bytes, ParamSpec, Params, Rate, Span, Time};

use crate::document::{Document, Section};
use crate::error::Fault;
use crate::model::{Bottleneck, Instant, Recovery, Tcp, Traffic, TrafficKind};
use crate::path::unique_labels;
use crate::types::{Label, Maybe, WholePackets};

params! {
    /// Keys of every kind of traffic.
    pub struct FlowKeys {
        /// Name in reports; the kind where it is absent.
        label: Maybe<Label> = Maybe(None), 0.0 => 0.0;
        /// Number of flows.
        flows: u32 = 100, 1.0 => 5e6, required;
        /// Size on the wire of every data packet, TCP and IP headers of 40 bytes included.
        packet: Bytes = Bytes(1000), 40.0 => 65535.0;
        /// Propagation time both ways, access links and bottleneck together; flows (or pairs)
        /// take a list in turn.
        rtt: Vec<Span> = vec![Span::from_millis(100)], 0.0 => 1e3, required;
        /// Rate of the access links at both ends.
        access: Rate = Rate::from_bps(100_000_000), 1.0 => 1e12;
        /// Number of source and sink pairs that the flows share in turn; one for each flow
        /// where it is absent.
        pairs: Maybe<u32> = Maybe(None), 1.0 => 5e6;
        /// Traffic of one group shares its pairs.
        group: Maybe<Label> = Maybe(None), 0.0 => 0.0;
        /// When each flow starts, or the interval from which each flow draws its start.
        start: Instant = Instant::At(Time::ZERO), 0.0 => 1e7;
        /// When each flow stops offering data; at the end of the run where it is absent.
        stop: Maybe<Instant> = Maybe(None), 0.0 => 1e7;
    }
}

params! {
    /// Keys of traffic over TCP. Defaults are those of ns-2.35, but for the window, which its
    /// scripts set.
    pub struct TcpKeys {
        /// How losses are recovered.
        tcp: Recovery = Recovery::Reno, 0.0 => 0.0;
        /// Send ECN-capable packets and halve the window on a mark (RFC 3168).
        ecn: bool = false, 0.0 => 1.0;
        /// Receiver's window, and so the initial slow-start threshold.
        window: WholePackets = WholePackets(10_000), 1.0 => 1e6;
        /// Window after the handshake (RFC 5681, section 3.1).
        initial_window: WholePackets = WholePackets(2), 1.0 => 1e3;
        /// Least retransmission timeout (RFC 6298).
        min_rto: Span = Span::from_millis(200), 1e-3 => 60.0;
        /// Acknowledge every second packet, or after 100 ms (RFC 5681, section 4.2).
        delayed_ack: bool = false, 0.0 => 1.0;
        /// Send a new packet on each of the first two duplicate ACKs (RFC 3042).
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
        /// Begin each connection with what ns-2's agents forget to reset (window inflation,
        /// the packet being timed), to lay runs beside its.
        ns2_reset: bool = false, 0.0 => 1.0;
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

/// A kind of traffic.
pub struct TrafficSpec {
    pub kind: &'static str,
    pub title: &'static str,
    /// Its keys besides `kind`, in the order of tables.
    pub parts: &'static [&'static [ParamSpec]],
    read: fn(&Section) -> Result<TrafficKind, Fault>,
}

/// Every kind of traffic.
pub const KINDS: &[TrafficSpec] = &[
    TrafficSpec {
        kind: "ftp",
        title: "TCP connections with endless data",
        parts: &[FlowKeys::SPECS, TcpKeys::SPECS],
        read: |section| Ok(TrafficKind::Ftp(tcp(section)?)),
    },
    TrafficSpec {
        kind: "mice",
        title: "TCP connections that open, send for a short time and fall silent, again and again",
        parts: &[FlowKeys::SPECS, MiceKeys::SPECS, TcpKeys::SPECS],
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
        read: |section| {
            let CbrKeys { rate, ecn } = section.read()?;
            Ok(TrafficKind::Cbr { rate, ecn })
        },
    },
];

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
        recovery: keys.tcp,
        ecn: keys.ecn,
        window_pkts: keys.window.0,
        initial_window_pkts: keys.initial_window.0,
        min_rto: keys.min_rto,
        delayed_ack: keys.delayed_ack,
        limited_transmit: keys.limited_transmit,
    })
}

/// # Errors
/// The first key that is unknown, wrong or missing, or does not fit the others.
pub fn read(document: &Document, bottleneck: &Bottleneck) -> Result<Vec<Traffic>, Fault> {
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
        let traffic = one(&section, label)?;
        check(&section, &traffic, bottleneck)?;
        check_group(&section, &traffic, &all)?;
        all.push(traffic);
    }
    Ok(all)
}

fn one(section: &Section, label: String) -> Result<Traffic, Fault> {
    let spec = spec(section)?;
    section.only(&["kind"], spec.parts)?;
    let keys: FlowKeys = section.read()?;
    Ok(Traffic {
        label,
        flows: keys.flows,
        packet: keys.packet,
        rtts: keys.rtt,
        access: keys.access,
        pairs: keys.pairs.0,
        group: keys.group.0.map(|label| label.0),
        start: keys.start,
        stop: keys.stop.0,
        kind: (spec.read)(section)?,
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

fn check(section: &Section, traffic: &Traffic, bottleneck: &Bottleneck) -> Result<(), Fault> {
    // The access links share what the bottleneck leaves of each way: (rtt/2 − delay)/2 ≥ 0.
    let least = bottleneck.delay * 2;
    if let Some(short) = traffic.rtts.iter().find(|rtt| **rtt < least) {
        return Err(section.fault(
            "rtt",
            format!("\"{short}\""),
            format!("at least twice the bottleneck's delay, \"{least}\""),
        ));
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
fn check_group(section: &Section, traffic: &Traffic, before: &[Traffic]) -> Result<(), Fault> {
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
    if first.rtts != traffic.rtts {
        return differs("rtt", list(&traffic.rtts), list(&first.rtts));
    }
    if first.access != traffic.access {
        let quoted = |rate: Rate| format!("\"{rate}\"");
        return differs("access", quoted(traffic.access), quoted(first.access));
    }
    Ok(())
}
