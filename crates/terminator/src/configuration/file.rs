//! The configuration file.

use std::fs;
use std::path::{Path, PathBuf};

use super::section::{Problem, Section, Value};
use super::{
    AccessLog, Address, Configuration, Crypto, Engine, Limits, LogFormat, LogTarget, Service,
    listener, values,
};

/// A configuration file is written by people; what is longer is another file that was named by mistake.
const LONGEST_FILE: u64 = 16 * 1024 * 1024;

/// More than any machine has, and few enough to be counted in any type.
const MANY: usize = 1 << 24;

/// Reads the configuration file at `path`. Relative paths in it start from its folder.
///
/// # Errors
/// If it cannot be read; what is wrong in it, with the line and the cure.
pub fn read(path: &Path) -> Result<Configuration, String> {
    let name = path.display().to_string();
    let cannot = |error: &dyn std::fmt::Display| format!("{name}: cannot be read: {error}");
    let length = fs::metadata(path).map_err(|error| cannot(&error))?.len();
    if length > LONGEST_FILE {
        return Err(cannot(&"it is too long for a configuration file"));
    }
    let text = fs::read_to_string(path).map_err(|error| cannot(&error))?;
    let mut configuration = parse(&name, &text)?;
    let folder = path.parent().unwrap_or(Path::new(""));
    resolve(&mut configuration, folder);
    Ok(configuration)
}

/// Reads the text of a configuration file. `name` is what messages call it. Relative paths are left as they are.
///
/// # Errors
/// What is wrong, with the file, the line and the cure.
pub fn parse(name: &str, text: &str) -> Result<Configuration, String> {
    configuration(text).map_err(|problem| problem.message(name, text))
}

/// Has all relative paths of `configuration` start from `folder`.
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
    "drain_timeout",
    "watch",
    "tickets",
    "engine",
    "metrics",
    "access_log",
    "limits",
    "listener",
];

/// Keys of the root that are no tables: they are easily written below a table, and then belong to it.
pub(super) const ROOT_VALUES: &[&str] = &[
    "workers",
    "user",
    "crypto",
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
        let text = "\"crypto\" = \"aws-lc\" leaves nothing to an engine: remove it, or the section [engine]";
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
    let mut section = value.section("[engine]", &["socket", "isolate_keys"], ROOT_VALUES)?;
    let mut engine = Engine {
        socket: Engine::SOCKET.into(),
        isolate_keys: false,
    };
    section.read("socket", &mut engine.socket, Value::path)?;
    section.read("isolate_keys", &mut engine.isolate_keys, Value::boolean)?;
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
        "handshakes",
        "connections_per_second",
        "handshake_timeout",
        "header_timeout",
        "idle_timeout",
        "header_bytes",
        "streams",
    ];
    let mut section = value.section("[limits]", KEYS, ROOT_VALUES)?;
    let mut limits = Limits::default();
    let small = |value: Value<'_>| value.number(1, MANY).map(|number| number as u32);
    section.read("connections", &mut limits.connections, |value| {
        value.number(1, MANY)
    })?;
    section.read("handshakes", &mut limits.handshakes, |value| {
        value.number(1, MANY)
    })?;
    section.read(
        "connections_per_second",
        &mut limits.connections_per_second,
        |value| small(value).map(Some),
    )?;
    section.read(
        "handshake_timeout",
        &mut limits.handshake_timeout,
        Value::duration,
    )?;
    section.read(
        "header_timeout",
        &mut limits.header_timeout,
        Value::duration,
    )?;
    section.read("idle_timeout", &mut limits.idle_timeout, Value::duration)?;
    section.read("header_bytes", &mut limits.header_bytes, |value| {
        // hyper reads no header of HTTP/1 into less than 8 KiB.
        value.size(8 * 1024, 16 * 1024 * 1024)
    })?;
    section.read("streams", &mut limits.streams, small)?;
    Ok(limits)
}
