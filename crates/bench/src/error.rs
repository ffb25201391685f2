//! Errors of measurements, with the cure where there is one.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::Path;

use openssl::error::ErrorStack;
use slipstream_testbed as testbed;

/// Error that ends a measurement. A failed handshake does not: it is counted
/// ([`crate::load::Failures`]).
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A server could not be started or observed, or a call into the system or OpenSSL failed.
    #[error(transparent)]
    Testbed(#[from] testbed::Error),
    /// The target of the load is not on this machine.
    #[error(
        "{0} is not a loopback address; a load generator aimed elsewhere needs --allow-remote and the owner's consent"
    )]
    NotLoopback(SocketAddr),
    /// There are no pages to compress.
    #[error("{0}")]
    Corpus(String),
    /// A response is not the page that was asked for.
    #[error("{0}")]
    WrongContent(String),
    /// The machine lacks something, or the choice of options leaves nothing to measure.
    #[error("{0}")]
    Unsupported(String),
}

impl Error {
    /// Wraps an operating system error together with the action that failed.
    pub fn io(context: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
        let wrap = testbed::Error::io(context);
        move |source| wrap(source).into()
    }

    /// Wraps an operating system error about a file.
    pub fn file(verb: &str, path: &Path) -> impl FnOnce(io::Error) -> Error {
        let wrap = testbed::Error::file(verb, path);
        move |source| wrap(source).into()
    }

    /// Wraps OpenSSL's error queue together with the action that failed.
    pub fn openssl(context: &'static str) -> impl FnOnce(ErrorStack) -> Error {
        let wrap = testbed::Error::openssl(context);
        move |source| wrap(source).into()
    }

    /// Wraps an error of an operation in lanes.
    pub(crate) fn lanes(reason: impl fmt::Display) -> Error {
        Error::Unsupported(format!("lanes cannot compute this: {reason}"))
    }
}
