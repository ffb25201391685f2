//! Handshakes with a TLS server, several at a time.

use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use openssl::ssl::{Ssl, SslContext, SslMethod, SslVerifyMode};

use crate::Error;

const TIMEOUT: Duration = Duration::from_secs(10);

/// Makes `count` full handshakes with the server at `address`, all at once, without a check of its
/// certificate, and asks for `name`. Returns the protocol of each.
///
/// # Errors
/// The first handshake that failed, with the reason: [`Error::Io`], [`Error::OpenSsl`].
pub fn handshakes(address: SocketAddr, name: &str, count: usize) -> Result<Vec<String>, Error> {
    let mut builder = SslContext::builder(SslMethod::tls_client())
        .map_err(Error::openssl("cannot make a TLS client"))?;
    builder.set_verify(SslVerifyMode::NONE);
    let context = builder.build();
    // All are connected before the first says anything, so that the server has them together.
    let sockets = (0..count).map(|_| connect(address));
    let sockets: Vec<TcpStream> = sockets.collect::<Result<_, _>>()?;
    std::thread::scope(|scope| {
        let clients: Vec<_> = sockets
            .into_iter()
            .map(|socket| scope.spawn(|| handshake(&context, name, socket)))
            .collect();
        let outcomes = clients.into_iter().map(|client| {
            let outcome = client.join().expect("a client does not panic");
            outcome.map_err(Error::io(format!("cannot make a handshake with {address}")))
        });
        outcomes.collect()
    })
}

fn connect(address: SocketAddr) -> Result<TcpStream, Error> {
    let socket = TcpStream::connect_timeout(&address, TIMEOUT);
    socket.map_err(Error::io(format!("cannot connect to {address}")))
}

fn handshake(context: &SslContext, name: &str, socket: TcpStream) -> std::io::Result<String> {
    socket.set_read_timeout(Some(TIMEOUT))?;
    socket.set_write_timeout(Some(TIMEOUT))?;
    let mut ssl = Ssl::new(context).map_err(std::io::Error::other)?;
    ssl.set_hostname(name).map_err(std::io::Error::other)?;
    let stream = ssl.connect(socket).map_err(std::io::Error::other)?;
    Ok(stream.ssl().version_str().to_owned())
}
