//! Executables of servers: their paths and versions.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Error;

/// The variable that names the folder in which a program publishes its figures, and from which
/// `slipstream status` reads them, instead of the machine's.
pub const RUN_VARIABLE: &str = "SLIPSTREAM_RUN";

/// Folders in which distributions, and programs built by hand, put servers.
const USUAL_PLACES: [&str; 4] = ["/usr/sbin", "/usr/bin", "/usr/local/sbin", "/usr/local/bin"];

/// The executable `name` in the first of the usual places that has one; Debian's `package` brings
/// it.
///
/// # Errors
/// [`Error::ServerNotFound`] if there is none.
pub fn find(name: &'static str, package: &'static str) -> Result<PathBuf, Error> {
    let searched: Vec<PathBuf> = USUAL_PLACES
        .iter()
        .map(|place| Path::new(place).join(name))
        .collect();
    match searched.iter().find(|path| path.is_file()) {
        Some(path) => Ok(path.clone()),
        None => Err(Error::ServerNotFound {
            name,
            package,
            searched,
        }),
    }
}

/// The `slipstream` command: the one at `path`, or the one beside this program, or the one that is
/// installed.
///
/// # Errors
/// [`Error::CommandMissing`] if there is none.
pub fn slipstream(path: Option<&Path>) -> Result<PathBuf, Error> {
    const NAME: &str = "slipstream";
    let searched: Vec<PathBuf> = match path {
        Some(path) => vec![path.to_path_buf()],
        None => {
            let program = env::current_exe().ok();
            // target/release/PROGRAM, or target/release/deps/TEST.
            let beside = program
                .iter()
                .flat_map(|program| program.ancestors().skip(1).take(2));
            let usual = USUAL_PLACES.iter().map(Path::new);
            beside.chain(usual).map(|place| place.join(NAME)).collect()
        }
    };
    match searched.iter().find(|path| path.is_file()) {
        Some(path) => Ok(path.clone()),
        None => Err(Error::CommandMissing { searched }),
    }
}

/// The first line that the program prints when it is asked for its version.
pub fn version(program: &Path, option: &str) -> Option<String> {
    let output = Command::new(program).arg(option).output().ok()?;
    // Some print it to standard error.
    [output.stdout, output.stderr].iter().find_map(|text| {
        let text = String::from_utf8_lossy(text);
        let line = text.lines().next()?.trim();
        (!line.is_empty()).then(|| line.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_installed_is_an_error_that_names_the_package() {
        assert!(find("env", "coreutils").is_ok());
        let message = find("no-such-server", "some-package")
            .unwrap_err()
            .to_string();
        assert!(message.contains("/usr/sbin/no-such-server"), "{message}");
        assert!(
            message.contains("apt-get install some-package"),
            "{message}"
        );
    }

    #[test]
    fn a_missing_command_is_an_error_with_the_way_to_build_it() {
        assert!(slipstream(Some(Path::new("/usr/bin/env"))).is_ok());
        let message = slipstream(Some(Path::new("/nonexistent/slipstream")))
            .unwrap_err()
            .to_string();
        assert!(message.contains("/nonexistent/slipstream"), "{message}");
        assert!(message.contains("make build"), "{message}");
    }

    #[test]
    fn a_version_is_a_line() {
        let version = version(Path::new("/usr/bin/env"), "--version").unwrap();
        assert!(version.starts_with("env "), "{version}");
        assert!(super::version(Path::new("/nonexistent"), "-v").is_none());
    }
}
