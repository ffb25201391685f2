//! A service, its clients, and backends whose behaviour a test defines.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use slipstream_http::counters::Counters;
use slipstream_http::settings::{Address, Backend, Limits, Service as Settings, Upstream};
use slipstream_http::usage::Usage;
use slipstream_http::{Connection, ConnectionContext, Service, TlsConnector, Upstreams};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, duplex};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Service and context, as an event loop has them.
pub struct Site {
    pub service: Arc<Service>,
    pub upstreams: Arc<Upstreams>,
    pub counters: Arc<Counters>,
    pub limits: Limits,
    pub draining: watch::Sender<bool>,
    pub usage: Usage,
}

impl Site {
    pub fn new(settings: Settings) -> Self {
        let upstreams = upstreams(&settings, None);
        Self {
            service: Arc::new(Service::new(&settings, &upstreams).unwrap()),
            upstreams: Arc::new(upstreams),
            counters: Arc::default(),
            limits: Limits::default(),
            draining: watch::channel(false).0,
            usage: Usage::default(),
        }
    }

    pub fn http(backends: &[SocketAddr]) -> Self {
        Self::new(Settings::Http(upstream(backends)))
    }

    /// Connects a client of HTTP/1.1.
    pub fn connect(&self) -> DuplexStream {
        self.connect_as(connection()).0
    }

    /// Connects a client. Returns its stream and the task that serves it.
    pub fn connect_as(&self, connection: Connection) -> (DuplexStream, JoinHandle<()>) {
        let (client, server) = duplex(16 * 1024);
        (client, self.serve(server, connection))
    }

    /// Returns the number of responses with a status of 400 to 499.
    pub fn client_errors(&self) -> u64 {
        self.counters.responses[3].get()
    }

    /// Serves `stream` in a task.
    pub fn serve<S>(&self, stream: S, connection: Connection) -> JoinHandle<()>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let context = ConnectionContext {
            counters: Arc::clone(&self.counters),
            access_log: None,
            draining: self.draining.subscribe(),
            usage: self.usage.clone(),
            limits: Arc::new(self.limits.clone()),
        };
        let service = Arc::clone(&self.service);
        tokio::spawn(service.serve(stream, connection, context))
    }
}

pub fn connection() -> Connection {
    Connection {
        client: "192.0.2.1:50000".parse().unwrap(),
        server: "198.51.100.2:443".parse().unwrap(),
        tls_version: "TLSv1.3",
        cipher_suite: "TLS_AES_256_GCM_SHA384".to_owned(),
        server_name: Some("example.com".to_owned()),
        alpn: None,
        client_certificate: None,
        accepted: SystemTime::now(),
    }
}

pub fn upstream(backends: &[SocketAddr]) -> Upstream {
    let backends = backends.iter().map(|address| Backend {
        address: Address::Tcp(address.ip().to_string(), address.port()),
        tls: None,
    });
    Upstream {
        connect_timeout: Duration::from_secs(10),
        response_timeout: Duration::from_secs(30),
        retries: 1,
        fail_timeout: Duration::from_secs(60),
        ..Upstream::new(backends.collect())
    }
}

/// Returns the backends of `service`, none of which has TLS.
pub fn upstreams(service: &Settings, previous: Option<&Upstreams>) -> Upstreams {
    let none = |_: &Upstream| -> Result<Arc<dyn TlsConnector>, Infallible> {
        unreachable!("no backend has TLS")
    };
    let Ok(upstreams) = Upstreams::new([service], none, previous);
    upstreams
}

/// Starts a backend that handles each connection with `serve`.
pub async fn backend<F>(serve: impl Fn(TcpStream) -> F + Send + 'static) -> TestBackend
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let connections = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&connections);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            count.fetch_add(1, Ordering::Relaxed);
            tokio::spawn(serve(stream));
        }
    });
    TestBackend {
        address,
        connections,
    }
}

pub struct TestBackend {
    pub address: SocketAddr,
    connections: Arc<AtomicUsize>,
}

impl TestBackend {
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}

/// Starts a backend that answers each request with the bytes of the request, and keeps connections
/// open.
pub async fn echo() -> TestBackend {
    backend(|mut stream| async move {
        while let Some((head, body)) = read_message(&mut stream).await {
            let answer = [head.as_bytes(), &body].concat();
            let start = format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n",
                answer.len()
            );
            let _ = stream
                .write_all(&[start.as_bytes(), &answer].concat())
                .await;
        }
    })
    .await
}

/// Starts a backend that answers each request with `response`.
pub async fn responder(response: &'static str) -> TestBackend {
    backend(move |mut stream| async move {
        while read_message(&mut stream).await.is_some() {
            let _ = stream.write_all(response.as_bytes()).await;
        }
    })
    .await
}

/// Returns an address that refuses connections.
pub async fn refusing() -> SocketAddr {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = socket.local_addr().unwrap();
    // No server listens, and no other process gets the port while this one runs.
    std::mem::forget(socket);
    address
}

/// Reads a request or a response with its body; chunks are not decoded. Returns `None` if the
/// stream has ended.
pub async fn read_message(stream: &mut (impl AsyncRead + Unpin)) -> Option<(String, Vec<u8>)> {
    let head = read_head(stream).await?;
    let lower = head.to_ascii_lowercase();
    let mut body = Vec::new();
    if lower.contains("transfer-encoding: chunked") {
        while !body.ends_with(b"0\r\n\r\n") {
            body.push(stream.read_u8().await.ok()?);
        }
    } else if let Some((_, rest)) = lower.split_once("content-length: ") {
        let length = rest.split("\r\n").next().unwrap().parse().unwrap();
        body.resize(length, 0);
        stream.read_exact(&mut body).await.ok()?;
    }
    Some((head, body))
}

pub async fn read_head(stream: &mut (impl AsyncRead + Unpin)) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    Some(String::from_utf8(head).unwrap())
}

/// Sends a request and returns the response as text.
pub async fn ask(client: &mut DuplexStream, request: &str) -> String {
    client.write_all(request.as_bytes()).await.unwrap();
    let (head, body) = read_message(client).await.expect("a response");
    head + &String::from_utf8(body).unwrap()
}

/// Returns everything until the end.
pub async fn read_rest(client: &mut DuplexStream) -> String {
    let mut rest = Vec::new();
    let _ = client.read_to_end(&mut rest).await;
    String::from_utf8_lossy(&rest).into_owned()
}

pub const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
