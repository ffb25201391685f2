//! An upstream server.

use std::io::{self, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use crate::http::read_line;
use crate::{Content, PATIENCE};

/// A server that nginx passes requests to. It answers each on a thread of its own and closes the
/// connection.
///
/// `/FRAMING/CONTENT/LENGTH?NAME=VALUE&...` is answered with that much of a [`Content`], and with
/// these headers, where `+` stands for a space. The framing is `length` (`Content-Length`),
/// `chunked`, `close` (the body ends with the connection), or `dying`: the length is given, and
/// half of it comes.
pub struct Origin {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Origin {
    /// One that has the pages above.
    pub fn new() -> Self {
        Self::with(serve)
    }

    /// One that has `answer` write what is answered to a path.
    ///
    /// # Panics
    /// If there is no port to listen on.
    pub fn with(
        answer: impl Fn(&str, &mut TcpStream) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
        let address = listener.local_addr().expect("a socket has an address");
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let answer = Arc::new(answer);
        let thread = thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if stopped.load(Ordering::Relaxed) {
                    break;
                }
                let answer = answer.clone();
                // Clients that leave have nginx close its connection: the errors are theirs.
                thread::spawn(move || drop(converse(stream, &*answer)));
            }
        });
        Self {
            address,
            stop,
            thread: Some(thread),
        }
    }

    /// Returns the address at which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Default for Origin {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // So that it looks.
        if TcpStream::connect(self.address).is_ok()
            && let Some(thread) = self.thread.take()
        {
            let _ = thread.join();
        }
    }
}

fn converse(
    mut stream: TcpStream,
    answer: &impl Fn(&str, &mut TcpStream) -> io::Result<()>,
) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.set_nodelay(true)?;
    let mut request = BufReader::new(stream.try_clone()?);
    let line = read_line(&mut request)?;
    while !read_line(&mut request)?.is_empty() {}
    answer(line.split(' ').nth(1).unwrap_or_default(), &mut stream)
}

fn serve(path: &str, stream: &mut TcpStream) -> io::Result<()> {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let mut parts = path.trim_start_matches('/').split('/');
    let framing = parts.next().unwrap_or_default();
    let content = parts.next().and_then(Content::named);
    let length = parts.next().and_then(|length| length.parse::<u64>().ok());
    let (Some(content), Some(length)) = (content, length) else {
        return stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
    };
    let mut head = "HTTP/1.1 200 OK\r\nConnection: close\r\n".to_owned();
    for (name, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
        head.push_str(&format!("{name}: {}\r\n", value.replace('+', " ")));
    }
    if !query.contains("Content-Type=") {
        head.push_str("Content-Type: text/html\r\n");
    }
    match framing {
        "length" | "dying" => head.push_str(&format!("Content-Length: {length}\r\n")),
        "chunked" => head.push_str("Transfer-Encoding: chunked\r\n"),
        _ => {}
    }
    stream.write_all(format!("{head}\r\n").as_bytes())?;
    let sent = if framing == "dying" {
        length / 2
    } else {
        length
    };
    for piece in content.pieces(sent) {
        if framing == "chunked" {
            // Chunks of no particular length.
            for chunk in piece.chunks(21_001) {
                stream.write_all(format!("{:x}\r\n", chunk.len()).as_bytes())?;
                stream.write_all(chunk)?;
                stream.write_all(b"\r\n")?;
            }
        } else {
            stream.write_all(&piece)?;
        }
    }
    match framing {
        "chunked" => stream.write_all(b"0\r\n\r\n"),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Request;

    #[test]
    fn pages_come_in_every_framing() {
        let origin = Origin::new();
        for framing in ["length", "chunked", "close"] {
            let path = format!("/{framing}/html/100000?Cache-Control=a,+b");
            let response = Request::get(origin.address(), &path).fetch().unwrap();
            assert!(response.body == Content::Html.bytes(100_000), "{framing}");
            assert_eq!(response.header("Cache-Control"), Some("a, b"));
        }
        let dying = Request::get(origin.address(), "/dying/html/100000").fetch();
        assert!(dying.is_err());
        let unknown = Request::get(origin.address(), "/").fetch().unwrap();
        assert_eq!(unknown.status, 404);
    }
}
