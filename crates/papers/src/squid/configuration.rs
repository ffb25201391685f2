//! The configurations, by the program that does TLS for Squid, and the squid.conf of each.

use std::fmt::Write as _;
use std::net::SocketAddr;

use slipstream_testbed::credentials::Credentials;
use slipstream_testbed::peers::Crypto;
use slipstream_testbed::suite::{Protocol, Suite};

use crate::Error;

/// The program that does TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Configuration {
    /// Squid, with OpenSSL.
    Own,
    /// `slipstream serve` in front of it.
    Serve(Crypto),
}

impl Configuration {
    /// All. The others are compared with the first.
    pub const ALL: [Configuration; 3] = [
        Configuration::Own,
        Configuration::Serve(Crypto::AwsLc),
        Configuration::Serve(Crypto::Slipstream),
    ];

    /// Its name on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Configuration::Own => "own",
            Configuration::Serve(crypto) => crypto.server_name(),
        }
    }

    /// A description in one line.
    pub fn description(self) -> &'static str {
        match self {
            Configuration::Own => "Squid's own TLS, with OpenSSL",
            Configuration::Serve(Crypto::AwsLc) => {
                "slipstream serve with aws-lc alone, in front of Squid"
            }
            Configuration::Serve(Crypto::Slipstream) => "slipstream serve, in front of Squid",
        }
    }

    /// The configuration of this name.
    pub fn find(name: &str) -> Option<Configuration> {
        Configuration::ALL
            .into_iter()
            .find(|configuration| configuration.name() == name)
    }
}

/// A port of Squid.
pub(super) enum Port<'a> {
    /// TLS, with the only kind of handshake that it accepts.
    Encrypted {
        address: SocketAddr,
        suite: &'a Suite,
        credentials: &'a Credentials,
    },
    /// Plain HTTP behind a PROXY header.
    Plain { address: SocketAddr },
}

/// A squid.conf: a cache in memory in front of an origin, without files of its own.
///
/// # Errors
/// [`Error::Unsupported`] for a path of a certificate or key that squid.conf cannot hold.
pub(super) fn render(ports: &[Port<'_>], origin: SocketAddr) -> Result<String, Error> {
    let mut text = String::new();
    for port in ports {
        write_port(&mut text, port)?;
    }
    // Sibling caches, digests, logs, helpers and files: what costs time without being measured is
    // off. So are the names of clients (%>A), which Squid by default asks DNS for, to have them
    // ready for helpers that are not there: the load has thousands of addresses, and a DNS server
    // that is slow to answer would be what is measured.
    write!(
        text,
        "cache_peer {} parent {} 0 no-query no-digest originserver name=origin\n\
         http_access allow all\n\
         cache_mem 16 MB\n\
         digest_generation off\n\
         access_log none\n\
         cache_log /dev/null\n\
         cache_store_log none\n\
         pid_filename none\n\
         coredump_dir none\n\
         pinger_enable off\n\
         url_rewrite_extras \"%>a %un %>rm\"\n\
         store_id_extras \"%>a %un %>rm\"\n\
         visible_hostname localhost\n\
         shutdown_lifetime 0 seconds\n",
        origin.ip(),
        origin.port()
    )
    .expect("writing to a String cannot fail");
    Ok(text)
}

fn write_port(text: &mut String, port: &Port<'_>) -> Result<(), Error> {
    match port {
        Port::Encrypted {
            address,
            suite,
            credentials,
        } => {
            let (version, other) = match suite.protocol {
                Protocol::Tls12 => ("1.2", "NO_TLSv1_3"),
                Protocol::Tls13 => ("1.3", "NO_TLSv1_2"),
            };
            write!(
                text,
                "https_port {address} accel defaultsite=localhost tls-cert={} tls-key={} tls-min-version={version} \
                 options={other}",
                word(&credentials.certificate)?,
                word(&credentials.key)?,
            )
            .expect("writing to a String cannot fail");
            // As for nginx: in TLS 1.3 the client's only offer decides, and it does of groups.
            if suite.protocol == Protocol::Tls12 {
                write!(text, " cipher={}", suite.cipher.name)
                    .expect("writing to a String cannot fail");
            }
            text.push('\n');
        }
        Port::Plain { address } => {
            writeln!(
                text,
                "http_port {address} accel defaultsite=localhost require-proxy-header\n\
                 proxy_protocol_access allow localhost"
            )
            .expect("writing to a String cannot fail");
        }
    }
    Ok(())
}

/// A path as squid.conf takes it: a word without characters that Squid would interpret.
fn word(path: &std::path::Path) -> Result<&str, Error> {
    path.to_str()
        .filter(|path| {
            path.chars()
                .all(|character| character.is_alphanumeric() || "/._-+".contains(character))
        })
        .ok_or_else(|| {
            Error::Unsupported(format!(
                "{} cannot stand in squid.conf, where a path is a word of letters, digits and /._-+; set TMPDIR to \
                 another directory",
                path.display()
            ))
        })
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::*;

    #[test]
    fn a_port_accepts_its_suite_only() {
        let credentials = Credentials {
            certificate: PathBuf::from("/tmp/s-1/rsa2048.crt"),
            key: PathBuf::from("/tmp/s-1/rsa2048.key"),
        };
        let address = SocketAddr::from(([127, 0, 0, 1], 8443));
        let encrypted = |suite| Port::Encrypted {
            address,
            suite: Suite::find(suite).unwrap(),
            credentials: &credentials,
        };
        let origin = SocketAddr::from(([127, 0, 0, 1], 9000));
        let text = render(
            &[
                encrypted("tls13-rsa2048"),
                encrypted("tls12-ecdhe-rsa-x25519"),
            ],
            origin,
        )
        .unwrap();
        let begin = "https_port 127.0.0.1:8443 accel defaultsite=localhost tls-cert=/tmp/s-1/rsa2048.crt \
            tls-key=/tmp/s-1/rsa2048.key";
        for line in [
            format!("{begin} tls-min-version=1.3 options=NO_TLSv1_2"),
            format!(
                "{begin} tls-min-version=1.2 options=NO_TLSv1_3 cipher=ECDHE-RSA-AES128-GCM-SHA256"
            ),
            "cache_peer 127.0.0.1 parent 9000 0 no-query no-digest originserver name=origin"
                .to_owned(),
        ] {
            assert!(text.lines().any(|found| found == line), "{line}:\n{text}");
        }
        let plain = render(&[Port::Plain { address }], origin).unwrap();
        assert!(plain.contains("require-proxy-header\nproxy_protocol_access allow localhost\n"));
        // Nothing else differs.
        let rest = |text: &str| text[text.find("cache_peer").unwrap()..].to_owned();
        assert_eq!(rest(&text), rest(&plain));
    }

    #[test]
    fn a_path_that_is_no_word_is_refused() {
        for path in [
            "/tmp/a b",
            "/tmp/\"a\"",
            "/tmp/${x}",
            "/tmp/a\nb",
            "/tmp/a#b",
        ] {
            assert!(word(Path::new(path)).is_err(), "{path}");
        }
    }
}
