//! Tests that the machine code of kernels runs in constant time.
#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

mod blocks;
mod leaky;
mod trace;
mod tracee;
