//! The provider in a process of its own: loaded as a builtin into the system's OpenSSL.

mod async_jobs;
mod common;
mod configuration;
mod curves;
mod digest_sign;
mod held;
mod kdf;
mod memory;
mod premaster;
mod signatures;
