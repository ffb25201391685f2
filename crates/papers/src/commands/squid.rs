//! `slipstream-papers squid`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use clap::builder::TypedValueParser;
use slipstream_bench::command::{options, output};
use slipstream_testbed::program;
use slipstream_testbed::suite::Suite;

use slipstream_papers::squid::{Configuration, Experiment, Row, write_report};

/// Repeat the measurement of the Squid paper (Silicom 2016, table 2): a new TLS connection for each
/// request
///
/// Squid has one small object in its cache and a server key of RSA-2048. Either it does its own
/// TLS, or slipstream serve stands in front of it and passes connections on with a PROXY header.
/// Squid and serve share a core; the load and Squid's origin have another. All servers are this
/// command's own, on loopback, and nothing of them stays. In every round each configuration is
/// measured once, and the ratios are taken within the round.
///
/// Squid has to be Debian's squid-openssl: the package squid has no TLS of its own.
///
/// Exits with 1 if any connection failed, after printing all there is.
#[derive(Args)]
#[command(after_help = "Examples:
  slipstream-papers squid --out results
  slipstream-papers squid --suite tls13-rsa2048 --rounds 9 --json rows.json
  slipstream-papers squid --configuration serve-awslc,serve      what lanes gain over aws-lc here")]
pub struct Squid {
    /// Programs that do TLS; the others are compared with the first
    #[arg(
        long,
        value_delimiter = ',',
        value_parser = configuration(),
        default_value = "own,serve-awslc,serve"
    )]
    configuration: Vec<Configuration>,
    /// The kinds of handshake, of those with a key of RSA-2048
    #[arg(
        long,
        value_delimiter = ',',
        value_parser = options::suite(),
        default_value = "tls13-rsa2048,tls12-ecdhe-rsa-x25519"
    )]
    suite: Vec<&'static Suite>,
    /// Connections at work at a time
    #[arg(long, value_delimiter = ',', value_parser = options::positive, default_value = "64")]
    concurrency: Vec<usize>,
    /// Length of one measurement
    #[arg(long, value_name = "SECONDS", value_parser = options::seconds, default_value = "2")]
    seconds: Duration,
    /// Number of times that everything is measured
    #[arg(long, value_parser = options::positive, default_value = "5")]
    rounds: usize,
    /// Write rows.json, plots and report.html to this directory
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Write machine, rows and summary to this file as JSON (- for standard output, without the
    /// table)
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// The Squid executable [default: the installed one]
    #[arg(long, value_name = "FILE")]
    squid: Option<PathBuf>,
    /// The slipstream executable, which is the terminator [default: the one beside this program,
    /// else the installed one]
    #[arg(long, value_name = "FILE")]
    slipstream: Option<PathBuf>,
    /// Core of the servers [default: the first]
    #[arg(long, value_name = "CORE")]
    server_core: Option<usize>,
    /// Core of the load generator [default: the second]
    #[arg(long, value_name = "CORE")]
    load_core: Option<usize>,
}

impl Squid {
    /// Runs the command.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        let experiment = self.experiment()?;
        let outcome =
            experiment.run(options::counted(experiment.measurements(), print_progress))?;
        output::write_with_report(
            self.out.as_deref(),
            self.json.as_deref(),
            &outcome,
            write_report,
        )?;
        Ok(output::exit_code(outcome.errors()))
    }

    fn experiment(&self) -> anyhow::Result<Experiment> {
        let squid = match &self.squid {
            Some(path) => path.clone(),
            None => Experiment::find_squid()?,
        };
        let (server_core, load_core) = options::cores(self.server_core, self.load_core)?;
        Ok(Experiment {
            squid,
            serve: program::slipstream(self.slipstream.as_deref())?,
            configurations: self.configuration.clone(),
            suites: self.suite.clone(),
            concurrencies: self.concurrency.clone(),
            window: self.seconds,
            rounds: self.rounds,
            server_core,
            load_core,
        })
    }
}

/// Parses the name of a configuration.
fn configuration() -> impl TypedValueParser<Value = Configuration> {
    options::named(&Configuration::ALL, |&configuration| {
        let description = configuration.description().to_owned();
        (configuration.name(), description, configuration)
    })
}

/// A line on standard error for every measurement.
fn print_progress(done: usize, total: usize, row: &Row) {
    eprintln!(
        "{done}/{total} round {}: {:<24} {:>4} connections, {:<12} {:>7.0} connections/s, {:>6.0} us CPU (Squid {:.0}), \
         p50 {:>6.0} us, p99 {:>7.0} us, servers {:.2}, load {:.2}, {} errors",
        row.round,
        row.suite,
        row.concurrency,
        row.configuration,
        row.connections_per_s,
        row.server_cpu_us,
        row.squid_cpu_us,
        row.p50_us,
        row.p99_us,
        row.server_share,
        row.client_share,
        row.errors,
    );
}
