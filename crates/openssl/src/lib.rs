//! An OpenSSL provider that offloads private-key operations and key exchanges of TLS.
//!
//! The provider wraps OpenSSL's default provider, through the public provider ABI only. It takes
//! these operations out of the default provider, and offers them to [`slipstream_offload`]:
//!
//! - the private operation of RSA, with two primes of equal size and 2048, 3072 or 4096 bits: for
//!   signatures, and for the RSA key exchange of TLS 1.2;
//! - key exchange with X25519, P-256 and P-384, and the generation of ephemeral key pairs, which
//!   can be precomputed;
//! - ECDSA with P-256 and P-384, with nonces that can be precomputed.
//!
//! An operation is offloaded if its caller is a job that can be paused: a
//! [fiber](slipstream_offload::fiber) of an event loop, or an `ASYNC_JOB` of OpenSSL. All other
//! operations, and those for which the scheduler finds software cheaper, are left to the default
//! provider. Key derivation for TLS (TLS13-KDF, HKDF, TLS1-PRF) is computed here for all callers,
//! since the path is shorter here.
//!
//! A device can also [hold](held) a private key. Then the key object has the public half only, and
//! software cannot stand in for the device.
//!
//! The crate is not an implementation of TLS or of its cryptography: parameters, paddings, checks
//! and errors are those of the default provider, and accelerators compute the operations. It does
//! not make instances for event loops, which do so themselves, and is not the loadable module:
//! `slipstream-openssl-module` is.
//!
//! # Use
//! As a library: call `OSSL_PROVIDER_add_builtin` with [`NAME`] and [`provider_init`]. As the
//! module `slipstream.so`: configure it in `openssl.cnf`:
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
//! `lanes` is one of
//!
//! - `auto`: the accelerators that were [chosen](set_accelerators), or else the lanes of the CPU;
//! - `off`: software only;
//! - `portable`: lanes without vector instructions, for tests.
//!
//! `flush` is the flush policy of instances that the provider makes for asynchronous jobs. It is
//! one of
//!
//! - `cheapest`: lanes or software, whichever costs less by measurement;
//! - `always`: lanes even for a single operation, for tests.
//!
//! With any other value the provider offers nothing, and its build information says why: see
//! `openssl list -providers -verbose`. It also offers nothing in a static executable, since it
//! cannot find the functions of libcrypto there.
//!
//! # Panics
//! Every function that OpenSSL calls is `extern "C"`: a panic in it ends the process and never
//! unwinds into C.

use std::ffi::{c_int, c_void};
use std::time::Duration;

use slipstream_offload::Kind;

pub use accelerators::Accelerators;

mod accelerators;
mod configuration;
mod counters;
mod curve;
mod default_provider;
mod digest;
mod failure;
pub mod ffi;
mod group;
mod hasher;
pub mod held;
mod job;
mod kdf;
mod libcrypto;
mod loaded;
mod object;
mod param;
mod provider;
mod rsa;
mod signature;
mod software_cost;

/// The name of the provider, and the value of the property `provider` of its algorithms.
pub const NAME: &str = "slipstream";

/// The entry point of the provider: `OSSL_provider_init` of `provider(7)`.
///
/// It always returns 1. If nothing can be offered, all operations are left to the default provider,
/// and the parameter `buildinfo` says why.
///
/// # Safety
/// The caller must be OpenSSL's core: `core` is its dispatch table, and `out` and `context` can be
/// written.
pub unsafe extern "C" fn provider_init(
    handle: *const ffi::CoreHandle,
    core: *const ffi::Dispatch,
    out: *mut *const ffi::Dispatch,
    context: *mut *mut c_void,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { provider::initialise(handle, core, out, context) }
}

/// Sets the accelerators that the instances of this process have, in place of the lanes of the CPU.
/// Keys that are imported later are prepared for them. A configuration with `lanes = off` or
/// `lanes = portable` takes precedence.
///
/// Returns the choice before, which the caller can set again if the new one is not used after all;
/// `None` if there was none.
pub fn set_accelerators(accelerators: Option<Accelerators>) -> Option<Accelerators> {
    accelerators::set_accelerators(accelerators)
}

/// Measures one operation of `kind` in OpenSSL's software a few times, and returns the least cost.
/// `None` if the provider is not loaded, or operations of this kind are not measured.
#[must_use]
pub fn software_cost(kind: Kind) -> Option<Duration> {
    loaded::software_cost(kind)
}

/// The number of private keys in this process that accelerators can compute with. A key that
/// OpenSSL imports again, for another library context, counts again.
#[must_use]
pub fn keys_with_lanes() -> u64 {
    counters::KEYS_FOR_ACCELERATORS.get()
}

/// The number of private keys in this process that are left to software: keys of other sizes, with
/// more than two primes, or without the values for the Chinese remainder theorem, and all keys if
/// there is no accelerator for them.
#[must_use]
pub fn keys_without_lanes() -> u64 {
    counters::KEYS_LEFT_TO_SOFTWARE.get()
}

/// The number of operations in this process that an accelerator computed while their caller was
/// paused.
#[must_use]
pub fn lane_operations() -> u64 {
    counters::OFFLOADED_OPERATIONS.get()
}

/// The number of ephemeral key pairs in this process that were precomputed.
#[must_use]
pub fn precomputed_keys() -> u64 {
    counters::PRECOMPUTED_KEYS.get()
}

/// The number of ECDSA signatures in this process that were made with a precomputed nonce.
#[must_use]
pub fn precomputed_nonces() -> u64 {
    counters::PRECOMPUTED_NONCES.get()
}
