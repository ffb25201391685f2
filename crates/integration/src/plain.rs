//! Requests without TLS, and bodies as they come.

use std::io::{self, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};

use crate::http::{invalid, read_head, read_line};
use crate::{PATIENCE, Response};

/// A request without a body, on a connection of its own.
#[derive(Clone, Debug)]
pub struct Request {
    address: SocketAddr,
    method: String,
    path: String,
    version: String,
    headers: String,
}

/// A response of which status and headers have come. Its body is read with [`Read`], without what
/// the transfer adds to it; a body that is cut off is an error.
#[derive(Debug)]
pub struct Incoming {
    /// Status and headers.
    pub head: Response,
    stream: BufReader<TcpStream>,
    framing: Framing,
}

/// The part of a body that is still to come (RFC 9112, section 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    Length(u64),
    /// Bytes left of the chunk that is being read.
    Chunked(u64),
    UntilClose,
}

impl Request {
    /// `GET path`, with HTTP/1.1.
    pub fn get(address: SocketAddr, path: &str) -> Self {
        Self {
            address,
            method: "GET".to_owned(),
            path: path.to_owned(),
            version: "1.1".to_owned(),
            headers: String::new(),
        }
    }

    /// Sets another method.
    pub fn method(self, method: &str) -> Self {
        Self {
            method: method.to_owned(),
            ..self
        }
    }

    /// Sets the version of HTTP: 1.0 or 1.1.
    pub fn version(self, version: &str) -> Self {
        Self {
            version: version.to_owned(),
            ..self
        }
    }

    /// Adds a header.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push_str(&format!("{name}: {value}\r\n"));
        self
    }

    /// Adds `Accept-Encoding`.
    pub fn accepting(self, codings: &str) -> Self {
        self.header("Accept-Encoding", codings)
    }

    /// Sends the request, and reads status and headers of the response.
    ///
    /// # Errors
    /// Errors of the socket, and [`io::ErrorKind::InvalidData`] for anything that is not a
    /// response.
    pub fn open(&self) -> io::Result<Incoming> {
        let mut stream = self.send()?;
        self.receive(&mut stream)
    }

    /// Sends the request, and reads nothing.
    ///
    /// # Errors
    /// Errors of the socket.
    pub fn send(&self) -> io::Result<TcpStream> {
        let mut stream = TcpStream::connect(self.address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        write!(
            stream,
            "{} {} HTTP/{}\r\nHost: localhost\r\nConnection: close\r\n{}\r\n",
            self.method, self.path, self.version, self.headers
        )?;
        Ok(stream)
    }

    /// Reads status and headers of the response on a connection on which it was sent.
    ///
    /// # Errors
    /// As [`Request::open`].
    pub fn receive(&self, stream: &mut TcpStream) -> io::Result<Incoming> {
        let mut stream = BufReader::with_capacity(64 << 10, stream.try_clone()?);
        let head = read_head(&mut stream)?;
        let chunked = head.header("Transfer-Encoding") == Some("chunked");
        let framing = match head.header("Content-Length").map(str::parse) {
            _ if self.method == "HEAD" || matches!(head.status, 204 | 304) => Framing::Length(0),
            Some(Ok(length)) if !chunked => Framing::Length(length),
            None if chunked => Framing::Chunked(0),
            None => Framing::UntilClose,
            _ => return Err(invalid("Content-Length")),
        };
        if framing == Framing::Chunked(0) && self.version == "1.0" {
            return Err(invalid("Transfer-Encoding"));
        }
        Ok(Incoming {
            head,
            stream,
            framing,
        })
    }

    /// Sends the request, and reads all of the response.
    ///
    /// # Errors
    /// As [`Request::open`], and [`io::ErrorKind::UnexpectedEof`] for a body that is cut off.
    pub fn fetch(&self) -> io::Result<Response> {
        self.open()?.rest()
    }
}

impl Incoming {
    /// Reads the rest of the body.
    ///
    /// # Errors
    /// Errors of the socket, and [`io::ErrorKind::UnexpectedEof`] for a body that is cut off.
    pub fn rest(mut self) -> io::Result<Response> {
        let mut body = Vec::new();
        self.read_to_end(&mut body)?;
        self.head.body = body;
        Ok(self.head)
    }

    /// The connection.
    pub fn socket(&self) -> &TcpStream {
        self.stream.get_ref()
    }

    /// Reads the size of the next chunk; 0 behind the last.
    fn next_chunk(&mut self) -> io::Result<u64> {
        let line = read_line(&mut self.stream)?;
        let length = u64::from_str_radix(&line, 16).map_err(|_| invalid(&line))?;
        if length == 0 && !read_line(&mut self.stream)?.is_empty() {
            return Err(invalid("trailer"));
        }
        Ok(length)
    }
}

impl Read for Incoming {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let left = match self.framing {
            Framing::Length(left) => left,
            Framing::Chunked(0) => {
                let length = self.next_chunk()?;
                self.framing = match length {
                    0 => Framing::Length(0),
                    _ => Framing::Chunked(length),
                };
                length
            }
            Framing::Chunked(left) => left,
            Framing::UntilClose => return self.stream.read(bytes),
        };
        let wanted = bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let read = self.stream.read(&mut bytes[..wanted])?;
        if read == 0 && wanted > 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let left = left - read as u64;
        if let Framing::Length(_) = self.framing {
            self.framing = Framing::Length(left);
        } else if left > 0 {
            self.framing = Framing::Chunked(left);
        } else if read > 0 {
            let end = read_line(&mut self.stream)?;
            if !end.is_empty() {
                return Err(invalid(&end));
            }
            self.framing = Framing::Chunked(0);
        }
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};
    use std::thread;

    use super::*;

    fn answered(text: &'static str) -> io::Result<Response> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = BufReader::new(stream.try_clone().unwrap());
            while read_line(&mut request).is_ok_and(|line| !line.is_empty()) {}
            stream.write_all(text.as_bytes()).unwrap();
        });
        Request::get(address, "/").fetch()
    }

    #[test]
    fn bodies_end_as_the_headers_say() {
        let head = "HTTP/1.1 200 OK\r\n";
        for (text, body) in [
            ("Content-Length: 3\r\n\r\nabcd", "abc"),
            (
                "Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n",
                "abc",
            ),
            ("Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", ""),
            ("X: y\r\n\r\nabc", "abc"),
        ] {
            let text = format!("{head}{text}").leak();
            assert_eq!(answered(text).unwrap().text(), body, "{text:?}");
        }
    }

    #[test]
    fn what_is_cut_off_is_an_error() {
        let head = "HTTP/1.1 200 OK\r\n";
        for text in [
            "Content-Length: 3\r\n\r\nab",
            "Transfer-Encoding: chunked\r\n\r\n",
            "Transfer-Encoding: chunked\r\n\r\n2\r\na",
            "Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n",
            "Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n",
        ] {
            let text = format!("{head}{text}").leak();
            assert!(answered(text).is_err(), "{text:?}");
        }
    }
}
