//! `kind = "external"`: packets that the caller sends.

use forebay_units::Bytes;

use super::keys::{ExternalKeys, FlowKeys};
use crate::error::Fault;
use crate::model::{External, TrafficKind};
use crate::tree::Section;

/// Over Ethernet.
const PACKET: Bytes = Bytes(1500);

/// Reads traffic of the kind `external`.
pub fn external(section: &Section) -> Result<TrafficKind, Fault> {
    let keys: ExternalKeys = section.read()?;
    for key in ["start", "stop"] {
        if let Some(entry) = section.table.entry(key) {
            let expected = format!("no {key}, since the program that sends determines it");
            return Err(section.fault(key, entry.node.to_value(), expected));
        }
    }
    Ok(TrafficKind::External(External { loss: keys.loss.0 }))
}

/// Returns the largest packet: that which is given, or its own.
pub fn packet(section: &Section, keys: &FlowKeys) -> Bytes {
    match section.table.entry("packet") {
        Some(_) => keys.packet,
        None => PACKET,
    }
}
