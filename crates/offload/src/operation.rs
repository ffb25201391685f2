//! Operations: the content of requests.

use std::fmt;
use std::ops::{Index, IndexMut, RangeInclusive};
use std::sync::Arc;

use slipstream_keys::ec::{self, Curve};
use slipstream_keys::rsa::{self, Size};
use slipstream_keys::{Group, Key, Operand, Value};

/// An operation that owns its inputs. Nothing here points into the memory of the caller, so a
/// connection may disappear while its operation is in flight.
#[derive(Debug)]
#[non_exhaustive]
pub enum Operation {
    /// RSASP1 and RSADP (RFC 8017, section 5): `input` to the power of the private exponent, modulo
    /// n.
    Rsa {
        /// The key, shared with its other users.
        key: Key<rsa::PrivateKey>,
        /// Big-endian, exactly as long as the modulus and less than it.
        input: Operand,
    },
    /// The X25519 function (RFC 7748). A result of zero, which RFC 8446 section 7.4.2 forbids, is a
    /// [`Reason::Fault`](crate::Reason::Fault).
    X25519 {
        /// 32 bytes.
        private: Operand,
        /// The peer's public key, 32 bytes.
        peer: Operand,
    },
    /// The X coordinate of the product of a point and a private key (SP 800-56A, section 5.7.1.2).
    /// A point that is not on the curve is a [`Reason::Fault`](crate::Reason::Fault).
    Ecdh {
        /// The curve.
        curve: Curve,
        /// Big-endian, as long as the order of the curve.
        private: Operand,
        /// The peer's public key, uncompressed (SEC 1, section 2.3.3).
        peer: Operand,
    },
    /// r and s of a signature (FIPS 186-5, section 6.4), each as long as the order of the curve.
    Ecdsa {
        /// The key, shared with its other users.
        key: Key<ec::PrivateKey>,
        /// The digest of the message, 1 to 64 bytes.
        digest: Operand,
    },
    /// A new key pair: the private key and then the public key, as
    /// [`KeyPair::from_bytes`](slipstream_keys::KeyPair::from_bytes) reads them.
    KeyPair(Group),
    /// A chunk of content, compressed so that it refers to no other chunk.
    Compress(Compression),
}

impl Operation {
    /// The kind of the operation: operations of one kind can share a batch.
    pub fn kind(&self) -> Kind {
        match self {
            Operation::Rsa { key, .. } => Kind::Rsa(key.parameters()),
            Operation::X25519 { .. } => Kind::X25519,
            Operation::Ecdh { curve, .. } => Kind::Ecdh(*curve),
            Operation::Ecdsa { key, .. } => Kind::Ecdsa(key.parameters()),
            Operation::KeyPair(group) => Kind::KeyPair(*group),
            Operation::Compress(compression) => Kind::Compress(compression.coding),
        }
    }

    /// The class under which the operation is counted while it is in flight.
    pub fn class(&self) -> Class {
        self.kind().class()
    }

    /// Returns true if only accelerators have the private key, so that no software of this process
    /// can compute the operation.
    pub fn is_held(&self) -> bool {
        match self {
            Operation::Rsa { key, .. } => is_held(key),
            Operation::Ecdsa { key, .. } => is_held(key),
            Operation::X25519 { .. }
            | Operation::Ecdh { .. }
            | Operation::KeyPair(_)
            | Operation::Compress(_) => false,
        }
    }

    /// Returns true if the lengths of the operands fit the [kind](Self::kind). The values are
    /// checked when the operation is computed.
    pub fn has_valid_lengths(&self) -> bool {
        let (first, second) = self.operands();
        let [first_length, second_length] = &self.kind().description().operands;
        first_length.contains(&first.len()) && second_length.contains(&second.len())
    }

    /// The two operands; those that the operation does not have are empty.
    pub fn operands(&self) -> (&[u8], &[u8]) {
        match self {
            Operation::Rsa { input, .. } => (input.as_slice(), &[]),
            Operation::Ecdsa { digest, .. } => (digest.as_slice(), &[]),
            Operation::X25519 { private, peer } | Operation::Ecdh { private, peer, .. } => {
                (private.as_slice(), peer.as_slice())
            }
            Operation::KeyPair(_) | Operation::Compress(_) => (&[], &[]),
        }
    }
}

fn is_held<V: Value>(key: &Key<V>) -> bool {
    key.reference().is_some()
}

/// The kind of an operation. Operations of one kind are computed together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// RSASP1 and RSADP of RFC 8017 with a modulus of this size.
    Rsa(Size),
    /// A shared secret of X25519 (RFC 7748).
    X25519,
    /// A shared secret on a NIST curve (SP 800-56A, section 5.7.1.2).
    Ecdh(Curve),
    /// An ECDSA signature (FIPS 186-5, section 6.4).
    Ecdsa(Curve),
    /// An ephemeral key pair.
    KeyPair(Group),
    /// A chunk of content, compressed. Each chunk is computed by itself.
    Compress(Coding),
}

/// All properties that follow from the kind of an operation.
#[derive(Clone, Debug)]
pub struct Description {
    /// The kind.
    pub kind: Kind,
    /// The name in logs, tables and metrics.
    pub name: &'static str,
    /// The number of the kind in a slot of a ring. A number is never used again for another kind.
    pub wire: u64,
    /// The class under which operations of the kind are counted while in flight.
    pub class: Class,
    /// The lengths that the two operands may have in bytes; 0 for an operand that the kind does not
    /// have. Content is no operand.
    pub operands: [RangeInclusive<usize>; 2],
    /// Length of the result in bytes; 0 for compressed content, whose length depends on the
    /// content.
    pub output_bytes: usize,
}

/// One row for each kind of operation, in the order of [`Kind::index`].
///
/// Names, numbers on the wire, lengths, classes and the labels of counters follow from this table.
/// To add an operation, add a row here, a variant to [`Kind`] and to [`Operation`], and nothing
/// else in this crate.
pub static DESCRIPTIONS: [Description; Kind::COUNT] = ROWS;

const ROWS: [Description; Kind::COUNT] = [
    row(
        Kind::Rsa(Size::Rsa2048),
        "RSA-2048",
        0,
        exactly(256),
        NONE,
        256,
    ),
    row(
        Kind::Rsa(Size::Rsa3072),
        "RSA-3072",
        1,
        exactly(384),
        NONE,
        384,
    ),
    row(
        Kind::Rsa(Size::Rsa4096),
        "RSA-4096",
        2,
        exactly(512),
        NONE,
        512,
    ),
    row(Kind::X25519, "X25519", 3, exactly(32), exactly(32), 32),
    row(
        Kind::Ecdh(Curve::P256),
        "P-256",
        4,
        exactly(32),
        exactly(65),
        32,
    ),
    row(
        Kind::Ecdh(Curve::P384),
        "P-384",
        5,
        exactly(48),
        exactly(97),
        48,
    ),
    row(Kind::Ecdsa(Curve::P256), "ECDSA-P-256", 6, DIGEST, NONE, 64),
    row(Kind::Ecdsa(Curve::P384), "ECDSA-P-384", 7, DIGEST, NONE, 96),
    row(
        Kind::KeyPair(Group::X25519),
        "KEY-X25519",
        8,
        NONE,
        NONE,
        64,
    ),
    row(Kind::KeyPair(Group::P256), "KEY-P-256", 9, NONE, NONE, 97),
    row(Kind::KeyPair(Group::P384), "KEY-P-384", 10, NONE, NONE, 145),
    row(
        Kind::Compress(Coding::Deflate),
        "DEFLATE",
        11,
        NONE,
        NONE,
        0,
    ),
    row(Kind::Compress(Coding::Zstd), "ZSTD", 12, NONE, NONE, 0),
];

/// An operand that the kind does not have.
const NONE: RangeInclusive<usize> = 0..=0;

/// SHA-512 has the longest digest.
const DIGEST: RangeInclusive<usize> = 1..=64;

const fn exactly(bytes: usize) -> RangeInclusive<usize> {
    bytes..=bytes
}

const fn row(
    kind: Kind,
    name: &'static str,
    wire: u64,
    first: RangeInclusive<usize>,
    second: RangeInclusive<usize>,
    output_bytes: usize,
) -> Description {
    let class = match kind {
        Kind::Compress(_) => Class::Compression,
        _ => Class::Asymmetric,
    };
    Description {
        kind,
        name,
        wire,
        class,
        operands: [first, second],
        output_bytes,
    }
}

impl Kind {
    /// The number of kinds.
    pub const COUNT: usize = 13;

    /// Every kind, in the order of [`Kind::index`].
    pub const ALL: [Kind; Kind::COUNT] = {
        let mut all = [Kind::X25519; Kind::COUNT];
        let mut index = 0;
        while index < Kind::COUNT {
            all[index] = ROWS[index].kind;
            index += 1;
        }
        all
    };

    /// Position in [`Kind::ALL`], in [`DESCRIPTIONS`] and in tables with an entry for each kind.
    pub const fn index(self) -> usize {
        match self {
            Kind::Rsa(size) => size.index(),
            Kind::X25519 => 3,
            Kind::Ecdh(curve) => 4 + curve.index(),
            Kind::Ecdsa(curve) => 6 + curve.index(),
            Kind::KeyPair(group) => 8 + group.index(),
            Kind::Compress(coding) => 11 + coding.index(),
        }
    }

    /// Returns all properties that follow from the kind.
    pub fn description(self) -> &'static Description {
        &DESCRIPTIONS[self.index()]
    }

    /// The name in logs, tables and metrics.
    pub fn name(self) -> &'static str {
        self.description().name
    }

    /// Returns true if values for operations of the kind can be made before these are asked for: key
    /// pairs, and nonces of signatures.
    pub fn is_precomputed(self) -> bool {
        matches!(self, Kind::KeyPair(_) | Kind::Ecdsa(_))
    }

    /// The class under which operations of the kind are counted while in flight.
    pub fn class(self) -> Class {
        self.description().class
    }

    /// Length of the result in bytes; 0 for compressed content.
    pub fn output_bytes(self) -> usize {
        self.description().output_bytes
    }

    /// The number of the kind in a slot of a ring.
    pub fn wire(self) -> u64 {
        self.description().wire
    }

    /// The kind with this [number](Self::wire).
    pub fn from_wire(wire: u64) -> Option<Kind> {
        // The numbers are those of the rows as long as no row has been removed.
        let guess = usize::try_from(wire)
            .ok()
            .and_then(|index| DESCRIPTIONS.get(index));
        guess
            .filter(|row| row.wire == wire)
            .or_else(|| DESCRIPTIONS.iter().find(|row| row.wire == wire))
            .map(|row| row.kind)
    }

    /// The kind by which keys are agreed on in `group`.
    pub const fn exchange(group: Group) -> Kind {
        match group.curve() {
            None => Kind::X25519,
            Some(curve) => Kind::Ecdh(curve),
        }
    }
}

// The compiler refuses a row that stands in another place than its kind's index.
const _: () = {
    let mut index = 0;
    while index < Kind::COUNT {
        assert!(ROWS[index].kind.index() == index);
        index += 1;
    }
};

/// The classes that QTLS (section 4.3) counts separately, since they differ in duration by orders
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
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The word used for this class in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Class::Asymmetric => "asymmetric",
            Class::Cipher => "cipher",
            Class::Prf => "prf",
            Class::Compression => "compression",
        }
    }
}

/// A format of compressed content.
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
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// A chunk of content that is to be compressed.
///
/// Chunks of DEFLATE end on a byte and can be joined to one stream, which the last one ends. Each
/// chunk of Zstandard is a frame, and frames can be joined.
#[derive(Clone)]
pub struct Compression {
    /// The coding.
    pub coding: Coding,
    /// As the coding's library counts levels.
    pub level: u8,
    /// True if the stream ends with this chunk.
    pub is_last: bool,
    /// The content, shared with the caller, which may have to compress it in software.
    pub content: Arc<Vec<u8>>,
}

impl fmt::Debug for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (coding, level) = (self.coding, self.level);
        write!(f, "{coding:?} {level} of {} bytes", self.content.len())
    }
}

/// A table with one entry for each kind of operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PerKind<T>(pub [T; Kind::COUNT]);

impl<T> PerKind<T> {
    /// The table with the entry `make(kind)` for each kind.
    pub fn new(make: impl FnMut(Kind) -> T) -> Self {
        Self(Kind::ALL.map(make))
    }
}

impl<T: Default> Default for PerKind<T> {
    fn default() -> Self {
        Self::new(|_| T::default())
    }
}

impl<T> Index<Kind> for PerKind<T> {
    type Output = T;

    fn index(&self, kind: Kind) -> &T {
        &self.0[kind.index()]
    }
}

impl<T> IndexMut<Kind> for PerKind<T> {
    fn index_mut(&mut self, kind: Kind) -> &mut T {
        &mut self.0[kind.index()]
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_and_numbers_are_unique() {
        let names: HashSet<&str> = Kind::ALL.into_iter().map(Kind::name).collect();
        let numbers: HashSet<u64> = Kind::ALL.into_iter().map(Kind::wire).collect();
        assert_eq!((names.len(), numbers.len()), (Kind::COUNT, Kind::COUNT));
        for kind in Kind::ALL {
            assert_eq!(Kind::from_wire(kind.wire()), Some(kind));
        }
        assert_eq!(Kind::from_wire(Kind::COUNT as u64), None);
        assert_eq!(Kind::from_wire(u64::MAX), None);
    }

    #[test]
    fn lengths_follow_from_keys_curves_and_groups() {
        for size in Size::ALL {
            let row = Kind::Rsa(size).description();
            assert_eq!(row.operands[0], size.bytes()..=size.bytes());
            assert_eq!(row.output_bytes, size.bytes());
        }
        for curve in Curve::ALL {
            let [private, peer] = &Kind::Ecdh(curve).description().operands;
            assert_eq!(*private, curve.bytes()..=curve.bytes());
            assert_eq!(*peer, curve.point_bytes()..=curve.point_bytes());
            assert_eq!(Kind::Ecdh(curve).output_bytes(), curve.bytes());
            assert_eq!(Kind::Ecdsa(curve).output_bytes(), 2 * curve.bytes());
        }
        for group in Group::ALL {
            let bytes = group.private_bytes() + group.public_bytes();
            assert_eq!(Kind::KeyPair(group).output_bytes(), bytes);
            assert_eq!(Kind::exchange(group).output_bytes(), group.secret_bytes());
        }
    }

    #[test]
    fn wrong_lengths_are_seen() {
        let exchange = |private, peer| Operation::X25519 {
            private: Operand::zeroed(private),
            peer: Operand::zeroed(peer),
        };
        assert!(exchange(32, 32).has_valid_lengths());
        assert!(!exchange(31, 32).has_valid_lengths());
        assert!(!exchange(32, 33).has_valid_lengths());
        assert!(Operation::KeyPair(Group::P256).has_valid_lengths());
    }
}
