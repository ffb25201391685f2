//! Configuration file.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::section::{Problem, Section, Value};
use super::{
    AccessLog, Address, Configuration, Crypto, Engine, EngineUser, Lanes, Limits, LogFormat,
    LogTarget, Service, listener, values,
};

/// A longer file was named by mistake.
const MAX_FILE_BYTES: u64 = 16 * 1024 * 1024;

/// More memory than a machine spares for content.
const MAX_BYTES: usize = 1 << 40;

/// More than any machine has, and small enough for every integer type.
pub(super) const MAX_COUNT: usize = 1 << 24;

/// Error of a configuration file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// The file cannot be read.
    #[error("{file}: cannot be read: {source}")]
    Unreadable {
        /// The file.
        file: String,
        /// The error of the system.
        source: io::Error,
    },
    /// The file is longer than a configuration can be.
    #[error("{0}: cannot be read: it is too long for a configuration file")]
    TooLong(String),
    /// A line of the file is wrong.
    #[error("{file}:{line}: {problem}")]
    Invalid {
        /// The file.
        file: String,
        /// The number of the line; the first one is 1.
        line: usize,
        /// The mistake and the remedy.
        problem: String,
    },
}

/// Reads the configuration file at `path`. Relative paths in it are relative to its folder.
///
/// # Errors
/// Returns an error if the file cannot be read, or names the line that is wrong and the remedy.
pub fn read(path: &Path) -> Result<Configuration, FileError> {
    let name = path.display().to_string();
    let unreadable = |source| FileError::Unreadable {
        file: name.clone(),
        source,
    };
    if fs::metadata(path).map_err(unreadable)?.len() > MAX_FILE_BYTES {
        return Err(FileError::TooLong(name));
    }
    let text = fs::read_to_string(path).map_err(unreadable)?;
    let mut configuration = parse(&name, &text)?;
    let folder = path.parent().unwrap_or(Path::new(""));
    resolve(&mut configuration, folder);
    Ok(configuration)
}

/// Parses the text of a configuration file that messages call `name`. Relative paths are kept as
/// they are.
///
/// # Errors
/// Returns an error that names the line that is wrong and the remedy.
pub fn parse(name: &str, text: &str) -> Result<Configuration, FileError> {
    configuration(text).map_err(|problem| problem.in_file(name, text))
}

/// Resolves relative paths of `configuration` against `folder`.
fn resolve(configuration: &mut Configuration, folder: &Path) {
    let resolve = |path: &mut PathBuf| *path = folder.join(&*path);
    if let Some(engine) = &mut configuration.engine {
        resolve(&mut engine.socket);
    }
    if let Some(AccessLog {
        target: LogTarget::File(path),
        ..
    }) = &mut configuration.access_log
    {
        resolve(path);
    }
    for listener in &mut configuration.listeners {
        for files in &mut listener.certificates {
            resolve(&mut files.certificate);
            resolve(&mut files.key);
            files.ocsp.as_mut().map(resolve);
        }
        if let Some(clients) = &mut listener.client_certificates {
            resolve(&mut clients.authorities);
        }
        match &mut listener.service {
            Service::Files(root) => resolve(root),
            Service::Tcp(upstream) | Service::Http(upstream) => {
                upstream.authorities.as_mut().map(resolve);
                for backend in &mut upstream.backends {
                    if let Address::Unix(path) = &mut backend.address {
                        resolve(path);
                    }
                }
            }
        }
    }
}

const ROOT: &[&str] = &[
    "workers",
    "user",
    "crypto",
    "lanes",
    "drain_timeout",
    "watch",
    "tickets",
    "engine",
    "metrics",
    "access_log",
    "limits",
    "listener",
];

/// Keys of the top level that are not tables. Written below a table header by mistake, they would
/// belong to that table.
pub(super) const ROOT_VALUES: &[&str] = &[
    "workers",
    "user",
    "crypto",
    "lanes",
    "drain_timeout",
    "watch",
    "tickets",
];

fn configuration(text: &str) -> Result<Configuration, Problem> {
    let mut root = Section::root(text, ROOT)?;
    let mut made = Configuration::new(Vec::new());
    root.read("workers", &mut made.workers, |value| {
        value.number(1, 4096).map(Some)
    })?;
    root.read("user", &mut made.user, |value| {
        value.parse("\"www-data\"", |text| match text {
            "" => Err("must not be empty".to_owned()),
            text => Ok(Some(text.to_owned())),
        })
    })?;
    let crypto = root.take("crypto");
    let crypto_position = crypto.as_ref().map(Value::position);
    if let Some(value) = crypto {
        made.crypto = value.choice(&[
            ("slipstream", Crypto::Slipstream),
            ("aws-lc", Crypto::AwsLc),
        ])?;
    }
    root.read("lanes", &mut made.lanes, |value| {
        value.choice(&[("auto", Lanes::Auto), ("off", Lanes::Off)])
    })?;
    root.read(
        "drain_timeout",
        &mut made.drain_timeout,
        Value::duration_or_zero,
    )?;
    root.read("watch", &mut made.watch, |value| {
        match value.text("\"5s\" or \"off\"")? {
            "off" => Ok(None),
            _ => value.duration().map(Some),
        }
    })?;
    root.read("tickets", &mut made.tickets, |value| value.number(0, 64))?;
    root.read("engine", &mut made.engine, |value| engine(value).map(Some))?;
    root.read("metrics", &mut made.metrics, |value| {
        let mut section = value.section("[metrics]", &["listen"], ROOT_VALUES)?;
        let listen = section.require("listen", "\"127.0.0.1:9145\"")?;
        listen.parse("\"127.0.0.1:9145\"", values::listen).map(Some)
    })?;
    root.read("access_log", &mut made.access_log, |value| {
        access_log(value).map(Some)
    })?;
    root.read("limits", &mut made.limits, limits)?;
    if let (Some(position), Crypto::AwsLc, Some(_)) = (crypto_position, made.crypto, &made.engine) {
        let text = "\"crypto\" = \"aws-lc\" uses no engine: remove it, or the section [engine]";
        return Err(Problem::new(position, text));
    }

    let mut taken = made.metrics.into_iter().collect();
    let example = "[[listener]] with listen, certificates and backends";
    for value in root.require("listener", example)?.list_or_one()? {
        made.listeners.push(listener::read(value, &mut taken)?);
    }
    Ok(made)
}

fn engine(value: Value<'_>) -> Result<Engine, Problem> {
    let mut section =
        value.section("[engine]", &["socket", "isolate_keys", "user"], ROOT_VALUES)?;
    let mut engine = Engine {
        socket: Engine::SOCKET.into(),
        isolate_keys: false,
        user: EngineUser::default(),
    };
    section.read("socket", &mut engine.socket, Value::path)?;
    section.read("isolate_keys", &mut engine.isolate_keys, Value::boolean)?;
    section.read("user", &mut engine.user, |value| {
        value.parse("\"slipstream-engine\"", |text| match text {
            "" => Err("must not be empty".to_owned()),
            text => Ok(EngineUser::new(text)),
        })
    })?;
    Ok(engine)
}

fn access_log(value: Value<'_>) -> Result<AccessLog, Problem> {
    let mut section = value.section("[access_log]", &["path", "format"], ROOT_VALUES)?;
    let path = section
        .require("path", "\"/var/log/slipstream/access.log\" or \"-\"")?
        .path()?;
    let target = if path == Path::new("-") {
        LogTarget::StandardOutput
    } else {
        LogTarget::File(path)
    };
    let mut format = LogFormat::default();
    section.read("format", &mut format, |value| {
        value.choice(&[("combined", LogFormat::Combined), ("json", LogFormat::Json)])
    })?;
    Ok(AccessLog { target, format })
}

fn limits(value: Value<'_>) -> Result<Limits, Problem> {
    const KEYS: &[&str] = &[
        "connections",
        "connections_per_address",
        "handshakes",
        "connections_per_second",
        "requests",
        "handshake_timeout",
        "header_timeout",
        "idle_timeout",
        "header_bytes",
        "streams",
        "unread_bytes",
        "unread_bytes_total",
    ];
    let mut section = value.section("[limits]", KEYS, ROOT_VALUES)?;
    let mut limits = Limits::default();
    let small = |value: Value<'_>| value.number(1, MAX_COUNT).map(|number| number as u32);
    section.read("connections", &mut limits.connections, |value| {
        value.number(1, MAX_COUNT)
    })?;
    section.read(
        "connections_per_address",
        &mut limits.connections_per_address,
        |value| value.number(1, MAX_COUNT),
    )?;
    section.read("handshakes", &mut limits.handshakes, |value| {
        value.number(1, MAX_COUNT)
    })?;
    section.read(
        "connections_per_second",
        &mut limits.connections_per_second,
        |value| small(value).map(Some),
    )?;
    section.read("requests", &mut limits.requests, |value| {
        value.number(1, MAX_COUNT)
    })?;
    section.read(
        "unread_bytes_total",
        &mut limits.unread_bytes_total,
        |value| value.size(1024 * 1024, MAX_BYTES),
    )?;
    section.read(
        "handshake_timeout",
        &mut limits.handshake_timeout,
        Value::duration,
    )?;
    let http = &mut limits.http;
    section.read("header_timeout", &mut http.header_timeout, Value::duration)?;
    section.read("idle_timeout", &mut http.idle_timeout, Value::duration)?;
    section.read("header_bytes", &mut http.header_bytes, |value| {
        // hyper needs a buffer of 8 KiB for an HTTP/1 header.
        value.size(8 * 1024, 16 * 1024 * 1024)
    })?;
    section.read("streams", &mut http.streams, small)?;
    section.read("unread_bytes", &mut http.unread_bytes, |value| {
        value.size(16 * 1024, MAX_BYTES)
    })?;
    Ok(limits)
}
