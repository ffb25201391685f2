//! The tests of this binary once more, under valgrind's memcheck.

use std::io::Write;
use std::process::Command;

/// Without the asynchronous jobs: valgrind takes OpenSSL's switching of stacks for errors.
const TESTS: [&str; 15] = [
    "configuration::lanes_can_be_switched_off",
    "configuration::with_an_unknown_value",
    "curves::ecdsa::messages",
    "curves::exchange::software",
    "curves::handshakes::a_second",
    "curves::keys::the_peer",
    "digest_sign::a_",
    "digest_sign::lengths",
    "held::decryption::a_device",
    "held::signatures::what",
    "held::keys::",
    "held::parts::a_",
    "premaster::the_negotiated_version",
    "signatures::a_",
    "signatures::errors",
];

/// The backend without vector instructions, since valgrind knows no AVX-512.
#[test]
fn memcheck_finds_no_error_and_no_leak() {
    let Ok(valgrind) = Command::new("valgrind").arg("--version").output() else {
        // `make test` sets it.
        let is_required = std::env::var_os("SLIPSTREAM_REQUIRE_VALGRIND").is_some();
        assert!(
            !is_required,
            "valgrind is missing: install the package valgrind"
        );
        // Not by a macro: the test harness shows what those print only if a test fails.
        let _ = writeln!(std::io::stderr(), "skipped: valgrind is not installed");
        return;
    };
    assert!(valgrind.status.success());
    let output = Command::new("valgrind")
        .args([
            "--error-exitcode=99",
            "--leak-check=full",
            "--errors-for-leak-kinds=definite",
        ])
        .args(["--show-leak-kinds=definite", "--max-stackframe=131072"])
        .arg(std::env::current_exe().expect("a path"))
        .args(["--test-threads", "1"])
        .args(TESTS)
        .output()
        .expect("valgrind");
    let report = String::from_utf8_lossy(&output.stderr);
    let tests = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{tests}\n{report}");
    assert!(!tests.contains("running 0 tests"), "{tests}");
}
