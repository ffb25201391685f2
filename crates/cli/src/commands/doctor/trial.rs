//! nginx with the module, started for a moment under a prefix of its own: handshakes with it, and
//! the figures of its worker about them.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::geteuid;
use slipstream_testbed::credentials::Credentials;
use slipstream_testbed::nginx::{Binary, Configuration, Server, quote};
use slipstream_testbed::port::unused_address;
use slipstream_testbed::processor::usable_cores;
use slipstream_testbed::scratch::ScratchDirectory;
use slipstream_testbed::suite::KeyType;
use slipstream_testbed::{probe, status};

use super::configuration::{self, Lines};
use super::figures::{HANDSHAKES, PATIENCE};
use super::findings::Check;
use crate::commands::figures::Figures;

/// Servers of the operator that are tried. Servers with the same lines and keys count once.
const MOST_SERVERS: usize = 8;

/// Starts `nginx` with `module` and the operator's `lines`, makes handshakes with each of its
/// servers, and says of each if it was accelerated.
pub(super) fn run(nginx: &Binary, module: &Path, lines: &Lines) -> Vec<Check> {
    const NAME: &str = "module";
    match Trial::start(nginx, module, lines) {
        Ok(trial) => {
            let mut checks = vec![Check::ok(
                NAME,
                format!("{} loads in nginx {}", module.display(), nginx.version),
            )];
            if !lines.enable() {
                checks.push(Check::note(
                    "nginx.conf",
                    "does not switch the module on; the trial does",
                    "add \"slipstream on;\" to the http block, and reload nginx",
                ));
            }
            checks.extend(trial.checks());
            checks
        }
        Err(error) => vec![Check::missing(
            NAME,
            format!("nginx does not start with {}: {error:#}", module.display()),
            "if the module does not fit this nginx, build or install the one that does",
        )],
    }
}

struct Trial {
    server: Server,
    sites: Vec<Site>,
    status: SocketAddr,
    left_out: usize,
}

/// One port of the trial.
struct Site {
    name: String,
    key: KeyType,
    address: SocketAddr,
    is_on: bool,
}

impl Trial {
    fn start(nginx: &Binary, module: &Path, lines: &Lines) -> anyhow::Result<Trial> {
        let scratch = ScratchDirectory::new()?;
        let (mut sites, mut servers) = (Vec::new(), String::new());
        let mut made: Vec<(KeyType, Credentials)> = Vec::new();
        for (name, own, keys) in served(lines) {
            let is_on = own
                .iter()
                .rev()
                .find(|line| line.starts_with("slipstream "));
            let is_on = is_on.map_or(is_on_in_http(lines), |line| configuration::is_on(line));
            for key in keys {
                if !made.iter().any(|(known, _)| *known == key) {
                    made.push((key, Credentials::generate(key, &scratch)?));
                }
                let credentials = made.iter().find(|(known, _)| *known == key);
                let (_, credentials) = credentials.expect("made before");
                let address = unused_address()?;
                servers.push_str(&server_block(address, credentials, &own)?);
                sites.push(Site {
                    name: name.clone(),
                    key,
                    address,
                    is_on,
                });
            }
        }
        let status = unused_address()?;
        servers.push_str(&format!(
            "    server {{ listen {status}; location / {{ slipstream_status; }} }}\n"
        ));
        let notices = quote(&scratch.file("notices.log"))?;
        let main = format!("error_log {notices} notice;\n{}", lines.main.join("\n"));
        let mut text = String::new();
        Configuration {
            module: Some(module),
            module_directives: &main,
            directory: scratch.path(),
            worker_core: usable_cores()?[0],
            listeners: &[],
            as_root: geteuid().is_root(),
        }
        .begin(&mut text)?;
        for line in http_lines(lines) {
            text.push_str(&format!("    {line}\n"));
        }
        text.push_str(&servers);
        text.push_str("}\n");
        let addresses: Vec<SocketAddr> = sites.iter().map(|site| site.address).collect();
        Ok(Trial {
            server: Server::start_configured(nginx, scratch, &text, &addresses)?,
            sites,
            status,
            left_out: lines.servers.len().saturating_sub(MOST_SERVERS),
        })
    }

    fn checks(&self) -> Vec<Check> {
        let mut checks: Vec<Check> = self.sites.iter().map(|site| self.check(site)).collect();
        if self.left_out > 0 {
            checks.push(Check::note(
                "handshakes",
                format!(
                    "{} more servers have settings of their own, and were not tried",
                    self.left_out
                ),
                "none: they work as their settings say",
            ));
        }
        checks
    }

    fn check(&self, site: &Site) -> Check {
        const NAME: &str = "handshakes";
        let tried = format!("{}, {}", site.name, describe(site.key));
        let outcome = self.figures(0).and_then(|before| {
            let protocols = probe::handshakes(site.address, "localhost", HANDSHAKES)?;
            let after = self.figures(before.handshakes() + HANDSHAKES as u64)?;
            Ok((protocols, after.since(&before)))
        });
        let (protocols, figures) = match outcome {
            Ok(outcome) => outcome,
            Err(error) => {
                return Check::missing(
                    NAME,
                    format!("{tried}: {error:#}"),
                    "see nginx's error log; without the module nginx answers as before",
                );
            }
        };
        let protocol = protocols.first().map_or("", String::as_str);
        let detail = format!("{tried}, {protocol}: {}", figures.describe());
        if figures.are_accelerated() {
            return Check::ok(NAME, detail);
        }
        if !site.is_on {
            return Check::note(
                NAME,
                format!("{tried}: \"slipstream\" is off, OpenSSL computes"),
                "add \"slipstream on;\" to this server, if that is not meant",
            );
        }
        let said = self.reasons();
        match said.is_empty() {
            true => Check::missing(
                NAME,
                detail,
                "see `slipstream_software_operations_total` in the reference of metrics",
            ),
            false => Check::missing(NAME, format!("{tried}: nothing was accelerated"), said),
        }
    }

    /// The figures, once `handshakes` have been counted, or nothing changes any more.
    fn figures(&self, handshakes: u64) -> anyhow::Result<Figures> {
        let end = Instant::now() + PATIENCE;
        loop {
            let page = status::fetch(self.status, false)?;
            let figures = Figures::of_page(&page);
            let takes_part = status::total(&page, |series| series == "slipstream_workers") > 0;
            if figures.handshakes() >= handshakes || !takes_part || Instant::now() > end {
                return Ok(figures);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The module's warnings and errors in the log.
    fn reasons(&self) -> String {
        const PREFIX: &str = "slipstream: ";
        let log = fs::read_to_string(self.server.directory().join("notices.log"));
        let log = log.unwrap_or_default();
        let warnings = log.lines().filter(|line| !line.contains("[notice]"));
        let said = warnings.filter_map(|line| line.split_once(PREFIX).map(|both| both.1));
        let said: Vec<&str> = said.collect();
        said.join("; ")
    }
}

/// Names, lines and keys of the servers to try. Without any with TLS, one with the lines of http.
fn served(lines: &Lines) -> Vec<(String, Vec<String>, Vec<KeyType>)> {
    const USUAL: [KeyType; 2] = [KeyType::Rsa2048, KeyType::EcdsaP256];
    if lines.servers.is_empty() {
        return vec![("defaults".to_owned(), Vec::new(), USUAL.to_vec())];
    }
    let servers = lines.servers.iter().take(MOST_SERVERS).map(|server| {
        let keys = match server.keys.is_empty() {
            true => USUAL.to_vec(),
            false => server.keys.clone(),
        };
        (server.name.clone(), server.lines.clone(), keys)
    });
    servers.collect()
}

fn is_on_in_http(lines: &Lines) -> bool {
    http_lines(lines)
        .iter()
        .any(|line| configuration::is_on(line))
}

/// The lines of http, which switch the module on if the operator's do not do so anywhere.
fn http_lines(lines: &Lines) -> Vec<String> {
    let mut http = lines.http.clone();
    if !lines.enable() {
        http.retain(|line| !line.starts_with("slipstream "));
        http.push("slipstream on;".to_owned());
    }
    // nginx before 1.23.4 leaves TLS 1.3 out of its default.
    if !http.iter().any(|line| line.starts_with("ssl_protocols ")) {
        http.push("ssl_protocols TLSv1.2 TLSv1.3;".to_owned());
    }
    http
}

fn server_block(
    address: SocketAddr,
    credentials: &Credentials,
    lines: &[String],
) -> anyhow::Result<String> {
    Ok(format!(
        "    server {{ listen {address} ssl; ssl_certificate {}; ssl_certificate_key {}; {} \
         return 204; }}\n",
        quote(&credentials.certificate)?,
        quote(&credentials.key)?,
        lines.join(" ")
    ))
}

fn describe(key: KeyType) -> &'static str {
    match key {
        KeyType::Rsa2048 => "RSA-2048",
        KeyType::EcdsaP256 => "ECDSA P-256",
        KeyType::EcdsaP384 => "ECDSA P-384",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_that_is_none_is_found_out() {
        let nginx = Binary::find(None).unwrap();
        let checks = run(&nginx, Path::new("/usr/sbin/nginx"), &Lines::default());
        let text = serde_json::to_string(&checks).unwrap();
        assert!(text.contains("does not start"), "{text}");
        assert!(text.contains("missing"), "{text}");
    }
}
