//! Files of figures: any bytes are figures that can be shown in a terminal, or an error.

#![no_main]

use libfuzzer_sys::fuzz_target;
use slipstream_metrics::published::parse;

fuzz_target!(|bytes: &[u8]| {
    let Ok(published) = parse(bytes) else {
        return;
    };
    let is_plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
    assert!(is_plain(&published.program) && is_plain(&published.version));
    assert!(published.figures.keys().all(|name| is_plain(name)));
});
