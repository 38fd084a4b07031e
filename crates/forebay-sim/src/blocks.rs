//! The TCP options of ACKs under way: SACK blocks and counts of marks. They are stored apart from
//! the packets, which stay small.

use crate::number::count;
use crate::packet::MOST_OPTIONS;
use crate::tcp::{Block, MAX_BLOCKS};

/// The options of an ACK: SACK blocks and a count of marks; and its connection, for whose number a
/// packet with options has no space.
#[derive(Clone, Copy, Debug, Default)]
pub struct AckOptions {
    blocks: [Block; MAX_BLOCKS],
    count: u8,
    /// Number of the connection to which the ACK belongs.
    pub connection: u16,
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
    /// Stores up to three blocks and a count of marks for an ACK of this connection. Returns the
    /// index for the packet; `None` if there is nothing to store.
    #[inline]
    pub fn put(&mut self, blocks: &[Block], ce_pkts: u32, connection: u16) -> Option<u32> {
        if blocks.is_empty() && ce_pkts == 0 {
            return None;
        }
        let mut slot = AckOptions {
            count: u8::try_from(blocks.len()).expect("three at most"),
            connection,
            ce_pkts,
            ..AckOptions::default()
        };
        for (copy, block) in slot.blocks.iter_mut().zip(blocks) {
            *copy = *block;
        }
        Some(match self.free.pop() {
            Some(index) => {
                self.slots[index as usize] = slot;
                index
            }
            None => {
                self.slots.push(slot);
                let index = count(self.slots.len() - 1);
                assert!(
                    index <= MOST_OPTIONS,
                    "16 million ACKs with options on their way"
                );
                index
            }
        })
    }

    /// Removes and returns the options that [`put`](BlockStore::put) stored at this index.
    pub fn take(&mut self, index: u32) -> AckOptions {
        self.free.push(index);
        self.slots[index as usize]
    }
}
