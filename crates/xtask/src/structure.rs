//! The direction of dependencies: ARCHITECTURE.md's table of crates against `cargo metadata`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::build::root;
use crate::process;

/// Compares the crates that each crate uses with those that it may use by ARCHITECTURE.md.
///
/// # Errors
/// Names every difference, and the cure.
pub(crate) fn check() -> Result<()> {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).context("ARCHITECTURE.md")?;
    let metadata = process::output(
        Command::new(env!("CARGO"))
            .args(["metadata", "--format-version", "1", "--no-deps", "--locked"])
            .current_dir(root()),
    )?;
    let differences = differences(&permitted(&text)?, &used(&metadata)?);
    if !differences.is_empty() {
        bail!(
            "the crates' dependencies differ from the table in ARCHITECTURE.md:\n  {}",
            differences.join("\n  ")
        );
    }
    Ok(())
}

/// For each crate the crates that it uses, or may use.
type Edges = BTreeMap<String, BTreeSet<String>>;

/// The prefix of our crates' names.
const PREFIX: &str = "slipstream-";

/// The heading of the table's columns.
const HEADING: &str = "| crate | what it is | may use |";

/// Reads the table of crates.
fn permitted(text: &str) -> Result<Edges> {
    let mut lines = text.lines().skip_while(|line| *line != HEADING).skip(1);
    if lines.next().is_none() {
        bail!("ARCHITECTURE.md has no table that begins with \"{HEADING}\"");
    }
    let mut edges = Edges::new();
    for line in lines.take_while(|line| line.starts_with('|')) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [name, _, may_use] = cells[..] else {
            bail!("a row of ARCHITECTURE.md's table of crates does not have three cells: {line}");
        };
        let name = name.trim_matches('`').to_owned();
        let may_use = may_use
            .split(',')
            .map(str::trim)
            .filter(|name| *name != "-");
        let may_use = may_use.map(str::to_owned).collect();
        if edges.insert(name.clone(), may_use).is_some() {
            bail!("`{name}` is listed twice in ARCHITECTURE.md's table of crates");
        }
    }
    Ok(edges)
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    dependencies: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    kind: Option<String>,
}

/// Reads what `cargo metadata` prints. Dependencies of tests do not count.
fn used(metadata: &str) -> Result<Edges> {
    let metadata: Metadata = serde_json::from_str(metadata).context("cargo metadata")?;
    let short = |name: &str| name.strip_prefix(PREFIX).map(str::to_owned);
    Ok(metadata
        .packages
        .into_iter()
        .filter_map(|package| {
            let dependencies = package.dependencies.iter();
            let ours = dependencies
                .filter(|dependency| dependency.kind.as_deref() != Some("dev"))
                .filter_map(|dependency| short(&dependency.name));
            Some((short(&package.name)?, ours.collect()))
        })
        .collect())
}

/// Returns the cure for each difference.
fn differences(permitted: &Edges, used: &Edges) -> Vec<String> {
    let mut differences = Vec::new();
    for (name, uses) in used {
        let Some(may_use) = permitted.get(name) else {
            differences.push(format!("`{name}` is missing: add a row for it"));
            continue;
        };
        for used in uses.difference(may_use) {
            differences.push(format!(
                "`{name}` uses `{used}`, which its row does not permit: remove the dependency"
            ));
        }
        for unused in may_use.difference(uses) {
            differences.push(format!(
                "`{name}` does not use `{unused}`: remove that from its row"
            ));
        }
    }
    for name in permitted.keys().filter(|name| !used.contains_key(*name)) {
        differences.push(format!("there is no crate `{name}`: remove its row"));
    }
    differences
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
text
| crate | what it is | may use |
|---|---|---|
| `keys` | keys | - |
| `lanes` | kernels, \"x\" | keys |
| `nginx` | the module | keys, lanes |

| rule | reason |
";

    fn metadata(nginx_uses: &[(&str, Option<&str>)]) -> String {
        let dependencies: Vec<_> = nginx_uses
            .iter()
            .map(|(name, kind)| serde_json::json!({ "name": name, "kind": kind }))
            .collect();
        serde_json::json!({ "packages": [
            { "name": "slipstream-keys", "dependencies": [{ "name": "libc", "kind": null }] },
            { "name": "slipstream-lanes", "dependencies": [{ "name": "slipstream-keys", "kind": null }] },
            { "name": "slipstream-nginx", "dependencies": dependencies },
        ] })
        .to_string()
    }

    fn compare(nginx_uses: &[(&str, Option<&str>)]) -> Vec<String> {
        let permitted = permitted(TABLE).expect("a table");
        differences(&permitted, &used(&metadata(nginx_uses)).expect("metadata"))
    }

    #[test]
    fn the_table_is_what_cargo_says() {
        let all = [("slipstream-keys", None), ("slipstream-lanes", None)];
        assert!(compare(&all).is_empty());
    }

    #[test]
    fn an_edge_that_is_not_in_the_table_is_named() {
        let found = compare(&[
            ("slipstream-keys", None),
            ("slipstream-lanes", None),
            ("slipstream-terminator", None),
            ("slipstream-bench", Some("dev")),
        ]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(
            found[0].starts_with("`nginx` uses `terminator`"),
            "{found:?}"
        );
        let found = compare(&[("slipstream-keys", None)]);
        assert!(
            found[0].starts_with("`nginx` does not use `lanes`"),
            "{found:?}"
        );
    }

    #[test]
    fn crates_and_rows_belong_together() {
        let edges = |names: &[&str]| -> Edges {
            let pairs = names
                .iter()
                .map(|name| ((*name).to_owned(), BTreeSet::new()));
            pairs.collect()
        };
        let found = differences(&edges(&["old"]), &edges(&["new"]));
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(permitted("no table").is_err());
    }
}
