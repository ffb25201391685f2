//! Requests and responses as they stand in the slots of a ring.
//!
//! A request: its name, the [number](Kind::wire) of its kind, the handle of its key or 0, the
//! lengths of two operands, and from word [`HEAD_WORDS`] on their bytes. A response: the name of
//! its request, an outcome, the length of the result, and its bytes.
//!
//! Content is too long for a slot: a request that compresses names a [buffer](super::buffers)
//! instead, with the level, 1 if the stream ends with it, the index of the buffer and the length of
//! its content; the response has the length of the result in the same buffer.

use std::fmt;

use slipstream_keys::{Handle, OPERAND_BYTES, Operand};
use slipstream_offload::{Coding, Kind, Output};
use zeroize::Zeroize;

use super::layout::{HEAD_WORDS, SLOT_WORDS};

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

/// A request of a client.
#[derive(Debug)]
pub struct Request {
    /// Chosen by the client.
    pub id: u64,
    /// The kind of the operation.
    pub kind: Kind,
    /// The input of the operation.
    pub input: Input,
}

/// The input of a request.
#[derive(Debug)]
pub enum Input {
    /// To be computed in lanes.
    Operands {
        /// The key of an RSA or ECDSA operation, otherwise 0.
        key: Handle,
        /// The input of RSA, the digest of ECDSA, the private key of an exchange; empty for a key
        /// pair.
        first: Operand,
        /// The peer's public key in an exchange, otherwise empty.
        second: Operand,
    },
    /// To be compressed.
    Content(Content),
}

/// Content in a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Content {
    /// The level, as the coding's library counts levels.
    pub level: u8,
    /// True if the stream ends with this chunk.
    pub is_last: bool,
    /// The index of the buffer, which is also where the result is wanted.
    pub buffer: usize,
    /// Its length in bytes.
    pub length: usize,
}

/// A response of the engine.
#[derive(Debug)]
pub struct Response {
    /// The name of the request.
    pub id: u64,
    /// The outcome of the request.
    pub outcome: Outcome,
}

/// The outcome of a request.
#[derive(Debug)]
pub enum Outcome {
    /// Computed, and checked where the kind has a check.
    Computed(Output),
    /// Compressed: the buffer of the request has a result of this many bytes.
    Compressed(usize),
    /// The operands are not what the standard allows, or the result failed its check.
    Fault,
    /// The client has no such key or buffer, or the engine does not offer this kind or level.
    Refused,
}

const COMPUTED: u64 = 1;
const FAULT: u64 = 2;
const REFUSED: u64 = 3;
const COMPRESSED: u64 = 4;

/// A slot has impossible content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "malformed slot: {}", self.0)
    }
}

impl std::error::Error for Malformed {}

/// Writes a request; returns the number of words of the slot that it takes.
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
    slot.0[1] = kind.wire();
    slot.0[2] = key.0;
    slot.0[3] = first.len() as u64;
    slot.0[4] = second.len() as u64;
    write_bytes(slot, first, second)
}

/// Writes a request for compression; returns the number of words of the slot that it takes.
pub fn write_content_request(slot: &mut Slot, id: u64, coding: Coding, content: &Content) -> usize {
    slot.0[0] = id;
    slot.0[1] = Kind::Compress(coding).wire();
    slot.0[2] = content.level.into();
    slot.0[3] = content.is_last.into();
    slot.0[4] = content.buffer as u64;
    slot.0[5] = content.length as u64;
    HEAD_WORDS
}

/// Reads a request. The lengths of its operands, the index of its buffer and its level are not
/// checked.
///
/// # Errors
/// If the slot cannot be a request.
pub fn read_request(slot: &Slot) -> Result<Request, Malformed> {
    let kind = Kind::from_wire(slot.0[1]).ok_or(Malformed("unknown kind of operation"))?;
    let input = match kind {
        Kind::Compress(_) => Input::Content(read_content(slot)?),
        _ => {
            let (first, second) = read_bytes(slot, slot.0[3], slot.0[4])?;
            Input::Operands {
                key: Handle(slot.0[2]),
                first,
                second,
            }
        }
    };
    Ok(Request {
        id: slot.0[0],
        kind,
        input,
    })
}

fn read_content(slot: &Slot) -> Result<Content, Malformed> {
    let size = |value| usize::try_from(value).map_err(|_| Malformed("longer than any buffer"));
    Ok(Content {
        level: u8::try_from(slot.0[2]).map_err(|_| Malformed("unknown level"))?,
        is_last: match slot.0[3] {
            0 => false,
            1 => true,
            _ => return Err(Malformed("a flag that is neither 0 nor 1")),
        },
        buffer: size(slot.0[4])?,
        length: size(slot.0[5])?,
    })
}

/// Writes a response; returns the number of words of the slot that it takes.
pub fn write_response(slot: &mut Slot, response: &Response) -> usize {
    let none = &[][..];
    let (outcome, bytes, length) = match &response.outcome {
        Outcome::Computed(output) => (COMPUTED, output.as_slice(), output.as_slice().len()),
        Outcome::Compressed(length) => (COMPRESSED, none, *length),
        Outcome::Fault => (FAULT, none, 0),
        Outcome::Refused => (REFUSED, none, 0),
    };
    slot.0[0] = response.id;
    slot.0[1] = outcome;
    slot.0[2] = length as u64;
    write_bytes(slot, bytes, none)
}

/// Reads a response. The length of its result is not checked.
///
/// # Errors
/// If the slot cannot be a response.
pub fn read_response(slot: &Slot) -> Result<Response, Malformed> {
    let outcome = match slot.0[1] {
        COMPUTED => Outcome::Computed(read_bytes(slot, slot.0[2], 0)?.0),
        COMPRESSED => {
            let length = usize::try_from(slot.0[2]);
            Outcome::Compressed(length.map_err(|_| Malformed("longer than any buffer"))?)
        }
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
                if let Kind::Compress(_) = kind {
                    continue;
                }
                let mut slot = Slot([u64::MAX; SLOT_WORDS]);
                let words = write_request(&mut slot, 7, kind, Handle(9), &first, &second);
                assert_eq!(words, HEAD_WORDS + (first.len() + second.len()).div_ceil(8));
                // Behind what was written a slot may be stale.
                let request = read_request(&slot).expect("a request");
                assert_eq!((request.id, request.kind), (7, kind));
                let Input::Operands {
                    key,
                    first: one,
                    second: other,
                } = request.input
                else {
                    panic!("{request:?}");
                };
                assert_eq!(key, Handle(9));
                assert_eq!(one.as_slice(), first);
                assert_eq!(other.as_slice(), second);
            }
        }
    }

    #[test]
    fn requests_for_compression_come_back_as_they_were() {
        for coding in Coding::ALL {
            for (level, is_last, buffer, length) in
                [(1, false, 0, 0), (19, true, 63, 1 << 20), (255, true, 7, 1)]
            {
                let content = Content {
                    level,
                    is_last,
                    buffer,
                    length,
                };
                let mut slot = Slot([u64::MAX; SLOT_WORDS]);
                let words = write_content_request(&mut slot, 7, coding, &content);
                assert_eq!(words, HEAD_WORDS);
                let request = read_request(&slot).expect("a request");
                assert_eq!((request.id, request.kind), (7, Kind::Compress(coding)));
                assert!(matches!(request.input, Input::Content(read) if read == content));
            }
        }
    }

    #[test]
    fn responses_come_back_as_they_were() {
        let mut slot = Slot::default();
        for outcome in [
            Outcome::Computed(Output::new(&[1, 2, 3])),
            Outcome::Computed(Output::zeroed(512)),
            Outcome::Compressed(65536),
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
                (Outcome::Compressed(read), Outcome::Compressed(written)) => {
                    assert_eq!(read, written);
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
        let content = |change: fn(&mut Slot)| {
            let mut slot = Slot::default();
            let content = Content {
                level: 1,
                is_last: true,
                buffer: 1,
                length: 1,
            };
            write_content_request(&mut slot, 1, Coding::Deflate, &content);
            change(&mut slot);
            read_request(&slot).is_err()
        };
        assert!(!content(|_| {}));
        assert!(content(|slot| slot.0[2] = 256), "level");
        assert!(content(|slot| slot.0[3] = 2), "last");
        let mut slot = Slot::default();
        assert!(read_response(&slot).is_err());
        (slot.0[1], slot.0[2]) = (COMPUTED, 513);
        assert!(read_response(&slot).is_err());
    }
}
