//! The report: rows, and plots.

use std::path::{Path, PathBuf};

use super::Outcome;
use super::chart::draw_all;
use crate::{Error, report};

/// Writes `rows.json` and a file for each plot into `directory`, which is made if it is not there.
/// Returns the files that were written.
///
/// # Errors
/// [`Error::Testbed`] when something cannot be written, [`Error::Unsupported`] when a plot cannot
/// be drawn.
pub fn write(outcome: &Outcome, directory: &Path) -> Result<Vec<PathBuf>, Error> {
    report::write(outcome, draw_all(outcome)?, directory)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use slipstream_testbed::scratch::ScratchDirectory;

    use super::super::summary::tests::outcome;
    use super::*;

    #[test]
    fn rows_and_plots_are_written() {
        let scratch = ScratchDirectory::new().unwrap();
        let outcome = outcome();
        let written = write(&outcome, &scratch.file("results")).unwrap();
        let names: Vec<_> = written.iter().filter_map(|path| path.file_name()).collect();
        assert_eq!(names, ["rows.json", "rate.svg", "size.svg"]);
        let rows = fs::read_to_string(&written[0]).unwrap();
        let rows: serde_json::Value = serde_json::from_str(&rows).unwrap();
        assert_eq!(rows["rows"].as_array().unwrap().len(), outcome.rows.len());
    }
}
