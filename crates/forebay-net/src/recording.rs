//! Recording of the caller's packets in files: a capture at the bottleneck, and a log of events.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::time::Duration;

use forebay_aqm::{DropReason, Ecn};
use forebay_packets::{dropped_comment, CaptureWriter};
use forebay_sim::{End, QueueAction, QueueEvent};

use crate::escape::json;

/// The size of the headers of IPv4 and UDP.
const HEADER_BYTES: usize = 28;

/// The port at the sink, which is that of QUIC (RFC 9000).
const SINK_PORT: u16 = 443;

/// The open files of a recording.
pub struct Recording {
    capture: Option<CaptureWriter>,
    events: Option<BufWriter<File>>,
    /// Packets that the bottleneck has marked and that are still in its queue.
    marked: HashSet<u64>,
    /// The name of each link.
    links: Vec<String>,
    /// The first error of a file; nothing is written after it.
    failed: Option<io::Error>,
}

impl Recording {
    /// Creates the files.
    pub fn create(
        capture: Option<&Path>,
        events: Option<&Path>,
        links: Vec<String>,
    ) -> io::Result<Recording> {
        let interface = links.first().map_or("bottleneck", String::as_str);
        Ok(Recording {
            capture: capture
                .map(|path| CaptureWriter::create(path, interface, 0))
                .transpose()?,
            events: events
                .map(|path| File::create(path).map(BufWriter::new))
                .transpose()?,
            marked: HashSet::new(),
            links,
            failed: None,
        })
    }

    /// Writes an event of the packet that was sent after `number` others. `payload` has its bytes,
    /// if they are known.
    pub fn take(&mut self, event: &QueueEvent, number: u64, payload: &[u8], header_bytes: usize) {
        if self.failed.is_none() {
            let result = self
                .log(event, number)
                .and_then(|()| self.capture(event, number, payload, header_bytes));
            self.failed = result.err();
        }
    }

    /// Closes the files. Returns the first error of the recording.
    pub fn finish(self) -> io::Result<()> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        self.capture.map_or(Ok(()), CaptureWriter::finish)?;
        self.events.map_or(Ok(()), |mut events| events.flush())
    }

    /// Writes an event into the log.
    fn log(&mut self, event: &QueueEvent, number: u64) -> io::Result<()> {
        let Some(events) = &mut self.events else {
            return Ok(());
        };
        let (name, more) = match event.action {
            QueueAction::Enqueue => ("enqueue", String::new()),
            QueueAction::Mark => ("mark", String::new()),
            QueueAction::Dequeue(sojourn) => {
                ("dequeue", format!(",\"sojourn_ns\":{}", sojourn.as_nanos()))
            }
            QueueAction::Drop(cause) => ("drop", format!(",\"reason\":\"{}\"", reason(cause))),
        };
        let link = self.links.get(event.link).map_or("", String::as_str);
        writeln!(
            events,
            "{{\"time_ns\":{},\"event\":\"{name}\",\"link\":\"{}\",\"packet\":{number},\"flow\":{},\
             \"from\":\"{}\",\"bytes\":{},\"ecn\":\"{}\"{more}}}",
            event.at.as_nanos(),
            json(link),
            event.flow,
            match event.from {
                End::Source => "source",
                End::Sink => "sink",
            },
            event.bytes,
            match event.class.ecn() {
                Ecn::NotEct => "not-ect",
                Ecn::Ect1 => "ect1",
                Ecn::Ect0 => "ect0",
                Ecn::Ce => "ce",
            },
        )
    }

    /// Writes the packet of an event at the bottleneck into the capture, if it left the queue or
    /// was dropped.
    fn capture(
        &mut self,
        event: &QueueEvent,
        number: u64,
        payload: &[u8],
        header_bytes: usize,
    ) -> io::Result<()> {
        let Some(capture) = self.capture.as_mut().filter(|_| event.link == 0) else {
            return Ok(());
        };
        let comment = match event.action {
            QueueAction::Enqueue => return Ok(()),
            QueueAction::Mark => {
                self.marked.insert(number);
                return Ok(());
            }
            QueueAction::Dequeue(_) if self.marked.remove(&number) => "marked",
            QueueAction::Dequeue(_) => "",
            QueueAction::Drop(cause) => {
                self.marked.remove(&number);
                dropped_comment(cause)
            }
        };
        let length = usize::from(event.bytes).saturating_sub(header_bytes);
        let mut packet = headers(event, number, length).to_vec();
        packet.extend_from_slice(payload);
        let bytes = u32::try_from(HEADER_BYTES + length).unwrap_or(u32::MAX);
        let at = Duration::from_nanos(event.at.as_nanos());
        capture.write(at, bytes, &packet, comment)
    }
}

/// Returns the word for a reason of a drop in the log.
fn reason(cause: DropReason) -> &'static str {
    match cause {
        DropReason::Early => "early",
        DropReason::Forced => "forced",
        DropReason::Overflow => "overflow",
    }
}

/// Returns headers of IPv4 and UDP for a payload of this length. Each flow has its own addresses in
/// the block for benchmarks (RFC 2544, appendix C.2.2): 198.18.x.y is the source and 198.19.x.y the
/// sink of flow 256·x + y. UDP's checksum is 0, that is absent (RFC 768).
fn headers(event: &QueueEvent, number: u64, length: usize) -> [u8; HEADER_BYTES] {
    let [low, high] = [event.flow % 0x1_0000, event.flow / 0x1_0000];
    let [x, y] = u16::try_from(low).unwrap_or(0).to_be_bytes();
    let source = [198, 18, x, y];
    let sink = [198, 19, x, y];
    let source_port = 49_152_u16.wrapping_add(u16::try_from(high).unwrap_or(0));
    let (from, to, ports) = match event.from {
        End::Source => (source, sink, [source_port, SINK_PORT]),
        End::Sink => (sink, source, [SINK_PORT, source_port]),
    };
    let short = |bytes: usize| u16::try_from(bytes).unwrap_or(u16::MAX).to_be_bytes();
    let mut packet = [0; HEADER_BYTES];
    packet[0] = 0x45;
    packet[1] = event.class.0;
    packet[2..4].copy_from_slice(&short(HEADER_BYTES + length));
    packet[4..6].copy_from_slice(&u16::try_from(number % 0x1_0000).unwrap_or(0).to_be_bytes());
    packet[8] = 64; // time to live
    packet[9] = 17; // UDP
    packet[12..16].copy_from_slice(&from);
    packet[16..20].copy_from_slice(&to);
    let sum: u32 = packet[..20]
        .chunks_exact(2)
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])))
        .sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let checksum = !u16::try_from((folded & 0xffff) + (folded >> 16)).unwrap_or(u16::MAX);
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    packet[20..22].copy_from_slice(&ports[0].to_be_bytes());
    packet[22..24].copy_from_slice(&ports[1].to_be_bytes());
    packet[24..26].copy_from_slice(&short(8 + length));
    packet
}
