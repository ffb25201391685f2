//! Counters and log entry of a request.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use hyper::header::{HOST, HeaderName, REFERER, USER_AGENT};
use hyper::{Request, StatusCode, Version};

use super::Session;
use super::body::Meter;
use crate::access_log::{self, Entry, RequestLine};
use crate::gauge::Permit;
use crate::tunnel::Traffic;
use crate::upstream::Lease;

/// Status that nginx logs if the client has gone before the response.
const CLIENT_CLOSED_REQUEST: u16 = 499;

/// Record of a request, from its header to the end of its response. It is counted and logged when
/// dropped, however the request ends.
pub struct Record {
    session: Arc<Session>,
    meter: Arc<Meter>,
    time: SystemTime,
    began: Instant,
    /// Request for the log, if there is one.
    request: Option<access_log::Request>,
    status: u16,
    sent: u64,
    backend: Option<Lease>,
    /// Permit among all requests of the process.
    permit: Option<Permit>,
}

impl Record {
    /// Begins the record of a request whose header has been read.
    pub fn begin<B>(session: &Arc<Session>, request: &Request<B>) -> Self {
        session.activity.begin_request();
        let is_logged = session.context.access_log.is_some();
        Self {
            session: Arc::clone(session),
            meter: Arc::new(Meter::new(Arc::clone(&session.context.counters))),
            time: SystemTime::now(),
            began: Instant::now(),
            request: is_logged.then(|| describe(request)),
            status: CLIENT_CLOSED_REQUEST,
            sent: 0,
            backend: None,
            permit: session.context.usage.requests.permit(),
        }
    }

    /// Returns true if the process has as many requests as it may have without this one.
    pub fn is_too_many(&self) -> bool {
        self.permit.is_none()
    }

    /// Returns the meter of the request's body.
    pub fn meter(&self) -> &Arc<Meter> {
        &self.meter
    }

    /// Returns the client's connection.
    pub fn session(&self) -> &Arc<Session> {
        &self.session
    }

    /// Sets the backend that handles the request now.
    pub fn set_backend(&mut self, backend: Option<Lease>) {
        self.backend = backend;
    }

    /// Notes the beginning of the response.
    pub fn set_status(&mut self, status: StatusCode) {
        self.status = status.as_u16();
        count(&self.session, status);
    }

    /// Notes content of the response.
    pub fn note_sent(&mut self, bytes: usize) {
        let bytes = bytes as u64;
        self.sent += bytes;
        self.session.context.counters.sent_bytes.add(bytes);
        self.session.activity.note_progress();
    }

    /// Adds the traffic of the tunnel that the request has become. The counters include it already.
    pub fn note_tunnel(&mut self, traffic: Traffic) {
        self.sent += traffic.sent;
        self.meter.add_tunnelled(traffic.received);
    }

    fn entry(&mut self) -> Option<Entry> {
        let mut request = self.request.take()?;
        request.status = self.status;
        let backend = self.backend.as_ref();
        Some(Entry {
            sent_bytes: self.sent,
            received_bytes: self.meter.received(),
            backend: backend.map(|lease| lease.backend().name().to_owned()),
            ..entry(&self.session, request, self.time, self.began.elapsed())
        })
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        self.session.activity.end_request();
        if let Some(entry) = self.entry()
            && let Some(log) = &self.session.context.access_log
        {
            log.write(entry);
        }
    }
}

/// Counts and logs a request whose header was malformed or not complete in time.
pub fn refuse(session: &Session, status: StatusCode) {
    count(session, status);
    if let Some(log) = &session.context.access_log {
        let duration = session.activity.header_duration();
        let request = access_log::Request {
            line: None,
            status: status.as_u16(),
            referer: None,
            user_agent: None,
            host: None,
        };
        let began = SystemTime::now() - duration;
        log.write(entry(session, request, began, duration));
    }
}

fn count(session: &Session, status: StatusCode) {
    let class = usize::from(status.as_u16() / 100);
    if let Some(count) = session.context.counters.responses.get(class - 1) {
        count.add(1);
    }
}

/// Returns the entry of a request without content.
fn entry(
    session: &Session,
    request: access_log::Request,
    time: SystemTime,
    duration: Duration,
) -> Entry {
    let connection = &session.connection;
    Entry {
        time,
        client: connection.client.ip(),
        request: Some(request),
        sent_bytes: 0,
        received_bytes: 0,
        duration,
        tls_version: connection.tls_version,
        cipher_suite: connection.cipher_suite.clone(),
        server_name: connection.server_name.clone(),
        backend: None,
    }
}

fn describe<B>(request: &Request<B>) -> access_log::Request {
    let header = |name: HeaderName| {
        let value = request.headers().get(name)?;
        Some(String::from_utf8_lossy(value.as_bytes()).into_owned())
    };
    let uri = request.uri();
    let target = uri.path_and_query().map(|target| target.as_str());
    let authority = uri.authority().map(|authority| authority.as_str());
    access_log::Request {
        line: Some(RequestLine {
            method: request.method().to_string(),
            target: target.or(authority).unwrap_or_default().to_owned(),
            version: match request.version() {
                Version::HTTP_10 => "HTTP/1.0",
                Version::HTTP_2 => "HTTP/2.0",
                _ => "HTTP/1.1",
            },
        }),
        status: 0,
        referer: header(REFERER),
        user_agent: header(USER_AGENT),
        host: authority.map(str::to_owned).or_else(|| header(HOST)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::requests::tests::session;

    #[tokio::test]
    async fn an_entry_describes_request_and_response() {
        let session = session();
        let request = Request::get("http://example.com/a?b=c")
            .version(Version::HTTP_2)
            .header(USER_AGENT, "test")
            .body(())
            .unwrap();
        let mut record = Record::begin(&session, &request);
        record.request = Some(describe(&request));
        record.set_status(StatusCode::NOT_FOUND);
        record.note_sent(7);
        let entry = record.entry().unwrap();
        let request = entry.request.unwrap();
        let line = request.line.unwrap();
        assert_eq!((line.method.as_str(), request.status), ("GET", 404));
        assert_eq!((line.target.as_str(), line.version), ("/a?b=c", "HTTP/2.0"));
        assert_eq!(request.host.as_deref(), Some("example.com"));
        assert_eq!(request.user_agent.as_deref(), Some("test"));
        assert_eq!(entry.sent_bytes, 7);
        assert_eq!(entry.client, session.connection.client.ip());
        assert_eq!(session.context.counters.responses[3].get(), 1);
    }

    #[tokio::test]
    async fn a_client_that_has_gone_is_logged_as_such() {
        let request = Request::get("/").body(()).unwrap();
        let mut record = Record::begin(&session(), &request);
        record.request = Some(describe(&request));
        assert_eq!(record.entry().unwrap().request.unwrap().status, 499);
    }
}
