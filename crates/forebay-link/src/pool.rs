//! Memory for packets under way, in slots of a fixed size, so that no packet needs an allocation.

use forebay_aqm::{HeldPacket, TrafficClass};

use forebay_packets::ip::{bytes_u32, Headers};

/// The bytes before each packet for the `struct virtio_net_hdr` that describes a super-packet.
pub const PREFIX_BYTES: usize = 10;
/// The size of the largest super-packet with its headers.
pub const SUPER_PACKET_BYTES: usize = 65_536 + 128;

/// The place of a [`Segment`]'s bytes in the pool.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// The number of the slot.
    pub slot: u32,
    /// The index of the segment in the slot.
    pub index: u16,
}

/// One packet of at most an MTU in the queue: a slot of the pool, or a segment of a super-packet in
/// a slot. Its length is that on the link, with its own IP header. A mark is written into the
/// packet when it leaves.
pub type Segment = HeldPacket<Place>;

/// The packet in a slot.
#[derive(Clone, Copy, Debug, Default)]
pub struct Slot {
    /// The length of the packet, without the prefix.
    pub bytes: u32,
    /// The headers of the packet; `None` where it is not valid IP.
    pub headers: Option<Headers>,
    /// The division of a super-packet into segments; `None` for a plain packet.
    pub cut: Option<Cut>,
    /// The number of segments that have not left yet.
    under_way: u16,
}

/// The division of a super-packet into segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The size of the headers, which every segment repeats.
    pub header_bytes: u32,
    /// The payload of every segment except the last, which may have less.
    pub payload_bytes: u32,
    /// The number of segments.
    pub segments: u16,
}

impl Slot {
    /// Returns the number of segments, which is 1 for a plain packet.
    pub fn segments(&self) -> u16 {
        self.cut.map_or(1, |cut| cut.segments)
    }

    /// Returns the range of bytes in the packet that holds the payload of the segments
    /// `first..end`.
    pub fn payload(&self, cut: &Cut, first: u16, end: u16) -> std::ops::Range<usize> {
        let at = |index: u16| {
            let payload = u32::from(index) * cut.payload_bytes;
            (cut.header_bytes + payload).min(self.bytes) as usize
        };
        at(first)..at(end)
    }

    /// Returns the length of a segment with its headers.
    fn segment_bytes(&self, index: u16) -> u32 {
        match &self.cut {
            None => self.bytes,
            Some(cut) => cut.header_bytes + bytes_u32(self.payload(cut, index, index + 1).len()),
        }
    }
}

/// A fixed number of slots for packets.
pub struct Pool {
    memory: Vec<u8>,
    slot_bytes: usize,
    slots: Vec<Slot>,
    /// The free slots, last in, first out, so that a short queue stays in the processor's cache.
    free: Vec<u32>,
}

impl Pool {
    /// Returns a pool of `slots` packets of at most `packet_bytes` bytes. The system provides the
    /// memory pages when they are first used.
    pub fn new(slots: u32, packet_bytes: usize) -> Pool {
        let slot_bytes = (PREFIX_BYTES + packet_bytes).next_multiple_of(64);
        Pool {
            memory: vec![0; slots as usize * slot_bytes],
            slot_bytes,
            slots: vec![Slot::default(); slots as usize],
            free: (0..slots).rev().collect(),
        }
    }

    /// Takes a free slot; `None` where all are in use.
    pub fn take(&mut self) -> Option<u32> {
        self.free.pop()
    }

    /// Returns a slot that was taken but not filled.
    pub fn put_back(&mut self, slot: u32) {
        self.free.push(slot);
    }

    /// Returns the memory of a slot: prefix and packet.
    pub fn memory(&mut self, slot: u32) -> &mut [u8] {
        let start = slot as usize * self.slot_bytes;
        &mut self.memory[start..start + self.slot_bytes]
    }

    /// Returns the packet in a slot.
    pub fn packet(&self, slot: u32) -> &[u8] {
        let start = slot as usize * self.slot_bytes + PREFIX_BYTES;
        &self.memory[start..start + self.slots[slot as usize].bytes as usize]
    }

    /// Returns the packet in a slot, to change it.
    pub fn packet_mut(&mut self, slot: u32) -> &mut [u8] {
        let start = slot as usize * self.slot_bytes + PREFIX_BYTES;
        &mut self.memory[start..start + self.slots[slot as usize].bytes as usize]
    }

    /// Returns the prefix and the packet in a slot.
    pub fn with_prefix(&self, slot: u32) -> &[u8] {
        let start = slot as usize * self.slot_bytes;
        &self.memory[start..start + PREFIX_BYTES + self.slots[slot as usize].bytes as usize]
    }

    /// Returns the description of the packet in a slot.
    pub fn slot(&self, slot: u32) -> &Slot {
        &self.slots[slot as usize]
    }

    /// Describes the packet that a device has written into a slot. All its segments count as under
    /// way until [`Pool::left`].
    pub fn fill(&mut self, slot: u32, bytes: u32, cut: Option<Cut>) {
        let entry = &mut self.slots[slot as usize];
        *entry = Slot {
            bytes,
            headers: None,
            cut,
            under_way: 0,
        };
        entry.under_way = entry.segments();
        let headers = Headers::read(self.packet(slot));
        self.slots[slot as usize].headers = headers;
    }

    /// Returns a segment of the packet in a slot, for the queue.
    pub fn segment(&self, slot: u32, index: u16) -> Segment {
        let entry = &self.slots[slot as usize];
        let class = entry
            .headers
            .map_or(TrafficClass::default(), |headers| headers.class);
        Segment {
            handle: Place { slot, index },
            bytes: entry.segment_bytes(index),
            ecn: class.ecn(),
            dscp: class.dscp(),
            flow: entry.headers.map_or(0, |headers| headers.flow.mixed()),
            hosts: entry.headers.map_or((0, 0), |headers| headers.flow.hosts()),
            tcp: entry.headers.is_some_and(|headers| headers.is_tcp()),
            traffic: None,
            marked: false,
        }
    }

    /// Notes that `segments` of a slot have left. The slot is free when the last one has left.
    pub fn left(&mut self, slot: u32, segments: u16) {
        let entry = &mut self.slots[slot as usize];
        entry.under_way -= segments;
        if entry.under_way == 0 {
            self.free.push(slot);
        }
    }

    /// Returns the number of free slots.
    #[cfg(test)]
    pub fn free_slots(&self) -> usize {
        self.free.len()
    }
}
