//! The place in which a queue and its law work, and the size of the buffer.

use crate::{Bytes, Rate, SetPoint, Span};

/// The size of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Buffer {
    /// A bound in packets.
    Packets(u32),
    /// A bound in bytes.
    Bytes(u64),
}

impl Buffer {
    /// Returns true if a packet of `bytes` fits in addition to the queued packets.
    #[inline]
    pub fn has_room(self, queued_packets: u32, queued_bytes: u64, bytes: u32) -> bool {
        match self {
            Buffer::Packets(limit) => queued_packets < limit,
            Buffer::Bytes(limit) => queued_bytes + u64::from(bytes) <= limit,
        }
    }

    /// Returns true if the queued packets exceed the buffer.
    #[inline]
    pub fn is_exceeded(self, queued_packets: u32, queued_bytes: u64) -> bool {
        match self {
            Buffer::Packets(limit) => queued_packets > limit,
            Buffer::Bytes(limit) => queued_bytes > limit,
        }
    }
}

/// The queue at which a law works, as needed to check its parameters or to design it.
#[derive(Clone, Copy, Debug)]
pub struct Site {
    /// The rate of the link.
    pub rate: Rate,
    /// The buffer in packets. A buffer in bytes counts as packets of the usual size.
    pub buffer_pkts: f64,
    /// The size of the link's usual packet.
    pub packet: Bytes,
}

impl Site {
    /// Returns a set-point in packets; a delay is converted at the link's rate.
    pub fn pkts(&self, set_point: SetPoint) -> f64 {
        set_point.pkts(self.rate, self.packet)
    }

    /// Returns a description of the buffer for an error message: in packets, or as a delay if
    /// `set_point` is a delay.
    pub fn buffer_as(&self, set_point: SetPoint) -> String {
        let pkts = self.buffer_pkts;
        match set_point {
            SetPoint::Packets(_) => format!("the buffer, \"{pkts}p\""),
            SetPoint::Delay(_) => {
                let delay_s = pkts / self.rate.packets_per_sec(self.packet);
                format!("the buffer's delay, \"{}\"", Span::from_secs_f64(delay_s))
            }
        }
    }
}

/// The place in which a queue works.
#[derive(Clone, Copy, Debug)]
pub struct QueueSite {
    /// The rate of the link that the queue feeds.
    pub rate: Rate,
    /// The size of the buffer.
    pub buffer: Buffer,
    /// The size of the link's usual packet.
    pub packet: Bytes,
    /// True if a signal may be a CE mark; otherwise every signal is a drop.
    pub ecn: bool,
}

impl QueueSite {
    /// Returns the site of the queue's law. A buffer in bytes is converted to usual packets.
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
