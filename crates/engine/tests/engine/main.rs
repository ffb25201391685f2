//! The engine and its clients: real sockets, real threads, real processes.

mod aggregation;
mod batches;
mod client;
mod compression;
mod content;
#[cfg(feature = "system-openssl")]
mod device;
mod fairness;
mod hostile;
mod keys;
mod killed;
mod lifecycle;
#[cfg(feature = "system-openssl")]
mod nonsense;
#[cfg(feature = "system-openssl")]
mod operations;
mod pace;
mod processes;
mod sessions;
mod users;
