//! Where results go.

use std::fmt::Display;
use std::fs;
use std::io::{self, ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use serde::Serialize;
use slipstream_bench::Error;

/// Writes `value` as JSON to the file `json`, if there is one, and as a table to standard output, unless `json` is `-`:
/// standard output is then for the JSON.
///
/// # Errors
/// If the file or standard output cannot be written.
pub fn write(json: Option<&Path>, value: &(impl Display + Serialize)) -> anyhow::Result<()> {
    if let Some(path) = json {
        let mut text = serde_json::to_string_pretty(value).context("cannot encode the result")?;
        text.push('\n');
        if path == Path::new("-") {
            return print(&text);
        }
        fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    print(value)
}

/// As [`write()`], after a report, which `write_report` writes, in the folder `out`, if there is one.
///
/// # Errors
/// If a file or standard output cannot be written.
pub fn write_with_report<O: Display + Serialize>(
    out: Option<&Path>,
    json: Option<&Path>,
    outcome: &O,
    write_report: impl FnOnce(&O, &Path) -> Result<Vec<PathBuf>, Error>,
) -> anyhow::Result<()> {
    if let Some(directory) = out {
        for path in write_report(outcome, directory)? {
            eprintln!("wrote {}", path.display());
        }
    }
    write(json, outcome)
}

/// A measurement in which connections have failed is none.
pub fn exit_code(failures: u64) -> ExitCode {
    match failures {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

/// Prints `text` as it is. A reader that has seen enough, as `head` has, is no error.
///
/// # Errors
/// If standard output cannot be written.
pub fn print(text: &(impl Display + ?Sized)) -> anyhow::Result<()> {
    let mut output = io::stdout().lock();
    match write!(output, "{text}").and_then(|()| output.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => result.context("cannot write to standard output"),
    }
}
