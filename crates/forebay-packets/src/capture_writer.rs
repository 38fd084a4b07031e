//! Writing of captures: pcapng files with IP packets and comments.

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

/// The size of the pieces that are written to the disk.
const BUFFER_BYTES: usize = 1 << 20;

/// Returns the comment on a packet that a queue dropped.
pub const fn dropped_comment(reason: DropReason) -> &'static str {
    match reason {
        DropReason::Early => "dropped: early",
        DropReason::Forced => "dropped: forced",
        DropReason::Overflow => "dropped: overflow",
    }
}

/// A pcapng file with one interface.
pub struct CaptureWriter(PcapNgWriter<BufWriter<File>>);

fn io_error(error: PcapError) -> io::Error {
    match error {
        PcapError::IoError(error) => error,
        error => io::Error::other(error),
    }
}

impl CaptureWriter {
    /// Creates the file. It keeps at most `most_bytes` of each packet; 0 keeps all.
    ///
    /// # Errors
    /// The file cannot be created or written.
    pub fn create(path: &Path, interface: &str, most_bytes: u32) -> io::Result<CaptureWriter> {
        let file = BufWriter::with_capacity(BUFFER_BYTES, File::create(path)?);
        let mut writer = PcapNgWriter::new(file).map_err(io_error)?;
        let interface = InterfaceDescriptionBlock {
            linktype: DataLink::RAW,
            snaplen: most_bytes,
            options: vec![
                InterfaceDescriptionOption::IfName(interface.into()),
                // The clock counts nanoseconds.
                InterfaceDescriptionOption::IfTsResol(9),
            ],
        };
        writer.write_pcapng_block(interface).map_err(io_error)?;
        Ok(CaptureWriter(writer))
    }

    /// Writes a packet of `bytes` bytes, of which `data` has the first ones. `at` is the time since
    /// 1970. An empty comment is left out.
    ///
    /// # Errors
    /// Those of write(2).
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

    /// Writes the buffered packets and closes the file.
    ///
    /// # Errors
    /// Those of write(2).
    pub fn finish(self) -> io::Result<()> {
        let flushed = self.0.into_inner().into_inner();
        flushed.map_err(std::io::IntoInnerError::into_error)?;
        Ok(())
    }
}
