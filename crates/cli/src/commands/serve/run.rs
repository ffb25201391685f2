//! The process: it starts, takes other configurations, and ends.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use anyhow::{Context, bail};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;
use slipstream_terminator::configuration::check::findings;
use slipstream_terminator::configuration::file;
use slipstream_terminator::operations::watch::Snapshot;
use slipstream_terminator::operations::{privileges, systemd};
use slipstream_terminator::{Configuration, Terminator};

use super::describe;

/// Descriptors that are no connections of clients: listeners, event loops, files, figures, in each of many event loops.
const OTHER_DESCRIPTORS: u64 = 4096;

/// When nothing is watched, the time between two looks at whether something is.
const LONG: Duration = Duration::from_secs(3600);

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
}

impl Server {
    fn serve(mut self, signals: &Receiver<i32>) -> ExitCode {
        loop {
            match signals.recv_timeout(self.configuration.watch.unwrap_or(LONG)) {
                Ok(SIGHUP) => self.reload("SIGHUP"),
                Ok(_) | Err(RecvTimeoutError::Disconnected) => return self.end(),
                Err(RecvTimeoutError::Timeout) => self.look_at_files(),
            }
        }
    }

    fn look_at_files(&mut self) {
        let is_watched = self.configuration.watch.is_some();
        if is_watched && snapshot(&self.configuration, self.path.as_deref()) != self.snapshot {
            self.reload("a file has changed");
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
