//! Short inputs and outputs of operations.

use core::fmt;

use zeroize::Zeroizing;

/// The largest operand of any operation in bytes: an RSA-4096 residue.
pub const OPERAND_BYTES: usize = 512;

/// Bytes of an operand or a result, wiped when dropped. They are on the heap, so that an operand
/// that is moved leaves no copy behind.
#[derive(Clone)]
pub struct Operand(Zeroizing<Box<[u8]>>);

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

    /// A result of any length, such as compressed content. It is copied only if `bytes` has
    /// capacity to spare.
    pub fn content(bytes: Vec<u8>) -> Self {
        Self(Zeroizing::new(bytes.into_boxed_slice()))
    }

    /// The bytes, without a copy. They are not wiped any more.
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
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Operand({} bytes)", self.0.len())
    }
}
