//! A TLS client that does handshakes and little else, as cheaply as it can.
//!
//! A load generator must cost a fraction of the server it measures. OpenSSL's client costs about as
//! much as the server: it parses the certificate, builds a chain, verifies signatures, and fetches
//! every algorithm anew. This one does what the protocol needs for the server's work to be real,
//! and checks that it was: the server's Finished message has to be right, which proves the whole
//! transcript and every secret.
//!
//! **It is no client for anything but measuring.** It never looks at whom it talks to, and what can
//! be shared between connections is shared: the ephemeral keys ([`exchange`], [`mlkem`]), one
//! premaster secret per certificate, one session to resume.
//!
//! It does no I/O: [`Session::receive`] takes what came from the socket, [`Session::outgoing`] is
//! what to send.

mod exchange;
mod hello;
mod keys;
mod mlkem;
mod record;
mod resumption;
mod session;
mod tls12;
mod tls13;

pub(super) use session::{Client, Session};

use openssl::error::ErrorStack;

/// Why a session failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    /// The server sent a fatal alert (RFC 8446 section 6 lists the numbers).
    #[error("the server sent alert {0}")]
    Alert(u8),
    /// A message did not follow the protocol or was not what was offered.
    #[error("unexpected answer: {0}")]
    Protocol(&'static str),
    /// A record could not be decrypted or a key not be used.
    #[error("cryptography: {0}")]
    Cryptography(#[from] ErrorStack),
    /// The server's Finished message is wrong.
    #[error("the server's Finished message is wrong")]
    Finished,
}
