//! The engine and its clients: real sockets, real threads, real processes.

mod aggregation;
mod batches;
mod client;
mod compression;
mod content;
mod device;
mod fairness;
mod hostile;
mod keys;
mod killed;
mod lifecycle;
mod nonsense;
mod operations;
mod pace;
mod processes;
mod users;
