//! Record of a run, as the guest writes it: a row for each packet, a row for each sample, and the
//! rest as a [`RunRecord`].

use std::io::{self, Write};

use forebay_aqm::DropReason;
use forebay_units::Time;
use serde::{Deserialize, Serialize};

/// The file with the rows of packets.
pub const PACKETS: &str = "packets";
/// The file with the first bytes of each packet, in the order of the packets' rows.
pub const STARTS: &str = "starts";
/// The file with the rows of samples.
pub const SAMPLES: &str = "samples";
/// The file with the [`RunRecord`].
pub const OUTCOME: &str = "outcome.json";
/// The file with the progress of the run: a line with the present time in ns, now and then.
pub const PROGRESS: &str = "progress";

/// The number of bytes of a packet that are kept: the headers of IP and TCP with all options.
pub const START_BYTES: usize = 128;
/// [`START_BYTES`] as a `u32`.
pub(crate) const START_BYTES_U32: u32 = 128;

/// The fate of a packet that arrived at the bottleneck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The packet left the queue unmarked.
    Left,
    /// The packet left the queue with a mark of the law.
    Marked,
    /// The packet was dropped.
    Lost(DropReason),
}

/// The row of a packet that arrived at the bottleneck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketRow {
    /// The time of its arrival.
    pub arrived: Time,
    /// The time at which its transmission began, or at which it was dropped.
    pub left: Time,
    /// Its length on the wire.
    pub bytes: u32,
    /// The number of its traffic.
    pub traffic: u8,
    /// The number of its class in the discipline.
    pub class: u8,
    /// Its fate.
    pub fate: Fate,
    /// The size of its headers, of all layers.
    pub header_bytes: u8,
    /// The number of its flow in its traffic.
    pub flow: u32,
}

impl PacketRow {
    /// The size of a row in the file.
    pub const BYTES: usize = 28;

    /// Writes the row: little-endian fields in the order of the file.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let fate = match self.fate {
            Fate::Left => 0,
            Fate::Marked => 1,
            Fate::Lost(DropReason::Early) => 2,
            Fate::Lost(DropReason::Forced) => 3,
            Fate::Lost(DropReason::Overflow) => 4,
        };
        out.write_all(&self.arrived.as_nanos().to_le_bytes())?;
        out.write_all(&self.left.as_nanos().to_le_bytes())?;
        out.write_all(&self.bytes.to_le_bytes())?;
        out.write_all(&[self.traffic, self.class, fate, self.header_bytes])?;
        out.write_all(&self.flow.to_le_bytes())
    }

    /// Reads the rows of a file with these contents.
    pub fn rows(contents: &[u8]) -> impl Iterator<Item = PacketRow> + '_ {
        contents.chunks_exact(PacketRow::BYTES).map(PacketRow::read)
    }

    /// Reads a row of [`PacketRow::BYTES`] bytes.
    fn read(row: &[u8]) -> PacketRow {
        PacketRow {
            arrived: Time::from_nanos(u64_at(row, 0)),
            left: Time::from_nanos(u64_at(row, 8)),
            bytes: u32_at(row, 16),
            traffic: row[20],
            class: row[21],
            fate: match row[22] {
                0 => Fate::Left,
                1 => Fate::Marked,
                2 => Fate::Lost(DropReason::Early),
                3 => Fate::Lost(DropReason::Forced),
                _ => Fate::Lost(DropReason::Overflow),
            },
            header_bytes: row[23],
            flow: u32_at(row, 24),
        }
    }
}

/// The row of a sample: the queue at the end of an interval, and the law's state variables.
#[derive(Clone, Debug, PartialEq)]
pub struct SampleRow {
    /// Packets in the queue.
    pub queue_pkts: u32,
    /// Bytes in the queue.
    pub queue_bytes: u64,
    /// The law's state variables, in the order of [`RunRecord::probes`].
    pub probes: Vec<f64>,
}

impl SampleRow {
    /// Writes the row: little-endian fields in the order of the file.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        out.write_all(&self.queue_pkts.to_le_bytes())?;
        out.write_all(&self.queue_bytes.to_le_bytes())?;
        (self.probes.iter()).try_for_each(|value| out.write_all(&value.to_le_bytes()))
    }
}

/// Returns the little-endian number at `at`.
pub(crate) fn u32_at(row: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(row[at..at + 4].try_into().expect("four bytes"))
}

/// Returns the little-endian number at `at`.
pub(crate) fn u64_at(row: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(row[at..at + 8].try_into().expect("eight bytes"))
}

/// The observations of a run besides packets and samples.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RunRecord {
    /// `uname -r` of the guest.
    pub kernel: String,
    /// The start of the run on the guest's CLOCK_MONOTONIC, in ns.
    #[serde(default)]
    pub started_ns: u64,
    /// The error with which the run failed; empty where it succeeded.
    pub failure: String,
    /// The names of the state variables in the rows of samples.
    pub probes: Vec<String>,
    /// For each flow: the number of its traffic, and the bytes delivered within the window.
    pub flows: Vec<(u32, u64)>,
    /// For each row of the goodput and each flow: the bytes delivered since the start of the run.
    pub totals: Vec<Vec<u64>>,
    /// For each transfer: the number of its traffic, its packets, and its time in ns.
    pub transfers: Vec<(u32, u32, u64)>,
    /// For each traffic: the data packets that were sent within the window, and those
    /// retransmitted.
    pub sent: Vec<(u64, u64)>,
    /// For each viewer of a video: the number of its traffic, its segments, the sum of their rates
    /// in bit/s, the number of stalls, and their time in ns.
    pub viewers: Vec<(u32, u32, f64, u32, u64)>,
    /// For each call: the number of its traffic, packets received, packets lost, and the sums of
    /// the delays and of their changes, in ns.
    pub calls: Vec<(u32, u64, u64, u64, u64)>,
    /// The output of `tc -s qdisc show` for the bottleneck at the end.
    pub qdisc: String,
    /// The outcomes of programs.
    pub programs: Vec<ProgramOutcome>,
}

/// The outcome of a program of the scenario.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProgramOutcome {
    /// The number of its traffic.
    pub traffic: u32,
    /// "client" or "server".
    pub end: String,
    /// Its command.
    pub command: String,
    /// Its exit status; `None` where it was stopped at the end of the scenario.
    pub status: Option<i32>,
    /// The end of its output.
    pub output: String,
}
