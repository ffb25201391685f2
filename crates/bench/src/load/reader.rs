//! Reads HTTP/1.1 responses (RFC 9112) as they come, and counts their bodies.

/// The longest head that is taken, in bytes.
const LONGEST_HEAD: usize = 16 * 1024;
/// The longest line of a chunk's size, or of the trailer section.
const LONGEST_LINE: usize = 4096;
const STATUS_LINE: &[u8] = b"HTTP/1.1 200 ";

/// Reads one response after the other.
#[derive(Debug, Default)]
pub(super) struct Reader {
    state: State,
    head: Vec<u8>,
    response: Response,
    body: Option<Vec<u8>>,
}

/// Facts about a response.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Response {
    /// The length of the body in bytes, without what frames chunks.
    pub(super) length: u64,
    /// True if the coding of the content is gzip.
    pub(super) is_gzip: bool,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum State {
    #[default]
    Head,
    /// In the line before a chunk.
    Size {
        size: u64,
        has_digits: bool,
        in_extension: bool,
        length: usize,
    },
    /// In a chunk.
    Chunk { left: u64 },
    /// In the line end behind a chunk.
    ChunkEnd { has_return: bool },
    /// In the lines behind the last chunk. The empty one is the last.
    Trailer { length: usize },
    /// In a body whose length is known.
    Body { left: u64 },
}

/// Error of something that is no response with status 200.
#[derive(Debug, PartialEq, thiserror::Error)]
pub(super) enum ResponseError {
    /// Another status, or no HTTP: the beginning of the bytes that have come.
    #[error("answered {0:?}")]
    Status(String),
    /// Neither Content-Length nor chunks.
    #[error("answered without a length: {0:?}")]
    NoLength(String),
    #[error("a wrong Content-Length")]
    ContentLength,
    #[error("a chunk without a size")]
    NoChunkSize,
    #[error("the size of a chunk is too large")]
    ChunkTooLarge,
    #[error("{0} is too long")]
    TooLong(&'static str),
    #[error("{0:#04x} {1}")]
    UnexpectedByte(u8, &'static str),
    #[error("{0} bytes follow the response")]
    Trailing(usize),
}

const SIZE: State = State::Size {
    size: 0,
    has_digits: false,
    in_extension: false,
    length: 0,
};

/// The framing of a body (RFC 9112 section 6.3).
enum Framing {
    Chunked,
    Length(u64),
}

impl Reader {
    /// The body of the next response is kept, and not only counted.
    pub(super) fn keep_body(&mut self) {
        self.body = Some(Vec::new());
    }

    /// The body that was kept.
    pub(super) fn take_body(&mut self) -> Option<Vec<u8>> {
        self.body.take()
    }

    /// Returns true if nothing of a response has been read yet.
    #[cfg(test)]
    pub(super) fn is_at_start(&self) -> bool {
        self.state == State::Head && self.head.is_empty()
    }

    /// Number of bytes of the response's body that have been read so far.
    pub(super) fn length_so_far(&self) -> u64 {
        self.response.length
    }

    /// Takes bytes that have come; returns the response when this was its end. Nothing may follow
    /// it, since only one is asked for at a time.
    ///
    /// # Errors
    /// Why it is no response with status 200.
    pub(super) fn read(&mut self, mut bytes: &[u8]) -> Result<Option<Response>, ResponseError> {
        while !bytes.is_empty() {
            let is_complete = self.step(&mut bytes)?;
            if is_complete {
                if !bytes.is_empty() {
                    return Err(ResponseError::Trailing(bytes.len()));
                }
                self.state = State::Head;
                self.head.clear();
                return Ok(Some(std::mem::take(&mut self.response)));
            }
        }
        Ok(None)
    }

    /// Goes on by a byte, or by more where nothing has to be looked at. Returns whether the
    /// response is complete.
    fn step(&mut self, bytes: &mut &[u8]) -> Result<bool, ResponseError> {
        self.state = match self.state {
            State::Head => return self.read_head(bytes),
            State::Chunk { left } => match self.skip(bytes, left) {
                0 => State::ChunkEnd { has_return: false },
                left => State::Chunk { left },
            },
            State::Body { left } => {
                let left = self.skip(bytes, left);
                self.state = State::Body { left };
                return Ok(left == 0);
            }
            State::Size {
                size,
                has_digits,
                in_extension,
                length,
            } => match (take(bytes), in_extension) {
                _ if length > LONGEST_LINE => {
                    return Err(ResponseError::TooLong("the line of a chunk"));
                }
                (b'\n', _) if !has_digits => return Err(ResponseError::NoChunkSize),
                (b'\n', _) if size == 0 => State::Trailer { length: 0 },
                (b'\n', _) => State::Chunk { left: size },
                (byte, false) if byte.is_ascii_hexdigit() => State::Size {
                    size: append_digit(size, byte)?,
                    has_digits: true,
                    in_extension,
                    length: length + 1,
                },
                (b';' | b'\r' | b' ' | b'\t', false) | (_, true) => State::Size {
                    size,
                    has_digits,
                    in_extension: true,
                    length: length + 1,
                },
                (byte, false) => {
                    return Err(ResponseError::UnexpectedByte(
                        byte,
                        "in the size of a chunk",
                    ));
                }
            },
            State::ChunkEnd { has_return } => match (take(bytes), has_return) {
                (b'\r', false) => State::ChunkEnd { has_return: true },
                (b'\n', true) => SIZE,
                (byte, _) => return Err(ResponseError::UnexpectedByte(byte, "behind a chunk")),
            },
            State::Trailer { length } => match take(bytes) {
                b'\n' if length == 0 => return Ok(true),
                b'\n' => State::Trailer { length: 0 },
                b'\r' => State::Trailer { length },
                _ if length > LONGEST_LINE => {
                    return Err(ResponseError::TooLong("a line of the trailer"));
                }
                _ => State::Trailer { length: length + 1 },
            },
        };
        Ok(false)
    }

    /// Counts what belongs to the body; returns how much of it is still missing.
    fn skip(&mut self, bytes: &mut &[u8], left: u64) -> u64 {
        let length = usize::try_from(left).map_or(bytes.len(), |left| left.min(bytes.len()));
        let (part, rest) = bytes.split_at(length);
        if let Some(body) = &mut self.body {
            body.extend_from_slice(part);
        }
        *bytes = rest;
        self.response.length += length as u64;
        left - length as u64
    }

    fn read_head(&mut self, bytes: &mut &[u8]) -> Result<bool, ResponseError> {
        // Its end may have begun in what came before.
        let searched = self.head.len().saturating_sub(3);
        let before = self.head.len();
        self.head.extend_from_slice(bytes);
        let end = self.head[searched..]
            .windows(4)
            .position(|window| window == b"\r\n\r\n")
            .map(|position| searched + position + 4);
        let Some(end) = end else {
            *bytes = &[];
            if self.head.len() > LONGEST_HEAD {
                return Err(ResponseError::TooLong("the head"));
            }
            return Ok(false);
        };
        self.head.truncate(end);
        *bytes = &bytes[end - before..];
        let framing = parse_head(&self.head, &mut self.response)?;
        self.state = match framing {
            Framing::Chunked => SIZE,
            Framing::Length(left) => State::Body { left },
        };
        Ok(matches!(framing, Framing::Length(0)))
    }
}

fn take(bytes: &mut &[u8]) -> u8 {
    let (first, rest) = bytes.split_first().expect("a step is for a byte");
    *bytes = rest;
    *first
}

fn append_digit(size: u64, byte: u8) -> Result<u64, ResponseError> {
    let digit = char::from(byte).to_digit(16).expect("a hexadecimal digit");
    size.checked_mul(16)
        .map(|size| size + u64::from(digit))
        .ok_or(ResponseError::ChunkTooLarge)
}

fn parse_head(head: &[u8], response: &mut Response) -> Result<Framing, ResponseError> {
    let beginning = || String::from_utf8_lossy(&head[..head.len().min(64)]).into_owned();
    if !head.starts_with(STATUS_LINE) {
        return Err(ResponseError::Status(beginning()));
    }
    let mut framing = None;
    for line in head.split(|&byte| byte == b'\n').skip(1) {
        let Some(colon) = line.iter().position(|&byte| byte == b':') else {
            continue;
        };
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        if name.eq_ignore_ascii_case(b"transfer-encoding") && value.eq_ignore_ascii_case(b"chunked")
        {
            framing = Some(Framing::Chunked);
        } else if name.eq_ignore_ascii_case(b"content-length") {
            let length = std::str::from_utf8(value)
                .ok()
                .and_then(|text| text.parse().ok());
            framing = Some(Framing::Length(length.ok_or(ResponseError::ContentLength)?));
        } else if name.eq_ignore_ascii_case(b"content-encoding") {
            response.is_gzip = value.eq_ignore_ascii_case(b"gzip");
        }
    }
    framing.ok_or_else(|| ResponseError::NoLength(beginning()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHUNKED: &[u8] = b"HTTP/1.1 200 OK\r\nServer: nginx\r\nTransfer-Encoding: chunked\r\nContent-encoding: gzip\r\n\r\n\
        5\r\nhello\r\nC;name=\"value\"\r\n, wor\r\n0\r\n\r\n\r\n0\r\nTrailer: x\r\n\r\n";
    const BODY: &[u8] = b"hello, wor\r\n0\r\n\r\n";

    /// Two responses, each cut in three pieces at every pair of places.
    #[test]
    fn a_response_is_read_however_it_is_cut() {
        let expected = Response {
            length: BODY.len() as u64,
            is_gzip: true,
        };
        for first in 0..CHUNKED.len() {
            for second in first..CHUNKED.len() {
                let mut reader = Reader::default();
                for keeps in [true, false] {
                    if keeps {
                        reader.keep_body();
                    }
                    assert!(reader.is_at_start());
                    let (head, rest) = CHUNKED.split_at(first);
                    let (middle, end) = rest.split_at(second - first);
                    assert_eq!(reader.read(head), Ok(None));
                    assert_eq!(reader.read(middle), Ok(None));
                    assert_eq!(reader.read(end), Ok(Some(expected)), "{first} {second}");
                    let body = reader.take_body();
                    assert_eq!(body.as_deref(), keeps.then_some(BODY));
                }
            }
        }
    }

    #[test]
    fn a_response_is_read_byte_by_byte() {
        let mut reader = Reader::default();
        let (last, others) = CHUNKED.split_last().unwrap();
        for byte in others {
            assert_eq!(reader.read(&[*byte]), Ok(None));
        }
        assert_eq!(reader.length_so_far(), BODY.len() as u64);
        assert!(reader.read(&[*last]).unwrap().is_some());
        assert_eq!(reader.length_so_far(), 0);
    }

    #[test]
    fn a_length_frames_a_response_as_well() {
        let mut reader = Reader::default();
        let head = b"HTTP/1.1 200 OK\r\ncontent-length:  3 \r\n\r\n";
        assert_eq!(reader.read(head), Ok(None));
        let response = reader.read(b"abc").unwrap().unwrap();
        assert_eq!((response.length, response.is_gzip), (3, false));
        let empty = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
        assert_eq!(reader.read(empty).unwrap().unwrap().length, 0);
    }

    #[test]
    fn what_is_no_response_is_refused() {
        let chunked = |rest: &str| {
            format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{rest}").into_bytes()
        };
        for (bytes, reason) in [
            (b"HTTP/1.1 502 Bad Gateway\r\n\r\n".to_vec(), "502"),
            (b"HTTP/1.1 200 OK\r\n\r\n".to_vec(), "without a length"),
            (
                b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n".to_vec(),
                "Content-Length",
            ),
            (chunked("\r\n"), "without a size"),
            (chunked("5x\r\n"), "in the size"),
            (chunked("1\r\nab"), "behind a chunk"),
            (chunked("10000000000000000\r\n"), "too large"),
            (chunked("0\r\n\r\nHTTP"), "follow"),
            (chunked(&format!("1;{}", "x".repeat(5000))), "too long"),
            (chunked(&format!("0\r\n{}", "x".repeat(5000))), "too long"),
            (vec![b'x'; 20_000], "too long"),
        ] {
            let error = Reader::default().read(&bytes).unwrap_err();
            assert!(error.to_string().contains(reason), "{error}");
        }
    }
}
