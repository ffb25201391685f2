//! Checks of the machine: CPU, OpenSSL, provider, and limits.

use std::path::PathBuf;
use std::process::Command;

use slipstream_accelerators::lanes::Backend;
use slipstream_testbed::machine::Machine;

use super::findings::Check;

pub(super) fn cpu(machine: &Machine) -> Check {
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

pub(super) fn lanes(backend: Option<Backend>) -> Check {
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

pub(super) fn compression(implementation: &str) -> Check {
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

pub(super) fn openssl(number: i64, version: &str) -> Check {
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

/// Checks that OpenSSL's own command finds and loads the provider.
pub(super) fn provider() -> Check {
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

pub(super) fn descriptors(limit: Option<u64>) -> Check {
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

pub(super) fn locked_memory(limit: Option<u64>) -> Check {
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

const PROVIDER_FILE: &str = "slipstream.so";

/// The first version of OpenSSL with providers, as its library numbers it.
const OPENSSL_3: i64 = 0x3000_0000;

/// Descriptors that a worker with a thousand connections, proxied ones among them, needs.
const ENOUGH_DESCRIPTORS: u64 = 4096;

#[cfg(test)]
mod tests {
    use super::super::findings::Status;
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
    fn each_shortcoming_is_told_from_what_is_fine() {
        assert_eq!(lanes(Some(Backend::Ifma)).status, Status::Ok);
        assert_eq!(lanes(Some(Backend::Avx512)).status, Status::Note);
        assert_eq!(lanes(None).status, Status::Missing);
        assert_eq!(compression("igzip").status, Status::Ok);
        assert_eq!(compression("zlib-rs").status, Status::Note);
        assert_eq!(openssl(0x3000_0160, "OpenSSL 3.0.22").status, Status::Ok);
        assert_eq!(
            openssl(0x1010_1170, "OpenSSL 1.1.1w").status,
            Status::Missing
        );
        assert_eq!(descriptors(Some(1024)).status, Status::Note);
        assert_eq!(descriptors(None).status, Status::Ok);
    }
}
