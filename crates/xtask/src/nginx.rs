//! nginx trees to build the module against. A module fits exactly one version of nginx.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::build::target;
use crate::process;

/// A configured source tree.
pub(crate) struct Tree {
    /// Such as 1.22.1.
    pub(crate) version: String,
    pub(crate) source: PathBuf,
    /// The `objs` folder.
    pub(crate) build: PathBuf,
}

impl Tree {
    /// Returns the folder for files about this version of nginx.
    pub(crate) fn folder(&self) -> PathBuf {
        folder(&self.version)
    }
}

/// The headers of the distribution's nginx, from Debian's nginx-dev package, which must be of the
/// version that is installed. The package is unpacked, not installed: that would bring in 36 more.
pub(crate) fn debian() -> Result<Tree> {
    let package =
        process::output(Command::new("dpkg-query").args(["-W", "-f", "${Version}", "nginx"]))?;
    let version = package.split('-').next().unwrap_or_default().to_owned();
    let folder = folder(&version);
    let source = folder.join("tree");
    let tree = Tree {
        version,
        build: source.join("objs"),
        source,
    };
    let stamp = folder.join("debian-version");
    let state = format!("{package} {ADDED_FLAGS}");
    if fs::read_to_string(&stamp).is_ok_and(|unpacked| unpacked == state) {
        return Ok(tree);
    }
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder)?;
    process::run(
        Command::new("apt-get")
            .args(["download", "-q", &format!("nginx-dev={package}")])
            .current_dir(&folder),
    )
    .with_context(|| {
        format!(
            "nginx-dev {package}, the version of the installed nginx, cannot be downloaded; update \
             nginx first: apt-get update && apt-get install nginx"
        )
    })?;
    let archive = fs::read_dir(&folder)?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .find(|path| path.extension().is_some_and(|extension| extension == "deb"))
        .context("apt-get has downloaded no package")?;
    process::run(
        Command::new("dpkg-deb")
            .arg("-x")
            .arg(&archive)
            .arg(folder.join("unpacked")),
    )?;
    fs::rename(folder.join("unpacked/usr/share/nginx/src"), &tree.source)?;
    configure(&tree.source)?;
    fs::write(stamp, state)?;
    Ok(tree)
}

/// Debian builds stream as a dynamic module, for which the flags of other modules need not say that
/// it exists. With these, its headers are among those that the bindings are made from.
const ADDED_FLAGS: &str = "--with-stream=dynamic --with-stream_ssl_module";

/// The headers of the nginx-dev that is installed, as it is where packages are built.
pub(crate) fn installed() -> Result<Tree> {
    const SOURCE: &str = "/usr/share/nginx/src";
    let package =
        process::output(Command::new("dpkg-query").args(["-W", "-f", "${Version}", "nginx-dev"]))?;
    let version = package.split('-').next().unwrap_or_default().to_owned();
    let folder = folder(&version);
    let source = folder.join("tree");
    fs::create_dir_all(&folder)?;
    if source.exists() {
        fs::remove_dir_all(&source)?;
    }
    process::run(Command::new("cp").args(["-rL", SOURCE]).arg(&source))?;
    configure(&source)?;
    Ok(Tree {
        version,
        build: source.join("objs"),
        source,
    })
}

/// Debian ships the flags of its build as a fragment of bash that sets an array.
fn configure(source: &Path) -> Result<()> {
    let script = format!(
        ". ./conf_flags && \
         exec bash ./configure \"${{NGX_CONF_FLAGS[@]}}\" {ADDED_FLAGS} > configure.log"
    );
    process::run(
        Command::new("bash")
            .args(["-c", &script])
            // Flags of a package's build are not those that nginx was built with.
            .env_remove("CFLAGS")
            .current_dir(source),
    )
    .with_context(|| format!("see {}", source.join("configure.log").display()))
}

/// nginx 1.28 as published by nginx, configured and built, the server included.
#[cfg(feature = "nginx-source")]
pub(crate) fn published() -> Result<Tree> {
    let version = "1.28.3".to_owned();
    let (source, build) = nginx_src::build(folder(&version).join("objs"))?;
    let tree = Tree {
        version,
        source,
        build,
    };
    anyhow::ensure!(
        tree.build.join("nginx").is_file(),
        "no nginx in {}",
        tree.build.display()
    );
    Ok(tree)
}

fn folder(version: &str) -> PathBuf {
    target().join("nginx").join(version)
}
