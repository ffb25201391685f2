//! Servers beside nginx that handshakes are compared with: HAProxy and Hitch as Debian has them,
//! and `slipstream serve`.
//!
//! Each runs on one core, with one thread or process that serves, and offers the same as nginx
//! does: on each port the only kind of handshake that is measured there. All else is as the server
//! has it by default, session tickets too.

mod haproxy;
mod hitch;
pub mod serve;

use std::fmt::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::Error;
use crate::nginx::Listener;
use crate::origin::Origin;
use crate::program;
use crate::server::Process;
use crate::suite::{Protocol, Suite};

/// A server that is not nginx, with its executable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    kind: Kind,
    executable: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Haproxy,
    Hitch,
    Serve(Crypto),
}

/// The cryptography that `slipstream serve` uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crypto {
    /// Lanes where they are faster.
    Slipstream,
    /// aws-lc alone.
    AwsLc,
}

impl Peer {
    /// The HAProxy that is installed.
    ///
    /// # Errors
    /// [`Error::ServerNotFound`] if there is none.
    pub fn haproxy() -> Result<Peer, Error> {
        Ok(Peer {
            kind: Kind::Haproxy,
            executable: program::find("haproxy", "haproxy")?,
        })
    }

    /// The Hitch that is installed.
    ///
    /// # Errors
    /// [`Error::ServerNotFound`] if there is none.
    pub fn hitch() -> Result<Peer, Error> {
        Ok(Peer {
            kind: Kind::Hitch,
            executable: program::find("hitch", "hitch")?,
        })
    }

    /// The `serve` command of `executable`.
    pub fn serve(executable: &Path, crypto: Crypto) -> Peer {
        Peer {
            kind: Kind::Serve(crypto),
            executable: executable.to_path_buf(),
        }
    }

    /// Its name on the command line and in reports.
    pub fn name(&self) -> &'static str {
        match self.kind {
            Kind::Haproxy => "haproxy",
            Kind::Hitch => "hitch",
            Kind::Serve(crypto) => crypto.server_name(),
        }
    }

    /// The line that it prints about its version, if it prints one.
    pub fn version(&self) -> Option<String> {
        let option = match self.kind {
            Kind::Haproxy => "-v",
            Kind::Hitch | Kind::Serve(_) => "--version",
        };
        program::version(&self.executable, option)
    }

    /// The reason why it has no such handshake, or `None` if it has.
    pub fn lacks(&self, suite: &Suite) -> Option<&'static str> {
        match self.kind {
            // A suite of TLS 1.2 without a group is one of RSA key exchange.
            Kind::Serve(_) if suite.protocol == Protocol::Tls12 && suite.group.is_none() => {
                Some("rustls has no RSA key exchange")
            }
            Kind::Serve(_) => None,
            // They run with the libcrypto of the distribution, as this program does.
            Kind::Haproxy | Kind::Hitch => suite.lacked_by(openssl::version::version()),
        }
    }

    /// Starts it on `server_core`, and waits until every port accepts connections. Its backend,
    /// if it needs one, runs on `load_core`.
    ///
    /// # Errors
    /// [`Error::Server`] with the end of its log when it does not start; [`Error::UnusablePath`];
    /// [`Error::Io`]; [`Error::Interrupted`].
    pub fn start(
        &self,
        listeners: &[Listener<'_>],
        server_core: usize,
        load_core: usize,
    ) -> Result<Running, Error> {
        match self.kind {
            Kind::Haproxy => {
                haproxy::start(&self.executable, listeners, server_core).map(Running::alone)
            }
            Kind::Hitch => {
                let backend = Origin::start(load_core, &[])?;
                let process =
                    hitch::start(&self.executable, listeners, backend.address(), server_core)?;
                Ok(Running {
                    process,
                    _backend: Some(backend),
                })
            }
            Kind::Serve(crypto) => {
                serve::start_with_files(&self.executable, crypto, listeners, server_core)
                    .map(Running::alone)
            }
        }
    }
}

impl Crypto {
    /// The name of `slipstream serve` with it on the command line and in reports.
    pub fn server_name(self) -> &'static str {
        match self {
            Crypto::Slipstream => "serve",
            Crypto::AwsLc => "serve-awslc",
        }
    }
}

/// A server that runs. It is stopped when this is dropped.
pub struct Running {
    // Before the backend: fields are dropped in this order, and a server that lost its backend
    // would complain.
    process: Process,
    _backend: Option<Origin>,
}

impl Running {
    fn alone(process: Process) -> Running {
        Running {
            process,
            _backend: None,
        }
    }

    /// The CPU time that all of its processes and threads have used.
    ///
    /// # Errors
    /// [`Error::Server`] with the end of its log if it is gone.
    pub fn cpu_time(&self) -> Result<Duration, Error> {
        self.process.cpu_time()
    }
}

/// Appends to a configuration.
fn append(text: &mut String, arguments: fmt::Arguments<'_>) {
    text.write_fmt(arguments)
        .expect("writing to a String cannot fail");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_lacks_what_it_has_not_got() {
        let suite = |name| Suite::find(name).unwrap();
        for crypto in [Crypto::Slipstream, Crypto::AwsLc] {
            let serve = Peer::serve(Path::new("/usr/bin/slipstream"), crypto);
            assert!(serve.lacks(suite("tls12-rsakx")).is_some());
            assert!(serve.lacks(suite("tls12-ecdhe-rsa-p256")).is_none());
            assert!(serve.lacks(suite("tls13-rsa2048-mlkem768")).is_none());
        }
        let haproxy = Peer {
            kind: Kind::Haproxy,
            executable: PathBuf::from("/usr/sbin/haproxy"),
        };
        assert!(haproxy.lacks(suite("tls12-rsakx")).is_none());
        let hybrid = suite("tls13-rsa2048-mlkem768");
        assert_eq!(
            haproxy.lacks(hybrid).is_some(),
            openssl::version::number() < 0x3050_0000
        );
    }
}
