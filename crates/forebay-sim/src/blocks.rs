//! SACK blocks of ACKs on their way, kept beside the packets so that packets stay small.

use crate::packet::NO_BLOCKS;
use crate::receiver::{Block, MAX_BLOCKS};

#[derive(Default)]
pub struct BlockStore {
    slots: Vec<([Block; MAX_BLOCKS], u8)>,
    free: Vec<u32>,
}

impl BlockStore {
    /// Keeps up to three blocks; the answer goes into the packet.
    pub fn put(&mut self, blocks: &[Block]) -> u32 {
        if blocks.is_empty() {
            return NO_BLOCKS;
        }
        let mut slot = ([(0, 0); MAX_BLOCKS], blocks.len() as u8);
        slot.0[..blocks.len()].copy_from_slice(blocks);
        match self.free.pop() {
            Some(index) => {
                self.slots[index as usize] = slot;
                index
            }
            None => {
                self.slots.push(slot);
                (self.slots.len() - 1) as u32
            }
        }
    }

    /// Takes the blocks out again.
    pub fn take(&mut self, index: u32) -> ([Block; MAX_BLOCKS], usize) {
        if index == NO_BLOCKS {
            return ([(0, 0); MAX_BLOCKS], 0);
        }
        self.free.push(index);
        let (blocks, count) = self.slots[index as usize];
        (blocks, usize::from(count))
    }
}
