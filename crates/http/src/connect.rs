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

use crate::keepalive::keepalive;
use crate::places::Place;
use crate::settings::Address;
use crate::upstream::Backend;

/// Opens TLS sessions to the backends of one service. The program that uses this crate implements
/// it.
pub trait TlsConnector: Send + Sync {
    /// Completes a handshake over `socket` and verifies that the server's certificate is for
    /// `name`.
    fn connect<'a>(&'a self, name: &'a str, socket: Socket) -> Connecting<'a>;
}

/// Future of a handshake with a backend.
pub type Connecting<'a> = Pin<Box<dyn Future<Output = io::Result<Box<dyn Stream>>> + Send + 'a>>;

/// Byte stream in both directions.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// Reason for a failed connection to a backend.
#[derive(Debug)]
pub enum ConnectError {
    /// The time limit has expired.
    TimedOut,
    /// The backend refused the connection, or its certificate is not valid.
    Failed,
}

/// Connects to `backend` within `limit`. Sends `header` first, and completes the TLS handshake if
/// the backend has TLS. The connection keeps `place` as long as it is open. Names are resolved for
/// each connection, so that a backend can move.
///
/// # Errors
/// Returns an error if the backend cannot be reached.
pub async fn connect(
    backend: &Backend,
    header: Option<&[u8]>,
    limit: Duration,
    place: Option<Place>,
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
            None => io::Result::Ok(Transport::Plain(socket)),
            Some(tls) => {
                let stream = tls.connector.connect(&tls.name, socket).await?;
                Ok(Transport::Tls(stream))
            }
        }
    };
    match timeout(limit, connecting).await {
        Ok(Ok(transport)) => Ok(BackendStream {
            transport,
            _place: place,
        }),
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

/// Connection to a backend.
pub struct BackendStream {
    transport: Transport,
    /// Dropped after the connection.
    _place: Option<Place>,
}

impl BackendStream {
    /// Makes the backend receive a reset instead of an orderly end when this is dropped, so that it
    /// does not take truncated data for complete. TLS needs no reset, since its orderly end is a
    /// message of its own. A Unix socket has no reset.
    pub fn reset_when_dropped(&self) {
        if let Transport::Plain(Socket::Tcp(stream)) = &self.transport {
            // This fails only if the connection has gone already.
            let _ = stream.set_zero_linger();
        }
    }
}

enum Transport {
    Plain(Socket),
    Tls(Box<dyn Stream>),
}

/// Socket that a connection to a backend uses.
pub enum Socket {
    /// TCP socket.
    Tcp(TcpStream),
    /// Unix socket.
    Unix(UnixStream),
}

/// Implements the stream traits for an enum of streams, or for a type with such a field.
macro_rules! delegate {
    ($stream:ident $(.$field:ident)?: $kind:ident $($variant:ident),+) => {
        impl AsyncRead for $stream {
            fn poll_read(
                self: Pin<&mut Self>,
                context: &mut Context<'_>,
                buffer: &mut ReadBuf<'_>,
            ) -> Poll<io::Result<()>> {
                match &mut self.get_mut()$(.$field)? {
                    $($kind::$variant(stream) => Pin::new(stream).poll_read(context, buffer)),+
                }
            }
        }

        impl AsyncWrite for $stream {
            fn poll_write(
                self: Pin<&mut Self>,
                context: &mut Context<'_>,
                bytes: &[u8],
            ) -> Poll<io::Result<usize>> {
                match &mut self.get_mut()$(.$field)? {
                    $($kind::$variant(stream) => Pin::new(stream).poll_write(context, bytes)),+
                }
            }

            fn poll_write_vectored(
                self: Pin<&mut Self>,
                context: &mut Context<'_>,
                slices: &[io::IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                match &mut self.get_mut()$(.$field)? {
                    $($kind::$variant(stream) => Pin::new(stream).poll_write_vectored(context, slices)),+
                }
            }

            fn is_write_vectored(&self) -> bool {
                match &self$(.$field)? {
                    $($kind::$variant(stream) => stream.is_write_vectored()),+
                }
            }

            fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
                match &mut self.get_mut()$(.$field)? {
                    $($kind::$variant(stream) => Pin::new(stream).poll_flush(context)),+
                }
            }

            fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
                match &mut self.get_mut()$(.$field)? {
                    $($kind::$variant(stream) => Pin::new(stream).poll_shutdown(context)),+
                }
            }
        }
    };
}

delegate!(BackendStream.transport: Transport Plain, Tls);
delegate!(Socket: Socket Tcp, Unix);

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
