//! A listener for Prometheus: a process of its own, so that an engine, which holds keys, needs no
//! network.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use slipstream_testbed::cleanup::check_interrupted;

use super::{look, prometheus};

/// The time for which a client may keep a thread.
const PATIENCE: Duration = Duration::from_secs(5);

/// Longer than a scraper's request.
const REQUEST_BYTES: u64 = 16 << 10;

/// Connections that are served at a time; further ones are closed.
const CONNECTIONS: usize = 16;

/// The time between two looks for a client or a signal.
const STEP: Duration = Duration::from_millis(20);

/// Serves `/metrics` until a signal arrives.
pub(super) fn serve(address: SocketAddr) -> anyhow::Result<ExitCode> {
    let listener = TcpListener::bind(address)
        .with_context(|| format!("metrics cannot be served at {address}"))?;
    listener.set_nonblocking(true)?;
    let bound = listener.local_addr()?;
    // An error does not matter: standard output may be closed.
    let _ = writeln!(io::stdout(), "serving http://{bound}/metrics");
    let open = Arc::new(AtomicUsize::new(0));
    loop {
        check_interrupted()?;
        match listener.accept() {
            Ok((stream, _)) if open.load(Ordering::Relaxed) < CONNECTIONS => {
                open.fetch_add(1, Ordering::Relaxed);
                let open = open.clone();
                thread::spawn(move || {
                    // Errors are the client's: it has gone, or is too slow.
                    let _ = answer(&stream);
                    open.fetch_sub(1, Ordering::Relaxed);
                });
            }
            Ok(_) => {}
            Err(_) => thread::sleep(STEP),
        }
    }
}

fn answer(mut stream: &TcpStream) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut lines = BufReader::new(stream.take(REQUEST_BYTES)).lines();
    let request = lines.next().transpose()?.unwrap_or_default();
    // A socket that is closed with bytes unread is reset, and the response with it.
    while lines
        .next()
        .transpose()?
        .is_some_and(|line| !line.is_empty())
    {}
    let mut words = request.split(' ');
    let (status, body) = match (words.next(), words.next()) {
        (Some("GET"), Some("/metrics")) => ("200 OK", prometheus::render(&look())),
        (Some("GET"), _) => ("404 Not Found", "there is /metrics\n".to_owned()),
        _ => ("405 Method Not Allowed", "only GET\n".to_owned()),
    };
    let length = body.len();
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n\
         Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
}
