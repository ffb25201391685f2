//! The experiments of "QTLS: High-Performance TLS Asynchronous Offload Framework with Intel
//! QuickAssist Technology" (PPoPP 2019), section 5, with an engine in software instead of its card.
//!
//! The worker has a core to itself; engine and load share another. There is one worker: how
//! throughput grows with the number of workers, the horizontal axis of the paper's figures 7 to 9,
//! is not measured.

mod configuration;
mod counters;
mod differences;
mod figure;
mod paper;
mod report;
mod summary;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;

pub use configuration::{Configuration, Device};
pub use counters::Counters;
pub use figure::{Case, Figure};
pub use paper::{CLAIMS, Claim, Measure};
pub use report::write_report;
pub use summary::{Comparison, Outcome};

use slipstream_bench::load::{CpuTimes, Limit, Load, mean_us, quantile_us, with_cpu_times};
use slipstream_bench::statistics::in_turn;
use slipstream_testbed as testbed;
use slipstream_testbed::cleanup::check_interrupted;
use slipstream_testbed::credentials::Credentials;
use slipstream_testbed::engine::Engine;
use slipstream_testbed::machine::Machine;
use slipstream_testbed::nginx::{Binary, Listener, Server, ServerOptions};
use slipstream_testbed::port::unused_address;
use slipstream_testbed::scratch::ScratchDirectory;
use slipstream_testbed::suite::KeyType;

use crate::Error;

/// The load before a window opens: long enough for warm caches and a first ticket.
const WARM_UP: Duration = Duration::from_millis(200);
/// Time that one connection may take.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);

/// Options of an experiment.
#[derive(Debug, Clone)]
pub struct Experiment {
    /// The nginx that serves in every configuration.
    pub nginx: Binary,
    /// The module; needed by all configurations but SW.
    pub module: Option<PathBuf>,
    /// The executable with the `engine` command.
    pub engine_program: PathBuf,
    /// The device that operations are offloaded to.
    pub device: Device,
    /// The figures, in this order.
    pub figures: Vec<Figure>,
    /// The configurations; of each figure those are measured that it has.
    pub configurations: Vec<Configuration>,
    /// The number of connections in the figures that are not about concurrency.
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
    /// The number of the paper's figure.
    pub figure: u8,
    /// The name of the configuration.
    pub configuration: &'static str,
    /// The suite's name.
    pub suite: &'static str,
    /// Connections at work at a time.
    pub concurrency: usize,
    /// Share of handshakes that were to resume a session, in per cent.
    pub resumed_percent: u8,
    /// The round, from 1.
    pub round: usize,
    /// Handshakes completed in the window.
    pub handshakes: u64,
    /// Number of those that resumed a session.
    pub resumed: u64,
    /// Handshakes per second.
    pub handshakes_per_s: f64,
    /// CPU time of the server's worker per handshake, its polling thread included, in microseconds.
    pub server_cpu_us: f64,
    /// Mean time from connect() to the completed handshake, in figure 11 to the end of the
    /// response, in microseconds.
    pub mean_us: f64,
    /// The median of the same.
    pub p50_us: f64,
    /// The 99th percentile of the same.
    pub p99_us: f64,
    /// The share of its core that the worker took.
    pub server_share: f64,
    /// The share of its core that the load generator took.
    pub client_share: f64,
    /// The share of the same core that the engine took, if there was one.
    pub engine_share: Option<f64>,
    /// The module's counters, warm-up included; none without a module.
    pub counters: Option<Counters>,
    /// Connections that failed.
    pub errors: u64,
    /// The reason of the first failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_error: Option<String>,
}

impl Experiment {
    /// Runs the experiment; `progress` is called with every row.
    ///
    /// # Errors
    /// [`Error::Testbed`] when a program does not start or dies, when a configuration needs a
    /// module and there is none, and when a signal asks for the end; [`Error::Unsupported`] when
    /// the configurations leave nothing to measure.
    pub fn run(&self, mut progress: impl FnMut(&Row)) -> Result<Outcome, Error> {
        let plan = self.plan()?;
        let scratch = ScratchDirectory::new()?;
        let credentials = make_credentials(&plan, &scratch)?;
        let mut rows = Vec::new();
        for round in 1..=self.rounds {
            for (figure, case, configurations) in &plan {
                for configuration in in_turn(configurations.iter().copied(), round) {
                    check_interrupted()?;
                    let credentials = &credentials[&case.suite().key];
                    let row = self.measure(*figure, case, configuration, credentials, round)?;
                    progress(&row);
                    rows.push(row);
                }
            }
        }
        Ok(Outcome::new(
            Machine::describe(Some(&self.nginx)),
            self.device,
            rows,
        ))
    }

    /// Number of measurements that it takes.
    pub fn measurements(&self) -> usize {
        let configurations = |figure: &Figure| self.selected(*figure).len();
        let of = |figure: &Figure| figure.cases(self.concurrency).len() * configurations(figure);
        self.rounds * self.figures.iter().map(of).sum::<usize>()
    }

    fn selected(&self, figure: Figure) -> Vec<Configuration> {
        let mut selected = figure.configurations().to_vec();
        selected.retain(|configuration| self.configurations.contains(configuration));
        selected
    }

    fn plan(&self) -> Result<Vec<(Figure, Case, Vec<Configuration>)>, Error> {
        let mut plan = Vec::new();
        for &figure in &self.figures {
            let selected = self.selected(figure);
            if selected.is_empty() {
                return Err(Error::Unsupported(format!(
                    "figure {} has none of these configurations; choose among {}",
                    figure.number(),
                    figure
                        .configurations()
                        .iter()
                        .map(|configuration| configuration.name())
                        .collect::<Vec<_>>()
                        .join(", ")
                )));
            }
            for case in figure.cases(self.concurrency) {
                plan.push((figure, case, selected.clone()));
            }
        }
        let offloads = |configuration: &Configuration| configuration.directives().is_some();
        if self.module.is_none() && plan.iter().any(|(_, _, all)| all.iter().any(offloads)) {
            return Err(testbed::Error::ModuleMissing {
                version: self.nginx.version.clone(),
                searched: Vec::new(),
            }
            .into());
        }
        Ok(plan)
    }

    /// Server and engine are started for each measurement: a polling thread of another
    /// configuration's would take its share of the core even when no client is served.
    fn measure(
        &self,
        figure: Figure,
        case: &Case,
        configuration: Configuration,
        credentials: &Credentials,
        round: usize,
    ) -> Result<Row, Error> {
        let running = Running::start(self, case, configuration, credentials)?;
        let load = Load {
            address: running.address,
            suite: case.suite(),
            resumed_percent: case.resumed_percent,
            concurrency: case.concurrency,
            limit: Limit::Duration {
                warm_up: WARM_UP,
                window: self.window,
            },
            behaviour: figure.behaviour(),
            timeout: CONNECTION_TIMEOUT,
        };
        let (report, used) = with_cpu_times(
            self.load_core,
            |observe| load.run_observed(observe),
            || running.cpu_times(),
        )?;
        let counters = match configuration.directives() {
            Some(_) => Some(Counters::fetch(running.address)?),
            None => None,
        };
        let times = match figure {
            Figure::ResponseTime => &report.response,
            _ => &report.latency,
        };
        let wall = report.wall.as_secs_f64();
        Ok(Row {
            figure: figure.number(),
            configuration: configuration.name(),
            suite: case.suite,
            concurrency: case.concurrency,
            resumed_percent: case.resumed_percent,
            round,
            handshakes: report.handshakes,
            resumed: report.resumed,
            handshakes_per_s: report.handshakes_per_second(),
            server_cpu_us: used.server.as_secs_f64() * 1e6 / report.handshakes as f64,
            mean_us: mean_us(times),
            p50_us: quantile_us(times, 0.50),
            p99_us: quantile_us(times, 0.99),
            server_share: used.server.as_secs_f64() / wall,
            client_share: report.client_share(),
            engine_share: used.beside.map(|engine| engine.as_secs_f64() / wall),
            counters,
            errors: report.failures.total(),
            first_error: report.failures.first,
        })
    }
}

/// A server and the engine that it offloads to.
struct Running {
    // Before `engine`: fields are dropped in this order, and a server that lost its engine would
    // complain.
    server: Server,
    engine: Option<Engine>,
    address: std::net::SocketAddr,
}

impl Running {
    fn start(
        experiment: &Experiment,
        case: &Case,
        configuration: Configuration,
        credentials: &Credentials,
    ) -> Result<Running, Error> {
        let offloads = configuration.directives().is_some();
        let engine = match experiment.device {
            Device::Paced | Device::Engine if offloads => Some(Engine::start(
                &experiment.engine_program,
                experiment.device.pace(),
                experiment.load_core,
            )?),
            _ => None,
        };
        let socket = engine.as_ref().map(Engine::socket);
        let block = configuration.block(experiment.device, socket.as_deref())?;
        let address = unused_address()?;
        let server = Server::start(&ServerOptions {
            binary: &experiment.nginx,
            module: experiment.module.as_deref().filter(|_| offloads),
            module_directives: block.as_deref().unwrap_or_default(),
            worker_core: experiment.server_core,
            listeners: &[Listener {
                address,
                suite: Some(case.suite()),
                credentials,
            }],
        })?;
        Ok(Running {
            server,
            engine,
            address,
        })
    }

    fn cpu_times(&self) -> Result<CpuTimes, Error> {
        Ok(CpuTimes {
            server: self.server.worker_cpu_time()?,
            beside: self.engine.as_ref().map(Engine::cpu_time).transpose()?,
        })
    }
}

fn make_credentials(
    plan: &[(Figure, Case, Vec<Configuration>)],
    scratch: &ScratchDirectory,
) -> Result<HashMap<KeyType, Credentials>, Error> {
    let mut credentials = HashMap::new();
    for (_, case, _) in plan {
        let key = case.suite().key;
        if let Entry::Vacant(vacant) = credentials.entry(key) {
            vacant.insert(Credentials::generate(key, scratch)?);
        }
    }
    Ok(credentials)
}
