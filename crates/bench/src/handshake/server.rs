//! The servers of a round.

use std::collections::HashMap;
use std::net::SocketAddr;

use slipstream_testbed as testbed;
use slipstream_testbed::credentials::Credentials;
use slipstream_testbed::nginx::{Listener, Server, ServerOptions};
use slipstream_testbed::peers;
use slipstream_testbed::port::unused_addresses;
use slipstream_testbed::suite::{KeyType, Suite};

use super::{Experiment, Mode, System};
use crate::Error;
use crate::load::CpuTimes;

/// A server with a port for every suite that it can be measured with.
pub(super) struct Running {
    program: Program,
    /// By the suite's name.
    addresses: HashMap<&'static str, SocketAddr>,
}

enum Program {
    Nginx(Server),
    Peer(peers::Running),
}

impl Running {
    pub(super) fn start(
        experiment: &Experiment,
        system: &System,
        credentials: &HashMap<KeyType, Credentials>,
    ) -> Result<Running, Error> {
        let suites = experiment.suites_of(system);
        let listeners: Vec<Listener<'_>> = suites
            .iter()
            .zip(unused_addresses(suites.len())?)
            .map(|(suite, address)| Listener {
                address,
                suite: Some(suite),
                credentials: &credentials[&suite.key],
            })
            .collect();
        let program = match system {
            System::Nginx(mode) => Program::Nginx(start_nginx(experiment, *mode, &listeners)?),
            System::Peer(peer) => Program::Peer(peer.start(
                &listeners,
                experiment.server_core,
                experiment.load_core,
            )?),
        };
        Ok(Running {
            program,
            addresses: suites
                .iter()
                .zip(&listeners)
                .map(|(suite, listener)| (suite.name, listener.address))
                .collect(),
        })
    }

    /// The address at which it serves a suite; `None` if it cannot.
    pub(super) fn address(&self, suite: &Suite) -> Option<SocketAddr> {
        self.addresses.get(suite.name).copied()
    }

    /// The CPU time that it has used: of nginx the worker's, of others that of all their processes.
    pub(super) fn cpu_times(&self) -> Result<CpuTimes, Error> {
        Ok(CpuTimes {
            server: match &self.program {
                Program::Nginx(server) => server.worker_cpu_time()?,
                Program::Peer(peer) => peer.cpu_time()?,
            },
            beside: None,
        })
    }
}

fn start_nginx(
    experiment: &Experiment,
    mode: Mode,
    listeners: &[Listener<'_>],
) -> Result<Server, Error> {
    let binary = experiment
        .nginx
        .as_ref()
        .ok_or_else(|| testbed::Error::NginxNotFound {
            searched: Vec::new(),
        })?;
    let server = Server::start(&ServerOptions {
        binary,
        module: match mode {
            Mode::Stock => None,
            Mode::Slipstream => experiment.module.as_deref(),
        },
        module_directives: &experiment.module_directives,
        worker_core: experiment.server_core,
        listeners,
    })?;
    Ok(server)
}
