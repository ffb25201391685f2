//! The bill of materials of a package: the crates in its program, as CycloneDX.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::{Value, json};

use super::stage::PACKAGES;
use crate::build::{FEATURES, cargo, root};
use crate::process;

/// Name and version.
pub(super) type Id = (String, String);

/// The crates of the workspace and all crates that they use.
pub(super) struct Crates {
    facts: BTreeMap<Id, Facts>,
    /// The crates in the program of each package, with those that each of them uses.
    programs: BTreeMap<String, BTreeMap<Id, BTreeSet<Id>>>,
    checksums: BTreeMap<Id, String>,
    compiler: String,
}

/// Facts about a crate, as `cargo metadata` gives them.
#[derive(Deserialize)]
pub(super) struct Facts {
    name: String,
    version: String,
    pub(super) license: Option<String>,
    /// Absent for the crates of this workspace.
    pub(super) source: Option<String>,
    pub(super) manifest_path: PathBuf,
}

impl Crates {
    /// Asks cargo, without a network.
    pub(super) fn read() -> Result<Self> {
        #[derive(Deserialize)]
        struct Metadata {
            packages: Vec<Facts>,
        }
        let metadata = process::output(cargo("metadata").args([
            "--offline",
            "--all-features",
            "--format-version",
            "1",
        ]))?;
        let metadata: Metadata = serde_json::from_str(&metadata).context("cargo metadata")?;
        let facts = metadata.packages.into_iter();
        let mut tree = cargo("tree");
        tree.args(["--offline", "--features", FEATURES, "--no-dedupe"])
            .args(["--edges", "normal,no-proc-macro", "--prefix", "depth"])
            .args(["--target", "x86_64-unknown-linux-gnu", "--format", " {p}"]);
        for (_, name) in PACKAGES {
            tree.args(["-p", name]);
        }
        Ok(Self {
            facts: facts
                .map(|facts| ((facts.name.clone(), facts.version.clone()), facts))
                .collect(),
            programs: programs(&process::output(&mut tree)?)?,
            checksums: checksums(&fs::read_to_string(root().join("Cargo.lock"))?),
            compiler: process::output(Command::new("rustc").arg("--version"))?,
        })
    }

    /// Returns the crates of a program, each with those that it uses; the program is one of them.
    fn program(&self, name: &str) -> Result<&BTreeMap<Id, BTreeSet<Id>>> {
        let program = self.programs.get(name);
        program.with_context(|| format!("`cargo tree` does not list {name}"))
    }

    /// Returns the crates of a program that others have written.
    pub(super) fn of_others(&self, name: &str) -> Result<Vec<(&Id, &Facts)>> {
        let mut others = Vec::new();
        for id in self.program(name)?.keys() {
            let facts = self.facts(id)?;
            if facts.source.is_some() {
                others.push((id, facts));
            }
        }
        Ok(others)
    }

    fn facts(&self, id: &Id) -> Result<&Facts> {
        let facts = self.facts.get(id);
        facts.with_context(|| format!("`cargo metadata` does not list {} {}", id.0, id.1))
    }

    fn component(&self, id: &Id) -> Result<Value> {
        let facts = self.facts(id)?;
        let mut component = json!({
            "type": "library",
            "bom-ref": reference(id),
            "name": id.0,
            "version": id.1,
            "purl": reference(id),
        });
        if let Some(license) = &facts.license {
            // "MIT/Apache-2.0" is how crates said "MIT OR Apache-2.0" before SPDX had a say.
            component["licenses"] = json!([{ "expression": license.replace('/', " OR ") }]);
        }
        if let Some(checksum) = self.checksums.get(id) {
            component["hashes"] = json!([{ "alg": "SHA-256", "content": checksum }]);
        }
        Ok(component)
    }
}

/// Returns the bill of materials of the program that the crate `name` makes. It has neither a date
/// nor a serial number, so that the same source makes the same bytes.
pub(super) fn bill(crates: &Crates, name: &str) -> Result<String> {
    let program = crates.program(name)?;
    let id = program.keys().find(|id| id.0 == name);
    let id = id.with_context(|| format!("{name} is not part of itself"))?;
    let mut subject = crates.component(id)?;
    subject["type"] = json!("application");
    let mut components = Vec::new();
    for other in program.keys().filter(|other| *other != id) {
        components.push(crates.component(other)?);
    }
    // rustc 1.95.0 (59807616e 2026-04-14)
    let version = crates.compiler.split_whitespace().nth(1);
    let version = version.context("`rustc --version` names no version")?;
    components.push(json!({
        "type": "library",
        "bom-ref": format!("rust-std@{version}"),
        "name": "rust-std",
        "version": version,
        "description": "Rust's standard library",
        "licenses": [{ "expression": "MIT OR Apache-2.0" }],
    }));
    let dependencies: Vec<Value> = program
        .iter()
        .map(|(id, uses)| {
            let uses: Vec<String> = uses.iter().map(reference).collect();
            json!({ "ref": reference(id), "dependsOn": uses })
        })
        .collect();
    let bill = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": { "component": subject },
        "components": components,
        "dependencies": dependencies,
    });
    Ok(serde_json::to_string_pretty(&bill)? + "\n")
}

fn reference((name, version): &Id) -> String {
    format!("pkg:cargo/{name}@{}", version.replace('+', "%2B"))
}

/// Reads lines such as "1 libc v0.2.191" of `cargo tree`: a depth, a name, a version.
fn programs(tree: &str) -> Result<BTreeMap<String, BTreeMap<Id, BTreeSet<Id>>>> {
    let mut programs = BTreeMap::new();
    let mut path: Vec<Id> = Vec::new();
    for line in tree.lines().filter(|line| !line.is_empty()) {
        let mut words = line.split_whitespace();
        let (depth, name, version) = (words.next(), words.next(), words.next());
        let depth: Option<usize> = depth.and_then(|depth| depth.parse().ok());
        let version = version.and_then(|version| version.strip_prefix('v'));
        let (Some(depth), Some(name), Some(version)) = (depth, name, version) else {
            anyhow::bail!("`cargo tree` has printed a line that is not understood: {line}");
        };
        ensure!(depth <= path.len(), "a depth is left out before: {line}");
        path.truncate(depth);
        let id = (name.to_owned(), version.to_owned());
        path.push(id.clone());
        let program: &mut BTreeMap<Id, BTreeSet<Id>> =
            programs.entry(path[0].0.clone()).or_default();
        program.entry(id.clone()).or_default();
        if let [.., user, _] = &path[..] {
            program.entry(user.clone()).or_default().insert(id);
        }
    }
    Ok(programs)
}

/// Reads the checksums of Cargo.lock.
fn checksums(lock: &str) -> BTreeMap<Id, String> {
    let value = |block: &str, key: &str| {
        let line = block.lines().find_map(|line| line.strip_prefix(key));
        line.and_then(|line| Some(line.strip_prefix(" = \"")?.strip_suffix('"')?.to_owned()))
    };
    lock.split("[[package]]")
        .filter_map(|block| {
            let id = (value(block, "name")?, value(block, "version")?);
            Some((id, value(block, "checksum")?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(name: &str, version: &str) -> Id {
        (name.to_owned(), version.to_owned())
    }

    #[test]
    fn a_program_has_what_its_crates_use() {
        let tree = "0 first v0.2.0 (/source)\n1 a v1.0.0\n2 b v2.0.0\n1 b v2.0.0\n\n0 second v0.2.0\n1 c v3.0.0\n";
        let programs = programs(tree).expect("a tree");
        let first = &programs["first"];
        assert_eq!(first[&id("a", "1.0.0")], [id("b", "2.0.0")].into());
        assert_eq!(
            first[&id("first", "0.2.0")],
            [id("a", "1.0.0"), id("b", "2.0.0")].into()
        );
        assert!(!first.contains_key(&id("c", "3.0.0")));
        assert!(programs["second"].contains_key(&id("c", "3.0.0")));
        assert!(super::programs("1 a v1.0.0").is_err());
        assert!(super::programs("0 a").is_err());
    }

    #[test]
    fn checksums_belong_to_name_and_version() {
        let lock = "version = 4\n\n[[package]]\nname = \"a\"\nversion = \"1.0.0\"\nchecksum = \"12\"\n\n\
                    [[package]]\nname = \"ours\"\nversion = \"0.2.0\"\n";
        let expected = [(id("a", "1.0.0"), "12".to_owned())];
        assert_eq!(checksums(lock), expected.into());
    }

    #[test]
    fn every_program_has_a_bill() {
        let crates = Crates::read().expect("cargo");
        for (_, name) in PACKAGES {
            let bill: Value = serde_json::from_str(&bill(&crates, name).expect("a bill")).unwrap();
            assert_eq!(bill["metadata"]["component"]["name"], name);
            let components = bill["components"].as_array().expect("components");
            let libc = components
                .iter()
                .find(|component| component["name"] == "libc");
            let libc = libc.expect("each program uses libc");
            assert_eq!(
                libc["hashes"][0]["content"].as_str().map(str::len),
                Some(64)
            );
            assert_eq!(libc["licenses"][0]["expression"], "MIT OR Apache-2.0");
        }
    }
}
