//! The parts of a gzip member around DEFLATE (RFC 1952, section 2.3), and stored blocks.

use crate::codec;

/// Header without time, name and operating system, as igzip writes it.
pub(super) const HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];

/// CRC-32 and length of the content.
pub(super) const TRAILER_BYTES: usize = 8;

/// An empty block that ends a stream.
pub(super) const EMPTY_LAST_BLOCK: [u8; 2] = [3, 0];

/// An empty block that does not end a stream.
const EMPTY_BLOCK: [u8; 5] = [0, 0, 0, 0xff, 0xff];

/// The longest content of a stored block, in bytes.
const STORED_BYTES: usize = 0xffff;

/// Computes the trailer of a member.
#[derive(Default)]
pub(super) struct Trailer {
    checksum: crc32fast::Hasher,
    /// Modulo 2^32, as the trailer has it.
    length: u32,
}

impl codec::Trailer for Trailer {
    fn update(&mut self, content: &[u8]) {
        self.checksum.update(content);
        self.length = self.length.wrapping_add(content.len() as u32);
    }

    fn bytes(&self) -> Vec<u8> {
        let checksum = self.checksum.clone().finalize();
        [checksum.to_le_bytes(), self.length.to_le_bytes()].concat()
    }
}

/// Appends `content` to `output` uncompressed, in stored blocks (RFC 1951, section 3.2.4).
pub(super) fn store(content: &[u8], is_last: bool, output: &mut Vec<u8>) {
    if content.is_empty() {
        match is_last {
            true => output.extend_from_slice(&EMPTY_LAST_BLOCK),
            false => output.extend_from_slice(&EMPTY_BLOCK),
        }
    }
    let mut pieces = content.chunks(STORED_BYTES).peekable();
    while let Some(piece) = pieces.next() {
        let length = piece.len() as u16;
        output.push((is_last && pieces.peek().is_none()).into());
        output.extend_from_slice(&length.to_le_bytes());
        output.extend_from_slice(&(!length).to_le_bytes());
        output.extend_from_slice(piece);
    }
}
