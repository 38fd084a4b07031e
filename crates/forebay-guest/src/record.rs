//! What a guest observes: a row for each packet and each sample, and an outcome.

use std::io::{self, Write};

use forebay_aqm::DropReason;
use forebay_units::Time;
use serde::{Deserialize, Serialize};

/// Names of the files that a guest writes.
pub const PACKETS: &str = "packets";
/// How each packet begins, in the order of their rows.
pub const STARTS: &str = "starts";
pub const SAMPLES: &str = "samples";
pub const OUTCOME: &str = "outcome.json";
pub const PROGRESS: &str = "progress";

/// Bytes of a packet that are kept: IP and TCP with all options.
pub const START_BYTES: usize = 128;
pub(crate) const START_BYTES_U32: u32 = 128;

/// What became of a packet that came to the bottleneck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Left,
    Marked,
    Lost(DropReason),
}

/// A packet that came to the bottleneck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketRow {
    pub arrived: Time,
    /// When it was taken from the queue onto the link; of a lost one, when it was lost.
    pub left: Time,
    pub bytes: u32,
    pub traffic: u8,
    pub class: u8,
    pub fate: Fate,
    /// Headers of all layers.
    pub header_bytes: u8,
    /// Number of its flow in its traffic.
    pub flow: u32,
}

impl PacketRow {
    pub const BYTES: usize = 28;

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

    pub(crate) fn read(row: &[u8]) -> PacketRow {
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

/// The queue at the end of an interval, and the law's inner values.
#[derive(Clone, Debug, PartialEq)]
pub struct SampleRow {
    pub queue_pkts: u32,
    pub queue_bytes: u64,
    pub probes: Vec<f64>,
}

impl SampleRow {
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        out.write_all(&self.queue_pkts.to_le_bytes())?;
        out.write_all(&self.queue_bytes.to_le_bytes())?;
        (self.probes.iter()).try_for_each(|value| out.write_all(&value.to_le_bytes()))
    }
}

pub(crate) fn u32_at(row: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(row[at..at + 4].try_into().expect("four bytes"))
}

pub(crate) fn u64_at(row: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(row[at..at + 8].try_into().expect("eight bytes"))
}

/// The rest.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RunRecord {
    /// `uname -r` of the guest.
    pub kernel: String,
    /// Why it ended early, or what it could not do; empty where it did all.
    pub failure: String,
    /// Names of the probes of a sample.
    pub probes: Vec<String>,
    /// By flow: the number of its traffic, and its bytes within the window.
    pub flows: Vec<(u32, u64)>,
    /// By row of the goodput, and by flow: bytes since the start.
    pub totals: Vec<Vec<u64>>,
    /// Traffic, packets, and time in ns.
    pub transfers: Vec<(u32, u32, u64)>,
    /// By traffic: data packets that its senders sent within the window, and again.
    pub sent: Vec<(u64, u64)>,
    /// Viewers: traffic, segments, sum of rates in bit/s, stalls, ns stalled.
    pub viewers: Vec<(u32, u32, f64, u32, u64)>,
    /// Calls: traffic, packets received and lost, ns of delays and of their changes.
    pub calls: Vec<(u32, u64, u64, u64, u64)>,
    /// `tc -s qdisc show` of the bottleneck at the end.
    pub qdisc: String,
    /// What programs said, and how they ended.
    pub programs: Vec<ProgramOutcome>,
}

/// How a program of the scenario ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProgramOutcome {
    pub traffic: u32,
    /// "client" or "server".
    pub end: String,
    pub command: String,
    /// Exit status; None where it was stopped at the scenario's end.
    pub status: Option<i32>,
    /// The end of what it wrote.
    pub output: String,
}
