//! Content for servers to compress.

use std::sync::OnceLock;

use crate::Random;

/// Number of bytes made at once. Longer content repeats them, with the number of the repetition at
/// the beginning of each.
const BLOCK_BYTES: usize = 1 << 20;

/// A kind of content. The same of any length begins in the same way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// A page: elements with words, of which some are frequent and many are rare.
    Html,
    /// Bytes that do not compress.
    Random,
    /// Runs of one byte each, short and long.
    Runs,
    /// Bytes that compress as well as any.
    Zeros,
}

impl Content {
    /// All kinds.
    pub const ALL: [Content; 4] = [
        Content::Html,
        Content::Random,
        Content::Runs,
        Content::Zeros,
    ];

    /// The name in a path.
    pub fn name(self) -> &'static str {
        match self {
            Content::Html => "html",
            Content::Random => "random",
            Content::Runs => "runs",
            Content::Zeros => "zeros",
        }
    }

    /// The kind of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// That many bytes of it.
    pub fn bytes(self, length: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(length);
        self.pieces(length as u64)
            .for_each(|piece| bytes.extend(piece));
        bytes
    }

    /// The same piece by piece, for what is longer than memory should be filled with.
    pub fn pieces(self, length: u64) -> impl Iterator<Item = Vec<u8>> {
        let block = self.block();
        (0..length.div_ceil(BLOCK_BYTES as u64)).map(move |number| {
            let left = length - number * BLOCK_BYTES as u64;
            let mut piece = block[..block.len().min(left as usize)].to_vec();
            if number > 0 && self != Content::Zeros {
                let stamp = format!("{number:012}");
                let stamped = stamp.len().min(piece.len());
                piece[..stamped].copy_from_slice(&stamp.as_bytes()[..stamped]);
            }
            piece
        })
    }

    fn block(self) -> &'static [u8] {
        static BLOCKS: [OnceLock<Vec<u8>>; 4] = [const { OnceLock::new() }; 4];
        BLOCKS[self as usize].get_or_init(|| {
            let mut random = Random::new(self as u64);
            match self {
                Content::Html => page(&mut random),
                Content::Random => random.bytes(BLOCK_BYTES),
                Content::Runs => runs(&mut random),
                Content::Zeros => vec![0; BLOCK_BYTES],
            }
        })
    }
}

fn page(random: &mut Random) -> Vec<u8> {
    const WORDS: usize = 4000;
    const ELEMENTS: [&str; 6] = ["p", "li", "h2", "td", "div class=\"note\"", "code"];
    let words: Vec<Vec<u8>> = (0..WORDS)
        .map(|_| {
            let length = 2 + random.below(9);
            let letters = random.bytes(length);
            letters.iter().map(|byte| b'a' + byte % 26).collect()
        })
        .collect();
    let mut page = b"<!doctype html>\n<html><head><title>A page</title></head><body>\n".to_vec();
    while page.len() < BLOCK_BYTES {
        let element = random.one_of(&ELEMENTS);
        page.extend(format!("<{element}>").as_bytes());
        for _ in 0..5 + random.below(40) {
            // The smaller the number the more frequent the word, roughly as in a language.
            let rank = random.below(WORDS) * random.below(WORDS) / WORDS;
            page.extend(&words[rank]);
            page.push(b' ');
        }
        let name = element.split(' ').next().unwrap_or(element);
        page.extend(format!("</{name}>\n").as_bytes());
    }
    page.truncate(BLOCK_BYTES);
    page
}

fn runs(random: &mut Random) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(BLOCK_BYTES);
    while bytes.len() < BLOCK_BYTES {
        let length = 1 + random.below(random.clone().one_of(&[4, 300, 70_000]));
        let byte = random.below(256) as u8;
        let length = length.min(BLOCK_BYTES - bytes.len());
        bytes.resize(bytes.len() + length, byte);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_has_the_length_that_is_asked_for_and_begins_in_the_same_way() {
        for kind in Content::ALL {
            let long = kind.bytes(2 * BLOCK_BYTES + 5);
            assert_eq!(long.len(), 2 * BLOCK_BYTES + 5);
            for length in [0, 1, 1000, BLOCK_BYTES, BLOCK_BYTES + 3] {
                assert!(kind.bytes(length) == long[..length], "{kind:?} {length}");
            }
            assert_eq!(Content::named(kind.name()), Some(kind));
        }
    }

    #[test]
    fn blocks_can_be_told_apart() {
        let bytes = Content::Html.bytes(3 * BLOCK_BYTES);
        let (first, rest) = bytes.split_at(BLOCK_BYTES);
        let (second, third) = rest.split_at(BLOCK_BYTES);
        assert!(first != second && second != third);
    }
}
