//! The module in the `openssl` command, loaded through a configuration file: every result is
//! checked by the same command without it, and the other way round.

mod curves;
mod processes;
mod provider;
mod rsa;
mod workshop;
