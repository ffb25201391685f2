//! What is asked of an accelerator, and what it answers.

use std::fmt;
use std::sync::Arc;

use slipstream_lanes::ec::{Curve, SigningKey};
use slipstream_lanes::{rsa, x25519};
use zeroize::Zeroizing;

use crate::key_pair::Group;

/// The largest operand of any operation in bytes: an RSA-4096 residue.
pub const OPERAND_BYTES: usize = 512;

/// The classes that QTLS section 4.3 counts separately, since they differ in duration by orders
/// of magnitude.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Private-key operations and key exchange.
    Asymmetric,
    /// Record encryption and decryption.
    Cipher,
    /// Key derivation.
    Prf,
    /// Compression of content.
    Compression,
}

impl Class {
    /// Every class, in the order of [`Class::index`].
    pub const ALL: [Class; 4] = [
        Class::Asymmetric,
        Class::Cipher,
        Class::Prf,
        Class::Compression,
    ];

    /// Position in tables that hold one entry per class.
    pub fn index(self) -> usize {
        self as usize
    }

    /// The word used for this class in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Class::Asymmetric => "asymmetric",
            Class::Cipher => "cipher",
            Class::Prf => "prf",
            Class::Compression => "compression",
        }
    }
}

/// How content is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Coding {
    /// DEFLATE (RFC 1951), as it stands inside gzip.
    Deflate,
    /// Zstandard (RFC 8878).
    Zstd,
}

impl Coding {
    /// Every coding, in the order of [`Coding::index`].
    pub const ALL: [Coding; 2] = [Coding::Deflate, Coding::Zstd];

    /// Position in tables that hold one entry per coding.
    pub fn index(self) -> usize {
        self as usize
    }
}

/// What is computed together: operations of one kind fill a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// RSASP1 and RSADP of RFC 8017 with a modulus of this size.
    Rsa(rsa::Size),
    /// A shared secret of X25519 (RFC 7748).
    X25519,
    /// A shared secret on a NIST curve (SP 800-56A, section 5.7.1.2).
    Ecdh(Curve),
    /// An ECDSA signature (FIPS 186-5, section 6.4).
    Ecdsa(Curve),
    /// An ephemeral key pair.
    KeyPair(Group),
    /// A chunk of content, compressed. Each by itself: they share no batch.
    Compress(Coding),
}

impl Kind {
    /// How many there are.
    pub const COUNT: usize = Kind::BEFORE_CODINGS + Coding::ALL.len();

    const BEFORE_CODINGS: usize = Kind::BEFORE_KEY_PAIRS + Group::ALL.len();

    const BEFORE_KEY_PAIRS: usize = rsa::Size::ALL.len() + 1 + 2 * Curve::ALL.len();

    /// Every kind, in the order of [`Kind::index`].
    pub const ALL: [Kind; Kind::COUNT] = [
        Kind::Rsa(rsa::Size::Rsa2048),
        Kind::Rsa(rsa::Size::Rsa3072),
        Kind::Rsa(rsa::Size::Rsa4096),
        Kind::X25519,
        Kind::Ecdh(Curve::P256),
        Kind::Ecdh(Curve::P384),
        Kind::Ecdsa(Curve::P256),
        Kind::Ecdsa(Curve::P384),
        Kind::KeyPair(Group::X25519),
        Kind::KeyPair(Group::P256),
        Kind::KeyPair(Group::P384),
        Kind::Compress(Coding::Deflate),
        Kind::Compress(Coding::Zstd),
    ];

    /// Position in tables that hold one entry per kind.
    pub fn index(self) -> usize {
        match self {
            Kind::Rsa(size) => size.index(),
            Kind::X25519 => rsa::Size::ALL.len(),
            Kind::Ecdh(curve) => rsa::Size::ALL.len() + 1 + curve.index(),
            Kind::Ecdsa(curve) => rsa::Size::ALL.len() + 1 + Curve::ALL.len() + curve.index(),
            Kind::KeyPair(group) => Kind::BEFORE_KEY_PAIRS + group.index(),
            Kind::Compress(coding) => Kind::BEFORE_CODINGS + coding.index(),
        }
    }

    /// The name for people.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Rsa(rsa::Size::Rsa2048) => "RSA-2048",
            Kind::Rsa(rsa::Size::Rsa3072) => "RSA-3072",
            Kind::Rsa(rsa::Size::Rsa4096) => "RSA-4096",
            Kind::X25519 => "X25519",
            Kind::Ecdh(Curve::P256) => "P-256",
            Kind::Ecdh(Curve::P384) => "P-384",
            Kind::Ecdsa(Curve::P256) => "ECDSA-P-256",
            Kind::Ecdsa(Curve::P384) => "ECDSA-P-384",
            Kind::KeyPair(Group::X25519) => "KEY-X25519",
            Kind::KeyPair(Group::P256) => "KEY-P-256",
            Kind::KeyPair(Group::P384) => "KEY-P-384",
            Kind::Compress(Coding::Deflate) => "DEFLATE",
            Kind::Compress(Coding::Zstd) => "ZSTD",
        }
    }

    /// Length of the result in bytes; 0 for compressed content, whose length depends on the content.
    pub fn output_bytes(self) -> usize {
        match self {
            Kind::Rsa(size) => size.bytes(),
            Kind::X25519 => x25519::KEY_BYTES,
            Kind::Ecdh(curve) => curve.bytes(),
            Kind::Ecdsa(curve) => 2 * curve.bytes(),
            Kind::KeyPair(group) => group.private_bytes() + group.public_bytes(),
            Kind::Compress(_) => 0,
        }
    }
}

/// An operation that owns its inputs: nothing here points into the memory of the caller, so a
/// connection may disappear while its operation is in flight.
#[derive(Debug)]
pub enum Operation {
    /// `input` to the power of the private exponent, modulo `n`.
    RsaPrivate {
        /// The key, shared with whoever else uses it.
        key: Arc<rsa::PrivateKey>,
        /// Big-endian, exactly as long as the modulus and less than it.
        input: Operand,
    },
    /// The X25519 function. A result of zero, which RFC 8446 section 7.4.2 forbids, is a [`Reason::Fault`].
    X25519 {
        /// 32 bytes.
        private: Operand,
        /// The peer's public key, 32 bytes.
        peer: Operand,
    },
    /// The X coordinate of the product of a point and a private key. A point that is not on the curve is a
    /// [`Reason::Fault`].
    Ecdh {
        /// The curve.
        curve: Curve,
        /// Big-endian, as long as the order of the curve.
        private: Operand,
        /// The peer's public key, uncompressed (SEC 1, section 2.3.3).
        peer: Operand,
    },
    /// r and s of a signature, each as long as the order of the curve.
    Ecdsa {
        /// The key, shared with whoever else uses it.
        key: Arc<SigningKey>,
        /// The digest of the message.
        digest: Operand,
    },
    /// A new key pair: private key and public key as in a [`KeyPair`](crate::ahead::KeyPair), one after the other.
    KeyPair(Group),
    /// An operation with a private key that this process does not have: a [device](crate::device) holds it.
    Held {
        /// RSA or ECDSA.
        kind: Kind,
        /// The key, as the device calls it.
        key: Handle,
        /// As for [`Operation::RsaPrivate`] or [`Operation::Ecdsa`].
        input: Operand,
    },
    /// A chunk of content, compressed so that it refers to no other chunk.
    Compress(Compression),
}

/// A chunk of content that is to be compressed. Only a [device](crate::device) does that here: whoever asks has a
/// compressor of its own for [`Answer::Software`].
///
/// Chunks of DEFLATE end on a byte and can be joined to one stream, which the last one ends; each chunk of Zstandard is a
/// frame, and frames can be joined.
#[derive(Clone)]
pub struct Compression {
    /// The coding.
    pub coding: Coding,
    /// As the coding's library counts levels.
    pub level: u8,
    /// Whether the stream ends with this chunk.
    pub is_last: bool,
    /// The content, shared with whoever may have to compress it in software.
    pub content: Arc<Vec<u8>>,
}

impl fmt::Debug for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (coding, level) = (self.coding, self.level);
        write!(f, "{coding:?} {level} of {} bytes", self.content.len())
    }
}

/// Names a private key that a [device](crate::device) holds, to the client that was granted it. To another client the
/// number means nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Handle(pub u64);

impl Operation {
    /// The class under which this operation is counted while in flight.
    pub fn class(&self) -> Class {
        match self.kind() {
            Kind::Rsa(_) | Kind::X25519 | Kind::Ecdh(_) | Kind::Ecdsa(_) | Kind::KeyPair(_) => {
                Class::Asymmetric
            }
            Kind::Compress(_) => Class::Compression,
        }
    }

    /// What it can share a batch with.
    pub fn kind(&self) -> Kind {
        match self {
            Operation::RsaPrivate { key, .. } => Kind::Rsa(key.size()),
            Operation::X25519 { .. } => Kind::X25519,
            Operation::Ecdh { curve, .. } => Kind::Ecdh(*curve),
            Operation::Ecdsa { key, .. } => Kind::Ecdsa(key.curve()),
            Operation::KeyPair(group) => Kind::KeyPair(*group),
            Operation::Held { kind, .. } => *kind,
            Operation::Compress(compression) => Kind::Compress(compression.coding),
        }
    }
}

/// Bytes of an operand or a result, wiped when dropped. They are on the heap, so that an operand
/// that is moved leaves no copy behind.
#[derive(Clone)]
pub struct Operand(Zeroizing<Box<[u8]>>);

/// The result of a computed [`Operation`].
pub type Output = Operand;

impl Operand {
    /// Copies `bytes`.
    ///
    /// # Panics
    /// If `bytes` is longer than [`OPERAND_BYTES`].
    pub fn new(bytes: &[u8]) -> Self {
        let mut operand = Self::zeroed(bytes.len());
        operand.as_mut_slice().copy_from_slice(bytes);
        operand
    }

    /// `length` zero bytes.
    ///
    /// # Panics
    /// If `length` is more than [`OPERAND_BYTES`].
    pub fn zeroed(length: usize) -> Self {
        assert!(length <= OPERAND_BYTES, "operand of {length} bytes");
        Self(Zeroizing::new(vec![0; length].into_boxed_slice()))
    }

    /// A result of any length: content that has been compressed. It is copied only if `bytes` has capacity to spare.
    pub fn content(bytes: Vec<u8>) -> Self {
        Self(Zeroizing::new(bytes.into_boxed_slice()))
    }

    /// The bytes, without a copy. Nobody wipes them any more.
    pub fn into_content(mut self) -> Vec<u8> {
        std::mem::take(&mut *self.0).into_vec()
    }

    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        &self.0
    }

    /// The bytes, to be written.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

impl fmt::Debug for Operand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Operand({} bytes)", self.0.len())
    }
}

/// What [`run`](crate::run) answers.
#[derive(Debug)]
pub enum Answer {
    /// Computed by an accelerator and verified.
    Computed(Output),
    /// To be computed by the caller with its own software, at once.
    Software(Reason),
}

/// Why an operation is left to the caller's software.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// There is no instance on this thread, or its accelerator does not know the operation.
    NotOffered,
    /// The job may not pause where it is: the server it belongs to does not take part.
    NotAdmitted,
    /// Software is cheaper for as few operations as were waiting, or as can be waiting.
    Cheaper,
    /// No room for another request.
    Full,
    /// The accelerator's result failed its check and was discarded.
    Fault,
    /// The job was resumed although its operation had not finished; the operation is orphaned.
    Cancelled,
    /// The device has gone away, or has not answered in time.
    Lost,
}

impl Reason {
    /// Every reason, in the order of [`Reason::index`].
    pub const ALL: [Reason; 7] = [
        Reason::NotOffered,
        Reason::NotAdmitted,
        Reason::Cheaper,
        Reason::Full,
        Reason::Fault,
        Reason::Cancelled,
        Reason::Lost,
    ];

    /// Position in tables that hold one entry per reason.
    pub fn index(self) -> usize {
        self as usize
    }

    /// The word used for this reason in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Reason::NotOffered => "not_offered",
            Reason::NotAdmitted => "not_admitted",
            Reason::Cheaper => "cheaper",
            Reason::Full => "full",
            Reason::Fault => "fault",
            Reason::Cancelled => "cancelled",
            Reason::Lost => "lost",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_of_a_kind_is_its_place() {
        for (place, kind) in Kind::ALL.into_iter().enumerate() {
            assert_eq!(kind.index(), place, "{kind:?}");
        }
    }
}
