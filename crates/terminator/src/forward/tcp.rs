//! Connections whose bytes go to a backend, whatever they are.

use std::sync::Arc;
use std::time::Instant;

use tokio::io::{AsyncRead, AsyncWrite};

use super::connect::{BackendStream, ConnectError, connect};
use super::tunnel::{self, Traffic};
use super::upstream::{Backend, Group, Lease};
use super::{Connection, Surroundings, proxy_header};
use crate::operations::access_log::Entry;
use crate::operations::metrics::Metrics;

/// Serves a connection until it ends.
pub async fn serve<S>(
    group: Arc<Group>,
    mut client: S,
    connection: Connection,
    surroundings: Surroundings,
) where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut record = Record {
        connection,
        surroundings,
        traffic: Traffic::default(),
        backend: None,
        began: Instant::now(),
    };
    let header = group
        .settings
        .proxy_protocol
        .map(|version| proxy_header::write(version, &record.connection));
    // With TLS it goes before TLS. Otherwise it is sent with what the client says first.
    let before_tls = |backend: &Backend| header.as_deref().filter(|_| backend.tls.is_some());
    let Ok((stream, lease)) = connect_any(&group, before_tls, &record.surroundings.metrics).await
    else {
        // Nothing can be said in a protocol that is not known.
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
        record.surroundings.limits.idle_timeout,
        &record.surroundings.metrics,
        destination.traffic,
    )
    .await;
    // Both sides have been told that the other one has ended, if it has. After an error they must not take it for an end.
}

/// Where a client's bytes go. However it is dropped, it takes no broken or abandoned connection for the end of what the client had to say.
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

/// Connects to a backend of `group`, or to another one, as often as its settings say. The one that is tried is sent what `header` says
/// of it, as [`connect`] does.
///
/// # Errors
/// `None` if there is no backend that is well; otherwise why the last one could not be connected to.
async fn connect_any<'a>(
    group: &Group,
    header: impl Fn(&Backend) -> Option<&'a [u8]>,
    metrics: &Metrics,
) -> Result<(BackendStream, Lease), Option<ConnectError>> {
    let mut tried = Vec::new();
    loop {
        let lease = group.pick(&tried).ok_or(None)?;
        let limit = group.settings.connect_timeout;
        match connect(lease.backend(), header(lease.backend()), limit).await {
            Ok(stream) => return Ok((stream, lease)),
            Err(error) => {
                metrics.backend_failures.add(1);
                lease.backend().failed(group.settings.fail_timeout);
                if tried.len() >= group.settings.retries as usize {
                    return Err(Some(error));
                }
                metrics.backend_retries.add(1);
                tried.push(lease.backend().number);
            }
        }
    }
}

/// What is logged of a connection when it has ended, in whatever way.
struct Record {
    connection: Connection,
    surroundings: Surroundings,
    traffic: Traffic,
    backend: Option<Lease>,
    began: Instant,
}

impl Drop for Record {
    fn drop(&mut self) {
        let Some(log) = &self.surroundings.access_log else {
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
