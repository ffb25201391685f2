//! Configuration files: any text is read, or refused with a single line that names the file.

#![no_main]

use libfuzzer_sys::fuzz_target;
use slipstream_terminator::configuration::file;

fuzz_target!(|text: &str| {
    if let Err(error) = file::parse("file", text) {
        let error = error.to_string();
        assert!(error.starts_with("file:"), "{error}");
        assert!(!error.contains('\n'), "{error}");
    }
});
