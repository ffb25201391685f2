//! The outcome as text.

use std::fmt;

use super::{Comparison, Outcome, Row};
use crate::table::{Checked, Table, failures, median, number, percentage, range, text};

impl fmt::Display for Outcome {
    /// The pages, the measurements, and the failures.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            formatter,
            "{}\n{}{LEGEND}",
            self.source,
            self.table(|_| true)
        )?;
        for failure in self.failures() {
            writeln!(formatter, "{failure}")?;
        }
        Ok(())
    }
}

/// The meaning of the columns of [`Outcome::table`].
pub const LEGEND: &str = "\
Ratios are medians of paired rounds, against sw: above 1 more requests per second (req/s x) and less worker CPU
per request (CPU x); size x is the length of a response. 10,000 s: the time for 10,000 requests. worker: its share
of its core. engine, load: shares of the other core; near 100% together they were the limit. offloaded: the part
of the chunks that the engine compressed; the worker compressed the rest.
";

impl Outcome {
    /// A row for each comparison for which `is_wanted` is true.
    pub fn table(&self, is_wanted: impl Fn(&Comparison) -> bool) -> Table {
        let mut table = Table::new([
            text("tls"),
            text("page"),
            text("config"),
            number("requests/s"),
            number("10,000 s"),
            number("CPU us"),
            number("ratio"),
            number("p50 us"),
            number("worker"),
            number("engine"),
            number("load"),
            number("offloaded"),
            number("req/s x"),
            number("(range)"),
            number("CPU x"),
            number("size x"),
        ]);
        for line in self.summary.iter().filter(|line| is_wanted(line)) {
            table.add([
                line.transport.to_owned(),
                line.page.to_owned(),
                line.configuration.to_owned(),
                median(line.responses_per_s, 0),
                median(line.completion_s, 1),
                median(line.server_cpu_us, 0),
                median(line.compression_ratio, 2),
                median(line.p50_us, 0),
                percentage(line.server_share),
                percentage(line.engine_share),
                percentage(line.client_share),
                percentage(line.offloaded_share),
                median(line.responses_ratio, 2),
                range(line.responses_ratio),
                median(line.cpu_ratio, 2),
                median(line.size_ratio, 2),
            ]);
        }
        table
    }

    /// A line for each measurement that failed or has nothing to compare.
    pub fn failures(&self) -> Vec<String> {
        failures(self.rows.iter().map(|row: &Row| {
            Checked {
                place: format!(
                    "round {}, {} with {} and tls {}",
                    row.round, row.page, row.configuration, row.transport
                ),
                errors: row.errors,
                first_error: row.first_error.as_deref(),
                missing: (!row.responses_per_s.is_finite() || row.responses_per_s <= 0.0)
                    .then_some("response"),
            }
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::super::summary::tests::everything;

    #[test]
    fn the_table_has_a_line_for_everything() {
        let outcome = everything();
        let text = outcome.to_string();
        assert!(text.contains("Pages from a <test>:"), "{text}");
        assert!(!text.contains("FAILED"), "{text}");
        assert!(!text.contains("NOTHING"), "{text}");
        let lines = text.lines().filter(|line| line.contains("pipelined+tls"));
        assert_eq!(lines.count(), 2 * 6, "{text}");
    }

    #[test]
    fn what_went_wrong_stands_below() {
        let mut outcome = everything();
        outcome.rows[0].errors = 2;
        outcome.rows[0].first_error = Some("request: reset".to_owned());
        outcome.rows[2].responses_per_s = f64::NAN;
        let text = outcome.to_string();
        assert!(
            text.contains("FAILED: 2 connections, round 1, abc with sw"),
            "{text}"
        );
        assert!(text.contains("request: reset"), "{text}");
        assert_eq!(text.matches("NOTHING to compare").count(), 1, "{text}");
    }
}
