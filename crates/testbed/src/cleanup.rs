//! Leaving nothing behind: signals that end an experiment in order, and a last resort for panics.
//!
//! Servers and scratch directories clean up when they are dropped. Two things keep that from
//! happening: a signal, which [`handle_signals`] turns into [`Error::Interrupted`] at the next
//! look; and a panic in a program built with `panic = "abort"`, for which [`install_panic_hook`]
//! walks a list of what is still there.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::{fs, io, panic, process};

use rustix::process::{Pid, Signal, kill_process_group};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

use crate::Error;

/// Makes SIGINT, SIGTERM and SIGHUP end the experiment in order; the second one kills the program.
///
/// # Errors
/// The operating system's, when a handler cannot be installed.
pub fn handle_signals() -> io::Result<()> {
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        // Registered in this order the first signal finds the flag unset and sets it, the second
        // finds it set.
        flag::register_conditional_default(signal, Arc::clone(interrupted()))?;
        flag::register(signal, Arc::clone(interrupted()))?;
    }
    Ok(())
}

/// Returns an error once a signal has asked for the end; long work calls it between steps.
///
/// # Errors
/// [`Error::Interrupted`] once a signal has arrived.
pub fn check_interrupted() -> Result<(), Error> {
    if interrupted().load(Ordering::Relaxed) {
        Err(Error::Interrupted)
    } else {
        Ok(())
    }
}

/// On a panic, kills the servers and removes the scratch directories that are still there, after
/// the message has been printed. For programs that abort on panic, where destructors do not run.
pub fn install_panic_hook() {
    let previous = panic::take_hook();
    panic::set_hook(Box::new(move |information| {
        previous(information);
        clear();
    }));
}

/// Something outside this process that must not outlive it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Remnant {
    Directory(PathBuf),
    ProcessGroup(Pid),
}

impl Remnant {
    fn clear(&self) {
        // Failures are ignored: this runs on the way out, and the remnant may just have gone.
        match self {
            Remnant::ProcessGroup(leader) => drop(kill_process_group(*leader, Signal::KILL)),
            Remnant::Directory(path) => drop(fs::remove_dir_all(path)),
        }
    }
}

/// Keeps a remnant on the list of what a panic has to clear; dropping it takes the remnant off.
pub(crate) struct Registration(Remnant);

impl Registration {
    pub(crate) fn new(remnant: Remnant) -> Registration {
        remnants()
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
            .push(remnant.clone());
        Registration(remnant)
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        remnants()
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
            .retain(|remnant| *remnant != self.0);
    }
}

fn clear() {
    // `try_lock`: the panic may have happened under the lock, and a hook that waits would hang the
    // program.
    let Ok(remnants) = remnants().try_lock() else {
        eprintln!(
            "process {}: could not clean up after the panic",
            process::id()
        );
        return;
    };
    // The newest first: servers before the directories they run in.
    remnants.iter().rev().for_each(Remnant::clear);
}

fn remnants() -> &'static Mutex<Vec<Remnant>> {
    static REMNANTS: Mutex<Vec<Remnant>> = Mutex::new(Vec::new());
    &REMNANTS
}

fn interrupted() -> &'static Arc<AtomicBool> {
    static INTERRUPTED: OnceLock<Arc<AtomicBool>> = OnceLock::new();
    INTERRUPTED.get_or_init(Arc::default)
}
