//! One connection, from the accepted socket to its end.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use rustls::ProtocolVersion;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::Shared;
use crate::forward::{Connection, Surroundings, proxy_header};
use crate::operations::limits::ConnectionPermit;
use crate::operations::metrics::{Count, Refusal};
use crate::site::{Door, Site};
use crate::tls::handshake::{self, Agreement};
use crate::tls::stream::TlsStream;

/// A connection that has been let in.
pub(super) struct Newcomer {
    pub(super) stream: TcpStream,
    pub(super) client: SocketAddr,
    /// Of the listener.
    pub(super) address: SocketAddr,
    pub(super) permit: ConnectionPermit,
}

/// Serves a connection in a task of its own.
pub(super) fn spawn(newcomer: Newcomer, site: Arc<Site>, shared: Arc<Shared>) {
    tokio::spawn(async move {
        let _open = Counted::new(shared.clone(), |shared| &shared.metrics.open);
        serve(newcomer, site, &shared).await;
    });
}

async fn serve(newcomer: Newcomer, site: Arc<Site>, shared: &Arc<Shared>) {
    let Newcomer {
        stream,
        client,
        address,
        permit: _permit,
    } = newcomer;
    let accepted = SystemTime::now();
    let Some(door) = site.door(address) else {
        return;
    };
    let Some(welcomed) = welcome(stream, (client, address), door, &site, shared).await else {
        return;
    };
    let Welcomed {
        mut stream,
        agreement,
        client,
        server,
    } = welcomed;
    // Until a client asks for something, its connection costs no more than TLS does.
    if !door.service.speaks_first() && !asks(&mut stream, site.limits.idle_timeout, shared).await {
        return;
    }
    let connection = Connection {
        client,
        server,
        tls_version: match agreement.version {
            ProtocolVersion::TLSv1_3 => "TLSv1.3",
            _ => "TLSv1.2",
        },
        cipher_suite: agreement.cipher_suite,
        server_name: agreement.server_name,
        alpn: agreement.alpn,
        client_certificate: agreement.client_certificate,
        accepted,
    };
    let surroundings = Surroundings {
        metrics: shared.metrics.clone(),
        access_log: site.access_log.clone(),
        draining: shared.draining.clone(),
        limits: site.limits.clone(),
    };
    let service = door.service.clone();
    // Keys that have been replaced are not kept for as long as a connection lasts.
    drop(site);
    // In a box: few of those that are in a handshake need room for what comes after it.
    Box::pin(service.serve(stream, connection, surroundings)).await;
}

/// Whether the client asks for something in time. Of one that has connected when the loop begins to drain, a request may be on its
/// way.
async fn asks(stream: &mut TlsStream, idle_timeout: Duration, shared: &Shared) -> bool {
    const ON_ITS_WAY: Duration = Duration::from_secs(1);
    let mut draining = shared.draining.clone();
    let drained = async {
        let _ = draining.wait_for(|&draining| draining).await;
        tokio::time::sleep(ON_ITS_WAY).await;
    };
    let waited = tokio::select! {
        // What has come in time counts, though this thread was not given a processor until time was up.
        biased;
        waited = timeout(idle_timeout, stream.wait_for_data()) => waited,
        () = drained => return false,
    };
    waited == Ok(true)
}

/// A connection whose handshake is complete.
struct Welcomed {
    stream: TlsStream,
    agreement: Agreement,
    client: SocketAddr,
    server: SocketAddr,
}

async fn welcome(
    mut stream: TcpStream,
    (client, address): (SocketAddr, SocketAddr),
    door: &Door,
    site: &Site,
    shared: &Arc<Shared>,
) -> Option<Welcomed> {
    let _active = Counted::new(shared.clone(), |shared| &shared.metrics.handshakes_active);
    let metrics = &shared.metrics;
    let refuse = |refusal: Refusal| metrics.refused[refusal.index()].add(1);
    let is_waiting = AtomicBool::new(false);
    let handshake = async {
        let server = match address.ip().is_unspecified() {
            true => stream.local_addr()?,
            false => address,
        };
        let mut addresses = (client, server);
        let mut beginning = Vec::new();
        if door.takes_proxy_header(client.ip()) {
            if let Some(said) = read_proxy_header(&mut stream, &mut beginning).await? {
                addresses = said;
            }
            if let Err(refusal) = shared.limiter.check_rate(addresses.0.ip()) {
                refuse(refusal);
                return Ok(None);
            }
        }
        handshake::read_first_record(&mut stream, &mut beginning).await?;
        is_waiting.store(true, Ordering::Relaxed);
        let _permit = shared.limiter.begin_handshake().await;
        is_waiting.store(false, Ordering::Relaxed);
        let settings = door.settings.clone();
        let accepted = handshake::accept(stream, &beginning, settings).await?;
        Ok::<_, io::Error>(Some((accepted, addresses)))
    };
    match timeout(site.limits.handshake_timeout, handshake).await {
        Ok(Ok(None)) => {}
        Ok(Ok(Some(((stream, agreement), (client, server))))) => {
            match agreement.version {
                ProtocolVersion::TLSv1_3 => metrics.handshakes_tls13.add(1),
                _ => metrics.handshakes_tls12.add(1),
            }
            metrics.resumptions.add(agreement.is_resumption.into());
            return Some(Welcomed {
                stream,
                agreement,
                client,
                server,
            });
        }
        Ok(Err(_)) => metrics.handshakes_failed.add(1),
        Err(_) if is_waiting.load(Ordering::Relaxed) => refuse(Refusal::Handshakes),
        Err(_) => metrics.handshakes_timed_out.add(1),
    }
    None
}

/// Reads a PROXY header; what has been read beyond it is in `beginning` then. `None` if it names no addresses.
async fn read_proxy_header(
    stream: &mut TcpStream,
    beginning: &mut Vec<u8>,
) -> io::Result<Option<(SocketAddr, SocketAddr)>> {
    loop {
        let header = proxy_header::read(beginning)
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "no PROXY header"))?;
        if let Some(header) = header {
            beginning.drain(..header.length);
            return Ok(header.addresses);
        }
        if stream.read_buf(beginning).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

/// Something of which the number at present is shown.
struct Counted {
    shared: Arc<Shared>,
    count: fn(&Shared) -> &Count,
}

impl Counted {
    fn new(shared: Arc<Shared>, count: fn(&Shared) -> &Count) -> Self {
        count(&shared).add(1);
        Self { shared, count }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        (self.count)(&self.shared).subtract(1);
    }
}
