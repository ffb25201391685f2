//! The process: starting, reloading and ending.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;
use slipstream_terminator::configuration::check::findings;
use slipstream_terminator::configuration::file;
use slipstream_terminator::operations::watch::Snapshot;
use slipstream_terminator::operations::{privileges, systemd};
use slipstream_terminator::{Configuration, IsolatedKeys, Terminator};

use super::describe;

/// Descriptors other than connections of clients: listeners, event loops, files and metrics.
const OTHER_DESCRIPTORS: u64 = 4096;

/// Interval of the main loop if nothing is watched.
const IDLE_INTERVAL: Duration = Duration::from_secs(3600);

/// Interval at which the engine that holds the keys is checked. While it is gone, and for this long
/// after its return, handshakes fail.
const ENGINE_INTERVAL: Duration = Duration::from_millis(500);

/// Pause after an engine has not accepted the keys, for example because this process may no longer
/// read them.
const ENGINE_RETRY: Duration = Duration::from_secs(30);

/// Serves until a signal ends the process. `path` is the configuration file, or `None` if the
/// configuration came from options.
pub(super) fn run(configuration: Configuration, path: Option<&Path>) -> anyhow::Result<ExitCode> {
    // This comes before the first key is read.
    if let Err(error) = privileges::protect_memory() {
        log(&format!(
            "a core dump of this process would contain keys: {error}"
        ));
    }
    raise_descriptor_limit(&configuration);
    let found = findings(&configuration, None);
    for warning in &found.warnings {
        log(&format!("warning: {warning}"));
    }
    if !found.errors.is_empty() {
        bail!("{}", found.errors.join("\nslipstream: "));
    }
    // The thread for signals starts after privileges have been dropped, like all others.
    let terminator = Terminator::start(configuration.clone())?;
    let signals = signals()?;
    let ready = format!(
        "serving on {}, {}",
        describe::configuration(&configuration),
        describe::computation(&configuration)
    );
    // An error does not matter: standard output may be closed.
    let _ = writeln!(io::stdout(), "{ready}");
    systemd::notify_ready();
    let server = Server {
        terminator,
        snapshot: snapshot(&configuration, path),
        configuration,
        path: path.map(Path::to_owned),
        checked_at: Instant::now(),
        is_without_keys: false,
        hands_over_at: Instant::now(),
    };
    Ok(server.serve(&signals))
}

/// Raises the limit of descriptors. Each connection may need a second one, for its backend.
fn raise_descriptor_limit(configuration: &Configuration) {
    let wanted = 2 * configuration.limits.connections as u64 + OTHER_DESCRIPTORS;
    match privileges::raise_descriptor_limit(wanted) {
        Ok(limit) if limit < wanted => log(&format!(
            "the limit of open files is {limit}: {} connections may need {wanted}; raise it with LimitNOFILE= or `ulimit -n`, \
             or lower connections in [limits]",
            configuration.limits.connections
        )),
        Ok(_) => {}
        Err(error) => log(&format!(
            "the limit of open files cannot be raised: {error}"
        )),
    }
}

/// Receives signals in a thread. The second one that asks for the end ends the process at once.
fn signals() -> anyhow::Result<Receiver<i32>> {
    let mut signals =
        Signals::new([SIGHUP, SIGTERM, SIGQUIT, SIGINT]).context("cannot wait for signals")?;
    let (sender, receiver) = channel();
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            let mut is_ending = false;
            for signal in signals.forever() {
                if signal != SIGHUP && std::mem::replace(&mut is_ending, true) {
                    log("a second signal: connections are cut off");
                    // A shell reports a process that was ended by a signal like this.
                    std::process::exit(128 + signal);
                }
                if sender.send(signal).is_err() {
                    return;
                }
            }
        })
        .context("cannot wait for signals")?;
    Ok(receiver)
}

struct Server {
    terminator: Terminator,
    configuration: Configuration,
    path: Option<PathBuf>,
    /// State of the watched files when they were last read.
    snapshot: Snapshot,
    /// Time of the last check of the files.
    checked_at: Instant,
    /// True after a lost engine with the keys has been reported.
    is_without_keys: bool,
    /// Earliest time at which keys are handed over to another engine.
    hands_over_at: Instant,
}

impl Server {
    fn serve(mut self, signals: &Receiver<i32>) -> ExitCode {
        loop {
            match signals.recv_timeout(self.until_next_check()) {
                Ok(SIGHUP) => self.reload("SIGHUP"),
                Ok(_) | Err(RecvTimeoutError::Disconnected) => return self.end(),
                Err(RecvTimeoutError::Timeout) => {
                    self.check_files();
                    self.check_engine();
                }
            }
        }
    }

    fn until_next_check(&self) -> Duration {
        let engine = &self.configuration.engine;
        let has_keys = engine.as_ref().is_some_and(|engine| engine.isolate_keys);
        let files = self.configuration.watch.map_or(IDLE_INTERVAL, |watch| {
            watch.saturating_sub(self.checked_at.elapsed())
        });
        match has_keys {
            true => files.min(ENGINE_INTERVAL),
            false => files,
        }
    }

    fn check_files(&mut self) {
        let Some(watch) = self.configuration.watch else {
            return;
        };
        if self.checked_at.elapsed() < watch {
            return;
        }
        self.checked_at = Instant::now();
        if snapshot(&self.configuration, self.path.as_deref()) != self.snapshot {
            self.reload("a file has changed");
        }
    }

    /// Checks the engine, which loses the keys when it ends.
    fn check_engine(&mut self) {
        match self.terminator.isolated_keys() {
            IsolatedKeys::Usable => self.is_without_keys = false,
            IsolatedKeys::Gone => {
                if !std::mem::replace(&mut self.is_without_keys, true) {
                    log(
                        "the engine has gone, and the private keys with it: full handshakes fail until it runs again",
                    );
                }
            }
            IsolatedKeys::Forgotten if self.hands_over_at <= Instant::now() => {
                self.hand_over_keys();
            }
            IsolatedKeys::Forgotten => {}
        }
    }

    /// Uses the current configuration: the file may be incomplete, or contain changes that need a
    /// restart.
    fn hand_over_keys(&mut self) {
        match self.terminator.reload(self.configuration.clone()) {
            Ok(()) => log("the engine has been restarted and has received the private keys"),
            Err(error) => {
                log(&format!(
                    "the engine has been restarted and has no private keys: {error}"
                ));
                self.hands_over_at = Instant::now() + ENGINE_RETRY;
            }
        }
    }

    /// Reloads the configuration. On any error, the old one is kept.
    fn reload(&mut self, why: &str) {
        systemd::notify_reloading();
        // This comes before files are read, so that later changes are seen at the next check. A
        // file with a mistake is read again only after it has changed.
        self.snapshot = snapshot(&self.configuration, self.path.as_deref());
        match self.take_configuration() {
            Ok(()) => log(&format!(
                "{why}: serving on {}",
                describe::configuration(&self.configuration)
            )),
            Err(errors) => {
                for error in errors {
                    log(&error);
                }
                log(&format!("{why}: the old configuration stays in use"));
            }
        }
        systemd::notify_ready();
    }

    fn take_configuration(&mut self) -> Result<(), Vec<String>> {
        let configuration = match &self.path {
            Some(path) => file::read(path).map_err(|error| vec![error.to_string()])?,
            None => self.configuration.clone(),
        };
        let found = findings(&configuration, Some(&self.configuration));
        for warning in &found.warnings {
            log(&format!("warning: {warning}"));
        }
        if !found.errors.is_empty() {
            return Err(found.errors);
        }
        // The configuration may name other files now. This comes before they are read, for the same
        // reason.
        let snapshot = snapshot(&configuration, self.path.as_deref());
        self.terminator
            .reload(configuration.clone())
            .map_err(|error| vec![error.to_string()])?;
        self.configuration = configuration;
        self.snapshot = snapshot;
        Ok(())
    }

    fn end(self) -> ExitCode {
        systemd::notify_stopping();
        log("no more connections are taken; waiting for open ones to end");
        match self.terminator.drain() {
            0 => {}
            1 => log("1 connection was cut off"),
            count => log(&format!("{count} connections were cut off")),
        }
        ExitCode::SUCCESS
    }
}

fn snapshot(configuration: &Configuration, path: Option<&Path>) -> Snapshot {
    let mut files = configuration.files();
    files.extend(path.map(Path::to_owned));
    Snapshot::of(&files)
}

fn log(line: &str) {
    eprintln!("slipstream serve: {line}");
}
