//! The filter of response headers and bodies between nginx's handlers and the client.

use std::cell::Cell;
use std::ffi::c_void;
use std::rc::Rc;

use nginx_sys::{
    NGX_AGAIN, NGX_ERROR, NGX_HTTP_HEAD, NGX_OK, ngx_buf_t, ngx_chain_add_copy, ngx_chain_t,
    ngx_conf_t, ngx_http_output_body_filter_pt, ngx_http_output_header_filter_pt,
    ngx_http_request_t, ngx_http_top_body_filter, ngx_http_top_header_filter, ngx_int_t,
    ngx_pool_cleanup_add,
};
use slipstream_compress::{Codec, Session, Totals};
use slipstream_offload::JobToken;

use super::eligibility::{self, Verdict};
use super::headers;
use super::jobs::{self, Job, with_context};
use super::output::Output;
use super::request::Request;
use crate::bits::request::HEADER_ONLY;
use crate::nginx::OutOfMemory;
use crate::worker::worker;

thread_local! {
    static NEXT_HEADER: Cell<ngx_http_output_header_filter_pt> = const { Cell::new(None) };
    static NEXT_BODY: Cell<ngx_http_output_body_filter_pt> = const { Cell::new(None) };
}

/// Adds the filter to nginx's chain, which nginx makes anew for each configuration that it reads.
///
/// # Safety
/// Called by nginx as the module's `postconfiguration`.
pub(crate) unsafe extern "C" fn install(_cf: *mut ngx_conf_t) -> ngx_int_t {
    // SAFETY: by the caller's promise no other code reads or writes the top of the chain now.
    unsafe {
        NEXT_HEADER.set((&raw const ngx_http_top_header_filter).read());
        NEXT_BODY.set((&raw const ngx_http_top_body_filter).read());
        (&raw mut ngx_http_top_header_filter).write(Some(filter_header));
        (&raw mut ngx_http_top_body_filter).write(Some(filter_body));
    }
    NGX_OK as ngx_int_t
}

/// A response that is compressed.
struct Response {
    request: Request,
    /// `None` once all of its output has been passed on.
    compression: Option<Compression>,
    /// Content that has not been taken.
    input: *mut ngx_chain_t,
    output: Output,
    totals: Rc<Cell<Totals>>,
}

/// The target of a request's context. Figures are read while the response is borrowed, so they are
/// not part of it.
pub(super) struct Entry {
    response: *mut Response,
    totals: Rc<Cell<Totals>>,
}

impl Entry {
    /// The figures so far.
    pub(super) fn totals(&self) -> Totals {
        self.totals.get()
    }
}

struct Compression {
    session: Session,
    job: Job,
    /// The content until now has to reach the client at once.
    is_flushing: bool,
}

impl Response {
    /// Ends compression.
    fn end(&mut self) {
        self.count();
        if self.compression.take().is_some()
            && let Some(worker) = worker()
        {
            worker.metrics.count_response(&self.totals.get());
        }
    }

    /// Notes the figures so far.
    fn count(&self) {
        if let Some(compression) = &self.compression {
            self.totals.set(compression.session.totals());
        }
    }
}

#[inline(never)]
unsafe extern "C" fn filter_header(request: *mut ngx_http_request_t) -> ngx_int_t {
    // SAFETY: nginx passes a request whose header is complete and has not been sent.
    let request = unsafe { Request::new(request) };
    let location = request.location();
    let prepared = match eligibility::judge(request, location) {
        Verdict::Pass => Ok(()),
        Verdict::Vary => headers::vary(request),
        Verdict::Compress(codec) => headers::vary(request).and_then(|()| begin(request, codec)),
    };
    match prepared {
        Ok(()) => {
            let next = NEXT_HEADER.get().expect("installed before it is called");
            // SAFETY: the next filter, called as nginx calls filters.
            unsafe { next(request.as_ptr()) }
        }
        Err(OutOfMemory) => NGX_ERROR as ngx_int_t,
    }
}

fn begin(request: Request, codec: &'static dyn Codec) -> Result<(), OutOfMemory> {
    let length = u64::try_from(request.raw().headers_out.content_length_n).ok();
    let settings = request.location().settings(codec);
    let pool = request.raw().pool;
    // SAFETY: the request's pool.
    let cleanup = unsafe { ngx_pool_cleanup_add(pool, 0) };
    if cleanup.is_null() {
        return Err(OutOfMemory);
    }
    headers::encode(request, codec)?;
    if request.raw().method == NGX_HTTP_HEAD as usize {
        // There will be no body.
        return Ok(());
    }
    let session = with_context(|context| Session::new(settings, length, context));
    let totals: Rc<Cell<Totals>> = Rc::default();
    let response = Box::into_raw(Box::new(Response {
        request,
        compression: None,
        input: std::ptr::null_mut(),
        output: Output::new(pool, request.location().buffers),
        totals: totals.clone(),
    }));
    let entry = Box::into_raw(Box::new(Entry { response, totals }));
    // SAFETY: just allocated; freed with the request's pool, and not referred to after that.
    unsafe {
        (*response).compression = Some(Compression {
            session,
            job: Job::new(response.cast()),
            is_flushing: false,
        });
        (*cleanup).handler = Some(drop_response);
        (*cleanup).data = entry.cast::<c_void>();
    }
    request.set_context(entry.cast());
    Ok(())
}

/// Drops a response when its request ends, perhaps in the middle: chunks in flight are orphaned.
unsafe extern "C" fn drop_response(entry: *mut c_void) {
    // SAFETY: `begin` has registered it once, with what it has allocated.
    unsafe {
        let entry = Box::from_raw(entry.cast::<Entry>());
        Box::from_raw(entry.response).end();
    }
}

#[inline(never)]
unsafe extern "C" fn filter_body(
    request: *mut ngx_http_request_t,
    chain: *mut ngx_chain_t,
) -> ngx_int_t {
    // SAFETY: nginx passes a request whose header has been sent.
    let request = unsafe { Request::new(request) };
    // SAFETY: null, or what `begin` has made.
    let Some(entry) = (unsafe { request.context().cast::<Entry>().as_ref() }) else {
        return pass(request, chain);
    };
    // SAFETY: the only reference: no filter behind this one calls back into it.
    let response = unsafe { &mut *entry.response };
    if response.compression.is_none() || HEADER_ONLY.is_set(request.raw()) {
        return pass(request, chain);
    }
    if !chain.is_null() {
        // SAFETY: the request's pool, and a chain of buffers that stay until they have been taken.
        let added =
            unsafe { ngx_chain_add_copy(request.raw().pool, &raw mut response.input, chain) };
        if added != NGX_OK as ngx_int_t {
            response.end();
            return NGX_ERROR as ngx_int_t;
        }
        request.set_buffered(true);
    }
    response.advance()
}

/// Resumes the response of `job`. Returns false if it is a handshake's job.
///
/// The response may be gone, and its job another response's, which then finds no answer.
pub(crate) fn resume(job: JobToken) -> bool {
    let Some(response) = jobs::response(job) else {
        return false;
    };
    if !response.is_null() {
        // SAFETY: `begin` has given it to its job, which is dropped with it; no other reference
        // exists between calls of nginx.
        let request = unsafe { take_answers(response.cast::<Response>()) };
        let connection = request.connection();
        // SAFETY: the request's connection. Its handler resumes the request with the rest of its
        // content, or with its end. Either may free the request, which is not used any more.
        unsafe {
            let write = (*connection).write;
            if let Some(handler) = (*write).handler {
                handler(write);
            }
        }
    }
    true
}

/// Takes answers of the device to chunks of `response`, and passes on the output that is ready.
/// Returns the request, which is to be resumed.
///
/// # Safety
/// The response exists, and no reference to it.
unsafe fn take_answers(response: *mut Response) -> Request {
    // SAFETY: by the caller's promise.
    let response = unsafe { &mut *response };
    let request = response.request;
    if let Some(compression) = &mut response.compression {
        with_context(|context| compression.session.resume(context));
        if response.advance() == NGX_ERROR as ngx_int_t {
            // The next write to the connection then fails.
            // SAFETY: a request's connection is valid as long as it is.
            unsafe { (*request.connection()).set_error(1) };
        }
    }
    request
}

impl Response {
    /// Compresses as much content, and passes on as much output, as possible now.
    fn advance(&mut self) -> ngx_int_t {
        match self.pump() {
            Ok(()) => {}
            Err(Failed) => {
                self.end();
                return NGX_ERROR as ngx_int_t;
            }
        }
        let is_waiting = match &mut self.compression {
            None => false,
            Some(compression) => {
                let is_waiting = compression.session.is_waiting();
                compression.job.set_waiting(is_waiting);
                is_waiting
            }
        };
        if let Some(worker) = worker() {
            worker.note_progress();
            // The session may have taken the answers that would have woken the worker.
            worker.retrieval.disarm();
            if is_waiting {
                worker.retrieval.paused(worker.active());
            }
        }
        match is_waiting || self.output.is_busy() || !self.input.is_null() {
            true => NGX_AGAIN as ngx_int_t,
            false => NGX_OK as ngx_int_t,
        }
    }

    fn pump(&mut self) -> Result<(), Failed> {
        if self.output.is_busy() {
            self.send(std::ptr::null_mut())?;
        }
        loop {
            // All output that fits is passed on together: each call may be a system call.
            loop {
                self.feed();
                if !self.collect()? {
                    break;
                }
            }
            let chain = self.output.take();
            if chain.is_null() {
                return Ok(());
            }
            self.send(chain)?;
        }
    }

    /// Writes content to the session while it takes any.
    fn feed(&mut self) {
        let Some(compression) = &mut self.compression else {
            return;
        };
        let Compression {
            session,
            job,
            is_flushing,
        } = compression;
        while let Some(buffer) = first_buffer(self.input) {
            let content = content(buffer);
            let length = content.len();
            let mut is_last = false;
            let taken = with_context(|context| {
                let taken = match content {
                    [] => 0,
                    content => session.write(context, job, content),
                };
                if taken == length {
                    if buffer.last_buf() != 0 {
                        session.finish(context, job);
                        is_last = true;
                    } else if buffer.flush() != 0 {
                        session.flush(context, job);
                        *is_flushing = true;
                    }
                }
                taken
            });
            buffer.pos = buffer.pos.wrapping_add(taken);
            if taken < length {
                return;
            }
            self.input = self.output.free_link(self.input);
            if is_last {
                return self.drop_input();
            }
        }
    }

    /// Drops content behind the end of the response.
    fn drop_input(&mut self) {
        while let Some(buffer) = first_buffer(self.input) {
            buffer.pos = buffer.last;
            self.input = self.output.free_link(self.input);
        }
    }

    /// Takes the blocks that are ready while the output has room. Returns true if there were any.
    fn collect(&mut self) -> Result<bool, OutOfMemory> {
        let Some(compression) = &mut self.compression else {
            return Ok(false);
        };
        let session = &mut compression.session;
        let mut has_any = false;
        while self.output.has_room() {
            let Some(block) = session.next_block() else {
                break;
            };
            self.output.add(block)?;
            has_any = true;
        }
        let has_room = self.output.has_room();
        if session.is_complete() {
            self.output.mark_last()?;
            self.end();
            self.request.set_buffered(false);
        } else if compression.is_flushing && has_room {
            // Without a flush nginx would keep a short buffer until more output comes.
            let is_all = !session.is_waiting();
            if is_all || has_any {
                self.output.mark_flush()?;
            }
            if is_all {
                compression.is_flushing = false;
                self.request.set_buffered(!self.input.is_null());
            }
        } else if has_any && !has_room {
            // nginx keeps output that is too short to be sent, which would leave no room for more.
            self.output.mark_flush()?;
        }
        Ok(has_any)
    }

    fn send(&mut self, chain: *mut ngx_chain_t) -> Result<(), Failed> {
        self.count();
        let result = pass(self.request, chain);
        if result == NGX_ERROR as ngx_int_t {
            return Err(Failed);
        }
        self.output.sent(chain);
        Ok(())
    }
}

/// The first buffer of a response's input.
fn first_buffer<'a>(input: *mut ngx_chain_t) -> Option<&'a mut ngx_buf_t> {
    // SAFETY: the input was copied from the chains that nginx has passed: its links are the
    // response's, and its buffers valid until they have been taken. No other code reads them
    // meanwhile.
    unsafe { input.as_ref().map(|link| &mut *link.buf) }
}

/// The rest of a buffer. It is in memory, since the header filter has asked for that.
fn content<'a>(buffer: &ngx_buf_t) -> &'a [u8] {
    match buffer.last.addr() - buffer.pos.addr() {
        0 => &[],
        // SAFETY: the bytes between the two are the buffer's, and stay as they are until they have
        // been taken.
        length => unsafe { std::slice::from_raw_parts(buffer.pos, length) },
    }
}

/// Error: the response cannot be completed.
struct Failed;

impl From<OutOfMemory> for Failed {
    fn from(_: OutOfMemory) -> Self {
        Failed
    }
}

/// Calls the next filter.
fn pass(request: Request, chain: *mut ngx_chain_t) -> ngx_int_t {
    let next = NEXT_BODY.get().expect("installed before it is called");
    // SAFETY: the next filter, called as nginx calls filters.
    unsafe { next(request.as_ptr(), chain) }
}
