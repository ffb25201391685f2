//! Signatures: those of the default provider, with offloaded private operations.
//!
//! A context wraps a context of the default provider, which gets every parameter and makes every
//! check. A message is hashed and signed here if accelerators can use the key and the caller is a
//! job whose operations may be offloaded. This is decided when a signature begins, so that all
//! other signatures cost what they cost without this provider. A signature that cannot be made here
//! after all is made by the default provider's `sign` on the same context, which also raises the
//! errors.
//!
//! With a private key that a device [holds](crate::held) every message is hashed here, and only the
//! device can sign it.

mod algorithm;
mod context;
mod functions;

pub(crate) use algorithm::Algorithm;
pub(crate) use functions::{FunctionTable, functions};
