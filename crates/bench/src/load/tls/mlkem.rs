//! ML-KEM-768 (FIPS 203) with a secret key of zeros: decapsulation is rounding and one hash.
//!
//! The public key is `t = A s + e` and the seed of `A`. With `s`, `e` and the seed 0 it is all
//! zeros. To a server that is a key like any other: each of its coefficients is in range, `A` is
//! expanded from the seed as always, and arithmetic in constant time multiplies by 0 as by any
//! number. Decryption rounds `v - s u`, which is `v` itself. And since a client that measures need
//! not defend itself, it does not encrypt again to compare.

use std::sync::OnceLock;

use openssl::hash::{DigestBytes, MessageDigest, hash};

use super::Failure;

/// The length of a ciphertext in bytes (FIPS 203 table 3).
pub(super) const CIPHERTEXT_LENGTH: usize = 1088;
/// The length of a shared secret in bytes.
const SECRET_LENGTH: usize = 32;
/// The length of the part of a ciphertext that encodes `u`.
const U_LENGTH: usize = 960;

/// The encapsulation key, of the length that FIPS 203 table 3 says.
pub(super) const KEY: [u8; 1184] = [0; 1184];

/// The secret that a server has encapsulated for [`KEY`] (FIPS 203 algorithms 15 and 18).
///
/// # Errors
/// [`Failure::Protocol`] if `ciphertext` has another length than one has.
pub(super) fn decapsulate(ciphertext: &[u8]) -> Result<[u8; SECRET_LENGTH], Failure> {
    if ciphertext.len() != CIPHERTEXT_LENGTH {
        return Err(Failure::Protocol("a ciphertext of another length"));
    }
    let mut input = [0; 2 * SECRET_LENGTH];
    let (message, key_hash) = input.split_at_mut(SECRET_LENGTH);
    for (bits, coefficients) in message.iter_mut().zip(ciphertext[U_LENGTH..].chunks(4)) {
        *bits = (0..8).fold(0, |bits, index| {
            bits | rounded(coefficients[index / 2] >> (4 * (index % 2))) << index
        });
    }
    key_hash.copy_from_slice(hash_of_key()?);
    let secret_and_coins = hash(MessageDigest::sha3_512(), &input)?;
    let mut secret = [0; SECRET_LENGTH];
    secret.copy_from_slice(&secret_and_coins[..SECRET_LENGTH]);
    Ok(secret)
}

/// The bit that is encoded by the low 4 bits of `compressed`, a sixteenth of the modulus each.
fn rounded(compressed: u8) -> u8 {
    u8::from((5..=11).contains(&(compressed & 15)))
}

fn hash_of_key() -> Result<&'static [u8], Failure> {
    static HASH: OnceLock<DigestBytes> = OnceLock::new();
    if HASH.get().is_none() {
        // Another thread that was faster has set the same.
        let _ = HASH.set(hash(MessageDigest::sha3_256(), &KEY)?);
    }
    Ok(HASH.get().expect("it has been set"))
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::kem::{EncapsulationKey, ML_KEM_768};

    use super::*;

    #[test]
    fn another_implementation_encapsulates_the_same_secret() {
        let key = EncapsulationKey::new(&ML_KEM_768, &KEY).unwrap();
        for _ in 0..100 {
            let (ciphertext, secret) = key.encapsulate().unwrap();
            assert_eq!(decapsulate(ciphertext.as_ref()).unwrap(), secret.as_ref());
        }
        assert!(decapsulate(&[0; CIPHERTEXT_LENGTH - 1]).is_err());
    }
}
