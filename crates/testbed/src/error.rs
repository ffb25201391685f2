//! Errors of starting and observing servers, with the cure where there is one.

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

use openssl::error::ErrorStack;

/// Error of finding, starting or observing a server.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An operating system call failed.
    #[error("{context}: {source}")]
    Io {
        /// The action that failed.
        context: String,
        /// The operating system's answer.
        source: io::Error,
    },
    /// A call into OpenSSL failed.
    #[error("{context}: {source}")]
    OpenSsl {
        /// The action that failed.
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
        /// The paths that were tried.
        searched: Vec<PathBuf>,
    },
    /// nginx exited, refused its configuration or did not start in time.
    #[error("{program} {reason}{}", detail(log))]
    Nginx {
        /// The nginx executable.
        program: PathBuf,
        /// The reason, as a verb and what follows it.
        reason: String,
        /// The end of nginx's log.
        log: String,
    },
    /// A server that is needed is not installed.
    #[error(
        "no {name} found (looked at {}); install it (apt-get install {package})",
        list(searched)
    )]
    ServerNotFound {
        /// The name of its executable.
        name: &'static str,
        /// Debian's package.
        package: &'static str,
        /// The paths that were tried.
        searched: Vec<PathBuf>,
    },
    /// A server other than nginx exited, refused its configuration or did not start in time.
    #[error("{program} {reason}{}", detail(log))]
    Server {
        /// Its executable.
        program: PathBuf,
        /// The reason, as a verb and what follows it.
        reason: String,
        /// The end of its log.
        log: String,
    },
    /// The engine exited or did not start in time.
    #[error("the engine ({program} engine) {reason}{}", detail(log))]
    Engine {
        /// The executable with the `engine` command.
        program: PathBuf,
        /// The reason, as a verb and what follows it.
        reason: String,
        /// The end of its log.
        log: String,
    },
    /// The `slipstream` command, which is the engine and the terminator, has not been built.
    #[error(
        "the slipstream command is missing (looked at {}); build it with `make build`, or name it with --slipstream",
        list(searched)
    )]
    CommandMissing {
        /// The paths that were tried.
        searched: Vec<PathBuf>,
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
        /// The paths that were tried.
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
    /// A process is gone, or the kernel keeps no account of it.
    #[error("process {pid}: {reason}")]
    Process {
        /// The process.
        pid: u32,
        /// The reason.
        reason: String,
    },
    /// SIGINT, SIGTERM or SIGHUP arrived.
    #[error("interrupted")]
    Interrupted,
}

impl Error {
    /// Wraps an operating system error together with the action that failed.
    pub fn io(context: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
        let context = context.into();
        move |source| Error::Io { context, source }
    }

    /// Wraps an operating system error about a file.
    pub fn file(verb: &str, path: &Path) -> impl FnOnce(io::Error) -> Error {
        Error::io(format!("cannot {verb} {}", path.display()))
    }

    /// Wraps OpenSSL's error queue together with the action that failed.
    pub fn openssl(context: &'static str) -> impl FnOnce(ErrorStack) -> Error {
        move |source| Error::OpenSsl { context, source }
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
