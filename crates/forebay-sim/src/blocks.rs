//! The TCP options of ACKs under way: SACK blocks and counts of marks. They are stored apart from
//! the packets, which stay small.

use crate::number::count;
use crate::packet::NO_BLOCKS;
use crate::tcp::{Block, MAX_BLOCKS};

/// The options of an ACK: SACK blocks and a count of marks.
#[derive(Clone, Copy, Debug, Default)]
pub struct AckOptions {
    blocks: [Block; MAX_BLOCKS],
    count: u8,
    /// Number of marked packets that the receiver has counted (RFC 9768).
    pub ce_pkts: u32,
}

impl AckOptions {
    /// Returns the SACK blocks.
    pub fn blocks(&self) -> &[Block] {
        &self.blocks[..usize::from(self.count)]
    }
}

/// The options of all ACKs under way. A packet holds the index of its options here.
#[derive(Default)]
pub struct BlockStore {
    slots: Vec<AckOptions>,
    free: Vec<u32>,
}

impl BlockStore {
    /// Stores up to three blocks and a count of marks; returns the index for the packet, which is
    /// [`NO_BLOCKS`] if there is nothing to store.
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

    /// Removes and returns the options that [`put`](BlockStore::put) stored at this index.
    pub fn take(&mut self, index: u32) -> AckOptions {
        self.free.push(index);
        self.slots[index as usize]
    }
}
