//! `slipstream engine`.

mod process;
mod status;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{Args, Subcommand, ValueEnum};
use slipstream_accelerators::lanes::{Backend, prove};
use slipstream_engine::{Engine, Options, Pace, Quotas};
use slipstream_metrics::published::directory;
use slipstream_testbed::processor::usable_cores;

use super::options;

/// The path of the socket in the systemd unit.
const SOCKET: &str = "/run/slipstream/engine.sock";

/// Compute for many processes on cores of its own
///
/// Listens on a Unix socket, as a device does. Workers of servers hand over their private-key
/// operations in shared memory; the engine computes the operations of all of them in common
/// batches, and holds their keys. It runs until SIGTERM or SIGINT, and prints a line when it is
/// ready.
///
/// Its own user and root may connect, and those named with --allow.
#[derive(Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:
  slipstream engine --socket /run/slipstream/engine.sock --cores 3
  slipstream engine --cores 2,3 --allow www-data
  slipstream engine --pace dh8970 --pace-engines 25
  slipstream engine status
  slipstream engine status --socket /run/slipstream/engine.sock --json"
)]
pub struct EngineCommand {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    run: Run,
}

#[derive(Subcommand)]
enum Action {
    Status(status::Status),
}

#[derive(Args)]
struct Run {
    /// Path of the socket
    #[arg(long, value_name = "PATH", default_value = SOCKET)]
    socket: PathBuf,
    /// Cores to compute on, with a thread each [default: the last one that this process may use]
    #[arg(long, value_name = "CORE,...", value_delimiter = ',')]
    cores: Vec<usize>,
    /// Another user that may connect, by name or number; can be repeated
    #[arg(long, value_name = "USER")]
    allow: Vec<String>,
    /// Seconds for which keys stay after the process that brought them has gone [default: 90]
    #[arg(long, value_name = "SECONDS", value_parser = options::seconds)]
    grace: Option<Duration>,
    /// Time for which a batch that is not full waits for requests of concurrent jobs (us, ms)
    /// [default: as long as it takes to compute]
    #[arg(long, value_name = "TIME", value_parser = options::short_time)]
    linger: Option<Duration>,
    /// Release no result before this card would have it: to compare, or to test
    #[arg(long, value_name = "CARD")]
    pace: Option<Card>,
    /// Requests that the simulated card computes at a time [default: 25, one endpoint]
    #[arg(long, value_name = "NUMBER", value_parser = options::positive, requires = "pace")]
    pace_engines: Option<usize>,
    /// Instructions to compute with
    #[arg(long, value_enum, default_value = "auto")]
    lanes: Lanes,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Card {
    /// Intel QuickAssist Adapter 8970, from published figures
    Dh8970,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Lanes {
    /// The fastest that this CPU has
    Auto,
    /// AVX-512 with IFMA
    Ifma,
    /// AVX-512 without IFMA: RSA only
    Avx512,
    /// No particular instructions: slower than any library, for tests
    Portable,
}

impl EngineCommand {
    /// Runs the command.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        match &self.action {
            Some(Action::Status(status)) => status.run(),
            None => self.run.run(),
        }
    }
}

impl Run {
    fn run(&self) -> anyhow::Result<ExitCode> {
        let options = self.options()?;
        let ready = format!(
            "engine ready on {}, {}, {} lanes",
            options.socket.display(),
            describe_threads(&options.cores),
            options.backend.name()
        );
        // Before the first thread, and before the first key.
        process::protect_secrets();
        process::raise_descriptor_limit();
        let stop = process::stop_signal()?;
        if let Some(complaint) = prove(options.backend) {
            eprintln!("warning: {complaint}");
        }
        let engine = Engine::start(options).context("the engine cannot start")?;
        if let Some(error) = engine.unpublished() {
            eprintln!("`slipstream status` does not show this engine: {error}");
        }
        // An error does not matter: standard output may be closed.
        let _ = writeln!(io::stdout(), "{ready}");
        process::notify_ready();
        stop.wait()?;
        engine.stop();
        Ok(ExitCode::SUCCESS)
    }

    fn options(&self) -> anyhow::Result<Options> {
        let usable = usable_cores()?;
        let mut cores = self.cores.clone();
        if cores.is_empty() {
            cores.extend(usable.last());
        }
        if let Some(core) = cores.iter().find(|core| !usable.contains(core)) {
            bail!("core {core} is none of those that this process may use: {usable:?}");
        }
        let allow: anyhow::Result<_> = self
            .allow
            .iter()
            .map(|user| process::user_id(user))
            .collect();
        Ok(Options {
            socket: self.socket.clone(),
            cores,
            backend: self.lanes.backend()?,
            allow: allow?,
            quotas: Quotas::default(),
            grace: self.grace.unwrap_or(Engine::GRACE),
            linger: self.linger,
            pace: self.pace.map(|Card::Dh8970| {
                Pace::dh8970(self.pace_engines.unwrap_or(Pace::DH8970_ENGINES))
            }),
            publishes: Some(directory::own()),
        })
    }
}

impl Lanes {
    fn backend(self) -> anyhow::Result<Backend> {
        let wanted = match self {
            Lanes::Auto => Backend::detect(),
            Lanes::Ifma => Some(Backend::Ifma),
            Lanes::Avx512 => Some(Backend::Avx512),
            Lanes::Portable => Some(Backend::Portable),
        };
        match wanted {
            Some(backend) if backend.is_available() => {
                if backend == Backend::Avx512 {
                    eprintln!(
                        "this engine computes RSA only: curves need {}",
                        missing(Backend::Ifma)
                    );
                }
                Ok(backend)
            }
            Some(backend) => {
                let offer =
                    Backend::detect().map_or("", |_| "; --lanes auto takes the best that it has");
                bail!(
                    "this CPU lacks {} for {} lanes{offer}",
                    missing(backend),
                    backend.name()
                )
            }
            None => bail!(
                "this CPU lacks {}: an engine would be slower than the servers' own software \
                 (--lanes portable runs it anyway, for tests)",
                missing(Backend::Ifma)
            ),
        }
    }
}

/// Returns the features that this CPU lacks; those that the backend needs if it lacks none.
fn missing(backend: Backend) -> String {
    let missing: Vec<&str> = backend.missing().collect();
    match missing[..] {
        [] => "avx512ifma".to_owned(),
        _ => missing.join(" and "),
    }
}

fn describe_threads(cores: &[usize]) -> String {
    let names: Vec<String> = cores.iter().map(usize::to_string).collect();
    match cores.len() {
        1 => format!("1 thread on core {}", names[0]),
        count => format!("{count} threads on cores {}", names.join(", ")),
    }
}
