//! The summary as a table, beside the paper's.

use std::fmt::{self, Display, Formatter};

use super::{Outcome, Version};
use crate::table::{median, percentage, range};

impl Display for Outcome {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        writeln!(
            formatter,
            "{:<24} {:>5} {:<12} {:<12} {:>8} {:>8} {:>8} {:>8} {:>6} {:>6} {:>8} {:>13} {:>7} {:>13}",
            "suite",
            "conns",
            "TLS by",
            "against",
            "conns/s",
            "CPU us",
            "Squid us",
            "serve us",
            "core",
            "load",
            "conns x",
            "(range)",
            "CPU x",
            "(range)"
        )?;
        for line in &self.summary {
            writeln!(
                formatter,
                "{:<24} {:>5} {:<12} {:<12} {:>8} {:>8} {:>8} {:>8} {:>6} {:>6} {:>8} {:>13} {:>7} {:>13}",
                line.suite,
                line.concurrency,
                line.configuration,
                line.baseline,
                median(line.connections_per_s, 0),
                median(line.server_cpu_us, 0),
                median(line.squid_cpu_us, 0),
                median(line.serve_cpu_us, 0),
                percentage(line.server_share),
                percentage(line.client_share),
                median(line.connections_ratio, 2),
                range(line.connections_ratio),
                median(line.cpu_ratio, 2),
                range(line.cpu_ratio),
            )?;
        }
        writeln!(
            formatter,
            "CPU us: CPU time of all servers per connection. core, load: what servers and load took of their core each. The \
             ratios are medians\nof {} paired rounds; above 1 the configuration is better than what it stands against \
             (more connections per second, less CPU).\n",
            self.summary.first().map_or(0, |line| line.rounds),
        )?;
        write_paper(formatter, &self.paper)?;
        self.write_failures(formatter)
    }
}

impl Outcome {
    fn write_failures(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        for row in self.rows.iter().filter(|row| row.connections == 0) {
            writeln!(
                formatter,
                "NOTHING to compare: no handshake was completed in round {}, {} {} at {}; measure for more --seconds",
                row.round, row.configuration, row.suite, row.concurrency,
            )?;
        }
        for row in self.rows.iter().filter(|row| row.errors > 0) {
            writeln!(
                formatter,
                "FAILED: {} connections in round {}, {} {} at {}: {}",
                row.errors,
                row.round,
                row.configuration,
                row.suite,
                row.concurrency,
                row.first_error.as_deref().unwrap_or("unknown"),
            )?;
        }
        Ok(())
    }
}

/// The four rows of table 2, and what follows from them.
fn write_paper(formatter: &mut Formatter<'_>, paper: &[Version]) -> fmt::Result {
    writeln!(
        formatter,
        "The paper (Silicom 2016, table 2)\n{:<24} {:<12} {:>8} {:>6} {:>8} {:>7}",
        "Squid", "accelerated", "conns/s", "CPU", "conns x", "CPU x"
    )?;
    for version in paper {
        for (accelerated, rate, percent, ratios) in [
            (
                "no",
                version.connections_per_s,
                version.cpu_percent,
                (1.0, 1.0),
            ),
            (
                "yes",
                version.accelerated_connections_per_s,
                version.accelerated_cpu_percent,
                (version.connections_ratio(), version.cpu_ratio()),
            ),
        ] {
            writeln!(
                formatter,
                "{:<24} {accelerated:<12} {rate:>8.0} {percent:>5.0}% {:>8.2} {:>7.2}",
                version.squid, ratios.0, ratios.1
            )?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::summary::tests::everything;

    #[test]
    fn the_papers_rows_stand_below_ours() {
        let text = everything().to_string();
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        let lines: Vec<String> = text.lines().map(words).collect();
        for line in [
            "tls13-rsa2048 64 serve own 1875 600 200 400 99.0% 30.0% 2.50 2.50..2.50 2.50 2.50..2.50",
            "2.6.9 no 354 35% 1.00 1.00",
            "2.6.9 yes 1276 17% 3.60 7.42",
            "3.5.13 no 298 40% 1.00 1.00",
            "3.5.13 yes 1176 25% 3.95 6.31",
        ] {
            assert!(lines.iter().any(|found| found == line), "{line}:\n{text}");
        }
    }

    #[test]
    fn failures_and_empty_windows_stand_below_the_table() {
        let mut outcome = everything();
        outcome.rows[0].errors = 2;
        outcome.rows[0].first_error = Some("request: reset".to_owned());
        outcome.rows[1].connections = 0;
        let text = outcome.to_string();
        assert!(
            text.contains(
                "FAILED: 2 connections in round 1, own tls13-rsa2048 at 64: request: reset"
            ),
            "{text}"
        );
        assert_eq!(text.matches("NOTHING to compare").count(), 1, "{text}");
    }
}
