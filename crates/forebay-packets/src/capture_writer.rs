//! Captures in the format of wireshark (pcapng): packets of IP, with comments.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufWriter};
use std::path::Path;
use std::time::Duration;

use forebay_aqm::DropReason;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::{DataLink, PcapError};

/// Written to the disk in pieces of this size.
const BUFFER_BYTES: usize = 1 << 20;

/// The comment of a packet that a queue has dropped.
pub const fn dropped_comment(why: DropReason) -> &'static str {
    match why {
        DropReason::Early => "dropped: early",
        DropReason::Forced => "dropped: forced",
        DropReason::Overflow => "dropped: overflow",
    }
}

/// A file of one interface.
pub struct CaptureWriter(PcapNgWriter<BufWriter<File>>);

fn io_error(error: PcapError) -> io::Error {
    match error {
        PcapError::IoError(error) => error,
        other => io::Error::other(other),
    }
}

impl CaptureWriter {
    /// Makes the file. Of each packet there are at most `most_bytes`; 0 is all of them.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn create(path: &Path, interface: &str, most_bytes: u32) -> io::Result<CaptureWriter> {
        let file = BufWriter::with_capacity(BUFFER_BYTES, File::create(path)?);
        let mut writer = PcapNgWriter::new(file).map_err(io_error)?;
        let interface = InterfaceDescriptionBlock {
            linktype: DataLink::RAW,
            snaplen: most_bytes,
            options: vec![
                InterfaceDescriptionOption::IfName(interface.into()),
                // Nanoseconds.
                InterfaceDescriptionOption::IfTsResol(9),
            ],
        };
        writer.write_pcapng_block(interface).map_err(io_error)?;
        Ok(CaptureWriter(writer))
    }

    /// Writes `data`, the start of a packet of `bytes`; an empty comment is none.
    ///
    /// # Errors
    /// As write(2) says.
    pub fn write(
        &mut self,
        at: Duration,
        bytes: u32,
        data: &[u8],
        comment: &str,
    ) -> io::Result<()> {
        let comment = (!comment.is_empty()).then(|| EnhancedPacketOption::Comment(comment.into()));
        let block = EnhancedPacketBlock {
            interface_id: 0,
            timestamp: at,
            original_len: bytes,
            data: Cow::Borrowed(data),
            options: comment.into_iter().collect(),
        };
        self.0.write_pcapng_block(block).map_err(io_error)?;
        Ok(())
    }

    /// Writes the rest.
    ///
    /// # Errors
    /// As write(2) says.
    pub fn finish(self) -> io::Result<()> {
        let flushed = self.0.into_inner().into_inner();
        flushed.map_err(std::io::IntoInnerError::into_error)?;
        Ok(())
    }
}
