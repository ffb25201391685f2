//! HTTP server for metrics and health.

use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::sync::Semaphore;

use super::StatusSource;
use super::page::Values;

/// Most concurrent connections; further ones wait. A scraper connects every few seconds.
const CONNECTIONS: usize = 64;

/// Longest time for a request header.
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);

/// Pause after an error of accept. The usual cause is a lack of descriptors, which lasts for a
/// while.
const PAUSE: Duration = Duration::from_millis(100);

/// Serves `GET /metrics` (Prometheus text format), `/health/live` and `/health/ready` at `address`,
/// in a thread of its own, until the process ends.
///
/// # Errors
/// Returns an error if the address cannot be bound.
pub fn serve(address: SocketAddr, status: StatusSource) -> io::Result<()> {
    let listener = TcpListener::bind(address).map_err(|error| {
        let text = format!("metrics cannot be served at {address}: {error}");
        io::Error::new(error.kind(), text)
    })?;
    serve_at(listener, status)
}

fn serve_at(listener: TcpListener, status: StatusSource) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    std::thread::Builder::new()
        .name("metrics".to_owned())
        .spawn(move || runtime.block_on(accept(listener, status)))?;
    Ok(())
}

async fn accept(listener: TcpListener, status: StatusSource) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => {
            eprintln!("slipstream serve: metrics cannot be served: {error}");
            return;
        }
    };
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(permit) = Arc::clone(&room).acquire_owned().await else {
            return;
        };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(_) => {
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let status = status.clone();
        tokio::spawn(async move {
            let answer = service_fn(|request: Request<Incoming>| {
                let response = answer(request.method(), request.uri().path(), &status);
                async { Ok::<_, Infallible>(response) }
            });
            let mut connection = http1::Builder::new();
            connection
                .timer(TokioTimer::new())
                .header_read_timeout(HEADER_TIMEOUT);
            // Errors are the client's: it has gone, or sent a malformed request.
            let _ = connection
                .serve_connection(TokioIo::new(stream), answer)
                .await;
            drop(permit);
        });
    }
}

fn answer(method: &Method, path: &str, status: &StatusSource) -> Response<Full<Bytes>> {
    if method != Method::GET && method != Method::HEAD {
        let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n");
        response
            .headers_mut()
            .insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    match path {
        "/metrics" => {
            let values = Values {
                loops: &status.loops,
                backends: (status.upstreams)().status(),
                is_ready: (status.is_ready)(),
            };
            let mut response = text(StatusCode::OK, values.render());
            let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
            response.headers_mut().insert(CONTENT_TYPE, kind);
            response
        }
        "/health/live" => text(StatusCode::OK, "live\n"),
        "/health/ready" if (status.is_ready)() => text(StatusCode::OK, "ready\n"),
        "/health/ready" => text(StatusCode::SERVICE_UNAVAILABLE, "draining\n"),
        _ => text(
            StatusCode::NOT_FOUND,
            "not found: there are /metrics, /health/live and /health/ready\n",
        ),
    }
}

fn text(status: StatusCode, text: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(text.into()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(
        CONTENT_TYPE,
        HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    fn ask(address: SocketAddr, method: &str, path: &str) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        let request = format!("{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        // A single write: a server that refuses the first part of a request would reset the
        // connection when the rest arrives.
        stream.write_all(request.as_bytes()).unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        response
    }

    #[test]
    fn health_is_shown_and_other_things_are_refused() {
        let is_ready = Arc::new(AtomicBool::new(true));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let client_verification = Arc::clone(&is_ready);
        let status = StatusSource {
            loops: Vec::new(),
            upstreams: Arc::new(|| panic!("health does not depend on backends")),
            is_ready: Arc::new(move || client_verification.load(Ordering::Relaxed)),
        };
        serve_at(listener, status).unwrap();

        assert!(ask(address, "GET", "/health/live").starts_with("HTTP/1.1 200 "));
        assert!(ask(address, "GET", "/health/ready").starts_with("HTTP/1.1 200 "));
        is_ready.store(false, Ordering::Relaxed);
        assert!(ask(address, "GET", "/health/ready").starts_with("HTTP/1.1 503 "));
        assert!(ask(address, "GET", "/health/live").starts_with("HTTP/1.1 200 "));
        assert!(ask(address, "HEAD", "/health/live").ends_with("\r\n\r\n"));
        assert!(ask(address, "POST", "/health/live").starts_with("HTTP/1.1 405 "));
        assert!(ask(address, "GET", "/").starts_with("HTTP/1.1 404 "));
        assert!(ask(address, "nonsense\r\n\r\n", "").starts_with("HTTP/1.1 400 "));
    }

    #[test]
    fn an_address_that_is_taken_is_named() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let status = StatusSource {
            loops: Vec::new(),
            upstreams: Arc::new(|| panic!("nothing is served")),
            is_ready: Arc::new(|| true),
        };
        let error = serve(address, status).unwrap_err();
        assert!(error.to_string().contains(&address.to_string()), "{error}");
    }
}
