//! Slots are in memory that the other side writes: whatever stands in one, it is refused or
//! understood, and what is understood means the same when it is written again.

#![no_main]

use libfuzzer_sys::fuzz_target;
use slipstream_accelerators::engine::protocol::layout::SLOT_WORDS;
use slipstream_accelerators::engine::protocol::wire::{
    Input, Outcome, Request, Slot, read_request, read_response, write_content_request,
    write_request, write_response,
};
use slipstream_offload::Kind;

fuzz_target!(|bytes: &[u8]| {
    let mut slot = Slot::default();
    for (word, bytes) in slot.0.iter_mut().zip(bytes.chunks(8)) {
        let mut padded = [0; 8];
        padded[..bytes.len()].copy_from_slice(bytes);
        *word = u64::from_le_bytes(padded);
    }
    if let Ok(request) = read_request(&slot) {
        let mut slot = Slot([u64::MAX; SLOT_WORDS]);
        write(&mut slot, &request);
        let again = read_request(&slot).expect("what was just written");
        assert_eq!((again.id, again.kind), (request.id, request.kind));
        match (again.input, request.input) {
            (
                Input::Operands { key, first, second },
                Input::Operands {
                    key: other_key,
                    first: other_first,
                    second: other_second,
                },
            ) => {
                assert_eq!(key, other_key);
                assert_eq!(first.as_slice(), other_first.as_slice());
                assert_eq!(second.as_slice(), other_second.as_slice());
            }
            (Input::Content(one), Input::Content(other)) => assert_eq!(one, other),
            other => panic!("{other:?}"),
        }
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
            (Outcome::Compressed(one), Outcome::Compressed(other)) => assert_eq!(one, other),
            (Outcome::Fault, Outcome::Fault) | (Outcome::Refused, Outcome::Refused) => {}
            other => panic!("{other:?}"),
        }
    }
});

fn write(slot: &mut Slot, request: &Request) {
    match (request.kind, &request.input) {
        (Kind::Compress(coding), Input::Content(content)) => {
            write_content_request(slot, request.id, coding, content);
        }
        (kind, Input::Operands { key, first, second }) => {
            let (first, second) = (first.as_slice(), second.as_slice());
            write_request(slot, request.id, kind, *key, first, second);
        }
        other => panic!("{other:?}"),
    }
}
