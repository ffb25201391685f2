//! From what stands in a slot to what can be computed.

use slipstream_deflate::Method;
use slipstream_lanes::{Backend, ec, x25519};
use slipstream_offload::device::layout::Layout;
use slipstream_offload::device::wire::{Content, Input, Request};
use slipstream_offload::request::Operand;
use slipstream_offload::{Coding, Handle, Kind, Operation};

use crate::session::{Key, Session};

/// The longest digest: SHA-512.
const DIGEST_BYTES: std::ops::RangeInclusive<usize> = 1..=64;

/// The highest level of zstd for content of any length, and the highest for content of this length. Beyond, a single chunk takes
/// ten milliseconds to half a second, no thread leaves one that it has begun, and to clients that wait for their turn the engine would
/// seem to have gone.
const ZSTD_LEVEL: u8 = 3;
const ZSTD_LEVEL_OF_SHORT: u8 = 9;
const ZSTD_BYTES: usize = 256 << 10;

/// What is to be done for a client.
#[derive(Debug)]
pub(crate) enum Task {
    /// Computing in lanes.
    Compute(Operation),
    /// Compressing what lies in a buffer of its instance.
    Compress(Chunk),
}

/// A chunk of content in a buffer that its instance has, and as long as it can be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chunk {
    pub(crate) method: Method,
    pub(crate) is_last: bool,
    pub(crate) buffer: usize,
    pub(crate) length: usize,
}

/// What `request` asks for; `None` if its client has no such key or buffer, if lengths do not fit, if the lanes do not compute
/// its kind, or if its coding has no such level for so much content. Values are checked when it is computed.
pub(crate) fn task(
    backend: Backend,
    session: &Session,
    layout: Layout,
    request: Request,
) -> Option<Task> {
    match (request.kind, request.input) {
        (Kind::Compress(coding), Input::Content(content)) => {
            let method = Method::new(coding, content.level)?;
            chunk(layout, method, content).map(Task::Compress)
        }
        (kind, Input::Operands { key, first, second }) => {
            operation(backend, session, kind, key, (first, second)).map(Task::Compute)
        }
        (_, Input::Content(_)) => None,
    }
}

fn chunk(layout: Layout, method: Method, content: Content) -> Option<Chunk> {
    let Content {
        is_last,
        buffer,
        length,
        ..
    } = content;
    let highest = match length {
        0..=ZSTD_BYTES => ZSTD_LEVEL_OF_SHORT,
        _ => ZSTD_LEVEL,
    };
    let takes_too_long = method.coding() == Coding::Zstd && method.level() > highest;
    let is_possible = buffer < layout.buffers() && length <= layout.content_bytes();
    (is_possible && !takes_too_long).then_some(Chunk {
        method,
        is_last,
        buffer,
        length,
    })
}

fn operation(
    backend: Backend,
    session: &Session,
    kind: Kind,
    key: Handle,
    (first, second): (Operand, Operand),
) -> Option<Operation> {
    let lengths = (first.as_slice().len(), second.as_slice().len());
    match kind {
        Kind::Rsa(size) => match session.find(key)? {
            Key::Rsa(key) if key.size() == size && lengths == (size.bytes(), 0) => {
                Some(Operation::RsaPrivate { key, input: first })
            }
            _ => None,
        },
        Kind::Ecdsa(curve) => match session.find(key)? {
            Key::Ec(key)
                if key.curve() == curve && DIGEST_BYTES.contains(&lengths.0) && lengths.1 == 0 =>
            {
                Some(Operation::Ecdsa { key, digest: first })
            }
            _ => None,
        },
        Kind::Compress(_) => None,
        Kind::KeyPair(group) => {
            (group.is_offered(backend) && lengths == (0, 0)).then_some(Operation::KeyPair(group))
        }
        Kind::X25519 => {
            let is_offered = x25519::offered(backend);
            (is_offered && lengths == (x25519::KEY_BYTES, x25519::KEY_BYTES)).then_some(
                Operation::X25519 {
                    private: first,
                    peer: second,
                },
            )
        }
        Kind::Ecdh(curve) => {
            let is_offered = ec::offered(backend);
            (is_offered && lengths == (curve.bytes(), curve.point_bytes())).then_some(
                Operation::Ecdh {
                    curve,
                    private: first,
                    peer: second,
                },
            )
        }
    }
}
