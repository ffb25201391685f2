//! The notices of crates that are part of a program: their licences ask for it.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::bom::Crates;

const BEGINNINGS: [&str; 4] = ["license", "copying", "notice", "copyright"];

/// Returns the texts that come with the crates of the program that the crate `name` makes. A text
/// that several crates have is there once.
pub(super) fn text(crates: &Crates, name: &str) -> Result<String> {
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut all = format!("Crates of others that are part of {name}\n\n");
    for ((name, version), facts) in crates.of_others(name)? {
        let licence = facts.license.as_deref().unwrap_or("see below");
        writeln!(all, "{name} {version}: {licence}")?;
        let folder = facts
            .manifest_path
            .parent()
            .context("a file has a folder")?;
        for text in notices(folder)? {
            texts.entry(text).or_default().push(name.clone());
        }
    }
    for (text, mut names) in texts {
        names.dedup();
        write!(
            all,
            "\n{}\n{}\n\n{}\n",
            "-".repeat(80),
            names.join(", "),
            text
        )?;
    }
    Ok(all)
}

fn notices(folder: &Path) -> Result<Vec<String>> {
    let mut files: Vec<_> = fs::read_dir(folder)
        .with_context(|| folder.display().to_string())?
        .collect::<std::io::Result<_>>()?;
    files.sort_by_key(fs::DirEntry::file_name);
    let mut texts = Vec::new();
    for file in files {
        let name = file.file_name().to_string_lossy().to_lowercase();
        if BEGINNINGS
            .iter()
            .any(|beginning| name.starts_with(beginning))
            && file.path().is_file()
        {
            let text = fs::read(file.path())?;
            texts.push(String::from_utf8_lossy(&text).trim_end().to_owned());
        }
    }
    Ok(texts)
}
