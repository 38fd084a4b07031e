//! `kind = "external"`: packets that the caller sends.

use forebay_core::Time;

use super::checks::path;
use super::keys::ExternalKeys;
use crate::error::Fault;
use crate::files::Files;
use crate::model::{External, Instant, KeyNumber, Link, Traffic, TrafficKind};
use crate::tree::Section;

pub fn read(
    section: &Section,
    label: String,
    links: &[Link],
    _files: &Files,
) -> Result<Traffic, Fault> {
    let keys: ExternalKeys = section.read()?;
    Ok(Traffic {
        label,
        flows: keys.flows,
        packet: keys.packet,
        header: keys.header,
        path: path(section, keys.path.0, links)?,
        rtts: keys.rtt,
        access: keys.access,
        dscp: u8::try_from(keys.dscp).expect("its range ends at 63"),
        pairs: None,
        group: None,
        host: keys.host.0.map(|label| label.0),
        start: Instant::At(Time::ZERO),
        stop: None,
        kind: TrafficKind::External(External { loss: keys.loss.0 }),
        numbers: vec![KeyNumber {
            name: "loss",
            unit: "",
            number: keys.loss.0,
        }],
    })
}
