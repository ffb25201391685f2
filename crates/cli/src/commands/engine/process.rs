//! The process of an engine: it protects the keys of other processes, and raises its limits.

use std::io::Read;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixStream};
use std::process::Command;

use anyhow::{Context, bail};
use rustix::mm::{MlockAllFlags, mlockall};
use rustix::process::{DumpableBehavior, Resource, getrlimit, set_dumpable_behavior, setrlimit};
use rustix::thread::{CapabilitySet, capabilities};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::low_level::pipe;

/// Descriptors for as many connections as an engine serves, each with a doorbell, an event, and
/// others on their way.
const DESCRIPTORS: u64 = 8192;

/// Keeps keys out of core dumps, other processes' reach and swap space, as far as the system allows
/// it.
pub(super) fn protect_secrets() {
    if let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
        eprintln!("warning: a core dump of this process would hold keys: {error}");
    }
    // With a limit, later allocations of memory would fail.
    let is_unlimited = getrlimit(Resource::Memlock).current.is_none()
        || capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::IPC_LOCK));
    if is_unlimited {
        // A failure only means that this precaution is missing.
        let _ = mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT);
    }
}

/// Raises the limit of this process as far as it may.
pub(super) fn raise_descriptor_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    let wanted = limit
        .maximum
        .map_or(DESCRIPTORS, |maximum| maximum.min(DESCRIPTORS));
    if limit.current.is_some_and(|current| current < wanted) {
        limit.current = Some(wanted);
        // With fewer the engine serves fewer connections.
        let _ = setrlimit(Resource::Nofile, limit);
    }
}

/// A signal that ends the engine.
pub(super) struct StopSignal(UnixStream);

/// Catches SIGTERM, SIGINT and SIGHUP from now on.
pub(super) fn stop_signal() -> anyhow::Result<StopSignal> {
    let (receiver, sender) = UnixStream::pair().context("cannot wait for signals")?;
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        let sender = sender.try_clone().context("cannot wait for signals")?;
        pipe::register(signal, sender).context("cannot wait for signals")?;
    }
    Ok(StopSignal(receiver))
}

impl StopSignal {
    /// Waits for the signal.
    pub(super) fn wait(mut self) -> anyhow::Result<()> {
        self.0
            .read_exact(&mut [0])
            .context("cannot wait for signals")
    }
}

/// Tells systemd, if it has started this process, that the engine is ready (sd_notify(3)).
pub(super) fn notify_ready() {
    let Some(name) = std::env::var_os("NOTIFY_SOCKET") else {
        return;
    };
    let name = name.as_encoded_bytes();
    let address = match name.strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(std::str::from_utf8(name).unwrap_or_default()),
    };
    let sent =
        address.and_then(|address| UnixDatagram::unbound()?.send_to_addr(b"READY=1", &address));
    if let Err(error) = sent {
        eprintln!("warning: cannot tell systemd that the engine is ready: {error}");
    }
}

/// Returns the number of a user that is given by name or number.
pub(super) fn user_id(user: &str) -> anyhow::Result<u32> {
    if let Ok(id) = user.parse() {
        return Ok(id);
    }
    // `id` asks all databases of users that the system is configured to ask.
    let output = Command::new("id").args(["-u", "--", user]).output();
    let output = output.context("cannot run `id`; give --allow a number")?;
    match String::from_utf8_lossy(&output.stdout).trim().parse() {
        Ok(id) if output.status.success() => Ok(id),
        _ => bail!("--allow {user}: there is no such user"),
    }
}
