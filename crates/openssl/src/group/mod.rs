//! The groups that accelerators compute with: their properties in OpenSSL, and keys as bytes.

mod bytes;
mod facts;

pub(crate) use bytes::{Bytes, empty_key};
pub(crate) use facts::{facts, from_name};
