//! Messages come from the other side of a socket: whatever they are, they are refused or
//! understood, and what is understood is written as it was read.

#![no_main]

use libfuzzer_sys::fuzz_target;
use slipstream_accelerators::engine::protocol::message::{ToClient, ToEngine};

fuzz_target!(|packet: &[u8]| {
    if let Ok(message) = ToEngine::read(packet) {
        let written = message.write();
        assert_eq!(written.as_slice(), packet);
    }
    if let Ok(message) = ToClient::read(packet) {
        // Text that is not UTF-8 is replaced.
        let written = message.write();
        assert_eq!(ToClient::read(&written).as_ref(), Ok(&message));
    }
});
