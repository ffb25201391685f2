//! The files that debian/rules installs: it calls this while a package is built.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::{bom, notices};
use crate::build::{self, MODULE, PROVIDER, Product, root, target};
use crate::{nginx, process};

/// The crate that each binary package has, and the cargo features that it is built with.
pub(super) const PACKAGES: [(&str, &str); 3] = [
    ("slipstream", "slipstream-cli"),
    ("libnginx-mod-http-slipstream", "slipstream-nginx"),
    ("openssl-provider-slipstream", "slipstream-openssl-module"),
];

/// Files for systemd, and their names in the folder debian, as debhelper wants them.
const SYSTEMD: [(&str, &str); 4] = [
    (
        "slipstream-engine.service",
        "slipstream.slipstream-engine.service",
    ),
    (
        "slipstream-serve.service",
        "slipstream.slipstream-serve.service",
    ),
    (
        "slipstream-serve.socket",
        "slipstream.slipstream-serve.socket",
    ),
    ("slipstream.conf", "slipstream.sysusers"),
];

/// Builds the product against the nginx-dev that is installed, and puts everything that belongs
/// into packages into `target/package`.
pub(crate) fn stage() -> Result<()> {
    let tree = nginx::installed()?;
    build::product_for(&tree)?;
    let product = Product::expected(&tree);
    let folder = target().join("package");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder)?;
    copy(&product.module, &folder.join(MODULE))?;
    copy(&product.provider, &folder.join(PROVIDER))?;
    process::run(
        Command::new(&product.command)
            .arg("manual")
            .arg(folder.join("man")),
    )?;
    units(&folder.join("units"))?;
    let crates = bom::Crates::read()?;
    for (package, name) in PACKAGES {
        let folder = folder.join(package);
        fs::create_dir_all(&folder)?;
        fs::write(
            folder.join(format!("{package}.cdx.json")),
            bom::bill(&crates, name)?,
        )?;
        fs::write(folder.join("THIRD-PARTY"), notices::text(&crates, name)?)?;
    }
    Ok(())
}

/// The units of `make install` run a command in /usr/local, which packages must not touch.
fn units(folder: &Path) -> Result<()> {
    const LOCAL: &str = "/usr/local/bin/slipstream";
    fs::create_dir_all(folder)?;
    for (name, packaged) in SYSTEMD {
        let file: PathBuf = root().join("crates/cli/systemd").join(name);
        let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        ensure!(
            !name.ends_with(".service") || text.contains(LOCAL),
            "{} does not run {LOCAL}: change `units` in {}",
            file.display(),
            file!()
        );
        fs::write(
            folder.join(packaged),
            text.replace(LOCAL, "/usr/bin/slipstream"),
        )?;
    }
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::copy(from, to).with_context(|| format!("{} to {}", from.display(), to.display()))?;
    Ok(())
}
