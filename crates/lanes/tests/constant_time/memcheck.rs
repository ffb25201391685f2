//! Runs a test in valgrind's memcheck.

use std::any::type_name;
use std::env;
use std::fs;
use std::path::Path;
use std::process::{self, Command};

use crate::report::{Finding, Function, Kind, findings};
use crate::valgrind;

/// A function, by file and name, that branches on a public value that is computed from secrets.
pub type Exception = (&'static str, &'static str);

/// Runs `case`, a closure of the calling test, in memcheck.
///
/// # Panics
/// If it fails, or if a branch or an address depends on a secret. Branches directly in the
/// functions named in `exceptions` are allowed.
pub fn expect_constant_time<F: FnOnce()>(exceptions: &[Exception], case: F) {
    let Some(mut findings) = run(case) else {
        return;
    };
    findings.retain(|finding| {
        let place = finding.place();
        finding.kind != Kind::Branch
            || !place.is_some_and(|Function { name, file, .. }| exceptions.contains(&(file, name)))
    });
    let findings: String = findings.iter().map(Finding::to_string).collect();
    assert!(findings.is_empty(), "{findings}");
}

/// Runs `case`, a closure of the calling test, in memcheck.
///
/// # Panics
/// If it fails, or if there is no finding of this kind in a function of this name in this file.
pub fn expect_leak<F: FnOnce()>(kind: Kind, file: &str, name: &str, case: F) {
    let Some(findings) = run(case) else { return };
    let is_found = findings.iter().any(|finding| {
        let place = finding.place();
        finding.kind == kind
            && place.is_some_and(|function| function.file == file && function.name == name)
    });
    let findings: String = findings.iter().map(Finding::to_string).collect();
    assert!(is_found, "no {kind:?} in {name}:\n{findings}");
}

/// Declares memory secret.
pub fn make_secret<T: ?Sized>(memory: &mut T) {
    valgrind::make_undefined(memory);
}

/// Declares memory public that depends on secrets, such as a result.
///
/// # Panics
/// If it does not depend on a secret: then the code that computed it had nothing to leak.
pub fn publish<T: ?Sized>(memory: &mut T) {
    assert!(valgrind::is_undefined(memory), "it depends on no secret");
    valgrind::make_defined(memory);
}

/// Declares memory public that may depend on secrets.
pub fn make_public<T: ?Sized>(memory: &mut T) {
    valgrind::make_defined(memory);
}

/// Runs the calling test again, in memcheck, and returns the findings. In memcheck, runs `case` and
/// returns `None`. Also returns `None` if valgrind is missing and not required.
fn run<F: FnOnce()>(case: F) -> Option<Vec<Finding>> {
    if valgrind::is_present() {
        case();
        return None;
    }
    if !valgrind::is_installed() {
        return None;
    }
    let test = test_of::<F>();
    let report = format!("{}.{}.xml", test.replace("::", "."), process::id());
    let report = Path::new(env!("CARGO_TARGET_TMPDIR")).join(report);
    let output = Command::new("valgrind")
        .args([
            "--tool=memcheck",
            "--show-leak-kinds=none",
            "--error-limit=no",
        ])
        .args(["--num-callers=20", "--xml=yes"])
        .arg(format!("--xml-file={}", report.display()))
        .arg(env::current_exe().expect("this test is a file"))
        .args(["--exact", test, "--include-ignored"])
        .output()
        .expect("valgrind can be run");
    let is_passed = String::from_utf8_lossy(&output.stdout).contains("test result: ok. 1 passed");
    assert!(output.status.success() && is_passed, "{output:#?}");
    let text = fs::read_to_string(&report).expect("a report of valgrind");
    assert!(text.contains("</valgrindoutput>"), "it is cut off");
    fs::remove_file(&report).expect("a file of our own");
    Some(findings(&text))
}

/// The name in the test harness of the test that contains the closure `F`.
fn test_of<F>() -> &'static str {
    let path = type_name::<F>().trim_end_matches("::{{closure}}");
    path.split_once("::").expect("a crate and a path in it").1
}
