//! Refuses runs that are too large, by estimates of their work and memory.

use forebay_units::{Buffer, ParamType, Rate, Span};

use crate::document::Document;
use crate::error::Fault;
use crate::law_choice::LawChoice;
use crate::model::{Link, LinkSetting, Scenario, Setting, Traffic, TrafficKind};
use crate::tree::Section;

/// Most packets of one run: a day of a fast core.
const MOST_PACKETS: f64 = 1e11;
/// Most samples of the queue in one run; each takes a few dozen bytes.
const MOST_SAMPLES: f64 = 5e7;
/// Most flows, all traffic together; each takes some hundred bytes.
const MOST_FLOWS: f64 = 5e6;
/// Most packets in flight or queued at one time; each takes some dozen bytes.
const MOST_IN_FLIGHT: f64 = 1e8;

/// # Errors
/// The key that weighs most, with the estimate and the limit.
pub fn check(document: &Document, scenario: &Scenario) -> Result<(), Fault> {
    let section = |table, name| Section { table, name };
    let top = section(&document.top, "");
    let bottleneck = section(&document.links[0], "bottleneck");
    let refuse = |section: Section, key: &str, estimate: f64, of: &str, most: f64, remedy: &str| {
        if estimate <= most {
            return Ok(());
        }
        Err(section.stated(
            key,
            format!("about {estimate:.1e} {of} are too many"),
            format!("at most {most:.0e}{remedy}"),
        ))
    };

    let duration_s = scenario.duration.as_secs_f64();
    let samples = duration_s / scenario.sample.as_secs_f64();
    let of = "samples in a run";
    let remedy = ", by a longer time between samples or a shorter duration";
    refuse(top, "sample", samples, of, MOST_SAMPLES, remedy)?;

    let connections = |(i, traffic): (usize, &Traffic)| match &traffic.kind {
        // Each object of a page may be under way.
        TrafficKind::Pages(pages, ..) => most_flows(scenario, i) * f64::from(pages.objects),
        _ => most_flows(scenario, i),
    };
    let flows: f64 = scenario.traffic.iter().enumerate().map(connections).sum();
    refuse(top, "traffic", flows, "flows", MOST_FLOWS, "")?;

    let packets = packets(scenario);
    let of = "packets in a run";
    let remedy = ", by a shorter duration or lower rates";
    refuse(top, "duration", packets, of, MOST_PACKETS, remedy)?;

    let in_flight = in_flight(scenario);
    let of = "packets in flight or queued at one time";
    refuse(bottleneck, "buffer", in_flight, of, MOST_IN_FLIGHT, "")
}

/// Refuses a law that ticks more often in a run than a run may have packets.
///
/// # Errors
/// The law's `interval`, with the estimate and the limit.
pub fn check_law(section: &Section, choice: &LawChoice, duration: Span) -> Result<(), Fault> {
    let params = choice.law.values();
    // "interval" is the name of the sampling time in every law that has one.
    let interval = params
        .iter()
        .find(|(name, _)| *name == "interval")
        .and_then(|(_, value)| Span::from_value(value).ok());
    let ticks = interval.map_or(0.0, |span| duration.as_secs_f64() / span.as_secs_f64());
    if ticks <= MOST_PACKETS {
        return Ok(());
    }
    Err(section.stated(
        "interval",
        format!("about {ticks:.1e} samples of the law in a run are too many"),
        format!("at most {MOST_PACKETS:.0e}, by a longer interval or a shorter duration"),
    ))
}

/// Returns the link's capacity in packets of the smallest size, and the traffic that does not
/// depend on it: packets at a constant rate, and new connections.
fn packets(scenario: &Scenario) -> f64 {
    let duration_s = scenario.duration.as_secs_f64();
    let own: f64 = scenario
        .traffic
        .iter()
        .enumerate()
        .map(|(i, traffic)| {
            let flows = most_flows(scenario, i);
            let sent = |rate: Rate| rate.packets_per_sec(traffic.packet) * duration_s;
            match &traffic.kind {
                // What the caller sends is the caller's.
                TrafficKind::Ftp(_) | TrafficKind::External(_) | TrafficKind::Program(_) => flows,
                TrafficKind::Mice(mice, _) => {
                    flows * duration_s / (mice.on + mice.off).as_secs_f64()
                }
                TrafficKind::Cbr(cbr) => flows * sent(cbr.rate),
                TrafficKind::OnOff(onoff) => flows * sent(onoff.rate),
                TrafficKind::Voice(voice) => flows * duration_s / voice.interval.as_secs_f64(),
                TrafficKind::Frames(frames) => {
                    flows * f64::from(frames.frame.0) * duration_s / frames.interval.as_secs_f64()
                }
                TrafficKind::Video(video, _) => flows * duration_s / video.segment.as_secs_f64(),
                TrafficKind::Arrivals(recorded) => {
                    let period = recorded
                        .period
                        .map(|period| duration_s / period.as_secs_f64());
                    recorded.packets.packets.len() as f64 * (1.0 + period.unwrap_or(0.0))
                }
                TrafficKind::Web(web, ..) => flows * web.requests * duration_s,
                TrafficKind::Pages(pages, ..) => {
                    let page_s = pages.page_gap.max(pages.object_gap).as_secs_f64();
                    flows * f64::from(pages.objects) * (1.0 + duration_s / page_s)
                }
            }
        })
        .sum();
    highest_rate_pps(scenario) * duration_s + own
}

/// Returns the flows of `traffic[index]` that there can be at one time.
fn most_flows(scenario: &Scenario, index: usize) -> f64 {
    let declared = scenario.traffic[index].flows;
    let changed = scenario.changes.iter();
    let changed = changed.filter_map(|change| change.flows_of(index));
    f64::from(changed.fold(declared, u32::max))
}

/// Returns the links' highest rates, one after another.
fn highest_rate_pps(scenario: &Scenario) -> f64 {
    let smallest = scenario.traffic.iter().map(|traffic| traffic.packet).min();
    let Some(smallest) = smallest else {
        return 0.0;
    };
    let highest = |(i, link): (usize, &Link)| {
        let changed = link_settings(scenario, i).filter_map(|what| match what {
            LinkSetting::Rate(rate) => Some(rate),
            _ => None,
        });
        let own = link
            .trace
            .as_ref()
            .map_or(link.rate, |trace| trace.mean_rate());
        changed.fold(own.max(link.rate), |a, b| a.max(b))
    };
    let rates = scenario.links.iter().enumerate().map(highest);
    rates.map(|rate| rate.packets_per_sec(smallest)).sum()
}

fn link_settings(scenario: &Scenario, index: usize) -> impl Iterator<Item = LinkSetting> + '_ {
    scenario
        .changes
        .iter()
        .filter_map(move |change| match change.what {
            Setting::Link { link, what } if link == index => Some(what),
            _ => None,
        })
}

/// Returns the bandwidth-delay product and full buffers, or all windows where those are less.
fn in_flight(scenario: &Scenario) -> f64 {
    let smallest = scenario
        .traffic
        .iter()
        .map(|traffic| traffic.packet.0)
        .min();
    let buffer_pkts = |buffer: Buffer| match buffer {
        Buffer::Packets(packets) => f64::from(packets),
        Buffer::Bytes(bytes) => bytes as f64 / smallest.unwrap_or(1) as f64,
    };
    let longest = scenario.traffic.iter().flat_map(|t| &t.rtts).max();
    let mut delay_s = longest.map_or(0.0, |rtt| rtt.as_secs_f64());
    let mut buffers = 0.0;
    for (i, link) in scenario.links.iter().enumerate() {
        let mut buffer = buffer_pkts(link.buffer);
        for what in link_settings(scenario, i) {
            match what {
                LinkSetting::Delay(delay) => delay_s = delay_s.max(2.0 * delay.as_secs_f64()),
                LinkSetting::Buffer(size) => buffer = buffer.max(buffer_pkts(size)),
                LinkSetting::Rate(_) => {}
            }
        }
        buffers += buffer;
    }
    let room = highest_rate_pps(scenario) * delay_s + buffers;
    let windows = |(i, traffic): (usize, &Traffic)| {
        let connections = match &traffic.kind {
            TrafficKind::Web(web, ..) => f64::from(web.connections),
            TrafficKind::Pages(pages, ..) => most_flows(scenario, i) * f64::from(pages.objects),
            _ => most_flows(scenario, i),
        };
        match traffic.kind.tcp() {
            Some(tcp) => connections * f64::from(tcp.window.0),
            None => f64::INFINITY,
        }
    };
    let windows: f64 = scenario.traffic.iter().enumerate().map(windows).sum();
    room.min(windows)
}
