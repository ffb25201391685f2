//! `$slipstream_gzip_ratio`.

use nginx_sys::{
    NGX_ERROR, NGX_HTTP_VAR_NOCACHEABLE, NGX_OK, ngx_conf_t, ngx_http_add_variable,
    ngx_http_request_t, ngx_http_variable_value_t, ngx_int_t, ngx_pnalloc, ngx_uint_t,
};

use super::filter::Entry;
use super::request::Request;
use crate::nginx::static_str;

/// # Safety
/// `cf` is an http configuration that is about to be read.
pub(crate) unsafe extern "C" fn add(cf: *mut ngx_conf_t) -> ngx_int_t {
    let mut name = static_str("slipstream_gzip_ratio\0");
    // SAFETY: by the caller's promise; nginx copies the name.
    unsafe {
        let variable =
            ngx_http_add_variable(cf, &raw mut name, NGX_HTTP_VAR_NOCACHEABLE as ngx_uint_t);
        if variable.is_null() {
            return NGX_ERROR as ngx_int_t;
        }
        (*variable).get_handler = Some(ratio);
    }
    NGX_OK as ngx_int_t
}

/// Sets the ratio of the length of the content to that of the output, with two decimals as
/// `$gzip_ratio` has them.
unsafe extern "C" fn ratio(
    request: *mut ngx_http_request_t,
    value: *mut ngx_http_variable_value_t,
    _data: usize,
) -> ngx_int_t {
    // SAFETY: nginx passes a request, and a value to be filled.
    let (request, value) = unsafe { (Request::new(request), &mut *value) };
    // SAFETY: the context of a request is null or its entry, which lives as long as it.
    let entry = unsafe { request.context().cast::<Entry>().as_ref() };
    let totals = entry.map(Entry::totals);
    let Some(totals) = totals.filter(|totals| totals.output > 0) else {
        value.set_not_found(1);
        return NGX_OK as ngx_int_t;
    };
    // In hundredths, rounded to the nearest.
    let ratio = (totals.content * 100 + totals.output / 2) / totals.output;
    let text = format!("{}.{:02}", ratio / 100, ratio % 100);
    // SAFETY: the request's pool; there is room for the text.
    unsafe {
        let data = ngx_pnalloc(request.raw().pool, text.len()).cast::<u8>();
        if data.is_null() {
            return NGX_ERROR as ngx_int_t;
        }
        std::ptr::copy_nonoverlapping(text.as_ptr(), data, text.len());
        value.data = data;
    }
    value.set_len(text.len() as u32);
    value.set_valid(1);
    value.set_no_cacheable(0);
    value.set_not_found(0);
    NGX_OK as ngx_int_t
}
