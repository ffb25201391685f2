//! The decision to compress a response, and the choice of a codec: the rules of nginx's own gzip
//! filter, with the weights of RFC 9110.

use nginx_sys::{
    NGX_DECLINED, NGX_HTTP_FORBIDDEN, NGX_HTTP_GZIP_PROXIED_ANY, NGX_HTTP_GZIP_PROXIED_AUTH,
    NGX_HTTP_GZIP_PROXIED_EXPIRED, NGX_HTTP_GZIP_PROXIED_NO_CACHE, NGX_HTTP_GZIP_PROXIED_NO_ETAG,
    NGX_HTTP_GZIP_PROXIED_NO_LM, NGX_HTTP_GZIP_PROXIED_NO_STORE, NGX_HTTP_GZIP_PROXIED_OFF,
    NGX_HTTP_GZIP_PROXIED_PRIVATE, NGX_HTTP_NOT_FOUND, NGX_HTTP_OK, ngx_http_test_content_type,
    ngx_int_t, ngx_parse_http_time, ngx_regex_exec_array, ngx_table_elt_t, ngx_time, ngx_uint_t,
    time_t,
};
use slipstream_compress::{Codec, negotiation};

use super::configuration::Location;
use super::request::Request;
use crate::bits::request::HEADER_ONLY;

/// The decision on a response.
pub(super) enum Verdict {
    /// It is not compressed for any client.
    Pass,
    /// It is not compressed for this client, but may be for others.
    Vary,
    /// It is compressed by this codec.
    Compress(&'static dyn Codec),
}

/// Decides on the response to `request`, whose header is about to be sent.
pub(super) fn judge(request: Request, location: &Location) -> Verdict {
    if !is_compressible(request, location) {
        return Verdict::Pass;
    }
    match codec(request, location) {
        Some(codec) => Verdict::Compress(codec),
        None => Verdict::Vary,
    }
}

fn is_compressible(request: Request, location: &Location) -> bool {
    let raw = request.raw();
    let headers = &raw.headers_out;
    let status = headers.status;
    let has_length = headers.content_length_n != -1;
    // SAFETY: the pointer is null or that of a header of this response.
    let is_encoded =
        unsafe { headers.content_encoding.as_ref() }.is_some_and(|encoding| encoding.value.len > 0);
    location.enabled == 1
        && [NGX_HTTP_OK, NGX_HTTP_FORBIDDEN, NGX_HTTP_NOT_FOUND].contains(&(status as u32))
        && !is_encoded
        && !(has_length && headers.content_length_n < location.min_length as i64)
        && !HEADER_ONLY.is_set(raw)
        && has_type(request, location)
        && !request
            .headers_out(b"cache-control")
            .any(negotiation::forbids_transformation)
}

fn has_type(request: Request, location: &Location) -> bool {
    // SAFETY: nginx's own function, with the request and a hash that `ngx_http_merge_types` has
    // made, which it only reads.
    let found = unsafe {
        ngx_http_test_content_type(request.as_ptr(), (&raw const location.types).cast_mut())
    };
    !found.is_null()
}

fn codec(request: Request, location: &Location) -> Option<&'static dyn Codec> {
    // The response to a subrequest becomes part of that to its main request.
    if !request.is_main() {
        return None;
    }
    let mut lines = request.headers_in(b"accept-encoding");
    let first = lines.next()?;
    let codec = match lines.next() {
        None => negotiation::choose(first, location.codecs.as_slice()),
        // Several lines are one list (RFC 9110, section 5.3).
        Some(second) => {
            let all: Vec<&[u8]> = [first, second].into_iter().chain(lines).collect();
            negotiation::choose(&all.join(&b","[..]), location.codecs.as_slice())
        }
    }?;
    let raw = request.raw();
    let is_refused = (location.disable_msie6 == 1 && raw.headers_in.msie6() != 0)
        || raw.http_version < location.http_version
        || !is_allowed_through_proxies(request, location)
        || is_disabled(request, location);
    (!is_refused).then_some(codec)
}

/// Applies the rules of `ngx_http_gzip_ok` for a request that a proxy has forwarded.
fn is_allowed_through_proxies(request: Request, location: &Location) -> bool {
    let raw = request.raw();
    let allows = |bit: u32| location.proxied & bit as ngx_uint_t != 0;
    if raw.headers_in.via.is_null() {
        return true;
    }
    if allows(NGX_HTTP_GZIP_PROXIED_OFF) {
        return false;
    }
    if allows(NGX_HTTP_GZIP_PROXIED_ANY) {
        return true;
    }
    if !raw.headers_in.authorization.is_null() && allows(NGX_HTTP_GZIP_PROXIED_AUTH) {
        return true;
    }
    if !raw.headers_out.expires.is_null() {
        return allows(NGX_HTTP_GZIP_PROXIED_EXPIRED) && has_expired(request);
    }
    let mut control = request.headers_out(b"cache-control").peekable();
    if control.peek().is_some() {
        return control.any(|value| {
            [
                (NGX_HTTP_GZIP_PROXIED_NO_CACHE, &b"no-cache"[..]),
                (NGX_HTTP_GZIP_PROXIED_NO_STORE, b"no-store"),
                (NGX_HTTP_GZIP_PROXIED_PRIVATE, b"private"),
            ]
            .into_iter()
            .any(|(bit, name)| allows(bit) && has_directive(value, name))
        });
    }
    (raw.headers_out.last_modified.is_null() || !allows(NGX_HTTP_GZIP_PROXIED_NO_LM))
        && (raw.headers_out.etag.is_null() || !allows(NGX_HTTP_GZIP_PROXIED_NO_ETAG))
}

fn has_expired(request: Request) -> bool {
    let headers = &request.raw().headers_out;
    let Some(expires) = time(headers.expires) else {
        return false;
    };
    match headers.date.is_null() {
        true => expires < ngx_time(),
        false => time(headers.date).is_some_and(|date| expires < date),
    }
}

fn time(header: *const ngx_table_elt_t) -> Option<time_t> {
    const UNREADABLE: time_t = -1;
    // SAFETY: a header of this response; the function reads as many bytes as it is told.
    let time = unsafe { ngx_parse_http_time((*header).value.data, (*header).value.len) };
    (time != UNREADABLE).then_some(time)
}

/// Returns true if a value of `Cache-Control` has a directive, with or without an argument.
fn has_directive(value: &[u8], name: &[u8]) -> bool {
    value.split(|byte| *byte == b',').any(|directive| {
        let mut parts = directive.split(|byte| *byte == b'=');
        let found = parts.next().unwrap_or_default().trim_ascii();
        found.eq_ignore_ascii_case(name)
    })
}

fn is_disabled(request: Request, location: &Location) -> bool {
    let user_agent = request.raw().headers_in.user_agent;
    if location.disable.is_null() || user_agent.is_null() {
        return false;
    }
    // SAFETY: an array of compiled expressions that `add_disabled` has made, and the value of a
    // header of this request.
    let found = unsafe {
        ngx_regex_exec_array(
            location.disable,
            &raw mut (*user_agent).value,
            (*request.connection()).log,
        )
    };
    found != NGX_DECLINED as ngx_int_t
}
