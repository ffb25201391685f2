//! `slipstream_status`: the figures of all workers in the Prometheus text format, version 0.0.4.

use std::ffi::{c_char, c_void};
use std::ptr;

use nginx_sys::{
    NGX_HTTP_GET, NGX_HTTP_HEAD, NGX_HTTP_INTERNAL_SERVER_ERROR, NGX_HTTP_NOT_ALLOWED, NGX_HTTP_OK,
    NGX_OK, ngx_chain_t, ngx_command_t, ngx_conf_t, ngx_create_temp_buf, ngx_http_conf_ctx_t,
    ngx_http_core_loc_conf_t, ngx_http_core_module, ngx_http_discard_request_body,
    ngx_http_output_filter, ngx_http_request_t, ngx_http_send_header, ngx_int_t,
};
use slipstream_metrics::{Page, Type};
use slipstream_offload::counters::BATCH_SIZE;
use slipstream_offload::{Class, Kind, Reason};

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
        if sent != NGX_OK as ngx_int_t || (*request).header_only() != 0 {
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

    let mut family = page.family("operations_total", Type::Counter, "Operations submitted.");
    for kind in Kind::ALL {
        let label = ("operation", kind.name());
        let count = figure(layout::SUBMITTED + kind.index());
        family.sample(&[label], count);
    }

    let mut family = page.family(
        "lane_operations_total",
        Type::Counter,
        "Operations computed in lanes.",
    );
    for kind in Kind::ALL {
        let label = ("operation", kind.name());
        let count = figure(layout::LANE_OPERATIONS + kind.index());
        family.sample(&[label], count);
    }

    let help = "Operations computed by the device.";
    let mut family = page.family("device_operations_total", Type::Counter, help);
    for kind in Kind::ALL {
        let label = ("operation", kind.name());
        let count = figure(layout::DEVICE_OPERATIONS + kind.index());
        family.sample(&[label], count);
    }

    let help = "Operations computed in lanes at once, without a pause.";
    let mut family = page.family("at_once_operations_total", Type::Counter, help);
    for kind in Kind::ALL {
        let label = ("operation", kind.name());
        family.sample(&[label], figure(layout::AT_ONCE + kind.index()));
    }

    let help = "Operations for which the accelerator had no room at first.";
    page.counter("retried_total", help, figure(layout::RETRIED));

    let help = "How often the accelerator was polled.";
    page.counter("polls_total", help, figure(layout::POLLS));

    let help = "Polls that brought nothing although operations were in flight.";
    page.counter(
        "ineffective_polls_total",
        help,
        figure(layout::INEFFECTIVE_POLLS),
    );

    page.counter(
        "batches_total",
        "Batches computed in lanes.",
        figure(layout::BATCHES),
    );

    let mut family = page.family(
        "batches_by_fill_total",
        Type::Counter,
        "Batches by the number of live lanes.",
    );
    for live in 1..=BATCH_SIZE {
        let fill = figure(layout::FILL + live - 1);
        family.sample(&[("lanes", &live.to_string())], fill);
    }

    let help = "Operations left to OpenSSL's own software, by reason.";
    let mut family = page.family("software_operations_total", Type::Counter, help);
    for reason in Reason::ALL {
        let label = ("reason", reason.name());
        let count = figure(layout::SOFTWARE + reason.index());
        family.sample(&[label], count);
    }

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

    let help = "Operations whose connection went away while they were in flight.";
    page.counter(
        "orphans_total",
        help,
        figure(layout::ORPHANS) + event(Event::Late),
    );

    let help = "Key pairs and nonces that were made ahead and then used.";
    let precomputed = Kind::ALL.into_iter().filter(|kind| kind.is_precomputed());
    let used = precomputed.map(|kind| figure(layout::AT_ONCE + kind.index()));
    page.counter("ahead_used_total", help, used.sum());

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
