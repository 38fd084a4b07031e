//! `kind = "arrivals"`: packets as they came once.

use forebay_packets::Selection;
use forebay_units::{Bytes, Rate};

use super::checks::{path, path_delay};
use crate::error::Fault;
use crate::files::Files;
use crate::model::{Link, Recorded, Traffic, TrafficKind};
use crate::traffic_keys::ArrivalsKeys;
use crate::tree::Section;
use crate::types::Text;

/// The rate of the path from the last queue to the sink, so high that packets take almost no time.
const ACCESS: Rate = Rate::from_bps(1_000_000_000_000);

/// Reads traffic of the kind `arrivals`.
pub fn read(
    section: &Section,
    label: String,
    links: &[Link],
    files: &Files,
) -> Result<Traffic, Fault> {
    let keys: ArrivalsKeys = section.read()?;
    let Text(file) = keys.file;
    let selection = Selection {
        source: keys.source.0.unwrap_or_default(),
        destination: keys.destination.0.unwrap_or_default(),
        mtu: u16::try_from(keys.mtu.0).expect("its range ends at 65535"),
    };
    let recorded = Recorded {
        packets: files.arrivals(section, &file, selection)?,
        file,
        mtu: keys.mtu,
        scale: keys.scale,
        period: keys.period.0,
    };
    let length_s = recorded.length_s();
    if let Some(period) = keys.period.0.filter(|it| it.as_secs_f64() < length_s) {
        let expected = format!(
            "at least \"{length_s}s\", the duration of {:?}",
            recorded.file
        );
        return Err(section.fault("period", format!("\"{period}\""), expected));
    }
    let path = path(section, keys.path.0, links)?;
    Ok(Traffic {
        label,
        flows: recorded.packets.flows,
        packet: Bytes(u64::from(recorded.packets.largest_bytes)),
        header: Bytes(0),
        rtts: vec![path_delay(&path, links)],
        path,
        access: ACCESS,
        dscp: 0,
        // All packets take one path, because they wait only at queues.
        pairs: Some(1),
        group: None,
        host: None,
        start: keys.start,
        stop: keys.stop.0,
        kind: TrafficKind::Arrivals(recorded),
    })
}
