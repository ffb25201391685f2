//! Where results go.

use std::fs;
use std::path::Path;

use anyhow::Context;
use serde::Serialize;

/// Writes `value` as JSON to a file, or to standard output for `-`.
pub fn write_json(path: &Path, value: &impl Serialize) -> anyhow::Result<()> {
    let mut text = serde_json::to_string_pretty(value).context("cannot encode the result")?;
    text.push('\n');
    if path == Path::new("-") {
        print!("{text}");
        return Ok(());
    }
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// Whether standard output is kept for JSON, so that the table must go elsewhere.
pub fn is_standard_output(path: Option<&Path>) -> bool {
    path == Some(Path::new("-"))
}
