//! Connections to backends.

use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpStream, UnixStream, lookup_host};
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;

use super::upstream::Backend;
use crate::configuration::Address;
use crate::keepalive::keepalive;

/// Why there is no connection.
#[derive(Debug)]
pub enum ConnectError {
    /// It took too long.
    TimedOut,
    /// The backend refused, or its certificate is not what it should be.
    Failed,
}

/// Connects to `backend`, sends `header` before anything else, TLS included, and completes TLS if the backend has it, all of
/// that within `limit`. A name is resolved each time, so that a backend may move.
///
/// # Errors
/// If the backend cannot be reached.
pub async fn connect(
    backend: &Backend,
    header: Option<&[u8]>,
    limit: Duration,
) -> Result<BackendStream, ConnectError> {
    let connecting = async {
        let mut socket = match &backend.address {
            Address::Tcp(host, port) => Socket::Tcp(connect_tcp(host, *port).await?),
            Address::Unix(path) => Socket::Unix(UnixStream::connect(path).await?),
        };
        if let Some(header) = header {
            socket.write_all(header).await?;
        }
        match &backend.tls {
            None => io::Result::Ok(BackendStream::Plain(socket)),
            Some((connector, name)) => {
                let stream = connector.connect(name.clone(), socket).await?;
                Ok(BackendStream::Tls(Box::new(stream)))
            }
        }
    };
    match timeout(limit, connecting).await {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err(error)) if error.kind() != io::ErrorKind::TimedOut => Err(ConnectError::Failed),
        Ok(Err(_)) | Err(_) => Err(ConnectError::TimedOut),
    }
}

async fn connect_tcp(host: &str, port: u16) -> io::Result<TcpStream> {
    let stream = match host.parse::<IpAddr>() {
        Ok(address) => TcpStream::connect((address, port)).await?,
        Err(_) => {
            let mut last = io::Error::from(io::ErrorKind::NotFound);
            let mut connected = None;
            for address in lookup_host((host, port)).await? {
                match TcpStream::connect(address).await {
                    Ok(stream) => {
                        connected = Some(stream);
                        break;
                    }
                    Err(error) => last = error,
                }
            }
            connected.ok_or(last)?
        }
    };
    stream.set_nodelay(true)?;
    SockRef::from(&stream).set_tcp_keepalive(&keepalive())?;
    Ok(stream)
}

/// A connection to a backend.
pub enum BackendStream {
    /// Without TLS.
    Plain(Socket),
    /// With TLS.
    Tls(Box<TlsStream<Socket>>),
}

impl BackendStream {
    /// Has the backend see a reset instead of an end when this is dropped, so that it takes nothing truncated for complete. TLS needs no
    /// reset for that, as its end is a message of its own, and a Unix socket has none.
    pub fn reset_when_dropped(&self) {
        if let BackendStream::Plain(Socket::Tcp(stream)) = self {
            // It fails only if the connection is gone already.
            let _ = stream.set_zero_linger();
        }
    }
}

/// What a connection runs over.
pub enum Socket {
    /// TCP.
    Tcp(TcpStream),
    /// A Unix socket.
    Unix(UnixStream),
}

/// Has an enum of streams be a stream itself.
macro_rules! delegate {
    ($stream:ident: $($variant:ident),+) => {
        impl AsyncRead for $stream {
            fn poll_read(
                self: Pin<&mut Self>,
                context: &mut Context<'_>,
                buffer: &mut ReadBuf<'_>,
            ) -> Poll<io::Result<()>> {
                match self.get_mut() {
                    $($stream::$variant(stream) => Pin::new(stream).poll_read(context, buffer)),+
                }
            }
        }

        impl AsyncWrite for $stream {
            fn poll_write(
                self: Pin<&mut Self>,
                context: &mut Context<'_>,
                bytes: &[u8],
            ) -> Poll<io::Result<usize>> {
                match self.get_mut() {
                    $($stream::$variant(stream) => Pin::new(stream).poll_write(context, bytes)),+
                }
            }

            fn poll_write_vectored(
                self: Pin<&mut Self>,
                context: &mut Context<'_>,
                slices: &[io::IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                match self.get_mut() {
                    $($stream::$variant(stream) => Pin::new(stream).poll_write_vectored(context, slices)),+
                }
            }

            fn is_write_vectored(&self) -> bool {
                match self {
                    $($stream::$variant(stream) => stream.is_write_vectored()),+
                }
            }

            fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
                match self.get_mut() {
                    $($stream::$variant(stream) => Pin::new(stream).poll_flush(context)),+
                }
            }

            fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
                match self.get_mut() {
                    $($stream::$variant(stream) => Pin::new(stream).poll_shutdown(context)),+
                }
            }
        }
    };
}

delegate!(BackendStream: Plain, Tls);
delegate!(Socket: Tcp, Unix);

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;
    use crate::keepalive::{IDLE, INTERVAL, PROBES};

    #[tokio::test]
    async fn a_host_that_is_gone_is_noticed() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        for host in ["127.0.0.1", "localhost"] {
            let stream = connect_tcp(host, port).await.unwrap();
            let socket = SockRef::from(&stream);
            assert!(socket.keepalive().unwrap());
            assert_eq!(socket.tcp_keepalive_time().unwrap(), IDLE);
            assert_eq!(socket.tcp_keepalive_interval().unwrap(), INTERVAL);
            assert_eq!(socket.tcp_keepalive_retries().unwrap(), PROBES);
        }
    }
}
