//! A whole response as one stream on the caller's core.

use flate2::Compress;
use zstd_safe::CCtx;

#[cfg(target_arch = "x86_64")]
use crate::igzip::Igzip;
use crate::method::{Implementation, Method};
use crate::{zlib, zstd};

/// A stream that may refer back to all of its content so far. It can be used for another response after
/// [`reset`](Self::reset).
pub struct Stream {
    codec: Codec,
}

enum Codec {
    #[cfg(target_arch = "x86_64")]
    Igzip(Igzip),
    Zlib {
        level: u8,
        compress: Compress,
    },
    Zstd(CCtx<'static>),
}

/// What is wanted behind the content that is passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flush {
    /// Nothing: output comes when it is worth while.
    None,
    /// All output for the content so far, so that the client can read it.
    Sync,
    /// The end of the stream.
    Finish,
}

/// Where a stream has got to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// All content has been taken, and what `flush` asks for has been done.
    Done,
    /// `output` is full, or nearly so.
    Full,
}

impl Stream {
    /// A stream of `method`: a gzip member with header and trailer, or a Zstandard frame.
    pub fn new(method: Method) -> Self {
        let level = method.level();
        let codec = match method.chosen() {
            #[cfg(target_arch = "x86_64")]
            Implementation::Igzip => {
                let mut igzip = Igzip::new(level);
                igzip.begin();
                Codec::Igzip(igzip)
            }
            Implementation::ZlibRs => Codec::Zlib {
                level,
                compress: zlib::gzip(level),
            },
            Implementation::Zstd => Codec::Zstd(zstd::stream(level)),
        };
        Self { codec }
    }

    /// Begins again, with another response.
    pub fn reset(&mut self, method: Method) {
        let wanted = method.level();
        match (&mut self.codec, method.chosen()) {
            #[cfg(target_arch = "x86_64")]
            (Codec::Igzip(igzip), Implementation::Igzip) => {
                igzip.set_level(wanted);
                igzip.begin();
            }
            (Codec::Zlib { level, compress }, Implementation::ZlibRs) if *level == wanted => {
                compress.reset();
            }
            (Codec::Zstd(context), Implementation::Zstd) => zstd::begin(context, wanted),
            _ => *self = Self::new(method),
        }
    }

    /// Compresses `content`, from whose start what has been taken is removed, into the spare capacity of `output`. After
    /// [`Progress::Full`] it is called again with the same `flush`, and with at least 64 bytes of capacity.
    pub fn compress(
        &mut self,
        content: &mut &[u8],
        flush: Flush,
        output: &mut Vec<u8>,
    ) -> Progress {
        match &mut self.codec {
            #[cfg(target_arch = "x86_64")]
            Codec::Igzip(igzip) => igzip.compress(content, flush, output),
            Codec::Zlib { compress, .. } => zlib::compress(compress, content, flush, output),
            Codec::Zstd(context) => zstd::compress(context, content, flush, output),
        }
    }

    /// Whether [`reset`](Self::reset) to `method` keeps the memory.
    pub(crate) fn fits(&self, method: Method) -> bool {
        match (&self.codec, method.chosen()) {
            #[cfg(target_arch = "x86_64")]
            (Codec::Igzip(_), Implementation::Igzip) => true,
            (Codec::Zlib { level, .. }, Implementation::ZlibRs) => *level == method.level(),
            (Codec::Zstd(_), Implementation::Zstd) => true,
            _ => false,
        }
    }

    /// What it takes in memory, in bytes.
    pub fn memory(&self) -> usize {
        match &self.codec {
            #[cfg(target_arch = "x86_64")]
            Codec::Igzip(igzip) => igzip.memory(),
            Codec::Zlib { .. } => zlib::MEMORY,
            // It allocates when it begins.
            Codec::Zstd(context) => context.sizeof(),
        }
    }
}
