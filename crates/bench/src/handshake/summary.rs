//! What the measurements of a handshake experiment come to.

use std::fmt;

use serde::Serialize;

use super::Row;
use crate::machine::Machine;
use crate::statistics::Spread;
use crate::suite::{Group, Suite};

/// One mode against the first, over all rounds.
#[derive(Debug, Clone, Serialize)]
pub struct Comparison {
    /// The suite's name.
    pub suite: &'static str,
    /// The group of its key exchange, or RSA.
    pub key_exchange: &'static str,
    /// Connections at work at a time.
    pub concurrency: usize,
    /// What is compared with.
    pub baseline: String,
    /// What is compared.
    pub mode: String,
    /// How many pairs there are.
    pub rounds: usize,
    /// Worker CPU per handshake of the baseline, in microseconds.
    pub baseline_server_cpu_us: Option<Spread>,
    /// Worker CPU per handshake of the mode, in microseconds.
    pub server_cpu_us: Option<Spread>,
    /// Worker CPU per handshake, baseline / mode: above 1, the mode needs less.
    pub server_cpu_ratio: Option<Spread>,
    /// Handshakes per second, mode / baseline: above 1, the mode serves more.
    pub handshakes_ratio: Option<Spread>,
    /// Median latency, baseline / mode: above 1, the mode answers faster.
    pub p50_ratio: Option<Spread>,
}

/// All that an experiment found.
#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    /// Where it was measured.
    pub machine: Machine,
    /// Every measurement.
    pub rows: Vec<Row>,
    /// What they come to.
    pub summary: Vec<Comparison>,
}

impl Outcome {
    /// The number of connections that failed.
    pub fn errors(&self) -> u64 {
        self.rows.iter().map(|row| row.errors).sum()
    }
}

/// Compares every mode with the first, case by case.
pub(super) fn summarize(rows: &[Row], labels: &[String]) -> Vec<Comparison> {
    let Some((baseline, others)) = labels.split_first() else {
        return Vec::new();
    };
    let mut cases: Vec<(&'static str, usize)> = Vec::new();
    for row in rows {
        let case = (row.suite, row.concurrency);
        if !cases.contains(&case) {
            cases.push(case);
        }
    }
    // A single mode is summarized against itself: its figures, and ratios of 1.
    let compared = if others.is_empty() { labels } else { others };
    cases
        .iter()
        .flat_map(|&case| compared.iter().map(move |mode| (case, mode)))
        .map(|(case, mode)| compare(rows, case, baseline, mode))
        .collect()
}

fn compare(
    rows: &[Row],
    (suite, concurrency): (&'static str, usize),
    baseline: &str,
    mode: &str,
) -> Comparison {
    let of = |mode: &str| {
        let mode = mode.to_owned();
        rows.iter().filter(move |row| {
            row.mode == mode && row.suite == suite && row.concurrency == concurrency
        })
    };
    let pairs: Vec<(&Row, &Row)> = of(baseline)
        .filter_map(|base| Some((base, of(mode).find(|row| row.round == base.round)?)))
        .collect();
    let ratio = |part: fn(&Row, &Row) -> (f64, f64)| {
        Spread::of_ratios(pairs.iter().map(|(base, other)| part(base, other)))
    };
    Comparison {
        suite,
        key_exchange: Suite::find(suite)
            .and_then(|suite| suite.group)
            .map_or("RSA", Group::name),
        concurrency,
        baseline: baseline.to_owned(),
        mode: mode.to_owned(),
        rounds: pairs.len(),
        baseline_server_cpu_us: Spread::of(pairs.iter().map(|(base, _)| base.server_cpu_us)),
        server_cpu_us: Spread::of(pairs.iter().map(|(_, other)| other.server_cpu_us)),
        server_cpu_ratio: ratio(|base, other| (base.server_cpu_us, other.server_cpu_us)),
        handshakes_ratio: ratio(|base, other| (other.handshakes_per_s, base.handshakes_per_s)),
        p50_ratio: ratio(|base, other| (base.p50_us, other.p50_us)),
    }
}

impl fmt::Display for Outcome {
    /// The summary as a table, and the failed connections if there were any.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            formatter,
            "{:<24} {:<12} {:>5} {:<12} {:>10} {:>10} {:>9} {:>13} {:>12} {:>12}",
            "suite",
            "key exchange",
            "conns",
            "mode",
            "base us",
            "mode us",
            "CPU x",
            "(range)",
            "handshakes x",
            "p50 x"
        )?;
        for line in &self.summary {
            let range = line.server_cpu_ratio.map_or_else(
                || "-".to_owned(),
                |ratio| format!("{:.2}..{:.2}", ratio.min, ratio.max),
            );
            writeln!(
                formatter,
                "{:<24} {:<12} {:>5} {:<12} {:>10} {:>10} {:>9} {:>13} {:>12} {:>12}",
                line.suite,
                line.key_exchange,
                line.concurrency,
                line.mode,
                median(line.baseline_server_cpu_us, 0),
                median(line.server_cpu_us, 0),
                median(line.server_cpu_ratio, 3),
                range,
                median(line.handshakes_ratio, 3),
                median(line.p50_ratio, 3),
            )?;
        }
        writeln!(
            formatter,
            "base us, mode us: CPU time of the worker per handshake. The ratios are medians of {} paired rounds \
             against {};\nabove 1 the mode is better (less CPU, more handshakes per second, lower median latency).",
            self.summary.first().map_or(0, |line| line.rounds),
            self.summary
                .first()
                .map_or("the first mode", |line| &line.baseline),
        )?;
        for row in self.rows.iter().filter(|row| row.handshakes == 0) {
            writeln!(
                formatter,
                "NOTHING to compare: no handshake was completed in round {}, {} {} at {}; measure for more --seconds",
                row.round, row.mode, row.suite, row.concurrency,
            )?;
        }
        for row in self.rows.iter().filter(|row| row.errors > 0) {
            writeln!(
                formatter,
                "FAILED: {} connections in round {}, {} {} at {}: {}",
                row.errors,
                row.round,
                row.mode,
                row.suite,
                row.concurrency,
                row.first_error.as_deref().unwrap_or("unknown"),
            )?;
        }
        Ok(())
    }
}

fn median(spread: Option<Spread>, digits: usize) -> String {
    spread.map_or_else(
        || "-".to_owned(),
        |spread| format!("{:.digits$}", spread.median),
    )
}

#[cfg(test)]
mod tests {
    use super::super::{Mode, labels};
    use super::*;

    fn row(mode: &str, round: usize, cpu: f64, rate: f64) -> Row {
        Row {
            server: "nginx",
            mode: mode.to_owned(),
            suite: "tls13-rsa2048",
            concurrency: 64,
            round,
            handshakes: 1000,
            handshakes_per_s: rate,
            server_cpu_us: cpu,
            p50_us: 1e6 / rate,
            p99_us: 2e6 / rate,
            server_share: 0.9,
            client_share: 0.3,
            errors: 0,
            first_error: None,
        }
    }

    #[test]
    fn ratios_are_better_above_one_and_paired_by_round() {
        // The machine is half as fast in round 2, and the modes are measured in the other order there.
        let rows = [
            row("stock", 1, 800.0, 1000.0),
            row("slipstream", 1, 400.0, 1500.0),
            row("slipstream", 2, 800.0, 750.0),
            row("stock", 2, 1600.0, 500.0),
        ];
        let summary = summarize(&rows, &labels(&[Mode::Stock, Mode::Slipstream]));
        assert_eq!(summary.len(), 1);
        let comparison = &summary[0];
        assert_eq!(comparison.rounds, 2);
        assert_eq!(comparison.server_cpu_ratio.unwrap().median, 2.0);
        assert_eq!(comparison.server_cpu_ratio.unwrap().min, 2.0);
        assert_eq!(comparison.handshakes_ratio.unwrap().median, 1.5);
        assert_eq!(comparison.p50_ratio.unwrap().median, 1.5);
        assert_eq!(comparison.baseline_server_cpu_us.unwrap().median, 1200.0);
    }

    #[test]
    fn a_round_without_its_other_half_is_left_out() {
        let rows = [
            row("stock", 1, 800.0, 1000.0),
            row("slipstream", 1, 400.0, 1500.0),
            row("stock", 2, 1600.0, 500.0),
        ];
        let summary = summarize(&rows, &labels(&[Mode::Stock, Mode::Slipstream]));
        assert_eq!(summary[0].rounds, 1);
    }

    #[test]
    fn a_mode_measured_twice_is_compared_with_itself() {
        let labels = labels(&[Mode::Stock, Mode::Stock, Mode::Slipstream]);
        assert_eq!(labels, ["stock", "stock-2", "slipstream"]);
        let rows = [
            row("stock", 1, 800.0, 1000.0),
            row("stock-2", 1, 808.0, 990.0),
        ];
        let summary = summarize(&rows, &labels[..2]);
        assert_eq!(summary[0].mode, "stock-2");
        assert!((summary[0].server_cpu_ratio.unwrap().median - 0.99).abs() < 0.001);
    }

    #[test]
    fn failures_stand_below_the_table() {
        let mut failing = row("stock", 1, 800.0, 1000.0);
        failing.errors = 3;
        failing.first_error = Some("handshake: reset".to_owned());
        let outcome = Outcome {
            machine: Machine::describe(None),
            summary: summarize(&[failing.clone()], &["stock".to_owned()]),
            rows: vec![failing],
        };
        assert_eq!(outcome.errors(), 3);
        let text = outcome.to_string();
        assert!(text.contains("FAILED: 3 connections"), "{text}");
        assert!(text.contains("handshake: reset"), "{text}");
    }

    #[test]
    fn a_window_without_handshakes_has_no_ratio() {
        let mut nothing = row("stock", 1, f64::INFINITY, 0.0);
        nothing.p50_us = f64::NAN;
        nothing.handshakes = 0;
        let rows = vec![nothing, row("slipstream", 1, 400.0, 1500.0)];
        let summary = summarize(&rows, &labels(&[Mode::Stock, Mode::Slipstream]));
        assert!(summary[0].server_cpu_ratio.is_none());
        assert!(summary[0].handshakes_ratio.is_none());
        assert!(summary[0].p50_ratio.is_none());
        let outcome = Outcome {
            machine: Machine::describe(None),
            rows,
            summary,
        };
        assert!(outcome.to_string().contains("NOTHING to compare"));
    }
}
