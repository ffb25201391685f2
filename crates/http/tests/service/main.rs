//! Services with real sockets to their backends.

mod files;
mod health;
mod identity;
mod limits;
mod places;
mod proxied;
mod proxy_header;
mod retries;
mod support;
mod tcp;
mod unread;
