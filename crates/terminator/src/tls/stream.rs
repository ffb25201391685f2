//! TLS connection after its handshake, as a byte stream.

use std::future::poll_fn;
use std::io::{self, BufRead, IoSlice, Read, Write};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustls::server::ServerConnection;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::linger;
use crate::operations::limits::ConnectionPermit;

/// Byte stream of a TLS connection. It ends with the peer's close_notify. An end without
/// close_notify is an error, since anybody on the network may have caused it.
pub(crate) struct TlsStream {
    /// `None` only while dropped.
    tcp: Option<TcpStream>,
    /// `None` only while dropped.
    permit: Option<ConnectionPermit>,
    tls: Box<ServerConnection>,
    /// True after close_notify has been sent.
    is_closed: bool,
    /// True after the end of the client's data.
    has_ended: bool,
}

impl TlsStream {
    /// Returns the stream of a completed handshake.
    pub(super) fn new(
        tcp: TcpStream,
        permit: ConnectionPermit,
        tls: Box<ServerConnection>,
    ) -> Self {
        Self {
            tcp: Some(tcp),
            permit: Some(permit),
            tls,
            is_closed: false,
            has_ended: false,
        }
    }

    /// Waits for data. Returns false if the peer ends or breaks off the connection.
    pub(crate) async fn wait_for_data(&mut self) -> bool {
        poll_fn(|context| self.poll_data(context)).await
    }

    fn poll_data(&mut self, context: &mut Context<'_>) -> Poll<bool> {
        loop {
            match self.tls.reader().fill_buf() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => {
                    let has_data = result.is_ok_and(|data| !data.is_empty());
                    self.has_ended |= !has_data;
                    return Poll::Ready(has_data);
                }
            }
            if ready!(self.poll_records(context)).is_err() {
                return Poll::Ready(false);
            }
        }
    }

    /// Reads the available records from the network.
    fn poll_records(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut network = Network {
            tcp: self.tcp.as_mut().expect("the stream has not been dropped"),
            context,
        };
        match self.tls.read_tls(&mut network) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Poll::Pending,
            Err(error) => {
                self.has_ended = true;
                return Poll::Ready(Err(error));
            }
            Ok(length) => self.has_ended |= length == 0,
        }
        let processed = self.tls.process_new_packets();
        // Sends an alert or the answer to a key update. It need not be complete: the rest goes with
        // the next write, and received data must not be lost because of an error.
        let _ = self.poll_send(context);
        Poll::Ready(
            processed
                .map(drop)
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error)),
        )
    }

    /// Sends the records that rustls has encrypted.
    fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.tls.wants_write() {
            let mut network = Network {
                tcp: self.tcp.as_mut().expect("the stream has not been dropped"),
                context,
            };
            match self.tls.write_tls(&mut network) {
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Poll::Pending,
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for TlsStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            match this.tls.reader().read(buffer.initialize_unfilled()) {
                Ok(length) => {
                    this.has_ended |= length == 0 && buffer.remaining() > 0;
                    buffer.advance(length);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
            ready!(this.poll_records(context))?;
        }
    }
}

impl AsyncWrite for TlsStream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[IoSlice::new(buffer)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        loop {
            let taken = this.tls.writer().write_vectored(buffers)?;
            let sent = this.poll_send(context);
            let is_empty = buffers.iter().all(|buffer| buffer.is_empty());
            match sent {
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                // The buffer of rustls is full until some of it has been sent.
                Poll::Pending if taken == 0 && !is_empty => return Poll::Pending,
                _ if taken > 0 || is_empty => return Poll::Ready(Ok(taken)),
                _ => {}
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().poll_send(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.is_closed {
            this.is_closed = true;
            this.tls.send_close_notify();
        }
        ready!(this.poll_send(context))?;
        let tcp = this.tcp.as_mut().expect("the stream has not been dropped");
        Pin::new(tcp).poll_shutdown(context)
    }
}

impl Drop for TlsStream {
    fn drop(&mut self) {
        // A connection without close_notify is broken off.
        let is_needed = self.is_closed && !self.has_ended;
        if let Some((tcp, permit)) = self.tcp.take().zip(self.permit.take())
            && is_needed
        {
            linger::close(tcp, permit);
        }
    }
}

/// Adapter that lets rustls use the socket. An operation that would block returns an error and
/// wakes the task later.
pub(super) struct Network<'a, 'b> {
    pub(super) tcp: &'a mut TcpStream,
    pub(super) context: &'a mut Context<'b>,
}

impl Read for Network<'_, '_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut buffer = ReadBuf::new(buffer);
        match Pin::new(&mut *self.tcp).poll_read(self.context, &mut buffer) {
            Poll::Ready(Ok(())) => Ok(buffer.filled().len()),
            Poll::Ready(Err(error)) => Err(error),
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }
}

impl Write for Network<'_, '_> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(buffer)])
    }

    fn write_vectored(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        match Pin::new(&mut *self.tcp).poll_write_vectored(self.context, buffers) {
            Poll::Ready(result) => result,
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
