//! The nginx executable: its path and its build.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Error;
use crate::program::RUN_VARIABLE;

/// Paths at which distributions and nginx's own `make install` put the executable.
const USUAL_PLACES: [&str; 3] = [
    "/usr/sbin/nginx",
    "/usr/local/sbin/nginx",
    "/usr/local/nginx/sbin/nginx",
];

/// An nginx executable, and its answer to `nginx -V`.
#[derive(Debug, Clone)]
pub struct Binary {
    /// Its path.
    pub path: PathBuf,
    /// Its version, as in `1.22.1`.
    pub version: String,
    /// The OpenSSL it runs with, as in `OpenSSL 3.0.22 25 Aug 2026`.
    pub openssl: Option<String>,
    /// The arguments of its `configure`.
    pub configure_arguments: String,
}

impl Binary {
    /// The nginx at `path`, or the first one in the usual places.
    ///
    /// # Errors
    /// [`Error::NginxNotFound`] if there is none, [`Error::Nginx`] if it does not answer `-V` as
    /// nginx does.
    pub fn find(path: Option<&Path>) -> Result<Binary, Error> {
        let searched: Vec<PathBuf> = match path {
            Some(path) => vec![path.to_path_buf()],
            None => USUAL_PLACES.iter().map(PathBuf::from).collect(),
        };
        match searched.iter().find(|path| path.is_file()) {
            Some(path) => Binary::inspect(path),
            None => Err(Error::NginxNotFound { searched }),
        }
    }

    /// Returns true if it was configured with `option`, for example `--with-compat`.
    pub fn was_built_with(&self, option: &str) -> bool {
        self.configure_arguments
            .split_ascii_whitespace()
            .any(|argument| argument == option)
    }

    fn inspect(path: &Path) -> Result<Binary, Error> {
        let output = Command::new(path)
            .arg("-V")
            .output()
            .map_err(Error::file("run", path))?;
        let text = String::from_utf8_lossy(&output.stderr);
        parse(path, &text).ok_or_else(|| Error::Nginx {
            program: path.to_path_buf(),
            reason: "does not answer -V like nginx".to_owned(),
            log: text.into_owned(),
        })
    }
}

/// Runs `nginx -t` on a configuration.
///
/// # Errors
/// [`Error::Nginx`] with nginx's message if it refuses the configuration.
pub(super) fn test_configuration(
    binary: &Binary,
    prefix: &Path,
    configuration: &Path,
) -> Result<(), Error> {
    let output = command(binary, prefix, configuration)
        .arg("-t")
        .output()
        .map_err(Error::file("run", &binary.path))?;
    if output.status.success() {
        return Ok(());
    }
    Err(Error::Nginx {
        program: binary.path.clone(),
        reason: format!("refused its configuration ({})", output.status),
        log: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}

/// A command that runs nginx within `prefix`, its log from the first line on included.
pub(super) fn command(binary: &Binary, prefix: &Path, configuration: &Path) -> Command {
    let mut command = Command::new(&binary.path);
    command.arg("-p").arg(prefix).arg("-c").arg(configuration);
    command.arg("-e").arg(prefix.join("error.log"));
    command.env(RUN_VARIABLE, prefix.join("run"));
    command
}

fn parse(path: &Path, text: &str) -> Option<Binary> {
    let after = |prefix: &str| text.lines().find_map(|line| line.strip_prefix(prefix));
    let version = after("nginx version: ")?.split_once('/')?.1;
    let openssl = after("built with ").map(|built| {
        // "OpenSSL 3.0.20 7 Apr 2026 (running with OpenSSL 3.0.22 25 Aug 2026)" when the two
        // differ.
        match built.split_once("(running with ") {
            Some((_, running)) => running.trim_end_matches(')').to_owned(),
            None => built.to_owned(),
        }
    });
    Some(Binary {
        path: path.to_path_buf(),
        version: version.split_ascii_whitespace().next()?.to_owned(),
        openssl,
        configure_arguments: after("configure arguments: ")
            .unwrap_or_default()
            .to_owned(),
    })
}

/// The last lines of a log; empty if it could not be read.
pub(crate) fn last_lines(log: &io::Result<String>) -> String {
    const LINES: usize = 8;
    let Ok(log) = log else {
        return String::new();
    };
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(LINES)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_openssl_and_options_are_read() {
        let text = "nginx version: nginx/1.22.1 (Debian)\n\
            built with OpenSSL 3.0.20 7 Apr 2026 (running with OpenSSL 3.0.22 25 Aug 2026)\n\
            TLS SNI support enabled\n\
            configure arguments: --with-cc-opt='-g -O2' --with-compat --with-http_ssl_module\n";
        let binary = parse(Path::new("/usr/sbin/nginx"), text).unwrap();
        assert_eq!(binary.version, "1.22.1");
        assert_eq!(
            binary.openssl.as_deref(),
            Some("OpenSSL 3.0.22 25 Aug 2026")
        );
        assert!(binary.was_built_with("--with-compat"));
        assert!(!binary.was_built_with("--with-http_ssl"));
    }

    #[test]
    fn what_is_not_nginx_is_refused() {
        assert!(matches!(
            Binary::find(Some(Path::new("/bin/true"))),
            Err(Error::Nginx { .. })
        ));
        assert!(matches!(
            Binary::find(Some(Path::new("/nonexistent/nginx"))),
            Err(Error::NginxNotFound { .. })
        ));
    }

    #[test]
    fn only_the_end_of_a_log_is_quoted() {
        let log: String = (0..20).map(|line| format!("{line}\n")).collect();
        assert_eq!(last_lines(&Ok(log)), "12\n13\n14\n15\n16\n17\n18\n19");
        assert_eq!(last_lines(&Ok("one".to_owned())), "one");
    }
}
