//! The operations that can be measured.

use slipstream_lanes::ec::Curve;
use slipstream_lanes::rsa::Size;
use slipstream_lanes::{Backend, ec, x25519};

/// A private-key operation of a TLS server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// RSA's private-key operation with CRT, checked with the public exponent.
    Rsa(Size),
    /// A fresh key pair for a key exchange.
    Public(Group),
    /// The shared secret of a key exchange.
    Shared(Group),
    /// An ECDSA signature of a digest with a fresh nonce.
    Sign(Curve),
    /// The same with a precomputed nonce: the rest of a signature, one at a time.
    SignAhead(Curve),
}

/// A group for key exchanges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    /// X25519 (RFC 7748).
    X25519,
    /// A NIST curve.
    Ec(Curve),
}

impl Operation {
    /// All operations.
    pub const ALL: [Operation; 13] = [
        Operation::Rsa(Size::Rsa2048),
        Operation::Rsa(Size::Rsa3072),
        Operation::Rsa(Size::Rsa4096),
        Operation::Public(Group::X25519),
        Operation::Shared(Group::X25519),
        Operation::Public(Group::Ec(Curve::P256)),
        Operation::Shared(Group::Ec(Curve::P256)),
        Operation::Sign(Curve::P256),
        Operation::SignAhead(Curve::P256),
        Operation::Public(Group::Ec(Curve::P384)),
        Operation::Shared(Group::Ec(Curve::P384)),
        Operation::Sign(Curve::P384),
        Operation::SignAhead(Curve::P384),
    ];

    /// Its name on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Operation::Rsa(Size::Rsa2048) => "rsa2048",
            Operation::Rsa(Size::Rsa3072) => "rsa3072",
            Operation::Rsa(Size::Rsa4096) => "rsa4096",
            Operation::Public(Group::X25519) => "x25519-public",
            Operation::Public(Group::Ec(Curve::P256)) => "p256-public",
            Operation::Public(Group::Ec(Curve::P384)) => "p384-public",
            Operation::Shared(Group::X25519) => "x25519-shared",
            Operation::Shared(Group::Ec(Curve::P256)) => "p256-ecdh",
            Operation::Shared(Group::Ec(Curve::P384)) => "p384-ecdh",
            Operation::Sign(Curve::P256) => "p256-sign",
            Operation::Sign(Curve::P384) => "p384-sign",
            Operation::SignAhead(Curve::P256) => "p256-sign-ahead",
            Operation::SignAhead(Curve::P384) => "p384-sign-ahead",
        }
    }

    /// The operation of this name.
    pub fn find(name: &str) -> Option<Operation> {
        Operation::ALL
            .into_iter()
            .find(|operation| operation.name() == name)
    }

    /// Returns true if the backend computes it at all.
    pub fn is_offered(self, backend: Backend) -> bool {
        match self {
            Operation::Rsa(_) => true,
            Operation::Public(Group::X25519) | Operation::Shared(Group::X25519) => {
                x25519::offered(backend)
            }
            Operation::Public(Group::Ec(_))
            | Operation::Shared(Group::Ec(_))
            | Operation::Sign(_)
            | Operation::SignAhead(_) => ec::offered(backend),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_is_found_by_its_own_name() {
        for operation in Operation::ALL {
            assert_eq!(Operation::find(operation.name()), Some(operation));
        }
        assert_eq!(Operation::find("rsa1024"), None);
    }
}
