//! The system's zlib, which nginx compresses with, and with which everything that others have
//! compressed is checked.

use std::ffi::c_int;
use std::ptr;

use libz_sys as z;

use crate::Error;

/// Added to the logarithm of the window, it asks for gzip's header and trailer.
const GZIP: c_int = 16;
/// nginx's maximum: a window of 32 KiB, and all but the last step of memory.
const WINDOW_BITS: c_int = 15;
const MEMORY_LEVEL: c_int = 8;
/// Bytes of content that nginx passes at a time, and length of its output buffers.
const INPUT: usize = 32 * 1024;
const OUTPUT: usize = 4096;

/// The version of the library.
pub(crate) fn version() -> String {
    // SAFETY: zlib returns a constant string that ends with a zero.
    let version = unsafe { std::ffi::CStr::from_ptr(z::zlibVersion()) };
    version.to_string_lossy().into_owned()
}

/// Compresses a response as nginx's gzip filter does: with a new stream for each, a window no
/// larger than the content needs, content in pieces of its file buffers and output in pieces of its
/// gzip buffers. Returns it in `output`, whose memory is used again.
///
/// # Errors
/// [`Error::Unsupported`] with what zlib said.
pub(crate) fn gzip_as_nginx(content: &[u8], level: u8, output: &mut Vec<u8>) -> Result<(), Error> {
    let (window_bits, memory_level) = parameters(content.len());
    let mut deflater = Deflater::new(level, window_bits, memory_level)?;
    output.clear();
    let mut pieces = content.chunks(INPUT).peekable();
    while let Some(piece) = pieces.next() {
        let flush = match pieces.peek() {
            Some(_) => z::Z_NO_FLUSH,
            None => z::Z_FINISH,
        };
        deflater.compress(piece, flush, output)?;
    }
    if content.is_empty() {
        deflater.compress(content, z::Z_FINISH, output)?;
    }
    Ok(())
}

/// nginx's parameters for content of a known length (`ngx_http_gzip_filter_memory`).
fn parameters(length: usize) -> (c_int, c_int) {
    let length = i64::try_from(length).unwrap_or(i64::MAX);
    let (mut window_bits, mut memory_level) = (WINDOW_BITS, MEMORY_LEVEL);
    while length < (1 << (window_bits - 1)) - 262 {
        window_bits -= 1;
        memory_level -= 1;
    }
    (window_bits, memory_level)
}

/// Decompresses a gzip member.
///
/// # Errors
/// [`Error::Unsupported`] when it is damaged, does not end, or is followed by something.
pub(crate) fn gunzip(compressed: &[u8]) -> Result<Vec<u8>, Error> {
    decompress(compressed, WINDOW_BITS + GZIP)
}

/// Decompresses a stream of DEFLATE without a header.
///
/// # Errors
/// As [`gunzip`].
pub(crate) fn inflate(compressed: &[u8]) -> Result<Vec<u8>, Error> {
    decompress(compressed, -WINDOW_BITS)
}

fn decompress(compressed: &[u8], window_bits: c_int) -> Result<Vec<u8>, Error> {
    let mut inflater = Inflater::new(window_bits)?;
    let mut content = Vec::with_capacity(compressed.len() * 6 + OUTPUT);
    inflater.decompress(compressed, &mut content)?;
    Ok(content)
}

struct Deflater(Box<z::z_stream>);

impl Deflater {
    fn new(level: u8, window_bits: c_int, memory_level: c_int) -> Result<Deflater, Error> {
        let mut stream = Box::new(new_stream());
        // SAFETY: the stream is initialised but for what zlib sets here, and stays where it is
        // until deflateEnd, since zlib remembers its address.
        let status = unsafe {
            z::deflateInit2_(
                &raw mut *stream,
                c_int::from(level),
                z::Z_DEFLATED,
                window_bits + GZIP,
                memory_level,
                z::Z_DEFAULT_STRATEGY,
                z::zlibVersion(),
                size_of::<z::z_stream>() as c_int,
            )
        };
        check("deflateInit2", status, &[z::Z_OK])?;
        Ok(Deflater(stream))
    }

    fn compress(
        &mut self,
        content: &[u8],
        flush: c_int,
        output: &mut Vec<u8>,
    ) -> Result<(), Error> {
        self.0.next_in = content.as_ptr().cast_mut();
        self.0.avail_in = length(content.len())?;
        loop {
            let status = step(&mut self.0, output, |stream| {
                // SAFETY: the stream was set up by `new`; `content` and the spare capacity of
                // `output`, which its pointers and lengths describe, outlive the call. zlib only
                // reads through next_in.
                unsafe { z::deflate(stream, flush) }
            });
            // It has nothing to put out any more after output that has just filled a buffer.
            check(
                "deflate",
                status,
                &[z::Z_OK, z::Z_STREAM_END, z::Z_BUF_ERROR],
            )?;
            let is_done = match flush {
                z::Z_FINISH => status == z::Z_STREAM_END,
                _ => self.0.avail_in == 0 && self.0.avail_out > 0,
            };
            if is_done {
                return Ok(());
            }
        }
    }
}

impl Drop for Deflater {
    fn drop(&mut self) {
        // SAFETY: the stream was set up by `new` and is not used again.
        unsafe { z::deflateEnd(&raw mut *self.0) };
    }
}

struct Inflater(Box<z::z_stream>);

impl Inflater {
    fn new(window_bits: c_int) -> Result<Inflater, Error> {
        let mut stream = Box::new(new_stream());
        // SAFETY: as for deflateInit2_.
        let status = unsafe {
            z::inflateInit2_(
                &raw mut *stream,
                window_bits,
                z::zlibVersion(),
                size_of::<z::z_stream>() as c_int,
            )
        };
        check("inflateInit2", status, &[z::Z_OK])?;
        Ok(Inflater(stream))
    }

    fn decompress(&mut self, compressed: &[u8], content: &mut Vec<u8>) -> Result<(), Error> {
        self.0.next_in = compressed.as_ptr().cast_mut();
        self.0.avail_in = length(compressed.len())?;
        loop {
            let status = step(&mut self.0, content, |stream| {
                // SAFETY: as for deflate.
                unsafe { z::inflate(stream, z::Z_NO_FLUSH) }
            });
            check("inflate", status, &[z::Z_OK, z::Z_STREAM_END])?;
            if status == z::Z_STREAM_END {
                break;
            }
        }
        match self.0.avail_in {
            0 => Ok(()),
            left => Err(Error::Unsupported(format!(
                "{left} bytes follow the end of the stream"
            ))),
        }
    }
}

impl Drop for Inflater {
    fn drop(&mut self) {
        // SAFETY: the stream was set up by `new` and is not used again.
        unsafe { z::inflateEnd(&raw mut *self.0) };
    }
}

/// Calls `work` with room for a piece of output.
fn step(
    stream: &mut z::z_stream,
    output: &mut Vec<u8>,
    work: impl FnOnce(*mut z::z_stream) -> c_int,
) -> c_int {
    output.reserve(OUTPUT);
    let room = &mut output.spare_capacity_mut()[..OUTPUT];
    stream.next_out = room.as_mut_ptr().cast();
    stream.avail_out = OUTPUT as u32;
    let status = work(&raw mut *stream);
    let written = OUTPUT - stream.avail_out as usize;
    // SAFETY: zlib has written as many bytes from next_out on as avail_out has become less.
    unsafe { output.set_len(output.len() + written) };
    status
}

fn new_stream() -> z::z_stream {
    z::z_stream {
        next_in: ptr::null_mut(),
        avail_in: 0,
        total_in: 0,
        next_out: ptr::null_mut(),
        avail_out: 0,
        total_out: 0,
        msg: ptr::null_mut(),
        state: ptr::null_mut(),
        // The type of these has no null, with which C asks zlib for its own.
        zalloc: allocate,
        zfree: free,
        opaque: ptr::null_mut(),
        data_type: 0,
        adler: 0,
        reserved: 0,
    }
}

extern "C" fn allocate(
    _opaque: *mut std::ffi::c_void,
    items: u32,
    size: u32,
) -> *mut std::ffi::c_void {
    // SAFETY: calloc may be called with anything. It checks the product.
    unsafe { libc::calloc(items as usize, size as usize) }
}

extern "C" fn free(_opaque: *mut std::ffi::c_void, memory: *mut std::ffi::c_void) {
    // SAFETY: zlib gives back only what `allocate` has given it, once.
    unsafe { libc::free(memory) }
}

fn length(length: usize) -> Result<u32, Error> {
    u32::try_from(length).map_err(|_| Error::Unsupported("more than zlib takes at once".to_owned()))
}

fn check(function: &str, status: c_int, expected: &[c_int]) -> Result<(), Error> {
    if expected.contains(&status) {
        return Ok(());
    }
    Err(Error::Unsupported(format!(
        "zlib {}: {function} returned {status}",
        version()
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_compressed_is_read_back_and_damage_is_noticed() {
        for length in [0, 1, 5000, 32 * 1024, 100_000] {
            let content: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
            let mut compressed = Vec::new();
            gzip_as_nginx(&content, 1, &mut compressed).unwrap();
            assert_eq!(gunzip(&compressed).unwrap(), content);
            // Between header and trailer, which have no optional parts here.
            let stream = &compressed[10..compressed.len() - 8];
            assert_eq!(inflate(stream).unwrap(), content);

            assert!(gunzip(&compressed[..compressed.len() - 1]).is_err());
            let mut longer = compressed.clone();
            longer.push(0);
            assert!(gunzip(&longer).is_err());
            // In the checksum of the trailer.
            let at = compressed.len() - 8;
            compressed[at] ^= 1;
            assert!(gunzip(&compressed).is_err());
        }
    }

    #[test]
    fn the_window_is_that_of_nginx() {
        assert_eq!(parameters(1_000_000), (15, 8));
        assert_eq!(parameters((1 << 14) - 262), (15, 8));
        assert_eq!(parameters((1 << 14) - 263), (14, 7));
        assert_eq!(parameters(5000), (13, 6));
        assert_eq!(parameters(0), (9, 2));
    }
}
