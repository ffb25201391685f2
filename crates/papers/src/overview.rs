//! The outcome of an experiment as text.

use std::fmt;

use slipstream_bench::table::Table;

/// The text for standard output.
#[derive(Debug, Clone, Default)]
pub struct Overview {
    /// Text above the measurements.
    pub preface: String,
    /// The measurements.
    pub measurements: Table,
    /// The meaning of their columns.
    pub legend: String,
    /// Tables below, each with a heading. One without rows is left out.
    pub tables: Vec<(&'static str, Table)>,
    /// A line for each measurement that failed.
    pub failures: Vec<String>,
}

impl fmt::Display for Overview {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            formatter,
            "{}{}{}",
            self.preface,
            self.measurements,
            self.legend.trim_end()
        )?;
        let shown = self
            .tables
            .iter()
            .filter(|(_, table)| !table.rows().is_empty());
        for (heading, table) in shown {
            write!(formatter, "\n{heading}:\n{table}")?;
        }
        for failure in &self.failures {
            writeln!(formatter, "{failure}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use slipstream_bench::table::number;

    use super::*;

    #[test]
    fn a_table_without_rows_is_left_out() {
        let mut full = Table::new([number("a")]);
        full.add(["1".to_owned()]);
        let overview = Overview {
            preface: "first\n".to_owned(),
            measurements: full.clone(),
            legend: "a: a number".to_owned(),
            tables: vec![("One", full), ("Two", Table::new([number("b")]))],
            failures: vec!["FAILED".to_owned()],
        };
        let text = overview.to_string();
        assert_eq!(text, "first\na\n1\na: a number\n\nOne:\na\n1\nFAILED\n");
    }
}
