//! Active health checks of backends.

use std::time::Duration;

use http_body_util::Empty;
use hyper::Request;
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{CONNECTION, HOST, USER_AGENT};
use hyper_util::rt::TokioIo;
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::connect::connect;
use crate::proxy_header;
use crate::settings::{Address, Health, Upstream};
use crate::upstream::Backend;

/// A single failure may be an accident.
const FAILURES_UNTIL_DOWN: u32 = 2;
/// A check must be answered before the next one is due. A backend that is checked often gets at
/// least this long, since it may be busy for a moment.
const MIN_TIMEOUT: Duration = Duration::from_secs(1);

/// Checks `backend` at the configured interval, without end. Two failures in a row mark it as down,
/// one success marks it as up.
pub async fn watch(backend: &Backend, how: &Health, settings: &Upstream) {
    let mut ticks = interval(how.interval.max(Duration::from_millis(1)));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut failures = 0;
    loop {
        ticks.tick().await;
        let path = how.path.as_deref();
        let limit = how.interval.max(MIN_TIMEOUT).min(settings.response_timeout);
        if is_up(backend, path, settings, limit).await {
            failures = 0;
            if !backend.answers() {
                eprintln!("slipstream serve: backend {} is up again", backend.name());
            }
            backend.set_answers(true);
        } else {
            failures += 1;
            if failures >= FAILURES_UNTIL_DOWN {
                if backend.answers() {
                    eprintln!(
                        "slipstream serve: backend {} does not answer health checks: it gets no connections until it does",
                        backend.name()
                    );
                }
                backend.set_answers(false);
            }
        }
    }
}

async fn is_up(
    backend: &Backend,
    path: Option<&str>,
    settings: &Upstream,
    limit: Duration,
) -> bool {
    let header = settings.proxy_protocol.map(proxy_header::local);
    let Ok(stream) = connect(backend, header, settings.connect_timeout, None).await else {
        return false;
    };
    let Some(path) = path else {
        return true;
    };
    let status = async {
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.ok()?;
        let request = Request::get(path)
            .header(HOST, host(backend))
            .header(USER_AGENT, "slipstream-health-check")
            .header(CONNECTION, "close")
            .body(Empty::<Bytes>::new())
            .ok()?;
        let mut connection = std::pin::pin!(connection);
        let mut response = std::pin::pin!(sender.send_request(request));
        // The connection is dropped with this function, even if it has more to send.
        tokio::select! {
            response = &mut response => Some(response.ok()?.status()),
            _ = &mut connection => Some(response.await.ok()?.status()),
        }
    };
    match timeout(limit, status).await {
        Ok(Some(status)) => status.is_success() || status.is_redirection(),
        _ => false,
    }
}

fn host(backend: &Backend) -> String {
    match &backend.address {
        Address::Tcp(..) => backend.name().to_owned(),
        Address::Unix(_) => "localhost".to_owned(),
    }
}
