//! Running tests, and reading the results from the output of Rust's test harness.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::process::{self, shown};

/// The results of test harnesses that have run.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// The number of tests that passed, those that skipped their subject included.
    pub(crate) passed: usize,
    /// Names of tests that failed.
    pub(crate) failed: Vec<String>,
    /// The number of tests that were left out: ignored ones, and those that no filter chose.
    pub(crate) left_out: usize,
    /// Tests that passed and said that they skipped something, as `NAME: REASON`. They are only
    /// seen with `--show-output`.
    pub(crate) skipped: Vec<String>,
}

impl Outcome {
    /// Adds the results of other harnesses.
    pub(crate) fn add(&mut self, other: Outcome) {
        self.passed += other.passed;
        self.failed.extend(other.failed);
        self.left_out += other.left_out;
        self.skipped.extend(other.skipped);
    }
}

/// Runs a command whose output is that of test harnesses. Passes the output on, and adds what it
/// says to `outcome`.
///
/// # Errors
/// If the command cannot be run, or fails. `outcome` holds what was read until then.
pub(crate) fn run(command: &mut Command, outcome: &mut Outcome) -> Result<()> {
    process::show(command);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run {}", shown(command)))?;
    let mut reader = Reader::default();
    let mut output = BufReader::new(child.stdout.take().context("a pipe was asked for")?);
    let mut line = Vec::new();
    while output.read_until(b'\n', &mut line)? > 0 {
        let text = String::from_utf8_lossy(&line);
        // By the macro, so that a test of this function does not seem to be other tests.
        print!("{text}");
        reader.read(&text, outcome);
        line.clear();
    }
    let status = child.wait()?;
    if !status.success() {
        bail!("{} failed: {status}", shown(command));
    }
    Ok(())
}

/// Reads the output of test harnesses line by line. After a line `failures:` stand the failed
/// tests, one indented name a line. What a test has written stands after `---- NAME stdout ----`.
#[derive(Default)]
struct Reader {
    is_in_list: bool,
    /// The test whose output is being read.
    test: Option<String>,
}

impl Reader {
    fn read(&mut self, line: &str, outcome: &mut Outcome) {
        let line = line.trim_end();
        let name = line.strip_prefix("    ").filter(|_| self.is_in_list);
        self.is_in_list = line == "failures:" || name.is_some();
        outcome.failed.extend(name.map(str::to_owned));
        if let Some(test) = line
            .strip_prefix("---- ")
            .and_then(|rest| rest.strip_suffix(" stdout ----"))
        {
            self.test = Some(test.to_owned());
        } else if let (Some(test), Some(reason)) = (&self.test, line.strip_prefix("skipped")) {
            let reason = reason.trim_start_matches([':', ' ']);
            outcome.skipped.push(format!("{test}: {reason}"));
        } else if let Some(counts) = line.strip_prefix("test result: ") {
            self.test = None;
            outcome.passed += count(counts, "passed");
            outcome.left_out += count(counts, "ignored") + count(counts, "filtered out");
        }
    }
}

/// Returns the number before `unit` in `ok. 12 passed; 0 failed; 1 ignored; 3 filtered out`.
fn count(counts: &str, unit: &str) -> usize {
    counts
        .split(['.', ';'])
        .filter_map(|part| part.trim().strip_suffix(unit))
        .find_map(|number| number.trim().parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "\
running 5 tests
test a::good ... ok
test a::other ... ok
test a::bad ... FAILED

successes:

---- a::good stdout ----
skipped: chromium is not installed
something else

---- a::other stdout ----
not skipped

successes:
    a::good
    a::other

failures:

---- a::bad stdout ----
    indented output of a test

failures:
    a::bad
    b::worse

test result: FAILED. 2 passed; 2 failed; 1 ignored; 0 measured; 3 filtered out; finished in 0.10s
    not a name
";

    #[test]
    fn results_are_found_in_the_output_of_a_harness() {
        let mut outcome = Outcome::default();
        let mut reader = Reader::default();
        for line in OUTPUT.lines() {
            reader.read(line, &mut outcome);
        }
        assert_eq!(outcome.failed, ["a::bad", "b::worse"]);
        assert_eq!(outcome.skipped, ["a::good: chromium is not installed"]);
        assert_eq!((outcome.passed, outcome.left_out), (2, 4));
    }

    #[test]
    fn results_of_harnesses_are_added_and_a_failure_is_an_error() {
        let mut outcome = Outcome::default();
        let script = format!("printf '%s' '{OUTPUT}{OUTPUT}'; exit 1");
        let error = run(Command::new("sh").args(["-c", &script]), &mut outcome).unwrap_err();
        assert!(error.to_string().contains("failed"), "{error}");
        let mut total = Outcome::default();
        total.add(outcome);
        assert_eq!((total.passed, total.failed.len()), (4, 4));
        assert_eq!((total.skipped.len(), total.left_out), (2, 8));
    }
}
