//! Memory for packets under way: fixed slots, so that no packet costs an allocation.

use forebay_aqm::{HeldPacket, TrafficClass};

use forebay_packets::ip::{bytes_u32, Headers};

/// Bytes before each packet for the header with which a device describes a super-packet.
pub const PREFIX_BYTES: usize = 10;
/// Room for the largest super-packet with its headers.
pub const SUPER_PACKET_BYTES: usize = 65_536 + 128;

/// Where the bytes of a [`Segment`] are.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    pub slot: u32,
    /// Which segment of the slot.
    pub index: u16,
}

/// One packet of at most an MTU in the queue: a slot of the pool, or a part of one that holds a
/// super-packet. Its length is that on the link, with its own IP header; a mark is written into the
/// slot when it leaves.
pub type Segment = HeldPacket<Place>;

/// The packet in a slot.
#[derive(Clone, Copy, Debug, Default)]
pub struct Slot {
    /// Without the prefix.
    pub bytes: u32,
    pub headers: Option<Headers>,
    /// How a super-packet is to be cut; `None` for a plain packet.
    pub cut: Option<Cut>,
    /// Segments that have not left yet.
    under_way: u16,
}

/// How a super-packet divides into segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Headers that every segment repeats.
    pub header_bytes: u32,
    /// Payload of every segment but the last.
    pub payload_bytes: u32,
    pub segments: u16,
}

impl Slot {
    pub fn segments(&self) -> u16 {
        self.cut.map_or(1, |cut| cut.segments)
    }

    /// The payload of segments `first..end` of a super-packet: its range in the packet.
    pub fn payload(&self, cut: &Cut, first: u16, end: u16) -> std::ops::Range<usize> {
        let at = |index: u16| {
            let payload = u32::from(index) * cut.payload_bytes;
            (cut.header_bytes + payload).min(self.bytes) as usize
        };
        at(first)..at(end)
    }

    fn segment_bytes(&self, index: u16) -> u32 {
        match &self.cut {
            None => self.bytes,
            Some(cut) => cut.header_bytes + bytes_u32(self.payload(cut, index, index + 1).len()),
        }
    }
}

pub struct Pool {
    memory: Vec<u8>,
    slot_bytes: usize,
    slots: Vec<Slot>,
    /// Last in, first out: a short queue stays in the processor's cache.
    free: Vec<u32>,
}

impl Pool {
    /// Room for `slots` packets of at most `packet_bytes`. The pages are taken from the system
    /// when they are first used.
    pub fn new(slots: u32, packet_bytes: usize) -> Pool {
        let slot_bytes = (PREFIX_BYTES + packet_bytes).next_multiple_of(64);
        Pool {
            memory: vec![0; slots as usize * slot_bytes],
            slot_bytes,
            slots: vec![Slot::default(); slots as usize],
            free: (0..slots).rev().collect(),
        }
    }

    /// A free slot; `None` if every one is in use.
    pub fn take(&mut self) -> Option<u32> {
        self.free.pop()
    }

    /// Gives back a slot that was taken and not filled.
    pub fn put_back(&mut self, slot: u32) {
        self.free.push(slot);
    }

    /// The slot's memory: prefix and packet.
    pub fn memory(&mut self, slot: u32) -> &mut [u8] {
        let start = slot as usize * self.slot_bytes;
        &mut self.memory[start..start + self.slot_bytes]
    }

    /// The packet in a slot.
    pub fn packet(&self, slot: u32) -> &[u8] {
        let start = slot as usize * self.slot_bytes + PREFIX_BYTES;
        &self.memory[start..start + self.slots[slot as usize].bytes as usize]
    }

    pub fn packet_mut(&mut self, slot: u32) -> &mut [u8] {
        let start = slot as usize * self.slot_bytes + PREFIX_BYTES;
        &mut self.memory[start..start + self.slots[slot as usize].bytes as usize]
    }

    /// The whole of a slot as it was read: prefix and packet.
    pub fn with_prefix(&self, slot: u32) -> &[u8] {
        let start = slot as usize * self.slot_bytes;
        &self.memory[start..start + PREFIX_BYTES + self.slots[slot as usize].bytes as usize]
    }

    pub fn slot(&self, slot: u32) -> &Slot {
        &self.slots[slot as usize]
    }

    /// Describes the packet that a device has put into a slot; all its segments are then under way.
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

    pub fn segment(&self, slot: u32, index: u16) -> Segment {
        let entry = &self.slots[slot as usize];
        let class = entry.headers.map_or(TrafficClass::default(), |it| it.class);
        Segment {
            handle: Place { slot, index },
            bytes: entry.segment_bytes(index),
            ecn: class.ecn(),
            dscp: class.dscp(),
            flow: entry.headers.map_or(0, |it| it.flow.mixed()),
            hosts: entry.headers.map_or((0, 0), |it| it.flow.hosts()),
            tcp: entry.headers.is_some_and(|it| it.is_tcp()),
            traffic: None,
            marked: false,
        }
    }

    /// Segments of a slot have left; its last one frees it.
    pub fn left(&mut self, slot: u32, segments: u16) {
        let entry = &mut self.slots[slot as usize];
        entry.under_way -= segments;
        if entry.under_way == 0 {
            self.free.push(slot);
        }
    }

    #[cfg(test)]
    pub fn free_slots(&self) -> usize {
        self.free.len()
    }
}
