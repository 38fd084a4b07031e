//! `[bottleneck]` and `[[link]]`: the queues of a network and the links they feed.

use forebay_units::{params, Buffer, Bytes, ParamSpec, ParamType, Params, Rate, Span};

use crate::document::Document;
use crate::error::{Fault, Origin};
use crate::files::{Files, TRACE_KEY};
use crate::law_choice::{law_named, LawChoice};
use crate::limits::check_law;
use crate::model::{Link, Scenario};
use crate::path::{link_names, link_path};
use crate::tree::Section;
use crate::types::{check_buffer, BufferSize, FixedLaw, Label, Maybe, Queue, Text};

params! {
    /// Keys of `[bottleneck]` and of `[[link]]`.
    pub struct LinkKeys {
        /// Rate of the link. With `rate_trace`, the rate that its law assumes.
        rate: Rate = Rate::from_bps(45_000_000), 1.0 => 1e12, required;
        /// Size of the link's token bucket, as of Linux's tbf: bytes that may leave back to back
        /// after a pause.
        burst: Bytes = Bytes(0), 0.0 => 1e9;
        /// Rate of the reverse direction, which ACKs take, unless another link has that direction;
        /// by default `rate`. Guests of `--engine kernel` do not delay ACKs; 1 Tbit/s is close to
        /// that.
        rate_back: Maybe<Rate> = Maybe(None), 1.0 => 1e12;
        /// File of a recorded link, in the format of cellular traces: each line is a time in whole
        /// ms at which 1500 bytes can leave. At its end it starts again.
        rate_trace: Maybe<Text> = Maybe(None);
        /// Propagation delay of the link, one way. The access links have the rest of each flow's
        /// RTT.
        delay: Span = Span::ZERO, 0.0 => 1e3;
        /// Buffer size, in packets, bytes, or the time in which the link sends them at `rate`.
        buffer: BufferSize = BufferSize::Room(Buffer::Packets(800)), 0.0 => 0.0, required;
        /// Mark ECN-capable packets (CE) instead of dropping them. Traffic with `ecn` sends them.
        ecn: bool = true;
    }
}

params! {
    /// Keys of `[bottleneck]` that a network of several links needs.
    pub struct BottleneckKeys {
        /// Name in reports.
        name: Label = Label("bottleneck".into());
        /// Node where the queue is; traffic's paths name nodes.
        from: Label = Label("left".into());
        /// Node at the far end.
        to: Label = Label("right".into());
    }
}

params! {
    /// Keys that only `[[link]]` has.
    pub struct OtherLinkKeys {
        /// Name in reports and in paths such as link.NAME.rate; by default FROM-TO.
        name: Maybe<Label> = Maybe(None);
        /// Node where the queue is.
        from: Label = Label("right".into()), 0.0 => 0.0, required;
        /// Node at the far end.
        to: Label = Label("left".into()), 0.0 => 0.0, required;
        /// Law of this queue under every tested law; by default the law under test.
        law: Maybe<FixedLaw> = Maybe(None);
    }
}

/// Most `[[link]]`s: a link has two stations, and a packet under way carries a station's number.
const MOST_LINKS: usize = 100;

/// Keys of `[bottleneck]`, in the order of tables.
pub const BOTTLENECK: &[&[ParamSpec]] = &[LinkKeys::SPECS, BottleneckKeys::SPECS];
/// Keys of `[[link]]`, in the order of tables.
pub const OTHER: &[&[ParamSpec]] = &[OtherLinkKeys::SPECS, LinkKeys::SPECS];

/// Returns the bottleneck and then the other links; their own laws are not read yet.
///
/// # Errors
/// A key that is wrong; a name or a pair of nodes that another link has.
pub fn read(document: &Document, files: &Files) -> Result<Vec<Link>, Fault> {
    let section = Section {
        table: &document.links[0],
        name: "bottleneck",
    };
    section.only(&[], BOTTLENECK)?;
    let link = |section: &Section, keys: LinkKeys, name: String, from: Label, to: Label| {
        Ok(Link {
            name,
            from: from.0,
            to: to.0,
            rate: keys.rate,
            burst: burst(section, &keys)?,
            rate_back: keys.rate_back.0,
            trace: match &keys.rate_trace.0 {
                Some(Text(file)) => Some(files.trace(section, file)?),
                None => None,
            },
            delay: keys.delay,
            buffer: keys.buffer.at(keys.rate),
            ecn: keys.ecn,
            law: None,
        })
    };
    let keys: LinkKeys = section.read()?;
    let BottleneckKeys { name, from, to } = section.read()?;
    let (_, tables) = document.links.split_at(1);
    if tables.len() > MOST_LINKS {
        let reason = format!("{} tables are too many", tables.len());
        let expected = format!("at most {MOST_LINKS} tables");
        return Err(Fault::stated(Origin::File, "link", reason, expected));
    }
    let mut links = vec![link(&section, keys, name.0, from, to)?];
    check_ends(&section, &links[0], &[])?;
    for (name, table) in link_names(tables).into_iter().zip(tables) {
        let section = Section {
            table,
            name: &link_path(links.len()),
        };
        section.only(&[], OTHER)?;
        let keys: LinkKeys = section.read()?;
        let ends: OtherLinkKeys = section.read()?;
        let link = link(&section, keys, name, ends.from, ends.to)?;
        check_ends(&section, &link, &links)?;
        links.push(link);
    }
    check_way_back(document, &links)?;
    Ok(links)
}

/// The way back has a rate of its own only if it is not another link.
fn check_way_back(document: &Document, links: &[Link]) -> Result<(), Fault> {
    for (i, link) in links.iter().enumerate() {
        let turned = |other: &&Link| (&other.from, &other.to) == (&link.to, &link.from);
        let (Some(rate), Some(other)) = (link.rate_back, links.iter().find(turned)) else {
            continue;
        };
        let section = Section {
            table: &document.links[i],
            name: &link_path(i),
        };
        let expected = format!("no rate_back, since ACKs return over link {:?}", other.name);
        return Err(section.fault("rate_back", rate.to_value(), expected));
    }
    Ok(())
}

/// The expectation of a burst at a link with a trace.
pub(crate) const NO_BURST: &str =
    "no burst, since a link with a trace cannot save up capacity while it is idle";

fn burst(section: &Section, keys: &LinkKeys) -> Result<Bytes, Fault> {
    match (&keys.rate_trace.0, keys.burst) {
        (Some(_), Bytes(1..)) => {
            let reason = format!("cannot be combined with {TRACE_KEY}");
            let fault = section.fault("burst", keys.burst.to_value(), NO_BURST);
            Err(fault.because(reason))
        }
        (_, burst) => Ok(burst),
    }
}

fn check_ends(section: &Section, link: &Link, before: &[Link]) -> Result<(), Fault> {
    if link.from == link.to {
        let expected = format!("a node other than {:?}, where the link begins", link.from);
        return Err(section.fault("to", format!("{:?}", link.to), expected));
    }
    let same_ends = |other: &&Link| (&other.from, &other.to) == (&link.from, &link.to);
    if let Some(other) = before.iter().find(same_ends) {
        let expected = "two nodes that no other link joins";
        let ends = format!("{:?} to {:?}", link.from, link.to);
        let fault = section.fault("to", ends, expected);
        return Err(fault.because(format!("is joined by link {:?} already", other.name)));
    }
    if before.iter().any(|other| other.name == link.name) {
        let expected = "a name that no other link has";
        return Err(section.fault("name", format!("{:?}", link.name), expected));
    }
    Ok(())
}

/// Reads the laws that links have of their own, each at its link.
///
/// # Errors
/// A law or a parameter that is unknown, wrong, or does not fit the queue.
pub fn read_laws(document: &Document, scenario: &mut Scenario) -> Result<(), Fault> {
    for (i, table) in document.links.iter().enumerate().skip(1) {
        let section = Section {
            table,
            name: &link_path(i),
        };
        let keys: OtherLinkKeys = section.read()?;
        let Maybe(Some(law)) = keys.law else { continue };
        let site = scenario.queue_site(&scenario.links[i]);
        scenario.links[i].law = Some(own_law(&section, law, &site, scenario.duration)?);
    }
    Ok(())
}

fn own_law(
    section: &Section,
    law: FixedLaw,
    site: &forebay_units::QueueSite,
    duration: Span,
) -> Result<LawChoice, Fault> {
    let under = |mut fault: Fault| {
        fault.origin = section.origin("law");
        fault.error.key = section.key(&format!("law.{}", fault.error.key));
        fault
    };
    let bare = Section {
        name: "",
        ..*section
    };
    let spec = law_named(&law.kind)
        .map_err(|expected| under(bare.fault("kind", format!("{:?}", law.kind), expected)))?;
    let mut given = law.given;
    let queue = match given.iter().position(|(name, _)| name == "queue") {
        Some(i) => {
            let (key, value) = given.remove(i);
            let queue = Queue::from_value(&value);
            Some(
                queue
                    .map_err(|expected| under(bare.fault(&key, value, expected)))?
                    .0,
            )
        }
        None => None,
    };
    let choice = LawChoice::of(spec, given)
        .and_then(|choice| choice.held_by(queue))
        .map_err(|error| under(bare.locate(error)))?;
    choice
        .aqm()
        .check(site)
        .map_err(|error| under(bare.locate(error)))?;
    check_law(&bare, &choice, duration).map_err(under)?;
    Ok(choice)
}

/// Refuses a buffer in bytes that no packet of the traffic fits into.
///
/// # Errors
/// The first such buffer.
pub fn check_buffers(document: &Document, scenario: &Scenario) -> Result<(), Fault> {
    for (i, link) in scenario.links.iter().enumerate() {
        let Err(error) = check_buffer(link.buffer, scenario.packet()) else {
            continue;
        };
        let section = Section {
            table: &document.links[i],
            name: &link_path(i),
        };
        return Err(section.locate(error));
    }
    Ok(())
}
