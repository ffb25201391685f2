//! A request to which the answer is known: RFC 7748, section 6.1.

use hex_literal::hex;
use slipstream_keys::Handle;
use slipstream_offload::Kind;

use super::protocol::wire::{self, Outcome, Slot};

const PRIVATE: [u8; 32] = hex!("77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a");
const PEER: [u8; 32] = hex!("de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f");
const SECRET: [u8; 32] = hex!("4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742");

pub(super) fn write(slot: &mut Slot, id: u64) -> usize {
    wire::write_request(slot, id, Kind::X25519, Handle(0), &PRIVATE, &PEER)
}

pub(super) fn is_right(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Computed(secret) if secret.as_slice() == SECRET)
}
