//! zlib-rs.

use flate2::{Compress, Compression, FlushCompress, Status};

use crate::stream::{Flush, Progress};

/// Memory of a stream of zlib-rs with a window of 32 KB, in bytes: window, hash chains, hash heads,
/// symbols and output.
pub(super) const MEMORY: usize = 372 << 10;

const WINDOW_BITS: u8 = 15;

/// The state of zlib-rs for one level.
pub(super) struct Zlib {
    level: u8,
    compress: Compress,
}

impl Zlib {
    /// Makes the state for DEFLATE without gzip's header and trailer.
    pub fn for_chunks(level: u8) -> Self {
        let compress = Compress::new(compression(level), false);
        Self { level, compress }
    }

    /// Makes the state for gzip members.
    pub fn for_stream(level: u8) -> Self {
        let compress = Compress::new_gzip(compression(level), WINDOW_BITS);
        Self { level, compress }
    }

    pub fn level(&self) -> u8 {
        self.level
    }

    /// Begins another member.
    pub fn reset(&mut self) {
        self.compress.reset();
    }

    /// Compresses `content` by itself into the spare capacity of `output`, ending on a byte.
    /// Returns false if that was not possible.
    pub fn encode_chunk(&mut self, content: &[u8], is_last: bool, output: &mut Vec<u8>) -> bool {
        self.compress.reset();
        let flush = if is_last {
            FlushCompress::Finish
        } else {
            FlushCompress::Full
        };
        let status = self.compress.compress_vec(content, output, flush);
        let is_all_taken = self.compress.total_in() == content.len() as u64;
        match status {
            Ok(Status::StreamEnd) => is_all_taken,
            // zlib-rs has flushed everything only if it has left room.
            Ok(Status::Ok) => !is_last && is_all_taken && output.len() < output.capacity(),
            Ok(Status::BufError) | Err(_) => false,
        }
    }

    /// Compresses as [`Stream::compress`](crate::Stream::compress) says.
    pub fn encode(&mut self, content: &mut &[u8], flush: Flush, output: &mut Vec<u8>) -> Progress {
        if content.is_empty() && flush == Flush::None {
            return Progress::Done;
        }
        let wanted = match flush {
            Flush::None => FlushCompress::None,
            Flush::Sync => FlushCompress::Sync,
            Flush::Finish => FlushCompress::Finish,
        };
        loop {
            if output.len() == output.capacity() {
                return Progress::Full;
            }
            let before = self.compress.total_in();
            let status = self
                .compress
                .compress_vec(content, output, wanted)
                .expect("zlib-rs accepts every call of a stream that it has begun");
            let taken = (self.compress.total_in() - before) as usize;
            *content = &content[taken..];
            match (flush, status) {
                (Flush::Finish, Status::StreamEnd) => return Progress::Done,
                (Flush::Finish, Status::Ok | Status::BufError) => {}
                // zlib-rs has flushed everything only if it has left room.
                _ if content.is_empty() && output.len() < output.capacity() => {
                    return Progress::Done;
                }
                (Flush::None, _) if content.is_empty() => return Progress::Done,
                _ => {}
            }
        }
    }
}

/// zlib-rs's output at level 1 is a fifth longer than zlib's. At level 2 it is shorter, and zlib-rs
/// is still faster than zlib at level 1.
fn compression(level: u8) -> Compression {
    Compression::new(level.max(2).into())
}
