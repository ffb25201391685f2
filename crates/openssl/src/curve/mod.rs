//! Key exchange and ECDSA on the curves that lanes offer: X25519, P-256 and P-384.
//!
//! A key of ours is either the bytes of one of these groups, from a pool or from the peer of a handshake, or a
//! key of the default provider; from the one the other is made when it is needed. What happens for a TLS key share
//! in a job whose server takes part needs no key of the default provider: two keys, an exchange in lanes. All other
//! keys are the default provider's from the beginning, and so is all that is done with them: other curves,
//! compressed points, explicit parameters, export.

mod capability;
mod exchange;
mod generation;
mod group;
mod key;
mod keymgmt;
mod material;
mod signature;
mod types;

use std::ffi::CStr;
use std::time::Duration;

use slipstream_offload::ahead::Group;
use slipstream_offload::calibration::{self, example_point};
use slipstream_offload::request::Operand;

use crate::default_provider::DefaultProvider;
use crate::ffi::{self, Dispatch, Table};
use crate::object::DefaultObject;
pub(crate) use capability::get_capabilities;
use group::facts;
use material::Bytes;

/// As OpenSSL calls the key management, and the exchange, of X25519.
pub(crate) const X25519_NAMES: &CStr = c"X25519:1.3.101.110";
/// As OpenSSL calls the key management of all curves of X9.62.
pub(crate) const EC_NAMES: &CStr = c"EC:id-ecPublicKey:1.2.840.10045.2.1";
/// As OpenSSL calls the exchange with these.
pub(crate) const ECDH_NAME: &CStr = c"ECDH";
/// As OpenSSL calls the signatures with these.
pub(crate) const ECDSA_NAME: &CStr = c"ECDSA";

/// The functions of `OSSL_OP_KEYMGMT`, for OpenSSL.
type KeymgmtTable = Table<Dispatch, { ffi::Keymgmt::LENGTH }>;
/// The functions of `OSSL_OP_KEYEXCH`, for OpenSSL.
type KeyexchTable = Table<Dispatch, { ffi::Keyexch::LENGTH }>;

pub(crate) static X25519_KEYMGMT: KeymgmtTable = keymgmt::functions::<X25519>();
pub(crate) static EC_KEYMGMT: KeymgmtTable = keymgmt::functions::<Ec>();
pub(crate) static X25519_KEYEXCH: KeyexchTable = exchange::functions::<X25519>();
pub(crate) static ECDH: KeyexchTable = exchange::functions::<Ec>();
pub(crate) static ECDSA: crate::signature::FunctionTable =
    crate::signature::functions::<signature::Ecdsa>();

/// The default provider's functions.
pub(crate) struct Functions {
    pub(crate) x25519: Exchange,
    pub(crate) ec: Exchange,
    pub(crate) ecdsa: ffi::Signature,
}

/// The default provider's functions for one key type.
pub(crate) struct Exchange {
    pub(crate) keymgmt: ffi::Keymgmt,
    pub(crate) keyexch: ffi::Keyexch,
}

/// A key type of OpenSSL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    X25519,
    Ec,
}

impl Family {
    /// The default provider's functions; `None` if curves are not offered.
    fn functions(self, default: &DefaultProvider) -> Option<&Exchange> {
        let functions = default.curves.as_ref()?;
        Some(match self {
            Self::X25519 => &functions.x25519,
            Self::Ec => &functions.ec,
        })
    }
}

/// A [`Family`] as a type, for what OpenSSL calls without an object.
trait KeyType: 'static {
    const FAMILY: Family;
}

struct X25519;
struct Ec;

impl KeyType for X25519 {
    const FAMILY: Family = Family::X25519;
}

impl KeyType for Ec {
    const FAMILY: Family = Family::Ec;
}

/// What one exchange that has been handed back takes in the default provider, which first has to be given both keys:
/// the least of a few measurements.
pub(crate) fn software_cost(default: &DefaultProvider, group: Group) -> Option<Duration> {
    let facts = facts(group);
    let public = match facts.curve {
        Some(curve) => Operand::new(&example_point(curve)),
        None => Operand::new(&[9; 32]),
    };
    let peer = Bytes {
        group,
        private: None,
        public: Some(public),
    };
    let own = Bytes {
        // The scalar's value does not matter, nor that the public key belongs to another one.
        private: Some(Operand::new(&[1; 48][..facts.private_bytes])),
        ..peer.clone()
    };
    let mut succeeded = true;
    let cost = calibration::least(|| {
        succeeded &= exchange_in_software(default, &own, &peer).is_some();
    });
    succeeded.then_some(cost)
}

fn exchange_in_software(default: &DefaultProvider, own: &Bytes, peer: &Bytes) -> Option<Operand> {
    let functions = &facts(own.group).family.functions(default)?.keyexch;
    let (own, peer) = (own.import(default)?, peer.import(default)?);
    let mut secret = Operand::zeroed(48);
    let room = secret.as_slice().len();
    let mut length = 0;
    // SAFETY: a context and keys of the default provider; no parameters, and room as long as said.
    let derived = unsafe {
        let context = (functions.newctx)(default.context);
        let context = DefaultObject::own(context, functions.freectx)?;
        (functions.init)(context.as_ptr(), own.as_ptr(), std::ptr::null()) == 1
            && (functions.set_peer)(context.as_ptr(), peer.as_ptr()) == 1
            && {
                let secret = secret.as_mut_slice().as_mut_ptr();
                (functions.derive)(context.as_ptr(), secret, &mut length, room) == 1
            }
    };
    derived.then_some(secret)
}
