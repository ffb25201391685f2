//! Running all tests, and reporting every failure at the end.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::build::{cargo, product, target};
use crate::process::{self, shown};

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
            .args(["--test", "constant_time"]),
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
        let mut tests = Vec::new();
        if let Err(reason) = run_listing_failures(command, &mut tests) {
            self.add(step, reason, tests);
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

/// Runs a command whose output is that of test harnesses. Passes the output on, and adds the names
/// of tests that failed to `failed`.
fn run_listing_failures(command: &mut Command, failed: &mut Vec<String>) -> Result<()> {
    process::show(command);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run {}", shown(command)))?;
    let mut reader = FailureReader::default();
    let mut output = BufReader::new(child.stdout.take().context("a pipe was asked for")?);
    let mut line = Vec::new();
    while output.read_until(b'\n', &mut line)? > 0 {
        std::io::stdout().write_all(&line)?;
        failed.extend(reader.read(&String::from_utf8_lossy(&line)));
        line.clear();
    }
    let status = child.wait()?;
    if !status.success() {
        bail!("{} failed: {status}", shown(command));
    }
    Ok(())
}

/// Finds the list of failed tests at the end of a test harness's output: `failures:` and one
/// indented name a line.
#[derive(Default)]
struct FailureReader {
    is_in_list: bool,
}

impl FailureReader {
    /// Returns the name of a failed test if the line has one.
    fn read(&mut self, line: &str) -> Option<String> {
        let line = line.trim_end();
        let name = line.strip_prefix("    ").filter(|_| self.is_in_list);
        self.is_in_list = line == "failures:" || name.is_some();
        name.map(str::to_owned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_tests_are_found_in_the_output_of_a_harness() {
        let output = "\
running 3 tests
test a::good ... ok
test a::bad ... FAILED

failures:

---- a::bad stdout ----
    indented output of a test

failures:
    a::bad
    b::worse

test result: FAILED. 1 passed; 2 failed
    not a name
";
        let mut reader = FailureReader::default();
        let found: Vec<String> = output
            .lines()
            .filter_map(|line| reader.read(line))
            .collect();
        assert_eq!(found, ["a::bad", "b::worse"]);
    }

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
