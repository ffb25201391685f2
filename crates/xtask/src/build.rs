//! Building the product, and checking its source.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::nginx::{self, Tree};
use crate::process;

/// The module's file name, as it is installed.
pub(crate) const MODULE: &str = "ngx_slipstream_module.so";

/// The loadable provider's file name, as it is installed.
pub(crate) const PROVIDER: &str = "slipstream.so";

/// Compression by igzip, in the command and in the module.
pub(crate) const FEATURES: &str = "slipstream-cli/igzip,slipstream-nginx/igzip";
const MODULE_FEATURES: &str = "slipstream-nginx/igzip";

/// The files that `make build` makes.
pub(crate) struct Product {
    pub(crate) command: PathBuf,
    pub(crate) provider: PathBuf,
    pub(crate) module: PathBuf,
}

impl Product {
    /// Returns the paths of the files, which need not exist yet.
    pub(crate) fn expected(tree: &Tree) -> Self {
        Self {
            command: target().join("release/slipstream"),
            provider: target().join("release").join(format!("lib{PROVIDER}")),
            module: tree.folder().join(MODULE),
        }
    }
}

/// The workspace's target folder.
pub(crate) fn target() -> PathBuf {
    root().join("target")
}

/// Builds the command, the loadable provider and the module for Debian's nginx.
pub(crate) fn product() -> Result<Product> {
    let tree = nginx::debian()?;
    product_for(&tree)?;
    Ok(Product::expected(&tree))
}

/// Runs the command that was built.
pub(crate) fn run_command(arguments: impl Iterator<Item = String>) -> Result<()> {
    process::run(Command::new(target().join("release/slipstream")).args(arguments))
}

/// Formatting and clippy.
pub(crate) fn lint() -> Result<()> {
    process::run(cargo("fmt").args(["--all", "--check"]))?;
    let deny = ["--", "-D", "warnings"];
    process::run(
        cargo("clippy")
            .args([
                "--workspace",
                "--exclude",
                "slipstream-nginx",
                "--all-targets",
                "--all-features",
            ])
            .args(deny),
    )?;
    let tree = nginx::debian()?;
    process::run(
        for_nginx(&mut cargo("clippy"), &tree)
            .args(["-p", "slipstream-nginx", "--features", MODULE_FEATURES])
            .args(deny),
    )
}

/// Builds the product with the module for one version of nginx, and puts the module into that
/// version's folder.
///
/// One invocation builds all of it, and always the same packages: cargo unifies the features of
/// dependencies over the packages that it is asked for, and would compile most of them anew for
/// another selection.
pub(crate) fn product_for(tree: &Tree) -> Result<()> {
    process::run(for_nginx(&mut cargo("build"), tree).args([
        "--release",
        "-p",
        "slipstream-cli",
        "-p",
        "slipstream-openssl-module",
        "-p",
        "slipstream-nginx",
        "--features",
        FEATURES,
    ]))?;
    let built = target().join("release").join(format!("lib{MODULE}"));
    let module = tree.folder().join(MODULE);
    fs::copy(&built, &module)
        .with_context(|| format!("{} to {}", built.display(), module.display()))?;
    Ok(())
}

/// Cargo generates the bindings anew when these change; everything below them is shared.
fn for_nginx<'a>(command: &'a mut Command, tree: &Tree) -> &'a mut Command {
    command
        .env("NGINX_SOURCE_DIR", &tree.source)
        .env("NGINX_BUILD_DIR", &tree.build)
}

/// The path of cargo.
pub(crate) fn cargo_program() -> &'static str {
    env!("CARGO")
}

/// A cargo command that works on the workspace.
pub(crate) fn cargo(subcommand: &str) -> Command {
    let mut command = Command::new(cargo_program());
    command
        .arg(subcommand)
        .arg("--locked")
        .current_dir(root())
        .env_remove("CARGO_TARGET_DIR");
    if subcommand == "fmt" {
        command = Command::new(cargo_program());
        command.arg("fmt").current_dir(root());
    }
    command
}

/// The workspace's folder.
pub(crate) fn root() -> &'static Path {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
    workspace.expect("this crate is two folders below the workspace")
}
