//! Clients that behave badly: what they send is cut off, wrong, or comes at the wrong time, and
//! they leave when they are not expected to.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::thread;
use std::time::Duration;

use openssl::ssl::SslStream;

use crate::begun::close_with_reset;
use crate::{Begun, Client, Random, Response};

/// Behaviour of a client before it leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Abuse {
    /// Connects, and sends nothing.
    Silence,
    /// Sends the beginning of a ClientHello.
    PartOfClientHello,
    /// Sends a ClientHello.
    ClientHello,
    /// Sends a ClientHello and reads the beginning of the answer.
    PartOfAnswer,
    /// Completes the handshake.
    Handshake,
    /// Completes the handshake and sends the beginning of a request.
    PartOfRequest,
    /// Sends random bytes.
    Garbage,
    /// Sends a ClientHello of which one byte is wrong.
    DamagedClientHello,
    /// Sends random bytes behind a ClientHello, hence while its operation is in flight.
    GarbageBehindClientHello,
    /// Sends a record of application data behind a ClientHello.
    DataBehindClientHello,
    /// Sends a second ClientHello behind the first.
    TwoClientHellos,
    /// Sends a request without TLS. It is told so.
    PlainHttp,
    /// Sends every byte in a segment of its own. It is served.
    OneByteAtATime,
}

impl Abuse {
    /// All of it.
    pub const ALL: [Abuse; 13] = [
        Abuse::Silence,
        Abuse::PartOfClientHello,
        Abuse::ClientHello,
        Abuse::PartOfAnswer,
        Abuse::Handshake,
        Abuse::PartOfRequest,
        Abuse::Garbage,
        Abuse::DamagedClientHello,
        Abuse::GarbageBehindClientHello,
        Abuse::DataBehindClientHello,
        Abuse::TwoClientHellos,
        Abuse::PlainHttp,
        Abuse::OneByteAtATime,
    ];

    /// Behaves like this towards the server of `client`, and then leaves, with a RST, with a FIN,
    /// or with a FIN after which the server has to close the connection. How, when, and what is
    /// sent is chosen by `random`.
    ///
    /// # Errors
    /// If the server is not reached, or leaves the connection open, or does not serve who is to be
    /// served.
    pub fn commit(self, client: &Client, random: &mut Random) -> io::Result<()> {
        match self {
            Abuse::PlainHttp => return expect_refusal(client.open()?),
            Abuse::OneByteAtATime => return expect_page(client, random),
            Abuse::Handshake | Abuse::PartOfRequest => {
                let mut connection = Begun::new(client)?.complete().map_err(io::Error::other)?;
                if self == Abuse::PartOfRequest {
                    let request = b"GET / HTTP/1.1\r\nHost: localhost\r\n";
                    connection.send(&request[..1 + random.below(request.len())])?;
                }
                return leave(connection.stream().get_ref(), random);
            }
            _ => {}
        }
        let mut socket = client.open()?;
        for bytes in self.messages(client, random) {
            // The server may have closed the connection: it is right to.
            if socket.write_all(&bytes).is_err() {
                break;
            }
            hesitate(random);
        }
        if self == Abuse::PartOfAnswer {
            let mut beginning = vec![0; 1 + random.below(2048)];
            let _ = socket.read(&mut beginning)?;
        }
        leave(&socket, random)
    }

    /// Returns the messages to send, one write after the other.
    fn messages(self, client: &Client, random: &mut Random) -> Vec<Vec<u8>> {
        const LONGEST_GARBAGE: usize = 4096;
        // Application data (RFC 8446 section 5.1) of 32 bytes.
        const DATA_RECORD: [u8; 5] = [23, 3, 3, 0, 32];
        let mut hello = client_hello(client);
        let behind = match self {
            Abuse::Silence => return Vec::new(),
            Abuse::Garbage => {
                let length = 1 + random.below(LONGEST_GARBAGE);
                return vec![random.bytes(length)];
            }
            Abuse::PartOfClientHello => {
                hello.truncate(1 + random.below(hello.len() - 1));
                Vec::new()
            }
            Abuse::DamagedClientHello => {
                let place = random.below(hello.len());
                hello[place] ^= 1 << random.below(8);
                Vec::new()
            }
            Abuse::GarbageBehindClientHello => {
                let length = 1 + random.below(LONGEST_GARBAGE);
                random.bytes(length)
            }
            Abuse::DataBehindClientHello => [&DATA_RECORD[..], &random.bytes(32)].concat(),
            Abuse::TwoClientHellos => client_hello(client),
            _ => Vec::new(),
        };
        if random.below(2) == 0 {
            vec![hello, behind]
        } else {
            vec![[hello, behind].concat()]
        }
    }
}

/// The bytes of a ClientHello record.
///
/// # Panics
/// If OpenSSL refuses.
pub fn client_hello(client: &Client) -> Vec<u8> {
    let mut stream = SslStream::new(client.ssl(), Recorder::default()).expect("a TLS stream");
    stream.connect().expect_err("the recorder answers nothing");
    std::mem::take(&mut stream.get_mut().written)
}

fn expect_refusal(mut socket: TcpStream) -> io::Result<()> {
    socket.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
    let response = Response::read(&mut socket)?;
    expect(response.status == 400, "plain HTTP is refused")
}

fn expect_page(client: &Client, random: &mut Random) -> io::Result<()> {
    let socket = Dribble {
        socket: client.open()?,
        random: random.split(),
    };
    let mut stream = SslStream::new(client.ssl(), socket).expect("a TLS stream");
    stream.connect().map_err(io::Error::other)?;
    stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
    let response = Response::read(&mut stream)?;
    expect(response.status == 200, "a slow client is served")
}

fn leave(socket: &TcpStream, random: &mut Random) -> io::Result<()> {
    hesitate(random);
    match random.below(3) {
        // The caller closes the socket.
        0 => close_with_reset(socket),
        1 => Ok(()),
        _ => {
            if socket.shutdown(Shutdown::Write).is_err() {
                return Ok(());
            }
            match io::copy(&mut &*socket, &mut io::sink()) {
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(()),
                Err(error) => Err(error),
                Ok(_) => Ok(()),
            }
        }
    }
}

/// Waits, or not, about as long as the server takes for a step of a handshake.
fn hesitate(random: &mut Random) {
    match random.below(4) {
        0 => thread::sleep(Duration::from_micros(random.below(4000) as u64)),
        1 => thread::yield_now(),
        _ => {}
    }
}

fn expect(holds: bool, what: &str) -> io::Result<()> {
    if holds {
        Ok(())
    } else {
        Err(io::Error::other(what))
    }
}

/// Keeps what is written, and has nothing to read.
#[derive(Default)]
struct Recorder {
    written: Vec<u8>,
}

impl Read for Recorder {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(io::ErrorKind::WouldBlock.into())
    }
}

impl Write for Recorder {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.written.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Sends one byte at a time.
struct Dribble {
    socket: TcpStream,
    random: Random,
}

impl Read for Dribble {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.socket.read(bytes)
    }
}

impl Write for Dribble {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.random.below(16) == 0 {
            hesitate(&mut self.random);
        }
        self.socket.write(&bytes[..bytes.len().min(1)])
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Offer, unused_address};

    #[test]
    fn a_client_hello_is_one_whole_record() {
        for offer in [Offer::tls13(), Offer::rsa_key_exchange()] {
            let hello = client_hello(&Client::new(unused_address(), &offer));
            let length = u16::from_be_bytes([hello[3], hello[4]]);
            assert_eq!(
                (hello[0], hello[5]),
                (22, 1),
                "a handshake record, a ClientHello"
            );
            assert_eq!(hello.len(), 5 + usize::from(length));
        }
    }
}
