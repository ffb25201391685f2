//! Slots are in memory that the other side writes: whatever stands in one, it is refused or understood, and what is
//! understood means the same when it is written again.

#![no_main]

use libfuzzer_sys::fuzz_target;
use slipstream_offload::device::layout::SLOT_WORDS;
use slipstream_offload::device::wire::{
    Outcome, Slot, read_request, read_response, write_request, write_response,
};

fuzz_target!(|bytes: &[u8]| {
    let mut slot = Slot::default();
    for (word, bytes) in slot.0.iter_mut().zip(bytes.chunks(8)) {
        let mut padded = [0; 8];
        padded[..bytes.len()].copy_from_slice(bytes);
        *word = u64::from_le_bytes(padded);
    }
    if let Ok(request) = read_request(&slot) {
        let mut again = Slot([u64::MAX; SLOT_WORDS]);
        let (first, second) = (request.first.as_slice(), request.second.as_slice());
        write_request(&mut again, request.id, request.kind, request.key, first, second);
        let again = read_request(&again).expect("what was just written");
        assert_eq!((again.id, again.kind, again.key), (request.id, request.kind, request.key));
        assert_eq!(again.first.as_slice(), first);
        assert_eq!(again.second.as_slice(), second);
    }
    if let Ok(response) = read_response(&slot) {
        let mut again = Slot([u64::MAX; SLOT_WORDS]);
        write_response(&mut again, &response);
        let again = read_response(&again).expect("what was just written");
        assert_eq!(again.id, response.id);
        match (again.outcome, response.outcome) {
            (Outcome::Computed(one), Outcome::Computed(other)) => {
                assert_eq!(one.as_slice(), other.as_slice());
            }
            (Outcome::Fault, Outcome::Fault) | (Outcome::Refused, Outcome::Refused) => {}
            other => panic!("{other:?}"),
        }
    }
});
