//! Files of the packets' rows, and of their headers where the run keeps them.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use crate::record::{PacketRow, PACKETS, STARTS, START_BYTES};

/// The first bytes of a packet, from its IP header on, filled up with zeros.
pub type Start = [u8; START_BYTES];

/// The open files.
pub struct Rows {
    packets: BufWriter<File>,
    starts: Option<BufWriter<File>>,
}

impl Rows {
    /// Creates the file of rows in the folder of the run, and with `starts` a second file for
    /// headers.
    ///
    /// # Errors
    /// Those of open(2).
    pub fn create(folder: &Path, starts: bool) -> io::Result<Rows> {
        let file = |name: &str| File::create(folder.join(name)).map(BufWriter::new);
        let starts = match starts {
            true => Some(file(STARTS)?),
            false => None,
        };
        Ok(Rows {
            packets: file(PACKETS)?,
            starts,
        })
    }

    /// Returns the headers of a packet, which the caller keeps until the packet's row is known;
    /// `None` where the run does not keep headers.
    pub fn start_of(&self, packet: &[u8]) -> Option<Box<Start>> {
        self.starts.as_ref().map(|_| Box::new(start(packet)))
    }

    /// Writes the row of a packet, and its headers where the run keeps them.
    ///
    /// # Errors
    /// Those of write(2).
    pub fn write(&mut self, row: &PacketRow, packet: &[u8]) -> io::Result<()> {
        row.write(&mut self.packets)?;
        match &mut self.starts {
            Some(starts) => starts.write_all(&start(packet)),
            None => Ok(()),
        }
    }

    /// Writes the buffered rows to the files.
    ///
    /// # Errors
    /// Those of write(2).
    pub fn flush(&mut self) -> io::Result<()> {
        self.packets.flush()?;
        self.starts.as_mut().map_or(Ok(()), BufWriter::flush)
    }
}

/// Returns the first bytes of a packet.
fn start(packet: &[u8]) -> Start {
    let mut start = [0; START_BYTES];
    let length = packet.len().min(START_BYTES);
    start[..length].copy_from_slice(&packet[..length]);
    start
}
