//! gzip: DEFLATE (RFC 1951) in a member (RFC 1952), by igzip or zlib-rs.

use std::ops::RangeInclusive;

use slipstream_offload::Coding;

use super::{ChunkEncoder, Codec, Framing, StreamEncoder, Trailer};
use crate::stream::{Flush, Progress};
use igzip::Igzip;
use zlib::Zlib;

#[cfg(all(feature = "igzip", target_arch = "x86_64"))]
mod igzip;
#[cfg(not(all(feature = "igzip", target_arch = "x86_64")))]
#[path = "gzip/no_igzip.rs"]
mod igzip;
mod member;
mod zlib;

/// The codec. igzip takes the levels that it has, where it is built in and the CPU is one that it
/// is fast on; zlib-rs takes all others.
pub(super) struct Gzip;

impl Codec for Gzip {
    fn name(&self) -> &'static str {
        "gzip"
    }

    fn aliases(&self) -> &'static [&'static str] {
        &["x-gzip"]
    }

    fn wire_coding(&self) -> Option<Coding> {
        Some(Coding::Deflate)
    }

    fn levels(&self) -> RangeInclusive<u8> {
        1..=9
    }

    fn default_level(&self) -> u8 {
        1
    }

    fn implementation(&self, level: u8) -> &'static str {
        match has_igzip(level) {
            true => "igzip",
            false => "zlib-rs",
        }
    }

    fn bound(&self, length: usize) -> usize {
        // Content that does not compress is stored, with five bytes for each block; zlib's blocks
        // have 16383 symbols at least. Then come the end of the stream or an empty block, bits that
        // fill a byte, and room that igzip writes words to.
        length + 5 * length.div_ceil(16_000) + 32
    }

    fn framing(&self) -> Framing {
        Framing {
            header: &member::HEADER,
            terminator: &member::EMPTY_LAST_BLOCK,
            trailer_bytes: member::TRAILER_BYTES,
        }
    }

    fn trailer(&self) -> Option<Box<dyn Trailer>> {
        Some(Box::<member::Trailer>::default())
    }

    fn chunk_encoder(&self) -> Box<dyn ChunkEncoder> {
        Box::<Chunks>::default()
    }

    fn stream_encoder(&self, level: u8) -> Box<dyn StreamEncoder> {
        Box::new(Stream::new(level))
    }
}

fn has_igzip(level: u8) -> bool {
    igzip::LEVELS.contains(&level) && igzip::is_available()
}

/// The state of each library for chunks: DEFLATE without header and trailer.
#[derive(Default)]
struct Chunks {
    igzip: Option<Igzip>,
    zlib: Option<Zlib>,
}

impl ChunkEncoder for Chunks {
    fn encode(&mut self, level: u8, content: &[u8], is_last: bool, output: &mut Vec<u8>) {
        let start = output.len();
        let is_encoded = if content.is_empty() {
            false
        } else if has_igzip(level) {
            let igzip = self.igzip.get_or_insert_with(|| Igzip::new(level));
            igzip.set_level(level);
            igzip.encode_chunk(content, is_last, output)
        } else {
            self.zlib(level).encode_chunk(content, is_last, output)
        };
        if !is_encoded {
            output.truncate(start);
            member::store(content, is_last, output);
        }
    }
}

impl Chunks {
    fn zlib(&mut self, level: u8) -> &mut Zlib {
        self.zlib.take_if(|zlib| zlib.level() != level);
        self.zlib.get_or_insert_with(|| Zlib::for_chunks(level))
    }
}

/// A stream of one of the libraries: a whole member.
enum Stream {
    Igzip(Igzip),
    Zlib(Zlib),
}

impl Stream {
    fn new(level: u8) -> Self {
        if has_igzip(level) {
            let mut igzip = Igzip::new(level);
            igzip.begin();
            Stream::Igzip(igzip)
        } else {
            Stream::Zlib(Zlib::for_stream(level))
        }
    }
}

impl StreamEncoder for Stream {
    fn encode(&mut self, content: &mut &[u8], flush: Flush, output: &mut Vec<u8>) -> Progress {
        match self {
            Stream::Igzip(igzip) => igzip.encode(content, flush, output),
            Stream::Zlib(zlib) => zlib.encode(content, flush, output),
        }
    }

    fn reset(&mut self, level: u8) {
        if !self.can_reuse(level) {
            *self = Self::new(level);
            return;
        }
        match self {
            Stream::Igzip(igzip) => {
                igzip.set_level(level);
                igzip.begin();
            }
            Stream::Zlib(zlib) => zlib.reset(),
        }
    }

    fn can_reuse(&self, level: u8) -> bool {
        match self {
            Stream::Igzip(_) => has_igzip(level),
            Stream::Zlib(zlib) => !has_igzip(level) && zlib.level() == level,
        }
    }

    fn memory(&self) -> usize {
        match self {
            Stream::Igzip(igzip) => igzip.memory(),
            Stream::Zlib(_) => zlib::MEMORY,
        }
    }
}
