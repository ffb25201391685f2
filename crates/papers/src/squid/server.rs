//! A Squid with its origin, and the terminator in front of it.

use std::fs;
use std::net::SocketAddr;
use std::process::{self, Command};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::SystemTime;

use httpdate::fmt_http_date;
use slipstream_bench::load::CpuTimes;
use slipstream_testbed::credentials::Credentials;
use slipstream_testbed::nginx::Listener;
use slipstream_testbed::origin::Origin;
use slipstream_testbed::peers::serve::start_with_backend;
use slipstream_testbed::port::{unused_address, unused_addresses};
use slipstream_testbed::scratch::ScratchDirectory;
use slipstream_testbed::server::{Process, Ready};
use slipstream_testbed::suite::Suite;

use super::configuration::{Port, render};
use super::fetch::fetch;
use super::{Configuration, Experiment};
use crate::Error;

/// The length of the object in bytes. The paper does not give the length of its object.
const OBJECT_LENGTH: usize = 1024;
/// Number of requests that Squid may take to have the object in its cache.
const WARMING_REQUESTS: usize = 10;

/// The servers of a configuration. They are stopped when this is dropped.
pub(super) struct Running {
    configuration: Configuration,
    /// The addresses that clients connect to, in the order of the suites.
    addresses: Vec<(&'static str, SocketAddr)>,
    // In this order: a server that loses the one behind it would complain.
    serve: Option<Process>,
    squid: Process,
    origin: Origin,
    /// Number of requests that Squid had sent to the origin when its cache was warm.
    asked: u64,
}

impl Running {
    /// Starts all, and has Squid fetch the object into its cache.
    pub(super) fn start(
        experiment: &Experiment,
        configuration: Configuration,
        credentials: &Credentials,
    ) -> Result<Running, Error> {
        let object = vec![b'x'; OBJECT_LENGTH];
        let origin = Origin::start(experiment.load_core, &answer(&object))?;
        let listeners: Vec<Listener<'_>> = experiment
            .suites
            .iter()
            .zip(unused_addresses(experiment.suites.len())?)
            .map(|(suite, address)| Listener {
                address,
                suite: Some(suite),
                credentials,
            })
            .collect();
        let core = experiment.server_core;
        let (squid, serve) = match configuration {
            Configuration::Own => {
                let ports: Vec<Port<'_>> = experiment
                    .suites
                    .iter()
                    .zip(&listeners)
                    .map(|(suite, listener)| Port::Encrypted {
                        address: listener.address,
                        suite,
                        credentials,
                    })
                    .collect();
                let addresses: Vec<SocketAddr> =
                    listeners.iter().map(|listener| listener.address).collect();
                (start_squid(experiment, &ports, &addresses, &origin)?, None)
            }
            Configuration::Serve(crypto) => {
                let address = unused_address()?;
                let ports = [Port::Plain { address }];
                let squid = start_squid(experiment, &ports, &[address], &origin)?;
                let serve =
                    start_with_backend(&experiment.serve, crypto, &listeners, address, core)?;
                (squid, Some(serve))
            }
        };
        let mut running = Running {
            configuration,
            addresses: experiment
                .suites
                .iter()
                .zip(&listeners)
                .map(|(suite, listener)| (suite.name, listener.address))
                .collect(),
            serve,
            squid,
            origin,
            asked: 0,
        };
        running.warm(&object)?;
        Ok(running)
    }

    /// The address that clients connect to for a suite of the experiment.
    pub(super) fn address(&self, suite: &Suite) -> SocketAddr {
        self.addresses
            .iter()
            .find(|(name, _)| *name == suite.name)
            .map(|(_, address)| *address)
            .expect("every suite of the experiment has a port")
    }

    /// The CPU times that all processes have used.
    pub(super) fn cpu_times(&self) -> Result<CpuTimes, Error> {
        Ok(CpuTimes {
            server: self.squid.cpu_time()?,
            beside: self.serve.as_ref().map(Process::cpu_time).transpose()?,
        })
    }

    /// Checks that everything since the start has come from the cache.
    ///
    /// # Errors
    /// [`Error::WrongContent`] if Squid has asked its origin.
    pub(super) fn check_cache(&self) -> Result<(), Error> {
        match self.origin.requests() - self.asked {
            0 => Ok(()),
            count => Err(Error::WrongContent(format!(
                "Squid ({}) has asked its origin {count} times while it was measured: it has not kept the object",
                self.configuration.name()
            ))),
        }
    }

    fn warm(&mut self, object: &[u8]) -> Result<(), Error> {
        let wrong = |reason: String| {
            let name = self.configuration.name();
            Error::WrongContent(format!("Squid ({name}) {reason}"))
        };
        for &(suite, address) in &self.addresses {
            let mut requests = 0;
            loop {
                let response = fetch(address)?;
                if response.body != object {
                    let status = response.status_line();
                    return Err(wrong(format!(
                        "answers {status:?}, and not with the object"
                    )));
                }
                if response.is_hit() {
                    break;
                }
                requests += 1;
                if requests == WARMING_REQUESTS {
                    return Err(wrong(format!(
                        "has not kept the object after {requests} requests ({suite})"
                    )));
                }
            }
        }
        self.asked = self.origin.requests();
        Ok(())
    }
}

/// Starts a Squid without a master. It reads its key while it is root, if it is, and goes on as the
/// user that its package makes.
fn start_squid(
    experiment: &Experiment,
    ports: &[Port<'_>],
    addresses: &[SocketAddr],
    origin: &Origin,
) -> Result<Process, Error> {
    let scratch = ScratchDirectory::new()?;
    let path = scratch.file("squid.conf");
    fs::write(&path, render(ports, origin.address())?).map_err(Error::file("write", &path))?;
    let mut command = Command::new(&experiment.squid);
    command
        // In the foreground, with what is important on standard error.
        .args(["-N", "-d", "1", "-n", &service_name(), "-f"])
        .arg(&path);
    let squid = Process::start(
        &mut command,
        experiment.server_core,
        Ready::Accepts(addresses),
        scratch,
    )?;
    Ok(squid)
}

/// A name that no other Squid has: memory that Squids share is named after it.
fn service_name() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("slipstream{}x{number}", process::id())
}

/// The origin's response: the object, which may be kept for a day. Squid keeps nothing that has no
/// date.
fn answer(object: &[u8]) -> Vec<u8> {
    let mut answer = format!(
        "HTTP/1.1 200 OK\r\nDate: {}\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\
         Cache-Control: public, max-age=86400\r\nConnection: close\r\n\r\n",
        fmt_http_date(SystemTime::now()),
        object.len()
    )
    .into_bytes();
    answer.extend_from_slice(object);
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_squids_share_a_name_that_squid_takes() {
        let names = [service_name(), service_name()];
        assert_ne!(names[0], names[1]);
        for name in names {
            // Its own check: letters and digits, at most 32.
            assert!(name.len() <= 32 && name.chars().all(char::is_alphanumeric));
        }
    }
}
