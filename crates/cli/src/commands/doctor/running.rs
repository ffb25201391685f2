//! nginx as it runs: handshakes with its listeners, and its own figures about them.

use std::thread;
use std::time::{Duration, Instant};

use slipstream_metrics::published::{Entry, Published, directory, list};
use slipstream_testbed::probe;

use super::configuration::{Lines, Listener};
use super::figures::{HANDSHAKES, PATIENCE};
use super::findings::Check;
use crate::commands::figures::Figures;

const NAME: &str = "handshakes";

/// Listeners that are tried.
const MOST_LISTENERS: usize = 16;

/// Returns true if an nginx with the module runs on this machine and its figures can be read.
pub(super) fn is_there() -> bool {
    !published().is_empty()
}

/// Makes handshakes with each of the TLS listeners in `lines`, and says of each if it was
/// accelerated.
pub(super) fn run(lines: &Lines) -> Vec<Check> {
    let processes: Vec<String> = published()
        .iter()
        .map(|one| format!("{} (slipstream {})", one.process, one.version))
        .collect();
    let mut checks = vec![Check::ok(
        "running",
        format!("nginx {} with the module", processes.join(", ")),
    )];
    if lines.listeners.is_empty() {
        checks.push(Check::note(
            NAME,
            "the configuration has no address with TLS to try",
            "name the configuration that runs with --conf, or use --trial",
        ));
    }
    let listeners = lines.listeners.iter().take(MOST_LISTENERS);
    checks.extend(listeners.map(|listener| check(listener, lines.enable())));
    let left_out = lines.listeners.len().saturating_sub(MOST_LISTENERS);
    if left_out > 0 {
        checks.push(Check::note(
            NAME,
            format!("{left_out} more addresses were not tried"),
            "none: all servers share the workers",
        ));
    }
    checks
}

fn check(listener: &Listener, is_enabled: bool) -> Check {
    let tried = format!("{} ({})", listener.address, listener.name);
    let before = figures();
    let protocols = match probe::handshakes(listener.address, &listener.name, HANDSHAKES) {
        Ok(protocols) => protocols,
        Err(error) => {
            return Check::missing(
                NAME,
                format!("{tried}: {error}"),
                "see nginx's error log; if nginx has not read this configuration, reload it",
            );
        }
    };
    let figures = settled(&before);
    let protocol = protocols.first().map_or("", String::as_str);
    let detail = format!("{tried}, {protocol}: {}", figures.describe());
    match (figures.are_accelerated(), is_enabled) {
        (true, _) => Check::ok(NAME, detail),
        (false, false) => Check::note(
            NAME,
            format!("{tried}: \"slipstream\" is off, OpenSSL computes"),
            "add \"slipstream on;\" to the http block, and reload nginx",
        ),
        (false, true) => Check::missing(
            NAME,
            format!(
                "{tried}: nothing was accelerated ({}){}",
                figures.describe(),
                reasons()
            ),
            "`nginx -t` says why, or restart nginx if it was started before the module was installed",
        ),
    }
}

/// The figures that have come since `before`, once the handshakes are among them.
fn settled(before: &Figures) -> Figures {
    let end = Instant::now() + PATIENCE;
    loop {
        let since = figures().since(before);
        // Where handshakes are left to nginx, none is ever counted.
        let is_idle = since.handshakes() == 0 && Instant::now() + PATIENCE / 2 > end;
        if since.handshakes() >= HANDSHAKES as u64 || is_idle || Instant::now() > end {
            return since;
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// The figures of all that run.
fn figures() -> Figures {
    Figures::of_all(&published())
}

/// The reasons that nginx gives for accelerating nothing.
fn reasons() -> String {
    let notes = published().into_iter().filter_map(|one| one.note);
    notes.map(|note| format!(": {note}")).collect()
}

fn published() -> Vec<Published> {
    let entries = list(&directory::all()).into_iter();
    let readable = entries.filter_map(|Entry { content, .. }| content.ok());
    readable.filter(|one| one.program == "nginx").collect()
}
