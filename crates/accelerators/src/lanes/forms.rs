//! The forms of keys that lanes compute with, kept with the keys.

use std::sync::OnceLock;

use slipstream_keys::{PrivateKey, Value, ec, rsa};
use slipstream_lanes::rsa::PreparedKey;
use slipstream_lanes::{Backend, ec as lanes_ec};

/// Prepares `key` for lanes of `backend`, so that no operation has to. Processes that are forked
/// later inherit the form. It is wiped with the key.
///
/// Returns false if `backend` does not compute with such keys here.
pub fn prepare(backend: Backend, key: &PrivateKey) -> bool {
    match key {
        PrivateKey::Rsa(key) => rsa_form(backend, key).is_some(),
        PrivateKey::Ec(key) => {
            let is_offered = lanes_ec::offered(backend) && backend.is_available();
            if is_offered {
                ec_form(key);
            }
            is_offered
        }
    }
}

/// The form of an RSA key for `backend`; `None` if this CPU does not have the backend.
pub(super) fn rsa_form(backend: Backend, key: &rsa::PrivateKey) -> Option<&PreparedKey> {
    let forms = key.forms().get_or_make(RsaForms::default);
    let form = &forms.0[backend as usize];
    form.get_or_init(|| PreparedKey::new(backend, key).ok())
        .as_ref()
}

/// The form of a key on a curve, the same for all backends.
pub(super) fn ec_form(key: &ec::PrivateKey) -> &lanes_ec::PreparedKey {
    key.forms().get_or_make(|| lanes_ec::PreparedKey::new(key))
}

/// By the number of the backend.
#[derive(Default)]
struct RsaForms([OnceLock<Option<PreparedKey>>; Backend::ALL.len()]);
