//! nginx's connections, behind a type that holds all field access in one place.

use std::ffi::c_void;
use std::ptr::NonNull;

use nginx_sys::{
    ngx_connection_handler_pt, ngx_connection_t, ngx_cycle, ngx_event_handler_pt, ngx_event_t,
    ngx_http_connection_t, ngx_post_event, ngx_posted_events, ngx_ssl_connection_t, ssl_st,
};
use slipstream_offload::JobToken;

/// A connection of this worker: an element of `ngx_cycle->connections`.
///
/// That array is allocated once and lives as long as the worker, so the fields can be read at any
/// time, also after the connection has been closed; the worker has one thread.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Connection(NonNull<ngx_connection_t>);

impl Connection {
    /// # Safety
    /// `connection` is an element of `ngx_cycle->connections` of this worker.
    pub(crate) unsafe fn new(connection: *mut ngx_connection_t) -> Self {
        Self(NonNull::new(connection).expect("nginx passes connections, not null"))
    }

    /// # Safety
    /// `event` is the read or write event of a connection of this worker.
    pub(crate) unsafe fn of_event(event: *mut ngx_event_t) -> Self {
        // SAFETY: the data of a connection's event is the connection.
        unsafe { Self::new((*event).data.cast()) }
    }

    /// The connection that `job` names; the inverse of [`Connection::job`].
    pub(crate) fn of_job(job: JobToken) -> Self {
        // SAFETY: `job` was made by `job()`, hence indexes the array.
        unsafe { Self::new((*ngx_cycle).connections.add(job.0)) }
    }

    /// Names the connection by its place in the array.
    pub(crate) fn job(self) -> JobToken {
        // SAFETY: both point into the same array.
        let index = unsafe { self.0.as_ptr().offset_from((*ngx_cycle).connections) };
        JobToken(index as usize)
    }

    pub(crate) fn as_ptr(self) -> *mut ngx_connection_t {
        self.0.as_ptr()
    }

    /// Returns a number that no other use of the same slot has.
    pub(crate) fn number(self) -> u64 {
        self.read(|c| c.number)
    }

    /// Returns true if nginx has closed the connection.
    pub(crate) fn is_closed(self) -> bool {
        self.read(|c| c.fd == -1 || c.destroyed() != 0)
    }

    /// Returns true if nginx asks for the connection to be closed, at the end of a graceful
    /// shutdown.
    pub(crate) fn is_to_be_closed(self) -> bool {
        self.read(|c| c.close() != 0)
    }

    pub(crate) fn read_event(self) -> *mut ngx_event_t {
        self.read(|c| c.read)
    }

    pub(crate) fn handlers(self) -> Handlers {
        // SAFETY: a connection's events live as long as the array of connections.
        unsafe {
            Handlers {
                read: (*self.read_event()).handler,
                write: (*self.write_event()).handler,
            }
        }
    }

    pub(crate) fn set_handlers(self, handlers: Handlers) {
        // SAFETY: as above.
        unsafe {
            (*self.read_event()).handler = handlers.read;
            (*self.write_event()).handler = handlers.write;
        }
    }

    pub(crate) fn is_readable(self) -> bool {
        // SAFETY: as above.
        unsafe { (*self.read_event()).ready() != 0 }
    }

    /// Lets the read handler run again in this turn of the event loop.
    pub(crate) fn post_read(self) {
        // SAFETY: the event is valid, and the queue is nginx's own.
        unsafe {
            (*self.read_event()).set_ready(1);
            ngx_post_event(self.read_event(), &raw mut ngx_posted_events);
        }
    }

    /// Reads the first byte that the client has sent, and leaves it in the socket.
    pub(crate) fn peek(self) -> Peek {
        let mut byte = 0_u8;
        let fd = self.read(|c| c.fd);
        // SAFETY: the buffer is one byte long.
        let received = unsafe { libc::recv(fd, (&raw mut byte).cast(), 1, libc::MSG_PEEK) };
        match received {
            1 => Peek::Byte(byte),
            -1 if std::io::Error::last_os_error().raw_os_error() == Some(libc::EAGAIN) => {
                Peek::Nothing
            }
            _ => Peek::Ended,
        }
    }

    /// The state of the subsystem that the connection belongs to.
    pub(crate) fn data(self) -> *mut c_void {
        self.read(|c| c.data)
    }

    /// nginx's http state; valid from the end of `ngx_http_init_connection` to that of the
    /// handshake.
    pub(crate) fn http(self) -> *mut ngx_http_connection_t {
        self.data().cast()
    }

    pub(crate) fn ssl(self) -> Option<Ssl> {
        NonNull::new(self.read(|c| c.ssl)).map(Ssl)
    }

    pub(crate) fn is_handshaked(self) -> bool {
        self.ssl().is_some_and(Ssl::is_handshaked)
    }

    pub(crate) fn log(self) -> *mut nginx_sys::ngx_log_t {
        self.read(|c| c.log)
    }

    fn write_event(self) -> *mut ngx_event_t {
        self.read(|c| c.write)
    }

    fn read<T>(self, field: impl FnOnce(&ngx_connection_t) -> T) -> T {
        // SAFETY: see the type; the reference ends with the call, during which nothing writes.
        field(unsafe { self.0.as_ref() })
    }
}

/// The handlers of a connection's two events.
#[derive(Clone, Copy, Default)]
pub(crate) struct Handlers {
    pub(crate) read: ngx_event_handler_pt,
    pub(crate) write: ngx_event_handler_pt,
}

/// The result of [`Connection::peek`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Peek {
    Byte(u8),
    Nothing,
    /// The client has closed, or the socket has failed.
    Ended,
}

/// nginx's TLS state of a connection. It is allocated from the connection's pool, so it is fetched
/// anew after any call that may have closed the connection.
#[derive(Clone, Copy)]
pub(crate) struct Ssl(NonNull<ngx_ssl_connection_t>);

impl Ssl {
    pub(crate) fn is_handshaked(self) -> bool {
        // SAFETY: see the type.
        unsafe { self.0.as_ref().handshaked() != 0 }
    }

    /// Returns the handler that nginx calls when the handshake has ended.
    pub(crate) fn handler(self) -> ngx_connection_handler_pt {
        // SAFETY: see the type.
        unsafe { self.0.as_ref().handler }
    }

    pub(crate) fn set_handler(self, handler: ngx_connection_handler_pt) {
        // SAFETY: see the type.
        unsafe { (*self.0.as_ptr()).handler = handler }
    }

    /// OpenSSL's object.
    pub(crate) fn openssl(self) -> *mut ssl_st {
        // SAFETY: see the type.
        unsafe { self.0.as_ref().connection }
    }
}
