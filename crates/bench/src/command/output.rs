//! Reports and exit codes.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde::Serialize;
use slipstream_testbed::output::write;

use crate::Error;

/// Writes a report to the directory `out`, if there is one, by `write_report`; then JSON and text
/// as [`write()`] does.
///
/// # Errors
/// If a file or standard output cannot be written.
pub fn write_with_report<O: Display + Serialize>(
    out: Option<&Path>,
    json: Option<&Path>,
    outcome: &O,
    write_report: impl FnOnce(&O, &Path) -> Result<Vec<PathBuf>, Error>,
) -> Result<(), Error> {
    if let Some(directory) = out {
        for path in write_report(outcome, directory)? {
            eprintln!("wrote {}", path.display());
        }
    }
    Ok(write(json, outcome)?)
}

/// Returns failure if any connection has failed: such a measurement is invalid.
pub fn exit_code(failures: u64) -> ExitCode {
    match failures {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}
