//! Tests that kernels run in constant time. They declare secrets undefined in valgrind's memcheck,
//! which then reports every branch and every address that depends on one (Langley, "ctgrind",
//! 2010).
//!
//! The tests need a release build, the form in which kernels are shipped: the overflow checks of a
//! debug build are branches on secrets. Valgrind does not know AVX-512, so the tests run
//! [`Backend::Portable`], which is the code of the IFMA backend with another vector; the tests named
//! `machine_code` run the other backends. They do not notice instructions whose own time depends on
//! their operands, such as divisions.
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
