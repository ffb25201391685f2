//! `slipstream_status`: the figures of all workers in the Prometheus text format, version 0.0.4.

use std::ffi::{c_char, c_void};
use std::fmt::{Display, Write};
use std::ptr;

use nginx_sys::{
    NGX_HTTP_GET, NGX_HTTP_HEAD, NGX_HTTP_INTERNAL_SERVER_ERROR, NGX_HTTP_NOT_ALLOWED, NGX_HTTP_OK,
    NGX_OK, ngx_chain_t, ngx_command_t, ngx_conf_t, ngx_create_temp_buf, ngx_http_conf_ctx_t,
    ngx_http_core_loc_conf_t, ngx_http_core_module, ngx_http_discard_request_body,
    ngx_http_output_filter, ngx_http_request_t, ngx_http_send_header, ngx_int_t,
};
use slipstream_lanes::LANES;
use slipstream_offload::{Class, Kind, Reason};

use crate::metrics::{self, Compression, Event, Totals, layout};
use crate::module::static_str;
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
    let mut page = Page::default();
    let figure = |index: usize| totals.figures[index];
    let event = |event: Event| figure(layout::EVENT + event as usize);
    let compression = |which: Compression| figure(layout::COMPRESSION + which as usize);

    page.family("workers", "gauge", "Workers that take part.");
    page.sample("workers", None, totals.workers);

    page.family(
        "in_flight",
        "gauge",
        "Operations submitted and not answered.",
    );
    for class in Class::ALL {
        let label = ("class", class.name());
        page.sample(
            "in_flight",
            Some(label),
            figure(layout::IN_FLIGHT + class.index()),
        );
    }

    page.family("operations_total", "counter", "Operations submitted.");
    for kind in Kind::ALL {
        let label = ("operation", kind.name());
        let count = figure(layout::SUBMITTED + kind.index());
        page.sample("operations_total", Some(label), count);
    }

    page.family(
        "lane_operations_total",
        "counter",
        "Operations computed in lanes.",
    );
    for kind in Kind::ALL {
        let label = ("operation", kind.name());
        let count = figure(layout::LANE_OPERATIONS + kind.index());
        page.sample("lane_operations_total", Some(label), count);
    }

    let help = "Operations computed by the device.";
    page.family("device_operations_total", "counter", help);
    for kind in Kind::ALL {
        let label = ("operation", kind.name());
        let count = figure(layout::DEVICE_OPERATIONS + kind.index());
        page.sample("device_operations_total", Some(label), count);
    }

    let help = "Operations for which the accelerator had no room at first.";
    page.family("retried_total", "counter", help);
    page.sample("retried_total", None, figure(layout::RETRIED));

    let help = "How often the accelerator was polled.";
    page.family("polls_total", "counter", help);
    page.sample("polls_total", None, figure(layout::POLLS));

    let help = "Polls that brought nothing although operations were in flight.";
    page.family("ineffective_polls_total", "counter", help);
    page.sample(
        "ineffective_polls_total",
        None,
        figure(layout::INEFFECTIVE_POLLS),
    );

    page.family("batches_total", "counter", "Batches computed in lanes.");
    page.sample("batches_total", None, figure(layout::BATCHES));

    page.family(
        "batches_by_fill_total",
        "counter",
        "Batches by the number of live lanes.",
    );
    for live in 1..=LANES {
        let fill = figure(layout::FILL + live - 1);
        page.sample(
            "batches_by_fill_total",
            Some(("lanes", &live.to_string())),
            fill,
        );
    }

    let help = "Operations left to OpenSSL's own software, by reason.";
    page.family("software_operations_total", "counter", help);
    for reason in Reason::ALL {
        let label = ("reason", reason.name());
        let count = figure(layout::SOFTWARE + reason.index());
        page.sample("software_operations_total", Some(label), count);
    }

    page.family("fibers", "gauge", "Handshakes that are paused on a fiber.");
    page.sample("fibers", None, figure(layout::FIBERS));

    page.family(
        "fiber_stacks",
        "gauge",
        "Stacks of fibers, in use or pooled.",
    );
    page.sample("fiber_stacks", None, figure(layout::STACKS));

    page.family(
        "handshakes_total",
        "counter",
        "Handshakes completed on fibers.",
    );
    page.sample("handshakes_total", None, event(Event::Handshake));

    let help = "Connections closed during their handshake.";
    page.family("closed_handshakes_total", "counter", help);
    page.sample("closed_handshakes_total", None, event(Event::Closed));

    let help = "Operations whose connection went away while they were in flight.";
    page.family("orphans_total", "counter", help);
    page.sample(
        "orphans_total",
        None,
        figure(layout::ORPHANS) + event(Event::Late),
    );

    let help = "Key pairs and nonces that were made ahead and then used.";
    page.family("ahead_used_total", "counter", help);
    page.sample("ahead_used_total", None, figure(layout::TAKEN_AHEAD));

    let help = "Handshakes served as without the module, by reason.";
    page.family("fallbacks_total", "counter", help);
    for (reason, which) in [
        ("out_of_fibers", Event::OutOfFibers),
        ("nested", Event::Nested),
    ] {
        page.sample("fallbacks_total", Some(("reason", reason)), event(which));
    }

    let help = "Responses compressed.";
    page.family("compressed_responses_total", "counter", help);
    page.sample(
        "compressed_responses_total",
        None,
        compression(Compression::Responses),
    );

    let help = "Bytes of the content of compressed responses.";
    page.family("compressed_content_bytes_total", "counter", help);
    page.sample(
        "compressed_content_bytes_total",
        None,
        compression(Compression::Content),
    );

    let help = "Bytes that compressed responses have become.";
    page.family("compressed_output_bytes_total", "counter", help);
    page.sample(
        "compressed_output_bytes_total",
        None,
        compression(Compression::Output),
    );

    let help =
        "Chunks of content, by who has compressed them. Lost ones the device had taken before.";
    page.family("compressed_chunks_total", "counter", help);
    for (by, which) in [
        ("device", Compression::DeviceChunks),
        ("worker", Compression::OwnChunks),
        ("worker_after_loss", Compression::LostChunks),
    ] {
        page.sample(
            "compressed_chunks_total",
            Some(("by", by)),
            compression(which),
        );
    }
    page.text
}

#[derive(Default)]
struct Page {
    text: String,
}

impl Page {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        self.line(format_args!("# HELP slipstream_{name} {help}"));
        self.line(format_args!("# TYPE slipstream_{name} {kind}"));
    }

    fn sample(&mut self, name: &str, label: Option<(&str, &str)>, value: u64) {
        match label {
            Some((key, label)) => {
                self.line(format_args!(
                    "slipstream_{name}{{{key}=\"{label}\"}} {value}"
                ));
            }
            None => self.line(format_args!("slipstream_{name} {value}")),
        }
    }

    fn line(&mut self, line: impl Display) {
        writeln!(self.text, "{line}").expect("writing to a string does not fail");
    }
}
