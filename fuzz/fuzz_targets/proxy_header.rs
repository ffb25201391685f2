//! Whatever stands before TLS: a header is found once all of it is there, and not before.

#![no_main]

use libfuzzer_sys::fuzz_target;
use slipstream_terminator::forward::proxy_header::{LONGEST, read};

fuzz_target!(|bytes: &[u8]| {
    let Ok(Some(header)) = read(bytes) else {
        return;
    };
    assert!(header.length <= bytes.len().min(LONGEST));
    assert_eq!(read(&bytes[..header.length]), Ok(Some(header)));
    for length in 0..header.length {
        assert_eq!(read(&bytes[..length]), Ok(None));
    }
});
