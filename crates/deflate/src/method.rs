//! What content is compressed with.

pub use slipstream_offload::Coding;

#[cfg(target_arch = "x86_64")]
use crate::igzip;

/// A coding and a level of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Method {
    coding: Coding,
    level: u8,
}

/// The libraries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Implementation {
    #[cfg(target_arch = "x86_64")]
    Igzip,
    ZlibRs,
    Zstd,
}

impl Method {
    /// The default: as fast as possible, and no larger than zlib's level 1.
    pub const DEFAULT: Method = Method {
        coding: Coding::Deflate,
        level: 1,
    };

    /// The levels that a coding has: 1 to 9 as gzip's for DEFLATE, 1 to 19 as those of zstd.
    pub fn levels(coding: Coding) -> std::ops::RangeInclusive<u8> {
        match coding {
            Coding::Deflate => 1..=9,
            Coding::Zstd => 1..=19,
        }
    }

    /// `None` if the coding has no such level.
    pub fn new(coding: Coding, level: u8) -> Option<Self> {
        Self::levels(coding)
            .contains(&level)
            .then_some(Self { coding, level })
    }

    /// The coding.
    pub fn coding(self) -> Coding {
        self.coding
    }

    /// The level.
    pub fn level(self) -> u8 {
        self.level
    }

    /// The name of the library that compresses so on this machine: "igzip", "zlib-rs" or "zstd".
    pub fn implementation(self) -> &'static str {
        match self.chosen() {
            #[cfg(target_arch = "x86_64")]
            Implementation::Igzip => "igzip",
            Implementation::ZlibRs => "zlib-rs",
            Implementation::Zstd => "zstd",
        }
    }

    pub(crate) fn chosen(self) -> Implementation {
        match self.coding {
            Coding::Zstd => Implementation::Zstd,
            #[cfg(target_arch = "x86_64")]
            Coding::Deflate if igzip::LEVELS.contains(&self.level) && igzip::is_available() => {
                Implementation::Igzip
            }
            Coding::Deflate => Implementation::ZlibRs,
        }
    }
}
