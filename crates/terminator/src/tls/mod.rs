//! TLS with rustls: [certificates], the [settings] of a listener, files in [pem], [handshakes](handshake), and the [stream] that is left after one.

pub(crate) mod certificates;
pub(crate) mod handshake;
mod linger;
pub(crate) mod pem;
pub(crate) mod private_key;
pub(crate) mod settings;
pub(crate) mod stream;
