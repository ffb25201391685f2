//! Copies the build products to the places where Debian keeps such files.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::build::{MODULE, PROVIDER, Product, root};
use crate::{nginx, process};

/// The units for systemd: the engine, and the terminator with its sockets.
const UNITS: [&str; 3] = [
    "slipstream-engine.service",
    "slipstream-serve.service",
    "slipstream-serve.socket",
];
/// The dashboard and the alerts.
const MONITORING: [&str; 2] = ["grafana.json", "alerts.yml"];
/// The user of the terminator, for systemd-sysusers.
const USERS: &str = "slipstream.conf";

/// Installs module, provider, command and units, and prints the lines for nginx.conf.
pub(crate) fn install() -> Result<()> {
    let product = Product::expected(&nginx::debian()?);
    for file in [&product.command, &product.provider, &product.module] {
        if !file.is_file() {
            bail!(
                "{} is missing: run `make build` first, as a user who may use cargo",
                file.display()
            );
        }
    }
    let places = Places::find()?;
    copy(&product.module, &places.module, 0o644)?;
    copy(&product.provider, &places.provider, 0o644)?;
    copy(&product.command, &places.command, 0o755)?;
    let systemd = root().join("crates/cli/systemd");
    for (name, place) in UNITS.iter().zip(&places.units) {
        copy(&systemd.join(name), place, 0o644)?;
    }
    copy(&systemd.join(USERS), &places.users, 0o644)?;
    for (name, place) in MONITORING.iter().zip(&places.monitoring) {
        copy(&root().join("monitoring").join(name), place, 0o644)?;
    }
    println!(
        "\nAdd to the top of nginx.conf:\n  load_module modules/{MODULE};\nand inside its http block:\n  \
         slipstream on;\nthen check with `slipstream doctor` and `nginx -t`, and reload nginx.\n\n\
         For an engine that computes for several servers:\n  systemctl enable --now slipstream-engine\n\n\
         To terminate TLS for other servers, write /etc/slipstream/serve.toml (docs/src/guide/serve.md), then:\n  \
         systemd-sysusers {USERS} && systemctl enable --now slipstream-serve"
    );
    Ok(())
}

/// Removes the files that [`install`] has copied.
pub(crate) fn uninstall() -> Result<()> {
    let places = Places::find()?;
    let others = [
        &places.users,
        &places.command,
        &places.provider,
        &places.module,
    ];
    let several = places.units.iter().chain(&places.monitoring);
    for file in several.chain(others) {
        match fs::remove_file(file) {
            Ok(()) => println!("removed {}", file.display()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error).with_context(|| hint(file)),
        }
    }
    println!(
        "Remove `load_module` and `slipstream` lines from nginx.conf before nginx is reloaded."
    );
    Ok(())
}

struct Places {
    module: PathBuf,
    provider: PathBuf,
    command: PathBuf,
    units: [PathBuf; 3],
    monitoring: [PathBuf; 2],
    users: PathBuf,
}

impl Places {
    fn find() -> Result<Self> {
        let root = PathBuf::from(std::env::var_os("DESTDIR").unwrap_or_else(|| "/".into()));
        let below = |path: &str| root.join(path.trim_start_matches('/'));
        // Prints: MODULESDIR: "/usr/lib/x86_64-linux-gnu/ossl-modules"
        let line = process::output(Command::new("openssl").args(["version", "-m"]))?;
        let modules = line
            .split('"')
            .nth(1)
            .context("`openssl version -m` names no folder")?;
        Ok(Self {
            module: below("/usr/lib/nginx/modules").join(MODULE),
            provider: below(modules).join(PROVIDER),
            command: below("/usr/local/bin/slipstream"),
            units: UNITS.map(|name| below("/usr/local/lib/systemd/system").join(name)),
            monitoring: MONITORING
                .map(|name| below("/usr/local/share/slipstream/monitoring").join(name)),
            users: below("/usr/local/lib/sysusers.d").join(USERS),
        })
    }
}

/// The new file takes the place of the old one in one step: a running nginx may have it mapped.
fn copy(from: &Path, to: &Path, mode: u32) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let folder = to.parent().context("a file has a folder")?;
    let new = to.with_extension("new");
    fs::create_dir_all(folder).with_context(|| hint(to))?;
    fs::copy(from, &new).with_context(|| hint(to))?;
    fs::set_permissions(&new, fs::Permissions::from_mode(mode))?;
    fs::rename(&new, to).with_context(|| hint(to))?;
    println!("installed {}", to.display());
    Ok(())
}

fn hint(file: &Path) -> String {
    format!(
        "cannot change {}: run as root, or set DESTDIR",
        file.display()
    )
}
