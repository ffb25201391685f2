//! Methods: a codec and a level.

use slipstream_offload::Coding;

use crate::codec::{self, Codec, GZIP};

/// A codec, and one of its levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Method {
    codec: &'static dyn Codec,
    level: u8,
}

impl Method {
    /// The default: gzip at level 1, which is as fast as possible, and whose output is no longer
    /// than that of zlib's level 1.
    pub const DEFAULT: Method = Method {
        codec: GZIP,
        level: 1,
    };

    /// Returns `None` if the codec has no such level.
    pub fn new(codec: &'static dyn Codec, level: u8) -> Option<Self> {
        codec
            .levels()
            .contains(&level)
            .then_some(Self { codec, level })
    }

    /// The method that a client of an accelerator names by a coding and a level. Returns `None` if
    /// there is no such codec or level.
    pub fn from_wire(coding: Coding, level: u8) -> Option<Self> {
        Self::new(codec::with_wire_coding(coding)?, level)
    }

    /// The codec.
    pub fn codec(self) -> &'static dyn Codec {
        self.codec
    }

    /// The level.
    pub fn level(self) -> u8 {
        self.level
    }

    /// The name of the library that compresses by this method on this machine.
    pub fn implementation(self) -> &'static str {
        self.codec.implementation(self.level)
    }

    /// The longest output of a chunk of `length` bytes, in bytes.
    pub fn bound(self, length: usize) -> usize {
        self.codec.bound(length)
    }
}
