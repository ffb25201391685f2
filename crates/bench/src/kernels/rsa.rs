//! RSA's private-key operation in both libraries.

use std::hint::black_box;

use openssl::pkey::Private;
use openssl::rsa::{Padding, Rsa};
use slipstream_keys::rsa::{Components, PrivateKey, Size};
use slipstream_lanes::Backend;
use slipstream_lanes::rsa::{self, PreparedKey, Workspace, private_operations};

use super::Subject;
use crate::Error;

/// One key in both libraries, with a message.
pub(super) struct PrivateOperation {
    libcrypto: Rsa<Private>,
    lanes: PreparedKey,
    workspace: Box<Workspace>,
    input: Vec<u8>,
    outputs: Vec<Vec<u8>>,
    expected: Vec<u8>,
}

impl PrivateOperation {
    pub(super) fn new(
        backend: Backend,
        size: Size,
        live_lanes: usize,
    ) -> Result<PrivateOperation, Error> {
        let bits = u32::try_from(size.bits()).expect("a few thousand");
        let libcrypto = Rsa::generate(bits).map_err(Error::openssl("cannot generate a key"))?;
        let lanes = lanes_key(backend, &libcrypto)?;
        // Any number below the modulus, whose highest bit is set.
        let input: Vec<u8> = (0..size.bytes()).map(|index| index as u8 & 0x7f).collect();
        Ok(PrivateOperation {
            libcrypto,
            lanes,
            workspace: Workspace::new(),
            input,
            outputs: vec![vec![0; size.bytes()]; live_lanes],
            expected: vec![0; size.bytes()],
        })
    }
}

impl Subject for PrivateOperation {
    fn run_lanes(&mut self) -> Result<(), Error> {
        let mut operations: Vec<rsa::PrivateOperation<'_>> = self
            .outputs
            .iter_mut()
            .map(|output| rsa::PrivateOperation {
                key: &self.lanes,
                input: black_box(&self.input),
                output,
            })
            .collect();
        let (backend, size) = (self.lanes.backend(), self.lanes.size());
        private_operations(backend, &mut self.workspace, size, &mut operations)
            .iter()
            .try_for_each(|outcome| outcome.map_err(Error::lanes))
    }

    fn run_libcrypto(&mut self) -> Result<(), Error> {
        self.libcrypto
            .private_decrypt(black_box(&self.input), &mut self.expected, Padding::NONE)
            .map(drop)
            .map_err(Error::openssl("libcrypto's private-key operation failed"))
    }

    /// Also warms both up: libcrypto prepares its Montgomery contexts and its blinding with a key's
    /// first operation.
    fn agrees(&mut self) -> Result<bool, Error> {
        self.run_libcrypto()?;
        self.run_lanes()?;
        Ok(self.outputs.iter().all(|output| *output == self.expected))
    }
}

fn lanes_key(backend: Backend, key: &Rsa<Private>) -> Result<PreparedKey, Error> {
    let bytes = |number: Option<&openssl::bn::BigNumRef>| {
        number.map_or_else(Vec::new, openssl::bn::BigNumRef::to_vec)
    };
    let key = PrivateKey::new(&Components {
        modulus: &key.n().to_vec(),
        public_exponent: &key.e().to_vec(),
        prime1: &bytes(key.p()),
        prime2: &bytes(key.q()),
        exponent1: &bytes(key.dmp1()),
        exponent2: &bytes(key.dmq1()),
        coefficient: &bytes(key.iqmp()),
    })
    .map_err(Error::lanes)?;
    PreparedKey::new(backend, &key).map_err(Error::lanes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_result_is_not_measured() {
        let mut subject = PrivateOperation::new(Backend::Portable, Size::Rsa2048, 1).unwrap();
        assert!(subject.agrees().unwrap());
        subject.libcrypto = Rsa::generate(2048).unwrap();
        assert!(!subject.agrees().unwrap());
    }
}
