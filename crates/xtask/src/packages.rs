//! Debian packages, by name.

use std::process::Command;

use anyhow::{Result, bail};

use crate::process;

/// Packages that building needs: nginx itself, and the headers and tools for its module.
pub(crate) const BUILD: &[&str] = &[
    "nginx",
    "libssl-dev",
    "libpcre2-dev",
    "zlib1g-dev",
    // Debian's nginx since 1.30 asks it for the flags of the compiler.
    "dpkg-dev",
    "gcc",
    "make",
    "pkg-config",
    "clang",
    "libclang-dev",
    // igzip is built with these.
    "autoconf",
    "automake",
    "libtool",
    "nasm",
];

/// Packages that the demonstration uses beside those.
pub(crate) const DEMO: &[&str] = &["curl", "openssl"];

/// Clients, servers and tools of the tests and measurements.
pub(crate) const TEST: &[&str] = &[
    "apache2-utils",
    "chromium",
    "haproxy",
    "hitch",
    "libnginx-mod-http-lua",
    "libnginx-mod-mail",
    "libnginx-mod-stream",
    "nghttp2-client",
    "ngtcp2-client",
    "prometheus",
    "python3",
    "squid-openssl",
    "varnish",
    "valgrind",
    "libc6-dbg",
];

/// Makes root file systems of other releases.
pub(crate) const MATRIX: &[&str] = &["mmdebstrap"];

/// Packages that Debian packages are built with, beside those of [`BUILD`].
pub(crate) const DEB: &[&str] = &[
    "build-essential",
    "debhelper",
    "dpkg-dev",
    "fakeroot",
    "lintian",
    "nginx-dev",
];

/// Programs that `make deb` and its tests call.
pub(crate) const DEB_TOOLS: &[&str] = &["bubblewrap", "dpkg-dev", "git", "mmdebstrap"];

/// Programs that the tests of container images call beside those.
pub(crate) const CONTAINERS: &[&str] = &["buildah", "openssl"];

/// Installs those of `packages` that are missing.
pub(crate) fn install(packages: &[&str]) -> Result<()> {
    let missing: Vec<&str> = packages
        .iter()
        .copied()
        .filter(|package| !is_installed(package))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let names = missing.join(" ");
    if !is_root() {
        bail!("packages are missing; run this first:\n  sudo apt-get install {names}");
    }
    process::run(Command::new("apt-get").arg("update").arg("-q"))?;
    process::run(
        Command::new("apt-get")
            .args(["install", "-y", "-q", "--no-install-recommends"])
            .args(&missing)
            .env("DEBIAN_FRONTEND", "noninteractive"),
    )
}

fn is_installed(package: &str) -> bool {
    let status = Command::new("dpkg-query")
        .args(["-W", "-f", "${db:Status-Status}", package])
        .output();
    status.is_ok_and(|output| output.status.success() && output.stdout == b"installed")
}

/// Returns true if this process may install packages.
pub(crate) fn is_root() -> bool {
    process::output(Command::new("id").arg("-u")).is_ok_and(|id| id.trim() == "0")
}
