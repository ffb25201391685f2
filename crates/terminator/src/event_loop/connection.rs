//! A connection, from the accepted socket to its end.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use rustls::ProtocolVersion;
use slipstream_http::{Connection, ConnectionContext, proxy_header};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::Shared;
use crate::operations::limits::{ConnectionPermit, Turns};
use crate::operations::metrics::{Count, Refusal};
use crate::site::{Listener, Site};
use crate::tls::handshake::{self, Negotiated};
use crate::tls::stream::TlsStream;

/// Connection that has been accepted and admitted.
pub(super) struct Accepted {
    pub(super) stream: TcpStream,
    pub(super) client: SocketAddr,
    /// Address of the listener.
    pub(super) address: SocketAddr,
    pub(super) permit: ConnectionPermit,
}

/// Serves a connection in a task of its own.
pub(super) fn spawn(accepted: Accepted, site: Arc<Site>, shared: Arc<Shared>) {
    tokio::spawn(async move {
        let _open = Counted::new(shared.clone(), |shared| &shared.metrics.open);
        serve(accepted, site, &shared).await;
    });
}

async fn serve(accepted: Accepted, site: Arc<Site>, shared: &Arc<Shared>) {
    let Accepted {
        stream,
        client,
        address,
        permit,
    } = accepted;
    let accepted = SystemTime::now();
    let Some(listener) = site.listener(address) else {
        return;
    };
    let addresses = (client, address);
    let Some(established) = establish((stream, permit), addresses, listener, &site, shared).await
    else {
        return;
    };
    let Established {
        mut stream,
        negotiated,
        client,
        server,
    } = established;
    // Until the client sends something, its connection needs no memory beyond TLS.
    if !listener.service.speaks_first()
        && !wait_for_request(&mut stream, site.limits.idle_timeout, shared).await
    {
        return;
    }
    let connection = Connection {
        client,
        server,
        tls_version: match negotiated.version {
            ProtocolVersion::TLSv1_3 => "TLSv1.3",
            _ => "TLSv1.2",
        },
        cipher_suite: negotiated.cipher_suite,
        server_name: negotiated.server_name,
        alpn: negotiated.alpn,
        client_certificate: negotiated.client_certificate,
        accepted,
    };
    let context = ConnectionContext {
        counters: shared.metrics.http.clone(),
        access_log: site.access_log.clone(),
        draining: shared.draining.clone(),
        usage: shared.limiter.usage().clone(),
        limits: site.limits.clone(),
    };
    let service = listener.service.clone();
    // Replaced keys must not be kept for as long as a connection lasts.
    drop(site);
    // Boxed, so that the many tasks that are in a handshake do not need the memory of what follows
    // it.
    Box::pin(service.serve(stream, connection, context)).await;
}

/// Waits for the first bytes of the client. Returns false if they do not arrive in time. When the
/// loop begins to drain, a request may be on its way, so the client gets a moment.
async fn wait_for_request(stream: &mut TlsStream, idle_timeout: Duration, shared: &Shared) -> bool {
    const GRACE_PERIOD: Duration = Duration::from_secs(1);
    let mut draining = shared.draining.clone();
    let drained = async {
        let _ = draining.wait_for(|&draining| draining).await;
        tokio::time::sleep(GRACE_PERIOD).await;
    };
    let waited = tokio::select! {
        // Data that has arrived in time counts, even if this thread was scheduled too late.
        biased;
        waited = timeout(idle_timeout, stream.wait_for_data()) => waited,
        () = drained => return false,
    };
    waited == Ok(true)
}

/// Connection whose handshake is complete.
struct Established {
    stream: TlsStream,
    negotiated: Negotiated,
    client: SocketAddr,
    server: SocketAddr,
}

async fn establish(
    (mut stream, mut permit): (TcpStream, ConnectionPermit),
    (client, address): (SocketAddr, SocketAddr),
    listener: &Listener,
    site: &Site,
    shared: &Arc<Shared>,
) -> Option<Established> {
    let _active = Counted::new(shared.clone(), |shared| &shared.metrics.handshakes_active);
    let began = Instant::now();
    let metrics = &shared.metrics;
    let refuse = |refusal: Refusal| metrics.refused[refusal.index()].add(1);
    let turns = Turns::new(&shared.limiter);
    let handshake = async {
        let server = match address.ip().is_unspecified() {
            true => stream.local_addr()?,
            false => address,
        };
        let mut addresses = (client, server);
        let mut beginning = Vec::new();
        if listener.takes_proxy_header(client.ip()) {
            if let Some(said) = read_proxy_header(&mut stream, &mut beginning).await? {
                addresses = said;
            }
            if let Err(refusal) = permit.name(addresses.0.ip()) {
                refuse(refusal);
                return Ok(None);
            }
        }
        handshake::read_first_record(&mut stream, &mut beginning).await?;
        let settings = listener.settings.clone();
        let accepted = handshake::accept((stream, permit), &beginning, settings, &turns).await?;
        Ok::<_, io::Error>(Some((accepted, addresses)))
    };
    match timeout(site.handshake_timeout, handshake).await {
        Ok(Ok(None)) => {}
        Ok(Ok(Some(((stream, negotiated), (client, server))))) => {
            match negotiated.version {
                ProtocolVersion::TLSv1_3 => metrics.handshakes_tls13.add(1),
                _ => metrics.handshakes_tls12.add(1),
            }
            metrics.resumptions.add(negotiated.is_resumption.into());
            metrics.count_handshake(began.elapsed());
            return Some(Established {
                stream,
                negotiated,
                client,
                server,
            });
        }
        Ok(Err(_)) => metrics.handshakes_failed.add(1),
        Err(_) if turns.is_waiting() => refuse(Refusal::Handshakes),
        Err(_) => metrics.handshakes_timed_out.add(1),
    }
    None
}

/// Reads a PROXY header. Leaves the bytes after it in `beginning`. Returns `None` if the header
/// names no addresses.
async fn read_proxy_header(
    stream: &mut TcpStream,
    beginning: &mut Vec<u8>,
) -> io::Result<Option<(SocketAddr, SocketAddr)>> {
    loop {
        let header = proxy_header::read(beginning)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        if let Some(header) = header {
            beginning.drain(..header.length);
            return Ok(header.addresses);
        }
        if stream.read_buf(beginning).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

/// Increments a gauge until dropped.
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
