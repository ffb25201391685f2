//! The parts of a request of nginx that the filter uses.

use std::ffi::c_void;

use nginx_sys::{
    NGX_HTTP_GZIP_BUFFERED, ngx_connection_t, ngx_http_core_loc_conf_t, ngx_http_core_module,
    ngx_http_request_t, ngx_list_part_t, ngx_list_push, ngx_list_t, ngx_str_t, ngx_table_elt_t,
};

use super::configuration::Location;
use crate::index;
use crate::nginx::OutOfMemory;

/// A request that nginx is serving.
#[derive(Clone, Copy)]
pub(super) struct Request(*mut ngx_http_request_t);

impl Request {
    /// # Safety
    /// `request` is valid as long as the result is used.
    pub(super) unsafe fn new(request: *mut ngx_http_request_t) -> Self {
        Self(request)
    }

    pub(super) fn as_ptr(self) -> *mut ngx_http_request_t {
        self.0
    }

    /// nginx's structure.
    pub(super) fn raw<'a>(self) -> &'a ngx_http_request_t {
        // SAFETY: valid by the promise of `new`. The reference is used before nginx is called
        // again, or anything is changed, and is not kept.
        unsafe { &*self.0 }
    }

    pub(super) fn raw_mut<'a>(self) -> &'a mut ngx_http_request_t {
        // SAFETY: as above.
        unsafe { &mut *self.0 }
    }

    pub(super) fn connection(self) -> *mut ngx_connection_t {
        self.raw().connection
    }

    pub(super) fn is_main(self) -> bool {
        self.raw().main == self.0
    }

    pub(super) fn location<'a>(self) -> &'a Location {
        // SAFETY: a request's `loc_conf` has an entry for each http module; ours was made by
        // `create_location`.
        unsafe { &*(*self.raw().loc_conf.add(index::gzip_context_index())).cast::<Location>() }
    }

    /// The location's configuration in nginx's own http module.
    pub(super) fn core_location<'a>(self) -> &'a ngx_http_core_loc_conf_t {
        // SAFETY: as above.
        unsafe {
            let index = (&raw const ngx_http_core_module.ctx_index).read();
            &*(*self.raw().loc_conf.add(index)).cast::<ngx_http_core_loc_conf_t>()
        }
    }

    /// The pointer that [`set_context`](Self::set_context) has set, otherwise null.
    pub(super) fn context(self) -> *mut c_void {
        // SAFETY: a request's `ctx` has an entry for each http module.
        unsafe { *self.raw().ctx.add(index::gzip_context_index()) }
    }

    pub(super) fn set_context(self, context: *mut c_void) {
        // SAFETY: as above.
        unsafe { *self.raw().ctx.add(index::gzip_context_index()) = context }
    }

    /// Tells nginx that data of this request is held back, so that nginx does not end it yet, or
    /// that it is not. nginx's gzip filter uses the same bit, and never filters the same request.
    pub(super) fn set_buffered(self, is_buffered: bool) {
        // SAFETY: a request's connection is valid as long as it is.
        let connection = unsafe { &mut *self.connection() };
        let bit = NGX_HTTP_GZIP_BUFFERED;
        let buffered = connection.buffered();
        connection.set_buffered(match is_buffered {
            true => buffered | bit,
            false => buffered & !bit,
        });
    }

    /// The values of all request headers of that name.
    pub(super) fn headers_in(self, name: &[u8]) -> impl Iterator<Item = &[u8]> {
        values(&self.raw().headers_in.headers, name)
    }

    /// The values of all response headers of that name.
    pub(super) fn headers_out(self, name: &[u8]) -> impl Iterator<Item = &[u8]> {
        values(&self.raw().headers_out.headers, name)
    }

    /// Adds a response header.
    pub(super) fn add_header(
        self,
        name: &'static str,
        value: &'static str,
    ) -> Result<*mut ngx_table_elt_t, OutOfMemory> {
        // SAFETY: the list is the request's, of elements of this type.
        unsafe {
            let list = &raw mut self.raw_mut().headers_out.headers;
            let header = ngx_list_push(list).cast::<ngx_table_elt_t>();
            if header.is_null() {
                return Err(OutOfMemory);
            }
            header.write(std::mem::zeroed());
            (*header).hash = 1;
            (*header).key = text(name);
            (*header).value = text(value);
            Ok(header)
        }
    }
}

/// The values of the headers of that name in a list of nginx.
fn values<'a>(list: &'a ngx_list_t, name: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
    let mut part: *const ngx_list_part_t = &raw const list.part;
    let parts = std::iter::from_fn(move || {
        // SAFETY: parts of a list are linked until null, and hold `nelts` headers each.
        let current = unsafe { part.as_ref() }?;
        part = current.next;
        if current.nelts == 0 {
            return Some(&[][..]);
        }
        let headers = current.elts.cast::<ngx_table_elt_t>();
        // SAFETY: as above.
        Some(unsafe { std::slice::from_raw_parts(headers, current.nelts) })
    });
    // A removed header has a hash of 0.
    parts
        .flatten()
        .filter(move |header| header.hash != 0 && bytes(&header.key).eq_ignore_ascii_case(name))
        .map(|header| bytes(&header.value))
}

/// A string of nginx that lives as long as the program. nginx writes headers by their length.
fn text(text: &'static str) -> ngx_str_t {
    ngx_str_t {
        len: text.len(),
        data: text.as_ptr().cast_mut(),
    }
}

/// The bytes of a string of nginx, which may be null if it is empty.
pub(super) fn bytes(text: &ngx_str_t) -> &[u8] {
    match text.len {
        0 => &[],
        // SAFETY: nginx's strings have that many bytes.
        length => unsafe { std::slice::from_raw_parts(text.data, length) },
    }
}
