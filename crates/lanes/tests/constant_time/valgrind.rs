//! Finding valgrind, and requests of a program to the valgrind that runs it (valgrind/valgrind.h
//! and valgrind/memcheck.h).

use core::arch::asm;
use std::env;
use std::io::{self, Write};
use std::process::Command;

/// Returns true if valgrind is installed, and otherwise says that a test is skipped.
///
/// # Panics
/// If it is missing and `SLIPSTREAM_REQUIRE_VALGRIND` is set, as `make test` does.
pub fn is_installed() -> bool {
    let is_installed = Command::new("valgrind").arg("--version").output().is_ok();
    assert!(
        is_installed || env::var_os("SLIPSTREAM_REQUIRE_VALGRIND").is_none(),
        "valgrind is missing: install the package valgrind"
    );
    if !is_installed {
        // Not by a macro: the test harness shows what those print only if a test fails.
        let _ = writeln!(io::stderr(), "skipped: valgrind is not installed");
    }
    is_installed
}

/// Returns true if this process runs in valgrind.
pub fn is_present() -> bool {
    const RUNNING_ON_VALGRIND: usize = 0x1001;
    request(RUNNING_ON_VALGRIND, [0; 3]) != 0
}

/// Declares memory undefined.
///
/// # Panics
/// If this process does not run in memcheck.
pub fn make_undefined<T: ?Sized>(memory: &mut T) {
    const MAKE_MEM_UNDEFINED: usize = MEMCHECK + 1;
    let answer = request(MAKE_MEM_UNDEFINED, extent(memory));
    assert_ne!(answer, 0, "not in memcheck");
}

/// Declares memory defined.
///
/// # Panics
/// If this process does not run in memcheck.
pub fn make_defined<T: ?Sized>(memory: &mut T) {
    const MAKE_MEM_DEFINED: usize = MEMCHECK + 2;
    let answer = request(MAKE_MEM_DEFINED, extent(memory));
    assert_ne!(answer, 0, "not in memcheck");
}

/// Returns true if a bit of the memory is undefined.
///
/// # Panics
/// If this process does not run in memcheck.
pub fn is_undefined<T: ?Sized>(memory: &T) -> bool {
    const GET_VBITS: usize = MEMCHECK + 8;
    let mut undefined = vec![0_u8; size_of_val(memory)];
    let [start, length, _] = extent(memory);
    let answer = request(
        GET_VBITS,
        [start, undefined.as_mut_ptr().expose_provenance(), length],
    );
    assert_eq!(answer, 1, "not in memcheck");
    undefined.iter().any(|bits| *bits != 0)
}

const MEMCHECK: usize = (b'M' as usize) << 24 | (b'C' as usize) << 16;

fn extent<T: ?Sized>(memory: &T) -> [usize; 3] {
    let start = (&raw const *memory).cast::<u8>();
    [start.expose_provenance(), size_of_val(memory), 0]
}

/// Valgrind's answer; 0 where there is no valgrind.
fn request(code: usize, arguments: [usize; 3]) -> usize {
    let [first, second, third] = arguments;
    let request = [code, first, second, third, 0, 0];
    let mut answer = 0;
    // SAFETY: the rotations add up to 128 bits and the exchange is of a register with itself, so
    // this does nothing. Valgrind knows the sequence, reads the six words and sets the answer. One
    // of the requests here writes to memory: a byte for each byte asked about, to a buffer of that
    // length.
    unsafe {
        asm!(
            "rol rdi, 3",
            "rol rdi, 13",
            "rol rdi, 61",
            "rol rdi, 51",
            "xchg rbx, rbx",
            in("rax") &raw const request,
            inout("rdx") answer,
            options(nostack),
        );
    }
    answer
}
