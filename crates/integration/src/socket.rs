//! A TCP connection of a client that can put off reading.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::ops::Deref;

/// A TCP connection from which nothing is read while it is deaf.
#[derive(Debug)]
pub struct Socket {
    stream: TcpStream,
    deaf: bool,
}

impl Socket {
    /// While this is so, reads answer that there is nothing yet, even if there is.
    pub fn set_deaf(&mut self, deaf: bool) {
        self.deaf = deaf;
    }
}

impl From<TcpStream> for Socket {
    fn from(stream: TcpStream) -> Self {
        Self {
            stream,
            deaf: false,
        }
    }
}

impl Deref for Socket {
    type Target = TcpStream;

    fn deref(&self) -> &TcpStream {
        &self.stream
    }
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.deaf {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.stream.read(buffer)
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}
