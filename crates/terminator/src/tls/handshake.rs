//! A handshake, step by step on fibers.

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

/// What a handshake has agreed on.
pub(crate) struct Agreement {
    pub(crate) version: ProtocolVersion,
    pub(crate) cipher_suite: String,
    pub(crate) server_name: Option<String>,
    pub(crate) alpn: Option<Vec<u8>>,
    pub(crate) client_certificate: Option<rustls::pki_types::CertificateDer<'static>>,
    pub(crate) is_resumption: bool,
}

/// Reads until `beginning` holds a whole record (RFC 8446 section 5.1), or what can be none: nothing is computed for a client that has
/// not said what it wants.
///
/// # Errors
/// Those of the socket, and [`io::ErrorKind::UnexpectedEof`].
pub(crate) async fn read_first_record(
    tcp: &mut TcpStream,
    beginning: &mut Vec<u8>,
) -> io::Result<()> {
    const ROOM: usize = 2048;
    const HEADER: usize = 5;
    const LONGEST: usize = 1 << 14;
    loop {
        if let Some(&[kind, _, _, high, low]) = beginning.get(..HEADER) {
            let length = usize::from(u16::from_be_bytes([high, low]));
            let is_handshake = kind == 22 && length <= LONGEST;
            if !is_handshake || beginning.len() >= HEADER + length {
                return Ok(());
            }
        }
        beginning.reserve(ROOM);
        if tcp.read_buf(beginning).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

/// Completes the handshake of a client of which `beginning` has been read already.
///
/// # Errors
/// Those of the socket, and [`io::ErrorKind::InvalidData`] round the [`rustls::Error`] if TLS has failed; the client has been told then.
pub(crate) async fn accept(
    mut tcp: TcpStream,
    mut beginning: &[u8],
    settings: Arc<ServerConfig>,
) -> io::Result<(TlsStream, Agreement)> {
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
        let processed;
        (tls, processed) = jobs::process(tls).await;
        if let Err(error) = processed {
            // Whether the alert arrives makes no difference.
            let _ = send(&mut tcp, &mut tls).await;
            linger::close(tcp);
            return Err(invalid(error));
        }
    }
    drop(under_way);
    let agreement = agreement(&tls);
    Ok((TlsStream::new(tcp, tls), agreement))
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

fn agreement(tls: &ServerConnection) -> Agreement {
    let cipher_suite = tls
        .negotiated_cipher_suite()
        .and_then(|suite| suite.suite().as_str());
    let certificate = tls
        .peer_certificates()
        .and_then(|chain| chain.first())
        .map(|certificate| certificate.clone().into_owned());
    Agreement {
        version: tls.protocol_version().unwrap_or(ProtocolVersion::TLSv1_2),
        // rustls calls those of TLS 1.3 TLS13_...
        cipher_suite: cipher_suite
            .unwrap_or_default()
            .replacen("TLS13_", "TLS_", 1),
        server_name: tls.server_name().map(str::to_owned),
        alpn: tls.alpn_protocol().map(<[u8]>::to_vec),
        client_certificate: certificate,
        is_resumption: tls.handshake_kind() == Some(HandshakeKind::Resumed),
    }
}
