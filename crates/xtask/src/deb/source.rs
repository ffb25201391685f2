//! The source package: the repository's files, and the crates that Cargo.lock names.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use super::Release;
use super::stage::PACKAGES;
use crate::build::{FEATURES, cargo, root};
use crate::process;

/// An unpacked source package.
pub(super) struct Source {
    pub(super) tree: PathBuf,
    /// Such as 0.2.0-1~deb13.
    pub(super) version: String,
}

/// Makes the two archives of a source package in a folder, and unpacks them there. Crates are
/// downloaded, if cargo does not have them yet.
pub(super) fn make(folder: &Path, release: &Release) -> Result<Source> {
    let upstream = env!("CARGO_PKG_VERSION");
    let tree = folder.join(format!("slipstream-{upstream}"));
    copy_repository(&tree)?;
    let version = set_version(&tree.join("debian/changelog"), release)?;
    let revision = version.strip_prefix(upstream);
    ensure!(
        revision.is_some_and(|revision| revision.starts_with('-')),
        "debian/changelog begins with version {version}, but Cargo.toml has {upstream}: add an entry"
    );
    process::run(
        cargo("vendor")
            .args(["--quiet", "--versioned-dirs"])
            .arg(tree.join("vendor")),
    )?;
    leave_out_others(&tree.join("vendor"))?;
    let date = process::output(
        Command::new("dpkg-parsechangelog")
            .args(["-S", "Timestamp"])
            .current_dir(&tree),
    )?;
    let archive = |name: &str| {
        let mut tar = Command::new("tar");
        tar.args([
            "--create",
            "--sort=name",
            "--format=gnu",
            "--owner=0",
            "--group=0",
        ])
        .args([
            "--numeric-owner",
            "--mode=u+rw,go=rX,a-s",
            "--use-compress-program=gzip -n",
        ])
        .arg(format!("--mtime=@{}", date.trim()))
        .arg(format!("--file=slipstream_{upstream}.{name}.tar.gz"))
        .current_dir(folder);
        tar
    };
    let name = format!("slipstream-{upstream}");
    process::run(
        archive("orig")
            .arg(format!("--exclude={name}/debian"))
            .arg(format!("--exclude={name}/vendor"))
            .arg(&name),
    )?;
    process::run(archive("orig-vendor").arg("-C").arg(&tree).arg("vendor"))?;
    Ok(Source { tree, version })
}

/// Copies the files that git has or would add.
fn copy_repository(to: &Path) -> Result<()> {
    let files = process::output(
        Command::new("git")
            .args([
                "ls-files",
                "-z",
                "--cached",
                "--others",
                "--exclude-standard",
            ])
            .current_dir(root()),
    )
    .context("a source package is made from a clone of the repository")?;
    for file in files.split('\0').filter(|file| !file.is_empty()) {
        let (from, to) = (root().join(file), to.join(file));
        if !from.is_file() {
            continue;
        }
        fs::create_dir_all(to.parent().context("a file has a folder")?)?;
        fs::copy(&from, &to).with_context(|| from.display().to_string())?;
    }
    Ok(())
}

/// A module fits the nginx of one release, so each release has a version of the packages.
fn set_version(changelog: &Path, release: &Release) -> Result<String> {
    let text = fs::read_to_string(changelog).with_context(|| changelog.display().to_string())?;
    let (first, rest) = text.split_once('\n').context("debian/changelog is empty")?;
    // slipstream (0.2.0-1) UNRELEASED; urgency=medium
    let Some((version, urgency)) = first
        .strip_prefix("slipstream (")
        .and_then(|line| line.split_once(") "))
        .and_then(|(version, line)| Some((version, line.split_once("; ")?.1)))
    else {
        bail!("the first line of debian/changelog is not understood: {first}");
    };
    let version = format!("{version}{}", release.suffix());
    let codename = &release.codename;
    fs::write(
        changelog,
        format!("slipstream ({version}) {codename}; {urgency}\n{rest}"),
    )?;
    Ok(version)
}

/// Empties crates that are not needed: for other systems, and for tests. Cargo wants to read the
/// manifest of every crate that Cargo.lock names, so these stay.
fn leave_out_others(vendor: &Path) -> Result<()> {
    let needed = needed()?;
    for folder in fs::read_dir(vendor)? {
        let folder = folder?;
        if needed.contains(&folder.file_name().to_string_lossy().into_owned()) {
            continue;
        }
        let folder = folder.path();
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            match entry.file_name().to_str() {
                Some("Cargo.toml" | ".cargo-checksum.json") => {}
                _ if entry.file_type()?.is_dir() => fs::remove_dir_all(entry.path())?,
                _ => fs::remove_file(entry.path())?,
            }
        }
        forget_files(&folder.join(".cargo-checksum.json"))?;
        // A manifest without any target is refused, and some name a file.
        let manifest = fs::read_to_string(folder.join("Cargo.toml"))?;
        for path in manifest
            .lines()
            .filter_map(|line| line.strip_prefix("path = \""))
        {
            let file = folder.join(path.trim_end_matches('"'));
            if let Some(parent) = file.parent() {
                fs::create_dir_all(parent)?;
            }
            fs::write(file, "")?;
        }
        fs::create_dir_all(folder.join("src"))?;
        fs::write(folder.join("src/lib.rs"), "")?;
    }
    Ok(())
}

/// Returns the folders, such as libc-0.2.191, of the crates that building for Linux needs.
fn needed() -> Result<BTreeSet<String>> {
    let mut tree = cargo("tree");
    tree.args([
        "--features",
        FEATURES,
        "--edges",
        "normal,build",
        "--prefix",
        "none",
    ])
    .args([
        "--target",
        "x86_64-unknown-linux-gnu",
        "-p",
        "slipstream-xtask",
    ]);
    for (_, name) in PACKAGES {
        tree.args(["-p", name]);
    }
    let folder = |line: &str| {
        let mut words = line.split_whitespace();
        let (name, version) = (words.next()?, words.next()?);
        Some(format!("{name}-{}", version.strip_prefix('v')?))
    };
    let tree = process::output(&mut tree)?;
    Ok(tree.lines().filter_map(folder).collect())
}

fn forget_files(checksums: &Path) -> Result<()> {
    let mut value: serde_json::Value = serde_json::from_str(&fs::read_to_string(checksums)?)?;
    value["files"] = serde_json::json!({});
    fs::write(checksums, value.to_string())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_names_the_release() {
        let file = std::env::temp_dir().join(format!("changelog-{}", std::process::id()));
        let rest = "\n  * Text.\n";
        let release = |codename: &str, number: Option<&str>| Release {
            codename: codename.to_owned(),
            number: number.map(str::to_owned),
        };
        let set = |release: &Release| {
            fs::write(
                &file,
                format!("slipstream (1.0-1) UNRELEASED; urgency=low\n{rest}"),
            )?;
            let version = set_version(&file, release)?;
            anyhow::Ok((version, fs::read_to_string(&file)?))
        };
        let (version, text) = set(&release("trixie", Some("13"))).expect("a changelog");
        assert_eq!(version, "1.0-1~deb13");
        assert_eq!(
            text,
            format!("slipstream (1.0-1~deb13) trixie; urgency=low\n{rest}")
        );
        let (version, _) = set(&release("sid", None)).expect("a changelog");
        assert_eq!(version, "1.0-1");
        fs::write(&file, "something else\n").unwrap();
        assert!(set_version(&file, &release("trixie", Some("13"))).is_err());
        fs::remove_file(file).unwrap();
    }
}
