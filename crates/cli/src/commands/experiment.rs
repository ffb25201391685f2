//! What the commands that repeat a paper's experiments share.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use slipstream_bench::Error;

use super::options;
use crate::output;

/// How long, on what, and where results go.
#[derive(Args)]
pub struct Options {
    /// Length of one measurement
    #[arg(long, value_name = "SECONDS", value_parser = options::seconds, default_value = "1")]
    pub seconds: Duration,
    /// How many times to measure everything
    #[arg(long, value_parser = options::positive, default_value = "3")]
    pub rounds: usize,
    /// Write rows.json, plots and report.html to this directory
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Write machine, rows and summary to this file as JSON (- for standard output, without the table)
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// The nginx executable [default: the installed one]
    #[arg(long, value_name = "FILE")]
    pub nginx: Option<PathBuf>,
    /// The Slipstream module for it [default: the one built beside this program, else the installed one]
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
    /// Writes what has been found to wherever it was asked for, and the table to standard output. Fails if any connection
    /// has.
    pub fn finish<O: Display + Serialize>(
        &self,
        outcome: &O,
        errors: u64,
        write_report: impl FnOnce(&O, &Path) -> Result<Vec<PathBuf>, Error>,
    ) -> anyhow::Result<ExitCode> {
        output::write_with_report(
            self.out.as_deref(),
            self.json.as_deref(),
            outcome,
            write_report,
        )?;
        Ok(output::exit_code(errors))
    }
}
