//! A scenario as a fluid model.

use forebay_aqm::QueueChoice;
use forebay_scenario::{
    link_path, EcnChoice, Instant, LawChoice, Link, LinkSetting, Scenario, Setting, Tcp, Traffic,
    TrafficKind,
};
use forebay_units::{ParamError, Rate, Span, Time};

use crate::model::{Bottleneck, Change, Class, Model, What};
use crate::senders::{Sender, Windows};
use crate::step::Step;

/// One law of a scenario.
///
/// Flows of one traffic that share an RTT and come and go together become a class. A start (or
/// stop) drawn at random falls in the middle of its range. The RTT also includes the transmission
/// times of a packet on the links of its path and on its access links.
///
/// # Errors
/// The key that the model cannot express: traffic other than ftp, packets of several sizes,
/// links that would make ACKs wait, links that follow a trace, a law in a queue other than the
/// default.
pub fn from_scenario(
    scenario: &Scenario,
    law: &LawChoice,
    windows: Windows,
    step: Step,
) -> Result<Model, ParamError> {
    let links = &scenario.links;
    check_links(scenario, links, law)?;
    let mut classes = Vec::new();
    let mut changes = Vec::new();
    // The classes of each traffic.
    let mut members: Vec<Vec<Member>> = Vec::new();
    for (index, traffic) in scenario.traffic.iter().enumerate() {
        let own = add_classes(&mut classes, scenario, links, index, windows)?;
        for member in &own {
            if member.first < traffic.flows {
                changes.push(member.flows_at(middle(traffic.start), true));
            }
            if let Some(stop) = traffic.stop {
                changes.push(member.flows_at(middle(stop), false));
            }
        }
        members.push(own);
    }
    let mut delays: Vec<Span> = links.iter().map(|link| link.delay).collect();
    for change in &scenario.changes {
        let at = change.at;
        match change.what {
            Setting::Link {
                link,
                what: LinkSetting::Delay(delay),
            } => {
                delays[link] = delay;
                changes.extend(rtt_changes(at, &classes, links, &delays));
            }
            Setting::Link { link, what } => {
                let what = link_change(scenario, &links[link], link, what);
                changes.extend(what.map(|what| Change { at, what }));
            }
            Setting::Flows { traffic, flows } => {
                let members = members[traffic].iter();
                changes.extend(members.map(|member| member.flows_at(at, member.first < flows)));
            }
        }
    }
    changes.sort_by_key(|change| change.at);
    let bottleneck = |link: &Link| {
        // Every field is named, so that a new key of a link is considered here. `check_links`
        // refuses a trace; delays are part of the paths, and `ecn` of the classes of senders.
        let Link {
            rate,
            law: own_law,
            buffer: _,    // read by `site_of`
            burst: _,     // a queue that does not empty saves no tokens up
            rate_back: _, // ACKs do not queue in the model
            trace: _,
            delay: _,
            ecn: _,
            name: _,
            from: _,
            to: _,
        } = link;
        Bottleneck {
            rate: *rate,
            packet: scenario.site().packet,
            buffer_pkts: scenario.site_of(link).buffer_pkts,
            law: own_law.as_ref().unwrap_or(law).clone(),
        }
    };
    let model = Model {
        bottlenecks: links.iter().map(bottleneck).collect(),
        classes,
        changes,
        duration: scenario.duration,
        step,
        sample: scenario.sample,
        seed: 1,
    };
    model.check()?;
    Ok(model)
}

/// Refuses links that the model cannot express.
fn check_links(scenario: &Scenario, links: &[Link], law: &LawChoice) -> Result<(), ParamError> {
    if let Some(link) = (0..links.len()).find(|link| scenario.opposite(*link).is_some()) {
        let reason = format!(
            "{:?} has a link in the opposite direction",
            links[link].name
        );
        let expected = "links in one direction, since ACKs do not queue in the fluid model";
        return Err(ParamError::stated("link", reason, expected));
    }
    if let Some(link) = links.iter().position(|link| link.trace.is_some()) {
        let key = format!("{}.rate_trace", link_path(link));
        let expected = "a constant rate, since the fluid model has no traces";
        return Err(ParamError::stated(key, "the link has a trace", expected));
    }
    let own = links.iter().filter_map(|link| link.law.as_ref());
    if let Some(other) = own.chain([law]).find(|law| !law.queue.is_default()) {
        let default = QueueChoice::default();
        let expected = format!("{default}, since a link has one queue in the fluid model");
        return Err(ParamError::new("law.queue", &other.queue, expected));
    }
    Ok(())
}

/// Returns the TCP of a traffic, and its sender. Refuses traffic that the model cannot express.
fn sender_of(
    scenario: &Scenario,
    index: usize,
    traffic: &Traffic,
) -> Result<(Tcp, Sender), ParamError> {
    let key = |name| format!("traffic.{index}.{name}");
    let TrafficKind::Ftp(tcp) = &traffic.kind else {
        let kind = format!("{:?}", traffic.kind.name());
        let expected = "\"ftp\", since the fluid model has long-lived TCP flows only";
        return Err(ParamError::new(key("kind"), kind, expected));
    };
    let packet = scenario.site().packet;
    if traffic.packet != packet {
        let size = format!("\"{}\"", traffic.packet);
        let expected = format!("\"{packet}\", since the fluid model has one packet size");
        return Err(ParamError::new(key("packet"), size, expected));
    }
    let sender = Sender::named(tcp.sender().name).map_err(|expected| {
        ParamError::new(key("tcp"), format!("\"{}\"", tcp.sender().name), expected)
    })?;
    Ok((tcp.clone(), sender))
}

/// Adds the classes of a traffic, which start without flows.
fn add_classes(
    classes: &mut Vec<Class>,
    scenario: &Scenario,
    links: &[Link],
    index: usize,
    windows: Windows,
) -> Result<Vec<Member>, ParamError> {
    let traffic = &scenario.traffic[index];
    let (tcp, sender) = sender_of(scenario, index, traffic)?;
    let mut own = Vec::new();
    for group in groups(scenario, index) {
        let (first, rtt) = (group.first, group.rtt);
        own.push(Member {
            class: classes.len(),
            first,
            flows: group.flows.len() as f64,
        });
        classes.push(Class {
            label: match (traffic.rtts.len(), first) {
                (1, 0) => traffic.label.clone(),
                (_, 0) => format!("{} {rtt}", traffic.label),
                _ => format!("{} {rtt} from {first}", traffic.label),
            },
            flows: 0.0,
            rtt: rtt + transmission(links, traffic),
            route: traffic.path.clone(),
            initial_window_pkts: f64::from(tcp.initial_window.0),
            window_pkts: f64::from(tcp.window.0),
            growth_pkts_per_rtt: growth_pkts_per_rtt(&tcp),
            marks: tcp.ecn != EcnChoice::Off && traffic.path.iter().all(|link| links[*link].ecn),
            l4s: tcp.ecn == EcnChoice::L4s,
            sender,
            windows,
        });
    }
    Ok(own)
}

/// Returns the change of the model that follows from a new rate or buffer of a link.
fn link_change(
    scenario: &Scenario,
    link: &Link,
    bottleneck: usize,
    what: LinkSetting,
) -> Option<What> {
    match what {
        LinkSetting::Rate(rate) => Some(What::Rate { bottleneck, rate }),
        LinkSetting::Buffer(buffer) => {
            let changed = Link {
                buffer,
                ..link.clone()
            };
            Some(What::Buffer {
                bottleneck,
                buffer_pkts: scenario.site_of(&changed).buffer_pkts,
            })
        }
        LinkSetting::Delay(_) => None,
    }
}

/// Returns the RTTs with these delays of the links: the access links stay as they are, so RTTs
/// move by twice the difference.
fn rtt_changes<'a>(
    at: Time,
    classes: &'a [Class],
    links: &'a [Link],
    delays: &'a [Span],
) -> impl Iterator<Item = Change> + 'a {
    let moved_s = |link: &usize| {
        let (delay, before) = (delays[*link], links[*link].delay);
        2.0 * (delay.as_secs_f64() - before.as_secs_f64())
    };
    classes.iter().enumerate().map(move |(class, it)| {
        let moved_s: f64 = it.route.iter().map(moved_s).sum();
        let rtt = Span::from_secs_f64(it.rtt.as_secs_f64() + moved_s);
        Change {
            at,
            what: What::Rtt { class, rtt },
        }
    })
}

/// A class of a traffic: `flows` of those from number `first` on.
struct Member {
    class: usize,
    first: u32,
    flows: f64,
}

impl Member {
    fn flows_at(&self, at: Time, on: bool) -> Change {
        let flows = if on { self.flows } else { 0.0 };
        let class = self.class;
        Change {
            at,
            what: What::Flows { class, flows },
        }
    }
}

/// Flows of one traffic that share a class.
pub(crate) struct Group {
    /// The first of those that come and go together.
    first: u32,
    rtt: Span,
    pub flows: Vec<u32>,
}

/// Returns the classes of a traffic, in their order.
pub(crate) fn groups(scenario: &Scenario, index: usize) -> Vec<Group> {
    let traffic = &scenario.traffic[index];
    let turns = traffic.pairs.unwrap_or(u32::MAX);
    let mut groups = Vec::new();
    for (first, last) in cohorts(index, traffic, scenario) {
        for (turn, rtt) in traffic.rtts.iter().enumerate() {
            let flows: Vec<u32> = (first..last)
                .filter(|flow| (flow % turns) as usize % traffic.rtts.len() == turn)
                .collect();
            if !flows.is_empty() {
                let rtt = *rtt;
                groups.push(Group { first, rtt, flows });
            }
        }
    }
    groups
}

/// Ranges of flows that come and go together: after a change, the flows with the lowest numbers
/// run.
fn cohorts(index: usize, traffic: &Traffic, scenario: &Scenario) -> Vec<(u32, u32)> {
    let changed = scenario.changes.iter();
    let changed = changed.filter_map(|change| change.flows_of(index));
    let mut ends: Vec<u32> = changed.chain([0, traffic.flows]).collect();
    ends.sort_unstable();
    ends.dedup();
    ends.windows(2).map(|pair| (pair[0], pair[1])).collect()
}

/// Returns the growth per acknowledged window. Linux's senders count packets, all other senders
/// ACKs.
fn growth_pkts_per_rtt(tcp: &Tcp) -> f64 {
    if tcp.delayed_ack && !tcp.sender().counts_packets {
        0.5
    } else {
        1.0
    }
}

fn middle(instant: Instant) -> Time {
    let (first, last) = instant.bounds();
    Time::from_nanos(first.as_nanos() / 2 + last.as_nanos() / 2)
}

/// Returns the transmission time of a packet over the links of its path and both access links.
fn transmission(links: &[Link], traffic: &Traffic) -> Span {
    let rates = traffic.path.iter().map(|link| links[*link].rate);
    let one = |rate: Rate| 1.0 / rate.packets_per_sec(traffic.packet);
    let whole: f64 = rates.chain([traffic.access; 2]).map(one).sum();
    Span::from_secs_f64(whole)
}
