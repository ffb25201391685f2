//! A terminator in front of a small server, and clients that trust it.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use slipstream_integration::{
    Authority, Client, Credentials, KeyType, Offer, Terminator, TerminatorConfiguration,
    eventually, unused_address,
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
        Self::before(&Backend::start("served"), keys, main)
    }

    /// HTTP, answered by `backend`.
    pub fn before(backend: &Backend, keys: &[KeyType], main: &str) -> Self {
        let listener = format!("backends = [\"http://{}\"]", backend.address);
        Self::new(keys, main, &listener)
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

/// A server of HTTP/1.1 that keeps connections alive, and says the same to everything. A request
/// for `/slow` is answered when it is [released](Backend::release), one for `/headers` with its own
/// header.
pub struct Backend {
    pub address: SocketAddr,
    slow: Arc<Slow>,
}

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 4096;

/// Requests for `/slow`.
#[derive(Default)]
struct Slow {
    state: Mutex<SlowState>,
    released: Condvar,
}

#[derive(Default)]
struct SlowState {
    has_come: bool,
    is_released: bool,
}

impl Backend {
    pub fn start(text: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        // A terminator that asks for thousands at once is not to wait for SYNs that are sent again.
        rustix::net::listen(&listener, BACKLOG).unwrap();
        let address = listener.local_addr().unwrap();
        let slow = Arc::new(Slow::default());
        let of_connections = slow.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let slow = of_connections.clone();
                thread::spawn(move || drop(converse(&stream, text, &slow)));
            }
        });
        Self { address, slow }
    }

    /// Waits until a request for `/slow` is here.
    pub fn wait_for_slow(&self) {
        eventually("a request has come that takes long", || {
            self.slow.state.lock().unwrap().has_come
        });
    }

    /// Has requests for `/slow` answered.
    pub fn release(&self) {
        self.slow.state.lock().unwrap().is_released = true;
        self.slow.released.notify_all();
    }
}

impl Slow {
    fn wait(&self) {
        let mut state = self.state.lock().unwrap();
        state.has_come = true;
        let released = self.released.wait_while(state, |state| !state.is_released);
        drop(released.unwrap());
    }
}

fn converse(stream: &TcpStream, text: &str, slow: &Slow) -> io::Result<()> {
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
                slow.wait();
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
