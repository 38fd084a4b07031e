//! `kind = "external"`: packets that the caller sends.

use forebay_units::Bytes;

use crate::error::Fault;
use crate::model::TrafficKind;
use crate::traffic_keys::{External, FlowKeys};
use crate::tree::Section;

/// Over Ethernet.
const PACKET: Bytes = Bytes(1500);

/// Reads traffic of the kind `external`.
pub fn external(section: &Section) -> Result<TrafficKind, Fault> {
    let external: External = section.read()?;
    for key in ["start", "stop"] {
        if let Some(entry) = section.table.entry(key) {
            let expected = format!("no {key}, since the program that sends determines it");
            return Err(section.fault(key, entry.node.to_value(), expected));
        }
    }
    Ok(TrafficKind::External(external))
}

/// Returns the largest packet: that which is given, or its own.
pub fn packet(section: &Section, keys: &FlowKeys) -> Bytes {
    match section.table.entry("packet") {
        Some(_) => keys.packet,
        None => PACKET,
    }
}
