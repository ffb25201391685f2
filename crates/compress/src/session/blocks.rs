//! Output that the caller has not taken yet.

use std::collections::VecDeque;

/// A queue of blocks.
#[derive(Default)]
pub(super) struct Blocks {
    blocks: VecDeque<Vec<u8>>,
    bytes: usize,
    /// The length of all blocks since the beginning, in bytes.
    total: u64,
}

impl Blocks {
    /// The length of the blocks that wait, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The length of all blocks since the beginning, in bytes.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Adds a block, unless it is empty.
    pub fn push(&mut self, block: Vec<u8>) {
        if !block.is_empty() {
            self.bytes += block.len();
            self.total += block.len() as u64;
            self.blocks.push_back(block);
        }
    }

    /// Adds a few bytes, to the last block if it has not been taken.
    pub fn append(&mut self, bytes: &[u8]) {
        match self.blocks.back_mut() {
            Some(block) => {
                self.bytes += bytes.len();
                self.total += bytes.len() as u64;
                block.extend_from_slice(bytes);
            }
            None => self.push(bytes.to_vec()),
        }
    }

    /// Takes the next block.
    pub fn pop(&mut self) -> Option<Vec<u8>> {
        let block = self.blocks.pop_front()?;
        self.bytes -= block.len();
        Some(block)
    }

    /// Returns true if no block waits.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }
}
