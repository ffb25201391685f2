//! `slipstream bench handshake`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};
use slipstream_bench::handshake::{Case, Experiment, Mode, Row};
use slipstream_bench::nginx::{Binary, find_module};
use slipstream_bench::suite::Suite;

use super::options;
use crate::output;

/// Measure full TLS handshakes: a stock nginx and one with Slipstream, in turn
///
/// Starts its own servers on unused loopback ports, each with one worker, throw-away keys and a directory of its own,
/// and removes all of it at the end. Server and load run on a core each. In every round each mode is measured once,
/// and the ratios are taken within the round: only those mean anything on a machine that is not all yours.
///
/// server_cpu_us is the CPU time of nginx's worker per handshake, from the kernel's scheduler. client_share is the part of
/// its core that the load generator took: near 1 it was the bottleneck.
///
/// Exits with 1 if any connection failed, after printing all there is.
#[derive(Args)]
#[command(after_help = "Examples:
  slipstream bench handshake
  slipstream bench handshake --suite tls13-rsa2048 --concurrency 64 --rounds 9 --json out.json
  slipstream bench handshake --suite tls12-ecdhe-rsa-p256,tls13-ecdsa-p256,tls13-ecdsa-p384
  slipstream bench handshake --mode stock,stock      how much two equal servers seem to differ here")]
pub struct BenchHandshake {
    /// The server program
    #[arg(long, value_enum, default_value = "nginx")]
    server: ServerProgram,
    /// What to compare; the first is what the others are compared with
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "stock,slipstream"
    )]
    mode: Vec<ModeArgument>,
    /// The kinds of handshake
    #[arg(
        long,
        value_delimiter = ',',
        value_parser = options::suite(),
        default_value = "tls12-rsakx,tls12-ecdhe-rsa-x25519,tls13-rsa2048"
    )]
    suite: Vec<&'static Suite>,
    /// Connections at work at a time
    #[arg(long, value_delimiter = ',', value_parser = options::positive, default_value = "1,8,64")]
    concurrency: Vec<usize>,
    /// Length of one measurement
    #[arg(long, value_name = "SECONDS", value_parser = options::seconds, default_value = "2")]
    seconds: Duration,
    /// How many times to measure everything
    #[arg(long, value_parser = options::positive, default_value = "5")]
    rounds: usize,
    /// Write machine, rows and summary to this file as JSON (- for standard output, without the table)
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// The nginx executable [default: the installed one]
    #[arg(long, value_name = "FILE")]
    nginx: Option<PathBuf>,
    /// The Slipstream module for it [default: the one built beside this program, else the installed one]
    #[arg(long, value_name = "FILE")]
    module: Option<PathBuf>,
    /// Directives for nginx's main context in mode slipstream, as in 'slipstream { ... }'
    #[arg(long, value_name = "TEXT", default_value = "")]
    module_directives: String,
    /// Core of the server's worker [default: the first]
    #[arg(long, value_name = "CORE")]
    server_core: Option<usize>,
    /// Core of the load generator [default: the second]
    #[arg(long, value_name = "CORE")]
    load_core: Option<usize>,
}

#[derive(Clone, Copy, ValueEnum)]
enum ServerProgram {
    Nginx,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ModeArgument {
    Stock,
    Slipstream,
}

impl From<ModeArgument> for Mode {
    fn from(argument: ModeArgument) -> Mode {
        match argument {
            ModeArgument::Stock => Mode::Stock,
            ModeArgument::Slipstream => Mode::Slipstream,
        }
    }
}

impl BenchHandshake {
    /// Runs the command.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        let outcome = self.experiment()?.run(print_progress)?;
        if let Some(path) = &self.json {
            output::write_json(path, &outcome)?;
        }
        if !output::is_standard_output(self.json.as_deref()) {
            print!("{outcome}");
        }
        Ok(match outcome.errors() {
            0 => ExitCode::SUCCESS,
            _ => ExitCode::FAILURE,
        })
    }

    fn experiment(&self) -> anyhow::Result<Experiment> {
        let ServerProgram::Nginx = self.server;
        let nginx = Binary::find(self.nginx.as_deref())?;
        let module = if self.mode.contains(&ModeArgument::Slipstream) {
            Some(find_module(&nginx, self.module.as_deref())?)
        } else {
            None
        };
        let (server_core, load_core) = options::cores(self.server_core, self.load_core)?;
        Ok(Experiment {
            nginx,
            module,
            module_directives: self.module_directives.clone(),
            modes: self.mode.iter().copied().map(Mode::from).collect(),
            cases: self
                .suite
                .iter()
                .flat_map(|suite| {
                    self.concurrency
                        .iter()
                        .map(move |&concurrency| Case { suite, concurrency })
                })
                .collect(),
            window: self.seconds,
            rounds: self.rounds,
            server_core,
            load_core,
        })
    }
}

/// A line on standard error for every measurement.
pub fn print_progress(row: &Row) {
    eprintln!(
        "round {}: {:<24} {:>4} connections, {:<12} {:>7.0} handshakes/s, {:>6.0} us worker CPU, p50 {:>6.0} us, \
         p99 {:>7.0} us, client share {:.2}, {} errors",
        row.round,
        row.suite,
        row.concurrency,
        row.mode,
        row.handshakes_per_s,
        row.server_cpu_us,
        row.p50_us,
        row.p99_us,
        row.client_share,
        row.errors,
    );
}
