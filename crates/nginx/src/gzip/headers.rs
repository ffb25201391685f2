//! Changes in the header of a compressed response.

use nginx_sys::{ngx_http_weak_etag, ngx_table_elt_t};
use slipstream_compress::Codec;

use super::request::Request;
use crate::bits::request::{ALLOW_RANGES, GZIP_VARY, MAIN_FILTER_NEED_IN_MEMORY};
use crate::nginx::OutOfMemory;

/// Adds the header that the response depends on `Accept-Encoding`, even if it is not compressed.
pub(super) fn vary(request: Request) -> Result<(), OutOfMemory> {
    // nginx writes the header by itself where `gzip_vary` is on.
    if request.core_location().gzip_vary == 1 {
        GZIP_VARY.set(request.raw_mut(), true);
    } else if request.location().vary == 1 {
        request.add_header("Vary", "Accept-Encoding")?;
    }
    Ok(())
}

/// Sets the headers of a response in `codec`'s coding. Its length and its ranges are not known any
/// more, and its entity tag becomes a weak one (RFC 9110, section 8.8.3).
pub(super) fn encode(request: Request, codec: &'static dyn Codec) -> Result<(), OutOfMemory> {
    let header = request.add_header("Content-Encoding", codec.name())?;
    let raw = request.raw_mut();
    let headers = &mut raw.headers_out;
    headers.content_encoding = header;
    headers.content_length_n = -1;
    remove(&mut headers.content_length);
    remove(&mut headers.accept_ranges);
    ALLOW_RANGES.set(raw, false);
    MAIN_FILTER_NEED_IN_MEMORY.set(raw, true);
    // SAFETY: nginx's own function, with a request whose header has not been sent.
    unsafe { ngx_http_weak_etag(request.as_ptr()) };
    Ok(())
}

fn remove(header: &mut *mut ngx_table_elt_t) {
    // SAFETY: null, or a header of the response.
    if let Some(found) = unsafe { header.as_mut() } {
        found.hash = 0;
        *header = std::ptr::null_mut();
    }
}
