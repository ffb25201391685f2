//! TLS with rustls: [certificates], [settings] of listeners, [backends] with TLS, PEM files
//! ([pem]), [handshakes](handshake) and the [stream] after a handshake.

pub(crate) mod backends;
pub(crate) mod certificates;
pub(crate) mod error;
pub(crate) mod handshake;
mod linger;
pub(crate) mod pem;
pub(crate) mod private_key;
pub(crate) mod settings;
pub(crate) mod stream;
