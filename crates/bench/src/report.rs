//! The directory with the results of an experiment.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::Error;

/// Writes `rows.json` with all of `outcome`, and `files` by their names, into `directory`, which is
/// made if it is not there. Returns the files that were written.
///
/// # Errors
/// [`Error::Testbed`] when something cannot be written.
pub fn write(
    outcome: &impl Serialize,
    files: impl IntoIterator<Item = (String, String)>,
    directory: &Path,
) -> Result<Vec<PathBuf>, Error> {
    fs::create_dir_all(directory).map_err(Error::file("create", directory))?;
    let rows =
        serde_json::to_string_pretty(outcome).expect("plain numbers and text can be encoded");
    [("rows.json".to_owned(), rows)]
        .into_iter()
        .chain(files)
        .map(|(name, text)| {
            let path = directory.join(name);
            fs::write(&path, text).map_err(Error::file("write", &path))?;
            Ok(path)
        })
        .collect()
}
