//! Where a traffic's flows run, and whether its keys fit the links and one another.

use std::collections::HashSet;

use forebay_units::{Rate, Span};

use crate::error::Fault;
use crate::model::{Link, Traffic};
use crate::tree::Section;
use crate::types::Label;

/// Returns the links along the nodes that `nodes` names.
pub fn path(
    section: &Section,
    nodes: Option<Vec<Label>>,
    links: &[Link],
) -> Result<Vec<usize>, Fault> {
    let Some(nodes) = nodes else {
        return Ok(vec![0]);
    };
    if nodes.len() < 2 {
        let entry = section.table.entry("path");
        let value = entry.map_or("[]".to_owned(), |entry| entry.node.to_value().to_string());
        return Err(section.fault("path", value, "a list of at least two nodes"));
    }
    if let Some(i) = (1..nodes.len()).find(|i| nodes[..*i].contains(&nodes[*i])) {
        let fault = section.fault("path", format!("{:?}", nodes[i].0), "each node once");
        return Err(fault.because("occurs twice"));
    }
    let hop = |pair: &[Label]| {
        let joins = |link: &Link| (&link.from, &link.to) == (&pair[0].0, &pair[1].0);
        links.iter().position(joins).ok_or_else(|| {
            let known = links
                .iter()
                .map(|link| format!("{:?} to {:?}", link.from, link.to));
            let known: Vec<String> = known.collect();
            let ends = format!("{:?} to {:?}", pair[0].0, pair[1].0);
            let expected = match known.as_slice() {
                [link] => link.clone(),
                _ => format!("one of {}", known.join(", ")),
            };
            let fault = section.fault("path", ends, expected);
            fault.because("is not a link")
        })
    };
    nodes.windows(2).map(hop).collect()
}

/// Returns the propagation time over the links of a path and back. The way back uses the links that
/// exist in that direction, and lines with the same delay elsewhere.
pub fn path_delay(path: &[usize], links: &[Link]) -> Span {
    let back = |link: &Link| {
        let opposite = |other: &&Link| (&other.to, &other.from) == (&link.from, &link.to);
        links.iter().find(opposite).unwrap_or(link).delay
    };
    let both = path.iter().map(|i| links[*i].delay + back(&links[*i]));
    both.fold(Span::ZERO, |sum, delay| sum + delay)
}

/// Checks that the keys of a traffic fit each other and the links on its route.
pub fn check(section: &Section, traffic: &Traffic, links: &[Link]) -> Result<(), Fault> {
    if traffic.header >= traffic.packet {
        if section.table.entry("header").is_none() {
            let expected = format!("a size above that of its headers, \"{}\"", traffic.header);
            return Err(section.fault("packet", format!("\"{}\"", traffic.packet), expected));
        }
        let expected = format!("a size below that of the packet, \"{}\"", traffic.packet);
        return Err(section.fault("header", format!("\"{}\"", traffic.header), expected));
    }
    // The access links share what the path leaves of the round trip.
    let least = path_delay(&traffic.path, links);
    if let Some(short) = traffic.rtts.iter().find(|rtt| **rtt < least) {
        let expected = match links.len() {
            1 => format!("at least \"{least}\", twice the delay of the bottleneck"),
            _ => format!("at least \"{least}\", the delay of its path in both directions"),
        };
        return Err(section.fault("rtt", format!("\"{short}\""), expected));
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
pub fn check_group(
    section: &Section,
    traffic: &Traffic,
    before: &[Traffic],
    links: &[Link],
) -> Result<(), Fault> {
    let Some(group) = &traffic.group else {
        return Ok(());
    };
    let Some(pairs) = traffic.pairs else {
        let expected = "the number of pairs that the group shares";
        return Err(section.missing("pairs", expected));
    };
    let Some(first) = before
        .iter()
        .find(|other| other.group.as_ref() == Some(group))
    else {
        return Ok(());
    };
    let differs = |key: &str, value: String, theirs: String| {
        let expected = format!("{theirs}, as in {:?} of the same group", first.label);
        Err(section.fault(key, value, expected))
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

/// Most hosts with a name: a packet has its host's number in a byte.
const MOST_HOSTS: usize = 255;

/// Checks the key `host` of a traffic against those `before` it.
pub fn check_host(section: &Section, traffic: &Traffic, before: &[Traffic]) -> Result<(), Fault> {
    let all = before.iter().chain([traffic]);
    let names: HashSet<&str> = all.filter_map(|it| it.host.as_deref()).collect();
    if names.len() <= MOST_HOSTS {
        return Ok(());
    }
    let reason = format!("{} hosts are too many", names.len());
    Err(section.stated("host", reason, format!("at most {MOST_HOSTS} names")))
}
