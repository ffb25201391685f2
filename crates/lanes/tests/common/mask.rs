//! The mask of RSA-OAEP and RSASSA-PSS.

use openssl::hash::{MessageDigest, hash};

/// MGF1 (RFC 8017, appendix B.2.1).
pub fn mgf1(seed: &[u8], length: usize, digest: MessageDigest) -> Vec<u8> {
    (0_u32..)
        .flat_map(|counter| {
            let input = [seed, &counter.to_be_bytes()].concat();
            hash(digest, &input).expect("a hash").to_vec()
        })
        .take(length)
        .collect()
}

/// `a` and `b` bit by bit, as long as the shorter.
pub fn exclusive_or(a: &[u8], b: &[u8]) -> Vec<u8> {
    a.iter().zip(b).map(|(a, b)| a ^ b).collect()
}
