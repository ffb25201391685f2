//! `slipstream doctor`.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use clap::Args;
use rustix::process::{Resource, getrlimit};
use serde::Serialize;
use slipstream_accelerators::lanes::Backend;
use slipstream_compress::Method;
use slipstream_testbed::credentials::Credentials;
use slipstream_testbed::machine::{Machine, openssl_version_number};
use slipstream_testbed::nginx::{Binary, Listener, Server, ServerOptions, find_module};
use slipstream_testbed::output::write;
use slipstream_testbed::port::unused_address;
use slipstream_testbed::processor::usable_cores;
use slipstream_testbed::scratch::ScratchDirectory;
use slipstream_testbed::suite::KeyType;

const PROVIDER_FILE: &str = "slipstream.so";
/// The first version of OpenSSL with providers, as its library numbers it.
const OPENSSL_3: i64 = 0x3000_0000;
/// Descriptors that a worker with a thousand connections, proxied ones among them, needs.
const ENOUGH_DESCRIPTORS: u64 = 4096;

/// Show what this machine offers, what is missing, and what to do about it
///
/// Checks the CPU, OpenSSL, nginx, that the module fits this nginx (by a trial with a
/// temporary configuration), the provider, and the limits of this shell. Changes nothing.
///
/// Exits with 0 if everything is there and 1 if something is missing; notes do not count as
/// missing.
#[derive(Args)]
#[command(after_help = "Examples:
  slipstream doctor
  slipstream doctor --nginx /usr/local/sbin/nginx --module ./ngx_slipstream_module.so
  slipstream doctor --json -")]
pub struct Doctor {
    /// The nginx executable [default: the installed one]
    #[arg(long, value_name = "FILE")]
    nginx: Option<PathBuf>,
    /// The Slipstream module for it [default: the one built beside this program, else the installed
    /// one]
    #[arg(long, value_name = "FILE")]
    module: Option<PathBuf>,
    /// Write the findings to this file as JSON (- for standard output, without the list)
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Serialize)]
struct Findings {
    machine: Machine,
    checks: Vec<Check>,
}

#[derive(Serialize)]
struct Check {
    name: &'static str,
    status: Status,
    detail: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    cure: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
enum Status {
    /// There and working.
    Ok,
    /// Working, but not at its best.
    Note,
    /// Not there or not working.
    Missing,
}

impl Doctor {
    /// Runs the command.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        let nginx = Binary::find(self.nginx.as_deref());
        let machine = Machine::describe(nginx.as_ref().ok());
        let mut checks = vec![
            check_cpu(&machine),
            check_lanes(Backend::detect()),
            check_compression(Method::DEFAULT.implementation()),
            check_openssl(openssl_version_number(), machine.openssl),
        ];
        match &nginx {
            Ok(nginx) => {
                checks.push(check_nginx(nginx));
                checks.push(self.check_module(nginx));
            }
            Err(error) => checks.push(Check::missing(
                "nginx",
                error.to_string(),
                "apt-get install nginx, or name it with --nginx",
            )),
        }
        checks.push(check_provider());
        checks.push(check_descriptors(getrlimit(Resource::Nofile).current));
        checks.push(check_locked_memory(getrlimit(Resource::Memlock).current));

        let findings = Findings { machine, checks };
        write(self.json.as_deref(), &findings)?;
        Ok(findings.exit_code())
    }

    fn check_module(&self, nginx: &Binary) -> Check {
        const NAME: &str = "module";
        let path = match find_module(nginx, self.module.as_deref()) {
            Ok(path) => path,
            Err(error) => {
                return Check::missing(
                    NAME,
                    error.to_string(),
                    "make build (and make install), or name it with --module",
                );
            }
        };
        match try_module(nginx, &path) {
            Ok(()) => Check::ok(
                NAME,
                format!("{} loads in nginx {}", path.display(), nginx.version),
            ),
            Err(error) => Check::missing(
                NAME,
                format!("{} does not load: {error:#}", path.display()),
                "build it again for this nginx: make build",
            ),
        }
    }
}

impl Findings {
    fn exit_code(&self) -> ExitCode {
        if self
            .checks
            .iter()
            .any(|check| check.status == Status::Missing)
        {
            ExitCode::FAILURE
        } else {
            ExitCode::SUCCESS
        }
    }
}

impl fmt::Display for Findings {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for check in &self.checks {
            let status = match check.status {
                Status::Ok => "ok",
                Status::Note => "note",
                Status::Missing => "MISSING",
            };
            writeln!(formatter, "{status:<8} {:<12} {}", check.name, check.detail)?;
            if let Some(cure) = &check.cure {
                writeln!(formatter, "{:<21} -> {cure}", "")?;
            }
        }
        Ok(())
    }
}

impl Check {
    fn ok(name: &'static str, detail: impl Into<String>) -> Check {
        Check {
            name,
            status: Status::Ok,
            detail: detail.into(),
            cure: None,
        }
    }

    fn note(name: &'static str, detail: impl Into<String>, cure: impl Into<String>) -> Check {
        Check {
            name,
            status: Status::Note,
            detail: detail.into(),
            cure: Some(cure.into()),
        }
    }

    fn missing(name: &'static str, detail: impl Into<String>, cure: impl Into<String>) -> Check {
        Check {
            status: Status::Missing,
            ..Check::note(name, detail, cure)
        }
    }
}

fn check_cpu(machine: &Machine) -> Check {
    Check::ok(
        "cpu",
        format!(
            "{}, {} logical CPUs, kernel {}; {}",
            machine.cpu,
            machine.logical_cpus,
            machine.kernel,
            machine.features.join(" ")
        ),
    )
}

fn check_lanes(backend: Option<Backend>) -> Check {
    const NAME: &str = "lanes";
    match backend {
        Some(Backend::Ifma) => Check::ok(NAME, Backend::Ifma.name()),
        Some(other) => Check::note(
            NAME,
            format!("{}; this CPU lacks {}", other.name(), missing_features()),
            "lanes gain most on Ice Lake, Sapphire Rapids, Zen 4 and later",
        ),
        None => Check::missing(
            NAME,
            format!("this CPU lacks {}", missing_features()),
            "connections are served as without Slipstream; use a CPU with AVX-512",
        ),
    }
}

fn missing_features() -> String {
    let missing: Vec<&str> = Backend::Ifma.missing().collect();
    missing.join(" and ")
}

fn check_compression(implementation: &str) -> Check {
    const NAME: &str = "compression";
    match implementation {
        "igzip" => Check::ok(NAME, "gzip at levels 1 to 3 by igzip"),
        other => Check::note(
            NAME,
            format!(
                "gzip by {other}: this CPU is not one that igzip is fast on, or igzip is not built in"
            ),
            "none: responses are compressed, at about a third of the speed",
        ),
    }
}

fn check_openssl(number: i64, version: &str) -> Check {
    if number >= OPENSSL_3 {
        Check::ok("openssl", version)
    } else {
        Check::missing(
            "openssl",
            format!("{version} has no providers"),
            "use a system with OpenSSL 3.0 or newer",
        )
    }
}

fn check_nginx(nginx: &Binary) -> Check {
    const NAME: &str = "nginx";
    let detail = format!(
        "{} {} with {}",
        nginx.path.display(),
        nginx.version,
        nginx.openssl.as_deref().unwrap_or("no TLS library")
    );
    // Without --with-compat a module's signature has to name each of nginx's own options.
    for option in ["--with-http_ssl_module", "--with-compat"] {
        if !nginx.was_built_with(option) {
            return Check::missing(
                NAME,
                format!("{detail} was built without {option}"),
                "use the distribution's nginx (apt-get install nginx)",
            );
        }
    }
    Check::ok(NAME, detail)
}

/// Has nginx read a configuration that loads the module and uses it for a port.
fn try_module(nginx: &Binary, module: &Path) -> anyhow::Result<()> {
    let scratch = ScratchDirectory::new()?;
    let credentials = Credentials::generate(KeyType::Rsa2048, &scratch)?;
    let address = unused_address()?;
    Server::check(&ServerOptions {
        binary: nginx,
        module: Some(module),
        module_directives: "",
        worker_core: usable_cores()?[0],
        listeners: &[Listener {
            address,
            suite: None,
            credentials: &credentials,
        }],
    })?;
    Ok(())
}

/// Checks that OpenSSL's own command finds and loads the provider.
fn check_provider() -> Check {
    const NAME: &str = "provider";
    let Some(directory) = provider_directory() else {
        return Check::missing(
            NAME,
            "the command `openssl version -m` does not say where providers are",
            "apt-get install openssl",
        );
    };
    let path = directory.join(PROVIDER_FILE);
    if !path.is_file() {
        return Check::missing(
            NAME,
            format!("{} does not exist", path.display()),
            "make install (nginx does without it: the module brings its own)",
        );
    }
    let output = Command::new("openssl")
        .args(["list", "-providers", "-provider", "slipstream"])
        .output();
    match output {
        Ok(output) if output.status.success() => {
            Check::ok(NAME, format!("{} loads", path.display()))
        }
        Ok(output) => Check::missing(
            NAME,
            format!(
                "{} does not load: {}",
                path.display(),
                String::from_utf8_lossy(&output.stderr).trim()
            ),
            "build and install it again: make build, make install",
        ),
        Err(error) => Check::missing(
            NAME,
            format!("cannot run openssl: {error}"),
            "apt-get install openssl",
        ),
    }
}

fn provider_directory() -> Option<PathBuf> {
    let output = Command::new("openssl")
        .args(["version", "-m"])
        .output()
        .ok()?;
    parse_modules_directory(&String::from_utf8_lossy(&output.stdout))
}

/// The path in `MODULESDIR: "/usr/lib/x86_64-linux-gnu/ossl-modules"`.
fn parse_modules_directory(text: &str) -> Option<PathBuf> {
    let quoted = text.trim().strip_prefix("MODULESDIR: ")?;
    Some(PathBuf::from(quoted.trim_matches('"')))
}

fn check_descriptors(limit: Option<u64>) -> Check {
    const NAME: &str = "descriptors";
    match limit {
        Some(limit) if limit < ENOUGH_DESCRIPTORS => Check::note(
            NAME,
            format!("{limit} per process in this shell"),
            "raise it for nginx with worker_rlimit_nofile in nginx.conf, for benchmarks with ulimit -n",
        ),
        limit => Check::ok(
            NAME,
            format!("{} per process in this shell", describe(limit)),
        ),
    }
}

fn check_locked_memory(limit: Option<u64>) -> Check {
    Check::ok(
        "memlock",
        format!(
            "{} bytes of locked memory per process in this shell",
            describe(limit)
        ),
    )
}

fn describe(limit: Option<u64>) -> String {
    limit.map_or_else(|| "unlimited".to_owned(), |limit| limit.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_openssl_looks_for_providers_is_read() {
        assert_eq!(
            parse_modules_directory("MODULESDIR: \"/usr/lib/x86_64-linux-gnu/ossl-modules\"\n"),
            Some(PathBuf::from("/usr/lib/x86_64-linux-gnu/ossl-modules"))
        );
        assert_eq!(parse_modules_directory("OpenSSL 1.1.1"), None);
    }

    #[test]
    fn something_missing_makes_the_exit_code_and_a_note_does_not() {
        let findings = |checks| Findings {
            machine: Machine::describe(None),
            checks,
        };
        let note = || Check::note("a", "b", "do c");
        assert_eq!(findings(vec![note()]).exit_code(), ExitCode::SUCCESS);
        let missing = findings(vec![note(), Check::missing("d", "e", "do f")]);
        assert_eq!(missing.exit_code(), ExitCode::FAILURE);
        let text = missing.to_string();
        assert!(text.contains("MISSING  d"), "{text}");
        assert!(text.contains("-> do f"), "{text}");
    }

    #[test]
    fn each_shortcoming_is_told_from_what_is_fine() {
        assert_eq!(check_lanes(Some(Backend::Ifma)).status, Status::Ok);
        assert_eq!(check_lanes(Some(Backend::Avx512)).status, Status::Note);
        assert_eq!(check_lanes(None).status, Status::Missing);
        assert_eq!(check_compression("igzip").status, Status::Ok);
        assert_eq!(check_compression("zlib-rs").status, Status::Note);
        assert_eq!(
            check_openssl(0x3000_0160, "OpenSSL 3.0.22").status,
            Status::Ok
        );
        assert_eq!(
            check_openssl(0x1010_1170, "OpenSSL 1.1.1w").status,
            Status::Missing
        );
        assert_eq!(check_descriptors(Some(1024)).status, Status::Note);
        assert_eq!(check_descriptors(None).status, Status::Ok);
    }

    #[test]
    fn an_nginx_that_takes_no_modules_is_found_out() {
        let nginx = |arguments: &str| Binary {
            path: PathBuf::from("/usr/sbin/nginx"),
            version: "1.22.1".to_owned(),
            openssl: None,
            configure_arguments: arguments.to_owned(),
        };
        let both = "--with-compat --with-http_ssl_module";
        assert_eq!(check_nginx(&nginx(both)).status, Status::Ok);
        assert_eq!(check_nginx(&nginx("--with-compat")).status, Status::Missing);
        assert_eq!(
            check_nginx(&nginx("--with-http_ssl_module")).status,
            Status::Missing
        );
    }

    #[test]
    fn a_module_that_is_none_is_found_out() {
        let nginx = Binary::find(None).unwrap();
        let error = try_module(&nginx, Path::new("/usr/sbin/nginx")).unwrap_err();
        assert!(
            error.to_string().contains("refused its configuration"),
            "{error}"
        );
    }
}
