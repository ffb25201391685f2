//! Running other programs, never through a shell.

use std::ffi::OsStr;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// Runs a command, which is shown first; an exit status other than 0 is an error.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    show(command);
    let status = command.stdin(Stdio::null()).status();
    let status = status.with_context(|| format!("cannot run {}", shown(command)))?;
    if !status.success() {
        bail!("{} failed: {status}", shown(command));
    }
    Ok(())
}

/// Shows a command that is about to run.
pub(crate) fn show(command: &Command) {
    eprintln!("+ {}", shown(command));
}

/// Runs a command and returns its standard output.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output();
    let output = output.with_context(|| format!("cannot run {}", shown(command)))?;
    if !output.status.success() {
        bail!("{} failed: {}", shown(command), output.status);
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// Returns the words of a command, separated by blanks.
pub(crate) fn shown(command: &Command) -> String {
    let words: Vec<&OsStr> = std::iter::once(command.get_program())
        .chain(command.get_args())
        .collect();
    words.join(OsStr::new(" ")).to_string_lossy().into_owned()
}
