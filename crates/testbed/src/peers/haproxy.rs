//! HAProxy: one thread, a frontend that answers by itself.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use super::append;
use crate::Error;
use crate::nginx::{Listener, quote};
use crate::scratch::ScratchDirectory;
use crate::server::{Process, Ready};
use crate::suite::Protocol;

pub(super) fn start(
    executable: &Path,
    listeners: &[Listener<'_>],
    core: usize,
) -> Result<Process, Error> {
    let scratch = ScratchDirectory::new()?;
    let path = scratch.file("haproxy.cfg");
    fs::write(&path, render(listeners)?).map_err(Error::file("write", &path))?;
    let addresses: Vec<SocketAddr> = listeners.iter().map(|listener| listener.address).collect();
    Process::start(
        Command::new(executable).arg("-db").arg("-f").arg(&path),
        core,
        Ready::Accepts(&addresses),
        scratch,
    )
}

fn render(listeners: &[Listener<'_>]) -> Result<String, Error> {
    // With ssl-load-extra-del-ext the key of x.crt is x.key, and need not stand in the same file.
    let mut text = "global\n    nbthread 1\n    ssl-load-extra-del-ext\n\
        defaults\n    mode http\n    timeout client 60s\n    timeout connect 60s\n    timeout server 60s\n\
        frontend handshakes\n"
        .to_owned();
    for listener in listeners {
        let certificate = quote(&listener.credentials.certificate)?;
        append(
            &mut text,
            format_args!("    bind {} ssl crt {certificate}", listener.address),
        );
        if let Some(suite) = listener.suite {
            let version = suite.protocol.nginx_name();
            append(
                &mut text,
                format_args!(" ssl-min-ver {version} ssl-max-ver {version}"),
            );
            // `ciphers` is OpenSSL's list for TLS 1.2; in TLS 1.3 the client's only offer decides.
            if suite.protocol == Protocol::Tls12 {
                append(&mut text, format_args!(" ciphers {}", suite.cipher.name));
            }
            if let Some(group) = suite.group {
                append(&mut text, format_args!(" curves {}", group.name()));
            }
        }
        text.push('\n');
    }
    text.push_str("    http-request return status 200 content-type text/plain string ok\n");
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::credentials::Credentials;
    use crate::suite::Suite;

    #[test]
    fn a_port_accepts_its_suite_only() {
        let credentials = Credentials {
            certificate: PathBuf::from("/tmp/s/rsa2048.crt"),
            key: PathBuf::from("/tmp/s/rsa2048.key"),
        };
        let listeners =
            ["tls12-ecdhe-rsa-p256", "tls13-rsa2048", "tls12-rsakx"].map(|suite| Listener {
                address: SocketAddr::from(([127, 0, 0, 1], 8443)),
                suite: Suite::find(suite),
                credentials: &credentials,
            });
        let text = render(&listeners).unwrap();
        let begin = "    bind 127.0.0.1:8443 ssl crt \"/tmp/s/rsa2048.crt\"";
        for end in [
            "ssl-min-ver TLSv1.2 ssl-max-ver TLSv1.2 ciphers ECDHE-RSA-AES128-GCM-SHA256 curves P-256",
            "ssl-min-ver TLSv1.3 ssl-max-ver TLSv1.3 curves X25519",
            "ssl-min-ver TLSv1.2 ssl-max-ver TLSv1.2 ciphers AES128-GCM-SHA256",
        ] {
            assert!(text.contains(&format!("{begin} {end}\n")), "{text}");
        }
    }
}
