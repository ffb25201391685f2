//! `slipstream serve`: one event loop that answers with files, or passes connections on.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use super::{Crypto, append};
use crate::Error;
use crate::nginx::{Listener, quote};
use crate::scratch::ScratchDirectory;
use crate::server::{Process, Ready};
use crate::suite::Protocol;

/// The beginning of the first line that it prints, once it serves.
const READY: &str = "serving on";

/// Starts it with a directory of files. The directory is empty: measurements end with the
/// handshake.
pub(super) fn start_with_files(
    executable: &Path,
    crypto: Crypto,
    listeners: &[Listener<'_>],
    core: usize,
) -> Result<Process, Error> {
    let scratch = ScratchDirectory::new()?;
    let root = scratch.file("files");
    fs::create_dir(&root).map_err(Error::file("create", &root))?;
    let service = format!("root = {}\n", quote(&root)?);
    start(
        executable,
        &render(crypto, listeners, &service)?,
        core,
        scratch,
    )
}

/// Starts it in front of a backend that wants a PROXY header (version 1).
///
/// # Errors
/// [`Error::Server`] with the end of its log when it does not start; [`Error::UnusablePath`];
/// [`Error::Io`]; [`Error::Interrupted`].
pub fn start_with_backend(
    executable: &Path,
    crypto: Crypto,
    listeners: &[Listener<'_>],
    backend: SocketAddr,
    core: usize,
) -> Result<Process, Error> {
    let service = format!("backends = [\"{backend}\"]\nproxy_protocol = \"v1\"\n");
    let text = render(crypto, listeners, &service)?;
    start(executable, &text, core, ScratchDirectory::new()?)
}

fn start(
    executable: &Path,
    configuration: &str,
    core: usize,
    scratch: ScratchDirectory,
) -> Result<Process, Error> {
    let path = scratch.file("serve.toml");
    fs::write(&path, configuration).map_err(Error::file("write", &path))?;
    Process::start(
        Command::new(executable)
            .args(["serve", "--config"])
            .arg(&path),
        core,
        Ready::Says(READY),
        scratch,
    )
}

fn render(crypto: Crypto, listeners: &[Listener<'_>], service: &str) -> Result<String, Error> {
    let mut text = "workers = 1\n".to_owned();
    if crypto == Crypto::AwsLc {
        text.push_str("crypto = \"aws-lc\"\n");
    }
    for listener in listeners {
        append(
            &mut text,
            format_args!(
                "[[listener]]\nlisten = \"{}\"\ncertificates = [{{ certificate = {}, key = {} }}]\n",
                listener.address,
                quote(&listener.credentials.certificate)?,
                quote(&listener.credentials.key)?,
            ),
        );
        // Ciphers cannot be chosen. The client offers but one.
        if let Some(suite) = listener.suite {
            let version = match suite.protocol {
                Protocol::Tls12 => "1.2",
                Protocol::Tls13 => "1.3",
            };
            append(&mut text, format_args!("versions = [\"{version}\"]\n"));
            if let Some(group) = suite.group {
                append(&mut text, format_args!("groups = [\"{}\"]\n", group.name()));
            }
        }
        text.push_str(service);
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::credentials::Credentials;
    use crate::suite::Suite;

    #[test]
    fn a_listener_accepts_its_suite_only_and_only_the_cryptography_differs() {
        let credentials = Credentials {
            certificate: PathBuf::from("/tmp/s/rsa2048.crt"),
            key: PathBuf::from("/tmp/s/rsa2048.key"),
        };
        let listeners = ["tls13-rsa2048", "tls12-ecdhe-rsa-p256"].map(|suite| Listener {
            address: SocketAddr::from(([127, 0, 0, 1], 8443)),
            suite: Suite::find(suite),
            credentials: &credentials,
        });
        let text = render(Crypto::Slipstream, &listeners, "root = \"/tmp/s/files\"\n").unwrap();
        let listener = |version: &str, group: &str| {
            format!(
                "[[listener]]\nlisten = \"127.0.0.1:8443\"\ncertificates = [{{ certificate = \"/tmp/s/rsa2048.crt\", \
                 key = \"/tmp/s/rsa2048.key\" }}]\nversions = [\"{version}\"]\ngroups = [\"{group}\"]\n\
                 root = \"/tmp/s/files\"\n"
            )
        };
        let expected = format!(
            "workers = 1\n{}{}",
            listener("1.3", "X25519"),
            listener("1.2", "P-256")
        );
        assert_eq!(text, expected);
        let other = render(Crypto::AwsLc, &listeners, "root = \"/tmp/s/files\"\n").unwrap();
        assert_eq!(other.replace("crypto = \"aws-lc\"\n", ""), text);
        assert_ne!(other, text);
    }
}
