//! The outcome as text.

use std::fmt;

use super::{CLAIMS, Comparison, Outcome};
use crate::table::{BesidePaper, median, percentage, range, write_beside_paper};

impl fmt::Display for Outcome {
    /// The summary, what the paper claims beside it, and what went wrong.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            formatter,
            "{:>3} {:<24} {:>7} {:>5} {:<10} {:>12} {:>8} {:>9} {:>9} {:>9} {:>9} {:>13} {:>15} {:>7}",
            "fig",
            "suite",
            "resumed",
            "conns",
            "config",
            "handshakes/s",
            "CPU us",
            "offloaded",
            "load core",
            "mean us",
            "p50 us",
            "handshakes x",
            "(range)",
            "mean x"
        )?;
        for line in &self.summary {
            write_line(formatter, line)?;
        }
        writeln!(
            formatter,
            "Device: {}. Ratios are medians of paired rounds, against SW and in figure 12 against QAT+AH; above 1 the \
             configuration is better\n(more handshakes per second, a shorter mean time). CPU us: the worker's per handshake. \
             offloaded: the part of the\noperations that went to the device; OpenSSL computed the rest. \
             load core: what load generator and engine took of theirs; near 100%\nthey were the limit.",
            self.device
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
                    "{:>3} {:<24} {:<20} {:<26}",
                    claim.figure.number(),
                    claim.load(),
                    format!("{} / {}", claim.configuration.name(), claim.against.name()),
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
                "figure {}, round {}, {} {} at {}",
                row.figure, row.round, row.configuration, row.suite, row.concurrency
            );
            if row.errors > 0 {
                writeln!(
                    formatter,
                    "FAILED: {} connections, {what}: {}",
                    row.errors,
                    row.first_error.as_deref().unwrap_or("unknown"),
                )?;
            }
            if row.handshakes == 0 {
                writeln!(
                    formatter,
                    "NOTHING to compare: no handshake was completed, {what}; measure for more --seconds"
                )?;
            }
        }
        Ok(())
    }
}

fn write_line(formatter: &mut fmt::Formatter<'_>, line: &Comparison) -> fmt::Result {
    writeln!(
        formatter,
        "{:>3} {:<24} {:>6}% {:>5} {:<10} {:>12} {:>8} {:>9} {:>9} {:>9} {:>9} {:>13} {:>15} {:>7}",
        line.figure,
        line.suite,
        line.resumed_percent,
        line.concurrency,
        line.configuration,
        median(line.handshakes_per_s, 0),
        median(line.server_cpu_us, 0),
        percentage(line.offloaded_share),
        percentage(line.load_core_share),
        median(line.mean_us, 0),
        median(line.p50_us, 0),
        median(line.handshakes_ratio, 2),
        range(line.handshakes_ratio),
        median(line.mean_ratio, 2),
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
        assert!(text.contains("90.0%"), "{text}");
        let lines = text
            .lines()
            .filter(|line| line.contains("tls12-rsakx"))
            .count();
        // Seven configurations in figure 7, four and three at seven concurrencies, and the claims for any concurrency.
        let claims = super::CLAIMS.iter();
        let claims = claims.filter(|claim| claim.load() == "tls12-rsakx").count();
        assert_eq!(lines, 7 + 4 * 7 + 3 * 7 + claims, "{text}");
        assert!(text.contains("QTLS / SW"), "{text}");
    }

    #[test]
    fn what_went_wrong_stands_below() {
        let mut outcome = everything();
        outcome.rows[0].errors = 2;
        outcome.rows[0].first_error = Some("handshake: reset".to_owned());
        outcome.rows[2].handshakes = 0;
        let text = outcome.to_string();
        assert!(text.contains("FAILED: 2 connections, figure 7"), "{text}");
        assert!(text.contains("handshake: reset"), "{text}");
        assert_eq!(text.matches("NOTHING to compare").count(), 1, "{text}");
    }
}
