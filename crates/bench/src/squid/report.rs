//! The report: rows, and plots.

use std::path::{Path, PathBuf};

use super::Outcome;
use super::chart::{Plot, draw};
use crate::{Error, report};

/// Writes `rows.json` and a file for each plot into `directory`, which is made if it is not there. Returns what was
/// written.
///
/// # Errors
/// [`Error::Io`] when something cannot be written, [`Error::Unsupported`] when a plot cannot be drawn.
pub fn write(outcome: &Outcome, directory: &Path) -> Result<Vec<PathBuf>, Error> {
    let plots = Plot::ALL
        .into_iter()
        .map(|plot| Ok((plot.file_name().to_owned(), draw(outcome, plot)?)))
        .collect::<Result<Vec<_>, Error>>()?;
    report::write(outcome, plots, directory)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::summary::tests::everything;
    use super::*;
    use crate::scratch::ScratchDirectory;

    #[test]
    fn rows_and_plots_are_written() {
        let scratch = ScratchDirectory::new().unwrap();
        let outcome = everything();
        let written = write(&outcome, &scratch.file("results")).unwrap();
        assert_eq!(written.len(), 1 + Plot::ALL.len());
        let rows = fs::read_to_string(&written[0]).unwrap();
        let rows: serde_json::Value = serde_json::from_str(&rows).unwrap();
        assert_eq!(rows["rows"].as_array().unwrap().len(), outcome.rows.len());
        assert_eq!(rows["paper"].as_array().unwrap().len(), 2);
    }
}
