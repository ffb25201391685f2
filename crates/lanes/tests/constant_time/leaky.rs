//! Code that is not in constant time, to show that it would be noticed.

use core::hint::black_box;

use openssl::bn::BigNumRef;
use slipstream_keys::rsa::{Components, PrivateKey, Size};

use crate::memcheck::{expect_leak, make_secret};
use crate::report::Kind;
use crate::rsa::wycheproof_key;

const THIS_FILE: &str = "tests/constant_time/leaky.rs";

#[test]
fn a_branch_on_a_secret_bit_is_reported() {
    expect_leak(Kind::Branch, THIS_FILE, "square_and_multiply", || {
        let mut exponent = 0xdead_beef;
        make_secret(&mut exponent);
        black_box(square_and_multiply(3, exponent));
    });
}

#[test]
fn a_look_up_at_a_secret_index_is_reported() {
    expect_leak(Kind::Address, THIS_FILE, "fixed_windows", || {
        let mut exponent = 0xdead_beef;
        make_secret(&mut exponent);
        black_box(fixed_windows(3, exponent));
    });
}

/// The check of a key takes a time that depends on the key, as is documented.
#[test]
fn a_branch_in_keys_is_reported() {
    expect_leak(Kind::Branch, "../keys/src/integer.rs", "cmp", || {
        let key = wycheproof_key(Size::Rsa2048).0;
        let bytes = |number: Option<&BigNumRef>| number.expect("a CRT key").to_vec();
        let mut exponent1 = bytes(key.dmp1());
        make_secret(&mut exponent1[..]);
        let components = Components {
            modulus: &key.n().to_vec(),
            public_exponent: &key.e().to_vec(),
            prime1: &bytes(key.p()),
            prime2: &bytes(key.q()),
            exponent1: &exponent1,
            exponent2: &bytes(key.dmq1()),
            coefficient: &bytes(key.iqmp()),
        };
        PrivateKey::new(&components).expect("a sound key");
    });
}

const MODULUS: u64 = (1 << 31) - 1;

/// base^exponent, with a multiplication only for each bit that is set.
#[inline(never)]
fn square_and_multiply(base: u64, exponent: u64) -> u64 {
    let mut power = 1;
    for bit in (0..64).rev() {
        power = power * power % MODULUS;
        if exponent >> bit & 1 == 1 {
            power = black_box(power * base % MODULUS);
        }
    }
    power
}

/// base^exponent, reading only the wanted entry of the table.
#[inline(never)]
fn fixed_windows(base: u64, exponent: u64) -> u64 {
    let mut table = [1; 16];
    for index in 1..16 {
        table[index] = table[index - 1] * base % MODULUS;
    }
    let table = black_box(&table);
    let mut power = 1;
    for window in (0..16).rev() {
        for _ in 0..4 {
            power = power * power % MODULUS;
        }
        power = power * table[(exponent >> (4 * window) & 15) as usize] % MODULUS;
    }
    power
}
