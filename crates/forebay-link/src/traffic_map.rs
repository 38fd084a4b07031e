//! Mapping from a flow to the `[[traffic]]` of the scenario that it belongs to.

use forebay_packets::ip::Flow;
use forebay_units::Span;

use crate::namespace::End;

/// The rule that assigns each upstream flow to a traffic of the scenario. The default assigns none.
#[derive(Clone, Debug, Default)]
pub struct TrafficMap {
    /// The number of traffics.
    pub count: u32,
    /// The traffic of each pair of hosts behind the ends, in the order of the hosts' numbers.
    pub hosts: Vec<u8>,
    /// Destination ports of the flows between the ends themselves, each with its traffic.
    pub ports: Vec<(u16, u8)>,
    /// Propagation delay there and back.
    pub rtt: Span,
}

impl TrafficMap {
    /// Returns the traffic that an upstream `flow` belongs to; `None` for any other flow.
    pub fn traffic(&self, flow: &Flow) -> Option<u8> {
        let behind = |number: u8| {
            let [client, server] = End::BOTH.map(|end| mapped(end.host_v4(number)));
            (flow.source, flow.destination) == (client, server)
        };
        let mut hosts = (1..).zip(&self.hosts);
        if let Some((_, traffic)) = hosts.find(|(number, _)| behind(*number)) {
            return Some(*traffic);
        }
        if (flow.source, flow.destination) != (mapped(End::Client.v4()), mapped(End::Server.v4())) {
            return None;
        }
        let mut ports = self.ports.iter();
        let (_, traffic) = ports.find(|(port, _)| *port == flow.destination_port)?;
        Some(*traffic)
    }
}

/// Returns the address as an IPv4-mapped IPv6 address (RFC 4291, section 2.5.5.2), the form that
/// [`Flow`] has.
fn mapped(address: std::net::Ipv4Addr) -> u128 {
    address.to_ipv6_mapped().to_bits()
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_packets::ip::TCP;

    #[test]
    fn addresses_and_ports_assign_flows_to_traffics() {
        let map = TrafficMap {
            count: 3,
            hosts: vec![2, 0],
            ports: vec![(5201, 1)],
            rtt: Span::ZERO,
        };
        let flow = |source, destination, destination_port| Flow {
            protocol: TCP,
            source: mapped(source),
            destination: mapped(destination),
            source_port: 40_000,
            destination_port,
        };
        let hosts = |number| [End::Client, End::Server].map(|end| end.host_v4(number));
        for (number, traffic) in [(1, Some(2)), (2, Some(0)), (3, None)] {
            let [client, server] = hosts(number);
            assert_eq!(map.traffic(&flow(client, server, 5201)), traffic);
            // A downstream flow belongs to no traffic.
            assert_eq!(map.traffic(&flow(server, client, 5201)), None);
        }
        let ends = [End::Client, End::Server].map(End::v4);
        for (port, traffic) in [(5201, Some(1)), (5202, None)] {
            assert_eq!(map.traffic(&flow(ends[0], ends[1], port)), traffic);
        }
    }
}
