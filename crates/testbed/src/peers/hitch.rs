//! Hitch: one worker process, and a backend that it connects to after each handshake.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use rustix::process::geteuid;

use super::append;
use crate::Error;
use crate::nginx::{Listener, quote};
use crate::scratch::ScratchDirectory;
use crate::server::{Process, Ready};
use crate::suite::Protocol;

/// The user that Debian's package makes: Hitch refuses to serve as root.
const USER: &str = "_hitch";

pub(super) fn start(
    executable: &Path,
    listeners: &[Listener<'_>],
    backend: SocketAddr,
    core: usize,
) -> Result<Process, Error> {
    let scratch = ScratchDirectory::new()?;
    let path = scratch.file("hitch.conf");
    let text = render(listeners, backend, geteuid().is_root())?;
    fs::write(&path, text).map_err(Error::file("write", &path))?;
    let addresses: Vec<SocketAddr> = listeners.iter().map(|listener| listener.address).collect();
    Process::start(
        Command::new(executable).arg(format!("--config={}", path.display())),
        core,
        Ready::AcceptsAndHasChild(&addresses),
        scratch,
    )
}

fn render(listeners: &[Listener<'_>], backend: SocketAddr, as_root: bool) -> Result<String, Error> {
    let mut text = format!(
        "backend = \"[{}]:{}\"\nworkers = 1\ndaemon = off\n",
        backend.ip(),
        backend.port()
    );
    if as_root {
        append(&mut text, format_args!("user = \"{USER}\"\n"));
    }
    for listener in listeners {
        append(
            &mut text,
            format_args!(
                "frontend = {{\n    host = \"{}\"\n    port = \"{}\"\n    \
                 pem-file = {{ cert = {} private-key = {} }}\n",
                listener.address.ip(),
                listener.address.port(),
                quote(&listener.credentials.certificate)?,
                quote(&listener.credentials.key)?,
            ),
        );
        // Its curves cannot be set for one port. It has all that are measured, and the client
        // offers but one.
        if let Some(suite) = listener.suite {
            append(
                &mut text,
                format_args!("    tls-protos = {}\n", suite.protocol.nginx_name()),
            );
            if suite.protocol == Protocol::Tls12 {
                append(
                    &mut text,
                    format_args!("    ciphers = \"{}\"\n", suite.cipher.name),
                );
            }
        }
        text.push_str("}\n");
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
    fn a_port_accepts_its_suite_only_and_root_becomes_someone_else() {
        let credentials = Credentials {
            certificate: PathBuf::from("/tmp/s/rsa2048.crt"),
            key: PathBuf::from("/tmp/s/rsa2048.key"),
        };
        let listeners = [Listener {
            address: SocketAddr::from(([127, 0, 0, 1], 8443)),
            suite: Suite::find("tls12-ecdhe-rsa-p256"),
            credentials: &credentials,
        }];
        let backend = SocketAddr::from(([127, 0, 0, 1], 9000));
        let text = render(&listeners, backend, true).unwrap();
        for line in [
            "backend = \"[127.0.0.1]:9000\"",
            "user = \"_hitch\"",
            "port = \"8443\"",
            "tls-protos = TLSv1.2",
            "ciphers = \"ECDHE-RSA-AES128-GCM-SHA256\"",
            "pem-file = { cert = \"/tmp/s/rsa2048.crt\" private-key = \"/tmp/s/rsa2048.key\" }",
        ] {
            assert!(
                text.lines().any(|found| found.trim() == line),
                "{line}: {text}"
            );
        }
        assert!(!render(&listeners, backend, false).unwrap().contains("user"));
    }
}
