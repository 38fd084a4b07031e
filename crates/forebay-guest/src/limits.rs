//! Limits of guests: the parts of a scenario that a guest cannot run are refused before a run.

use forebay_scenario::{EcnChoice, LawChoice, Scenario, Traffic, TrafficKind};
use forebay_units::ParamError;

/// The largest number of flows of a guest. Each flow needs two sockets of one process.
pub const MOST_FLOWS: u32 = 2000;
/// The largest number of networks at the bottleneck: one for each traffic and each of its
/// round-trip times.
pub const MOST_GROUPS: usize = 100;
/// The size of the Ethernet header, which queues of the kernel count.
pub const ETHERNET_BYTES: u32 = 14;
/// The smallest packet on the wire. IPv4 requires an MTU of 68 (RFC 791), and TCP needs room for
/// data.
pub(crate) const LEAST_PACKET_BYTES: u64 = 142;
/// The smallest UDP packet: the headers of Ethernet, IPv4 and UDP, and the sequence number of a
/// packet of a call.
const LEAST_DATAGRAM_BYTES: u64 = 14 + 20 + 8 + 4;
/// The largest number of flows of recorded packets. They need no sockets, but each has totals.
const MOST_RECORDED_FLOWS: u32 = 20_000;
/// The smallest ratio of an access link's rate to the bottleneck's. Below it, the access link would
/// limit its flow, which no device of the guest does.
const ACCESS_RATIO: u64 = 1;

/// Returns the kernel's name of a flow's congestion control: the one that the scenario sets for all
/// flows, or the one of the simulator's `sender`. It is `None` where the kernel does not have the
/// sender's.
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

/// The names of the senders that a guest can run, for error messages.
pub const SENDERS: &str = "one of reno, newreno, sack, cubic, linux-reno, linux-cubic, bbr, dctcp";

/// Checks that a guest can run a scenario with a law.
///
/// # Errors
/// The first key of the scenario that a guest cannot run, with its value and the valid ones.
pub fn check(scenario: &Scenario, law: &LawChoice) -> Result<(), ParamError> {
    let too_many = |key: &str, number: usize, expected: &str| {
        let expected = format!("{expected} with --engine kernel");
        Err(ParamError::stated(
            key,
            format!("{number} are too many"),
            expected,
        ))
    };
    if law.spec.is_custom() {
        let expected = "a law of `forebay laws`, since a guest has no Python";
        return Err(ParamError::new("law", quoted(&law.label), expected));
    }
    if scenario.links.len() > 1 {
        let number = scenario.links.len() - 1;
        return too_many("link", number, "no [[link]] next to the bottleneck");
    }
    if scenario.traffic.is_empty() {
        let expected = "at least one [[traffic]] with --engine kernel";
        return Err(ParamError::missing("traffic", expected));
    }
    if scenario.traffic.len() > 250 {
        return too_many("traffic", scenario.traffic.len(), "at most 250 [[traffic]]");
    }
    let recorded = |traffic: &&Traffic| matches!(traffic.kind, TrafficKind::Arrivals(_));
    let with_sockets = scenario.traffic.iter().filter(|traffic| !recorded(traffic));
    let flows: u32 = with_sockets.map(|traffic| traffic.flows).sum();
    if flows > MOST_FLOWS {
        let expected = format!("at most {MOST_FLOWS} flows in all");
        return too_many("traffic.flows", flows as usize, &expected);
    }
    let networks = |traffic: &Traffic| match traffic.kind {
        TrafficKind::Program(_) => traffic.flows as usize,
        _ => traffic.rtts.len().max(1),
    };
    let groups: usize = scenario.traffic.iter().map(networks).sum();
    if groups > MOST_GROUPS {
        let expected = format!("at most {MOST_GROUPS} round trips and programs in all");
        return too_many("traffic.rtt", groups, &expected);
    }
    let mut recorded = scenario.traffic.iter().filter(recorded);
    if let Some(traffic) = recorded.find(|traffic| traffic.flows > MOST_RECORDED_FLOWS) {
        let expected = format!("a file with at most {MOST_RECORDED_FLOWS} flows");
        return too_many("traffic.file", traffic.flows as usize, &expected);
    }
    for (number, traffic) in scenario.traffic.iter().enumerate() {
        check_traffic(traffic, scenario).map_err(|error| ParamError {
            key: format!("traffic.{number}.{}", error.key),
            expected: format!("{} with --engine kernel", error.expected),
            ..error
        })?;
    }
    Ok(())
}

/// Returns a value between quotation marks.
fn quoted(value: impl ToString) -> String {
    format!("\"{}\"", value.to_string())
}

/// Checks that a guest can run a traffic.
fn check_traffic(traffic: &Traffic, scenario: &Scenario) -> Result<(), ParamError> {
    if let TrafficKind::Arrivals(_) = traffic.kind {
        return Ok(());
    }
    let sends_datagrams =
        traffic.kind.tcp().is_none() && !matches!(traffic.kind, TrafficKind::Program(_));
    let (least, expected) = match sends_datagrams {
        true => (
            LEAST_DATAGRAM_BYTES,
            "at least \"46B\" (the headers of UDP)",
        ),
        false => (
            LEAST_PACKET_BYTES,
            "at least \"142B\" (the smallest MTU of IPv4 and the headers of TCP)",
        ),
    };
    if traffic.packet.0 < least {
        return Err(ParamError::new("packet", quoted(traffic.packet), expected));
    }
    if traffic.access.as_bps() < ACCESS_RATIO * scenario.tested_link().rate.as_bps() {
        let expected = "at least the rate of the bottleneck";
        return Err(ParamError::new("access", quoted(traffic.access), expected));
    }
    if traffic.pairs.is_some_and(|pairs| pairs < traffic.flows) || traffic.group.is_some() {
        let reason = "flows share access links";
        return Err(ParamError::stated(
            "pairs",
            reason,
            "one pair for each flow",
        ));
    }
    if traffic.host.is_some() && traffic.rtts.len() > 1 {
        let reason = format!("the host has {} round-trip times", traffic.rtts.len());
        return Err(ParamError::stated(
            "host",
            reason,
            "one round-trip time for a host",
        ));
    }
    if let Some(tcp) = traffic.kind.tcp() {
        if congestion_control(scenario, tcp.sender().name).is_none() {
            return Err(ParamError::new("tcp", quoted(tcp.sender().name), SENDERS));
        }
        let is_not_l4s = scenario.kernel.tcp.is_none() && tcp.sender().name != "dctcp";
        if tcp.ecn == EcnChoice::L4s && is_not_l4s {
            let expected = "true or false, or tcp = \"dctcp\" as an L4S sender";
            return Err(ParamError::new("ecn", "\"l4s\"", expected));
        }
    }
    Ok(())
}
