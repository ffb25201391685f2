//! `slipstream bench load`.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::ensure;
use clap::Args;
use serde::Serialize;
use slipstream_bench::Error;
use slipstream_bench::command::options;
use slipstream_bench::command::output;
use slipstream_bench::load::{Behaviour, Limit, Load, Report};
use slipstream_testbed::output::write;
use slipstream_testbed::processor::on_core;
use slipstream_testbed::suite::Suite;

/// Put full TLS handshakes on any server
///
/// One thread keeps connections at work: connect, full handshake, orderly close. Certificates are
/// not verified, sessions not resumed.
///
/// Exits with 1 if any connection failed.
#[derive(Args)]
#[command(after_help = "Examples:
  slipstream bench load --connect 127.0.0.1:8443 --suite tls13-rsa2048 --concurrency 64 --seconds 5
  slipstream bench load --connect 127.0.0.1:443 --suite tls12-rsakx --connections 50000 --request")]
pub struct BenchLoad {
    /// Address and port of the server
    #[arg(long, value_name = "ADDRESS:PORT")]
    connect: SocketAddr,
    /// The only kind of handshake that is offered
    #[arg(long, value_parser = options::suite())]
    suite: &'static Suite,
    /// Connections at work at a time
    #[arg(long, value_parser = options::positive, default_value = "64")]
    concurrency: usize,
    /// Length of the measurement, after a warm-up of a tenth of that
    #[arg(long, value_name = "SECONDS", value_parser = options::seconds, default_value = "5")]
    seconds: Duration,
    /// Stop after this many connections instead
    #[arg(long, value_name = "NUMBER", conflicts_with = "seconds")]
    connections: Option<u64>,
    /// Fetch / over each connection, and expect status 200
    #[arg(long)]
    request: bool,
    /// Time after which a connection counts as failed
    #[arg(long, value_name = "SECONDS", value_parser = options::seconds, default_value = "10")]
    timeout: Duration,
    /// Core to run on [default: any]
    #[arg(long, value_name = "CORE")]
    core: Option<usize>,
    /// Allow a server that is not on this machine. Only aim at servers that are yours
    #[arg(long)]
    allow_remote: bool,
    /// Write the result to this file as JSON (- for standard output)
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

impl BenchLoad {
    /// Runs the command.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        ensure!(
            self.allow_remote || self.connect.ip().is_loopback(),
            Error::NotLoopback(self.connect)
        );
        let load = Load {
            address: self.connect,
            suite: self.suite,
            resumed_percent: 0,
            concurrency: self.concurrency,
            limit: match self.connections {
                Some(count) => Limit::Connections(count),
                None => Limit::Duration {
                    warm_up: self.seconds / 10,
                    window: self.seconds,
                },
            },
            behaviour: if self.request {
                Behaviour::Request
            } else {
                Behaviour::Close
            },
            timeout: self.timeout,
        };
        let report = match self.core {
            Some(core) => on_core(core, || load.run())?,
            None => load.run()?,
        };
        let summary = Summary::of(&load, &report);
        write(self.json.as_deref(), &summary)?;
        Ok(output::exit_code(report.failures.total()))
    }
}

#[derive(Serialize)]
struct Summary {
    suite: &'static str,
    concurrency: usize,
    seconds: f64,
    handshakes: u64,
    handshakes_per_s: f64,
    p50_us: f64,
    p99_us: f64,
    client_share: f64,
    client_cpu_us: f64,
    errors: u64,
    #[serde(skip)]
    failures: String,
}

impl Summary {
    fn of(load: &Load<'_>, report: &Report) -> Summary {
        Summary {
            suite: load.suite.name,
            concurrency: load.concurrency,
            seconds: report.wall.as_secs_f64(),
            handshakes: report.handshakes,
            handshakes_per_s: report.handshakes_per_second(),
            p50_us: report.latency_us(0.50),
            p99_us: report.latency_us(0.99),
            client_share: report.client_share(),
            client_cpu_us: report.client_cpu.as_secs_f64() * 1e6 / report.handshakes as f64,
            errors: report.failures.total(),
            failures: report.failures.to_string(),
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} handshakes in {:.2} s: {:.0} per second",
            self.handshakes, self.seconds, self.handshakes_per_s
        )?;
        writeln!(
            f,
            "latency: p50 {:.0} us, p99 {:.0} us",
            self.p50_us, self.p99_us
        )?;
        writeln!(
            f,
            "load generator: {:.0} us of CPU per handshake, {:.0}% of a core",
            self.client_cpu_us,
            self.client_share * 100.0
        )?;
        writeln!(f, "failed connections: {}", self.failures)
    }
}
