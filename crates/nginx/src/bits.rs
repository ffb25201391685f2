//! Bit fields of nginx's structures, at the places that the C compiler gives them.
//!
//! bindgen packs bit fields as if they began at a boundary of their type. Where a shorter member
//! stands before them, they do not, and its accessors read and write other bits. Those of a request
//! are therefore looked up when this crate is built, and of all other structures it is checked that
//! they begin where bindgen believes. (Those of `ngx_ssl_connection_t` do not, but have one bit
//! each, and a field of one bit is packed alike anywhere.)

use std::mem::offset_of;

use nginx_sys::{
    ngx_buf_t, ngx_connection_t, ngx_event_t, ngx_http_addr_conf_t, ngx_http_connection_t,
    ngx_http_headers_in_t, ngx_http_request_t, ngx_variable_value_t,
};

/// A bit field of one bit in a request.
#[derive(Clone, Copy)]
pub(crate) struct Bit {
    /// The place of its 32-bit word in the structure.
    word: usize,
    /// Its place in that word.
    bit: u32,
}

/// Bits of requests.
pub(crate) mod request {
    use super::Bit;

    include!(concat!(env!("OUT_DIR"), "/request_bits.rs"));
}

impl Bit {
    /// Returns true if it is set.
    pub(crate) fn is_set(self, request: &ngx_http_request_t) -> bool {
        let words = (&raw const *request).cast::<u32>();
        // SAFETY: the C compiler has found the word in this structure, which is aligned to more.
        unsafe { *words.add(self.word) & 1 << self.bit != 0 }
    }

    /// Sets or clears it.
    pub(crate) fn set(self, request: &mut ngx_http_request_t, value: bool) {
        let words = (&raw mut *request).cast::<u32>();
        // SAFETY: as above.
        let word = unsafe { &mut *words.add(self.word) };
        *word = *word & !(1 << self.bit) | u32::from(value) << self.bit;
    }
}

macro_rules! packed_as_bindgen_believes {
    ($($structure:ty),+ $(,)?) => {
        $(const _: () = assert!(
            offset_of!($structure, _bitfield_1).is_multiple_of(size_of::<u32>()),
            concat!("look up the bit fields of ", stringify!($structure), " as those of requests")
        );)+
    };
}

packed_as_bindgen_believes!(
    ngx_buf_t,
    ngx_connection_t,
    ngx_event_t,
    ngx_http_addr_conf_t,
    ngx_http_connection_t,
    ngx_http_headers_in_t,
    ngx_variable_value_t,
);

#[cfg(stream)]
packed_as_bindgen_believes!(nginx_sys::ngx_stream_session_t);
