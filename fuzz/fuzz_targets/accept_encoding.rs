//! Negotiation reads any header, and chooses only a codec that was offered and not refused.

#![no_main]

use libfuzzer_sys::fuzz_target;
use slipstream_compress::CODECS;
use slipstream_compress::negotiation::{choose, forbids_transformation};

fuzz_target!(|bytes: &[u8]| {
    assert_eq!(choose(bytes, &[]), None);
    let chosen = choose(bytes, CODECS);
    match chosen {
        Some(codec) => assert_eq!(choose(bytes, &[codec]), Some(codec)),
        None => assert!(CODECS.iter().all(|codec| choose(bytes, &[*codec]).is_none())),
    }
    // A header that is sent twice is joined by a comma: the first of two weights counts.
    assert_eq!(choose(&[bytes, b",", bytes].concat(), CODECS), chosen);
    forbids_transformation(bytes);
});
