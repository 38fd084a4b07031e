//! A capture of one queue's packets in the format of wireshark (pcapng), as the guest's is.

use std::io;
use std::path::Path;
use std::time::Duration;

use forebay_aqm::DropReason;
use forebay_packets::{dropped_comment, CaptureWriter};
use forebay_units::{Span, Time};

use crate::pool::{Pool, Segment};

/// Of a packet this much is kept, as of the guest's.
const START_BYTES: u32 = 128;

/// The packets of one queue, each once: at the time at which it left, or was lost. Times count from
/// `start` of the link's run, and end at `end`.
pub struct QueueCapture {
    file: CaptureWriter,
    start: Time,
    end: Time,
    failed: Option<String>,
}

impl QueueCapture {
    /// # Errors
    /// A file that cannot be written.
    pub fn create(path: &Path, start: Span, end: Span) -> io::Result<QueueCapture> {
        Ok(QueueCapture {
            file: CaptureWriter::create(path, "bottleneck", START_BYTES)?,
            start: Time::ZERO + start,
            end: Time::ZERO + end,
            failed: None,
        })
    }

    pub fn left(&mut self, now: Time, pool: &Pool, segment: &Segment) {
        let comment = if segment.marked { "marked" } else { "" };
        self.write(now, pool, segment, comment);
    }

    pub fn dropped(&mut self, at: Time, pool: &Pool, segment: &Segment, why: DropReason) {
        self.write(at, pool, segment, dropped_comment(why));
    }

    fn write(&mut self, at: Time, pool: &Pool, segment: &Segment, comment: &str) {
        if self.failed.is_some() || at < self.start || at > self.end {
            return;
        }
        let packet = pool.packet(segment.handle.slot);
        let kept = packet.len().min(START_BYTES as usize);
        let at = Duration::from_nanos(at.since(self.start).as_nanos());
        let written = (self.file).write(at, segment.bytes, &packet[..kept], comment);
        self.failed = written.err().map(|error| error.to_string());
    }

    /// Writes the rest. Returns why the capture is not whole, if it is not.
    pub fn finish(self) -> Option<String> {
        let flushed = self.file.finish().err().map(|error| error.to_string());
        self.failed.or(flushed)
    }
}
