//! `slipstream bench handshake`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use slipstream_bench::command::options;
use slipstream_bench::command::output;
use slipstream_bench::handshake::{Case, Experiment, Mode, Row, System, write_report};
use slipstream_testbed::nginx::{Binary, find_module};
use slipstream_testbed::peers::{Crypto, Peer};
use slipstream_testbed::suite::Suite;

/// Measure full TLS handshakes: a stock nginx and one with Slipstream, or several servers, in turn
///
/// Starts its own servers on unused loopback ports, each with one worker, throw-away keys and a
/// directory of its own, and removes all of it at the end. Server and load run on a core each. In
/// every round each system is measured once, and the ratios are taken within the round: only those
/// mean anything on a machine that is not all yours.
///
/// server_cpu_us is the CPU time of nginx's worker, or of all processes and threads of another
/// server, per handshake, from the kernel's scheduler. client_share is the part of its core that
/// the load generator took: near 1 it was the bottleneck.
///
/// Servers other than nginx run as they come: haproxy and hitch as Debian has them, serve as
/// `slipstream serve`, and serve-awslc as the same with aws-lc alone. rustls has no RSA key
/// exchange, so serve is left out of those suites.
///
/// Exits with 1 if any connection failed, after printing all results.
#[derive(Args)]
#[command(after_help = "Examples:
  slipstream bench handshake
  slipstream bench handshake --suite tls13-rsa2048 --concurrency 64 --rounds 9 --json out.json
  slipstream bench handshake --suite tls12-ecdhe-rsa-p256,tls13-ecdsa-p256,tls13-ecdsa-p384
  slipstream bench handshake --mode stock,stock      how much two equal servers seem to differ here
  slipstream bench handshake --server nginx,haproxy,hitch,serve-awslc,serve")]
pub struct BenchHandshake {
    /// The server programs
    #[arg(long, value_enum, value_delimiter = ',', default_value = "nginx")]
    server: Vec<ServerProgram>,
    /// Modes of nginx; the first server and mode are the base of the comparison [default:
    /// stock,slipstream for nginx alone, otherwise stock]
    #[arg(long, value_enum, value_delimiter = ',')]
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
    /// Number of rounds
    #[arg(long, value_parser = options::positive, default_value = "5")]
    rounds: usize,
    /// Write rows.json and plots to this directory
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Write machine, rows and summary to this file as JSON (- for standard output, without the
    /// table)
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// The nginx executable [default: the installed one]
    #[arg(long, value_name = "FILE")]
    nginx: Option<PathBuf>,
    /// The Slipstream module for it [default: the one built beside this program, else the installed
    /// one]
    #[arg(long, value_name = "FILE")]
    module: Option<PathBuf>,
    /// Directives for nginx's main context in mode slipstream, as in 'slipstream { ... }'
    #[arg(long, value_name = "TEXT", default_value = "")]
    module_directives: String,
    /// Core of the servers [default: the first]
    #[arg(long, value_name = "CORE")]
    server_core: Option<usize>,
    /// Core of the load generator [default: the second]
    #[arg(long, value_name = "CORE")]
    load_core: Option<usize>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ServerProgram {
    Nginx,
    Haproxy,
    Hitch,
    #[value(name = "serve-awslc")]
    ServeAwsLc,
    Serve,
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
        let experiment = self.experiment()?;
        for (server, suite, reason) in experiment.left_out() {
            eprintln!("{server} is not measured with {}: {reason}", suite.name);
        }
        let outcome = experiment.run(print_progress)?;
        output::write_with_report(
            self.out.as_deref(),
            self.json.as_deref(),
            &outcome,
            write_report,
        )?;
        Ok(output::exit_code(outcome.errors()))
    }

    fn experiment(&self) -> anyhow::Result<Experiment> {
        let systems = self.systems()?;
        let is_measured = |mode| systems.contains(&System::Nginx(mode));
        let nginx = match is_measured(Mode::Stock) || is_measured(Mode::Slipstream) {
            true => Some(Binary::find(self.nginx.as_deref())?),
            false => None,
        };
        let module = match &nginx {
            Some(nginx) if is_measured(Mode::Slipstream) => {
                Some(find_module(nginx, self.module.as_deref())?)
            }
            _ => None,
        };
        let (server_core, load_core) = options::cores(self.server_core, self.load_core)?;
        Ok(Experiment {
            nginx,
            module,
            module_directives: self.module_directives.clone(),
            systems,
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

    /// Each server in each mode that it has.
    fn systems(&self) -> anyhow::Result<Vec<System>> {
        let is_nginx_alone = self
            .server
            .iter()
            .all(|&server| server == ServerProgram::Nginx);
        let modes: &[ModeArgument] = match &self.mode[..] {
            [] if is_nginx_alone => &[ModeArgument::Stock, ModeArgument::Slipstream],
            [] => &[ModeArgument::Stock],
            chosen => chosen,
        };
        let mut systems = Vec::new();
        for &server in &self.server {
            let before = systems.len();
            for &mode in modes {
                systems.extend(server.system(mode)?);
            }
            if systems.len() == before {
                bail!(
                    "only nginx has a mode slipstream; measure the other servers with --mode stock, or with \
                     --mode stock,slipstream beside both modes of nginx"
                );
            }
        }
        Ok(systems)
    }
}

impl ServerProgram {
    /// The server in a mode; `None` if it has no such mode.
    fn system(self, mode: ModeArgument) -> anyhow::Result<Option<System>> {
        let serve = |crypto| {
            let program = std::env::current_exe()
                .context("cannot find this program, which is the server too")?;
            Ok::<_, anyhow::Error>(Peer::serve(&program, crypto))
        };
        let peer = match (self, mode) {
            (ServerProgram::Nginx, mode) => return Ok(Some(System::Nginx(mode.into()))),
            (_, ModeArgument::Slipstream) => return Ok(None),
            (ServerProgram::Haproxy, _) => Peer::haproxy()?,
            (ServerProgram::Hitch, _) => Peer::hitch()?,
            (ServerProgram::ServeAwsLc, _) => serve(Crypto::AwsLc)?,
            (ServerProgram::Serve, _) => serve(Crypto::Slipstream)?,
        };
        Ok(Some(System::Peer(peer)))
    }
}

/// A line on standard error for every measurement.
pub fn print_progress(row: &Row) {
    eprintln!(
        "round {}: {:<24} {:>4} connections, {:<11} {:<12} {:>7.0} handshakes/s, {:>6.0} us server CPU, p50 {:>6.0} us, \
         p99 {:>7.0} us, client share {:.2}, {} errors",
        row.round,
        row.suite,
        row.concurrency,
        row.server,
        row.mode,
        row.handshakes_per_s,
        row.server_cpu_us,
        row.p50_us,
        row.p99_us,
        row.client_share,
        row.errors,
    );
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Arguments {
        #[command(flatten)]
        command: BenchHandshake,
    }

    fn systems(arguments: &[&str]) -> anyhow::Result<Vec<(&'static str, &'static str)>> {
        let arguments = ["handshake"].iter().chain(arguments);
        let systems = Arguments::parse_from(arguments).command.systems()?;
        Ok(systems
            .iter()
            .map(|system| (system.server(), system.mode().name()))
            .collect())
    }

    #[test]
    fn nginx_has_two_modes_and_others_have_one() {
        let stock = ("nginx", "stock");
        let ours = ("nginx", "slipstream");
        let serve = [("serve-awslc", "stock"), ("serve", "stock")];
        assert_eq!(systems(&[]).unwrap(), [stock, ours]);
        assert_eq!(
            systems(&["--server", "nginx,serve-awslc,serve"]).unwrap(),
            [stock, serve[0], serve[1]]
        );
        assert_eq!(
            systems(&["--server", "nginx,serve", "--mode", "stock,slipstream"]).unwrap(),
            [stock, ours, serve[1]]
        );
        assert_eq!(
            systems(&["--server", "serve", "--mode", "stock,stock"]).unwrap(),
            [serve[1], serve[1]]
        );
    }

    #[test]
    fn a_mode_that_a_server_does_not_have_is_an_error() {
        for servers in ["serve", "nginx,serve"] {
            let error = systems(&["--server", servers, "--mode", "slipstream"]).unwrap_err();
            assert!(error.to_string().contains("--mode stock"), "{error}");
        }
    }
}
