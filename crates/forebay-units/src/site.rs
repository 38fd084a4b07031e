//! Where a queue and its law are put, and how much the queue can hold.

use crate::{Bytes, Rate, SetPoint, Span};

/// How much a queue can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Buffer {
    Packets(u32),
    Bytes(u64),
}

impl Buffer {
    /// Whether a packet of `bytes` fits beside what waits.
    #[inline]
    pub fn has_room(self, queued_packets: u32, queued_bytes: u64, bytes: u32) -> bool {
        match self {
            Buffer::Packets(limit) => queued_packets < limit,
            Buffer::Bytes(limit) => queued_bytes + u64::from(bytes) <= limit,
        }
    }

    /// Whether this is more than it can hold.
    #[inline]
    pub fn is_exceeded(self, queued_packets: u32, queued_bytes: u64) -> bool {
        match self {
            Buffer::Packets(limit) => queued_packets > limit,
            Buffer::Bytes(limit) => queued_bytes > limit,
        }
    }
}

/// Where a law is put: what a check of its parameters, or a design, may need.
#[derive(Clone, Copy, Debug)]
pub struct Site {
    pub rate: Rate,
    /// Buffer in packets; one of bytes counts as packets of the usual size.
    pub buffer_pkts: f64,
    /// Usual packet on the link.
    pub packet: Bytes,
}

impl Site {
    /// A set-point in packets, a delay at the link's rate.
    pub fn pkts(&self, set_point: SetPoint) -> f64 {
        set_point.pkts(self.rate, self.packet)
    }

    /// The buffer in words, in packets, or as the delay that it can hold where `like` is a delay.
    pub fn buffer_as(&self, like: SetPoint) -> String {
        let pkts = self.buffer_pkts;
        match like {
            SetPoint::Packets(_) => format!("the buffer, \"{pkts}p\""),
            SetPoint::Delay(_) => {
                let delay_s = pkts / self.rate.packets_per_sec(self.packet);
                format!(
                    "what the buffer holds, \"{}\"",
                    Span::from_secs_f64(delay_s)
                )
            }
        }
    }
}

/// Where a queue is put.
#[derive(Clone, Copy, Debug)]
pub struct QueueSite {
    /// Of the link that it feeds.
    pub rate: Rate,
    pub buffer: Buffer,
    /// Usual packet on the link.
    pub packet: Bytes,
    /// Whether a signal may be a CE mark; false turns every mark into a drop.
    pub ecn: bool,
}

impl QueueSite {
    /// What a law is told of it. A buffer in bytes counts as the usual packets that it holds.
    pub fn law_site(&self) -> Site {
        Site {
            rate: self.rate,
            buffer_pkts: match self.buffer {
                Buffer::Packets(packets) => f64::from(packets),
                Buffer::Bytes(bytes) => bytes as f64 / self.packet.0 as f64,
            },
            packet: self.packet,
        }
    }
}
