//! Tables of results.

use std::fmt;

use crate::statistics::Spread;

/// A table: as text its columns are as wide as they have to be.
#[derive(Debug, Clone, Default)]
pub struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
}

/// A column of a table.
#[derive(Debug, Clone)]
pub struct Column {
    /// The text above it.
    pub heading: String,
    /// True if it is aligned to the right.
    pub is_number: bool,
}

/// A column of text.
pub fn text(heading: impl Into<String>) -> Column {
    Column {
        heading: heading.into(),
        is_number: false,
    }
}

/// A column of numbers.
pub fn number(heading: impl Into<String>) -> Column {
    Column {
        heading: heading.into(),
        is_number: true,
    }
}

impl Table {
    /// A table without rows.
    pub fn new(columns: impl IntoIterator<Item = Column>) -> Table {
        Table {
            columns: columns.into_iter().collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row.
    ///
    /// # Panics
    /// If it has another number of cells than the table has columns.
    pub fn add(&mut self, cells: impl IntoIterator<Item = String>) {
        let row: Vec<String> = cells.into_iter().collect();
        assert_eq!(row.len(), self.columns.len(), "a cell for each column");
        self.rows.push(row);
    }

    /// Its columns.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// Its rows.
    pub fn rows(&self) -> &[Vec<String>] {
        &self.rows
    }
}

impl fmt::Display for Table {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let length = |text: &String| text.chars().count();
        let widths: Vec<usize> = self
            .columns
            .iter()
            .enumerate()
            .map(|(index, column)| {
                let cells = self.rows.iter().map(|row| &row[index]);
                cells
                    .chain([&column.heading])
                    .map(length)
                    .max()
                    .unwrap_or(0)
            })
            .collect();
        let headings: Vec<String> = self
            .columns
            .iter()
            .map(|column| column.heading.clone())
            .collect();
        for row in [&headings].into_iter().chain(&self.rows) {
            let mut line = String::new();
            for ((column, cell), width) in self.columns.iter().zip(row).zip(&widths) {
                line.push_str(&match column.is_number {
                    true => format!("{cell:>width$} "),
                    false => format!("{cell:<width$} "),
                });
            }
            writeln!(formatter, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// The median, or a dash where nothing was measured.
pub fn median(spread: Option<Spread>, digits: usize) -> String {
    spread.map_or_else(
        || "-".to_owned(),
        |spread| format!("{:.digits$}", spread.median),
    )
}

/// A share in per cent, or a dash where there was nothing to share.
pub fn percentage(share: Option<Spread>) -> String {
    share.map_or_else(
        || "-".to_owned(),
        |share| format!("{:.1}%", share.median * 100.0),
    )
}

/// The range of a ratio, or a dash where nothing was measured.
pub fn range(spread: Option<Spread>) -> String {
    spread.map_or_else(
        || "-".to_owned(),
        |spread| format!("{:.2}..{:.2}", spread.min, spread.max),
    )
}

/// A measurement that is checked for failures.
#[derive(Debug)]
pub struct Checked<'a> {
    /// The measurement, in a few words.
    pub place: String,
    /// The number of connections that failed.
    pub errors: u64,
    /// The first failure.
    pub first_error: Option<&'a str>,
    /// The thing that was not completed even once, if so.
    pub missing: Option<&'static str>,
}

/// A line for each measurement in which connections failed or nothing was completed.
pub fn failures<'a>(rows: impl IntoIterator<Item = Checked<'a>>) -> Vec<String> {
    let mut lines = Vec::new();
    for row in rows {
        if row.errors > 0 {
            lines.push(format!(
                "FAILED: {} connections, {}: {}",
                row.errors,
                row.place,
                row.first_error.unwrap_or("unknown"),
            ));
        }
        if let Some(missing) = row.missing {
            lines.push(format!(
                "NOTHING to compare: no {missing} was completed, {}; measure for more --seconds",
                row.place
            ));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new([text("suite"), number("us"), text("x")]);
        table.add(["a".to_owned(), "1000".to_owned(), "-".to_owned()]);
        table.add(["long name".to_owned(), "7".to_owned(), String::new()]);
        assert_eq!(
            table.to_string(),
            "suite       us x\na         1000 -\nlong name    7\n"
        );
    }

    #[test]
    fn failures_and_empty_measurements_have_a_line_each() {
        let checked = |errors, missing| Checked {
            place: "round 1".to_owned(),
            errors,
            first_error: Some("reset"),
            missing,
        };
        let lines = failures([
            checked(0, None),
            checked(2, None),
            checked(0, Some("handshake")),
        ]);
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[0], "FAILED: 2 connections, round 1: reset");
        assert!(lines[1].starts_with("NOTHING to compare: no handshake was completed, round 1;"));
    }
}
