//! Running all tests, and reporting every failure at the end.

use std::process::Command;

use anyhow::{Result, bail};

use crate::build::{cargo, product, target};
use crate::harness::{self, Outcome};

/// Builds everything and runs all tests. A step that fails does not keep the next from being made:
/// all failures are listed at the end.
///
/// # Errors
/// If a step has failed.
pub(crate) fn all(arguments: &[String]) -> Result<()> {
    let mut steps = Steps::default();
    #[cfg(feature = "nginx-source")]
    steps.run("build for the published nginx", || {
        crate::build::product_for(&crate::nginx::published()?)
    });
    // Last, so that the command of the product is the one that fits Debian's nginx.
    steps.run("build for Debian's nginx", || product().map(drop));
    steps.run_tests(
        "tests",
        cargo("test")
            .args(["--workspace", "--exclude", "slipstream-nginx"])
            .args(["--all-features", "--no-fail-fast"])
            .args(arguments),
    );
    // Without igzip, which the product has.
    steps.run_tests(
        "compression without igzip",
        cargo("test").args(["--no-fail-fast", "-p", "slipstream-compress"]),
    );
    // The model checker stands in for the atomics of one crate, which is built for it separately.
    steps.run_tests(
        "loom",
        cargo("test")
            .args(["--release", "--no-fail-fast"])
            .args(["-p", "slipstream-ring", "--test", "loom"])
            .arg("--target-dir")
            .arg(target().join("loom"))
            .env("RUSTFLAGS", "--cfg loom"),
    );
    // Only what is shipped can be in constant time: a debug build's overflow checks are branches on
    // secrets.
    steps.run_tests(
        "constant_time",
        cargo("test")
            .args(["--release", "--no-fail-fast"])
            .args(["-p", "slipstream-lanes", "--features", "system-openssl"])
            .args(["--test", "constant_time", "--test", "machine_code"]),
    );
    steps.report()
}

/// The steps made so far that have failed.
#[derive(Default)]
struct Steps {
    failures: Vec<Failure>,
}

struct Failure {
    step: &'static str,
    reason: anyhow::Error,
    /// Names of tests, if any has run.
    tests: Vec<String>,
}

impl Steps {
    fn run(&mut self, step: &'static str, work: impl FnOnce() -> Result<()>) {
        if let Err(reason) = work() {
            self.add(step, reason, Vec::new());
        }
    }

    /// Runs `cargo test`, of which every tool that tests use is required.
    fn run_tests(&mut self, step: &'static str, command: &mut Command) {
        command.env("SLIPSTREAM_REQUIRE_VALGRIND", "1");
        let mut outcome = Outcome::default();
        if let Err(reason) = harness::run(command, &mut outcome) {
            self.add(step, reason, outcome.failed);
        }
    }

    fn add(&mut self, step: &'static str, reason: anyhow::Error, tests: Vec<String>) {
        eprintln!("{step}: {reason:#}");
        self.failures.push(Failure {
            step,
            reason,
            tests,
        });
    }

    /// Lists what has failed.
    fn report(self) -> Result<()> {
        if self.failures.is_empty() {
            return Ok(());
        }
        eprintln!("\nfailures of all steps:");
        for Failure {
            step,
            reason,
            tests,
        } in &self.failures
        {
            eprintln!("  {step}: {reason:#}");
            for test in tests {
                eprintln!("    {test}");
            }
        }
        let steps: Vec<&str> = self.failures.iter().map(|failure| failure.step).collect();
        bail!("failed: {}", steps.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_steps_are_made_and_those_that_failed_are_named() {
        let mut steps = Steps::default();
        steps.run("first", || bail!("broken"));
        let mut is_run = false;
        steps.run("second", || {
            is_run = true;
            Ok(())
        });
        steps.run_tests(
            "third",
            Command::new("sh").args(["-c", "printf 'failures:\n    a\n    b\n'; exit 1"]),
        );
        assert!(is_run);
        assert_eq!(steps.failures[1].tests, ["a", "b"]);
        assert_eq!(
            steps.report().unwrap_err().to_string(),
            "failed: first, third"
        );
    }
}
