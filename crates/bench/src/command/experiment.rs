//! Options of experiments with nginx that write a report.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde::Serialize;

use super::{options, output};
use crate::Error;

/// Length and number of measurements, the server, its core, and the files for the results.
#[derive(Args)]
pub struct Options {
    /// Length of one measurement
    #[arg(long, value_name = "SECONDS", value_parser = options::seconds, default_value = "1")]
    pub seconds: Duration,
    /// Number of times that everything is measured
    #[arg(long, value_parser = options::positive, default_value = "3")]
    pub rounds: usize,
    /// Write rows.json, plots and report.html to this directory
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Write machine, rows and summary to this file as JSON (- for standard output, without the
    /// table)
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// The nginx executable [default: the installed one]
    #[arg(long, value_name = "FILE")]
    pub nginx: Option<PathBuf>,
    /// The Slipstream module for it [default: the one built beside this program, else the installed
    /// one]
    #[arg(long, value_name = "FILE")]
    pub module: Option<PathBuf>,
    /// Core of the server's worker [default: the first]
    #[arg(long, value_name = "CORE")]
    pub server_core: Option<usize>,
    /// Core of the load and the engine [default: the second]
    #[arg(long, value_name = "CORE")]
    pub load_core: Option<usize>,
}

impl Options {
    /// Writes the report and the JSON that were asked for, and the table to standard output.
    /// Returns failure if there were `errors`, connections that have failed.
    ///
    /// # Errors
    /// If a file or standard output cannot be written.
    pub fn finish<O: Display + Serialize>(
        &self,
        outcome: &O,
        errors: u64,
        write_report: impl FnOnce(&O, &Path) -> Result<Vec<PathBuf>, Error>,
    ) -> Result<ExitCode, Error> {
        output::write_with_report(
            self.out.as_deref(),
            self.json.as_deref(),
            outcome,
            write_report,
        )?;
        Ok(output::exit_code(errors))
    }
}
