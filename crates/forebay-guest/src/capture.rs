//! The packets of the bottleneck in the format of wireshark (pcapng): each once, when it left the
//! queue or was lost, with a comment where it was dropped or marked, as `forebay link` has them.

use std::borrow::Cow;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::time::Duration;

use forebay_core::{Drop, Time};
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::{DataLink, PcapError};

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
    let file = BufWriter::new(File::create(folder.join(CAPTURE))?);
    let mut writer = PcapNgWriter::new(file).map_err(io_error)?;
    let interface = InterfaceDescriptionBlock {
        linktype: DataLink::RAW,
        snaplen: START_BYTES_U32,
        options: vec![
            InterfaceDescriptionOption::IfName("bottleneck".into()),
            // Nanoseconds.
            InterfaceDescriptionOption::IfTsResol(9),
        ],
    };
    writer.write_pcapng_block(interface).map_err(io_error)?;
    for (row, start) in packets {
        let length = row.bytes.saturating_sub(ETHERNET_BYTES);
        let kept = usize::try_from(length).unwrap_or(START_BYTES);
        let comment = match row.fate {
            Fate::Left => None,
            Fate::Marked => Some("marked"),
            Fate::Lost(Drop::Early) => Some("dropped: early"),
            Fate::Lost(Drop::Forced) => Some("dropped: forced"),
            Fate::Lost(Drop::Overflow) => Some("dropped: overflow"),
        };
        let comment = comment.map(|it| EnhancedPacketOption::Comment(it.into()));
        let block = EnhancedPacketBlock {
            interface_id: 0,
            timestamp: Duration::from_nanos(row.left.as_nanos()),
            original_len: length,
            data: Cow::Borrowed(&start[..kept.min(START_BYTES)]),
            options: comment.into_iter().collect(),
        };
        writer.write_pcapng_block(block).map_err(io_error)?;
    }
    writer.into_inner().flush()
}

fn io_error(error: PcapError) -> io::Error {
    match error {
        PcapError::IoError(error) => error,
        other => io::Error::other(other),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use pcap_file::pcapng::{Block, PcapNgReader};

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
        let rows = [row(7, Fate::Marked), row(5, Fate::Lost(Drop::Early)), late];
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
