//! systemd: sockets that it has bound, and what it is told.

use std::io;
use std::net::TcpListener;
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use sd_notify::NotifyState;
use socket2::{Socket, Type};

/// The listening sockets that systemd has passed (sd_listen_fds(3)), non-blocking; none if the process was not activated by sockets.
/// They are handed out once: the second call returns none.
///
/// # Errors
/// If one of them is no listening TCP socket.
pub fn listeners() -> io::Result<Vec<TcpListener>> {
    static ARE_TAKEN: AtomicBool = AtomicBool::new(false);
    // Asked for even then: a wrong variable is an error each time.
    let passed = sd_notify::listen_fds()?;
    if ARE_TAKEN.swap(true, Ordering::Relaxed) {
        return Ok(Vec::new());
    }
    passed
        .map(|descriptor| {
            // SAFETY: systemd has opened these descriptors for this process, whose number stands beside them, and nothing else
            // in it takes them: the flag above is set once. That they are open, `listen_fds` has seen when it changed their flags.
            let socket = Socket::from(unsafe { OwnedFd::from_raw_fd(descriptor) });
            listener(socket).map_err(|error| {
                let text = format!(
                    "descriptor {descriptor} from systemd is no listening TCP socket ({error}): \
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

/// Tells systemd, if it asks (sd_notify(3)): connections are served.
pub fn notify_ready() {
    notify(&[NotifyState::Ready]);
}

/// A new configuration is being read; [`notify_ready`] follows.
pub fn notify_reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => notify(&[NotifyState::Reloading, now]),
        // Without the time systemd would take the reload for failed, and end the service.
        Err(_) => notify(&[]),
    }
}

/// Connections are being ended.
pub fn notify_stopping() {
    notify(&[NotifyState::Stopping]);
}

fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        eprintln!("slipstream serve: cannot notify systemd: {error}");
    }
}
