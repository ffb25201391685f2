//! The gate: the first call of nginx's handshake handler must not complete the handshake.
//!
//! nginx's `ngx_http_ssl_handshake` goes straight on with the request if `ngx_ssl_handshake`
//! succeeds in its first call. That happens when the client's last flight, or early data, is there
//! already: up to half of the TLS 1.3 handshakes if client and server share a core. The request
//! would then run on the fiber. So from the ClientHello on, until that call has returned, reads
//! from the socket answer "retry"; then the read event is posted again.

use std::cell::Cell;
use std::ffi::{c_char, c_int, c_long, c_void};

use nginx_sys::{
    BIO, BIO_FLAGS_READ, BIO_FLAGS_RWS, BIO_FLAGS_SHOULD_RETRY, BIO_clear_flags,
    BIO_set_callback_ex, BIO_set_flags, SSL, SSL_CTRL_SET_READ_AHEAD, SSL_CTX, SSL_CTX_ctrl,
    SSL_CTX_get_max_early_data, SSL_CTX_set_msg_callback, SSL_get_rbio, SSL_set_msg_callback,
    SSL_set_read_ahead,
};
use slipstream_offload::{JobToken, fiber};

use crate::connection::Ssl;

/// The gate of one connection.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) enum Gate {
    /// Reads pass.
    #[default]
    Open,
    /// Reads answer "retry".
    Closed,
    /// As closed, and a read has been refused.
    Touched,
}

thread_local! {
    /// The gate of each connection; none where handshakes are left to nginx.
    static GATES: Cell<&'static [Cell<Gate>]> = const { Cell::new(&[]) };
}

/// Makes an open gate for each of `connections`.
pub(crate) fn install(connections: usize) {
    GATES.set(vec![Cell::new(Gate::Open); connections].leak());
}

/// Marks the gate of `job` as open, and returns its state before that.
pub(crate) fn reset(job: JobToken) -> Gate {
    of_job(job).map(Cell::take).unwrap_or_default()
}

/// Closes the gate at the ClientHello of every connection that is made from `context`.
///
/// # Safety
/// `context` is valid, and this module stays loaded as long as it.
pub(crate) unsafe fn arm(context: *mut SSL_CTX) {
    // SAFETY: by the caller's promise.
    unsafe {
        SSL_CTX_set_msg_callback(context, Some(at_message));
        // With read-ahead, which nginx switches on, early data could be read together with the
        // ClientHello, past the gate. `at_message` switches it on again.
        if SSL_CTX_get_max_early_data(context) > 0 {
            SSL_CTX_ctrl(
                context,
                SSL_CTRL_SET_READ_AHEAD as c_int,
                0,
                std::ptr::null_mut(),
            );
        }
    }
}

/// Lets reads of `ssl` pass again.
pub(crate) fn open(ssl: Ssl) {
    // SAFETY: nginx's TLS state holds a valid object of OpenSSL with a socket BIO.
    unsafe { BIO_set_callback_ex(SSL_get_rbio(ssl.openssl()), None) };
}

unsafe extern "C" fn at_message(
    written: c_int,
    _version: c_int,
    content_type: c_int,
    message: *const c_void,
    length: usize,
    ssl: *mut SSL,
    _argument: *mut c_void,
) {
    const HANDSHAKE: c_int = 22;
    // A ClientHello in the format of SSL 2, which is not a record.
    const NO_RECORD: c_int = 0;
    const CLIENT_HELLO: u8 = 1;
    // SAFETY: OpenSSL passes a message of `length` bytes and the object that received it.
    unsafe {
        if written != 0 || !matches!(content_type, HANDSHAKE | NO_RECORD) || length == 0 {
            return;
        }
        if *message.cast::<u8>() != CLIENT_HELLO {
            return;
        }
        SSL_set_msg_callback(ssl, None);
        SSL_set_read_ahead(ssl, 1);
        if let Some(gate) = of_running_fiber() {
            gate.set(Gate::Closed);
            BIO_set_callback_ex(SSL_get_rbio(ssl), Some(before_read));
        }
    }
}

unsafe extern "C" fn before_read(
    bio: *mut BIO,
    operation: c_int,
    _argument: *const c_char,
    _length: usize,
    _argument_int: c_int,
    _argument_long: c_long,
    result: c_int,
    _processed: *mut usize,
) -> c_long {
    const BIO_CB_READ: c_int = 2;
    if operation == BIO_CB_READ && refuses_read() {
        // SAFETY: OpenSSL passes the BIO that is being read.
        unsafe {
            BIO_clear_flags(bio, (BIO_FLAGS_RWS | BIO_FLAGS_SHOULD_RETRY) as c_int);
            BIO_set_flags(bio, (BIO_FLAGS_READ | BIO_FLAGS_SHOULD_RETRY) as c_int);
        }
        return -1;
    }
    c_long::from(result)
}

fn refuses_read() -> bool {
    of_running_fiber().is_some_and(|gate| {
        let is_closed = gate.get() != Gate::Open;
        if is_closed {
            gate.set(Gate::Touched);
        }
        is_closed
    })
}

fn of_running_fiber() -> Option<&'static Cell<Gate>> {
    of_job(fiber::current()?.job())
}

fn of_job(job: JobToken) -> Option<&'static Cell<Gate>> {
    GATES.get().get(job.0)
}
