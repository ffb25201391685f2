//! zlib-rs: for the levels that igzip does not have, and where there is no igzip.

use flate2::{Compress, Compression, FlushCompress, Status};

use crate::stream::{Flush, Progress};

/// What a stream of zlib-rs takes with a window of 32 KB: window, hash chains, hash heads, symbols and output, in bytes.
pub(crate) const MEMORY: usize = 372 << 10;

const WINDOW_BITS: u8 = 15;

/// For DEFLATE's `level`, without gzip's header and trailer.
pub(crate) fn raw(level: u8) -> Compress {
    Compress::new(compression(level), false)
}

/// For a gzip member.
pub(crate) fn gzip(level: u8) -> Compress {
    Compress::new_gzip(compression(level), WINDOW_BITS)
}

/// zlib-rs's level 1 puts out a fifth more than zlib's does, its level 2 less, and is still faster.
fn compression(level: u8) -> Compression {
    Compression::new(level.max(2).into())
}

/// Compresses `content` by itself into the spare capacity of `output`, ending on a byte. Returns false if that has not
/// been possible.
pub(crate) fn compress_chunk(
    compress: &mut Compress,
    content: &[u8],
    is_last: bool,
    output: &mut Vec<u8>,
) -> bool {
    compress.reset();
    let flush = if is_last {
        FlushCompress::Finish
    } else {
        FlushCompress::Full
    };
    let status = compress.compress_vec(content, output, flush);
    let is_all_taken = compress.total_in() == content.len() as u64;
    match status {
        Ok(Status::StreamEnd) => is_all_taken,
        // Where room is left, nothing is.
        Ok(Status::Ok) => !is_last && is_all_taken && output.len() < output.capacity(),
        Ok(Status::BufError) | Err(_) => false,
    }
}

/// As [`Stream::compress`](crate::Stream::compress).
pub(crate) fn compress(
    compress: &mut Compress,
    content: &mut &[u8],
    flush: Flush,
    output: &mut Vec<u8>,
) -> Progress {
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
        let before = compress.total_in();
        let status = compress
            .compress_vec(content, output, wanted)
            .expect("zlib-rs has begun no other stream");
        let taken = (compress.total_in() - before) as usize;
        *content = &content[taken..];
        match (flush, status) {
            (Flush::Finish, Status::StreamEnd) => return Progress::Done,
            (Flush::Finish, Status::Ok | Status::BufError) => {}
            // Where room is left, nothing is.
            _ if content.is_empty() && output.len() < output.capacity() => return Progress::Done,
            (Flush::None, _) if content.is_empty() => return Progress::Done,
            _ => {}
        }
    }
}
