//! Comparisons of the measurements of handshakes.

use serde::Serialize;
use slipstream_testbed::machine::Machine;
use slipstream_testbed::peers::Crypto;
use slipstream_testbed::suite::{Group, Suite};

use super::{Label, Row};
use crate::statistics::{Paired, Spread};

/// One system against another, over all rounds: against the first that can serve the suite, and
/// `serve` against `serve-awslc` too.
#[derive(Debug, Clone, Serialize)]
pub struct Comparison {
    /// The suite's name.
    pub suite: &'static str,
    /// The group of its key exchange, or RSA.
    pub key_exchange: &'static str,
    /// Connections at work at a time.
    pub concurrency: usize,
    /// The server that is compared with.
    pub baseline_server: &'static str,
    /// Its mode.
    pub baseline: String,
    /// The server that is compared.
    pub server: &'static str,
    /// Its mode.
    pub mode: String,
    /// Number of rounds in which both were measured.
    pub rounds: usize,
    /// Server CPU per handshake of the baseline, in microseconds.
    pub baseline_server_cpu_us: Option<Spread>,
    /// Server CPU per handshake of the compared system, in microseconds.
    pub server_cpu_us: Option<Spread>,
    /// Server CPU per handshake, baseline / compared: above 1, the compared system needs less.
    pub server_cpu_ratio: Option<Spread>,
    /// Handshakes per second, compared / baseline: above 1, the compared system serves more.
    pub handshakes_ratio: Option<Spread>,
    /// Median latency, baseline / compared: above 1, the compared system answers faster.
    pub p50_ratio: Option<Spread>,
}

/// All that an experiment found.
#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    /// The machine.
    pub machine: Machine,
    /// Versions of the servers other than nginx.
    pub versions: Vec<Version>,
    /// Every measurement.
    pub rows: Vec<Row>,
    /// Their comparisons.
    pub summary: Vec<Comparison>,
}

/// The version of a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Version {
    /// The server's name.
    pub server: &'static str,
    /// The line that it prints.
    pub version: String,
}

impl Outcome {
    /// The number of connections that failed.
    pub fn errors(&self) -> u64 {
        self.rows.iter().map(|row| row.errors).sum()
    }
}

/// Compares the measurements, case by case.
pub(super) fn summarize(rows: &[Row], labels: &[Label]) -> Vec<Comparison> {
    let mut cases: Vec<(&'static str, usize)> = Vec::new();
    for row in rows {
        let case = (row.suite, row.concurrency);
        if !cases.contains(&case) {
            cases.push(case);
        }
    }
    let mut summary = Vec::new();
    for case in cases {
        let measured: Vec<&Label> = labels
            .iter()
            .filter(|label| rows.iter().any(|row| is_of(row, case, label)))
            .collect();
        let pairs = pairs(&measured);
        summary.extend(
            pairs
                .iter()
                .map(|(baseline, compared)| compare(rows, case, baseline, compared)),
        );
    }
    summary
}

/// The pairs that are compared: the first with each of the others, and aws-lc with lanes. A single
/// system is compared with itself: its figures, and ratios of 1.
fn pairs<'a>(measured: &[&'a Label]) -> Vec<(&'a Label, &'a Label)> {
    let Some((&first, others)) = measured.split_first() else {
        return Vec::new();
    };
    if others.is_empty() {
        return vec![(first, first)];
    }
    let with_first = others.iter().map(|&other| (first, other));
    let of = |crypto: Crypto| {
        let name = crypto.server_name();
        measured.iter().filter(move |label| label.server == name)
    };
    let cryptographies = of(Crypto::AwsLc)
        .filter(|&&software| software != first)
        .flat_map(|&software| of(Crypto::Slipstream).map(move |&lanes| (software, lanes)));
    with_first.chain(cryptographies).collect()
}

fn is_of(row: &Row, (suite, concurrency): (&str, usize), label: &Label) -> bool {
    row.server == label.server
        && row.mode == label.mode
        && row.suite == suite
        && row.concurrency == concurrency
}

fn compare(
    rows: &[Row],
    case: (&'static str, usize),
    baseline: &Label,
    compared: &Label,
) -> Comparison {
    let paired = Paired::of(
        rows,
        |row| is_of(row, case, baseline),
        |row| is_of(row, case, compared),
    );
    let (suite, concurrency) = case;
    Comparison {
        suite,
        key_exchange: Suite::find(suite)
            .and_then(|suite| suite.group)
            .map_or("RSA", Group::name),
        concurrency,
        baseline_server: baseline.server,
        baseline: baseline.mode.clone(),
        server: compared.server,
        mode: compared.mode.clone(),
        rounds: paired.rounds(),
        baseline_server_cpu_us: paired.baseline_spread(|row| row.server_cpu_us),
        server_cpu_us: paired.spread(|row| row.server_cpu_us),
        server_cpu_ratio: paired.inverse_ratio(|row| row.server_cpu_us),
        handshakes_ratio: paired.ratio(|row| row.handshakes_per_s),
        p50_ratio: paired.inverse_ratio(|row| row.p50_us),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::{Mode, System, labels};
    use super::*;

    pub(in super::super) fn row(
        (server, mode): (&'static str, &str),
        round: usize,
        cpu: f64,
        rate: f64,
    ) -> Row {
        Row {
            server,
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

    pub(in super::super) fn label((server, mode): (&'static str, &str)) -> Label {
        Label {
            server,
            mode: mode.to_owned(),
        }
    }

    pub(in super::super) const STOCK: (&str, &str) = ("nginx", "stock");
    pub(in super::super) const SLIPSTREAM: (&str, &str) = ("nginx", "slipstream");
    pub(in super::super) const AWS_LC: (&str, &str) = ("serve-awslc", "stock");
    pub(in super::super) const SERVE: (&str, &str) = ("serve", "stock");

    #[test]
    fn ratios_are_better_above_one_and_paired_by_round() {
        // The machine is half as fast in round 2, and the modes are measured in the other order
        // there.
        let rows = [
            row(STOCK, 1, 800.0, 1000.0),
            row(SLIPSTREAM, 1, 400.0, 1500.0),
            row(SLIPSTREAM, 2, 800.0, 750.0),
            row(STOCK, 2, 1600.0, 500.0),
        ];
        let summary = summarize(&rows, &[STOCK, SLIPSTREAM].map(label));
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
            row(STOCK, 1, 800.0, 1000.0),
            row(SLIPSTREAM, 1, 400.0, 1500.0),
            row(STOCK, 2, 1600.0, 500.0),
        ];
        let summary = summarize(&rows, &[STOCK, SLIPSTREAM].map(label));
        assert_eq!(summary[0].rounds, 1);
    }

    #[test]
    fn a_mode_measured_twice_is_compared_with_itself() {
        let labels = labels(&[System::Nginx(Mode::Stock), System::Nginx(Mode::Stock)]);
        let rows = [
            row(STOCK, 1, 800.0, 1000.0),
            row(("nginx", "stock-2"), 1, 808.0, 990.0),
        ];
        let summary = summarize(&rows, &labels);
        assert_eq!(summary[0].mode, "stock-2");
        assert!((summary[0].server_cpu_ratio.unwrap().median - 0.99).abs() < 0.001);
    }

    #[test]
    fn servers_are_compared_with_the_first_and_lanes_with_aws_lc() {
        let rows = [
            row(STOCK, 1, 800.0, 1000.0),
            row(AWS_LC, 1, 600.0, 1200.0),
            row(SERVE, 1, 200.0, 3000.0),
        ];
        let ratios = |order: [(&'static str, &str); 3]| -> Vec<(&str, &str, f64)> {
            summarize(&rows, &order.map(label))
                .iter()
                .map(|line| {
                    let ratio = line.server_cpu_ratio.unwrap().median;
                    (line.baseline_server, line.server, ratio)
                })
                .collect()
        };
        assert_eq!(
            ratios([STOCK, AWS_LC, SERVE]),
            [
                ("nginx", "serve-awslc", 800.0 / 600.0),
                ("nginx", "serve", 4.0),
                ("serve-awslc", "serve", 3.0),
            ]
        );
        // No pair twice.
        assert_eq!(ratios([AWS_LC, STOCK, SERVE]).len(), 2);
    }

    #[test]
    fn a_suite_that_the_first_cannot_serve_is_compared_with_the_next() {
        let rows = [
            row(STOCK, 1, 800.0, 1000.0),
            row(("haproxy", "stock"), 1, 1000.0, 800.0),
        ];
        let summary = summarize(&rows, &[SERVE, STOCK, ("haproxy", "stock")].map(label));
        assert_eq!(summary.len(), 1);
        assert_eq!(
            (summary[0].baseline_server, summary[0].server),
            ("nginx", "haproxy")
        );
        assert_eq!(summary[0].server_cpu_ratio.unwrap().median, 0.8);
    }

    #[test]
    fn a_window_without_handshakes_has_no_ratio() {
        let mut nothing = row(STOCK, 1, f64::INFINITY, 0.0);
        nothing.p50_us = f64::NAN;
        nothing.handshakes = 0;
        let rows = [nothing, row(SLIPSTREAM, 1, 400.0, 1500.0)];
        let summary = summarize(&rows, &[STOCK, SLIPSTREAM].map(label));
        assert!(summary[0].server_cpu_ratio.is_none());
        assert!(summary[0].handshakes_ratio.is_none());
        assert!(summary[0].p50_ratio.is_none());
    }
}
