//! The summary as a table.

use std::fmt::{self, Formatter};

use super::{Comparison, Outcome, Row};
use crate::table::{Checked, Column, Table, failures, median, number, range, text};

impl fmt::Display for Outcome {
    /// The summary as a table, and the failed connections if there were any.
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        let shape = Shape::of(self);
        let mut table = Table::new(shape.columns());
        for line in &self.summary {
            table.add(shape.cells(line));
        }
        writeln!(formatter, "{table}{}", shape.legend(&self.summary))?;
        for failure in self.failures(&shape) {
            writeln!(formatter, "{failure}")?;
        }
        Ok(())
    }
}

impl Outcome {
    fn failures(&self, shape: &Shape) -> Vec<String> {
        failures(self.rows.iter().map(|row: &Row| Checked {
            place: format!(
                "round {}, {} {} at {}",
                row.round,
                shape.name(row.server, &row.mode),
                row.suite,
                row.concurrency
            ),
            errors: row.errors,
            first_error: row.first_error.as_deref(),
            missing: (row.handshakes == 0).then_some("handshake"),
        }))
    }
}

/// The names in a line: where there is one server only, its mode alone.
enum Shape {
    Modes,
    Servers,
}

impl Shape {
    fn of(outcome: &Outcome) -> Shape {
        let mut servers = outcome.rows.iter().map(|row| row.server);
        let first = servers.next();
        match servers.all(|server| Some(server) == first) {
            true => Shape::Modes,
            false => Shape::Servers,
        }
    }

    fn name(&self, server: &str, mode: &str) -> String {
        match self {
            Shape::Modes => mode.to_owned(),
            Shape::Servers => format!("{server} {mode}"),
        }
    }

    fn columns(&self) -> Vec<Column> {
        let (compared, cpu) = match self {
            Shape::Modes => (vec![text("mode")], "mode us"),
            Shape::Servers => (vec![text("server"), text("against")], "server us"),
        };
        let mut columns = vec![text("suite"), text("key exchange"), number("conns")];
        columns.extend(compared);
        columns.extend(["base us", cpu, "CPU x", "(range)", "handshakes x", "p50 x"].map(number));
        columns
    }

    fn cells(&self, line: &Comparison) -> Vec<String> {
        let mut cells = vec![
            line.suite.to_owned(),
            line.key_exchange.to_owned(),
            line.concurrency.to_string(),
            self.name(line.server, &line.mode),
        ];
        if let Shape::Servers = self {
            cells.push(self.name(line.baseline_server, &line.baseline));
        }
        cells.extend([
            median(line.baseline_server_cpu_us, 0),
            median(line.server_cpu_us, 0),
            median(line.server_cpu_ratio, 3),
            range(line.server_cpu_ratio),
            median(line.handshakes_ratio, 3),
            median(line.p50_ratio, 3),
        ]);
        cells
    }

    fn legend(&self, summary: &[Comparison]) -> String {
        let rounds = summary.first().map_or(0, |line| line.rounds);
        match self {
            Shape::Modes => format!(
                "base us, mode us: CPU time of the server per handshake. The ratios are medians of {rounds} paired \
                 rounds against {};\nabove 1 the mode is better (less CPU, more handshakes per second, lower median \
                 latency).",
                summary
                    .first()
                    .map_or("the first mode", |line| &line.baseline),
            ),
            Shape::Servers => format!(
                "base us, server us: CPU time per handshake of the server that is compared with, and of the one that \
                 is compared.\nThe ratios are medians of {rounds} paired rounds; above 1 the server is better than the \
                 one that it stands against\n(less CPU, more handshakes per second, lower median latency).",
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use slipstream_testbed::machine::Machine;

    use super::super::summary::summarize;
    use super::super::summary::tests::{AWS_LC, SERVE, SLIPSTREAM, STOCK, label, row};
    use super::*;

    fn outcome<const N: usize>(rows: Vec<Row>, labels: [(&'static str, &str); N]) -> Outcome {
        Outcome {
            machine: Machine::describe(None),
            versions: Vec::new(),
            summary: summarize(&rows, &labels.map(label)),
            rows,
        }
    }

    #[test]
    fn failures_stand_below_the_table() {
        let mut failing = row(STOCK, 1, 800.0, 1000.0);
        failing.errors = 3;
        failing.first_error = Some("handshake: reset".to_owned());
        let outcome = outcome(vec![failing], [STOCK]);
        assert_eq!(outcome.errors(), 3);
        let text = outcome.to_string();
        assert!(text.contains("FAILED: 3 connections"), "{text}");
        assert!(text.contains("handshake: reset"), "{text}");
    }

    #[test]
    fn a_window_without_handshakes_is_named() {
        let mut nothing = row(STOCK, 1, f64::INFINITY, 0.0);
        nothing.handshakes = 0;
        let rows = vec![nothing, row(SLIPSTREAM, 1, 400.0, 1500.0)];
        let text = outcome(rows, [STOCK, SLIPSTREAM]).to_string();
        assert!(text.contains("NOTHING to compare"), "{text}");
    }

    #[test]
    fn servers_are_named_only_where_there_are_several() {
        let modes = [
            row(STOCK, 1, 800.0, 1000.0),
            row(SLIPSTREAM, 1, 400.0, 1500.0),
        ];
        let text = outcome(modes.to_vec(), [STOCK, SLIPSTREAM]).to_string();
        assert!(!text.contains("nginx"), "{text}");
        assert!(text.contains("rounds against stock;"), "{text}");

        let servers = [
            row(STOCK, 1, 800.0, 1000.0),
            row(AWS_LC, 1, 600.0, 1500.0),
            row(SERVE, 1, 200.0, 3000.0),
        ];
        let text = outcome(servers.to_vec(), [STOCK, AWS_LC, SERVE]).to_string();
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        let lines: Vec<String> = text.lines().map(words).collect();
        for line in [
            "serve stock nginx stock 800 200 4.000 4.00..4.00",
            "serve stock serve-awslc stock 600 200 3.000 3.00..3.00",
        ] {
            assert!(lines.iter().any(|found| found.contains(line)), "{text}");
        }
    }
}
