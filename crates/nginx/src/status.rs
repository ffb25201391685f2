//! `slipstream_status`: the figures of all workers in the Prometheus text format, version 0.0.4.

use std::ffi::{c_char, c_void};
use std::ptr;

use nginx_sys::{
    NGX_HTTP_GET, NGX_HTTP_HEAD, NGX_HTTP_INTERNAL_SERVER_ERROR, NGX_HTTP_NOT_ALLOWED, NGX_HTTP_OK,
    NGX_OK, ngx_chain_t, ngx_command_t, ngx_conf_t, ngx_create_temp_buf, ngx_http_conf_ctx_t,
    ngx_http_core_loc_conf_t, ngx_http_core_module, ngx_http_discard_request_body,
    ngx_http_output_filter, ngx_http_request_t, ngx_http_send_header, ngx_int_t,
};
use slipstream_metrics::{Histogram, Page, Type};
use slipstream_offload::Class;
use slipstream_offload::counters::Counters;

use crate::bits::request::HEADER_ONLY;
use crate::metrics::{self, Compression, Event, Totals, layout};
use crate::nginx::static_str;
use crate::worker::worker;

pub(crate) unsafe extern "C" fn set_handler(
    cf: *mut ngx_conf_t,
    _command: *mut ngx_command_t,
    _conf: *mut c_void,
) -> *mut c_char {
    // SAFETY: nginx passes the configuration of a location, whose context has an entry for each
    // http module.
    unsafe {
        let confs = (*(*cf).ctx.cast::<ngx_http_conf_ctx_t>()).loc_conf;
        let core = *confs.add((&raw const ngx_http_core_module.ctx_index).read());
        (*core.cast::<ngx_http_core_loc_conf_t>()).handler = Some(handle);
    }
    ptr::null_mut()
}

unsafe extern "C" fn handle(request: *mut ngx_http_request_t) -> ngx_int_t {
    // SAFETY: nginx passes a request in the content phase; the buffer is allocated from its pool
    // and has room for the text.
    unsafe {
        if (*request).method & (NGX_HTTP_GET | NGX_HTTP_HEAD) as usize == 0 {
            return NGX_HTTP_NOT_ALLOWED as ngx_int_t;
        }
        let discarded = ngx_http_discard_request_body(request);
        if discarded != NGX_OK as ngx_int_t {
            return discarded;
        }
        if let Some(worker) = worker() {
            worker.publish();
        }
        let text = render(&metrics::totals());
        let buffer = ngx_create_temp_buf((*request).pool, text.len());
        if buffer.is_null() {
            return NGX_HTTP_INTERNAL_SERVER_ERROR as ngx_int_t;
        }
        ptr::copy_nonoverlapping(text.as_ptr(), (*buffer).last, text.len());
        (*buffer).last = (*buffer).last.add(text.len());
        (*buffer).set_last_buf(u32::from((*request).main == request));
        (*buffer).set_last_in_chain(1);

        let content_type = static_str("text/plain; version=0.0.4\0");
        (*request).headers_out.content_type = content_type;
        (*request).headers_out.content_type_len = content_type.len;
        (*request).headers_out.status = NGX_HTTP_OK as usize;
        (*request).headers_out.content_length_n = text.len() as i64;
        let sent = ngx_http_send_header(request);
        // An error, a status of its own, or the header was all that was asked for.
        if sent != NGX_OK as ngx_int_t || HEADER_ONLY.is_set(&*request) {
            return sent;
        }
        let mut chain = ngx_chain_t {
            buf: buffer,
            next: ptr::null_mut(),
        };
        ngx_http_output_filter(request, &raw mut chain)
    }
}

fn render(totals: &Totals) -> String {
    let mut page = Page::new("slipstream_");
    let figure = |index: usize| totals.figures[index];
    let event = |event: Event| figure(layout::EVENT + event as usize);
    let compression = |which: Compression| figure(layout::COMPRESSION + which as usize);

    page.gauge("workers", "Workers that take part.", totals.workers);

    let mut family = page.family(
        "in_flight",
        Type::Gauge,
        "Operations submitted and not answered.",
    );
    for class in Class::ALL {
        let label = ("class", class.name());
        family.sample(&[label], figure(layout::IN_FLIGHT + class.index()));
    }

    let mut counters = Counters::load(totals.figures);
    counters.orphans += event(Event::Late);
    counters.write(&mut page, "OpenSSL's own software");

    page.gauge(
        "fibers",
        "Handshakes that are paused on a fiber.",
        figure(layout::FIBERS),
    );

    page.gauge(
        "fiber_stacks",
        "Stacks of fibers, in use or pooled.",
        figure(layout::STACKS),
    );

    page.counter(
        "handshakes_total",
        "Handshakes completed on fibers.",
        event(Event::Handshake),
    );

    let help = "Connections closed during their handshake.";
    page.counter("closed_handshakes_total", help, event(Event::Closed));

    let help = "Time from the beginning of a connection to the end of its handshake on fibers.";
    let durations = Histogram::from_figures(totals.figures[layout::HANDSHAKE..].iter().copied());
    page.family("handshake_duration_seconds", Type::Histogram, help)
        .durations(&[], &durations);

    let help = "Handshakes served as without the module, by reason.";
    let mut family = page.family("fallbacks_total", Type::Counter, help);
    for (reason, which) in [
        ("out_of_fibers", Event::OutOfFibers),
        ("nested", Event::Nested),
    ] {
        family.sample(&[("reason", reason)], event(which));
    }

    let help = "Responses compressed.";
    page.counter(
        "compressed_responses_total",
        help,
        compression(Compression::Responses),
    );

    let help = "Bytes of the content of compressed responses.";
    page.counter(
        "compressed_content_bytes_total",
        help,
        compression(Compression::Content),
    );

    let help = "Bytes that compressed responses have become.";
    page.counter(
        "compressed_output_bytes_total",
        help,
        compression(Compression::Output),
    );

    let help =
        "Chunks of content, by who has compressed them. Lost ones the device had taken before.";
    let mut family = page.family("compressed_chunks_total", Type::Counter, help);
    for (by, which) in [
        ("device", Compression::DeviceChunks),
        ("worker", Compression::OwnChunks),
        ("worker_after_loss", Compression::LostChunks),
    ] {
        family.sample(&[("by", by)], compression(which));
    }
    page.finish()
}
