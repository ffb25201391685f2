//! Keys and the bytes that go with them, for every crate that signs, agrees on keys or computes
//! such operations.
//!
//! A private key is a value ([`rsa::PrivateKey`], [`ec::PrivateKey`]) or a [`Reference`] to
//! accelerators that hold it; [`Key`] is either. A value carries the [`Forms`] that accelerators
//! have prepared of it, so that these live and die with the key. [`Operand`]s are short inputs and
//! outputs, [`encoding`] turns a hash into the input of a private-key operation, and [`scrub`]
//! finds and wipes copies of a key that is no longer needed.
//!
//! The crate computes nothing with keys, and it knows no accelerator, no TLS library and no server.
//!
//! ```
//! use slipstream_keys::ec::{Curve, KeyError, PrivateKey};
//!
//! let key = PrivateKey::new(Curve::P256, &[7; 32])?;
//! assert_eq!(key.curve().point_bytes(), 65);
//! // The order of the curve is the least scalar that is too large.
//! assert_eq!(PrivateKey::new(Curve::P256, &[0xff; 32]).err(), Some(KeyError::OutOfRange));
//! # Ok::<(), KeyError>(())
//! ```

pub mod ec;
pub mod encoding;
pub mod example;
#[cfg(any(test, feature = "fork-test"))]
pub mod fork_test;
mod forms;
mod group;
pub mod integer;
mod key;
mod operand;
pub mod pages;
pub mod rsa;
pub mod scrub;
#[cfg(any(test, feature = "stack-test"))]
pub mod stack_test;

pub use forms::Forms;
pub use group::{Group, KeyPair};
pub use key::{Handle, Key, KeyError, KeyParts, PrivateKey, Reference, Value};
pub use operand::{OPERAND_BYTES, Operand};
