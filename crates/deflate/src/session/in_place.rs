//! A response as one stream, on this core.

use super::Settings;
use super::blocks::Blocks;
use crate::chunk::bound;
use crate::context::PooledStream;
use crate::stream::{Flush, Progress};
use crate::{Context, gzip};

/// No block is shorter: a stream wants some room to write to.
const SHORTEST_BLOCK: usize = 128;

/// A stream, and the block that it fills.
pub(super) struct InPlace {
    /// `None` after the end.
    stream: Option<PooledStream>,
    block: Vec<u8>,
    block_bytes: usize,
    /// When so much has been put out and not been taken, in bytes, no more content is.
    limit: usize,
    /// No content has come since all of it was put out.
    is_flushed: bool,
}

impl InPlace {
    /// `length` is the content's, if it is known.
    pub fn new(settings: &Settings, length: Option<u64>, context: &mut Context) -> Self {
        let needed = length
            .and_then(|length| usize::try_from(length).ok())
            .filter(|length| *length < settings.block_bytes)
            .map(|length| bound(settings.method, length) + gzip::HEADER.len() + 8);
        Self {
            stream: Some(context.stream(settings.method)),
            block: Vec::new(),
            block_bytes: needed
                .map_or(settings.block_bytes, |needed| {
                    needed.min(settings.block_bytes)
                })
                .max(SHORTEST_BLOCK),
            limit: settings.block_bytes.max(1),
            is_flushed: true,
        }
    }

    /// How much output waits in the block that is being filled, in bytes.
    pub fn held(&self) -> usize {
        self.block.len()
    }

    /// Takes content while output may be held; returns how many bytes.
    pub fn write(&mut self, mut content: &[u8], blocks: &mut Blocks) -> usize {
        let length = content.len();
        while !content.is_empty() && blocks.bytes() < self.limit {
            self.step(&mut content, Flush::None, blocks);
        }
        length - content.len()
    }

    /// Takes all content, which has been held elsewhere so far.
    pub fn write_all(&mut self, mut content: &[u8], blocks: &mut Blocks) {
        while !content.is_empty() {
            self.step(&mut content, Flush::None, blocks);
        }
    }

    /// Puts out everything so far.
    pub fn flush(&mut self, blocks: &mut Blocks) {
        if !self.is_flushed {
            while self.step(&mut &[][..], Flush::Sync, blocks) == Progress::Full {}
            // A client that does not read may have many events waiting.
            let mut block = std::mem::take(&mut self.block);
            block.shrink_to_fit();
            blocks.push(block);
            self.is_flushed = true;
        }
    }

    /// Ends the stream.
    pub fn finish(&mut self, blocks: &mut Blocks) {
        while self.step(&mut &[][..], Flush::Finish, blocks) == Progress::Full {}
        blocks.push(std::mem::take(&mut self.block));
        self.stream = None;
    }

    /// Compresses until all content has been taken or a block is full.
    fn step(&mut self, content: &mut &[u8], flush: Flush, blocks: &mut Blocks) -> Progress {
        let stream = self.stream.as_mut().expect("no content after the end");
        if self.block.capacity() == 0 {
            self.block.reserve_exact(self.block_bytes);
        }
        self.is_flushed = false;
        let progress = stream.get().compress(content, flush, &mut self.block);
        if progress == Progress::Full {
            assert!(!self.block.is_empty(), "a block is room enough");
            blocks.push(std::mem::take(&mut self.block));
        }
        progress
    }
}
