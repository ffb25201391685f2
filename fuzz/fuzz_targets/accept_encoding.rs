//! Whatever clients and servers send: it is read, and only what was offered and has not been refused is chosen.

#![no_main]

use libfuzzer_sys::fuzz_target;
use slipstream_deflate::Coding;
use slipstream_deflate::negotiation::{choose, forbids_transformation};

fuzz_target!(|bytes: &[u8]| {
    assert_eq!(choose(bytes, &[]), None);
    let chosen = choose(bytes, &Coding::ALL);
    let alone = Coding::ALL.map(|coding| choose(bytes, &[coding]));
    match chosen {
        Some(coding) => assert_eq!(alone[coding.index()], Some(coding)),
        None => assert_eq!(alone, [None; 2]),
    }
    // A header that is sent twice is joined by a comma: what has been said first counts.
    assert_eq!(choose(&[bytes, b",", bytes].concat(), &Coding::ALL), chosen);
    forbids_transformation(bytes);
});
