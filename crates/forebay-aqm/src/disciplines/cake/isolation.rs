//! What has a queue of its own, and what shares the link.

use forebay_units::words;

use crate::discipline::{mix, Packet};

words! {
    /// What has a queue, and what shares the link.
    pub enum Isolation {
        TripleIsolate = "triple-isolate",
        Flows = "flows",
        Hosts = "hosts",
        SourceHost = "srchost",
        DestinationHost = "dsthost",
        DualSource = "dual-srchost",
        DualDestination = "dual-dsthost",
        Blind = "flowblind",
    }
}

impl Isolation {
    /// Whether hosts share before their flows: on the side of sources, and of destinations.
    pub fn between_hosts(self) -> (bool, bool) {
        let source = matches!(self, Isolation::TripleIsolate | Isolation::DualSource);
        let destination = matches!(self, Isolation::TripleIsolate | Isolation::DualDestination);
        (source, destination)
    }
}

/// Numbers by which a packet finds its queue and its hosts.
pub struct Places {
    pub source: u64,
    pub destination: u64,
    /// Of what has a queue.
    pub tag: u64,
}

impl Isolation {
    pub fn places<P: Packet>(self, packet: &P, salt: u64) -> Places {
        let (source, destination) = packet.hosts();
        // The two sides of one host are not the same.
        let source = mix(source ^ salt);
        let destination = mix(!destination ^ salt);
        Places {
            source,
            destination,
            tag: match self {
                Isolation::Blind => 0,
                Isolation::SourceHost => source,
                Isolation::DestinationHost => destination,
                Isolation::Hosts => mix(source ^ destination.rotate_left(32)),
                Isolation::Flows
                | Isolation::DualSource
                | Isolation::DualDestination
                | Isolation::TripleIsolate => mix(packet.flow() ^ salt),
            },
        }
    }
}
