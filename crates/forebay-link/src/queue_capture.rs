//! Capture of the packets of one queue, as a pcapng file like that of the guest.

use std::io;
use std::path::Path;
use std::time::Duration;

use forebay_aqm::DropReason;
use forebay_packets::{dropped_comment, CaptureWriter};
use forebay_units::{Span, Time};

use crate::pool::{Pool, Segment};

/// The number of bytes of each packet that are kept, as in captures of the guest.
const START_BYTES: u32 = 128;

/// A capture of one queue's packets. Each packet appears once: at the time at which it left the
/// queue, or was dropped. Times count from the time `start` of the run, and the capture ends at
/// `end`.
pub struct QueueCapture {
    file: CaptureWriter,
    start: Time,
    end: Time,
    failed: Option<String>,
}

impl QueueCapture {
    /// Creates the file at `path`. `start` and `end` are times since the start of the run.
    ///
    /// # Errors
    /// The file cannot be created or written.
    pub fn create(path: &Path, start: Span, end: Span) -> io::Result<QueueCapture> {
        Ok(QueueCapture {
            file: CaptureWriter::create(path, "bottleneck", START_BYTES)?,
            start: Time::ZERO + start,
            end: Time::ZERO + end,
            failed: None,
        })
    }

    /// Writes a packet that left the queue at `now`.
    pub fn left(&mut self, now: Time, pool: &Pool, segment: &Segment) {
        let comment = if segment.marked { "marked" } else { "" };
        self.write(now, pool, segment, comment);
    }

    /// Writes a packet that the queue dropped at `at`.
    pub fn dropped(&mut self, at: Time, pool: &Pool, segment: &Segment, reason: DropReason) {
        self.write(at, pool, segment, dropped_comment(reason));
    }

    /// Writes a packet with a comment, if `at` is within the capture and no write has failed.
    fn write(&mut self, at: Time, pool: &Pool, segment: &Segment, comment: &str) {
        if self.failed.is_some() || at < self.start || at > self.end {
            return;
        }
        let packet = pool.packet(segment.handle.slot);
        let kept_bytes = packet.len().min(START_BYTES as usize);
        let at = Duration::from_nanos(at.since(self.start).as_nanos());
        let result = (self.file).write(at, segment.bytes, &packet[..kept_bytes], comment);
        self.failed = result.err().map(|error| error.to_string());
    }

    /// Writes the remaining packets and closes the file. Returns the first error, with which the
    /// capture is incomplete, or `None`.
    pub fn finish(self) -> Option<String> {
        let flushed = self.file.finish().err().map(|error| error.to_string());
        self.failed.or(flushed)
    }
}
