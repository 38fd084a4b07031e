//! The packets of the bottleneck in the format of wireshark (pcapng): each once, when it left the
//! queue or was lost, with a comment where it was dropped or marked, as `forebay link` has them.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use forebay_packets::{dropped_comment, CaptureWriter};
use forebay_units::Time;

use crate::limits::ETHERNET_BYTES;
use crate::record::{Fate, PacketRow, STARTS, START_BYTES, START_BYTES_U32};

/// Name of the capture in a run's folder.
pub const CAPTURE: &str = "bottleneck.pcapng";

/// Makes a capture of what a guest left in `folder`, if it kept packets. Its times count from the
/// start of the run, and none is later than its `end`.
///
/// # Errors
/// A file that cannot be read or written.
pub fn write(folder: &Path, rows: &[PacketRow], end: Time) -> io::Result<()> {
    let starts = match fs::read(folder.join(STARTS)) {
        Ok(starts) => starts,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let mut packets: Vec<(&PacketRow, &[u8])> =
        rows.iter().zip(starts.chunks_exact(START_BYTES)).collect();
    packets.retain(|(row, _)| row.left <= end);
    // Stable: what happens at one time keeps its order.
    packets.sort_by_key(|(row, _)| row.left);
    let mut file = CaptureWriter::create(&folder.join(CAPTURE), "bottleneck", START_BYTES_U32)?;
    for (row, start) in packets {
        let length = row.bytes.saturating_sub(ETHERNET_BYTES);
        let kept = usize::try_from(length).unwrap_or(START_BYTES);
        let comment = match row.fate {
            Fate::Left => "",
            Fate::Marked => "marked",
            Fate::Lost(why) => dropped_comment(why),
        };
        let at = Duration::from_nanos(row.left.as_nanos());
        file.write(at, length, &start[..kept.min(START_BYTES)], comment)?;
    }
    file.finish()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use forebay_aqm::DropReason;
    use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketOption;
    use pcap_file::pcapng::{Block, PcapNgReader};
    use std::fs::File;

    #[test]
    fn packets_are_in_order_with_what_became_of_them() {
        let folder = std::env::temp_dir().join(format!("forebay-starts-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let row = |left, fate| PacketRow {
            arrived: Time::ZERO,
            left: Time::from_nanos(left),
            bytes: 60 + ETHERNET_BYTES,
            traffic: 0,
            class: 0,
            fate,
            header_bytes: 0,
            flow: 0,
        };
        let late = row(9, Fate::Left);
        let rows = [
            row(7, Fate::Marked),
            row(5, Fate::Lost(DropReason::Early)),
            late,
        ];
        fs::write(folder.join(STARTS), [0x45; 3 * START_BYTES]).unwrap();
        write(&folder, &rows, Time::from_nanos(8)).unwrap();
        let file = File::open(folder.join(CAPTURE)).unwrap();
        let mut reader = PcapNgReader::new(file).unwrap();
        let mut found = Vec::new();
        while let Some(block) = reader.next_block() {
            if let Block::EnhancedPacket(packet) = block.unwrap() {
                let comment = packet.options.iter().find_map(|option| match option {
                    EnhancedPacketOption::Comment(text) => Some(text.to_string()),
                    _ => None,
                });
                found.push((packet.timestamp.as_nanos(), packet.data.len(), comment));
            }
        }
        fs::remove_dir_all(&folder).unwrap();
        let wanted = [(5, "dropped: early"), (7, "marked")];
        assert_eq!(
            found,
            wanted.map(|(at, said)| (at, 60, Some(said.to_owned())))
        );
    }
}
