//! The process: it starts, takes other configurations, and ends.

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

/// Descriptors that are no connections of clients: listeners, event loops, files, figures, in each of many event loops.
const OTHER_DESCRIPTORS: u64 = 4096;

/// When nothing is watched, the time between two looks at whether something is.
const LONG: Duration = Duration::from_secs(3600);

/// How often the engine is looked at that has the keys: while it is gone, and for this long after it is back, handshakes fail.
const ENGINE_WATCH: Duration = Duration::from_millis(500);

/// An engine that has not taken the keys, say because this process may no longer read them, is not asked again before this.
const ENGINE_PATIENCE: Duration = Duration::from_secs(30);

/// Serves until a signal ends it. The configuration came from `path`, or from options if there is none.
pub(super) fn run(configuration: Configuration, path: Option<&Path>) -> anyhow::Result<ExitCode> {
    // Before the first key is read.
    if let Err(error) = privileges::protect_memory() {
        log(&format!(
            "a core dump of this process would hold keys: {error}"
        ));
    }
    tell_descriptors(&configuration);
    let found = findings(&configuration, None);
    for warning in &found.warnings {
        log(&format!("warning: {warning}"));
    }
    if !found.errors.is_empty() {
        bail!("{}", found.errors.join("\nslipstream: "));
    }
    // Signals are taken by a thread of their own, which starts with all others once rights have been dropped.
    let terminator = Terminator::start(configuration.clone())?;
    let signals = signals()?;
    let ready = format!(
        "serving on {}, {}",
        describe::configuration(&configuration),
        describe::computation(&configuration)
    );
    // It works as well if nobody listens.
    let _ = writeln!(io::stdout(), "{ready}");
    systemd::notify_ready();
    let server = Server {
        terminator,
        snapshot: snapshot(&configuration, path),
        configuration,
        path: path.map(Path::to_owned),
        looked_at: Instant::now(),
        is_without_keys: false,
        hands_over_at: Instant::now(),
    };
    Ok(server.serve(&signals))
}

/// Each connection may need a second descriptor, to its backend.
fn tell_descriptors(configuration: &Configuration) {
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

/// Signals come out of the other end. The second one that asks for the end is not waited for.
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
                    // As a shell reports a process that the signal has ended.
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
    /// What the watched files looked like when they were last read.
    snapshot: Snapshot,
    /// When files were last looked at.
    looked_at: Instant,
    /// An engine that had the keys has gone, and this has been said.
    is_without_keys: bool,
    /// Not before this are the keys handed over to another engine.
    hands_over_at: Instant,
}

impl Server {
    fn serve(mut self, signals: &Receiver<i32>) -> ExitCode {
        loop {
            match signals.recv_timeout(self.until_next_look()) {
                Ok(SIGHUP) => self.reload("SIGHUP"),
                Ok(_) | Err(RecvTimeoutError::Disconnected) => return self.end(),
                Err(RecvTimeoutError::Timeout) => {
                    self.look_at_files();
                    self.look_at_engine();
                }
            }
        }
    }

    fn until_next_look(&self) -> Duration {
        let engine = &self.configuration.engine;
        let has_keys = engine.as_ref().is_some_and(|engine| engine.isolate_keys);
        let files = self
            .configuration
            .watch
            .map_or(LONG, |watch| watch.saturating_sub(self.looked_at.elapsed()));
        match has_keys {
            true => files.min(ENGINE_WATCH),
            false => files,
        }
    }

    fn look_at_files(&mut self) {
        let Some(watch) = self.configuration.watch else {
            return;
        };
        if self.looked_at.elapsed() < watch {
            return;
        }
        self.looked_at = Instant::now();
        if snapshot(&self.configuration, self.path.as_deref()) != self.snapshot {
            self.reload("a file has changed");
        }
    }

    /// An engine that holds the keys forgets them when it ends.
    fn look_at_engine(&mut self) {
        match self.terminator.isolated_keys() {
            IsolatedKeys::Usable => self.is_without_keys = false,
            IsolatedKeys::Gone => {
                if !std::mem::replace(&mut self.is_without_keys, true) {
                    log(
                        "the engine has gone, and the private keys with it: full handshakes fail until it is there again",
                    );
                }
            }
            IsolatedKeys::Forgotten if self.hands_over_at <= Instant::now() => {
                self.hand_over_keys();
            }
            IsolatedKeys::Forgotten => {}
        }
    }

    /// By the configuration in use: the file may hold one that is not finished, or that only a restart can take.
    fn hand_over_keys(&mut self) {
        match self.terminator.reload(self.configuration.clone()) {
            Ok(()) => log("the engine has been started again, and has the private keys"),
            Err(error) => {
                log(&format!(
                    "the engine has been started again, and has no private keys: {error}"
                ));
                self.hands_over_at = Instant::now() + ENGINE_PATIENCE;
            }
        }
    }

    /// Whatever is wrong, what was served before is served on.
    fn reload(&mut self, why: &str) {
        systemd::notify_reloading();
        // Taken before files are read: what changes meanwhile is seen at the next look. A file that is wrong is read again when
        // it has changed, not at every look.
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
            Some(path) => file::read(path).map_err(|error| vec![error])?,
            None => self.configuration.clone(),
        };
        let found = findings(&configuration, Some(&self.configuration));
        for warning in &found.warnings {
            log(&format!("warning: {warning}"));
        }
        if !found.errors.is_empty() {
            return Err(found.errors);
        }
        // Other files may be named now; as above, before they are read.
        let snapshot = snapshot(&configuration, self.path.as_deref());
        self.terminator
            .reload(configuration.clone())
            .map_err(|error| vec![error])?;
        self.configuration = configuration;
        self.snapshot = snapshot;
        Ok(())
    }

    fn end(self) -> ExitCode {
        systemd::notify_stopping();
        log("no more connections are taken; those that are open may end");
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
