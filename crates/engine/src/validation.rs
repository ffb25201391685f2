//! Validation: turns the content of a slot into a task.

use slipstream_accelerators::engine::protocol::layout::Layout;
use slipstream_accelerators::engine::protocol::wire::{Content, Input, Request};
use slipstream_accelerators::lanes::{Backend, computes};
use slipstream_compress::Method;
use slipstream_keys::{Handle, Key, Operand, PrivateKey};
use slipstream_offload::{Kind, Operation};

use crate::session::{Held, Session};
use crate::signature;

/// A task that a client has asked for.
#[derive(Debug)]
pub(crate) enum Task {
    /// Compute in lanes.
    Compute(Operation),
    /// Compress the content of a buffer of its instance.
    Compress(Chunk),
}

/// A chunk of content. It lies in a buffer that its instance has, and fits there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chunk {
    pub(crate) method: Method,
    pub(crate) is_last: bool,
    pub(crate) buffer: usize,
    pub(crate) length: usize,
}

/// Returns the task that `request` asks for. `None` if its client has no such key or buffer, or may
/// not use the key for that, if lengths do not fit, if the lanes do not compute its kind, or if its coding has no such level for
/// this much content. Values are checked when they are computed with.
pub(crate) fn task(
    backend: Backend,
    session: &Session,
    layout: Layout,
    request: Request,
) -> Option<Task> {
    match (request.kind, request.input) {
        (Kind::Compress(coding), Input::Content(content)) => {
            let method = Method::from_wire(coding, content.level)?;
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
    // A thread does not interrupt a chunk: at a slow level the engine would seem dead to clients
    // that wait for their turn.
    let takes_too_long = method.level() > method.codec().highest_quick_level(length);
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
    let [first_lengths, second_lengths] = &kind.description().operands;
    let is_possible = computes(backend, kind)
        && first_lengths.contains(&first.as_slice().len())
        && second_lengths.contains(&second.as_slice().len());
    if !is_possible {
        return None;
    }
    let operation = match kind {
        Kind::Rsa(size) => match session.find(key)? {
            Held {
                key: PrivateKey::Rsa(key),
                policy,
            } if key.size() == size && signature::is_allowed(policy, first.as_slice()) => {
                Operation::Rsa {
                    key: Key::Value(key),
                    input: first,
                }
            }
            _ => return None,
        },
        Kind::Ecdsa(curve) => match session.find(key)? {
            Held {
                key: PrivateKey::Ec(key),
                ..
            } if key.curve() == curve => Operation::Ecdsa {
                key: Key::Value(key),
                digest: first,
            },
            _ => return None,
        },
        Kind::Compress(_) => return None,
        Kind::KeyPair(group) => Operation::KeyPair(group),
        Kind::X25519 => Operation::X25519 {
            private: first,
            peer: second,
        },
        Kind::Ecdh(curve) => Operation::Ecdh {
            curve,
            private: first,
            peer: second,
        },
    };
    Some(operation)
}
