//! Zstandard, by its reference implementation.

use std::ops::RangeInclusive;

use slipstream_offload::Coding;
use zstd_safe::zstd_sys::ZSTD_EndDirective;
use zstd_safe::{CCtx, CParameter, InBuffer, OutBuffer, ResetDirective};

use super::{ChunkEncoder, Codec, StreamEncoder};
use crate::stream::{Flush, Progress};

/// Parameters of a stream, as powers of two. RFC 9659 allows a window of 8 MB, but there is a
/// stream for each response: with tables and blocks as small as these, a window of 64 KB takes
/// 350 KB, and one of 128 KB with the usual tables takes 950 KB to 1.7 MB.
const STREAM_WINDOW: u32 = 16;
const FAST_TABLES: [CParameter; 2] = [CParameter::HashLog(14), CParameter::ChainLog(13)];
const LARGE_TABLES: [CParameter; 2] = [CParameter::HashLog(17), CParameter::ChainLog(17)];

/// The longest block of a stream, in bytes.
const STREAM_BLOCK: u32 = 32 << 10;

/// The highest level for which [`FAST_TABLES`] are large enough.
const FAST_LEVEL: u8 = 3;

/// The highest quick level for chunks of any length, and for chunks of up to
/// [`SHORT_BYTES`]. Beyond, a chunk takes ten milliseconds to half a second.
const QUICK_LEVEL: u8 = 3;
const QUICK_LEVEL_OF_SHORT: u8 = 9;
const SHORT_BYTES: usize = 256 << 10;

/// The codec. Each chunk and each stream is a frame, and frames can be joined.
pub(super) struct Zstd;

impl Codec for Zstd {
    fn name(&self) -> &'static str {
        "zstd"
    }

    fn wire_coding(&self) -> Option<Coding> {
        Some(Coding::Zstd)
    }

    fn levels(&self) -> RangeInclusive<u8> {
        1..=19
    }

    fn default_level(&self) -> u8 {
        1
    }

    fn highest_quick_level(&self, length: usize) -> u8 {
        match length {
            0..=SHORT_BYTES => QUICK_LEVEL_OF_SHORT,
            _ => QUICK_LEVEL,
        }
    }

    fn implementation(&self, _level: u8) -> &'static str {
        "zstd"
    }

    fn bound(&self, length: usize) -> usize {
        zstd_safe::compress_bound(length)
    }

    fn chunk_encoder(&self) -> Box<dyn ChunkEncoder> {
        Box::<Chunks>::default()
    }

    fn stream_encoder(&self, level: u8) -> Box<dyn StreamEncoder> {
        let mut stream = Stream(CCtx::create());
        stream.reset(level);
        Box::new(stream)
    }
}

#[derive(Default)]
struct Chunks(Option<CCtx<'static>>);

impl ChunkEncoder for Chunks {
    fn encode(&mut self, level: u8, content: &[u8], _is_last: bool, output: &mut Vec<u8>) {
        let context = self.0.get_or_insert_with(CCtx::create);
        expect(context.reset(ResetDirective::SessionAndParameters));
        expect(context.set_parameter(CParameter::CompressionLevel(level.into())));
        let start = output.len();
        let mut buffer = OutBuffer::around_pos(output, start);
        expect(context.set_pledged_src_size(Some(content.len() as u64)));
        let mut input = InBuffer::around(content);
        let end = ZSTD_EndDirective::ZSTD_e_end;
        let left = expect(context.compress_stream2(&mut buffer, &mut input, end));
        assert_eq!(left, 0, "a frame is no longer than its bound");
    }
}

struct Stream(CCtx<'static>);

impl StreamEncoder for Stream {
    fn encode(&mut self, content: &mut &[u8], flush: Flush, output: &mut Vec<u8>) -> Progress {
        let directive = match flush {
            Flush::None => ZSTD_EndDirective::ZSTD_e_continue,
            Flush::Sync => ZSTD_EndDirective::ZSTD_e_flush,
            Flush::Finish => ZSTD_EndDirective::ZSTD_e_end,
        };
        loop {
            if content.is_empty() && flush == Flush::None {
                return Progress::Done;
            }
            if output.len() == output.capacity() {
                return Progress::Full;
            }
            let start = output.len();
            let mut input = InBuffer::around(content);
            let mut buffer = OutBuffer::around_pos(output, start);
            let left = expect(self.0.compress_stream2(&mut buffer, &mut input, directive));
            *content = &content[input.pos..];
            if content.is_empty() && flush != Flush::None && left == 0 {
                return Progress::Done;
            }
        }
    }

    fn reset(&mut self, level: u8) {
        expect(self.0.reset(ResetDirective::SessionAndParameters));
        expect(
            self.0
                .set_parameter(CParameter::CompressionLevel(level.into())),
        );
        expect(self.0.set_parameter(CParameter::WindowLog(STREAM_WINDOW)));
        expect(self.0.set_parameter(CParameter::MaxBlockSize(STREAM_BLOCK)));
        let tables = match level <= FAST_LEVEL {
            true => FAST_TABLES,
            false => LARGE_TABLES,
        };
        for table in tables {
            expect(self.0.set_parameter(table));
        }
    }

    fn can_reuse(&self, _level: u8) -> bool {
        true
    }

    fn memory(&self) -> usize {
        // zstd allocates when a stream gets its first content.
        self.0.sizeof()
    }
}

/// Returns the result of a call that fails only if memory is short: all parameters are valid.
fn expect(result: zstd_safe::SafeResult) -> usize {
    result.unwrap_or_else(|code| panic!("zstd: {}", zstd_safe::get_error_name(code)))
}
