//! What stands around DEFLATE in a gzip member (RFC 1952, section 2.3).

/// No time, no name, no operating system: as igzip writes it.
pub(crate) const HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];

/// The last block of a stream, with nothing in it.
pub(crate) const EMPTY_LAST_BLOCK: [u8; 2] = [3, 0];

/// A block with nothing in it that is not the last one.
const EMPTY_BLOCK: [u8; 5] = [0, 0, 0, 0xff, 0xff];

/// The content of a stored block at most, in bytes.
const STORED_BYTES: usize = 0xffff;

/// A member's content so far.
#[derive(Clone, Default)]
pub(crate) struct Member {
    checksum: crc32fast::Hasher,
    /// Modulo 2^32, as the trailer has it.
    length: u32,
}

impl Member {
    /// More content, in order.
    pub fn update(&mut self, content: &[u8]) {
        self.checksum.update(content);
        self.length = self.length.wrapping_add(content.len() as u32);
    }

    /// The trailer.
    pub fn trailer(&self) -> [u8; 8] {
        let checksum = self.checksum.clone().finalize();
        let mut trailer = [0; 8];
        trailer[..4].copy_from_slice(&checksum.to_le_bytes());
        trailer[4..].copy_from_slice(&self.length.to_le_bytes());
        trailer
    }
}

/// Appends `content` to `output` as it is, in stored blocks (RFC 1951, section 3.2.4).
pub(crate) fn store(content: &[u8], is_last: bool, output: &mut Vec<u8>) {
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
