//! Decoders that share no code with what has compressed.

use miniz_oxide::inflate::stream::{InflateState, inflate};
use miniz_oxide::{DataFormat, MZFlush, MZStatus};
use ruzstd::decoding::FrameDecoder;

use crate::Response;

/// Decodes a body as its `Content-Encoding` says.
///
/// # Panics
/// If a response has several codings, or one that is not known, or is not valid in it.
pub fn decode(response: &Response) -> Vec<u8> {
    let codings: Vec<&str> = response.headers("Content-Encoding").collect();
    match codings[..] {
        [] => response.body.clone(),
        ["gzip"] => Inflater::member(&response.body).unwrap_or_else(|error| panic!("{error}")),
        ["zstd"] => decode_zstd(&response.body).unwrap_or_else(|error| panic!("{error}")),
        _ => panic!("content is encoded as {codings:?}"),
    }
}

/// The content of Zstandard frames (RFC 8878), and their number is at least one.
///
/// # Errors
/// A description of the first error.
pub fn decode_zstd(bytes: &[u8]) -> Result<Vec<u8>, String> {
    // Longer than any content that is decoded at once.
    const MOST_BYTES: usize = 64 << 20;
    if bytes.is_empty() {
        return Err("zstd: no frame".to_owned());
    }
    let mut content = vec![0; MOST_BYTES];
    let length = FrameDecoder::new()
        .decode_all(bytes, &mut content)
        .map_err(|error| format!("zstd: {error}"))?;
    content.truncate(length);
    Ok(content)
}

/// Decodes one gzip member (RFC 1952) as its bytes come.
pub struct Inflater {
    state: Box<InflateState>,
    /// Bytes that have come and are not decoded yet: a part of the header or of the trailer.
    pending: Vec<u8>,
    place: Place,
    crc: crc32fast::Hasher,
    length: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Header,
    Content,
    Trailer,
    End,
}

impl Inflater {
    /// One that waits for the header.
    pub fn new() -> Self {
        Self {
            state: InflateState::new_boxed(DataFormat::Raw),
            pending: Vec::new(),
            place: Place::Header,
            crc: crc32fast::Hasher::new(),
            length: 0,
        }
    }

    /// The content of one whole member, behind which there is nothing.
    ///
    /// # Errors
    /// A description of the first error.
    pub fn member(bytes: &[u8]) -> Result<Vec<u8>, String> {
        let mut inflater = Self::new();
        let mut content = Vec::new();
        inflater.push(bytes, &mut content)?;
        match inflater.is_complete() {
            true => Ok(content),
            false => Err("gzip: the member is cut off".to_owned()),
        }
    }

    /// Appends to `content` all that can be decoded with what `bytes` add.
    ///
    /// # Errors
    /// A description of the error in the member.
    pub fn push(&mut self, bytes: &[u8], content: &mut Vec<u8>) -> Result<(), String> {
        self.pending.extend_from_slice(bytes);
        if self.place == Place::Header && self.pending.len() >= HEADER_BYTES {
            check_header(&self.pending[..HEADER_BYTES])?;
            self.pending.drain(..HEADER_BYTES);
            self.place = Place::Content;
        }
        if self.place == Place::Content {
            self.inflate(content)?;
        }
        if self.place == Place::Trailer && self.pending.len() >= TRAILER_BYTES {
            self.check_trailer()?;
            self.pending.drain(..TRAILER_BYTES);
            self.place = Place::End;
        }
        match self.place == Place::End && !self.pending.is_empty() {
            true => Err(format!("gzip: {} bytes too many", self.pending.len())),
            false => Ok(()),
        }
    }

    /// Returns true if the member has ended.
    pub fn is_complete(&self) -> bool {
        self.place == Place::End
    }

    fn inflate(&mut self, content: &mut Vec<u8>) -> Result<(), String> {
        let mut output = vec![0; 64 << 10];
        let mut taken = 0;
        loop {
            let input = &self.pending[taken..];
            let step = inflate(&mut self.state, input, &mut output, MZFlush::None);
            taken += step.bytes_consumed;
            let written = &output[..step.bytes_written];
            self.crc.update(written);
            self.length = self.length.wrapping_add(written.len() as u32);
            content.extend_from_slice(written);
            match step.status {
                Ok(MZStatus::StreamEnd) => {
                    self.place = Place::Trailer;
                    break;
                }
                // All has been decoded, and there is no more for now.
                Err(miniz_oxide::MZError::Buf) => break,
                Ok(_) if step.bytes_written < output.len() && taken == self.pending.len() => break,
                Ok(_) => {}
                Err(error) => return Err(format!("gzip: {error:?} after {} bytes", self.length)),
            }
        }
        self.pending.drain(..taken);
        Ok(())
    }

    fn check_trailer(&self) -> Result<(), String> {
        let word = |start: usize| {
            let bytes = self.pending[start..start + 4].try_into();
            u32::from_le_bytes(bytes.expect("four bytes"))
        };
        if word(0) != self.crc.clone().finalize() {
            return Err("gzip: the checksum is wrong".to_owned());
        }
        match word(4) == self.length {
            true => Ok(()),
            false => Err(format!("gzip: {} bytes, not {}", self.length, word(4))),
        }
    }
}

impl Default for Inflater {
    fn default() -> Self {
        Self::new()
    }
}

const HEADER_BYTES: usize = 10;
const TRAILER_BYTES: usize = 8;

/// Neither a name nor a time (section 2.3), which would tell something about the server.
fn check_header(header: &[u8]) -> Result<(), String> {
    match header[..8] == [0x1f, 0x8b, 8, 0, 0, 0, 0, 0] {
        true => Ok(()),
        false => Err(format!("gzip: the header is {header:02x?}")),
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::{Content, programs};

    fn member(content: &[u8]) -> Vec<u8> {
        // `gzip` writes to a pipe, which `programs` would take for text.
        let scratch = crate::server::new_folder(0o711);
        let file = scratch.file("content");
        std::fs::write(&file, content).unwrap();
        let mut command = Command::new("gzip");
        programs::finish(command.arg("-n").arg(&file), b"").expect_success();
        std::fs::read(scratch.file("content.gz")).unwrap()
    }

    #[test]
    fn a_member_is_decoded_in_pieces_of_any_size() {
        let content = Content::Html.bytes(100_000);
        let compressed = member(&content);
        for size in [1, 7, 1000, compressed.len()] {
            let mut inflater = Inflater::new();
            let mut decoded = Vec::new();
            for piece in compressed.chunks(size) {
                assert!(!inflater.is_complete());
                inflater.push(piece, &mut decoded).unwrap();
            }
            assert!(inflater.is_complete() && decoded == content);
        }
    }

    #[test]
    fn every_damage_is_noticed() {
        let compressed = member(&Content::Html.bytes(1000));
        for cut in [0, 5, 10, 300, compressed.len() - 1] {
            assert!(Inflater::member(&compressed[..cut]).is_err(), "{cut}");
        }
        let trailer = compressed.len() - TRAILER_BYTES;
        for place in [0, 3, 4, trailer, compressed.len() - 1] {
            let mut damaged = compressed.clone();
            damaged[place] ^= 1;
            assert!(Inflater::member(&damaged).is_err(), "{place}");
        }
        assert!(Inflater::member(&[&compressed[..], b"x"].concat()).is_err());
        assert!(Inflater::member(&[&compressed[..], &compressed[..]].concat()).is_err());
    }

    #[test]
    fn frames_may_follow_each_other() {
        // An empty frame, and one that holds "ab" as it is (RFC 8878, section 3.1.1).
        let empty = [0x28, 0xb5, 0x2f, 0xfd, 0x20, 0, 1, 0, 0];
        let raw = [0x28, 0xb5, 0x2f, 0xfd, 0x20, 2, 0x11, 0, 0, b'a', b'b'];
        assert_eq!(decode_zstd(&empty).unwrap(), b"");
        let frames = [&raw[..], &empty[..], &raw[..]].concat();
        assert_eq!(decode_zstd(&frames).unwrap(), b"abab");
        assert!(decode_zstd(&frames[..frames.len() - 1]).is_err());
        assert!(decode_zstd(b"").is_err());
    }
}
