//! What a guest cannot run of a scenario, said before anything runs.

use forebay_scenario::{EcnChoice, LawChoice, Scenario, Traffic, TrafficKind};
use forebay_units::ParamError;

/// Most flows of a guest: each is two sockets of one process.
pub const MOST_FLOWS: u32 = 2000;
/// Most networks beside the bottleneck: one for each traffic and each of its round trips.
pub const MOST_GROUPS: usize = 100;
/// Ethernet's header, which a queue of the kernel counts.
pub const ETHERNET_BYTES: u32 = 14;
/// Smallest packet on the wire: IPv4 asks for an MTU of 68, and TCP for some room.
pub(crate) const LEAST_PACKET_BYTES: u64 = 142;
/// Smallest packet of UDP: headers of Ethernet, IPv4 and UDP, and the number of a packet of a call.
const LEAST_DATAGRAM_BYTES: u64 = 14 + 20 + 8 + 4;
/// Most flows of recorded packets: they need no socket, and each is told of.
const MOST_RECORDED_FLOWS: u32 = 20_000;
/// Beneath this ratio an access link would limit its flow, which no device of the guest does.
const ACCESS_RATIO: u64 = 1;

/// The kernel's name of a flow's congestion control, where the kernel has it: the scenario's for all
/// flows, or that of the sender.
pub fn congestion_control<'a>(scenario: &'a Scenario, sender: &str) -> Option<&'a str> {
    if let Some(name) = &scenario.kernel.tcp {
        return Some(name);
    }
    Some(match sender {
        "reno" | "newreno" | "sack" | "linux-reno" => "reno",
        "cubic" | "linux-cubic" => "cubic",
        "bbr" => "bbr",
        "dctcp" => "dctcp",
        _ => return None,
    })
}

/// Senders that a guest runs, in words.
pub const SENDERS: &str = "reno, newreno, sack, cubic, linux-reno, linux-cubic, bbr, dctcp";

/// Refuses what a guest cannot run.
///
/// # Errors
/// The first such key, what was found, and what is allowed.
pub fn check(scenario: &Scenario, law: &LawChoice) -> Result<(), ParamError> {
    let refuse = |key: &str, found: String, allowed: &str| {
        Err(ParamError::new(
            key,
            forebay_units::Value::Text(found),
            format!("{allowed} with --engine kernel"),
        ))
    };
    if law.spec.is_custom() {
        let allowed = "a law of `forebay laws`: a guest has no Python";
        return refuse("law", law.label.clone(), allowed);
    }
    if scenario.links.len() > 1 {
        let found = format!("{} more", scenario.links.len() - 1);
        return refuse("link", found, "the bottleneck alone");
    }
    if scenario.traffic.is_empty() {
        return refuse("traffic", "none".into(), "at least one");
    }
    if scenario.traffic.len() > 250 {
        return refuse("traffic", scenario.traffic.len().to_string(), "at most 250");
    }
    let recorded = |it: &&Traffic| matches!(it.kind, TrafficKind::Arrivals(_));
    let with_sockets = scenario.traffic.iter().filter(|it| !recorded(it));
    let flows: u32 = with_sockets.map(|it| it.flows).sum();
    if flows > MOST_FLOWS {
        let allowed = format!("at most {MOST_FLOWS} in all");
        return refuse("traffic.flows", flows.to_string(), &allowed);
    }
    let networks = |traffic: &Traffic| match traffic.kind {
        TrafficKind::Program(_) => traffic.flows as usize,
        _ => traffic.rtts.len().max(1),
    };
    let groups: usize = scenario.traffic.iter().map(networks).sum();
    if groups > MOST_GROUPS {
        let allowed = format!("at most {MOST_GROUPS} round trips and programs in all");
        return refuse("traffic.rtt", groups.to_string(), &allowed);
    }
    let mut recorded = scenario.traffic.iter().filter(recorded);
    if let Some(traffic) = recorded.find(|it| it.flows > MOST_RECORDED_FLOWS) {
        let allowed = format!("a file with at most {MOST_RECORDED_FLOWS} flows");
        return refuse("traffic.file", format!("{} flows", traffic.flows), &allowed);
    }
    for (number, traffic) in scenario.traffic.iter().enumerate() {
        if let Err((key, found, allowed)) = check_traffic(traffic, scenario) {
            return refuse(&format!("traffic.{number}.{key}"), found, allowed);
        }
    }
    Ok(())
}

type Refusal = (&'static str, String, &'static str);

fn check_traffic(traffic: &Traffic, scenario: &Scenario) -> Result<(), Refusal> {
    if let TrafficKind::Arrivals(_) = traffic.kind {
        return Ok(());
    }
    let sends_datagrams =
        traffic.kind.tcp().is_none() && !matches!(traffic.kind, TrafficKind::Program(_));
    let (least, allowed) = match sends_datagrams {
        true => (LEAST_DATAGRAM_BYTES, "at least 46B, the headers of UDP"),
        false => (
            LEAST_PACKET_BYTES,
            "at least 142B, IPv4's least MTU and room for TCP",
        ),
    };
    if traffic.packet.0 < least {
        return Err(("packet", format!("{}B", traffic.packet.0), allowed));
    }
    if traffic.access.as_bps() < ACCESS_RATIO * scenario.tested_link().rate.as_bps() {
        let found = format!("{}bit/s", traffic.access.as_bps());
        return Err(("access", found, "at least the bottleneck's rate"));
    }
    if traffic.pairs.is_some_and(|pairs| pairs < traffic.flows) || traffic.group.is_some() {
        return Err(("pairs", "shared access links".into(), "one for each flow"));
    }
    if traffic.host.is_some() && traffic.rtts.len() > 1 {
        return Err((
            "host",
            "several round trips".into(),
            "one round trip for a host",
        ));
    }
    if let Some(tcp) = traffic.kind.tcp() {
        if congestion_control(scenario, tcp.sender.name).is_none() {
            return Err(("tcp", tcp.sender.name.to_owned(), SENDERS));
        }
        let others = scenario.kernel.tcp.is_none() && tcp.sender.name != "dctcp";
        if tcp.ecn == EcnChoice::L4s && others {
            let allowed = "true or false, or tcp = \"dctcp\" as an L4S sender";
            return Err(("ecn", "\"l4s\"".into(), allowed));
        }
    }
    Ok(())
}
