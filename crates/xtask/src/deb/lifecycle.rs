//! `make deb-test`: the packages are installed, upgraded, removed and purged in a root file system
//! that is thrown away. nginx serves before and after each step.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::files::Files;
use super::nginx::Nginx;
use super::{Release, built};
use crate::build::target;
use crate::process::{self, output};
use crate::root::Root;

/// The packages of a machine that serves, and what ours depend on.
const MACHINE: &[&str] = &[
    "nginx",
    "openssl",
    "ca-certificates",
    "systemd-standalone-sysusers",
];

const MODULE: &str = "libnginx-mod-http-slipstream";
const SWITCHED_ON: &str = "slipstream on;";

/// Tests the packages that `make deb` has built for a release.
///
/// # Errors
/// At the first step that does not leave the machine as it should be.
pub(super) fn test(release: &Release) -> Result<()> {
    let roots = target().join("deb/roots");
    let clean = roots.join(format!("{}-clean", release.codename));
    let clean = Root::make(&clean, &release.codename, MACHINE)?;
    let trial = Trial {
        root: clean.copy(&roots.join(format!("{}-trial", release.codename)))?,
    };
    let packages = built(&release.packages()).with_context(|| release.hint())?;
    let newer = newer(&packages, &release.folder().join("newer"))?;

    trial.serves("before anything is installed", "")?;
    let before = Files::below(&trial.root)?;

    trial.step("install", || trial.install_and_switch_on(&packages))?;
    let log = trial.serves("after the installation", "")?;
    ensure!(
        !log.contains("slipstream"),
        "the module says something although it is not switched on:\n{log}"
    );
    trial.accelerates("after it has been switched on")?;
    trial.no_other_nginx(release)?;

    trial.step("upgrade", || trial.upgrade_while_nginx_runs(&newer))?;
    trial.accelerates("after the upgrade")?;

    trial.step("remove", || trial.apt(&["remove"], &names(&packages)?))?;
    trial.serves("after the removal", "")?;
    trial.step("install again", || trial.install(&packages))?;
    trial.accelerates("after they have been installed again")?;

    trial.step("purge", || trial.apt(&["purge"], &names(&packages)?))?;
    trial.serves("after the purge", "")?;
    Files::below(&trial.root)?.must_equal(&before)?;

    trial.step("install and purge", || {
        trial.install(&packages)?;
        trial.apt(&["purge"], &names(&packages)?)
    })?;
    Files::below(&trial.root)?.must_equal(&before)?;
    trial.root.remove()?;
    println!("\nall steps have passed on {}", release.codename);
    Ok(())
}

struct Trial {
    root: Root,
}

impl Trial {
    fn step(&self, name: &str, step: impl FnOnce() -> Result<()>) -> Result<()> {
        println!("\n== {name}");
        step().with_context(|| format!("step: {name}"))
    }

    fn apt(&self, action: &[&str], arguments: &[String]) -> Result<()> {
        process::run(self.apt_command(action, &[]).args(arguments))
    }

    fn apt_command(&self, action: &[&str], folders: &[&Path]) -> Command {
        let mut command = self.root.command(&[], folders);
        command.args(["apt-get", "-y", "-q", "--no-install-recommends"]);
        command.args(action);
        command
    }

    fn install(&self, packages: &[PathBuf]) -> Result<()> {
        let folder = packages[0].parent().context("a file has a folder")?;
        process::run(self.apt_command(&["install"], &[folder]).args(packages))
    }

    /// The four steps of an operator: install the packages, add a line, reload nginx, and have
    /// `slipstream status` show that it works.
    fn install_and_switch_on(&self, packages: &[PathBuf]) -> Result<()> {
        let nginx = Nginx::start(&self.root, "")?;
        nginx.handshake()?;
        self.install(packages)?;
        nginx.add(SWITCHED_ON)?;
        nginx.reload()?;
        nginx.handshake()?;
        let mut status = self.root.command_on_this_machine();
        let shown = output(status.args(["slipstream", "status", "--json"]))?;
        let shown: serde_json::Value = serde_json::from_str(&shown)?;
        let process = &shown["processes"][0];
        ensure!(
            process["program"] == "nginx" && process["handshakes"]["total"].as_u64() > Some(0),
            "`slipstream status` does not show the handshake: {shown}"
        );
        nginx.stop()?;
        Ok(())
    }

    /// Makes a handshake with nginx; returns its error log.
    fn serves(&self, when: &str, line: &str) -> Result<String> {
        println!("\n== nginx {when}");
        let nginx = Nginx::start(&self.root, line)?;
        nginx
            .handshake()
            .with_context(|| format!("handshake {when}"))?;
        nginx.stop()
    }

    /// Switches the module on, and checks that a handshake ran on a fiber.
    fn accelerates(&self, when: &str) -> Result<()> {
        println!("\n== nginx {when}");
        let nginx = Nginx::start(&self.root, SWITCHED_ON)?;
        nginx.handshake()?;
        let handshakes = nginx.handshakes_on_fibers()?;
        ensure!(handshakes > 0, "{when} no handshake ran on a fiber");
        nginx.stop()?;
        Ok(())
    }

    /// A running nginx keeps the library that it has loaded, and serves on; a reload, which the
    /// package asks for, and a restart must work.
    fn upgrade_while_nginx_runs(&self, newer: &[PathBuf]) -> Result<()> {
        let nginx = Nginx::start(&self.root, SWITCHED_ON)?;
        nginx.handshake()?;
        self.install(newer)?;
        nginx.handshake().context("before the reload")?;
        nginx.reload()?;
        nginx.handshake().context("after the reload")?;
        // Asking is a handshake, too.
        let first = nginx.handshakes_on_fibers()?;
        let second = nginx.handshakes_on_fibers()?;
        ensure!(
            second > first,
            "after the reload no handshake runs on a fiber"
        );
        nginx.stop()?;
        Ok(())
    }

    /// An nginx that says it has another ABI cannot be installed beside the module.
    fn no_other_nginx(&self, release: &Release) -> Result<()> {
        println!("\n== nginx with another ABI");
        let dependencies = self.query(MODULE, "Depends")?;
        let abi = dependencies
            .split(", ")
            .find(|dependency| dependency.starts_with("nginx-abi-"))
            .with_context(|| format!("{MODULE} depends on no nginx-abi: {dependencies}"))?;
        let mut provider = None;
        for package in ["nginx", "nginx-common"] {
            if self.query(package, "Provides")?.contains(abi) {
                provider = Some(package);
            }
        }
        let provider = provider.with_context(|| format!("no package of nginx provides {abi}"))?;
        let folder = release.folder().join("other-nginx");
        let package = self.repack_installed(provider, &folder, |control| {
            control.replace(abi, "nginx-abi-9.9.9-1")
        })?;
        // apt would have to remove the module, which it is not allowed to.
        self.is_refused(&package, &folder, MODULE)?;
        // The other way round: a module of another release.
        let others = target().join("deb");
        for other in fs::read_dir(&others)? {
            let other = other?.path().join("packages");
            if other == release.packages() || !other.is_dir() {
                continue;
            }
            let files = built(&other)?;
            let module = files.iter().find(|file| {
                let name = file.file_name().unwrap_or_default();
                name.to_string_lossy().starts_with(MODULE)
            });
            if let Some(module) = module {
                self.is_refused(module, &other, "nginx-abi-")?;
            }
        }
        Ok(())
    }

    fn is_refused(&self, package: &Path, folder: &Path, reason: &str) -> Result<()> {
        let mut command = self.apt_command(&["install", "--no-remove", "--simulate"], &[folder]);
        let result = command.arg("--allow-downgrades").arg(package).output()?;
        let said = String::from_utf8_lossy(&result.stdout).into_owned()
            + &String::from_utf8_lossy(&result.stderr);
        ensure!(
            !result.status.success() && said.contains(reason),
            "apt installs {}, or refuses it for another reason than {reason}:\n{said}",
            package.display()
        );
        println!("refused: {}", package.display());
        Ok(())
    }

    fn query(&self, package: &str, field: &str) -> Result<String> {
        let format = format!("${{{field}}}");
        let mut command = self.root.command(&[], &[]);
        output(command.args(["dpkg-query", "-W", "-f", &format, package]))
    }

    /// Makes a package with another control file, and without content, of one that is installed.
    fn repack_installed(
        &self,
        package: &str,
        folder: &Path,
        change: impl FnOnce(&str) -> String,
    ) -> Result<PathBuf> {
        let mut command = self.root.command(&[], &[]);
        let status = output(command.args(["dpkg-query", "--status", package]))?;
        let version = self.query(package, "Version")?;
        let lines = status.lines().filter(|line| !line.starts_with("Status:"));
        // Files of /etc are listed with their checksums, in lines that begin with a blank.
        let mut in_conffiles = false;
        let mut control = String::new();
        for line in lines {
            in_conffiles = match line.starts_with(' ') {
                true => in_conffiles,
                false => line.starts_with("Conffiles:"),
            };
            if !in_conffiles {
                control += line;
                control += "\n";
            }
        }
        let control = change(&control).replace(
            &format!("Version: {version}"),
            &format!("Version: {version}+other"),
        );
        let tree = folder.join(package);
        fs::create_dir_all(tree.join("DEBIAN"))?;
        fs::write(tree.join("DEBIAN/control"), control)?;
        let file = folder.join(format!("{package}.deb"));
        process::run(
            Command::new("dpkg-deb")
                .args(["-b", "--root-owner-group"])
                .args([&tree, &file]),
        )?;
        Ok(file)
    }
}

/// Makes packages of the same content with a higher version.
fn newer(packages: &[PathBuf], folder: &Path) -> Result<Vec<PathBuf>> {
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    fs::create_dir_all(folder)?;
    let mut all = Vec::new();
    for package in packages {
        let name = field(package, "Package")?;
        let version = field(package, "Version")?;
        let tree = folder.join(&name);
        process::run(Command::new("dpkg-deb").arg("-R").args([package, &tree]))?;
        let control = tree.join("DEBIAN/control");
        let text = fs::read_to_string(&control)?;
        fs::write(
            &control,
            text.replace(&version, &format!("{version}+newer")),
        )?;
        let file = folder.join(format!("{name}.deb"));
        process::run(
            Command::new("dpkg-deb")
                .args(["-b", "--root-owner-group"])
                .args([&tree, &file]),
        )?;
        all.push(file);
    }
    Ok(all)
}

fn names(packages: &[PathBuf]) -> Result<Vec<String>> {
    packages
        .iter()
        .map(|package| field(package, "Package"))
        .collect()
}

fn field(package: &Path, field: &str) -> Result<String> {
    let value = output(Command::new("dpkg-deb").arg("-f").arg(package).arg(field))?;
    Ok(value.trim().to_owned())
}
