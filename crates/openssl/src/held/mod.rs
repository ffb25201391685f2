//! Private keys that a device holds.
//!
//! Such a key of OpenSSL has the public half and a [handle](slipstream_keys::Handle). To its users
//! it is a key pair. [`key_with_handle`] makes one: it calls `EVP_PKEY_fromdata` for a key of this
//! provider (`provider=slipstream`), with the public parameters of an RSA or EC key and the
//! unsigned integer `slipstream-handle`.
//!
//! The key signs and decrypts at the device, through the thread's
//! [instance](slipstream_offload::instance). A caller on a fiber is paused meanwhile, if it may be;
//! any other caller blocks. Software does not have the key: without an answer from the device, the
//! operation fails.

mod handle;
mod key;
mod original;
mod parts;

pub(crate) use handle::{PARAMETER, public_half, reference};
pub use key::key_with_handle;
pub use parts::{PrivateParts, private_parts};
