//! `slipstream demo`.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use slipstream_bench::command::options;
use slipstream_bench::command::output;
use slipstream_bench::handshake::{Case, Experiment, Mode, System};
use slipstream_testbed::credentials::Credentials;
use slipstream_testbed::nginx::{Binary, Listener, Server, ServerOptions, find_module};
use slipstream_testbed::output::{print, write};
use slipstream_testbed::scratch::ScratchDirectory;
use slipstream_testbed::suite::{KeyType, SUITES, Suite};

use super::bench_handshake::print_progress;

const ROUNDS: usize = 5;
/// Both modes of three cases over five rounds: about half a minute with the warm-ups.
const WINDOW: Duration = Duration::from_millis(800);

/// Serve with the accelerated nginx, fetch a page, and measure the gain
///
/// Starts the installed nginx with the Slipstream module on https://127.0.0.1:8443 with a
/// throw-away key and certificate, fetches a page with curl over TLS 1.2 and 1.3, shows the
/// module's counters, then measures stock against Slipstream for about half a minute. Leaves
/// nothing behind.
#[derive(Args)]
#[command(after_help = "Examples:
  slipstream demo
  slipstream demo --port 9443")]
pub struct Demo {
    /// Port to serve on
    #[arg(long, default_value = "8443")]
    port: u16,
    /// The nginx executable [default: the installed one]
    #[arg(long, value_name = "FILE")]
    nginx: Option<PathBuf>,
    /// The Slipstream module for it [default: the one built beside this program, else the installed
    /// one]
    #[arg(long, value_name = "FILE")]
    module: Option<PathBuf>,
    /// Write machine, rows and summary of the measurement to this file as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

impl Demo {
    /// Runs the command.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        let nginx = Binary::find(self.nginx.as_deref())?;
        let module = find_module(&nginx, self.module.as_deref())?;
        let (server_core, load_core) = options::cores(None, None)?;

        self.serve_and_fetch(&nginx, &module, server_core)?;

        println!("\nStock nginx and Slipstream in turn, one worker each, full handshakes:");
        let outcome = Experiment {
            nginx: Some(nginx),
            module: Some(module),
            module_directives: String::new(),
            systems: vec![System::Nginx(Mode::Stock), System::Nginx(Mode::Slipstream)],
            cases: cases()?,
            window: WINDOW,
            rounds: ROUNDS,
            server_core,
            load_core,
        }
        .run(print_progress)?;
        print(&format_args!(
            "\n{}; {}\n{}; load generator with {}\n\n",
            outcome.machine.cpu,
            outcome.machine.features.join(" "),
            outcome.machine.nginx.as_deref().unwrap_or("nginx"),
            outcome.machine.openssl
        ))?;
        write(self.json.as_deref(), &outcome)?;
        Ok(output::exit_code(outcome.errors()))
    }

    fn serve_and_fetch(
        &self,
        nginx: &Binary,
        module: &Path,
        server_core: usize,
    ) -> anyhow::Result<()> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port));
        // nginx would try for seconds before it gave up on a port that is taken.
        TcpListener::bind(address).with_context(|| {
            format!("cannot serve on {address}; stop what listens there, or choose another --port")
        })?;
        let scratch = ScratchDirectory::new()?;
        let credentials = Credentials::generate(KeyType::Rsa2048, &scratch)?;
        let server = Server::start(&ServerOptions {
            binary: nginx,
            module: Some(module),
            module_directives: "",
            worker_core: server_core,
            listeners: &[Listener {
                address,
                suite: None,
                credentials: &credentials,
            }],
        })?;
        println!(
            "nginx {} serves on https://{address} with {}",
            nginx.version,
            module.display()
        );

        let fetches: [&[&str]; 3] = [
            &["--tlsv1.3"],
            &[
                "--tls-max",
                "1.2",
                "--ciphers",
                "ECDHE-RSA-AES128-GCM-SHA256",
            ],
            &["--tls-max", "1.2", "--ciphers", "AES128-GCM-SHA256"],
        ];
        for options in fetches {
            let page = fetch(&credentials.certificate, address, "/", options)?;
            println!(
                "curl {}: {} - {:?}",
                options.join(" "),
                page.negotiated,
                page.body.trim_end()
            );
        }
        let status = fetch(&credentials.certificate, address, "/slipstream", &[])?;
        println!("counters of the module (location /slipstream), those above 0:");
        for line in status.body.lines().filter(|line| counts(line)) {
            println!("  {line}");
        }
        let log = server.log();
        if !log.is_empty() {
            println!("nginx's log:\n{log}");
        }
        Ok(())
    }
}

struct Page {
    negotiated: String,
    body: String,
}

fn fetch(
    certificate: &Path,
    address: SocketAddr,
    path: &str,
    options: &[&str],
) -> anyhow::Result<Page> {
    // --disable: no ~/.curlrc; --noproxy: the environment may name a proxy.
    let output = Command::new("curl")
        .args([
            "--disable",
            "--noproxy",
            "*",
            "--silent",
            "--show-error",
            "--verbose",
            "--fail",
        ])
        .args(["--max-time", "10", "--cacert"])
        .arg(certificate)
        .args(options)
        .arg(format!("https://{address}{path}"))
        .output()
        .context("cannot run curl (apt-get install curl)")?;
    let log = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        bail!(
            "curl could not fetch https://{address}{path} ({}):\n{log}",
            output.status
        );
    }
    let negotiated = log
        .lines()
        .find_map(|line| line.split_once("SSL connection using "))
        .map_or("unknown protocol", |(_, negotiated)| negotiated.trim());
    Ok(Page {
        negotiated: negotiated.to_owned(),
        body: String::from_utf8_lossy(&output.stdout).into_owned(),
    })
}

/// Returns true if a line of Prometheus text is a sample other than 0.
fn counts(line: &str) -> bool {
    !line.starts_with('#')
        && line
            .rsplit_once(' ')
            .and_then(|(_, value)| value.parse::<f64>().ok())
            .is_some_and(|value| value != 0.0)
}

fn cases() -> anyhow::Result<Vec<Case>> {
    let suite = |name: &str| -> anyhow::Result<&'static Suite> {
        Suite::find(name).with_context(|| format!("no suite {name} among {}", SUITES.len()))
    };
    Ok(vec![
        Case {
            suite: suite("tls13-rsa2048")?,
            concurrency: 64,
        },
        Case {
            suite: suite("tls12-rsakx")?,
            concurrency: 64,
        },
        Case {
            suite: suite("tls13-rsa2048")?,
            concurrency: 1,
        },
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_above_zero_are_shown() {
        assert!(counts("slipstream_batches_total{class=\"asym\"} 3"));
        assert!(!counts("slipstream_orphans 0"));
        assert!(!counts("# TYPE slipstream_orphans gauge"));
        assert!(!counts(""));
    }

    #[test]
    fn the_suites_of_the_demo_exist() {
        assert_eq!(cases().unwrap().len(), 3);
    }
}
