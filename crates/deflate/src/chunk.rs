//! One chunk by itself.

use flate2::Compress;
use zstd_safe::CCtx;

#[cfg(target_arch = "x86_64")]
use crate::igzip::Igzip;
use crate::method::{Implementation, Method};
use crate::{gzip, zlib, zstd};

/// Compresses chunks that refer to no other, with state that is reused from one to the next. One for each thread.
#[derive(Default)]
pub struct Compressor {
    #[cfg(target_arch = "x86_64")]
    igzip: Option<Igzip>,
    /// With its level.
    zlib: Option<(u8, Compress)>,
    zstd: Option<CCtx<'static>>,
}

impl Compressor {
    /// What it works with is allocated when it is first needed.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends `content`, compressed, to `output`: for DEFLATE without gzip's header and trailer, ending on a byte, and ending
    /// the stream if `is_last`; for Zstandard a frame.
    pub fn compress(
        &mut self,
        method: Method,
        content: &[u8],
        is_last: bool,
        output: &mut Vec<u8>,
    ) {
        output.reserve(bound(method, content.len()));
        let level = method.level();
        let start = output.len();
        let is_compressed = match method.chosen() {
            Implementation::Zstd => {
                let context = self.zstd.get_or_insert_with(zstd::chunks);
                zstd::compress_chunk(context, level, content, output);
                true
            }
            _ if content.is_empty() => false,
            #[cfg(target_arch = "x86_64")]
            Implementation::Igzip => {
                let igzip = self.igzip.get_or_insert_with(|| Igzip::new(level));
                igzip.set_level(level);
                igzip.compress_chunk(content, is_last, output).is_ok()
            }
            Implementation::ZlibRs => {
                let compress = self.zlib(level);
                zlib::compress_chunk(compress, content, is_last, output)
            }
        };
        if !is_compressed {
            output.truncate(start);
            gzip::store(content, is_last, output);
        }
    }

    fn zlib(&mut self, level: u8) -> &mut Compress {
        if self.zlib.as_ref().is_some_and(|(of, _)| *of != level) {
            self.zlib = None;
        }
        let (_, compress) = self.zlib.get_or_insert_with(|| (level, zlib::raw(level)));
        compress
    }
}

/// How long `length` bytes of content can become at most, in bytes, as one chunk.
pub fn bound(method: Method, length: usize) -> usize {
    match method.chosen() {
        Implementation::Zstd => zstd_safe::compress_bound(length),
        // What does not compress is stored, with five bytes for each block; zlib's blocks have 16383 symbols at least. Then
        // come the end of the stream or an empty block, bits that fill a byte, and room that igzip writes words to.
        _ => length + 5 * length.div_ceil(16_000) + 32,
    }
}
