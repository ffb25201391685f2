//! The experiments of "QWEB: High-Performance Event-Driven Web Architecture with QAT Acceleration" about compressed
//! responses (sections 5.3 and 5.4, figures 12 to 14), with an engine in software in the place of its card.
//!
//! The worker has a core to itself; engine and load share another. Pages are real documents of the paper's lengths
//! ([`corpus`]). There is one worker: how throughput grows with their number, the horizontal axis of figure 12, is not
//! measured.

mod chart;
mod configuration;
pub mod corpus;
mod explanation;
mod paper;
mod report;
mod server;
mod summary;
mod table;

use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;

pub use configuration::{Compression, Configuration, Transport};
pub use corpus::{Content, PAGES, Page, Source};
pub use paper::{CLAIMS, Claim};
pub use report::write as write_report;
pub use summary::{Comparison, Outcome};

use crate::Error;
use crate::cleanup::check_interrupted;
use crate::credentials::Credentials;
use crate::load::download::Download;
use crate::load::{Edge, mean_us, quantile_us};
use crate::machine::Machine;
use crate::nginx::Binary;
use crate::processor::on_core;
use crate::scratch::ScratchDirectory;
use crate::suite::Suite;
use server::{CpuTimes, Running};

/// The load before a window opens, at least.
const WARM_UP: Duration = Duration::from_millis(200);
/// How long one response may take.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(20);
/// The paper's figures have the time for so many requests.
const REQUESTS: f64 = 10_000.0;
/// What connections with TLS offer.
const SUITE: &str = "tls13-rsa2048";

/// What is measured.
#[derive(Debug, Clone)]
pub struct Experiment {
    /// The nginx that serves in every configuration.
    pub nginx: Binary,
    /// The module; needed by all configurations but `sw`.
    pub module: Option<PathBuf>,
    /// The executable with the `engine` command.
    pub engine_program: PathBuf,
    /// The pages.
    pub contents: Vec<Content>,
    /// Of what they were made.
    pub source: Source,
    /// How they are asked for.
    pub transports: Vec<Transport>,
    /// The configurations; with each transport those are measured that make sense with it.
    pub configurations: Vec<Configuration>,
    /// The number of connections.
    pub concurrency: usize,
    /// The length of one measurement.
    pub window: Duration,
    /// How many times all is measured.
    pub rounds: usize,
    /// The core of the servers' workers.
    pub server_core: usize,
    /// The core of the load generator and the engine.
    pub load_core: usize,
}

/// One measurement.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// How the page was asked for.
    pub transport: &'static str,
    /// The name of the page.
    pub page: &'static str,
    /// Its length in bytes.
    pub bytes: usize,
    /// The name of the configuration.
    pub configuration: &'static str,
    /// The round, from 1.
    pub round: usize,
    /// Responses in the window, parts of them included.
    pub responses: f64,
    /// Responses per second.
    pub responses_per_s: f64,
    /// The time that 10,000 requests take at this rate, in seconds.
    pub completion_s: f64,
    /// CPU time of the server's worker per response, in microseconds.
    pub server_cpu_us: f64,
    /// The length of the page divided by that of the response's body.
    pub compression_ratio: f64,
    /// Mean time from a request to the end of its response, in microseconds.
    pub mean_us: f64,
    /// The median of the same.
    pub p50_us: f64,
    /// What 99 of 100 stayed within.
    pub p99_us: f64,
    /// The share of its core that the worker took.
    pub server_share: f64,
    /// The share of its core that the load took.
    pub client_share: f64,
    /// The share of the same core that the engine took, if there was one.
    pub engine_share: Option<f64>,
    /// The share of the chunks that the engine has compressed, warm-up included; none without an engine.
    pub offloaded_share: Option<f64>,
    /// Responses that were decompressed and compared with the page.
    pub compared: u64,
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
    /// [`Error::Nginx`] or [`Error::Engine`] when a program does not start or dies, [`Error::ModuleMissing`] when a
    /// configuration needs a module and there is none, [`Error::WrongContent`] when a response is not the page,
    /// [`Error::Unsupported`] when nothing is left to measure, [`Error::Interrupted`], [`Error::Io`],
    /// [`Error::OpenSsl`].
    pub fn run(&self, mut progress: impl FnMut(&Row)) -> Result<Outcome, Error> {
        self.check()?;
        let scratch = ScratchDirectory::new()?;
        let suite = Suite::find(SUITE).expect("a suite that exists");
        let credentials = Credentials::generate(suite.key, &scratch)?;
        let mut rows = Vec::new();
        for round in 1..=self.rounds {
            for &transport in &self.transports {
                for content in &self.contents {
                    let mut configurations = self.selected(transport);
                    // Every other round backwards, so that a drift within rounds favours none.
                    if round % 2 == 0 {
                        configurations.reverse();
                    }
                    for configuration in configurations {
                        check_interrupted()?;
                        let case = Case {
                            transport,
                            content,
                            configuration,
                            suite,
                            credentials: &credentials,
                        };
                        let row = self.measure(&case, round)?;
                        progress(&row);
                        rows.push(row);
                    }
                }
            }
        }
        Ok(Outcome::new(
            Machine::describe(Some(&self.nginx)),
            self.source.clone(),
            rows,
        ))
    }

    /// How many measurements it takes.
    pub fn measurements(&self) -> usize {
        let configurations = |&transport: &Transport| self.selected(transport).len();
        let of_all: usize = self.transports.iter().map(configurations).sum();
        self.rounds * self.contents.len() * of_all
    }

    fn selected(&self, transport: Transport) -> Vec<Configuration> {
        transport
            .configurations()
            .filter(|configuration| self.configurations.contains(configuration))
            .collect()
    }

    fn check(&self) -> Result<(), Error> {
        let empty = self
            .transports
            .iter()
            .find(|transport| self.selected(**transport).is_empty());
        if let Some(transport) = empty {
            return Err(Error::Unsupported(format!(
                "none of these configurations makes sense with --tls {}; choose among {}",
                transport.name(),
                transport
                    .configurations()
                    .map(Configuration::name)
                    .collect::<Vec<_>>()
                    .join(", ")
            )));
        }
        let needs_module = |configuration: &Configuration| configuration.needs_module();
        if self.module.is_none() && self.configurations.iter().any(needs_module) {
            return Err(Error::ModuleMissing {
                version: self.nginx.version.clone(),
                searched: Vec::new(),
            });
        }
        Ok(())
    }

    /// Server and engine are started for each measurement: what one configuration leaves in caches and allocators is not
    /// the next one's.
    fn measure(&self, case: &Case<'_>, round: usize) -> Result<Row, Error> {
        let running = Running::start(self, case)?;
        let page = case.content.page;
        let path = format!("/{}", page.file_name());
        let download = Download {
            address: running.address(),
            suite: case.transport.is_encrypted().then_some(case.suite),
            path: &path,
            content: &case.content.bytes,
            keeps_alive: case.transport != Transport::New,
            concurrency: self.concurrency,
            warm_up: WARM_UP,
            window: self.window,
            timeout: RESPONSE_TIMEOUT,
        };
        let mut used = CpuTimes::default();
        let report = on_core(self.load_core, || {
            download.run_observed(|edge| {
                let now = running.cpu_times()?;
                used = match edge {
                    Edge::Open => now,
                    Edge::Close => now.since(&used),
                };
                Ok(())
            })
        })?;
        let offloaded_share = match case.configuration.compression.offloads() {
            true => Some(running.offloaded_share(case)?),
            false => None,
        };
        let wall = report.wall.as_secs_f64();
        Ok(Row {
            transport: case.transport.name(),
            page: page.name,
            bytes: page.length,
            configuration: case.configuration.name(),
            round,
            responses: report.responses(),
            responses_per_s: report.responses_per_second(),
            completion_s: REQUESTS / report.responses_per_second(),
            server_cpu_us: used.server.as_secs_f64() * 1e6 / report.responses(),
            compression_ratio: page.length as f64 / report.body_length,
            mean_us: mean_us(&report.latency),
            p50_us: quantile_us(&report.latency, 0.50),
            p99_us: quantile_us(&report.latency, 0.99),
            server_share: used.server.as_secs_f64() / wall,
            client_share: report.client_share(),
            engine_share: used.engine.map(|engine| engine.as_secs_f64() / wall),
            offloaded_share,
            compared: report.compared,
            errors: report.failures.total(),
            first_error: report.failures.first,
        })
    }
}

/// What one measurement is of.
struct Case<'a> {
    transport: Transport,
    content: &'a Content,
    configuration: Configuration,
    suite: &'static Suite,
    credentials: &'a Credentials,
}
