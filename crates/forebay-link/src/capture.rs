//! Packet captures at both ends, in pcapng files.
//!
//! Each end has a file with the packets that a capture there would show: those that the end sent,
//! at the time at which the emulator fetched them, and those that it received. A packet that the
//! end sent has a comment if the queue dropped it, and a packet that the end received has a comment
//! if the queue marked it.

use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use forebay_packets::CaptureWriter;
use forebay_units::Time;

use crate::direction::DirectionCounts;
use crate::due::Due;
use crate::namespace::End;
use crate::offload;
use crate::pool::{Pool, PREFIX_BYTES};
use forebay_packets::ip::bytes_u32;

/// The capture files of both ends.
pub struct Capture {
    /// The file of the client's end, then that of the server's end.
    files: [CaptureWriter; 2],
    /// The start of the run, as a time since 1970.
    start: Duration,
    /// The first write error; nothing is written after it.
    failed: Option<String>,
}

impl Capture {
    /// Creates client.pcapng and server.pcapng in `folder`.
    ///
    /// # Errors
    /// A file cannot be created or written.
    pub fn create(folder: &Path) -> io::Result<Capture> {
        let file = |end: End| {
            let path = folder.join(format!("{}.pcapng", end.name()));
            CaptureWriter::create(&path, end.name(), 0)
        };
        Ok(Capture {
            files: [file(End::Client)?, file(End::Server)?],
            start: Duration::ZERO,
            failed: None,
        })
    }

    /// Takes the present time as time zero of the run.
    pub fn begin(&mut self) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        self.start = now.unwrap_or_default();
    }

    /// Writes a packet that the emulator fetched in the direction `way` (0 is up). The difference
    /// between the counts `before` and `after` its arrival says whether the queue dropped it.
    pub fn sent(
        &mut self,
        way: usize,
        now: Time,
        pool: &Pool,
        slot: u32,
        before: &DirectionCounts,
        after: &DirectionCounts,
    ) {
        let segments = pool.slot(slot).segments();
        let dropped = [
            ("early", after.early_drops - before.early_drops),
            ("forced", after.forced_drops - before.forced_drops),
            ("overflow", after.overflow_drops - before.overflow_drops),
        ];
        let dropped = dropped.iter().filter(|(_, count)| *count > 0);
        let comment = dropped
            .map(|(reason, count)| match segments {
                1 => format!("dropped: {reason}"),
                _ => format!("dropped: {reason}, {count} of {segments} segments"),
            })
            .collect::<Vec<_>>()
            .join("; ");
        self.write(way, now, pool.packet(slot), &comment);
    }

    /// Writes the packet or the segments of `due`, which were delivered at the far end of the
    /// direction `way`.
    pub fn delivered(&mut self, way: usize, now: Time, pool: &Pool, due: &Due) {
        let comment = if due.marked { "marked" } else { "" };
        let slot = pool.slot(due.slot);
        match &slot.cut {
            Some(cut) if due.segments != slot.segments() => {
                let part = offload::part(pool.with_prefix(due.slot), slot, cut, due);
                let payload = slot.payload(cut, due.first, due.first + due.segments);
                let mut packet = part.bytes()[PREFIX_BYTES..].to_vec();
                packet.extend_from_slice(&pool.packet(due.slot)[payload]);
                self.write(1 - way, now, &packet, comment);
            }
            _ => self.write(1 - way, now, pool.packet(due.slot), comment),
        }
    }

    /// Writes a packet into the file of this end, unless a write has failed before.
    fn write(&mut self, end: usize, now: Time, packet: &[u8], comment: &str) {
        if self.failed.is_some() {
            return;
        }
        let at = self.start + Duration::from_nanos(now.as_nanos());
        let result = self.files[end].write(at, bytes_u32(packet.len()), packet, comment);
        self.failed = result.err().map(|error| error.to_string());
    }

    /// Writes the remaining packets and closes the files. Returns the first error, with which the
    /// captures are incomplete, or `None`.
    pub fn finish(self) -> Option<String> {
        let mut failed = self.failed;
        for file in self.files {
            if let Err(error) = file.finish() {
                failed.get_or_insert(error.to_string());
            }
        }
        failed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_units::Span;
    use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketOption;
    use pcap_file::pcapng::{Block, PcapNgReader};
    use std::fs::File;

    #[test]
    fn a_capture_has_each_packet_with_its_comment() {
        let folder = std::env::temp_dir().join(format!("forebay-capture-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let mut capture = Capture::create(&folder).unwrap();
        capture.begin();
        let mut pool = Pool::new(2, 1500);
        let slot = pool.take().unwrap();
        pool.memory(slot)[PREFIX_BYTES] = 0x45;
        pool.fill(slot, 100, None);
        let before = DirectionCounts::default();
        let after = DirectionCounts {
            early_drops: 1,
            ..before
        };
        let now = Time::ZERO + Span::from_millis(5);
        capture.sent(0, now, &pool, slot, &before, &after);
        capture.sent(0, now, &pool, slot, &before, &before);
        let due = Due {
            at: now,
            slot,
            first: 0,
            segments: 1,
            marked: true,
            link_bits: 0,
            after_idle: false,
        };
        capture.delivered(0, now, &pool, &due);
        assert_eq!(capture.finish(), None);

        let comments = |end: &str| {
            let file = File::open(folder.join(format!("{end}.pcapng"))).unwrap();
            let mut reader = PcapNgReader::new(file).unwrap();
            let mut texts = Vec::new();
            while let Some(block) = reader.next_block() {
                if let Block::EnhancedPacket(packet) = block.unwrap() {
                    assert_eq!((packet.data.len(), packet.data[0]), (100, 0x45));
                    texts.push(packet.options.iter().find_map(|option| match option {
                        EnhancedPacketOption::Comment(text) => Some(text.to_string()),
                        _ => None,
                    }));
                }
            }
            texts
        };
        assert_eq!(comments("client"), [Some("dropped: early".into()), None]);
        assert_eq!(comments("server"), [Some("marked".into())]);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
