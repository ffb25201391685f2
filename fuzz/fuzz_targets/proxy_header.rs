//! PROXY headers: any bytes are a header, the beginning of one, or an error. A header is found when
//! all of it is there, and not before.

#![no_main]

use libfuzzer_sys::fuzz_target;
use slipstream_http::proxy_header::{MAX_LENGTH, read};

fuzz_target!(|bytes: &[u8]| {
    let Ok(Some(header)) = read(bytes) else {
        return;
    };
    assert!(header.length <= bytes.len().min(MAX_LENGTH));
    assert_eq!(read(&bytes[..header.length]), Ok(Some(header)));
    for length in 0..header.length {
        assert_eq!(read(&bytes[..length]), Ok(None));
    }
});
