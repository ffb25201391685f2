//! Transcript hashes and key derivation: the PRF of TLS 1.2 (RFC 5246 section 5) and HKDF as TLS
//! 1.3 uses it (RFC 5869, RFC 8446 section 7.1).

use openssl::sha::{Sha256, Sha384};
use slipstream_testbed::suite::Hash;

/// The longest hash, in bytes.
pub(super) const MAX_HASH: usize = 48;
/// The longest block that a hash works on, in bytes.
const MAX_BLOCK: usize = 128;

/// A running hash.
#[derive(Clone)]
pub(super) enum Hasher {
    Sha256(Sha256),
    Sha384(Sha384),
}

impl Hasher {
    pub(super) fn new(hash: Hash) -> Hasher {
        // The functions below fetch nothing: going through EVP would double the cost of these small
        // inputs.
        match hash {
            Hash::Sha256 => Hasher::Sha256(Sha256::new()),
            Hash::Sha384 => Hasher::Sha384(Sha384::new()),
        }
    }

    pub(super) fn update(&mut self, bytes: &[u8]) {
        match self {
            Hasher::Sha256(state) => state.update(bytes),
            Hasher::Sha384(state) => state.update(bytes),
        }
    }

    pub(super) fn finish(self) -> Value {
        match self {
            Hasher::Sha256(state) => Value::new(&state.finish()),
            Hasher::Sha384(state) => Value::new(&state.finish()),
        }
    }

    /// The hash of what has been put in so far.
    pub(super) fn current(&self) -> Value {
        self.clone().finish()
    }
}

/// A hash or a secret of a hash's length.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Value {
    bytes: [u8; MAX_HASH],
    length: usize,
}

impl Value {
    fn new(bytes: &[u8]) -> Value {
        let mut value = Value {
            bytes: [0; MAX_HASH],
            length: bytes.len(),
        };
        value.bytes[..bytes.len()].copy_from_slice(bytes);
        value
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// HMAC (RFC 2104) over the concatenation of `parts`.
pub(super) fn hmac(hash: Hash, key: &[u8], parts: &[&[u8]]) -> Value {
    let block = match hash {
        Hash::Sha256 => 64,
        Hash::Sha384 => MAX_BLOCK,
    };
    let mut padded = [0; MAX_BLOCK];
    if key.len() > block {
        let mut hasher = Hasher::new(hash);
        hasher.update(key);
        let hashed = hasher.finish();
        padded[..hashed.length].copy_from_slice(hashed.as_bytes());
    } else {
        padded[..key.len()].copy_from_slice(key);
    }
    let digest = |pad: u8, parts: &[&[u8]]| {
        let mut hasher = Hasher::new(hash);
        hasher.update(&padded.map(|byte| byte ^ pad)[..block]);
        parts.iter().for_each(|part| hasher.update(part));
        hasher.finish()
    };
    let inner = digest(0x36, parts);
    digest(0x5c, &[inner.as_bytes()])
}

/// The pseudorandom function of TLS 1.2 (RFC 5246 section 5), filling `output`.
pub(super) fn prf(hash: Hash, secret: &[u8], label: &[u8], seed: &[&[u8]], output: &mut [u8]) {
    let mut labelled = vec![label];
    labelled.extend_from_slice(seed);
    let mut a = hmac(hash, secret, &labelled);
    for chunk in output.chunks_mut(a.length) {
        let mut parts = vec![a.as_bytes()];
        parts.extend_from_slice(&labelled);
        let block = hmac(hash, secret, &parts);
        chunk.copy_from_slice(&block.as_bytes()[..chunk.len()]);
        a = hmac(hash, secret, &[a.as_bytes()]);
    }
}

/// HKDF-Extract (RFC 5869 section 2.2).
pub(super) fn extract(hash: Hash, salt: &[u8], input: &[u8]) -> Value {
    hmac(hash, salt, &[input])
}

/// HKDF-Expand-Label (RFC 8446 section 7.1) for at most a hash's length of `output`.
pub(super) fn expand_label(
    hash: Hash,
    secret: &Value,
    label: &str,
    context: &[u8],
    output: &mut [u8],
) {
    assert!(output.len() <= secret.length, "one block is derived");
    let length = u16::try_from(output.len())
        .expect("at most a hash")
        .to_be_bytes();
    let label_length = u8::try_from(6 + label.len()).expect("labels are short");
    let context_length = u8::try_from(context.len()).expect("at most a hash");
    let block = hmac(
        hash,
        secret.as_bytes(),
        &[
            &length,
            &[label_length],
            b"tls13 ",
            label.as_bytes(),
            &[context_length],
            context,
            &[1],
        ],
    );
    output.copy_from_slice(&block.as_bytes()[..output.len()]);
}

/// Derive-Secret (RFC 8446 section 7.1) of a transcript that has been hashed.
pub(super) fn derive_secret(hash: Hash, secret: &Value, label: &str, transcript: &Value) -> Value {
    let mut derived = *secret;
    let length = derived.length;
    expand_label(
        hash,
        secret,
        label,
        transcript.as_bytes(),
        &mut derived.bytes[..length],
    );
    derived
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        (0..text.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
            .collect()
    }

    #[test]
    fn hmac_of_rfc_4231() {
        // Test cases 2 and 6: a short key, and one longer than the block.
        let value = hmac(
            Hash::Sha256,
            b"Jefe",
            &[b"what do ya want ", b"for nothing?"],
        );
        assert_eq!(
            value.as_bytes(),
            hex("5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843")
        );
        let value = hmac(
            Hash::Sha384,
            &[0xaa; 131],
            &[b"Test Using Larger Than Block-Size Key - Hash Key First"],
        );
        assert_eq!(
            value.as_bytes(),
            hex(
                "4ece084485813e9088d2c63a041bc5b44f9ef1012a2b588f3cd11f05033ac4c6\
                 0c2ef6ab4030fe8296248df163f44952"
            )
        );
    }

    #[test]
    fn key_schedule_of_rfc_8448() {
        // Section 3: the derived secret and the handshake secret of the simple 1-RTT handshake.
        let hash = Hash::Sha256;
        let early = extract(hash, &[0; 32], &[0; 32]);
        assert_eq!(
            early.as_bytes(),
            hex("33ad0a1c607ec03b09e6cd9893680ce210adf300aa1f2660e1b22e10f170f92a")
        );
        let derived = derive_secret(hash, &early, "derived", &Hasher::new(hash).finish());
        assert_eq!(
            derived.as_bytes(),
            hex("6f2615a108c702c5678f54fc9dbab69716c076189c48250cebeac3576c3611ba")
        );
        let shared = hex("8bd4054fb55b9d63fdfbacf9f04b9f0d35e6d63f537563efd46272900f89492d");
        assert_eq!(
            extract(hash, derived.as_bytes(), &shared).as_bytes(),
            hex("1dc826e93606aa6fdc0aadc12f741b01046aa6b99f691ed221a9f0ca043fbeac")
        );
    }
}
