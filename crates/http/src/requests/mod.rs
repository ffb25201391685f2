//! Connections whose HTTP requests are answered, in HTTP/1.1 or HTTP/2.

mod activity;
mod body;
mod budget;
mod from_backend;
pub mod pool;
mod proxy;
mod record;

use std::convert::Infallible;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, sleep};

use crate::files::Files;
use crate::identity::Identity;
use crate::settings::Limits;
use crate::upstream::Group;
use crate::usage::Overload;
use crate::{Connection, ConnectionContext, proxy_header};
use activity::{Activity, Protocol, Verdict, Watched};
use body::{Content, ResponseBody};
use budget::Budget;
use pool::{Pool, PoolHandle};
use record::Record;

/// Handler of requests.
pub enum Handler {
    /// Forwards requests to backends.
    Backends(Arc<Group>),
    /// Answers requests with files.
    Files(Files),
}

/// Serves a connection until it ends.
pub async fn serve<S>(
    handler: Handler,
    stream: S,
    connection: Connection,
    context: ConnectionContext,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let is_http2 = connection.alpn.as_deref() == Some(b"h2");
    let session = Arc::new(Session::new(handler, connection, context));
    let _guard = TunnelGuard(Arc::clone(&session));
    let limits = Arc::clone(&session.context.limits);
    let answering = Arc::clone(&session);
    let service = service_fn(move |request| {
        let session = Arc::clone(&answering);
        async move { Ok::<_, Infallible>(answer(session, request).await) }
    });
    let protocol = match is_http2 {
        true => Protocol::Http2,
        false => Protocol::Http1,
    };
    let activity = Arc::clone(&session.activity);
    let stream = TokioIo::new(Watched::new(stream, activity, protocol));
    if is_http2 {
        let connection = http2(&limits).serve_connection(stream, service);
        drive(connection, |it| it.graceful_shutdown(), &session).await;
    } else {
        let connection = http1(&limits).serve_connection(stream, service);
        drive(
            connection.with_upgrades(),
            |it| it.graceful_shutdown(),
            &session,
        )
        .await;
        if let Some(tunnel) = session.take_tunnel() {
            tunnel.await;
        }
    }
}

/// Client's connection.
struct Session {
    handler: Handler,
    connection: Connection,
    context: ConnectionContext,
    activity: Arc<Activity>,
    budget: Arc<Budget>,
    identity: Identity,
    /// PROXY header that each connection to a backend begins with.
    proxy_header: Option<Vec<u8>>,
    pool: PoolHandle,
    /// Owner of the pool that [`PoolHandle::Client`] refers to.
    _pool: Option<Arc<Mutex<Pool>>>,
    tunnel: Mutex<Option<Tunnel>>,
}

/// Future of an HTTP/1.1 connection after an upgrade.
type Tunnel = Pin<Box<dyn Future<Output = ()> + Send>>;

impl Session {
    fn new(handler: Handler, connection: Connection, context: ConnectionContext) -> Self {
        let (proxy_protocol, trusted) = match &handler {
            Handler::Backends(group) => {
                let settings = &group.settings;
                (settings.proxy_protocol, &*settings.trust_headers_from)
            }
            Handler::Files(_) => (None, [].as_slice()),
        };
        let identity = Identity::new(&connection, trusted);
        let pool = proxy_protocol.map(|_| Pool::shared());
        Self {
            handler,
            activity: Arc::new(Activity::new()),
            budget: Arc::new(Budget::new(
                context.limits.unread_bytes,
                &context.usage.content,
            )),
            identity,
            proxy_header: proxy_protocol.map(|version| proxy_header::write(version, &connection)),
            pool: match &pool {
                None => PoolHandle::EventLoop,
                Some(pool) => PoolHandle::Client(Arc::downgrade(pool)),
            },
            _pool: pool,
            tunnel: Mutex::new(None),
            connection,
            context,
        }
    }

    fn set_tunnel(&self, tunnel: impl Future<Output = ()> + Send + 'static) {
        *self.tunnel.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::pin(tunnel));
    }

    fn take_tunnel(&self) -> Option<Tunnel> {
        self.tunnel
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }
}

/// Breaks a cycle of references: the record of a tunnel refers to the session that holds the
/// tunnel. If the connection is cut off before the tunnel begins, neither would be freed.
struct TunnelGuard(Arc<Session>);

impl Drop for TunnelGuard {
    fn drop(&mut self) {
        drop(self.0.take_tunnel());
    }
}

async fn answer(session: Arc<Session>, request: Request<Incoming>) -> Response<ResponseBody> {
    let record = Record::begin(&session, &request);
    if record.is_too_many() {
        return refuse(Overload::Requests, record);
    }
    match &session.handler {
        Handler::Backends(group) => proxy::answer(group, request, record).await,
        Handler::Files(files) => answer_with_file(files, request, record).await,
    }
}

async fn answer_with_file(
    files: &Files,
    request: Request<Incoming>,
    mut record: Record,
) -> Response<ResponseBody> {
    let Some(descriptor) = record.session().context.usage.descriptors.permit() else {
        return refuse(Overload::Descriptors, record);
    };
    match files.answer(request).await {
        Ok(response) => {
            record.set_status(response.status());
            let content = |body| Content::File {
                body,
                _permit: descriptor,
            };
            response.map(|body| ResponseBody::new(content(body), record))
        }
        Err(status) => page(status, record),
    }
}

/// Returns the response to a request that has met a limit of the process.
fn refuse(overload: Overload, record: Record) -> Response<ResponseBody> {
    record.session().context.counters.overloads[overload.index()].add(1);
    page(StatusCode::SERVICE_UNAVAILABLE, record)
}

/// Returns a response that explains the error `status`.
fn page(status: StatusCode, mut record: Record) -> Response<ResponseBody> {
    record.set_status(status);
    let text = format!("{status}\n");
    let content = Content::Text(Full::new(Bytes::from(text)));
    let mut response = Response::new(ResponseBody::new(content, record));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(
        CONTENT_TYPE,
        HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    if status == StatusCode::METHOD_NOT_ALLOWED {
        headers.insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    }
    response
}

fn http1(limits: &Limits) -> http1::Builder {
    // hyper accepts no smaller buffer.
    const SMALLEST_BUFFER: usize = 8192;
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        // hyper's own limit begins with the end of the last request. `Activity` has separate limits
        // for the pause and for the header.
        .header_read_timeout(None)
        .max_header_size(limits.header_bytes)
        .max_buf_size(limits.header_bytes.max(SMALLEST_BUFFER));
    builder
}

fn http2(limits: &Limits) -> http2::Builder<TokioExecutor> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits.streams)
        .max_header_list_size(u32::try_from(limits.header_bytes).unwrap_or(u32::MAX));
    // No pings: the answer of a slow client waits behind the response that it is still reading. TCP
    // keepalive detects a lost network.
    builder
}

/// Time for a connection to end after it has been told to.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// Polls `connection` until it ends. Calls `shut_down` when the process drains or the connection is
/// idle. Drops the connection when the client stalls.
async fn drive<C>(connection: C, shut_down: fn(Pin<&mut C>), session: &Session)
where
    C: Future<Output = hyper::Result<()>>,
{
    let limits = &session.context.limits;
    let mut connection = pin!(connection);
    let mut draining = session.context.draining.clone();
    let mut drained = pin!(async move {
        if draining.wait_for(|draining| *draining).await.is_err() {
            std::future::pending::<()>().await;
        }
    });
    let mut timer = pin!(sleep(limits.idle_timeout.min(limits.header_timeout)));
    let mut is_ending = false;
    loop {
        tokio::select! {
            biased;
            result = connection.as_mut() => {
                // Other errors are the client's, and hyper has answered them if it could.
                if let Some(status) = result.err().as_ref().and_then(refusal) {
                    record::refuse(session, status);
                }
                return;
            }
            () = drained.as_mut(), if !is_ending => {
                is_ending = true;
                shut_down(connection.as_mut());
            }
            () = timer.as_mut() => {
                let next = match session.activity.verdict(limits, session.budget.unread_since()) {
                    Verdict::Fine(left) => left,
                    Verdict::Idle if !is_ending => {
                        is_ending = true;
                        shut_down(connection.as_mut());
                        SHUTDOWN_TIMEOUT
                    }
                    Verdict::Stalled if session.activity.is_reading_first_header() => {
                        return record::refuse(session, StatusCode::REQUEST_TIMEOUT);
                    }
                    Verdict::Idle | Verdict::Stalled => return,
                };
                timer.as_mut().reset(Instant::now() + next);
            }
        }
    }
}

/// Returns the status with which hyper refused a malformed HTTP/1.1 request, for which it calls no
/// service.
fn refusal(error: &hyper::Error) -> Option<StatusCode> {
    let is_long_target = || error.to_string().contains("URI too long");
    match (error.is_parse(), error.is_parse_too_large()) {
        (true, true) if is_long_target() => Some(StatusCode::URI_TOO_LONG),
        (true, true) => Some(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE),
        (true, false) => Some(StatusCode::BAD_REQUEST),
        (false, _) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use tokio::sync::watch;

    use super::*;
    use crate::counters::Counters;
    use crate::usage::Usage;

    /// Returns the connection of a client that asks for files.
    pub fn session() -> Arc<Session> {
        let connection = Connection {
            client: "192.0.2.1:50000".parse().unwrap(),
            server: "192.0.2.2:443".parse().unwrap(),
            tls_version: "TLSv1.3",
            cipher_suite: "TLS_AES_256_GCM_SHA384".to_owned(),
            server_name: None,
            alpn: None,
            client_certificate: None,
            accepted: SystemTime::now(),
        };
        let context = ConnectionContext {
            counters: Arc::new(Counters::default()),
            access_log: None,
            draining: watch::channel(false).1,
            usage: Usage::default(),
            limits: Arc::new(Limits::default()),
        };
        let files = Files::new(&std::env::temp_dir()).unwrap();
        Arc::new(Session::new(Handler::Files(files), connection, context))
    }
}
