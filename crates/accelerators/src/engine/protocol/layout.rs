//! The layout of the memory of an instance.

use std::ops::{Range, RangeInclusive};

use slipstream_ring::ring::Geometry;

/// Words of a slot: a head, and the longest operand.
pub const SLOT_WORDS: usize = HEAD_WORDS + slipstream_keys::OPERAND_BYTES / 8;

/// Words of the head of a slot, one cache line.
pub const HEAD_WORDS: usize = 8;

/// The numbers of slots that a ring can have.
pub const SLOTS: RangeInclusive<usize> = 8..=4096;

/// The numbers of buffers for content that an instance can have.
pub const BUFFERS: RangeInclusive<usize> = 0..=64;

/// The lengths of content that a buffer can have room for, in bytes.
pub const CONTENT_BYTES: RangeInclusive<usize> = 4 << 10..=1 << 20;

/// The most content that all buffers of an instance can have room for together, in bytes.
pub const ALL_CONTENT_BYTES: usize = 16 << 20;

/// The word that a client sets when it sleeps until a response is there.
pub const CLIENT_BELL: usize = 5 * LINE;

/// The word that the engine sets when it sleeps until a request is there.
pub const ENGINE_BELL: usize = 6 * LINE;

/// The word in which a client writes its number of concurrent jobs: up to as many requests can come
/// to wait together.
pub const CONCURRENCY: usize = 7 * LINE;

/// The word in which a client writes the number of buffers that it has used, from the first on:
/// their content is wiped when the client has gone.
pub const BUFFERS_USED: usize = 8 * LINE;

// Each side writes its words on cache lines of its own: frequent writes would otherwise slow the
// reads of the other side.
const LINE: usize = 16;
const HEADER: usize = 512;

/// The memory of an instance: two rings and, behind them, buffers for content that is too long for
/// slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    slots: usize,
    buffers: usize,
    /// 0 without buffers.
    content_bytes: usize,
}

impl Layout {
    /// Rings of `slots` slots each, and no buffers; `None` unless `slots` is a power of two and in
    /// [`SLOTS`].
    pub fn new(slots: usize) -> Option<Self> {
        (slots.is_power_of_two() && SLOTS.contains(&slots)).then_some(Self {
            slots,
            buffers: 0,
            content_bytes: 0,
        })
    }

    /// The same with `count` buffers, each with room for `content_bytes` of content; `None` unless
    /// they are in [`BUFFERS`] and [`CONTENT_BYTES`], and all of them within [`ALL_CONTENT_BYTES`].
    /// Without buffers, their length means nothing.
    pub fn with_buffers(self, count: usize, content_bytes: usize) -> Option<Self> {
        let content_bytes = if count == 0 { 0 } else { content_bytes };
        let is_possible = BUFFERS.contains(&count)
            && (count == 0 || CONTENT_BYTES.contains(&content_bytes))
            && count * content_bytes <= ALL_CONTENT_BYTES;
        is_possible.then_some(Self {
            buffers: count,
            content_bytes,
            ..self
        })
    }

    /// The number of slots of each ring.
    pub fn slots(self) -> usize {
        self.slots
    }

    /// The number of buffers.
    pub fn buffers(self) -> usize {
        self.buffers
    }

    /// Returns the length of content that a buffer has room for, in bytes.
    pub fn content_bytes(self) -> usize {
        self.content_bytes
    }

    /// Returns the length of a buffer in bytes: content that does not compress becomes longer.
    pub fn buffer_bytes(self) -> usize {
        const LINE_BYTES: usize = 8 * LINE;
        match self.content_bytes {
            0 => 0,
            content => (content + content / 64 + 1024).next_multiple_of(LINE_BYTES),
        }
    }

    /// The ring that the client fills.
    pub fn requests(self) -> Geometry {
        Geometry {
            slots: self.slots,
            slot_words: SLOT_WORDS,
            first: HEADER,
            tail: LINE,
            head: 2 * LINE,
        }
    }

    /// The ring that the engine fills.
    pub fn responses(self) -> Geometry {
        Geometry {
            first: self.requests().end(),
            tail: 3 * LINE,
            head: 4 * LINE,
            ..self.requests()
        }
    }

    /// The words of a buffer.
    ///
    /// # Panics
    /// If there is no such buffer.
    pub fn buffer(self, index: usize) -> Range<usize> {
        assert!(index < self.buffers, "buffer {index} of {}", self.buffers);
        let words = self.buffer_bytes() / 8;
        let start = self.responses().end() + index * words;
        start..start + words
    }

    /// The length of the memory.
    pub fn words(self) -> usize {
        self.responses().end() + self.buffers * self.buffer_bytes() / 8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_lie_behind_the_rings_and_apart() {
        let rings = Layout::new(64).expect("a power of two");
        assert_eq!((rings.buffers(), rings.buffer_bytes()), (0, 0));
        assert_eq!(rings.words(), rings.responses().end());
        assert_eq!(rings.with_buffers(0, 12345), Some(rings));
        for content in [4 << 10, 5000, 64 << 10, 1 << 20] {
            let layout = rings.with_buffers(16, content).expect("in range");
            assert_eq!(layout.content_bytes(), content);
            assert!(layout.buffer_bytes() >= content + content / 64 + 1024);
            let mut end = layout.responses().end();
            for index in 0..16 {
                let buffer = layout.buffer(index);
                assert_eq!((buffer.start, buffer.start % LINE), (end, 0));
                assert_eq!(8 * buffer.len(), layout.buffer_bytes());
                end = buffer.end;
            }
            assert_eq!(layout.words(), end);
        }
    }

    #[test]
    fn what_is_too_much_is_refused() {
        let rings = Layout::new(64).expect("a power of two");
        assert!(rings.with_buffers(64, 256 << 10).is_some());
        for (count, content) in [
            (65, 4 << 10),
            (usize::MAX, usize::MAX),
            (1, 0),
            (1, (4 << 10) - 1),
            (1, (1 << 20) + 1),
            (17, 1 << 20),
            (64, (256 << 10) + 1),
        ] {
            assert_eq!(
                rings.with_buffers(count, content),
                None,
                "{count} {content}"
            );
        }
    }
}
