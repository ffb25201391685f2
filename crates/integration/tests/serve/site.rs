//! A terminator in front of a small server, and clients that trust it.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

use slipstream_integration::{
    Authority, Client, Credentials, KeyType, Offer, Terminator, TerminatorConfiguration,
    unused_address,
};

/// A terminator with one listener.
pub struct Site {
    pub authority: Authority,
    pub credentials: Vec<Credentials>,
    pub address: SocketAddr,
    pub terminator: Terminator,
}

impl Site {
    /// HTTP, answered by a [`Backend`] that lives as long as the test's process.
    pub fn http(keys: &[KeyType], main: &str) -> Self {
        let backend = Backend::start("served");
        Self::new(
            keys,
            main,
            &format!("backends = [\"http://{}\"]", backend.address),
        )
    }

    /// A certificate for `localhost` with a key of each type, and what the listener does.
    pub fn new(keys: &[KeyType], main: &str, listener: &str) -> Self {
        let authority = Authority::new();
        let address = unused_address();
        let credentials: Vec<Credentials> = keys
            .iter()
            .map(|key| authority.issue(*key, &["localhost"]))
            .collect();
        let configuration = configuration(address, &credentials, main, listener);
        Self {
            terminator: Terminator::start(&configuration),
            authority,
            credentials,
            address,
        }
    }

    /// A client that checks the certificate.
    pub fn client(&self, offer: &Offer) -> Client {
        let roots = self.authority.certificate();
        Client::new(self.address, &offer.clone().name("localhost").roots(roots))
    }
}

/// A configuration of one listener.
pub fn configuration(
    address: SocketAddr,
    credentials: &[Credentials],
    main: &str,
    listener: &str,
) -> TerminatorConfiguration {
    let credentials: Vec<&Credentials> = credentials.iter().collect();
    TerminatorConfiguration::new()
        .main(main)
        .listener(address, &credentials, listener)
}

/// A server of HTTP/1.1 that keeps connections alive, and says the same to everything. A request for `/slow` takes two seconds, one for
/// `/headers` is answered with its own header.
pub struct Backend {
    pub address: SocketAddr,
}

impl Backend {
    pub fn start(text: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                thread::spawn(move || drop(converse(&stream, text)));
            }
        });
        Self { address }
    }
}

fn converse(stream: &TcpStream, text: &str) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head)? == 0 {
                return Ok(());
            }
        }
        let path = head.split(' ').nth(1).unwrap_or_default();
        let body = match path {
            "/slow" => {
                thread::sleep(std::time::Duration::from_secs(2));
                "served slowly"
            }
            "/headers" => &head,
            _ => text,
        };
        let length = body.len();
        write!(
            &*stream,
            "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}"
        )?;
    }
}
