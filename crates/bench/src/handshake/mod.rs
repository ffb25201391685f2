//! Full handshakes of servers against each other: nginx, stock and with Slipstream, and others as
//! they come.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;
use slipstream_testbed as testbed;
use slipstream_testbed::cleanup::check_interrupted;
use slipstream_testbed::credentials::Credentials;
use slipstream_testbed::machine::Machine;
use slipstream_testbed::nginx::Binary;
use slipstream_testbed::scratch::ScratchDirectory;
use slipstream_testbed::suite::{KeyType, Suite};

use crate::Error;
use crate::load::{Behaviour, Limit, Load, with_cpu_times};
use crate::statistics::{Measurement, in_turn};

mod chart;
mod server;
mod summary;
mod system;
mod table;

pub use chart::write_report;
use server::Running;
use summary::summarize;
pub use summary::{Comparison, Outcome, Version};
use system::{Label, labels};
pub use system::{Mode, System};

/// The load before a window opens: long enough for a first batch of everything and for warm caches.
const WARM_UP: Duration = Duration::from_millis(200);
/// Time that one connection may take.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);

/// Options of an experiment.
#[derive(Debug, Clone)]
pub struct Experiment {
    /// The nginx that serves in every mode; `None` if none is measured.
    pub nginx: Option<Binary>,
    /// The module of [`Mode::Slipstream`].
    pub module: Option<PathBuf>,
    /// Directives for the main context in [`Mode::Slipstream`].
    pub module_directives: String,
    /// The systems; the others are compared with the first. One may come twice, which shows the
    /// effect of the machine's noise on a comparison between equals.
    pub systems: Vec<System>,
    /// The loads that are measured, in this order, each with the systems that can serve it.
    pub cases: Vec<Case>,
    /// The length of one measurement.
    pub window: Duration,
    /// Number of times that all is measured. Servers are started afresh for each round, so that no
    /// chance of one process's memory layout stays for all.
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
    /// Its mode, which is `stock` for all but nginx; one that is measured twice is numbered
    /// (`stock`, `stock-2`).
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
    /// CPU time of the server per handshake, in microseconds: of nginx's worker, of all processes
    /// of another server.
    pub server_cpu_us: f64,
    /// Median time from connect() to the completed handshake, in microseconds.
    pub p50_us: f64,
    /// The same for 99 of 100 handshakes.
    pub p99_us: f64,
    /// The share of its core that the server took.
    pub server_share: f64,
    /// The share of its core that the load generator took.
    pub client_share: f64,
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
    /// [`Error::Testbed`] when a server does not start or dies, when a system needs nginx or its
    /// module and there is none, and when a signal asks for the end.
    pub fn run(&self, mut progress: impl FnMut(&Row)) -> Result<Outcome, Error> {
        self.check()?;
        let scratch = ScratchDirectory::new()?;
        let credentials = self.make_credentials(&scratch)?;
        let labels = labels(&self.systems);
        let mut rows = Vec::new();
        for round in 1..=self.rounds {
            let servers = self.start_servers(&credentials)?;
            for case in &self.cases {
                for index in in_turn(0..self.systems.len(), round) {
                    check_interrupted()?;
                    let row = self.measure(case, &servers[index], &labels[index], round)?;
                    row.iter().for_each(&mut progress);
                    rows.extend(row);
                }
            }
        }
        Ok(Outcome {
            machine: Machine::describe(self.nginx.as_ref()),
            versions: self.versions(),
            summary: summarize(&rows, &labels),
            rows,
        })
    }

    /// The systems that cannot be measured with a suite, and why; each suite and server once.
    pub fn left_out(&self) -> Vec<(&'static str, &'static Suite, &'static str)> {
        let mut left_out: Vec<(&'static str, &'static Suite, &'static str)> = Vec::new();
        for system in &self.systems {
            for Case { suite, .. } in &self.cases {
                let is_known = left_out
                    .iter()
                    .any(|known| (known.0, known.1.name) == (system.server(), suite.name));
                if let Some(reason) = self.lacks(system, suite).filter(|_| !is_known) {
                    left_out.push((system.server(), suite, reason));
                }
            }
        }
        left_out
    }

    fn lacks(&self, system: &System, suite: &Suite) -> Option<&'static str> {
        system.lacks(suite, self.nginx.as_ref())
    }

    fn check(&self) -> Result<(), Error> {
        let measures = |mode| self.systems.contains(&System::Nginx(mode));
        let Some(nginx) = &self.nginx else {
            return match measures(Mode::Stock) || measures(Mode::Slipstream) {
                true => Err(testbed::Error::NginxNotFound {
                    searched: Vec::new(),
                }
                .into()),
                false => Ok(()),
            };
        };
        if measures(Mode::Slipstream) && self.module.is_none() {
            return Err(testbed::Error::ModuleMissing {
                version: nginx.version.clone(),
                searched: Vec::new(),
            }
            .into());
        }
        Ok(())
    }

    /// Versions of the servers other than nginx; nginx is in the machine's description.
    fn versions(&self) -> Vec<Version> {
        let mut versions: Vec<Version> = Vec::new();
        for system in &self.systems {
            let server = system.server();
            if let System::Peer(peer) = system
                && versions.iter().all(|known| known.server != server)
                && let Some(version) = peer.version()
            {
                versions.push(Version { server, version });
            }
        }
        versions
    }

    /// The suites of all cases that a system can serve, each once.
    fn suites_of(&self, system: &System) -> Vec<&'static Suite> {
        let mut suites: Vec<&'static Suite> = Vec::new();
        for Case { suite, .. } in &self.cases {
            if self.lacks(system, suite).is_none()
                && suites.iter().all(|known| known.name != suite.name)
            {
                suites.push(suite);
            }
        }
        suites
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

    /// A server for each system; `None` for one that can serve no case.
    fn start_servers(
        &self,
        credentials: &HashMap<KeyType, Credentials>,
    ) -> Result<Vec<Option<Running>>, Error> {
        self.systems
            .iter()
            .map(|system| match self.suites_of(system).is_empty() {
                true => Ok(None),
                false => Running::start(self, system, credentials).map(Some),
            })
            .collect()
    }

    /// Measures a case with a server; `None` if it cannot serve it.
    fn measure(
        &self,
        case: &Case,
        running: &Option<Running>,
        label: &Label,
        round: usize,
    ) -> Result<Option<Row>, Error> {
        let served = running
            .as_ref()
            .and_then(|running| Some((running, running.address(case.suite)?)));
        let Some((running, address)) = served else {
            return Ok(None);
        };
        let load = Load {
            address,
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
        let (report, used) = with_cpu_times(
            self.load_core,
            |observe| load.run_observed(observe),
            || running.cpu_times(),
        )?;
        let server_cpu = used.server;
        Ok(Some(Row {
            server: label.server,
            mode: label.mode.clone(),
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
        }))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use slipstream_testbed::peers::{Crypto, Peer};
    use slipstream_testbed::processor::usable_cores;
    use slipstream_testbed::suite::SUITES;

    use super::*;

    #[test]
    fn other_servers_complete_every_handshake() {
        let cores = usable_cores().unwrap();
        let systems = [Peer::haproxy(), Peer::hitch()].map(|peer| System::Peer(peer.unwrap()));
        let outcome = Experiment {
            nginx: None,
            module: None,
            module_directives: String::new(),
            systems: systems.to_vec(),
            cases: SUITES
                .iter()
                .map(|suite| Case {
                    suite,
                    concurrency: 4,
                })
                .collect(),
            window: Duration::from_millis(500),
            rounds: 1,
            server_core: cores[0],
            load_core: cores[cores.len() - 1],
        }
        .run(|_| ())
        .unwrap();
        assert_eq!(outcome.errors(), 0, "{outcome}");
        let served = |system: &System| {
            let lacks = |suite: &&Suite| system.lacks(suite, None).is_none();
            SUITES.iter().filter(lacks).count()
        };
        assert_eq!(
            outcome.rows.len(),
            systems.iter().map(served).sum::<usize>()
        );
        // Where a processor was busy elsewhere for the whole of a window, or most of it, nothing
        // can be said.
        let measured = || outcome.rows.iter().filter(|row| row.handshakes >= 20);
        assert!(2 * measured().count() > outcome.rows.len(), "{outcome}");
        for row in measured() {
            // OpenSSL does no full handshake in less on any machine, and less would mean CPU time
            // went unseen.
            assert!(row.server_cpu_us > 50.0, "{row:?}");
        }
        let versions: Vec<&str> = outcome.versions.iter().map(|known| known.server).collect();
        assert_eq!(versions, ["haproxy", "hitch"]);
    }

    #[test]
    fn what_a_server_lacks_is_left_out_and_said_once() {
        let find = |name| Suite::find(name).unwrap();
        let case = |suite, concurrency| Case { suite, concurrency };
        let serve = System::Peer(Peer::serve(Path::new("/usr/bin/slipstream"), Crypto::AwsLc));
        let experiment = Experiment {
            nginx: None,
            module: None,
            module_directives: String::new(),
            systems: vec![System::Nginx(Mode::Stock), serve.clone(), serve.clone()],
            cases: vec![
                case(find("tls12-rsakx"), 1),
                case(find("tls12-rsakx"), 8),
                case(find("tls13-rsa2048"), 1),
            ],
            window: Duration::ZERO,
            rounds: 1,
            server_core: 0,
            load_core: 0,
        };
        let names = |system: &System| -> Vec<&str> {
            let suites = experiment.suites_of(system);
            suites.iter().map(|suite| suite.name).collect()
        };
        assert_eq!(names(&serve), ["tls13-rsa2048"]);
        assert_eq!(
            names(&System::Nginx(Mode::Stock)),
            ["tls12-rsakx", "tls13-rsa2048"]
        );
        let left_out = experiment.left_out();
        assert_eq!(left_out.len(), 1);
        assert_eq!(
            (left_out[0].0, left_out[0].1.name),
            ("serve-awslc", "tls12-rsakx")
        );
        assert!(matches!(
            experiment.run(|_| ()),
            Err(Error::Testbed(testbed::Error::NginxNotFound { .. }))
        ));
    }
}
