//! Codecs: the compression formats that this crate knows.

use std::fmt;
use std::ops::RangeInclusive;

use slipstream_offload::Coding;

use crate::stream::{Flush, Progress};

mod gzip;
mod zstd;

/// gzip (RFC 1952).
pub const GZIP: &dyn Codec = &gzip::Gzip;

/// Zstandard (RFC 8878).
pub const ZSTD: &dyn Codec = &zstd::Zstd;

/// Every codec. A new one is added by its line here.
pub const CODECS: &[&dyn Codec] = &[
    GZIP, //
    ZSTD,
];

/// A compression format, and the libraries that write it.
///
/// Two codecs are equal if they have the same name.
pub trait Codec: Send + Sync + 'static {
    /// The name in `Content-Encoding` and `Accept-Encoding`, in lower case.
    fn name(&self) -> &'static str;

    /// Further names in `Accept-Encoding`, in lower case.
    fn aliases(&self) -> &'static [&'static str] {
        &[]
    }

    /// The coding by which accelerators know the format. `None` if they do not: chunks are then
    /// always compressed on the caller's core.
    fn wire_coding(&self) -> Option<Coding> {
        None
    }

    /// The levels, from the fastest to the one with the shortest output.
    fn levels(&self) -> RangeInclusive<u8>;

    /// The level that is used unless another one is configured.
    fn default_level(&self) -> u8;

    /// The highest level at which a core compresses a chunk of `length` bytes in less than about
    /// ten milliseconds. An engine that many clients share refuses higher ones.
    fn highest_quick_level(&self, length: usize) -> u8 {
        let _ = length;
        *self.levels().end()
    }

    /// The name of the library that compresses at `level` on this machine.
    fn implementation(&self, level: u8) -> &'static str;

    /// The longest output of a chunk of `length` bytes, in bytes.
    fn bound(&self, length: usize) -> usize;

    /// The bytes that turn joined chunks into one response. By default there are none: each chunk
    /// is complete by itself, and complete chunks can be joined.
    fn framing(&self) -> Framing {
        Framing::NONE
    }

    /// Computes the trailer of a response in chunks, if the format has one.
    fn trailer(&self) -> Option<Box<dyn Trailer>> {
        None
    }

    /// An encoder for chunks, without memory of its own until it is used.
    fn chunk_encoder(&self) -> Box<dyn ChunkEncoder>;

    /// An encoder for a response as one stream, at its beginning.
    fn stream_encoder(&self, level: u8) -> Box<dyn StreamEncoder>;
}

/// The bytes around and between the chunks of one response.
///
/// A response is the header, the chunks, the terminator unless the last chunk was compressed as the
/// last one, and the trailer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Framing {
    /// Written before the first chunk.
    pub header: &'static [u8],
    /// Ends the response behind a chunk that was not compressed as the last one.
    pub terminator: &'static [u8],
    /// The length of what [`Trailer::bytes`] returns, in bytes.
    pub trailer_bytes: usize,
}

impl Framing {
    /// Nothing around chunks.
    pub const NONE: Framing = Framing {
        header: &[],
        terminator: &[],
        trailer_bytes: 0,
    };

    /// The length of all three together, in bytes.
    pub const fn length(&self) -> usize {
        self.header.len() + self.terminator.len() + self.trailer_bytes
    }
}

/// Computes the trailer of a response in chunks from its content.
pub trait Trailer {
    /// Adds the content of the next chunk.
    fn update(&mut self, content: &[u8]);

    /// The trailer for the content so far, as long as [`Framing::trailer_bytes`] says.
    fn bytes(&self) -> Vec<u8>;
}

/// Compresses chunks that do not refer to each other, with state that is reused.
pub trait ChunkEncoder: Send {
    /// Compresses `content` into the spare capacity of `output`, which is [`Codec::bound`] or more.
    /// The chunk ends on a byte, and the response ends with it if `is_last`.
    fn encode(&mut self, level: u8, content: &[u8], is_last: bool, output: &mut Vec<u8>);
}

/// Compresses one response after another, each as a whole with header and trailer.
pub trait StreamEncoder: Send {
    /// Compresses as [`Stream::compress`](crate::Stream::compress) says.
    fn encode(&mut self, content: &mut &[u8], flush: Flush, output: &mut Vec<u8>) -> Progress;

    /// Begins another response. An unfinished one is dropped.
    fn reset(&mut self, level: u8);

    /// Returns true if [`reset`](Self::reset) to `level` reuses the memory of this encoder.
    fn can_reuse(&self, level: u8) -> bool;

    /// The memory that the encoder has allocated, in bytes.
    fn memory(&self) -> usize;
}

/// Finds a codec by its name in `Content-Encoding`.
pub fn with_name(name: &[u8]) -> Option<&'static dyn Codec> {
    let mut codecs = CODECS.iter().copied();
    codecs.find(|codec| codec.name().as_bytes() == name)
}

/// Finds a codec by the coding by which accelerators know it.
pub fn with_wire_coding(coding: Coding) -> Option<&'static dyn Codec> {
    let mut codecs = CODECS.iter().copied();
    codecs.find(|codec| codec.wire_coding() == Some(coding))
}

impl PartialEq for dyn Codec {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for dyn Codec {}

impl fmt::Debug for dyn Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codecs_are_told_apart_by_name_and_coding() {
        for codec in CODECS {
            assert_eq!(with_name(codec.name().as_bytes()), Some(*codec));
            assert!(codec.levels().contains(&codec.default_level()));
            if let Some(coding) = codec.wire_coding() {
                assert_eq!(with_wire_coding(coding), Some(*codec));
            }
            let trailer = codec.trailer().map_or(0, |trailer| trailer.bytes().len());
            assert_eq!(trailer, codec.framing().trailer_bytes);
        }
        for coding in Coding::ALL {
            assert!(with_wire_coding(coding).is_some(), "{coding:?}");
        }
        assert_eq!(with_name(b"identity"), None);
    }
}
