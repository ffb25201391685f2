//! Requests and responses as they stand in the slots of a ring.
//!
//! A request: its name, the [index](Kind::index) of its kind, the handle of its key or 0, the lengths of two operands,
//! and from word [`HEAD_WORDS`] on their bytes. A response: the name of its request, an outcome, the length of the
//! result, and its bytes.

use std::fmt;

use zeroize::Zeroize;

use super::layout::{HEAD_WORDS, SLOT_WORDS};
use crate::request::{Handle, Kind, OPERAND_BYTES, Operand, Output};

/// The words of a slot, wiped when dropped.
#[derive(Clone)]
pub struct Slot(pub [u64; SLOT_WORDS]);

impl Default for Slot {
    fn default() -> Self {
        Self([0; SLOT_WORDS])
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

/// What a client asks.
#[derive(Debug)]
pub struct Request {
    /// Chosen by the client.
    pub id: u64,
    /// What is to be computed.
    pub kind: Kind,
    /// The key of an RSA or ECDSA operation, otherwise 0.
    pub key: Handle,
    /// The input of RSA, the digest of ECDSA, the private key of an exchange; empty for a key pair.
    pub first: Operand,
    /// The peer's public key in an exchange, otherwise empty.
    pub second: Operand,
}

/// What the engine answers.
#[derive(Debug)]
pub struct Response {
    /// The name of the request.
    pub id: u64,
    /// What became of it.
    pub outcome: Outcome,
}

/// What became of a request.
#[derive(Debug)]
pub enum Outcome {
    /// Computed, and checked where the kind has a check.
    Computed(Output),
    /// The operands are not what the standard allows, or the result failed its check.
    Fault,
    /// The client has no such key, or the engine does not offer this kind.
    Refused,
}

const COMPUTED: u64 = 1;
const FAULT: u64 = 2;
const REFUSED: u64 = 3;

/// A slot does not hold what it should.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "malformed slot: {}", self.0)
    }
}

impl std::error::Error for Malformed {}

/// Writes a request; returns how many words of the slot it takes.
///
/// # Panics
/// If the operands are longer than [`OPERAND_BYTES`] together.
pub fn write_request(
    slot: &mut Slot,
    id: u64,
    kind: Kind,
    key: Handle,
    first: &[u8],
    second: &[u8],
) -> usize {
    slot.0[0] = id;
    slot.0[1] = kind.index() as u64;
    slot.0[2] = key.0;
    slot.0[3] = first.len() as u64;
    slot.0[4] = second.len() as u64;
    write_bytes(slot, first, second)
}

/// Reads a request. That its operands have the lengths which their kind asks for is not checked.
///
/// # Errors
/// If the slot cannot be a request.
pub fn read_request(slot: &Slot) -> Result<Request, Malformed> {
    let kind = usize::try_from(slot.0[1])
        .ok()
        .and_then(|index| Kind::ALL.get(index))
        .ok_or(Malformed("unknown kind of operation"))?;
    let (first, second) = read_bytes(slot, slot.0[3], slot.0[4])?;
    Ok(Request {
        id: slot.0[0],
        kind: *kind,
        key: Handle(slot.0[2]),
        first,
        second,
    })
}

/// Writes a response; returns how many words of the slot it takes.
pub fn write_response(slot: &mut Slot, response: &Response) -> usize {
    let (outcome, bytes) = match &response.outcome {
        Outcome::Computed(output) => (COMPUTED, output.as_slice()),
        Outcome::Fault => (FAULT, &[][..]),
        Outcome::Refused => (REFUSED, &[][..]),
    };
    slot.0[0] = response.id;
    slot.0[1] = outcome;
    slot.0[2] = bytes.len() as u64;
    write_bytes(slot, bytes, &[])
}

/// Reads a response. That it is as long as the kind of its request asks for is not checked.
///
/// # Errors
/// If the slot cannot be a response.
pub fn read_response(slot: &Slot) -> Result<Response, Malformed> {
    let outcome = match slot.0[1] {
        COMPUTED => Outcome::Computed(read_bytes(slot, slot.0[2], 0)?.0),
        FAULT => Outcome::Fault,
        REFUSED => Outcome::Refused,
        _ => return Err(Malformed("unknown outcome")),
    };
    Ok(Response {
        id: slot.0[0],
        outcome,
    })
}

fn write_bytes(slot: &mut Slot, first: &[u8], second: &[u8]) -> usize {
    let length = first.len() + second.len();
    assert!(length <= OPERAND_BYTES, "operands of {length} bytes");
    let words = length.div_ceil(8);
    let payload = &mut slot.0[HEAD_WORDS..];
    let mut bytes = first.iter().chain(second);
    for word in &mut payload[..words] {
        let mut value = [0; 8];
        for (place, byte) in value.iter_mut().zip(&mut bytes) {
            *place = *byte;
        }
        *word = u64::from_le_bytes(value);
        value.zeroize();
    }
    HEAD_WORDS + words
}

fn read_bytes(slot: &Slot, first: u64, second: u64) -> Result<(Operand, Operand), Malformed> {
    let fits = |length: u64| usize::try_from(length).ok().filter(|n| *n <= OPERAND_BYTES);
    let lengths = fits(first).zip(fits(second));
    let (first, second) = lengths
        .filter(|(first, second)| first + second <= OPERAND_BYTES)
        .ok_or(Malformed("longer than a slot"))?;
    let mut operands = (Operand::zeroed(first), Operand::zeroed(second));
    let payload = &slot.0[HEAD_WORDS..];
    let places = operands
        .0
        .as_mut_slice()
        .iter_mut()
        .chain(operands.1.as_mut_slice());
    for (index, place) in places.enumerate() {
        *place = (payload[index / 8] >> (8 * (index % 8))) as u8;
    }
    Ok(operands)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_come_back_as_they_were() {
        for (first, second) in [
            (0, 0),
            (1, 0),
            (32, 32),
            (48, 97),
            (256, 0),
            (512, 0),
            (255, 257),
        ] {
            let first: Vec<u8> = (0..first).map(|n| (n as u8).wrapping_add(1)).collect();
            let second: Vec<u8> = (0..second).map(|n| n as u8 ^ 0x55).collect();
            for kind in Kind::ALL {
                let mut slot = Slot([u64::MAX; SLOT_WORDS]);
                let words = write_request(&mut slot, 7, kind, Handle(9), &first, &second);
                assert_eq!(words, HEAD_WORDS + (first.len() + second.len()).div_ceil(8));
                // Behind what was written a slot may be stale.
                let request = read_request(&slot).expect("a request");
                assert_eq!(
                    (request.id, request.kind, request.key),
                    (7, kind, Handle(9))
                );
                assert_eq!(request.first.as_slice(), first);
                assert_eq!(request.second.as_slice(), second);
            }
        }
    }

    #[test]
    fn responses_come_back_as_they_were() {
        let mut slot = Slot::default();
        for outcome in [
            Outcome::Computed(Output::new(&[1, 2, 3])),
            Outcome::Computed(Output::zeroed(512)),
            Outcome::Fault,
            Outcome::Refused,
        ] {
            let response = Response { id: 3, outcome };
            write_response(&mut slot, &response);
            let read = read_response(&slot).expect("a response");
            assert_eq!(read.id, 3);
            match (read.outcome, response.outcome) {
                (Outcome::Computed(read), Outcome::Computed(written)) => {
                    assert_eq!(read.as_slice(), written.as_slice());
                }
                (Outcome::Fault, Outcome::Fault) | (Outcome::Refused, Outcome::Refused) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let request = |change: fn(&mut Slot)| {
            let mut slot = Slot::default();
            write_request(&mut slot, 1, Kind::X25519, Handle(0), &[1; 32], &[2; 32]);
            change(&mut slot);
            read_request(&slot).err()
        };
        let unknown = Some(Malformed("unknown kind of operation"));
        let long = Some(Malformed("longer than a slot"));
        assert_eq!(request(|_| {}), None);
        assert_eq!(request(|slot| slot.0[1] = Kind::COUNT as u64), unknown);
        assert_eq!(request(|slot| slot.0[1] = u64::MAX), unknown);
        assert_eq!(request(|slot| slot.0[3] = 481), long);
        assert_eq!(request(|slot| slot.0[3] = u64::MAX), long);
        assert_eq!(request(|slot| (slot.0[3], slot.0[4]) = (u64::MAX, 1)), long);
        let mut slot = Slot::default();
        assert!(read_response(&slot).is_err());
        (slot.0[1], slot.0[2]) = (COMPUTED, 513);
        assert!(read_response(&slot).is_err());
    }
}
