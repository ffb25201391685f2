//! `slipstream manual`: manual pages, made from the help of the commands, for packages.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;

/// Write a manual page for each command into a folder
#[derive(Args)]
pub(crate) struct Manual {
    /// Folder for the pages, which is made if it does not exist
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
}

impl Manual {
    pub(crate) fn run(&self, command: clap::Command) -> Result<ExitCode> {
        let folder = self.folder.display();
        fs::create_dir_all(&self.folder).with_context(|| format!("cannot make {folder}"))?;
        // `slipstream help` only prints what the pages say.
        let command = command.disable_help_subcommand(true);
        clap_mangen::generate_to(command, &self.folder)
            .with_context(|| format!("cannot write manual pages to {folder}"))?;
        Ok(ExitCode::SUCCESS)
    }
}
