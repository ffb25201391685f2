//! `slipstream status`.

mod exporter;
mod processes;
mod prometheus;
mod report;
mod text;

use std::io::{self, IsTerminal, Write};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use slipstream_metrics::published::{Entry, directory, list};
use slipstream_testbed::cleanup::check_interrupted;
use slipstream_testbed::output::print;

use super::options;
use report::Report;

/// Show what runs on this machine, and what is accelerated
///
/// Finds every nginx with the module, every engine and every terminator, and shows for each how
/// many handshakes it completes, where its operations are computed, and why some are left to
/// software. Rates are taken from two looks. Root sees all processes, other users their own.
///
/// Exits with 0 if a process was shown, and with 1 if none was.
#[derive(Args)]
#[command(after_help = "Examples:
  slipstream status
  slipstream status --watch
  slipstream status --watch 10
  slipstream status --json | jq '.processes[].operations'
  slipstream status --listen 127.0.0.1:9464")]
pub struct Status {
    /// Refresh until interrupted, every SECONDS [default: 2]
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "2",
          value_parser = options::seconds, conflicts_with = "interval")]
    watch: Option<Duration>,
    /// Time between the two looks
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = options::seconds)]
    interval: Duration,
    /// Print JSON; with --watch, a line at a time
    #[arg(long)]
    json: bool,
    /// Print all figures since the start of each process in the text format of Prometheus
    #[arg(long, conflicts_with_all = ["watch", "json", "interval"])]
    prometheus: bool,
    /// Serve the same at /metrics, until interrupted
    #[arg(long, value_name = "ADDRESS:PORT", conflicts_with_all = ["watch", "json", "interval", "prometheus"])]
    listen: Option<SocketAddr>,
}

impl Status {
    /// Runs the command.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        if let Some(address) = self.listen {
            return exporter::serve(address);
        }
        if self.prometheus {
            let entries = look();
            report_problems(&entries);
            print(&prometheus::render(&entries))?;
            return Ok(exit_code(entries.iter().any(|entry| entry.content.is_ok())));
        }
        let mut before = look();
        let interval = self.watch.unwrap_or(self.interval);
        loop {
            // Without a process there is nothing to wait for.
            if self.watch.is_some() || before.iter().any(|entry| entry.content.is_ok()) {
                sleep(interval)?;
            }
            let after = look();
            let report = Report::new(&before, &after, &processes::unpublished(&after));
            self.show(&report)?;
            if self.watch.is_none() {
                return Ok(exit_code(!report.processes.is_empty()));
            }
            before = after;
        }
    }

    fn show(&self, report: &Report) -> anyhow::Result<()> {
        if self.json {
            let text = match self.watch {
                Some(_) => serde_json::to_string(report)?,
                None => serde_json::to_string_pretty(report)?,
            };
            print(&format_args!("{text}\n"))?;
            return Ok(());
        }
        let text = text::render(report);
        if self.watch.is_some() && io::stdout().is_terminal() {
            // To the corner, each line and then the rest erased: it does not flicker.
            let lines: String = text.lines().map(|line| format!("{line}\x1b[K\n")).collect();
            print(&format_args!("\x1b[H{lines}\x1b[J"))?;
        } else {
            print(&text)?;
        }
        io::stdout().flush()?;
        Ok(())
    }
}

fn look() -> Vec<Entry> {
    list(&directory::all())
}

fn exit_code(is_shown: bool) -> ExitCode {
    match is_shown {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

/// Says on standard error what cannot be read, where standard output is for a program.
fn report_problems(entries: &[Entry]) {
    for entry in entries {
        if let Err(problem) = &entry.content {
            eprintln!("slipstream: {}: {problem}", entry.path.display());
        }
    }
}

/// Sleeps in steps, so that a signal ends the command soon.
fn sleep(duration: Duration) -> Result<(), slipstream_testbed::Error> {
    const STEP: Duration = Duration::from_millis(50);
    let end = Instant::now() + duration;
    loop {
        check_interrupted()?;
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        thread::sleep(left.min(STEP));
    }
}
