//! Full handshakes of a stock nginx against those of one with Slipstream.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;

use crate::Error;
use crate::cleanup::check_interrupted;
use crate::credentials::Credentials;
use crate::load::{Behaviour, Edge, Limit, Load};
use crate::machine::Machine;
use crate::nginx::{Binary, Listener, Server, ServerOptions, unused_addresses};
use crate::processor::on_core;
use crate::scratch::ScratchDirectory;
use crate::suite::{KeyType, Suite};

mod summary;

use summary::summarize;
pub use summary::{Comparison, Outcome};

/// The load before a window opens: long enough for a first batch of everything and for warm caches.
const WARM_UP: Duration = Duration::from_millis(200);
/// How long one connection may take.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);

/// How a server is configured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// As a plain operator has it.
    Stock,
    /// The same with the Slipstream module loaded and on.
    Slipstream,
}

impl Mode {
    /// Its name on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Stock => "stock",
            Mode::Slipstream => "slipstream",
        }
    }
}

/// What is measured.
#[derive(Debug, Clone)]
pub struct Experiment {
    /// The nginx that serves in every mode.
    pub nginx: Binary,
    /// The module of [`Mode::Slipstream`].
    pub module: Option<PathBuf>,
    /// Directives for the main context in [`Mode::Slipstream`].
    pub module_directives: String,
    /// The systems that are compared; the first is what the others are compared with. One may come twice, which
    /// shows what the machine's noise makes of a comparison between equals.
    pub modes: Vec<Mode>,
    /// The loads that are measured, in this order.
    pub cases: Vec<Case>,
    /// The length of one measurement.
    pub window: Duration,
    /// How many times all is measured. Servers are started afresh for each round, so that no chance of one process's
    /// memory layout stays for all.
    pub rounds: usize,
    /// The core of the servers' workers.
    pub server_core: usize,
    /// The core of the load generator.
    pub load_core: usize,
}

/// A kind of handshake, and how many of them at a time.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    /// The kind of handshake.
    pub suite: &'static Suite,
    /// The number of connections that are kept at work.
    pub concurrency: usize,
}

/// One measurement.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// The server program.
    pub server: &'static str,
    /// Its mode; a mode that is measured twice is numbered (`stock`, `stock-2`).
    pub mode: String,
    /// The suite's name.
    pub suite: &'static str,
    /// Connections at work at a time.
    pub concurrency: usize,
    /// The round, from 1.
    pub round: usize,
    /// Handshakes completed in the window.
    pub handshakes: u64,
    /// Handshakes per second.
    pub handshakes_per_s: f64,
    /// CPU time of the server's worker per handshake, in microseconds.
    pub server_cpu_us: f64,
    /// Median time from connect() to the completed handshake, in microseconds.
    pub p50_us: f64,
    /// The same for 99 of 100 handshakes.
    pub p99_us: f64,
    /// The share of its core that the worker took.
    pub server_share: f64,
    /// The share of its core that the load generator took.
    pub client_share: f64,
    /// Connections that failed.
    pub errors: u64,
    /// What the first one failed of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_error: Option<String>,
}

impl Experiment {
    /// Runs the experiment; `progress` sees every row as it comes.
    ///
    /// # Errors
    /// [`Error::Nginx`] when a server does not start or dies, [`Error::ModuleMissing`] when a mode needs a module and
    /// there is none, [`Error::Interrupted`], [`Error::Io`], [`Error::OpenSsl`].
    pub fn run(&self, mut progress: impl FnMut(&Row)) -> Result<Outcome, Error> {
        if self.modes.contains(&Mode::Slipstream) && self.module.is_none() {
            return Err(Error::ModuleMissing {
                version: self.nginx.version.clone(),
                searched: Vec::new(),
            });
        }
        let scratch = ScratchDirectory::new()?;
        let credentials = self.make_credentials(&scratch)?;
        let labels = labels(&self.modes);
        let mut rows = Vec::new();
        for round in 1..=self.rounds {
            let servers = self.start_servers(&credentials)?;
            for case in &self.cases {
                for index in order(self.modes.len(), round) {
                    check_interrupted()?;
                    let row = self.measure(case, &servers[index], &labels[index], round)?;
                    progress(&row);
                    rows.push(row);
                }
            }
        }
        Ok(Outcome {
            machine: Machine::describe(Some(&self.nginx)),
            summary: summarize(&rows, &labels),
            rows,
        })
    }

    fn make_credentials(
        &self,
        scratch: &ScratchDirectory,
    ) -> Result<HashMap<KeyType, Credentials>, Error> {
        let mut credentials = HashMap::new();
        for Case { suite, .. } in &self.cases {
            if let Entry::Vacant(vacant) = credentials.entry(suite.key) {
                vacant.insert(Credentials::generate(suite.key, scratch)?);
            }
        }
        Ok(credentials)
    }

    fn start_servers(
        &self,
        credentials: &HashMap<KeyType, Credentials>,
    ) -> Result<Vec<RunningServer>, Error> {
        self.modes
            .iter()
            .map(|mode| self.start_server(*mode, credentials))
            .collect()
    }

    /// Starts one server with a port for every suite.
    fn start_server(
        &self,
        mode: Mode,
        credentials: &HashMap<KeyType, Credentials>,
    ) -> Result<RunningServer, Error> {
        let mut suites: Vec<&'static Suite> = Vec::new();
        for case in &self.cases {
            if !suites.iter().any(|suite| suite.name == case.suite.name) {
                suites.push(case.suite);
            }
        }
        let listeners: Vec<Listener<'_>> = suites
            .iter()
            .zip(unused_addresses(suites.len())?)
            .map(|(suite, address)| Listener {
                address,
                suite: Some(suite),
                credentials: &credentials[&suite.key],
            })
            .collect();
        let server = Server::start(&ServerOptions {
            binary: &self.nginx,
            module: match mode {
                Mode::Stock => None,
                Mode::Slipstream => self.module.as_deref(),
            },
            module_directives: &self.module_directives,
            worker_core: self.server_core,
            listeners: &listeners,
        })?;
        Ok(RunningServer {
            server,
            addresses: suites
                .iter()
                .zip(&listeners)
                .map(|(suite, listener)| (suite.name, listener.address))
                .collect(),
        })
    }

    fn measure(
        &self,
        case: &Case,
        running: &RunningServer,
        label: &str,
        round: usize,
    ) -> Result<Row, Error> {
        let load = Load {
            address: running.addresses[case.suite.name],
            suite: case.suite,
            resumed_percent: 0,
            concurrency: case.concurrency,
            limit: Limit::Duration {
                warm_up: WARM_UP,
                window: self.window,
            },
            behaviour: Behaviour::Close,
            timeout: CONNECTION_TIMEOUT,
        };
        let mut server_cpu = Duration::ZERO;
        let report = on_core(self.load_core, || {
            load.run_observed(|edge| {
                let used = running.server.worker_cpu_time()?;
                server_cpu = match edge {
                    Edge::Open => used,
                    Edge::Close => used.saturating_sub(server_cpu),
                };
                Ok(())
            })
        })?;
        Ok(Row {
            server: "nginx",
            mode: label.to_owned(),
            suite: load.suite.name,
            concurrency: load.concurrency,
            round,
            handshakes: report.handshakes,
            handshakes_per_s: report.handshakes_per_second(),
            server_cpu_us: server_cpu.as_secs_f64() * 1e6 / report.handshakes as f64,
            p50_us: report.latency_us(0.50),
            p99_us: report.latency_us(0.99),
            server_share: server_cpu.as_secs_f64() / report.wall.as_secs_f64(),
            client_share: report.client_share(),
            errors: report.failures.total(),
            first_error: report.failures.first,
        })
    }
}

struct RunningServer {
    server: Server,
    /// By the suite's name.
    addresses: HashMap<&'static str, SocketAddr>,
}

/// The order in which the modes are measured in a round: forwards, then backwards, so that a drift within rounds favours
/// none.
fn order(modes: usize, round: usize) -> Vec<usize> {
    if round % 2 == 1 {
        (0..modes).collect()
    } else {
        (0..modes).rev().collect()
    }
}

fn labels(modes: &[Mode]) -> Vec<String> {
    modes
        .iter()
        .enumerate()
        .map(|(index, mode)| {
            let earlier = modes[..index].iter().filter(|other| *other == mode).count();
            match earlier {
                0 => mode.name().to_owned(),
                _ => format!("{}-{}", mode.name(), earlier + 1),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_other_round_runs_backwards() {
        assert_eq!(order(3, 1), [0, 1, 2]);
        assert_eq!(order(3, 2), [2, 1, 0]);
    }

    #[test]
    fn a_mode_that_comes_twice_is_numbered() {
        let modes = [Mode::Stock, Mode::Stock, Mode::Slipstream];
        assert_eq!(labels(&modes), ["stock", "stock-2", "slipstream"]);
    }
}
