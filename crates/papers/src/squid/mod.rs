//! The measurement of "QuickAssist Technology Acceleration Quadruples Squid Web Cache Server
//! Performance" (Silicom, 2016, table 2): a new TLS connection for each request, with a server key
//! of RSA-2048, and an object that is in the cache.
//!
//! The paper patches Squid for an asynchronous OpenSSL and a card. Here Squid stays as Debian
//! packages it: either it does its own TLS, or `slipstream serve` stands in front of it, connects
//! to its plain port for each connection, and names the client in a PROXY header. All
//! processes of a configuration share one core; the load has another. Squid asks its origin before
//! a window opens; a measurement in which it does so again is an error.

mod configuration;
mod fetch;
mod paper;
mod report;
mod server;
mod summary;

use std::path::PathBuf;
use std::time::Duration;

pub use configuration::Configuration;
pub use paper::{PAPER, Version};
pub use report::write_report;
use serde::Serialize;
use slipstream_bench::load::{Behaviour, Limit, Load, quantile_us, with_cpu_times};
use slipstream_bench::statistics::in_turn;
use slipstream_testbed::cleanup::check_interrupted;
use slipstream_testbed::credentials::Credentials;
use slipstream_testbed::machine::Machine;
use slipstream_testbed::program;
use slipstream_testbed::scratch::ScratchDirectory;
use slipstream_testbed::suite::{KeyType, Suite};

use crate::Error;
use server::Running;
pub use summary::{Comparison, Outcome};

/// The load before a window opens.
const WARM_UP: Duration = Duration::from_millis(200);
/// Time that one connection may take.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);

/// Options of an experiment.
#[derive(Debug, Clone)]
pub struct Experiment {
    /// The Squid that caches in every configuration. It must have been built with OpenSSL.
    pub squid: PathBuf,
    /// The executable with the `serve` command.
    pub serve: PathBuf,
    /// The configurations; the others are compared with the first.
    pub configurations: Vec<Configuration>,
    /// The kinds of handshake.
    pub suites: Vec<&'static Suite>,
    /// The numbers of connections that are kept at work.
    pub concurrencies: Vec<usize>,
    /// The length of one measurement.
    pub window: Duration,
    /// Number of times that all is measured. Servers are started afresh for each round.
    pub rounds: usize,
    /// The core of Squid and of the terminator in front of it.
    pub server_core: usize,
    /// The core of the load and of Squid's origin.
    pub load_core: usize,
}

/// One measurement.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// The name of the configuration.
    pub configuration: &'static str,
    /// The suite's name.
    pub suite: &'static str,
    /// Connections at work at a time.
    pub concurrency: usize,
    /// The round, from 1.
    pub round: usize,
    /// Connections in the window: handshakes, each with a request and its answer.
    pub connections: u64,
    /// Connections per second.
    pub connections_per_s: f64,
    /// CPU time of all servers per connection, in microseconds.
    pub server_cpu_us: f64,
    /// That of Squid alone.
    pub squid_cpu_us: f64,
    /// That of `slipstream serve`; none without it.
    pub serve_cpu_us: Option<f64>,
    /// Median time from connect() to the end of the response, in microseconds.
    pub p50_us: f64,
    /// The same for 99 of 100 connections.
    pub p99_us: f64,
    /// The share of their core that the servers took.
    pub server_share: f64,
    /// The share of its core that the load generator took.
    pub client_share: f64,
    /// Connections that failed.
    pub errors: u64,
    /// The reason of the first failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_error: Option<String>,
}

impl Experiment {
    /// The Squid that is installed.
    ///
    /// # Errors
    /// [`Error::Testbed`] if there is none.
    pub fn find_squid() -> Result<PathBuf, Error> {
        Ok(program::find("squid", "squid-openssl")?)
    }

    /// Number of measurements that it takes.
    pub fn measurements(&self) -> usize {
        self.rounds * self.configurations.len() * self.suites.len() * self.concurrencies.len()
    }

    /// Runs the experiment; `progress` is called with every row.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a suite that cannot be measured, or a Squid without OpenSSL;
    /// [`Error::Testbed`] when a server does not start or dies, and when a signal asks for the end;
    /// [`Error::WrongContent`] when a response is not the object, or Squid does not keep it.
    pub fn run(&self, mut progress: impl FnMut(&Row)) -> Result<Outcome, Error> {
        let version = self.check()?;
        let scratch = ScratchDirectory::new()?;
        let credentials = Credentials::generate(KeyType::Rsa2048, &scratch)?;
        let mut rows = Vec::new();
        for round in 1..=self.rounds {
            let servers = self
                .configurations
                .iter()
                .map(|&configuration| Running::start(self, configuration, &credentials))
                .collect::<Result<Vec<Running>, Error>>()?;
            for &suite in &self.suites {
                for &concurrency in &self.concurrencies {
                    for index in in_turn(0..self.configurations.len(), round) {
                        check_interrupted()?;
                        let case = Case {
                            configuration: self.configurations[index],
                            suite,
                            concurrency,
                            round,
                        };
                        let row = self.measure(&case, &servers[index])?;
                        progress(&row);
                        rows.push(row);
                    }
                }
            }
        }
        Ok(Outcome::new(
            Machine::describe(None),
            version,
            &self.configurations,
            rows,
        ))
    }

    /// Squid's version, if all that is asked for can be measured with it.
    fn check(&self) -> Result<String, Error> {
        for suite in &self.suites {
            if suite.key != KeyType::Rsa2048 || suite.group.is_none() {
                return Err(Error::Unsupported(format!(
                    "{} cannot be measured here: the server has a key of RSA-2048, and rustls no RSA key exchange; \
                     choose a suite such as tls13-rsa2048 or tls12-ecdhe-rsa-x25519",
                    suite.name
                )));
            }
        }
        let version = program::version(&self.squid, "-v").unwrap_or_default();
        if !version.contains("Squid") {
            return Err(Error::Unsupported(format!(
                "{} does not answer -v like Squid; name another with --squid, or install it (apt-get install \
                 squid-openssl)",
                self.squid.display()
            )));
        }
        Ok(version)
    }

    fn measure(&self, case: &Case, running: &Running) -> Result<Row, Error> {
        let load = Load {
            address: running.address(case.suite),
            suite: case.suite,
            resumed_percent: 0,
            concurrency: case.concurrency,
            limit: Limit::Duration {
                warm_up: WARM_UP,
                window: self.window,
            },
            behaviour: Behaviour::Request,
            timeout: CONNECTION_TIMEOUT,
        };
        let (report, used) = with_cpu_times(
            self.load_core,
            |observe| load.run_observed(observe),
            || running.cpu_times(),
        )?;
        running.check_cache()?;
        let per_connection = |time: Duration| time.as_secs_f64() * 1e6 / report.handshakes as f64;
        Ok(Row {
            configuration: case.configuration.name(),
            suite: case.suite.name,
            concurrency: case.concurrency,
            round: case.round,
            connections: report.handshakes,
            connections_per_s: report.handshakes_per_second(),
            server_cpu_us: per_connection(used.sum()),
            squid_cpu_us: per_connection(used.server),
            serve_cpu_us: used.beside.map(per_connection),
            p50_us: quantile_us(&report.response, 0.50),
            p99_us: quantile_us(&report.response, 0.99),
            server_share: used.sum().as_secs_f64() / report.wall.as_secs_f64(),
            client_share: report.client_share(),
            errors: report.failures.total(),
            first_error: report.failures.first,
        })
    }
}

/// The subject of one measurement.
struct Case {
    configuration: Configuration,
    suite: &'static Suite,
    concurrency: usize,
    round: usize,
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use slipstream_testbed::peers::Crypto;
    use slipstream_testbed::processor::usable_cores;

    use super::*;

    /// HAProxy instead of `slipstream serve`: it takes the same command line and file.
    const TERMINATOR: &str = r#"#!/bin/bash
of() { sed -n "s/^$1 = //p" "$2" | tr -d '[]"' | head -1; }
listen=$(of listen "$3") backend=$(of backends "$3")
certificate=$(sed -n 's/.*certificate = "\([^"]*\)".*/\1/p' "$3" | head -1)
cat > "$3.haproxy" <<END
global
    ssl-load-extra-del-ext
listen terminator
    bind $listen ssl crt $certificate
    timeout client 10s
    timeout server 10s
    timeout connect 10s
    server squid $backend send-proxy
END
haproxy -db -f "$3.haproxy" &
until (exec 3<>"/dev/tcp/${listen%:*}/${listen#*:}") 2>/dev/null; do sleep 0.01; done
echo "serving on $listen"
wait
"#;

    fn experiment(suite: &str, serve: &Path) -> Experiment {
        let cores = usable_cores().unwrap();
        Experiment {
            squid: Experiment::find_squid().unwrap(),
            serve: serve.to_path_buf(),
            configurations: vec![Configuration::Own, Configuration::Serve(Crypto::Slipstream)],
            suites: vec![Suite::find(suite).unwrap()],
            concurrencies: vec![4],
            // A processor may be busy elsewhere for a while.
            window: Duration::from_secs(1),
            rounds: 2,
            server_core: cores[0],
            load_core: cores[cores.len() - 1],
        }
    }

    #[test]
    fn squid_serves_from_its_cache_by_itself_and_behind_a_terminator() {
        let scratch = ScratchDirectory::new().unwrap();
        let terminator = scratch.executable("terminator", TERMINATOR).unwrap();
        let outcome = experiment("tls13-rsa2048", &terminator)
            .run(|_| ())
            .unwrap();
        assert_eq!(outcome.errors(), 0, "{outcome}");
        let order: Vec<&str> = outcome.rows.iter().map(|row| row.configuration).collect();
        assert_eq!(order, ["own", "serve", "serve", "own"]);
        for row in &outcome.rows {
            assert!(row.connections > 0, "{row:?}");
            assert!(row.squid_cpu_us > 0.0, "{row:?}");
            let serve = row.serve_cpu_us.unwrap_or(0.0);
            assert_eq!(serve > 0.0, row.configuration == "serve", "{row:?}");
            assert!(
                (row.squid_cpu_us + serve - row.server_cpu_us).abs() < 1.0,
                "{row:?}"
            );
        }
    }

    #[test]
    fn what_cannot_be_compared_is_refused_before_anything_is_started() {
        for (suite, reason) in [
            ("tls12-rsakx", "no RSA key exchange"),
            ("tls13-ecdsa-p256", "a key of RSA-2048"),
            ("tls13-rsa2048", "apt-get install squid-openssl"),
        ] {
            let experiment = Experiment {
                squid: PathBuf::from("/bin/true"),
                ..experiment(suite, Path::new("/bin/true"))
            };
            let message = experiment.run(|_| ()).unwrap_err().to_string();
            assert!(message.contains(reason), "{message}");
        }
    }
}
