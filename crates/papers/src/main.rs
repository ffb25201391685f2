//! The `slipstream-papers` command: the experiments of papers, with Slipstream.

mod commands;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use slipstream_testbed::{Error, cleanup};

/// Exit code that a shell reports of a program that SIGINT has ended.
const INTERRUPTED: u8 = 130;

/// Repeat the experiments of papers about accelerated TLS and compression, and set the ratios
/// beside theirs.
#[derive(Parser)]
#[command(version, about, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Qtls(commands::qtls::Qtls),
    Qweb(commands::qweb::Qweb),
    Squid(commands::squid::Squid),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    cleanup::install_panic_hook();
    let result = cleanup::handle_signals()
        .map_err(anyhow::Error::from)
        .and_then(|()| match &arguments.command {
            Command::Qtls(command) => command.run(),
            Command::Qweb(command) => command.run(),
            Command::Squid(command) => command.run(),
        });
    result.unwrap_or_else(|error| {
        eprintln!("slipstream-papers: {error:#}");
        match is_interrupted(&error) {
            true => ExitCode::from(INTERRUPTED),
            false => ExitCode::FAILURE,
        }
    })
}

fn is_interrupted(error: &anyhow::Error) -> bool {
    matches!(
        error.downcast_ref(),
        Some(slipstream_papers::Error::Testbed(Error::Interrupted))
    ) || matches!(error.downcast_ref(), Some(Error::Interrupted))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }
}
