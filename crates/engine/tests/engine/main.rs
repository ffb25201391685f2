//! The engine and its clients: real sockets, real threads, real processes.

mod client;
mod keys;
mod operations;
