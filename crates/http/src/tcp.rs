//! Forwarding of bytes to a backend.

use std::sync::Arc;
use std::time::Instant;

use tokio::io::{AsyncRead, AsyncWrite};

use crate::access_log::Entry;
use crate::connect::{BackendStream, ConnectError, connect};
use crate::places::Granted;
use crate::tunnel::{self, Traffic};
use crate::upstream::{Backend, Group, Lease};
use crate::{Connection, ConnectionContext, proxy_header};

/// Serves a connection until it ends.
pub async fn serve<S>(
    group: Arc<Group>,
    mut client: S,
    connection: Connection,
    context: ConnectionContext,
) where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut record = Record {
        connection,
        context,
        traffic: Traffic::default(),
        backend: None,
        began: Instant::now(),
    };
    let header = group
        .settings
        .proxy_protocol
        .map(|version| proxy_header::write(version, &record.connection));
    // A backend with TLS is sent the header before the handshake. Otherwise the header is sent with
    // the first bytes of the client.
    let before_tls = |backend: &Backend| header.as_deref().filter(|_| backend.tls.is_some());
    let Ok((stream, lease)) = connect_any(&group, before_tls, &record.context).await else {
        // There is no way to report an error in an unknown protocol.
        return;
    };
    let header = header.filter(|_| lease.backend().tls.is_none());
    record.backend = Some(lease);
    let mut destination = Destination {
        stream,
        traffic: &mut record.traffic,
    };
    tunnel::run(
        &mut client,
        &mut destination.stream,
        header,
        record.context.limits.idle_timeout,
        &record.context.counters,
        destination.traffic,
    )
    .await;
    // Both sides have seen an orderly end of the other one if there was one. After an error neither
    // may take it for an orderly end.
}

/// Connection to the backend. When dropped early, it resets the backend's connection, so that the
/// backend does not take a broken connection for an orderly end.
struct Destination<'a> {
    stream: BackendStream,
    traffic: &'a mut Traffic,
}

impl Drop for Destination<'_> {
    fn drop(&mut self) {
        if !self.traffic.has_client_ended {
            self.stream.reset_when_dropped();
        }
    }
}

/// Connects to a backend of `group`. After a failure it tries others, as often as the settings
/// allow. `header` returns the bytes that [`connect`] sends first.
///
/// # Errors
/// Returns `None` if no backend is up or has a place, otherwise the reason why the last attempt
/// failed.
async fn connect_any<'a>(
    group: &Group,
    header: impl Fn(&Backend) -> Option<&'a [u8]>,
    context: &ConnectionContext,
) -> Result<(BackendStream, Lease), Option<ConnectError>> {
    let (settings, counters) = (&group.settings, &context.counters);
    let mut tried = Vec::new();
    loop {
        let lease = group.pick(&tried).ok_or(None)?;
        let backend = lease.backend();
        let descriptors = &context.usage.descriptors;
        let place = match backend.places().take(settings, None, descriptors).await {
            Ok(Granted::Place(place)) => Some(place),
            Ok(Granted::Connection(_)) => unreachable!("connections of pools are not asked for"),
            Err(overload) => {
                counters.overloads[overload.index()].add(1);
                return Err(None);
            }
        };
        match connect(backend, header(backend), settings.connect_timeout, place).await {
            Ok(stream) => return Ok((stream, lease)),
            Err(error) => {
                counters.backend_failures.add(1);
                backend.failed(settings.fail_timeout);
                if tried.len() >= settings.retries as usize {
                    return Err(Some(error));
                }
                counters.backend_retries.add(1);
                tried.push(backend.number);
            }
        }
    }
}

/// Log entry of a connection. It is written when dropped.
struct Record {
    connection: Connection,
    context: ConnectionContext,
    traffic: Traffic,
    backend: Option<Lease>,
    began: Instant,
}

impl Drop for Record {
    fn drop(&mut self) {
        let Some(log) = &self.context.access_log else {
            return;
        };
        let connection = &self.connection;
        log.write(Entry {
            time: connection.accepted,
            client: connection.client.ip(),
            request: None,
            sent_bytes: self.traffic.sent,
            received_bytes: self.traffic.received,
            duration: self.began.elapsed(),
            tls_version: connection.tls_version,
            cipher_suite: connection.cipher_suite.clone(),
            server_name: connection.server_name.clone(),
            backend: self
                .backend
                .as_ref()
                .map(|lease| lease.backend().name().to_owned()),
        });
    }
}
