//! Transfers of compressed pages by nginx: stock, and with the Slipstream module in several modes.
//!
//! The worker has a core to itself; engine and load share another. Pages are real documents
//! ([`crate::corpus`]). The experiments of the QWEB paper are made of these measurements.

mod chart;
mod configuration;
mod server;
mod summary;
pub mod table;

use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;

pub use chart::{Plot, draw, write_report};
pub use configuration::{Compression, Configuration, Transport};
pub use summary::{Comparison, Outcome};

use slipstream_testbed as testbed;
use slipstream_testbed::cleanup::check_interrupted;
use slipstream_testbed::credentials::Credentials;
use slipstream_testbed::machine::Machine;
use slipstream_testbed::nginx::Binary;
use slipstream_testbed::scratch::ScratchDirectory;
use slipstream_testbed::suite::Suite;

use crate::Error;
use crate::corpus::{Content, Source};
use crate::load::{Download, mean_us, quantile_us, with_cpu_times};
use crate::statistics::{Measurement, in_turn};
use server::Running;

/// The load before a window opens, at least.
const WARM_UP: Duration = Duration::from_millis(200);
/// Time that one response may take.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(20);
/// The number of requests whose time is reported, as in the QWEB paper's figures.
const REQUESTS: f64 = 10_000.0;
/// The suite that connections with TLS offer.
const SUITE: &str = "tls13-rsa2048";

/// Options of an experiment.
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
    /// The documents that they were made of.
    pub source: Source,
    /// The transports.
    pub transports: Vec<Transport>,
    /// The configurations; with each transport those are measured that make sense with it.
    pub configurations: Vec<Configuration>,
    /// The number of connections.
    pub concurrency: usize,
    /// The length of one measurement.
    pub window: Duration,
    /// Number of times that all is measured.
    pub rounds: usize,
    /// The core of the servers' workers.
    pub server_core: usize,
    /// The core of the load generator and the engine.
    pub load_core: usize,
}

/// One measurement.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// The transport.
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
    /// The 99th percentile of the same.
    pub p99_us: f64,
    /// The share of its core that the worker took.
    pub server_share: f64,
    /// The share of its core that the load took.
    pub client_share: f64,
    /// The share of the same core that the engine took, if there was one.
    pub engine_share: Option<f64>,
    /// The share of the chunks that the engine has compressed, warm-up included; none without an
    /// engine.
    pub offloaded_share: Option<f64>,
    /// Responses that were decompressed and compared with the page.
    pub compared: u64,
    /// Connections that failed.
    pub errors: u64,
    /// The reason of the first failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_error: Option<String>,
}

impl Measurement for Row {
    fn round(&self) -> usize {
        self.round
    }
}

impl Experiment {
    /// Runs the experiment; `progress` is called with every row.
    ///
    /// # Errors
    /// [`Error::Testbed`] when a program does not start or dies, when a configuration needs a
    /// module and there is none, and when a signal asks for the end; [`Error::WrongContent`] when a
    /// response is not the page; [`Error::Unsupported`] when nothing is left to measure.
    pub fn run(&self, mut progress: impl FnMut(&Row)) -> Result<Outcome, Error> {
        self.check()?;
        let scratch = ScratchDirectory::new()?;
        let suite = Suite::find(SUITE).expect("a suite that exists");
        let credentials = Credentials::generate(suite.key, &scratch)?;
        let mut rows = Vec::new();
        for round in 1..=self.rounds {
            for &transport in &self.transports {
                for content in &self.contents {
                    for configuration in in_turn(self.selected(transport), round) {
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

    /// Number of measurements that it takes.
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
            return Err(testbed::Error::ModuleMissing {
                version: self.nginx.version.clone(),
                searched: Vec::new(),
            }
            .into());
        }
        Ok(())
    }

    /// Server and engine are started for each measurement: what one configuration leaves in caches
    /// and allocators is not the next one's.
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
        let (report, used) = with_cpu_times(
            self.load_core,
            |observe| download.run_observed(observe),
            || running.cpu_times(),
        )?;
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
            engine_share: used.beside.map(|engine| engine.as_secs_f64() / wall),
            offloaded_share,
            compared: report.compared,
            errors: report.failures.total(),
            first_error: report.failures.first,
        })
    }
}

/// The subject of one measurement.
struct Case<'a> {
    transport: Transport,
    content: &'a Content,
    configuration: Configuration,
    suite: &'static Suite,
    credentials: &'a Credentials,
}
