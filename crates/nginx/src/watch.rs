//! Descriptors of our own among the events that nginx waits for.

use std::os::fd::{AsRawFd, OwnedFd};

use nginx_sys::{
    NGX_OK, ngx_connection_t, ngx_event_actions, ngx_event_handler_pt, ngx_event_t, ngx_int_t,
    ngx_log_t, ngx_uint_t,
};

/// A connection of nginx that is none: nginx has the same for its own notifications.
#[repr(C)]
pub(crate) struct Watch {
    connection: ngx_connection_t,
    read: ngx_event_t,
    write: ngx_event_t,
    /// Whatever the handler needs to know.
    pub(crate) tag: usize,
}

/// When a descriptor that is readable is reported.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Edge {
    /// As long as it is readable.
    Level,
    /// Whenever it has become readable again.
    Clear,
}

impl Watch {
    /// Calls `handler` when `descriptor` is readable, as long as the worker lives. `None` if the
    /// kernel refuses it.
    pub(crate) fn add(
        descriptor: &'static OwnedFd,
        edge: Edge,
        handler: ngx_event_handler_pt,
        tag: usize,
        log: *mut ngx_log_t,
    ) -> Option<()> {
        // SAFETY: structures of C for which nginx itself starts with all zero bits.
        let zeroed: Watch = unsafe { std::mem::zeroed() };
        // Never freed: nginx's events refer to it.
        let watch = Box::into_raw(Box::new(zeroed));
        // SAFETY: just allocated, and only this pointer refers to it. nginx passes what it finds in
        // `data` of an event on as a connection, and asks it for both of its events.
        unsafe {
            (*watch).tag = tag;
            (*watch).connection.fd = descriptor.as_raw_fd();
            (*watch).connection.read = &raw mut (*watch).read;
            (*watch).connection.write = &raw mut (*watch).write;
            (*watch).connection.log = log;
            (*watch).read.data = watch.cast();
            (*watch).read.handler = handler;
            (*watch).read.log = log;
            (*watch).write.data = watch.cast();
            (*watch).write.log = log;
            let add = (&raw const ngx_event_actions.add).read()?;
            let flags = match edge {
                Edge::Level => 0,
                Edge::Clear => libc::EPOLLET as ngx_uint_t,
            };
            let events = (libc::EPOLLIN | libc::EPOLLRDHUP) as ngx_int_t;
            (add(&raw mut (*watch).read, events, flags) == NGX_OK as ngx_int_t).then_some(())
        }
    }

    /// The tag of the watch that `event` belongs to.
    ///
    /// # Safety
    /// `event` is what nginx has passed to a handler of [`Watch::add`].
    pub(crate) unsafe fn tag(event: *mut ngx_event_t) -> usize {
        // SAFETY: by the caller's promise its data is a watch, which is never freed.
        unsafe { (*(*event).data.cast::<Watch>()).tag }
    }
}

const _: () = assert!(std::mem::offset_of!(Watch, connection) == 0);
