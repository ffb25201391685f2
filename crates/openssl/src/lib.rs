//! An OpenSSL provider whose private-key operations and key exchanges can be paused and computed together.
//!
//! It stands on the public provider ABI alone, and before OpenSSL's own default provider: parameters,
//! paddings, checks and errors are the default provider's own. What is taken out, and offered to
//! [`slipstream_offload`], is
//!
//! - the private operation of an RSA signature, and of TLS 1.2's RSA key exchange, with two primes of
//!   equal size and 2048, 3072 or 4096 bits;
//! - key exchange with X25519, P-256 and P-384, and the making of the key pairs for it, ahead;
//! - ECDSA with P-256 and P-384, for which nonces are made ahead;
//!
//! and that where the caller is a job that can be paused: a [fiber](slipstream_offload::fiber) of an
//! event loop, or an `ASYNC_JOB` of OpenSSL. Otherwise, and whenever the flush policy finds software
//! cheaper, the default provider computes it. Key derivation for TLS (TLS13-KDF, HKDF, TLS1-PRF) is
//! computed here for everybody, since it has a shorter path here.
//!
//! A private key can also be [held] by a device: then the key object has only its public half, and no software stands
//! behind the device.
//!
//! # Use
//! As a library, through `OSSL_PROVIDER_add_builtin` with [`NAME`] and [`provider_init`]. As the
//! module `slipstream.so`, through `openssl.cnf`:
//!
//! ```text
//! openssl_conf = openssl_init
//! [openssl_init]
//! providers = providers
//! alg_section = algorithms
//! [providers]
//! default = default_provider
//! slipstream = slipstream_provider
//! [default_provider]
//! activate = 1
//! [slipstream_provider]
//! activate = 1
//! # lanes = auto
//! # flush = cheapest
//! [algorithms]
//! default_properties = ?provider=slipstream
//! ```
//!
//! `lanes` is `auto` (what the CPU offers), `off` (everything in software) or `portable` (lanes
//! without vector instructions: for tests). `flush` says what the instances do that the provider
//! makes for asynchronous jobs: `cheapest` (lanes or software, whichever measures faster), or
//! `always` (lanes even for a single operation: for tests). With any other value the provider
//! offers nothing, and its build information says why, as it does in a static executable, where the
//! process's libcrypto cannot be reached: see `openssl list -providers -verbose`.
//!
//! # Panics
//! Every function that OpenSSL calls is `extern "C"`: a panic in it ends the process and never
//! unwinds into C.

use std::ffi::{c_int, c_void};
use std::time::Duration;

use slipstream_lanes::Backend;
use slipstream_offload::Kind;

mod counts;
mod curve;
mod default_provider;
mod digest;
mod failure;
pub mod ffi;
pub mod held;
mod job;
mod kdf;
mod libcrypto;
mod object;
mod param;
mod provider;
mod rsa;
mod signature;

/// The name of the provider, and the value of the property `provider` of its algorithms.
pub const NAME: &str = "slipstream";

/// The entry point of the provider, `OSSL_provider_init` of `provider(7)`.
///
/// Answers 1 always: where nothing can be offered, everything stays with the default provider, and
/// the parameter `buildinfo` says why.
///
/// # Safety
/// To be called by OpenSSL's core: `core` is its dispatch table, `out` and `context` are room for
/// the answers.
pub unsafe extern "C" fn provider_init(
    handle: *const ffi::CoreHandle,
    core: *const ffi::Dispatch,
    out: *mut *const ffi::Dispatch,
    context: *mut *mut c_void,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { provider::initialise(handle, core, out, context) }
}

/// The backend for keys that are imported from now on, in place of [`Backend::detect`]; `None`
/// leaves them to software. A configuration that says `lanes` is not overruled.
pub fn set_backend(backend: Option<Backend>) {
    provider::set_backend(backend);
}

/// What one operation of `kind` takes in OpenSSL's software on this machine: the least of a few
/// measurements. `None` while the provider is not loaded.
pub fn software_cost(kind: Kind) -> Option<Duration> {
    provider::software_cost(kind)
}

/// Private keys in this process that lanes can compute with. A key that OpenSSL imports again, for
/// another library context, counts again.
pub fn keys_with_lanes() -> u64 {
    counts::KEYS_WITH_LANES.get()
}

/// Private keys in this process that are left to software: of other sizes, with more than two
/// primes, without the values for the Chinese remainder theorem, or for want of lanes.
pub fn keys_without_lanes() -> u64 {
    counts::KEYS_WITHOUT_LANES.get()
}

/// Private operations in this process whose result came from lanes.
pub fn lane_operations() -> u64 {
    counts::LANE_OPERATIONS.get()
}

/// Ephemeral key pairs in this process that had been [made ahead](slipstream_offload::ahead) when they
/// were asked for.
pub fn keys_made_ahead() -> u64 {
    counts::KEYS_MADE_AHEAD.get()
}

/// ECDSA signatures in this process with a nonce that had been made ahead.
pub fn nonces_made_ahead() -> u64 {
    counts::NONCES_MADE_AHEAD.get()
}
