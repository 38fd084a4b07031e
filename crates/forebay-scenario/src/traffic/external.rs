//! `kind = "external"`: packets that the caller sends.

use forebay_core::Bytes;

use super::keys::{ExternalKeys, FlowKeys};
use crate::error::Fault;
use crate::model::{External, TrafficKind};
use crate::tree::Section;

/// Over Ethernet.
const PACKET: Bytes = Bytes(1500);
/// IPv4 and UDP.
const HEADER: Bytes = Bytes(28);

pub fn external(section: &Section) -> Result<TrafficKind, Fault> {
    let keys: ExternalKeys = section.read()?;
    for key in ["start", "stop"] {
        if let Some(entry) = section.table.entry(key) {
            let allowed = "no such key here: the program that sends starts and stops by itself";
            return Err(section.fault(key, entry.node.to_value(), allowed));
        }
    }
    Ok(TrafficKind::External(External { loss: keys.loss.0 }))
}

/// Largest packet, and headers of each: those that are given, or its own.
pub fn sizes(section: &Section, keys: &FlowKeys) -> (Bytes, Bytes) {
    let given = |key, of, own| match section.table.entry(key) {
        Some(_) => of,
        None => own,
    };
    let packet = given("packet", keys.packet, PACKET);
    (packet, given("header", keys.header, HEADER))
}
