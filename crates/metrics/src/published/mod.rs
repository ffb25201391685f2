//! Figures that a process publishes in a file, for readers that it does not know.
//!
//! A process makes one file in a [`directory`] that only root or its own user may write, and counts
//! in a mapping of it ([`Region`]), so that publishing costs nothing. A reader ([`list`]) copies the
//! file, and needs no compiled-in list of figures: their names are in the file. Files of processes
//! that have ended are left out and removed.
//!
//! A file consists of 64-bit words in the order of bytes of the machine:
//!
//! | part | content |
//! |---|---|
//! | head | [`Head`]: the first [`IDENTITY`] words are the same in every layout, so that a reader can name a process whose layout it does not know |
//! | note | a text for people, or nothing |
//! | names | one line of text for each figure, counters first |
//! | owners | for each slot the process that writes it, or 0 |
//! | totals | a value for each figure, from writers that have ended |
//! | slots | for each slot a value for each figure |
//!
//! A name is that of a series of Prometheus, with two exceptions, both because a writer that counts
//! in plain integers is cheaper: the buckets of a histogram hold counts of their own, which are not
//! cumulative, and its sum is in nanoseconds.

pub mod directory;
mod process;
mod reader;
mod writer;

pub use process::name_of_user;
pub use reader::{Entry, Published, Unreadable, list, parse};
pub use writer::{Layout, Region};

/// The first word of a file.
const MAGIC: u64 = u64::from_ne_bytes(*b"SLIPFIGS");

/// The layout that this program writes and reads.
const LAYOUT: u64 = 1;

/// The words of a head that are the same in every layout.
const IDENTITY: usize = 13;

/// The words of a text in a head, which ends at its first zero byte.
const TEXT: usize = 4;

/// The beginning of a file, word by word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Head {
    /// [`LAYOUT`].
    layout: u64,
    /// The process, or 0 while it is being started.
    process: u64,
    /// The time at which the process was started, in ticks since the system was.
    start: u64,
    /// The namespace in which the process has its number.
    namespace: u64,
    program: [u64; TEXT],
    version: [u64; TEXT],
    /// The figures that only grow.
    counters: u64,
    /// The figures that grow and shrink, and end with their writer.
    gauges: u64,
    slots: u64,
    /// The length of the names in words.
    names: u64,
}

/// The words of a head.
const HEAD: usize = IDENTITY + 4;

/// The words of a note.
const NOTE: usize = 32;

/// The place of the process among the words, and of its start.
const PROCESS: usize = 2;
const START: usize = 3;

/// The places of all parts, in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Places {
    figures: usize,
    slots: usize,
    /// Right behind the note, which is right behind the head.
    names: usize,
    owners: usize,
    totals: usize,
    first_slot: usize,
    stride: usize,
    end: usize,
}

/// The words of a cache line, so that two writers share none.
const LINE: usize = 8;

/// More than any file has. A hostile one shall not make a reader allocate.
const LIMIT: usize = 1 << 24;

impl Head {
    fn words(&self) -> [u64; HEAD] {
        let mut words = [0; HEAD];
        words[0] = MAGIC;
        words[1] = self.layout;
        words[PROCESS] = self.process;
        words[START] = self.start;
        words[4] = self.namespace;
        words[5..9].copy_from_slice(&self.program);
        words[9..13].copy_from_slice(&self.version);
        words[13..].copy_from_slice(&[self.counters, self.gauges, self.slots, self.names]);
        words
    }

    /// The head of a file with these words, whatever its layout is; `None` if it is none.
    fn read(words: &[u64]) -> Option<Self> {
        let identity = words.get(..IDENTITY)?;
        let rest = |index: usize| words.get(IDENTITY + index).copied().unwrap_or(0);
        let text = |from: usize| std::array::from_fn(|index| identity[from + index]);
        (identity[0] == MAGIC).then(|| Self {
            layout: identity[1],
            process: identity[PROCESS],
            start: identity[START],
            namespace: identity[4],
            program: text(5),
            version: text(9),
            counters: rest(0),
            gauges: rest(1),
            slots: rest(2),
            names: rest(3),
        })
    }

    /// The places of the parts; `None` if the file would be larger than any is.
    fn places(&self) -> Option<Places> {
        let small = |number: u64| usize::try_from(number).ok().filter(|it| *it <= LIMIT);
        let figures = small(self.counters)? + small(self.gauges)?;
        let slots = small(self.slots)?;
        let names = HEAD + NOTE;
        let owners = (names + small(self.names)?).next_multiple_of(LINE);
        let totals = (owners + slots).next_multiple_of(LINE);
        let stride = figures.next_multiple_of(LINE);
        let first_slot = totals + stride;
        let end = first_slot.checked_add(slots.checked_mul(stride)?)?;
        (end <= LIMIT).then_some(Places {
            figures,
            slots,
            names,
            owners,
            totals,
            first_slot,
            stride,
            end,
        })
    }
}

impl Places {
    fn slot(&self, index: usize) -> std::ops::Range<usize> {
        let start = self.first_slot + index * self.stride;
        start..start + self.figures
    }
}

/// Packs a text into words; what does not fit is cut off.
fn pack<const WORDS: usize>(text: &str) -> [u64; WORDS] {
    let mut words = [0; WORDS];
    for (word, bytes) in words.iter_mut().zip(text.as_bytes().chunks(8)) {
        let mut padded = [0; 8];
        padded[..bytes.len()].copy_from_slice(bytes);
        *word = u64::from_ne_bytes(padded);
    }
    words
}

/// Unpacks a text; `None` if it is empty or has a character other than letters, digits and `.+-_`.
fn unpack(words: &[u64]) -> Option<String> {
    let text = text(words)?;
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".+-_".contains(&byte);
    (!text.is_empty() && text.bytes().all(is_plain)).then_some(text)
}

/// The text in these words; `None` if it has characters that may not be shown in a terminal.
fn text(words: &[u64]) -> Option<String> {
    let bytes = words.iter().flat_map(|word| word.to_ne_bytes());
    let text: Vec<u8> = bytes.take_while(|byte| *byte != 0).collect();
    let is_shown = |byte: &u8| byte.is_ascii_graphic() || *byte == b' ';
    text.iter().all(is_shown).then(|| {
        let text = String::from_utf8(text);
        text.expect("these characters are ASCII")
    })
}

#[cfg(test)]
mod tests;
