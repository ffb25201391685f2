//! What is done with connections, with real sockets on the backends' side.

mod files;
mod health;
mod limits;
mod proxied;
mod proxy_header;
mod retries;
mod support;
mod tcp;
