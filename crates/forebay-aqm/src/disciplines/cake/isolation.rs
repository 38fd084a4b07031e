//! Isolation: the entities that have their own queues, and those between which the link is shared.

use forebay_units::words;

use crate::discipline::{mix, Packet};

words! {
    /// The isolation mode of CAKE: which packets share a queue, and whether the link is shared
    /// between hosts before flows.
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
    /// Returns whether the link is shared between source hosts, and between destination hosts,
    /// before it is shared between their flows.
    pub fn between_hosts(self) -> (bool, bool) {
        let source = matches!(self, Isolation::TripleIsolate | Isolation::DualSource);
        let destination = matches!(self, Isolation::TripleIsolate | Isolation::DualDestination);
        (source, destination)
    }
}

/// Hashes that identify a packet's hosts and its queue.
pub struct FlowKeys {
    /// The hash of the source host.
    pub source: u64,
    /// The hash of the destination host.
    pub destination: u64,
    /// The hash of whatever has a queue of its own: a flow, a host, a pair of hosts, or everything.
    pub tag: u64,
}

impl Isolation {
    /// Returns the hashes of a packet, perturbed by `salt`.
    pub fn keys<P: Packet>(self, packet: &P, salt: u64) -> FlowKeys {
        let (source, destination) = packet.hosts();
        // A host has different hashes as a source and as a destination.
        let source = mix(source ^ salt);
        let destination = mix(!destination ^ salt);
        FlowKeys {
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
