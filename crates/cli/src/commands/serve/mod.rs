//! `slipstream serve`.

mod describe;
mod options;
mod run;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;
use slipstream_terminator::Configuration;
use slipstream_terminator::configuration::check::{Findings, findings};
use slipstream_terminator::configuration::file;

use crate::output;

/// Terminate TLS for servers that cannot do it asynchronously themselves
///
/// Accepts TLS, and hands each connection to a backend: its bytes, or its HTTP requests; or answers requests with files. It runs
/// until SIGTERM, SIGQUIT or SIGINT, then takes no more connections and waits for those that are open; a second signal ends it
/// at once. SIGHUP has it read the configuration file and the certificates again. It prints a line when it is ready.
///
/// Either --config, or the other options for a single listener. docs/serve.md describes the file.
#[derive(Args)]
#[command(after_help = "Examples:
  slipstream serve --listen 0.0.0.0:443 --cert site.pem --key site.key --backend 127.0.0.1:3128 --proxy-protocol
  slipstream serve --listen 0.0.0.0:443 --cert site.pem --key site.key --backend http://127.0.0.1:8080 --user www-data
  slipstream serve --listen '[::]:8443' --cert site.pem --key site.key --root /var/www --access-log -
  slipstream serve --config /etc/slipstream/serve.toml
  slipstream serve --config /etc/slipstream/serve.toml --check")]
pub struct Serve {
    /// The configuration file; of the other options, only --check and --json may stand beside it
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Look for mistakes, print them all, and serve nothing
    #[arg(long)]
    check: bool,
    /// With --check: print JSON
    #[arg(long, requires = "check")]
    json: bool,
    #[command(flatten)]
    options: options::Options,
}

/// What --check --json prints.
#[derive(Serialize)]
struct Report {
    is_fine: bool,
    errors: Vec<String>,
    warnings: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    summary: Option<String>,
}

impl Serve {
    /// Runs the command.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        if self.check {
            return self.report();
        }
        let configuration = self.configuration().map_err(anyhow::Error::msg)?;
        run::run(configuration, self.config.as_deref())
    }

    fn configuration(&self) -> Result<Configuration, String> {
        match &self.config {
            Some(path) => {
                self.options.refuse_beside_file()?;
                file::read(path)
            }
            None => self.options.configuration(),
        }
    }

    fn report(&self) -> anyhow::Result<ExitCode> {
        let (found, summary) = match self.configuration() {
            Ok(configuration) => (
                findings(&configuration, None),
                Some(describe::configuration(&configuration)),
            ),
            Err(error) => (
                Findings {
                    errors: vec![error],
                    warnings: Vec::new(),
                },
                None,
            ),
        };
        let is_fine = found.errors.is_empty() && found.warnings.is_empty();
        if self.json {
            let report = Report {
                is_fine,
                errors: found.errors,
                warnings: found.warnings,
                summary,
            };
            let text = serde_json::to_string_pretty(&report)?;
            output::print(&format_args!("{text}\n"))?;
        } else if is_fine {
            let summary = summary.unwrap_or_default();
            output::print(&format_args!("configuration is fine: {summary}\n"))?;
        } else {
            let errors = found.errors.iter().map(|text| format!("error: {text}\n"));
            let warnings = found
                .warnings
                .iter()
                .map(|text| format!("warning: {text}\n"));
            output::print(&errors.chain(warnings).collect::<String>())?;
        }
        Ok(if is_fine {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    }
}
