//! The lanes of this CPU: up to eight operations of one kind at once in AVX-512 vectors, on the
//! thread that polls.
//!
//! [`Lanes`] is the accelerator. It runs a batch when eight operations of a kind wait, and what is
//! left when the event loop would sleep, if that is cheaper than software by the [`LaneCosts`] that
//! [`calibrate`] has measured. Ephemeral key pairs, and the part of an ECDSA signature that does
//! not depend on the message, are [precomputed] eight at a time.
//!
//! Lanes compute with a form of a key of their own, which is kept with the key
//! ([`Forms`](slipstream_keys::Forms)): [`prepare`] makes it, before fork.

mod accelerator;
pub mod batch;
mod calibration;
mod flush;
mod forms;
mod key_pair;
mod known_answers;
pub mod machine;
pub mod nonce;
mod pool;
pub mod precomputed;
mod stock;

use slipstream_keys::Group;
use slipstream_lanes::{ec, x25519};
use slipstream_offload::Kind;

pub use accelerator::{Lanes, Options};
pub use calibration::{BatchCost, LaneCosts, Measured, calibrate, precomputed_cost};
pub use forms::prepare;
pub use key_pair::draw;
pub use known_answers::prove;
pub use slipstream_lanes::ec::check_point;
pub use slipstream_lanes::rsa::Workspace;
pub use slipstream_lanes::{Backend, LANES};

/// Returns true if `backend` computes operations of `kind`, and [`prove`] has not found that it does
/// so wrongly.
pub fn computes(backend: Backend, kind: Kind) -> bool {
    is_offered(backend, kind) && !known_answers::has_failed(backend, kind)
}

/// Returns true if there is a kernel of `backend` for operations of `kind`.
fn is_offered(backend: Backend, kind: Kind) -> bool {
    match kind {
        Kind::Rsa(_) => true,
        Kind::X25519 | Kind::KeyPair(Group::X25519) => x25519::offered(backend),
        Kind::Ecdh(_) | Kind::Ecdsa(_) | Kind::KeyPair(Group::P256 | Group::P384) => {
            ec::offered(backend)
        }
        Kind::Compress(_) => false,
    }
}
