//! TCP options of ACKs on their way, SACK blocks and counts of marks, kept beside the packets so
//! that packets stay small.

use crate::number::count;
use crate::packet::NO_BLOCKS;
use crate::tcp::{Block, MAX_BLOCKS};

/// Options of an ACK: SACK blocks and a count of marks.
#[derive(Clone, Copy, Debug, Default)]
pub struct AckOptions {
    blocks: [Block; MAX_BLOCKS],
    count: u8,
    /// Marked packets that the receiver has counted (RFC 9768).
    pub ce_pkts: u32,
}

impl AckOptions {
    /// SACK blocks.
    pub fn blocks(&self) -> &[Block] {
        &self.blocks[..usize::from(self.count)]
    }
}

#[derive(Default)]
pub struct BlockStore {
    slots: Vec<AckOptions>,
    free: Vec<u32>,
}

impl BlockStore {
    /// Keeps up to three blocks and a count of marks; the answer goes into the packet.
    #[inline]
    pub fn put(&mut self, blocks: &[Block], ce_pkts: u32) -> u32 {
        if blocks.is_empty() && ce_pkts == 0 {
            return NO_BLOCKS;
        }
        let mut slot = AckOptions {
            count: u8::try_from(blocks.len()).expect("three at most"),
            ce_pkts,
            ..AckOptions::default()
        };
        slot.blocks[..blocks.len()].copy_from_slice(blocks);
        match self.free.pop() {
            Some(index) => {
                self.slots[index as usize] = slot;
                index
            }
            None => {
                self.slots.push(slot);
                let index = count(self.slots.len() - 1);
                assert!(
                    index < NO_BLOCKS,
                    "16 million ACKs with options on their way"
                );
                index
            }
        }
    }

    /// Takes out again what [`put`](BlockStore::put) has kept.
    pub fn take(&mut self, index: u32) -> AckOptions {
        self.free.push(index);
        self.slots[index as usize]
    }
}
