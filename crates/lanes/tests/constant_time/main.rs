//! Whether kernels run in constant time: in valgrind's memcheck secrets are declared undefined, and memcheck then reports
//! every branch and every address that depends on one (Langley, "ctgrind", 2010).
//!
//! Kernels are looked at in a release build, as they are shipped: the overflow checks of a debug build are branches on
//! secrets. Valgrind has no AVX-512, so this looks at [`Backend::Portable`], which runs the code of the IFMA backend with
//! another vector. Not seen are instructions whose own time depends on their operands, such as divisions.
//!
//! [`Backend::Portable`]: slipstream_lanes::Backend::Portable
#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

#[path = "../common/mod.rs"]
mod common;
mod ec;
mod leaky;
mod memcheck;
mod report;
mod rsa;
mod valgrind;
mod x25519;
