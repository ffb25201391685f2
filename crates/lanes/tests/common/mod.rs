//! Keys from OpenSSL, and OpenSSL's answers to compare with.

use openssl::bn::BigNumRef;
use openssl::pkey::Private;
use openssl::rsa::{Padding, Rsa};
use slipstream_keys::rsa::{Components, PrivateKey};
use slipstream_lanes::Backend;
use slipstream_lanes::rsa::PreparedKey;

/// A key in OpenSSL's form.
pub struct TestKey(pub Rsa<Private>);

impl TestKey {
    pub fn for_backend(&self, backend: Backend) -> PreparedKey {
        let bytes = |number: Option<&BigNumRef>| number.expect("a CRT key").to_vec();
        let components = Components {
            modulus: &self.0.n().to_vec(),
            public_exponent: &self.0.e().to_vec(),
            prime1: &bytes(self.0.p()),
            prime2: &bytes(self.0.q()),
            exponent1: &bytes(self.0.dmp1()),
            exponent2: &bytes(self.0.dmq1()),
            coefficient: &bytes(self.0.iqmp()),
        };
        let key = PrivateKey::new(&components).expect("a sound key");
        PreparedKey::new(backend, &key).expect("an available backend")
    }

    /// `input`^d mod n by OpenSSL.
    pub fn expected(&self, input: &[u8]) -> Vec<u8> {
        let mut output = vec![0; self.0.size() as usize];
        self.0
            .private_decrypt(input, &mut output, Padding::NONE)
            .expect("an input below the modulus");
        output
    }
}
