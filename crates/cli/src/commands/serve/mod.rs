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
use slipstream_testbed::output::print;

/// Terminate TLS for servers whose own TLS cannot be made asynchronous
///
/// Accepts TLS connections and forwards their bytes or HTTP requests to backends, or answers
/// requests with files. SIGTERM, SIGQUIT or SIGINT stops it: it accepts no more connections and
/// waits for open ones; a second signal ends it at once. SIGHUP reloads the configuration file and
/// the certificates. It prints a line when it is ready.
///
/// Either --config, or the other options for a single listener. docs/src/reference/serve.md
/// describes the file.
#[derive(Args)]
#[command(after_help = "Examples:
  slipstream serve --listen 0.0.0.0:443 --cert site.pem --key site.key --backend 127.0.0.1:3128 --proxy-protocol
  slipstream serve --listen 0.0.0.0:443 --cert site.pem --key site.key --backend http://127.0.0.1:8080 --user www-data
  slipstream serve --listen '[::]:8443' --cert site.pem --key site.key --root /var/www --access-log -
  slipstream serve --config /etc/slipstream/serve.toml
  slipstream serve --config /etc/slipstream/serve.toml --check")]
pub struct Serve {
    /// Configuration file; only --check and --json can be combined with it
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Check the configuration, print all mistakes, and serve nothing
    #[arg(long)]
    check: bool,
    /// Print the result of --check as JSON
    #[arg(long, requires = "check")]
    json: bool,
    #[command(flatten)]
    options: options::Options,
}

/// Output of --check --json.
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
                file::read(path).map_err(|error| error.to_string())
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
            print(&format_args!("{text}\n"))?;
        } else if is_fine {
            let summary = summary.unwrap_or_default();
            print(&format_args!("configuration is fine: {summary}\n"))?;
        } else {
            let errors = found.errors.iter().map(|text| format!("error: {text}\n"));
            let warnings = found
                .warnings
                .iter()
                .map(|text| format!("warning: {text}\n"));
            print(&errors.chain(warnings).collect::<String>())?;
        }
        Ok(if is_fine {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    }
}
