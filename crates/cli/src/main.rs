//! The `slipstream` command: reports on this machine, measures Slipstream on it, and runs the
//! engine and the terminator.

mod commands;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use slipstream_testbed::{Error, cleanup};

/// The exit status that a shell reports of a program that SIGINT has ended.
const INTERRUPTED: u8 = 130;

/// Asynchronous, vectorised TLS for the servers you already run.
#[derive(Parser)]
#[command(name = "slipstream", version, about, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Doctor(commands::doctor::Doctor),
    #[command(subcommand)]
    Bench(Bench),
    Demo(commands::demo::Demo),
    Engine(commands::engine::EngineCommand),
    Serve(Box<commands::serve::Serve>),
    Status(commands::status::Status),
    // For those who make packages.
    #[command(hide = true)]
    Manual(commands::manual::Manual),
}

/// Measure: handshakes and compressed pages of real servers, kernels against libcrypto and zlib
#[derive(Subcommand)]
enum Bench {
    Compress(commands::bench_compress::BenchCompress),
    Handshake(commands::bench_handshake::BenchHandshake),
    Kernels(commands::bench_kernels::BenchKernels),
    Load(commands::bench_load::BenchLoad),
    Pages(commands::bench_pages::BenchPages),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    cleanup::install_panic_hook();
    let signals = match arguments.command {
        // It needs no cleanup, and handles signals in its own way: SIGHUP does not end it.
        Command::Serve(_) => Ok(()),
        _ => cleanup::handle_signals(),
    };
    let result = signals
        .map_err(anyhow::Error::from)
        .and_then(|()| match &arguments.command {
            Command::Doctor(command) => command.run(),
            Command::Bench(Bench::Compress(command)) => command.run(),
            Command::Bench(Bench::Handshake(command)) => command.run(),
            Command::Bench(Bench::Kernels(command)) => command.run(),
            Command::Bench(Bench::Load(command)) => command.run(),
            Command::Bench(Bench::Pages(command)) => command.run(),
            Command::Demo(command) => command.run(),
            Command::Engine(command) => command.run(),
            Command::Serve(command) => command.run(),
            Command::Status(command) => command.run(),
            Command::Manual(command) => command.run(Arguments::command()),
        });
    match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("slipstream: {error:#}");
            match is_interrupted(&error) {
                true => ExitCode::from(INTERRUPTED),
                false => ExitCode::FAILURE,
            }
        }
    }
}

fn is_interrupted(error: &anyhow::Error) -> bool {
    matches!(
        error.downcast_ref(),
        Some(slipstream_bench::Error::Testbed(Error::Interrupted))
    ) || matches!(error.downcast_ref(), Some(Error::Interrupted))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }
}
