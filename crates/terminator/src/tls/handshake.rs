//! TLS handshake, whose steps run on fibers.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::Poll;

use rustls::server::ServerConnection;
use rustls::{HandshakeKind, ProtocolVersion, ServerConfig};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use super::linger;
use super::stream::{Network, TlsStream};
use crate::event_loop::jobs::{self, UnderWay};
use crate::operations::limits::{ConnectionPermit, Turns};

/// Negotiated parameters of a connection.
pub(crate) struct Negotiated {
    pub(crate) version: ProtocolVersion,
    pub(crate) cipher_suite: String,
    pub(crate) server_name: Option<String>,
    pub(crate) alpn: Option<Vec<u8>>,
    /// End-entity certificate of the client in DER.
    pub(crate) client_certificate: Option<Vec<u8>>,
    pub(crate) is_resumption: bool,
}

/// Reads until `beginning` holds a complete record (RFC 8446, 5.1), or bytes that cannot be one.
/// Nothing is computed for a client before its first record is complete.
///
/// # Errors
/// Returns the error of the socket, or [`io::ErrorKind::UnexpectedEof`].
pub(crate) async fn read_first_record(
    tcp: &mut TcpStream,
    beginning: &mut Vec<u8>,
) -> io::Result<()> {
    const READ_SIZE: usize = 2048;
    const HEADER: usize = 5;
    const MAX_RECORD_LENGTH: usize = 1 << 14;
    loop {
        if let Some(&[kind, _, _, high, low]) = beginning.get(..HEADER) {
            let length = usize::from(u16::from_be_bytes([high, low]));
            let is_handshake = kind == 22 && length <= MAX_RECORD_LENGTH;
            if !is_handshake || beginning.len() >= HEADER + length {
                return Ok(());
            }
        }
        beginning.reserve(READ_SIZE);
        if tcp.read_buf(beginning).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

/// Completes a handshake. `beginning` are the bytes that have been read already. The permit stays
/// with the socket until it is closed. Each step of the handshake takes one of `turns`.
///
/// # Errors
/// Returns the error of the socket, or [`io::ErrorKind::InvalidData`] with the [`rustls::Error`]
/// after the client has been sent an alert.
pub(crate) async fn accept(
    (mut tcp, permit): (TcpStream, ConnectionPermit),
    mut beginning: &[u8],
    settings: Arc<ServerConfig>,
    turns: &Turns,
) -> io::Result<(TlsStream, Negotiated)> {
    let under_way = UnderWay::begin();
    let new = ServerConnection::new(settings).map_err(invalid)?;
    let mut tls = Box::new(new);
    loop {
        send(&mut tcp, &mut tls).await?;
        if !tls.is_handshaking() {
            break;
        }
        let read = match beginning.is_empty() {
            false => tls.read_tls(&mut beginning)?,
            true => receive(&mut tcp, &mut tls).await?,
        };
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let turn = turns.next().await;
        let processed;
        (tls, processed) = jobs::process(tls).await;
        drop(turn);
        if let Err(error) = processed {
            // The handshake has failed, even if the alert cannot be sent.
            let _ = send(&mut tcp, &mut tls).await;
            linger::close(tcp, permit);
            return Err(invalid(error));
        }
    }
    drop(under_way);
    let negotiated = negotiated(&tls);
    Ok((TlsStream::new(tcp, permit, tls), negotiated))
}

fn invalid(error: rustls::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

async fn receive(tcp: &mut TcpStream, tls: &mut ServerConnection) -> io::Result<usize> {
    poll_fn(|context| {
        let result = tls.read_tls(&mut Network { tcp, context });
        settled(result)
    })
    .await
}

async fn send(tcp: &mut TcpStream, tls: &mut ServerConnection) -> io::Result<()> {
    while tls.wants_write() {
        let sent = poll_fn(|context| {
            let result = tls.write_tls(&mut Network { tcp, context });
            settled(result)
        })
        .await?;
        if sent == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
    }
    Ok(())
}

fn settled(result: io::Result<usize>) -> Poll<io::Result<usize>> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Poll::Pending,
        result => Poll::Ready(result),
    }
}

fn negotiated(tls: &ServerConnection) -> Negotiated {
    let cipher_suite = tls
        .negotiated_cipher_suite()
        .and_then(|suite| suite.suite().as_str());
    let certificate = tls
        .peer_certificates()
        .and_then(|chain| chain.first())
        .map(|certificate| certificate.to_vec());
    Negotiated {
        version: tls.protocol_version().unwrap_or(ProtocolVersion::TLSv1_2),
        // rustls calls the suites of TLS 1.3 TLS13_...
        cipher_suite: cipher_suite
            .unwrap_or_default()
            .replacen("TLS13_", "TLS_", 1),
        server_name: tls.server_name().map(str::to_owned),
        alpn: tls.alpn_protocol().map(<[u8]>::to_vec),
        client_certificate: certificate,
        is_resumption: tls.handshake_kind() == Some(HandshakeKind::Resumed),
    }
}
