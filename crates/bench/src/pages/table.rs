//! The outcome as text.

use std::fmt;

use super::{CLAIMS, Comparison, Outcome};
use crate::table::{BesidePaper, median, percentage, range, write_beside_paper};

impl fmt::Display for Outcome {
    /// The pages, the summary, what the paper claims beside it, and what went wrong.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "Pages from {}:", self.source.origin)?;
        for page in &self.source.pages {
            writeln!(
                formatter,
                "  {:<10} {:>9} bytes, {:.2}:1 at zlib level 1",
                page.page, page.bytes, page.zlib_1_ratio
            )?;
        }
        writeln!(
            formatter,
            "\n{:<4} {:<10} {:<17} {:>10} {:>9} {:>8} {:>6} {:>9} {:>7} {:>7} {:>7} {:>9} {:>7} {:>13} {:>7} {:>7}",
            "tls",
            "page",
            "config",
            "requests/s",
            "10,000 s",
            "CPU us",
            "ratio",
            "p50 us",
            "worker",
            "engine",
            "load",
            "offloaded",
            "req/s x",
            "(range)",
            "CPU x",
            "size x"
        )?;
        for line in &self.summary {
            write_line(formatter, line)?;
        }
        writeln!(
            formatter,
            "Ratios are medians of paired rounds, against sw: above 1 more requests per second (req/s x) and less worker CPU \
             per request (CPU x);\nsize x is the length of a response. 10,000 s: the time for 10,000 requests. worker: \
             its share of its core. engine, load: shares of the\nother core; near 100% together they were the limit. offloaded: the part of the chunks that \
             the engine compressed; the worker\ncompressed the rest."
        )?;
        write_beside_paper(formatter, self.claims())?;
        self.write_failures(formatter)
    }
}

impl Outcome {
    fn claims(&self) -> impl Iterator<Item = BesidePaper> {
        let measured = |claim| Some((claim, self.measured(claim)?));
        CLAIMS
            .iter()
            .filter_map(measured)
            .map(|(claim, here)| BesidePaper {
                subject: format!(
                    "{:<4} {:<10} {:<17} {:<26}",
                    claim.transport.name(),
                    claim.page,
                    claim.configuration.name(),
                    claim.measure.description(),
                ),
                here,
                paper: claim.paper,
                source: claim.source,
            })
    }

    fn write_failures(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for row in &self.rows {
            let what = format!(
                "round {}, {} with {} and tls {}",
                row.round, row.page, row.configuration, row.transport
            );
            if row.errors > 0 {
                writeln!(
                    formatter,
                    "FAILED: {} connections, {what}: {}",
                    row.errors,
                    row.first_error.as_deref().unwrap_or("unknown"),
                )?;
            }
            if !row.responses_per_s.is_finite() || row.responses_per_s <= 0.0 {
                writeln!(
                    formatter,
                    "NOTHING to compare: no response came to its end, {what}; measure for more --seconds"
                )?;
            }
        }
        Ok(())
    }
}

fn write_line(formatter: &mut fmt::Formatter<'_>, line: &Comparison) -> fmt::Result {
    writeln!(
        formatter,
        "{:<4} {:<10} {:<17} {:>10} {:>9} {:>8} {:>6} {:>9} {:>7} {:>7} {:>7} {:>9} {:>7} {:>13} {:>7} {:>7}",
        line.transport,
        line.page,
        line.configuration,
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
    )
}

#[cfg(test)]
mod tests {
    use super::super::summary::tests::everything;

    #[test]
    fn the_table_has_a_line_for_everything_and_the_claims() {
        let outcome = everything();
        let text = outcome.to_string();
        assert!(!text.contains("FAILED"), "{text}");
        assert!(!text.contains("NOTHING"), "{text}");
        let lines = text.lines().filter(|line| line.contains("pipelined+tls"));
        let claims = super::CLAIMS.iter();
        let claims = claims.filter(|claim| claim.configuration.name() == "pipelined+tls");
        assert_eq!(lines.count(), 2 * 6 + claims.count(), "{text}");
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
