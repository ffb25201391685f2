//! Options for a single listener.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};
use slipstream_terminator::Configuration;
use slipstream_terminator::configuration::values::{self, Content};
use slipstream_terminator::configuration::{
    AccessLog, Backend, CertificateFiles, ClientCertificates, Crypto, Engine, EngineUser, Lanes,
    Listener, LogFormat, LogTarget, ProxyProtocol, Service, Upstream,
};

use crate::commands::options::positive;

#[derive(Args)]
pub(super) struct Options {
    /// Address to listen at, such as 0.0.0.0:443; can be repeated
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = values::listen)]
    listen: Vec<SocketAddr>,
    /// Certificate chain in PEM; can be repeated; the first is for clients that name no server
    #[arg(long, value_name = "FILE")]
    cert: Vec<PathBuf>,
    /// Private key in PEM of the --cert at the same position
    #[arg(long, value_name = "FILE")]
    key: Vec<PathBuf>,
    /// HOST:PORT, unix:PATH or tls://HOST:PORT for bytes, http://... or https://... for requests;
    /// can be repeated
    #[arg(long, value_name = "BACKEND", value_parser = values::backend)]
    backend: Vec<(Content, Backend)>,
    /// Send backends a PROXY header with the client's address [default without a version: v1]
    #[arg(long, value_name = "VERSION", num_args = 0..=1, default_missing_value = "v1")]
    proxy_protocol: Option<Version>,
    /// Answer requests with the files of this folder
    #[arg(long, value_name = "FOLDER")]
    root: Option<PathBuf>,
    /// Cryptography to use [default: slipstream]
    #[arg(long, value_name = "LIBRARY")]
    crypto: Option<Library>,
    /// Lanes of the event loops [default: auto]
    #[arg(long, value_name = "CHOICE")]
    lanes: Option<LanesChoice>,
    /// Number of event loops [default: one per core]
    #[arg(long, value_name = "NUMBER", value_parser = positive)]
    workers: Option<usize>,
    /// Socket of a `slipstream engine` that computes instead of the event loops' own lanes
    #[arg(long, value_name = "SOCKET")]
    engine: Option<PathBuf>,
    /// User that the engine may run as, beside root and this process's own, by name or number
    /// [default: slipstream-engine]
    #[arg(long, value_name = "USER")]
    engine_user: Option<String>,
    /// Hand private keys over to the engine and wipe them here
    #[arg(long)]
    isolate_keys: bool,
    /// Address at which /metrics and /health are served
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = values::listen)]
    metrics: Option<SocketAddr>,
    /// Log requests to this file, or to standard output for `-`
    #[arg(long, value_name = "FILE")]
    access_log: Option<PathBuf>,
    /// Format of the access log [default: combined]
    #[arg(long, value_name = "FORMAT")]
    access_log_format: Option<Format>,
    /// Require client certificates issued by these authorities (PEM)
    #[arg(long, value_name = "FILE")]
    client_ca: Option<PathBuf>,
    /// Unprivileged user to switch to after binding sockets and reading keys
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Longest time for open connections to end [default: 30s]
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    drain_timeout: Option<Duration>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Version {
    /// A line of text
    V1,
    /// Binary, with the facts of the TLS session
    V2,
}

#[derive(Clone, Copy, ValueEnum)]
enum Library {
    /// Lanes or an engine where they are faster, aws-lc for everything else
    Slipstream,
    /// aws-lc only
    AwsLc,
}

#[derive(Clone, Copy, ValueEnum)]
enum LanesChoice {
    /// The best that this CPU has
    Auto,
    /// None: an engine computes, or aws-lc
    Off,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    /// Combined log format of Apache and nginx
    Combined,
    /// One JSON object per line
    Json,
}

impl Options {
    /// Returns an error if an option is combined with --config.
    pub(super) fn refuse_beside_file(&self) -> Result<(), String> {
        let given = [
            ("--listen", !self.listen.is_empty()),
            ("--cert", !self.cert.is_empty()),
            ("--key", !self.key.is_empty()),
            ("--backend", !self.backend.is_empty()),
            ("--proxy-protocol", self.proxy_protocol.is_some()),
            ("--root", self.root.is_some()),
            ("--crypto", self.crypto.is_some()),
            ("--lanes", self.lanes.is_some()),
            ("--workers", self.workers.is_some()),
            ("--engine", self.engine.is_some()),
            ("--engine-user", self.engine_user.is_some()),
            ("--isolate-keys", self.isolate_keys),
            ("--metrics", self.metrics.is_some()),
            ("--access-log", self.access_log.is_some()),
            ("--access-log-format", self.access_log_format.is_some()),
            ("--client-ca", self.client_ca.is_some()),
            ("--user", self.user.is_some()),
            ("--drain-timeout", self.drain_timeout.is_some()),
        ];
        match given.into_iter().find(|(_, is_given)| *is_given) {
            Some((name, _)) => Err(format!(
                "{name} and --config exclude each other: write the setting into the file, or remove --config"
            )),
            None => Ok(()),
        }
    }

    /// Makes the configuration that the options describe.
    pub(super) fn configuration(&self) -> Result<Configuration, String> {
        let mut listener = Listener::new(self.addresses()?, self.certificates()?, self.service()?);
        listener.client_certificates =
            self.client_ca
                .clone()
                .map(|authorities| ClientCertificates {
                    authorities,
                    required: true,
                });
        let mut configuration = Configuration::new(vec![listener]);
        configuration.workers = self.workers;
        configuration.user = self.user.clone();
        configuration.crypto = match self.crypto {
            None | Some(Library::Slipstream) => Crypto::Slipstream,
            Some(Library::AwsLc) => Crypto::AwsLc,
        };
        configuration.lanes = match self.lanes {
            None | Some(LanesChoice::Auto) => Lanes::Auto,
            Some(LanesChoice::Off) => Lanes::Off,
        };
        configuration.engine = self.engine()?;
        configuration.metrics = self.metrics;
        configuration.access_log = self.access_log()?;
        if let Some(timeout) = self.drain_timeout {
            configuration.drain_timeout = timeout;
        }
        Ok(configuration)
    }

    fn addresses(&self) -> Result<Vec<SocketAddr>, String> {
        if self.listen.is_empty() {
            return Err("no address to listen at: give --config FILE, or --listen 0.0.0.0:443 with --cert, --key and \
                        --backend or --root"
                .to_owned());
        }
        Ok(self.listen.clone())
    }

    fn certificates(&self) -> Result<Vec<CertificateFiles>, String> {
        if self.cert.is_empty() {
            return Err(
                "--listen needs a certificate: give --cert site.pem --key site.key".to_owned(),
            );
        }
        if self.cert.len() != self.key.len() {
            return Err(format!(
                "there are {} of --cert and {} of --key: each certificate needs the key at the same position",
                self.cert.len(),
                self.key.len()
            ));
        }
        let pairs = self.cert.iter().cloned().zip(self.key.iter().cloned());
        Ok(pairs
            .map(|(certificate, key)| CertificateFiles {
                certificate,
                key,
                ocsp: None,
            })
            .collect())
    }

    fn service(&self) -> Result<Service, String> {
        let first = self.backend.first().map(|(content, _)| *content);
        match (first, &self.root) {
            (Some(_), Some(_)) => {
                Err("--root and --backend exclude each other: remove one of the two".to_owned())
            }
            (None, None) => Err(
                "nothing to serve: give --backend 127.0.0.1:3128, or --root /var/www".to_owned(),
            ),
            (None, Some(_)) if self.proxy_protocol.is_some() => {
                Err("--proxy-protocol is for backends, not for --root: remove it".to_owned())
            }
            (None, Some(root)) => Ok(Service::Files(root.clone())),
            (Some(content), None) => {
                if self.backend.iter().any(|(other, _)| *other != content) {
                    return Err(
                        "all of --backend must begin with http:// or https://, or none of them"
                            .to_owned(),
                    );
                }
                let backends = self
                    .backend
                    .iter()
                    .map(|(_, backend)| backend.clone())
                    .collect();
                let mut upstream = Upstream::new(backends);
                upstream.proxy_protocol = self.proxy_protocol.map(|version| match version {
                    Version::V1 => ProxyProtocol::V1,
                    Version::V2 => ProxyProtocol::V2,
                });
                Ok(match content {
                    Content::Bytes => Service::Tcp(upstream),
                    Content::Http => Service::Http(upstream),
                })
            }
        }
    }

    fn engine(&self) -> Result<Option<Engine>, String> {
        match (&self.engine, self.crypto) {
            (Some(_), Some(Library::AwsLc)) => Err(
                "--crypto aws-lc and --engine exclude each other: remove one of the two".to_owned(),
            ),
            (Some(socket), _) => Ok(Some(Engine {
                socket: socket.clone(),
                isolate_keys: self.isolate_keys,
                user: self
                    .engine_user
                    .as_deref()
                    .map_or_else(EngineUser::default, EngineUser::new),
            })),
            (None, _) if self.engine_user.is_some() => {
                Err("--engine-user means nothing without --engine".to_owned())
            }
            (None, _) if self.isolate_keys => Err(format!(
                "--isolate-keys needs an engine: give --engine {}",
                Engine::SOCKET
            )),
            (None, _) => Ok(None),
        }
    }

    fn access_log(&self) -> Result<Option<AccessLog>, String> {
        let Some(path) = &self.access_log else {
            return match self.access_log_format {
                Some(_) => Err("--access-log-format needs --access-log FILE".to_owned()),
                None => Ok(None),
            };
        };
        let target = if path == Path::new("-") {
            LogTarget::StandardOutput
        } else {
            LogTarget::File(path.clone())
        };
        let format = match self.access_log_format {
            None | Some(Format::Combined) => LogFormat::Combined,
            Some(Format::Json) => LogFormat::Json,
        };
        Ok(Some(AccessLog { target, format }))
    }
}
