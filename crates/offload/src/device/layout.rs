//! Where things lie in the memory of an instance.

use slipstream_ring::ring::Geometry;

/// Words of a slot: a head, and the longest operand.
pub const SLOT_WORDS: usize = HEAD_WORDS + crate::request::OPERAND_BYTES / 8;

/// Words of the head of a slot, one cache line.
pub const HEAD_WORDS: usize = 8;

/// The numbers of slots that a ring can have.
pub const SLOTS: std::ops::RangeInclusive<usize> = 8..=4096;

/// The word in which a client says that it sleeps until a response is there.
pub const CLIENT_BELL: usize = 5 * LINE;

/// The word in which the engine says that it sleeps until a request is there.
pub const ENGINE_BELL: usize = 6 * LINE;

/// The word in which a client says how many jobs it has under way: so many requests can come to wait together.
pub const COMPANY: usize = 7 * LINE;

// Each side writes its words on lines of its own: what one side writes often would otherwise slow the other's reads.
const LINE: usize = 16;
const HEADER: usize = 512;

/// The memory of an instance whose rings have `slots` slots each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    slots: usize,
}

impl Layout {
    /// `None` unless `slots` is a power of two and in [`SLOTS`].
    pub fn new(slots: usize) -> Option<Self> {
        (slots.is_power_of_two() && SLOTS.contains(&slots)).then_some(Self { slots })
    }

    /// The number of slots of each ring.
    pub fn slots(self) -> usize {
        self.slots
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

    /// The length of the memory.
    pub fn words(self) -> usize {
        self.responses().end()
    }
}
