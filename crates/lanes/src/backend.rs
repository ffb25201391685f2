//! The instruction sets that kernels are written for.

use core::sync::atomic::{AtomicBool, Ordering};

/// An instruction set to compute with.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub enum Backend {
    /// AVX-512 with the 52-bit integer multiply-add of IFMA (Ice Lake, Zen 4 and later). This is
    /// the fastest.
    Ifma,
    /// Plain AVX-512F with 28-bit digits (Skylake-SP, Cascade Lake).
    Avx512,
    /// No particular instructions. This is for tests, and slower than any RSA library.
    Portable,
}

/// True after [`assume_available`].
static IFMA_ASSUMED: AtomicBool = AtomicBool::new(false);

impl Backend {
    /// All backends, the fastest first.
    pub const ALL: [Backend; 3] = [Backend::Ifma, Backend::Avx512, Backend::Portable];

    /// The fastest backend that this CPU and the operating system can run. It is never
    /// [`Backend::Portable`]: `None` means that software is faster than lanes.
    #[must_use]
    pub fn detect() -> Option<Backend> {
        [Backend::Ifma, Backend::Avx512]
            .into_iter()
            .find(|backend| backend.is_available())
    }

    /// All backends that this CPU and the operating system can run, the fastest first.
    pub fn available() -> impl Iterator<Item = Backend> + Clone {
        Backend::ALL
            .into_iter()
            .filter(|backend| backend.is_available())
    }

    /// Returns true if this CPU and the operating system can run the backend.
    #[must_use]
    pub fn is_available(self) -> bool {
        self.missing().next().is_none()
            || (self == Backend::Ifma && IFMA_ASSUMED.load(Ordering::Relaxed))
    }

    /// The name of the backend: `avx512-ifma`, `avx512f` or `portable`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Backend::Ifma => "avx512-ifma",
            Backend::Avx512 => "avx512f",
            Backend::Portable => "portable",
        }
    }

    /// The CPU features that the backend needs and this CPU lacks, named as in `/proc/cpuinfo`.
    pub fn missing(self) -> impl Iterator<Item = &'static str> + Clone {
        let (foundation, multiply_add) = match self {
            Backend::Ifma => (true, true),
            Backend::Avx512 => (true, false),
            Backend::Portable => (false, false),
        };
        let foundation = (foundation && !has_avx512f()).then_some("avx512f");
        let multiply_add = (multiply_add && !has_avx512ifma()).then_some("avx512ifma");
        foundation.into_iter().chain(multiply_add)
    }
}

#[cfg(target_arch = "x86_64")]
fn has_avx512f() -> bool {
    std::is_x86_feature_detected!("avx512f")
}

#[cfg(target_arch = "x86_64")]
fn has_avx512ifma() -> bool {
    std::is_x86_feature_detected!("avx512ifma")
}

#[cfg(not(target_arch = "x86_64"))]
fn has_avx512f() -> bool {
    false
}

#[cfg(not(target_arch = "x86_64"))]
fn has_avx512ifma() -> bool {
    false
}

/// Makes [`Backend::Ifma`] available on a CPU that does not announce IFMA. For tests that emulate
/// it.
///
/// # Safety
/// From now on, every IFMA instruction that this process executes must have its architectural
/// effect, and the CPU must have AVX-512F.
#[doc(hidden)]
pub unsafe fn assume_available() {
    IFMA_ASSUMED.store(true, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn portable_is_available_but_never_detected() {
        assert!(Backend::Portable.is_available());
        assert_ne!(Backend::detect(), Some(Backend::Portable));
        assert_eq!(Backend::Portable.missing().count(), 0);
    }

    #[test]
    fn the_fastest_available_backend_is_detected() {
        let first = Backend::available().next().expect("portable");
        assert_eq!(Backend::detect().unwrap_or(Backend::Portable), first);
    }

    #[test]
    fn a_backend_is_available_if_nothing_is_missing() {
        for backend in [Backend::Avx512, Backend::Portable] {
            assert_eq!(backend.is_available(), backend.missing().count() == 0);
        }
    }
}
