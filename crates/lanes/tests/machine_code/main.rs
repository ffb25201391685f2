//! Tests that the machine code of kernels runs in constant time. They run the code of each backend
//! that this CPU has, as it is, in a child process twice, with different secrets, and compare the
//! addresses of all instructions that were executed and of all memory that they touched.
//!
//! A child is not stopped after each instruction, which takes up to a tenth of a millisecond in a
//! virtual machine, but after each [block](blocks::Block) of them. [`steps`] compares the two.
//!
//! Debug builds have overflow checks, which are never taken branches here. `cargo test --release`
//! runs the code with the settings that it is shipped with.
#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

mod blocks;
mod ec;
mod leaky;
mod rsa;
mod steps;
mod trace;
mod tracee;
mod x25519;

use iced_x86::Mnemonic;
use slipstream_lanes::Backend;
use trace::{Subject, compare};

/// The numbers of operations in a batch.
const COUNTS: [usize; 3] = [1, 4, 8];

/// Returns true if the CPU has the backend, and says so if not.
fn is_available(backend: Backend) -> bool {
    let missing: Vec<&str> = backend.missing().collect();
    if !missing.is_empty() {
        println!(
            "{} skipped: this CPU has no {}",
            backend.name(),
            missing.join(" and no ")
        );
    }
    missing.is_empty()
}

/// Runs the computation twice, with different secrets.
///
/// # Panics
/// If the runs differ.
fn expect_constant_time(name: &str, subject: &mut dyn Subject) {
    let (difference, trace) = compare(subject);
    if let Some(difference) = difference {
        panic!("{name}: {difference}");
    }
    println!("{name}: {} instructions", trace.instructions);
    for variable in [Mnemonic::Div, Mnemonic::Idiv] {
        assert!(
            !trace.mnemonics.contains(&variable),
            "{name}: a division, whose time depends on its operands"
        );
    }
}
