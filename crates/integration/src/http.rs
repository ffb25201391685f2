//! As much HTTP/1.1 as the tests speak.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};

use crate::PATIENCE;

/// An answer of the server.
#[derive(Clone, Debug)]
pub struct Response {
    /// Such as 200.
    pub status: u16,
    pub(crate) headers: Vec<(String, String)>,
    /// The body as it was sent.
    pub body: Vec<u8>,
}

impl Response {
    /// Reads one response, whose body ends as `Content-Length` says or with the connection.
    ///
    /// # Errors
    /// Errors of `stream`, and [`io::ErrorKind::InvalidData`] for anything that is not a response.
    pub fn read(stream: &mut impl Read) -> io::Result<Response> {
        read(&mut BufReader::new(stream), true)
    }

    /// The first header of this name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(header, _)| header.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }

    /// All headers of this name.
    pub fn headers<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.headers
            .iter()
            .filter(move |(header, _)| header.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }

    /// The names of all headers and their values, as they were sent.
    pub fn all_headers(&self) -> &[(String, String)] {
        &self.headers
    }

    /// The body as text.
    ///
    /// # Panics
    /// If it is not UTF-8.
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("the body is text")
    }
}

/// Sends one request without a body to a plain HTTP server.
///
/// # Errors
/// Errors of the socket, and [`io::ErrorKind::InvalidData`] for anything that is not a response.
pub(crate) fn fetch(address: SocketAddr, method: &str, path: &str) -> io::Result<Response> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    )?;
    read(&mut BufReader::new(stream), method != "HEAD")
}

fn read(stream: &mut impl BufRead, has_body: bool) -> io::Result<Response> {
    let mut response = read_head(stream)?;
    if !has_body {
        return Ok(response);
    }
    match response.header("Content-Length").map(str::parse) {
        Some(Ok(length)) => {
            response.body.resize(length, 0);
            stream.read_exact(&mut response.body)?;
        }
        Some(Err(_)) => return Err(invalid("Content-Length")),
        None if response.header("Transfer-Encoding").is_some() => {
            return Err(invalid("Transfer-Encoding"));
        }
        None => drop(stream.read_to_end(&mut response.body)?),
    }
    Ok(response)
}

/// Reads status and headers, and leaves the body to be read.
pub(crate) fn read_head(stream: &mut impl BufRead) -> io::Result<Response> {
    let status_line = read_line(stream)?;
    let status = status_line
        .strip_prefix("HTTP/1.")
        .and_then(|rest| rest.split(' ').nth(1)?.parse().ok())
        .ok_or_else(|| invalid(&status_line))?;
    let mut headers = Vec::new();
    loop {
        let line = read_line(stream)?;
        if line.is_empty() {
            break;
        }
        let (name, value) = line.split_once(':').ok_or_else(|| invalid(&line))?;
        headers.push((name.to_owned(), value.trim().to_owned()));
    }
    Ok(Response {
        status,
        headers,
        body: Vec::new(),
    })
}

pub(crate) fn read_line(stream: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    stream.read_line(&mut line)?;
    match line.strip_suffix("\r\n") {
        Some(line) => Ok(line.to_owned()),
        None if line.is_empty() => Err(io::ErrorKind::UnexpectedEof.into()),
        None => Err(invalid(&line)),
    }
}

pub(crate) fn invalid(text: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("not expected in a response: {text:?}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_ends_as_the_header_says() {
        let mut text = &b"HTTP/1.1 200 OK\r\nContent-length: 3\r\nX: y\r\n\r\nabcHTTP"[..];
        let response = Response::read(&mut text).unwrap();
        assert_eq!((response.status, response.text()), (200, "abc"));
        assert_eq!(response.header("x"), Some("y"));

        let mut text = &b"HTTP/1.1 400 Bad\r\n\r\nto the end"[..];
        assert_eq!(Response::read(&mut text).unwrap().text(), "to the end");
    }

    #[test]
    fn what_is_cut_off_is_an_error() {
        for text in [
            "",
            "HTTP/1.1 200 OK\r\nConte",
            "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab",
        ] {
            assert!(Response::read(&mut text.as_bytes()).is_err(), "{text:?}");
        }
    }
}
