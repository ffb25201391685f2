//! The mask of RSA-OAEP and RSASSA-PSS.

/// A hash function.
pub type Hash = fn(&[u8]) -> Vec<u8>;

/// MGF1 (RFC 8017, appendix B.2.1).
pub fn mgf1(seed: &[u8], length: usize, hash: Hash) -> Vec<u8> {
    (0_u32..)
        .flat_map(|counter| {
            let input = [seed, &counter.to_be_bytes()].concat();
            hash(&input)
        })
        .take(length)
        .collect()
}

/// `a` and `b` bit by bit, as long as the shorter.
pub fn exclusive_or(a: &[u8], b: &[u8]) -> Vec<u8> {
    a.iter().zip(b).map(|(a, b)| a ^ b).collect()
}
