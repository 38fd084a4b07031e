//! The traffic of a scenario that a flow belongs to, as the engine that made the flows knows it.

use forebay_packets::ip::Flow;
use forebay_units::Span;

use crate::namespace::End;

/// How flows that go up are told apart. By default they are not.
#[derive(Clone, Debug, Default)]
pub struct Apart {
    /// So many traffics there are.
    pub count: u32,
    /// Of each pair of hosts behind the ends, in their order.
    pub hosts: Vec<u8>,
    /// Of flows between the ends: the port that they go to.
    pub ports: Vec<(u16, u8)>,
    /// Propagation there and back.
    pub rtt: Span,
}

impl Apart {
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
        let found = ports.find(|(port, _)| *port == flow.destination_port)?;
        Some(found.1)
    }
}

fn mapped(address: std::net::Ipv4Addr) -> u128 {
    address.to_ipv6_mapped().to_bits()
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_packets::ip::TCP;

    #[test]
    fn hosts_and_ports_tell_flows_apart() {
        let apart = Apart {
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
            assert_eq!(apart.traffic(&flow(client, server, 5201)), traffic);
            // Nobody's: what goes down.
            assert_eq!(apart.traffic(&flow(server, client, 5201)), None);
        }
        let ends = [End::Client, End::Server].map(End::v4);
        for (port, traffic) in [(5201, Some(1)), (5202, None)] {
            assert_eq!(apart.traffic(&flow(ends[0], ends[1], port)), traffic);
        }
    }
}
