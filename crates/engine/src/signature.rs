//! The residues that a key which only signs is used with: complete encodings of digests.
//!
//! An encoding fixes all bytes of a residue but those of a digest and a salt, so neither a
//! ciphertext of RSA key exchange nor one that has been blinded is ever taken for one: of 2^1000
//! residues of 2048 bits, fewer than one is an encoding. That holds whatever the client chooses, so
//! it need not be trusted to encode, and the engine need not know the digest.

use sha2::digest::FixedOutputReset;
use sha2::{Digest, Sha256, Sha384, Sha512};
use slipstream_accelerators::engine::protocol::policy::Policy;
use slipstream_keys::encoding::digest_info;

/// DigestInfo up to the hash, and the length of the hash in bytes. The last is that of TLS 1.0 (RFC
/// 4346, section 7.4.3): MD5 and SHA-1 one after the other, without a DigestInfo.
static DIGESTS: [(&[u8], usize); 6] = [
    (digest_info::SHA256, 32),
    (digest_info::SHA384, 48),
    (digest_info::SHA512, 64),
    (digest_info::SHA224, 28),
    (digest_info::SHA1, 20),
    (&[], 36),
];

/// Returns true if `policy` allows the private exponentiation of `residue`, which is as long as the
/// modulus.
pub(crate) fn is_allowed(policy: Policy, residue: &[u8]) -> bool {
    if policy.allows(Policy::ANYTHING) {
        return true;
    }
    let is_pkcs1 = || {
        DIGESTS
            .iter()
            .any(|(info, hash)| is_pkcs1(residue, info, *hash))
    };
    let is_pss =
        || is_pss::<Sha256>(residue) || is_pss::<Sha384>(residue) || is_pss::<Sha512>(residue);
    policy.allows(Policy::PSS) && is_pss() || policy.allows(Policy::PKCS1) && is_pkcs1()
}

/// EMSA-PKCS1-v1_5 (RFC 8017, section 9.2): 00 01 FF..FF 00, `info`, and a hash of any value.
fn is_pkcs1(residue: &[u8], info: &[u8], hash_bytes: usize) -> bool {
    let tail = info.len() + hash_bytes;
    let Some(padding) = residue
        .len()
        .checked_sub(3 + tail)
        .filter(|&bytes| bytes >= 8)
    else {
        return false;
    };
    let (head, rest) = residue.split_at(2);
    let (padding, rest) = rest.split_at(padding);
    head == [0, 1]
        && padding.iter().all(|&byte| byte == 0xff)
        && rest[0] == 0
        && rest[1..].starts_with(info)
}

/// EMSA-PSS (RFC 8017, section 9.1.2, steps 4 to 10) for a modulus of whole bytes, with MGF1 over
/// the same hash and a salt as long as it: the hash and the salt may have any values.
fn is_pss<H: Digest + FixedOutputReset>(residue: &[u8]) -> bool {
    let hash_bytes = <H as Digest>::output_size();
    let Some((0xbc, rest)) = residue.split_last().map(|(last, rest)| (*last, rest)) else {
        return false;
    };
    let Some(masked_bytes) = rest.len().checked_sub(hash_bytes) else {
        return false;
    };
    let (masked, seed) = rest.split_at(masked_bytes);
    let Some(one) = masked_bytes.checked_sub(hash_bytes + 1) else {
        return false;
    };
    if masked[0] & 0x80 != 0 {
        return false;
    }
    let mut hash = H::new();
    for (counter, block) in (0_u32..).zip(masked.chunks(hash_bytes)) {
        Digest::update(&mut hash, seed);
        Digest::update(&mut hash, counter.to_be_bytes());
        let mask = hash.finalize_reset();
        let start = counter as usize * hash_bytes;
        for (place, (byte, mask)) in (start..).zip(block.iter().zip(&mask)) {
            let byte = byte ^ mask;
            let is_right = match place {
                // The first bit is cleared whatever the mask is.
                0 => byte & 0x7f == u8::from(one == 0),
                _ if place < one => byte == 0,
                _ if place == one => byte == 1,
                _ => return true,
            };
            if !is_right {
                return false;
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use slipstream_keys::encoding;

    use super::*;

    fn pss<H: Digest>(salt: usize, length: usize) -> Vec<u8> {
        let digest = vec![0x5a; <H as Digest>::output_size()];
        let mut hash = |parts: &[&[u8]], output: &mut [u8]| {
            let mut hash = H::new();
            parts.iter().for_each(|part| hash.update(part));
            output.copy_from_slice(&hash.finalize()[..output.len()]);
            Some(())
        };
        let mut mask = hash;
        let salt = vec![7; salt];
        let bytes = digest.len();
        let encoded = encoding::pss(&digest, &salt, length, &mut hash, &mut mask, bytes);
        encoded.expect("room").as_slice().to_vec()
    }

    fn pkcs1(info: &[u8], hash: usize, length: usize) -> Vec<u8> {
        let encoded = encoding::pkcs1(info, &vec![0xa5; hash], length);
        encoded.expect("room").as_slice().to_vec()
    }

    #[test]
    fn every_encoding_of_tls_is_allowed_for_its_use_only() {
        for length in [256, 384, 512] {
            for residue in [
                pss::<Sha256>(32, length),
                pss::<Sha384>(48, length),
                pss::<Sha512>(64, length),
            ] {
                assert!(is_allowed(Policy::PSS, &residue));
                assert!(is_allowed(Policy::SIGNATURES, &residue));
                assert!(!is_allowed(Policy::PKCS1, &residue));
            }
            for (info, hash) in DIGESTS {
                let residue = pkcs1(info, hash, length);
                assert!(is_allowed(Policy::PKCS1, &residue));
                assert!(is_allowed(Policy::SIGNATURES, &residue));
                assert!(!is_allowed(Policy::PSS, &residue));
            }
        }
    }

    #[test]
    fn whatever_is_fixed_in_an_encoding_counts() {
        let residue = pkcs1(digest_info::SHA256, 32, 256);
        for place in 0..256 - 32 {
            let mut changed = residue.clone();
            changed[place] ^= 1;
            assert!(!is_allowed(Policy::SIGNATURES, &changed), "byte {place}");
        }
        let residue = pss::<Sha256>(32, 256);
        // Up to the salt, and the trailer. In between are the salt and the hash; another hash is
        // another mask.
        for place in (0..256 - 1 - 32 - 32).chain(223..256) {
            let mut changed = residue.clone();
            changed[place] ^= 1;
            assert!(!is_allowed(Policy::SIGNATURES, &changed), "byte {place}");
        }
    }

    #[test]
    fn ciphertexts_and_other_salts_are_refused() {
        // EME-PKCS1-v1_5 (RFC 8017, section 7.2.1): a premaster secret, encrypted with the exponent
        // 1.
        let mut block = vec![0x11; 256];
        block[..2].copy_from_slice(&[0, 2]);
        block[256 - 49..][..3].copy_from_slice(&[0, 3, 3]);
        for residue in [block, vec![0; 256], vec![0xff; 256], pss::<Sha256>(0, 256)] {
            assert!(!is_allowed(Policy::SIGNATURES, &residue));
            assert!(is_allowed(Policy::ANYTHING, &residue));
        }
        assert!(!is_allowed(Policy::SIGNATURES, &[]));
        assert!(!is_allowed(Policy::SIGNATURES, &[0xbc]));
    }
}
