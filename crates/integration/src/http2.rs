//! As much HTTP/2 (RFC 9113) as it takes to have many streams on one connection, and to reset some
//! of them.

use std::collections::BTreeMap;
use std::io::{self, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};

use crate::PATIENCE;

/// A connection without TLS. Flow control never holds the server back.
pub struct Http2 {
    stream: BufReader<TcpStream>,
    next: u32,
    bodies: BTreeMap<u32, Vec<u8>>,
    ended: Vec<u32>,
}

// Section 6.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;

const LARGEST_WINDOW: u32 = (1 << 31) - 1;
const CANCEL: u32 = 8;

impl Http2 {
    /// Connects to a server that expects HTTP/2.
    ///
    /// # Errors
    /// Errors of the socket.
    pub fn connect(address: SocketAddr) -> io::Result<Self> {
        const INITIAL_WINDOW: u16 = 65_535;
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        let mut connection = Self {
            stream: BufReader::new(stream),
            next: 1,
            bodies: BTreeMap::new(),
            ended: Vec::new(),
        };
        connection.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")?;
        // SETTINGS_INITIAL_WINDOW_SIZE is setting 4.
        let setting = [&[0, 4][..], &LARGEST_WINDOW.to_be_bytes()].concat();
        connection.send(SETTINGS, 0, 0, &setting)?;
        let more = LARGEST_WINDOW - u32::from(INITIAL_WINDOW);
        connection.send(WINDOW_UPDATE, 0, 0, &more.to_be_bytes())?;
        Ok(connection)
    }

    /// Asks for a page; returns the number of its stream.
    ///
    /// # Errors
    /// Errors of the socket.
    pub fn get(&mut self, path: &str, accept_encoding: &str) -> io::Result<u32> {
        let stream = self.next;
        self.next += 2;
        let mut block = Vec::new();
        for (name, value) in [
            (":method", "GET"),
            (":scheme", "http"),
            (":path", path),
            (":authority", "localhost"),
            ("accept-encoding", accept_encoding),
        ] {
            // A literal without indexing, with a new name (RFC 7541, section 6.2.2).
            block.push(0);
            for text in [name, value] {
                assert!(text.len() < 127, "a length of one byte");
                block.push(text.len() as u8);
                block.extend_from_slice(text.as_bytes());
            }
        }
        self.send(HEADERS, END_STREAM | END_HEADERS, stream, &block)?;
        self.bodies.insert(stream, Vec::new());
        Ok(stream)
    }

    /// Gives up a stream.
    ///
    /// # Errors
    /// Errors of the socket.
    pub fn reset(&mut self, stream: u32) -> io::Result<()> {
        self.bodies.remove(&stream);
        self.send(RST_STREAM, 0, stream, &CANCEL.to_be_bytes())
    }

    /// Reads one frame, whatever stream it is of.
    ///
    /// # Errors
    /// Errors of the socket, and [`io::ErrorKind::ConnectionReset`] if the server has given up the
    /// connection or a stream of it.
    pub fn read_frame(&mut self) -> io::Result<()> {
        let mut head = [0; 9];
        self.stream.read_exact(&mut head)?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let (kind, flags) = (head[3], head[4]);
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        let mut payload = vec![0; length as usize];
        self.stream.read_exact(&mut payload)?;
        match kind {
            DATA => {
                assert_eq!(flags & PADDED, 0, "nginx does not pad");
                // What comes for a stream that was given up is ignored.
                if let Some(body) = self.bodies.get_mut(&stream) {
                    body.append(&mut payload);
                }
            }
            SETTINGS if flags & ACK == 0 => self.send(SETTINGS, ACK, 0, &[])?,
            PING if flags & ACK == 0 => self.send(PING, ACK, 0, &payload)?,
            GOAWAY => return Err(io::ErrorKind::ConnectionReset.into()),
            RST_STREAM if self.bodies.contains_key(&stream) => {
                return Err(io::ErrorKind::ConnectionReset.into());
            }
            _ => {}
        }
        let can_end = kind == DATA || kind == HEADERS;
        if can_end && flags & END_STREAM != 0 && self.bodies.contains_key(&stream) {
            self.ended.push(stream);
        }
        Ok(())
    }

    /// Returns true if a stream has neither ended nor been given up.
    pub fn is_busy(&self) -> bool {
        self.bodies
            .keys()
            .any(|stream| !self.ended.contains(stream))
    }

    /// Reads until all streams that were not given up have ended; returns their bodies as they were
    /// sent.
    ///
    /// # Errors
    /// As [`Http2::read_frame`].
    pub fn finish(&mut self) -> io::Result<BTreeMap<u32, Vec<u8>>> {
        while self.is_busy() {
            self.read_frame()?;
        }
        self.ended.clear();
        Ok(std::mem::take(&mut self.bodies))
    }

    fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> io::Result<()> {
        let length = payload.len() as u32;
        let mut frame = length.to_be_bytes()[1..].to_vec();
        frame.extend([kind, flags]);
        frame.extend(stream.to_be_bytes());
        frame.extend(payload);
        self.write(&frame)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.get_mut().write_all(bytes)
    }
}
