//! The rows of packets as they are written, and, where asked for, how each packet begins.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use crate::record::{PacketRow, PACKETS, STARTS, START_BYTES};

/// The headers of a packet, from IP on, and zeros behind them.
pub type Start = [u8; START_BYTES];

pub struct Rows {
    packets: BufWriter<File>,
    starts: Option<BufWriter<File>>,
}

impl Rows {
    /// In the run's folder; with `starts` a second file has the headers.
    ///
    /// # Errors
    /// As open(2) says.
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

    /// The headers of a packet, to be kept until its row is known; `None` where nobody asks.
    pub fn start_of(&self, packet: &[u8]) -> Option<Box<Start>> {
        self.starts.as_ref().map(|_| Box::new(start(packet)))
    }

    /// # Errors
    /// As write(2) says.
    pub fn write(&mut self, row: &PacketRow, packet: &[u8]) -> io::Result<()> {
        row.write(&mut self.packets)?;
        match &mut self.starts {
            Some(starts) => starts.write_all(&start(packet)),
            None => Ok(()),
        }
    }

    /// # Errors
    /// As write(2) says.
    pub fn flush(&mut self) -> io::Result<()> {
        self.packets.flush()?;
        self.starts.as_mut().map_or(Ok(()), BufWriter::flush)
    }
}

fn start(packet: &[u8]) -> Start {
    let mut start = [0; START_BYTES];
    let length = packet.len().min(START_BYTES);
    start[..length].copy_from_slice(&packet[..length]);
    start
}
