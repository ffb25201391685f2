//! Requests that are forwarded to backends.

use std::sync::Arc;

use hyper::body::{Body, Incoming};
use hyper::header::{HeaderValue, TRANSFER_ENCODING};
use hyper::upgrade::OnUpgrade;
use hyper::{Method, Request, Response, StatusCode, Version};
use hyper_util::rt::TokioIo;
use tokio::time::sleep;

use super::body::{ClientFailure, Content, Meter, RequestBody, ResponseBody};
use super::from_backend::FromBackend;
use super::pool::Checkout;
use super::record::Record;
use super::{Session, page};
use crate::connect::{ConnectError, connect};
use crate::headers;
use crate::places::Granted;
use crate::tunnel::{self, Traffic};
use crate::upstream::{Backend, Group};
use crate::usage::Overload;

/// Forwards `request` to a backend of `group` and returns the response.
pub async fn answer(
    group: &Group,
    mut request: Request<Incoming>,
    mut record: Record,
) -> Response<ResponseBody> {
    let session = Arc::clone(record.session());
    let client_upgrade = request.extensions_mut().remove::<OnUpgrade>();
    let (mut parts, body) = request.into_parts();
    let wants_upgrade = match headers::to_backend(&mut parts, &session.identity) {
        Ok(wants_upgrade) => wants_upgrade,
        Err(status) => return page(status, record),
    };
    let idle_timeout = session.context.limits.idle_timeout;
    let body = RequestBody::new(body, record.meter(), idle_timeout);
    if body.size_hint().exact().is_none() {
        // For GET and HEAD, hyper would send no body unless it is told to.
        let chunked = HeaderValue::from_static("chunked");
        parts.headers.insert(TRANSFER_ENCODING, chunked);
    }
    let request = Request::from_parts(parts, body);
    let waiting = Waiting::begin(&session);
    let outcome = send(group, request, &mut record).await;
    drop(waiting);
    let (mut response, checkout) = match outcome {
        Ok(answered) => answered,
        Err(status) => return page(status, record),
    };
    let is_switching = response.status() == StatusCode::SWITCHING_PROTOCOLS;
    let backend_upgrade = response.extensions_mut().remove::<OnUpgrade>();
    let (mut parts, body) = response.into_parts();
    headers::to_client(&mut parts);
    if is_switching {
        let (true, Some(client), Some(backend)) = (wants_upgrade, client_upgrade, backend_upgrade)
        else {
            return page(StatusCode::BAD_GATEWAY, record);
        };
        record.set_status(parts.status);
        session.set_tunnel(switch(client, backend, record));
        return Response::from_parts(parts, ResponseBody::unrecorded());
    }
    record.set_status(parts.status);
    let content = Content::Backend(FromBackend::new(body, checkout, &group.settings));
    Response::from_parts(parts, ResponseBody::new(content, record))
}

/// Reason why there is no response.
enum Failure {
    /// Nothing has been sent; the request is returned.
    NotSent(Box<Request<RequestBody>>),
    /// The connection failed. The backend may have processed the request.
    Broken,
    TimedOut,
}

/// Sends `request` to a backend. Tries others if one cannot be connected to.
///
/// # Errors
/// Returns the status of the response for the client.
async fn send(
    group: &Group,
    mut request: Request<RequestBody>,
    record: &mut Record,
) -> Result<(Response<Incoming>, Checkout), StatusCode> {
    let session = Arc::clone(record.session());
    let counters = &session.context.counters;
    let settings = &group.settings;
    let mut tried = Vec::new();
    let mut may_reuse = true;
    loop {
        let Some(lease) = group.pick(&tried) else {
            record.set_backend(None);
            return Err(StatusCode::SERVICE_UNAVAILABLE);
        };
        let backend = Arc::clone(lease.backend());
        let pooled = match may_reuse {
            true => session.pool.take(&backend),
            false => None,
        };
        let connection = match pooled {
            Some(connection) => Ok((connection, true)),
            None => open(&session, &backend, group).await,
        };
        record.set_backend(Some(lease));
        let error = match connection {
            Ok((mut connection, is_reused)) => {
                let spare = match is_reused {
                    true => repeatable(&request, record.meter(), &session),
                    false => None,
                };
                record.meter().note_progress();
                match exchange(&mut connection, request, group, record.meter()).await {
                    Ok(response) => return Ok((response, connection)),
                    Err(Failure::TimedOut) => {
                        backend.broke_off(settings.fail_timeout);
                        return Err(StatusCode::GATEWAY_TIMEOUT);
                    }
                    Err(Failure::NotSent(same)) => {
                        request = *same;
                        if is_reused {
                            may_reuse = false;
                            continue;
                        }
                        ConnectError::Failed
                    }
                    Err(Failure::Broken) => match spare {
                        Some(same) => {
                            request = same;
                            may_reuse = false;
                            continue;
                        }
                        None => {
                            let status = client_failure(record.meter());
                            // A backend may close a connection that was idle.
                            if status == StatusCode::BAD_GATEWAY && !is_reused {
                                backend.broke_off(settings.fail_timeout);
                            }
                            return Err(status);
                        }
                    },
                }
            }
            Err(Unopened::Overload(overload)) => {
                counters.overloads[overload.index()].add(1);
                return Err(StatusCode::SERVICE_UNAVAILABLE);
            }
            Err(Unopened::Failed(error)) => error,
        };
        counters.backend_failures.add(1);
        backend.failed(settings.fail_timeout);
        if tried.len() >= settings.retries as usize {
            return Err(match error {
                ConnectError::TimedOut => StatusCode::GATEWAY_TIMEOUT,
                ConnectError::Failed => StatusCode::BAD_GATEWAY,
            });
        }
        counters.backend_retries.add(1);
        tried.push(backend.number);
    }
}

/// Reason why there is no connection.
enum Unopened {
    Failed(ConnectError),
    Overload(Overload),
}

/// Opens a connection to `backend`, as soon as it may have another one. Returns one that has been
/// used before, and true, if there is one first.
async fn open(
    session: &Session,
    backend: &Arc<Backend>,
    group: &Group,
) -> Result<(Checkout, bool), Unopened> {
    let settings = &group.settings;
    let pool = &session.pool;
    let descriptors = &session.context.usage.descriptors;
    let granted = backend
        .places()
        .take(settings, Some(pool.home()), descriptors);
    let place = match granted.await.map_err(Unopened::Overload)? {
        Granted::Connection(connection) => return Ok((connection, true)),
        Granted::Place(place) => place,
    };
    let header = session.proxy_header.as_deref();
    let stream = connect(backend, header, settings.connect_timeout, Some(place))
        .await
        .map_err(Unopened::Failed)?;
    let opened = Checkout::begin(stream, backend, pool.clone()).await;
    opened
        .map(|connection| (connection, false))
        .map_err(|_| Unopened::Failed(ConnectError::Failed))
}

async fn exchange(
    connection: &mut Checkout,
    request: Request<RequestBody>,
    group: &Group,
    meter: &Meter,
) -> Result<Response<Incoming>, Failure> {
    let limit = group.settings.response_timeout;
    let mut response = std::pin::pin!(connection.sender.try_send_request(request));
    loop {
        let left = meter.backend_has(limit).ok_or(Failure::TimedOut)?;
        tokio::select! {
            outcome = &mut response => {
                return outcome.map_err(|mut error| match error.take_message() {
                    Some(request) => Failure::NotSent(Box::new(request)),
                    None => Failure::Broken,
                });
            }
            () = sleep(left) => {}
        }
    }
}

/// Returns a copy of `request` if it may be sent twice. A backend may close an idle connection at
/// the moment it is used (RFC 9110, 9.2.2; RFC 9112, 9.3.1).
fn repeatable(
    request: &Request<RequestBody>,
    meter: &Arc<Meter>,
    session: &Session,
) -> Option<Request<RequestBody>> {
    let is_idempotent = matches!(
        *request.method(),
        Method::GET | Method::HEAD | Method::OPTIONS | Method::TRACE | Method::PUT | Method::DELETE
    );
    if !is_idempotent || !request.body().is_end_stream() {
        return None;
    }
    let idle_timeout = session.context.limits.idle_timeout;
    let mut copy = Request::new(RequestBody::empty(meter, idle_timeout));
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.version_mut() = Version::HTTP_11;
    *copy.headers_mut() = request.headers().clone();
    Some(copy)
}

/// Returns the status for a request that could not be sent completely: the client's fault or the
/// backend's.
fn client_failure(meter: &Meter) -> StatusCode {
    match meter.failure() {
        Some(ClientFailure::TimedOut) => StatusCode::REQUEST_TIMEOUT,
        Some(ClientFailure::Broken) => StatusCode::BAD_REQUEST,
        None => StatusCode::BAD_GATEWAY,
    }
}

/// Forwards the bytes of both sides after a response of 101.
async fn switch(client: OnUpgrade, backend: OnUpgrade, mut record: Record) {
    let session = Arc::clone(record.session());
    let context = &session.context;
    let (Ok(client), Ok(backend)) = tokio::join!(client, backend) else {
        return;
    };
    let mut traffic = Traffic::default();
    tunnel::run(
        &mut TokioIo::new(client),
        &mut TokioIo::new(backend),
        None,
        context.limits.idle_timeout,
        &context.counters,
        &mut traffic,
    )
    .await;
    record.note_tunnel(traffic);
}

/// Marks a request as waiting for its backend until dropped.
struct Waiting<'a>(&'a Session);

impl<'a> Waiting<'a> {
    fn begin(session: &'a Session) -> Self {
        session.activity.begin_wait();
        Self(session)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.activity.end_wait();
    }
}
