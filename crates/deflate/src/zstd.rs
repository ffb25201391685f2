//! Zstandard, by its reference implementation.

use zstd_safe::zstd_sys::ZSTD_EndDirective;
use zstd_safe::{CCtx, CParameter, InBuffer, OutBuffer, ResetDirective};

use crate::stream::{Flush, Progress};

/// What a stream has, as powers of two: RFC 9659 allows a window of 8 MB, but there is a stream for each response. With tables and
/// blocks as small as these, a window of 64 KB takes 350 KB, while one of 128 KB with the usual tables takes 950 KB to 1.7 MB.
const STREAM_WINDOW: u32 = 16;
const FAST_TABLES: [CParameter; 2] = [CParameter::HashLog(14), CParameter::ChainLog(13)];
const LARGE_TABLES: [CParameter; 2] = [CParameter::HashLog(17), CParameter::ChainLog(17)];

/// The longest block of a stream, in bytes.
const STREAM_BLOCK: u32 = 32 << 10;

/// Up to this level [`FAST_TABLES`] are large enough.
const FAST_LEVEL: u8 = 3;

/// For chunks.
pub(crate) fn chunks() -> CCtx<'static> {
    CCtx::create()
}

/// Compresses `content` to a frame in the spare capacity of `output`.
///
/// # Panics
/// If there is not as much as [`bound`](crate::bound) says, or no memory.
pub(crate) fn compress_chunk(
    context: &mut CCtx<'static>,
    level: u8,
    content: &[u8],
    output: &mut Vec<u8>,
) {
    expect(context.reset(ResetDirective::SessionAndParameters));
    expect(context.set_parameter(CParameter::CompressionLevel(level.into())));
    let start = output.len();
    let mut buffer = OutBuffer::around_pos(output, start);
    expect(context.set_pledged_src_size(Some(content.len() as u64)));
    let mut input = InBuffer::around(content);
    let left =
        expect(context.compress_stream2(&mut buffer, &mut input, ZSTD_EndDirective::ZSTD_e_end));
    assert_eq!(left, 0, "a frame that is no longer than its bound");
}

/// For a frame.
pub(crate) fn stream(level: u8) -> CCtx<'static> {
    let mut context = CCtx::create();
    begin(&mut context, level);
    context
}

/// Begins a frame; what is not finished is forgotten.
pub(crate) fn begin(context: &mut CCtx<'static>, level: u8) {
    expect(context.reset(ResetDirective::SessionAndParameters));
    expect(context.set_parameter(CParameter::CompressionLevel(level.into())));
    expect(context.set_parameter(CParameter::WindowLog(STREAM_WINDOW)));
    expect(context.set_parameter(CParameter::MaxBlockSize(STREAM_BLOCK)));
    let tables = match level <= FAST_LEVEL {
        true => FAST_TABLES,
        false => LARGE_TABLES,
    };
    for table in tables {
        expect(context.set_parameter(table));
    }
}

/// As [`Stream::compress`](crate::Stream::compress).
pub(crate) fn compress(
    context: &mut CCtx<'static>,
    content: &mut &[u8],
    flush: Flush,
    output: &mut Vec<u8>,
) -> Progress {
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
        let left = expect(context.compress_stream2(&mut buffer, &mut input, directive));
        *content = &content[input.pos..];
        if content.is_empty() && flush != Flush::None && left == 0 {
            return Progress::Done;
        }
    }
}

/// What zstd answers to valid parameters, as long as there is memory.
fn expect(result: zstd_safe::SafeResult) -> usize {
    result.unwrap_or_else(|code| panic!("zstd: {}", zstd_safe::get_error_name(code)))
}
