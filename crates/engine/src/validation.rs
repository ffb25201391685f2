//! From what stands in a slot to what can be computed.

use slipstream_lanes::{Backend, ec, x25519};
use slipstream_offload::device::wire::Request;
use slipstream_offload::{Kind, Operation};

use crate::session::{Key, Session};

/// The longest digest: SHA-512.
const DIGEST_BYTES: std::ops::RangeInclusive<usize> = 1..=64;

/// The operation that `request` asks for; `None` if its client has no such key, if lengths do not fit, or if the lanes do
/// not compute its kind. Values are checked when it is computed.
pub(crate) fn operation(
    backend: Backend,
    session: &Session,
    request: Request,
) -> Option<Operation> {
    let (first, second) = (request.first, request.second);
    let lengths = (first.as_slice().len(), second.as_slice().len());
    match request.kind {
        Kind::Rsa(size) => match session.find(request.key)? {
            Key::Rsa(key) if key.size() == size && lengths == (size.bytes(), 0) => {
                Some(Operation::RsaPrivate { key, input: first })
            }
            _ => None,
        },
        Kind::Ecdsa(curve) => match session.find(request.key)? {
            Key::Ec(key)
                if key.curve() == curve && DIGEST_BYTES.contains(&lengths.0) && lengths.1 == 0 =>
            {
                Some(Operation::Ecdsa { key, digest: first })
            }
            _ => None,
        },
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
