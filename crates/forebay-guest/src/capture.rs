//! Capture of the bottleneck's packets as a pcapng file. Each packet appears once, at the time at
//! which it left the queue or was dropped; a comment says that it was dropped or marked, as in
//! captures of `forebay link`.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use forebay_packets::{dropped_comment, CaptureWriter};
use forebay_units::Time;

use crate::limits::ETHERNET_BYTES;
use crate::record::{Fate, PacketRow, STARTS, START_BYTES, START_BYTES_U32};

/// The name of the capture in the folder of a run.
pub const CAPTURE: &str = "bottleneck.pcapng";

/// Writes the capture of a run into its folder, if the guest kept the packets' headers. `rows` are
/// the packets in the order of the guest's files. Times count from the start of the run; packets
/// after its `end` are left out.
///
/// # Errors
/// The file of the headers cannot be read, or the capture cannot be written.
pub fn write(folder: &Path, rows: &[PacketRow], end: Time) -> io::Result<()> {
    let starts = match fs::read(folder.join(STARTS)) {
        Ok(starts) => starts,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let mut packets: Vec<(&PacketRow, &[u8])> =
        rows.iter().zip(starts.chunks_exact(START_BYTES)).collect();
    packets.retain(|(row, _)| row.left <= end);
    // The sort is stable: packets with the same time keep their order.
    packets.sort_by_key(|(row, _)| row.left);
    let mut file = CaptureWriter::create(&folder.join(CAPTURE), "bottleneck", START_BYTES_U32)?;
    for (row, start) in packets {
        let length = row.bytes.saturating_sub(ETHERNET_BYTES);
        let kept_bytes = usize::try_from(length).unwrap_or(START_BYTES);
        let comment = match row.fate {
            Fate::Left => "",
            Fate::Marked => "marked",
            Fate::Lost(reason) => dropped_comment(reason),
        };
        let at = Duration::from_nanos(row.left.as_nanos());
        file.write(at, length, &start[..kept_bytes.min(START_BYTES)], comment)?;
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
    fn a_capture_has_the_packets_in_order_of_time_with_their_fates() {
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
        let mut packets = Vec::new();
        while let Some(block) = reader.next_block() {
            if let Block::EnhancedPacket(packet) = block.unwrap() {
                let comment = packet.options.iter().find_map(|option| match option {
                    EnhancedPacketOption::Comment(text) => Some(text.to_string()),
                    _ => None,
                });
                packets.push((packet.timestamp.as_nanos(), packet.data.len(), comment));
            }
        }
        fs::remove_dir_all(&folder).unwrap();
        let expected = [(5, "dropped: early"), (7, "marked")];
        assert_eq!(
            packets,
            expected.map(|(at, comment)| (at, 60, Some(comment.to_owned())))
        );
    }
}
