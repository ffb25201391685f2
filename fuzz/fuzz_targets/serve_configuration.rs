//! A configuration file may be any file that somebody names: it is read, or refused in one line that names the file.

#![no_main]

use libfuzzer_sys::fuzz_target;
use slipstream_terminator::configuration::file;

fuzz_target!(|text: &str| {
    if let Err(error) = file::parse("file", text) {
        assert!(error.starts_with("file:"), "{error}");
        assert!(!error.contains('\n'), "{error}");
    }
});
