//! Interface to systemd: socket activation and notifications.

use std::io;
use std::net::TcpListener;
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use sd_notify::NotifyState;
use socket2::{Socket, Type};

/// Returns the listening sockets that systemd has passed (sd_listen_fds(3)), set to non-blocking.
/// Returns none if the process was not activated by sockets, and from the second call on.
///
/// # Errors
/// Returns an error if one of them is not a listening TCP socket.
pub fn listeners() -> io::Result<Vec<TcpListener>> {
    static ARE_TAKEN: AtomicBool = AtomicBool::new(false);
    // Called each time, so that a malformed variable is an error each time.
    let passed = sd_notify::listen_fds()?;
    if ARE_TAKEN.swap(true, Ordering::Relaxed) {
        return Ok(Vec::new());
    }
    passed
        .map(|descriptor| {
            // SAFETY: systemd has opened these descriptors for this process, whose number stands
            // beside them, and nothing else in it takes them: the flag above is set once.
            // `listen_fds` has changed their flags, so they are open.
            let socket = Socket::from(unsafe { OwnedFd::from_raw_fd(descriptor) });
            listener(socket).map_err(|error| {
                let text = format!(
                    "descriptor {descriptor} from systemd is not a listening TCP socket ({error}): \
                     the .socket unit must have ListenStream= with a port, and Accept=no"
                );
                io::Error::new(io::ErrorKind::InvalidInput, text)
            })
        })
        .collect()
}

fn listener(socket: Socket) -> io::Result<TcpListener> {
    let is_internet = socket.local_addr()?.as_socket().is_some();
    if socket.r#type()? != Type::STREAM || !is_internet || !socket.is_listener()? {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// Notifies systemd (sd_notify(3)) that connections are served.
pub fn notify_ready() {
    notify(&[NotifyState::Ready]);
}

/// Notifies systemd that a configuration is being read. [`notify_ready`] must follow.
pub fn notify_reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => notify(&[NotifyState::Reloading, now]),
        // Without the time systemd would consider the reload failed and stop the service.
        Err(_) => notify(&[]),
    }
}

/// Notifies systemd that the process is ending.
pub fn notify_stopping() {
    notify(&[NotifyState::Stopping]);
}

fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        eprintln!("slipstream serve: cannot notify systemd: {error}");
    }
}
