//! What can go wrong in an experiment, with the cure where there is one.

use std::fmt::{self, Write as _};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use openssl::error::ErrorStack;

/// An experiment that could not be carried out. A handshake that fails is not such an error: it is counted
/// ([`crate::load::Failures`]).
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An operating system call failed.
    #[error("{context}: {source}")]
    Io {
        /// What was being done.
        context: String,
        /// The operating system's answer.
        source: io::Error,
    },
    /// A call into OpenSSL failed.
    #[error("{context}: {source}")]
    OpenSsl {
        /// What was being done.
        context: &'static str,
        /// OpenSSL's error queue.
        source: ErrorStack,
    },
    /// There is no nginx.
    #[error(
        "no nginx found (looked at {}); install it (apt-get install nginx) or name it with --nginx",
        list(searched)
    )]
    NginxNotFound {
        /// Where it was looked for.
        searched: Vec<PathBuf>,
    },
    /// nginx exited, refused its configuration or did not start in time.
    #[error("{program} {reason}{}", detail(log))]
    Nginx {
        /// The nginx executable.
        program: PathBuf,
        /// What happened.
        reason: String,
        /// What nginx said about it.
        log: String,
    },
    /// A server that an experiment needs is not installed.
    #[error(
        "no {name} found (looked at {}); install it (apt-get install {package})",
        list(searched)
    )]
    ServerNotFound {
        /// The name of its executable.
        name: &'static str,
        /// Debian's package.
        package: &'static str,
        /// Where it was looked for.
        searched: Vec<PathBuf>,
    },
    /// A server other than nginx exited, refused its configuration or did not start in time.
    #[error("{program} {reason}{}", detail(log))]
    Server {
        /// Its executable.
        program: PathBuf,
        /// What happened.
        reason: String,
        /// What it said about it.
        log: String,
    },
    /// The engine exited or did not start in time.
    #[error("the engine ({program} engine) {reason}{}", detail(log))]
    Engine {
        /// The executable with the `engine` command.
        program: PathBuf,
        /// What happened.
        reason: String,
        /// What it said about it.
        log: String,
    },
    /// The Slipstream module for this nginx has not been built or installed.
    #[error(
        "the Slipstream module for nginx {version} is missing (looked at {}); build it with `make build`, \
         or name it with --module",
        list(searched)
    )]
    ModuleMissing {
        /// The version of nginx it has to fit.
        version: String,
        /// Where it was looked for.
        searched: Vec<PathBuf>,
    },
    /// A path that cannot be written into a server's configuration.
    #[error(
        "{path} cannot stand in the configuration of a server: it holds a quote, a backslash, a dollar sign or a control character"
    )]
    UnusablePath {
        /// The path.
        path: PathBuf,
    },
    /// The worker of a running nginx was not found, or its CPU time could not be read.
    #[error("process {pid}: {reason}")]
    Process {
        /// The process.
        pid: u32,
        /// What is missing.
        reason: String,
    },
    /// The target of the load is not on this machine.
    #[error(
        "{0} is not a loopback address; a load generator aimed elsewhere needs --allow-remote and the owner's consent"
    )]
    NotLoopback(SocketAddr),
    /// There are no pages to compress.
    #[error("{0}")]
    Corpus(String),
    /// A response that is not the page that was asked for.
    #[error("{0}")]
    WrongContent(String),
    /// The machine lacks what a kernel needs.
    #[error("{0}")]
    Unsupported(String),
    /// SIGINT, SIGTERM or SIGHUP arrived.
    #[error("interrupted")]
    Interrupted,
}

impl Error {
    /// Wraps an operating system error together with what was being done.
    pub(crate) fn io(context: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
        let context = context.into();
        move |source| Error::Io { context, source }
    }

    /// Wraps an operating system error about a file.
    pub(crate) fn file(verb: &str, path: &Path) -> impl FnOnce(io::Error) -> Error {
        Error::io(format!("cannot {verb} {}", path.display()))
    }

    /// Wraps OpenSSL's error queue together with what was being done.
    pub(crate) fn openssl(context: &'static str) -> impl FnOnce(ErrorStack) -> Error {
        move |source| Error::OpenSsl { context, source }
    }

    /// An operation in lanes that has failed.
    pub(crate) fn lanes(reason: impl fmt::Display) -> Error {
        Error::Unsupported(format!("lanes cannot compute this: {reason}"))
    }
}

fn list(paths: &[PathBuf]) -> String {
    let mut text = String::new();
    for (index, path) in paths.iter().enumerate() {
        let separator = if index == 0 { "" } else { ", " };
        write!(text, "{separator}{}", path.display()).expect("writing to a String cannot fail");
    }
    text
}

fn detail(log: &str) -> String {
    if log.trim().is_empty() {
        String::new()
    } else {
        format!(":\n{}", log.trim_end())
    }
}
